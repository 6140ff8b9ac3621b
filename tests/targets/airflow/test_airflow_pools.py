"""Pools of GPUs: how many slots, from where each number comes, and that Airflow takes them.

Tests gpuflow/targets/airflow/pools.py and gpuflow/cli/airflow.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow import loads
from gpuflow.cli.main import main
from gpuflow.cluster import Cluster, cluster_of
from gpuflow.core.errors import Finding
from gpuflow.site import Site
from gpuflow.targets.airflow.pools import pools

from .home import Home

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: sweep\ndefaults: {image: i}\n"
LOOP = HEAD + "steps: {train: {command: [x], gpu: a100-80gb x 2, for_each: {lr: [1, 2, 3, 4]}, parallel: 2}}"
GPU = "nvidia.com/gpu"


def quota(amount: str, name: str = "gpus", **spec: Any) -> dict[str, Any]:
    hard = {"hard": {f"requests.{GPU}": amount}}
    meta = {"name": name, "namespace": "nlp"}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": meta, "spec": {**hard, **spec}}


def node(name: str, amount: str, **spec: Any) -> dict[str, Any]:
    status = {"allocatable": {GPU: amount}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}


def queue(amount: int, name: str = "research", **spec: Any) -> list[dict[str, Any]]:
    flavor = {"name": "a100", "resources": [{"name": GPU, "nominalQuota": amount}]}
    kueue = "kueue.x-k8s.io/v1beta1"
    groups = [{"coveredResources": [GPU], "flavors": [flavor]}]
    return [
        {
            "apiVersion": kueue,
            "kind": "ClusterQueue",
            "metadata": {"name": f"of-{name}"},
            "spec": {"resourceGroups": groups, "namespaceSelector": {}, **spec},
        },
        {
            "apiVersion": kueue,
            "kind": "LocalQueue",
            "metadata": {"name": name, "namespace": "nlp"},
            "spec": {"clusterQueue": f"of-{name}"},
        },
    ]


def sized(
    *objects: Mapping[str, Any], text: str = LOOP, available: Mapping[str, int] | None = None
) -> tuple[dict[str, Any], list[Finding]]:
    cluster: Cluster | None = cluster_of(objects) if objects else None
    found, findings = pools([loads(text)], Site.load("nvidia"), available, cluster, "nlp")
    return found["gpu"], findings


def test_without_a_cluster_a_pool_lets_parallel_happen() -> None:
    pool, findings = sized()
    assert (pool["slots"], findings) == (4, [])  # two steps of two GPUs at once
    assert pool["description"].endswith("the worst moment of sweep, no cluster asked")


def test_a_fan_out_of_unknown_size_is_said_to_be_unknown() -> None:
    text = HEAD + (
        "steps: {list: {command: [x], outputs: {all: json}}, "
        "train: {command: [x], gpu: a100-80gb x 2, for_each: {lr: {output: list.all}}}}"
    )
    pool, findings = sized(text=text)
    assert pool["slots"] == 2
    assert [(each.code, each.severity) for each in findings] == [("GF367", "note")]
    assert "is not known" in findings[0].message


QUEUED = LOOP.replace("parallel: 2", "parallel: 2, queue: research")


@pytest.mark.parametrize(
    ("quota_", "kueue", "nodes", "source"),
    [
        (5, 8, 9, "quota gpus of namespace nlp"),
        (8, 5, 9, "Kueue's nominal quota of of-research"),
        (8, 9, 5, "what 2 nodes can give"),
    ],
)
def test_the_smallest_number_decides_and_the_others_are_named(quota_: int, kueue: int, nodes: int, source: str) -> None:
    pool, findings = sized(quota(str(quota_)), *queue(kueue), node("a", "2"), node("b", str(nodes - 2)), text=QUEUED)
    assert (pool["slots"], findings) == (5, [])
    told = pool["description"].partition("gpuflow: ")[2]
    assert told.startswith(source)
    assert all(str(number) in told for number in sorted({quota_, kueue, nodes} - {5}))


def test_of_several_quotas_the_smallest_binds_and_one_with_scopes_is_named() -> None:
    scoped = quota("1", "spot", scopes=["BestEffort"])
    pool, findings = sized(quota("8"), quota("6", "less"), scoped, node("a", "9"))
    assert pool["slots"] == 6
    assert [each.message for each in findings if each.code == "GF367"] == [
        "nvidia.com/gpu: quota spot counts only some pods (scopes), so it does not bound the pool"
    ]


def test_steps_without_a_queue_are_not_bounded_by_kueue_unless_there_is_a_default_one() -> None:
    pool, _ = sized(quota("8"), *queue(5), node("a", "9"))
    assert pool["slots"] == 8
    pool, _ = sized(quota("8"), *queue(5, "default"), node("a", "9"))
    assert pool["slots"] == 5


def test_what_a_queue_may_borrow_is_no_slot_and_is_said() -> None:
    pool, _ = sized(quota("8"), *queue(5, cohort="all"), node("a", "9"), text=QUEUED)
    assert pool["slots"] == 5
    assert "more only while others lend it" in pool["description"]


def test_closed_nodes_give_nothing() -> None:
    pool, _ = sized(quota("9"), node("a", "4"), node("b", "4", unschedulable=True))
    assert pool["slots"] == 4
    assert "1 closed left out" in pool["description"]


def test_what_the_snapshot_does_not_show_is_named_and_does_not_count() -> None:
    pool, findings = sized(quota("8"))
    assert pool["slots"] == 8
    assert [each.message for each in findings] == ["nvidia.com/gpu: the nodes are not shown"]
    pool, findings = sized(quota("8"), node("a", "many"))
    assert pool["slots"] == 8
    assert "node a:" in findings[0].message
    pool, findings = sized(quota("8"), node("a", "9"), text=QUEUED)
    assert "LocalQueue research of namespace nlp is not shown" in findings[0].message


def test_nothing_known_is_what_the_pipelines_ask_for() -> None:
    elsewhere = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "nlp"}}
    pool, findings = sized(elsewhere)
    assert pool["slots"] == 4
    assert pool["description"].endswith("the worst moment of sweep, the cluster shows no number")
    assert {each.code for each in findings} == {"GF367"}


def test_a_step_that_is_larger_than_its_pool_is_warned_about() -> None:
    for pool, findings in (sized(quota("1"), node("a", "9")), sized(available={GPU: 1})):
        assert pool["slots"] == 1
        told = [each for each in findings if each.code == "GF368"]
        assert [each.severity for each in told] == ["warning"]
        assert "takes 2 slots, and the pool has 1" in told[0].message


def test_a_pool_below_the_worst_moment_says_that_steps_wait() -> None:
    _, findings = sized(quota("3"), node("a", "9"))
    assert [each.code for each in findings] == ["GF369"]
    assert "takes 4 of nvidia.com/gpu at its worst moment (train)" in findings[0].message


def test_available_overrules_the_cluster() -> None:
    pool, findings = sized(quota("5"), node("a", "9"), available={GPU: 7})
    assert (pool["slots"], findings) == (7, [])
    assert pool["description"].endswith("as --available says")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "p.yaml").write_text(QUEUED)
    (tmp_path / "cluster").mkdir()
    objects = [quota("6"), *queue(8), node("a", "9")]
    (tmp_path / "cluster" / "all.yaml").write_text(yaml.safe_dump_all(objects))
    return tmp_path


def test_a_cluster_needs_a_namespace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["airflow", "pools", str(folder / "p.yaml"), "--cluster", str(folder / "cluster")]
    assert main(words) == 2
    assert "GF904" in capsys.readouterr().err
    assert main([*words, "--namespace", "nlp"]) == 0
    assert json.loads(capsys.readouterr().out)["gpu"]["slots"] == 6


@pytest.mark.slow
def test_airflow_imports_the_pools(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["airflow", "pools", str(folder / "p.yaml"), "--cluster", str(folder / "cluster"), "--namespace", "nlp"]
    assert main(words) == 0
    (folder / "pools.json").write_text(capsys.readouterr().out)
    home = Home(folder / "home", Path(sys.executable).parent, {})
    home.migrate()
    program = str(Path(sys.executable).with_name("airflow"))
    for command in (["import", str(folder / "pools.json")], ["export", str(folder / "out.json")]):
        subprocess.run([program, "pools", *command], env=home.environment, check=True, capture_output=True)
    kept = json.loads((folder / "out.json").read_text())["gpu"]
    assert (kept["slots"], kept["include_deferred"]) == (6, True)
    assert "quota gpus of namespace nlp" in kept["description"]
