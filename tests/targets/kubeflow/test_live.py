"""Compiled pipelines on a real KFP: what runs do, the pods they have, and what the table says of each construct."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gpuflow.targets.capabilities import NoSupport
from gpuflow.targets.kubeflow.facts import CAPABILITIES
from proofs.kubeflow import acting, constructs, forced, scenes
from proofs.kubeflow.all_cases import every_case
from proofs.kubeflow.playing import Player, Result, ground
from tests.cluster import kubeflow as backend
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import argo, cluster, control_plane, kubeflow, private_cluster, proof_ground
from tests.cluster.fixtures import AnyCluster

__all__ = ["argo", "cluster", "control_plane", "kubeflow", "private_cluster", "proof_ground"]

CASES = every_case()


@pytest.fixture(scope="module")
def player(private_cluster: Cluster, kubeflow: AnyCluster) -> Iterator[Player]:
    backend.settings(private_cluster, backend.ALWAYS)
    with ground(private_cluster) as made:
        yield made


@pytest.fixture(scope="module")
def played(player: Player) -> dict[str, Result]:
    """Every case, run once, many at a time."""
    found: dict[str, Result] = {}
    player.play(CASES, lambda case, result: found.update({case.name: result}))
    return found


@pytest.mark.cluster
@pytest.mark.parametrize("name", [case.name for case in CASES])
def test_a_run_does_what_the_spec_says(name: str, played: dict[str, Result]) -> None:
    assert played[name]["complaints"] == []


@pytest.mark.cluster
@pytest.mark.parametrize("name", [case.name for case in CASES if case.compares])
def test_the_pods_of_a_run_are_the_specs_up_to_the_written_list(name: str, played: dict[str, Result]) -> None:
    assert played[name]["compared"] > 0 or name == "when"
    assert played[name]["differences"] == []


@pytest.mark.cluster
def test_a_second_run_finds_what_the_first_has_made(player: Player) -> None:
    assert acting.cache(player)["complaints"] == []


@pytest.mark.cluster
def test_a_run_can_be_ended_and_deleted(player: Player) -> None:
    assert acting.terminate(player)["complaints"] == []


@pytest.mark.cluster
def test_a_server_is_told_of_a_run_that_failed(player: Player) -> None:
    assert acting.notify(player)["complaints"] == []


@pytest.mark.cluster
def test_the_lines_of_the_header_start_runs_on_a_schedule(player: Player) -> None:
    assert [words for result in acting.schedules(player) for words in result["complaints"]] == []


@pytest.mark.cluster
@pytest.mark.parametrize("strikes", [3, 4])
def test_interruptions_spend_the_retries_of_a_step(strikes: int, player: Player) -> None:
    assert acting.spend(player, strikes)["complaints"] == []


@pytest.mark.cluster
@pytest.mark.parametrize("settings", ["stock", "before"])
def test_what_is_retried_is_what_the_installation_says(settings: str, private_cluster: Cluster, player: Player) -> None:
    backend.settings(private_cluster, backend.SETTINGS[settings])
    found: list[Result] = []
    try:
        player.play(list(scenes.retries_of(settings)), lambda case, result: found.append(result))
    finally:
        backend.settings(private_cluster, backend.ALWAYS)
    assert [words for result in found for words in result["complaints"]] == []


def test_every_construct_of_the_table_is_run_or_says_where_it_is() -> None:
    """No cluster needed: a construct that is new, or that moved, has to be put somewhere."""
    shown = {construct for case in CASES for construct in case.constructs} | set(constructs.ELSEWHERE)
    carried = {name for name, answer in CAPABILITIES.items() if not isinstance(answer, NoSupport)}
    assert sorted(carried - shown) == []
    assert (
        sorted(construct for case in forced.cases() for construct in case.constructs if construct not in CAPABILITIES)
        == []
    )


def test_no_two_cases_share_a_name() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
