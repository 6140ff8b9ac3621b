"""What the site, the cache and changed components come to on a real KFP."""

from __future__ import annotations

from typing import Any

import pytest

from proofs.kubeflow import carried
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import argo, cluster, control_plane, kubeflow, private_cluster, proof_ground
from tests.cluster.fixtures import AnyCluster

__all__ = ["argo", "cluster", "control_plane", "kubeflow", "private_cluster", "proof_ground"]

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def seen(private_cluster: Cluster, kubeflow: AnyCluster) -> dict[str, Any]:
    """Everything, played once."""
    return carried.play(private_cluster)


def test_a_second_run_finds_all_results_and_a_changed_variable_makes_its_step_run_again(seen: dict[str, Any]) -> None:
    assert {seen["states"][name] for name in ("first", "second", "third")} == {"SUCCEEDED"}
    assert seen["pods"]["first"] == ["fan", "fan", "made", "reads"]
    assert seen["pods"]["second"] == []
    assert seen["pods"]["third"] == ["made"]


def test_the_group_of_volumes_is_set_by_the_templates_defaults_and_not_by_the_workflow(seen: dict[str, Any]) -> None:
    assert {way: seen["states"][way] for way in carried.WAYS} == {
        "stock": "FAILED",
        "workflow": "FAILED",
        "templates": "SUCCEEDED",
        "pods": "SUCCEEDED",
    }
    assert seen["groups"] == {"stock": [None], "workflow": [None], "templates": [1000], "pods": [1000]}


def test_a_later_kfp_runs_init_containers_and_sidecars(seen: dict[str, Any]) -> None:
    assert seen["states"]["helped"] == "SUCCEEDED"
    assert "fetched in a hurry {{braces}}" in seen["said"]["helped"]
    added = {each["name"]: each.get("restartPolicy") for each in seen["helped"]}
    assert (added["fetch"], added["beat"]) == (None, "Always")


def test_tasks_of_a_component_and_configured_ones_have_what_they_were_told(seen: dict[str, Any]) -> None:
    assert seen["states"]["adjusted"] == "SUCCEEDED"
    assert "plain more me" in seen["said"]["adjusted"]
    by_limit = {pod["limits"]["memory"]: pod for pod in seen["adjusted"]}
    assert by_limit["200Mi"]["labels"]["cost"] == "low"
    assert by_limit["200Mi"]["user"] == 1000
    assert (by_limit["128Mi"]["limits"]["nvidia.com/gpu"], by_limit["128Mi"]["user"]) == ("1", None)
    assert by_limit["129Mi"]["user"] == 1234


def test_tasks_of_one_component_resume_their_own_state_after_a_failure(seen: dict[str, Any]) -> None:
    assert seen["states"]["resumed"] == "SUCCEEDED"
    assert seen["pods"]["resumed"] == ["train"] * 6
    assert seen["said"]["resumed"].count("attempt 1 of ") == 3
    assert seen["said"]["resumed"].count("attempt 2 of ") == 3
