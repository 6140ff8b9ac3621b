"""A demand that comes from no pipeline: steps, pod sets and a graph written by hand are checked like any other.

Tests gpuflow/demands/model.py.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.checker.report import LimitLine, Report
from gpuflow.checker.rules.deadlocks import Part, may_block
from gpuflow.checker.run import check
from gpuflow.cluster import read_cluster
from gpuflow.core.errors import Finding, Where
from gpuflow.demands import (
    ClaimDemand,
    Deadline,
    Demand,
    LaterAttempts,
    Overlap,
    PodSet,
    StepDemand,
    graph_of,
)
from gpuflow.graph import Dag, Leaf
from gpuflow.quantity import Quantity
from tests.assumed import ASSUMED
from tests.conftest import ROOT

GPU = "nvidia.com/gpu"
DEMO = ROOT / "gpuflow" / "demo" / "cluster"
RESTRICTED = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def test_a_step_that_gives_up_when_it_is_refused_makes_waiting_an_error(tmp_path: Path) -> None:
    """A known excess is said beside a loop that nothing bounds, and what is unknown once for all keys."""
    item = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q", "namespace": "t"}}
    hard = {"requests.cpu": "4", "limits.cpu": "99", "limits.memory": "99Gi"}
    item |= {"spec": {"hard": hard}, "status": {"hard": hard, "used": dict.fromkeys(hard, "0")}}
    (tmp_path / "quota.yaml").write_text(yaml.safe_dump(item))
    cluster = replace(read_cluster(str(tmp_path)), assumed=ASSUMED)
    for copies, fails in product((None, 2), (True, False)):
        many = StepDemand("many", (PodSet("main", 1, pod()),), copies=copies)
        wide = StepDemand("wide", (PodSet("main", 1, pod()),), copies=5, fails_when_refused=fails)
        report = check(Demand("d", (many, wide), graph_of((many, wide), {"wide": ["many"]})), cluster, "t")
        found = [(each.code, each.severity) for each in report.findings if each.code in ("GF512", "GF514")]
        assert ("GF512", "error" if fails else "warning") in found
        assert report.verdict == ("may-queue" if copies else "unknown")
        assert [line.verdict for line in report.scopes if line.resource == "requests.cpu"] == ["may-queue"]
        assert report.fails(set()) == (fails and report.verdict == "may-queue")
        unknown = [each.message for each in report.findings if each.code == "GF514"]
        assert copies or [each.split(":")[0] for each in unknown] == ["limits.cpu, limits.memory, requests.cpu"]


def pod(gpus: int = 0, cpu: str = "1", memory: str = "4Gi", **spec: Any) -> dict[str, Any]:
    amounts = {"cpu": cpu, "memory": memory, **({GPU: str(gpus)} if gpus else {})}
    main = {"name": "main", "image": "i", "resources": {"limits": amounts}, "securityContext": RESTRICTED}
    return {"metadata": spec.pop("metadata", {}), "spec": {"containers": [main], **spec}}


def gang(workers: int, gpus: int, leader_gpus: int = 0, name: str = "train", **fields: Any) -> StepDemand:
    """A leader of its own kind, and identical workers."""
    return StepDemand(
        name, (PodSet("leader", 1, pod(leader_gpus)), PodSet("workers", workers, pod(gpus, "4", "32Gi"))), **fields
    )


def demand(*steps: StepDemand, edges: Any = None, **fields: Any) -> Demand:
    return Demand("by-hand", steps, graph_of(steps, edges), **fields)


def thing(kind: str, name: str, version: str = "v1", **body: Any) -> dict[str, Any]:
    namespace = {} if kind in ("Node", "Namespace", "ResourceFlavor", "ClusterQueue") else {"namespace": "team-a"}
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, **namespace}, **body}


def quota(hard: dict[str, str], **spec: Any) -> dict[str, Any]:
    used = dict.fromkeys(hard, "0")
    return thing("ResourceQuota", "q", spec={"hard": hard, **spec}, status={"hard": hard, "used": used})


def report(found: Demand, folder: Path, *bodies: dict[str, Any]) -> Report:
    (folder / "cluster.yaml").write_text(yaml.safe_dump_all(bodies))
    return check(found, replace(read_cluster(str(folder)), assumed=ASSUMED), "team-a")


def line(found: Report, key: str) -> LimitLine:
    (only,) = [scope for scope in found.scopes if scope.resource == key]
    return only


def codes(found: Report) -> set[str]:
    return {finding.code for finding in found.findings}


def test_two_steps_with_a_leader_and_workers_are_checked_against_the_demo_cluster() -> None:
    train = gang(2, 2, where=Where("runs.yaml", 3, 1))
    evaluate = StepDemand("evaluate", (PodSet("main", 1, pod(1)),))
    found = demand(train, evaluate, edges={"train": ["evaluate"]}, file="runs.yaml")
    assert str(found.peak[f"requests.{GPU}"].value) == "4"
    assert str(found.peak["pods"].value) == "3"
    answer = check(found, read_cluster(str(DEMO)), "team-a")
    assert answer.verdict == "always"
    assert str(line(answer, f"requests.{GPU}").peak) == "4"
    assert (answer.document()["pipeline"], answer.document()["file"]) == ("by-hand", "runs.yaml")
    # The demo's quota leaves 6 GPUs of 10: four workers with two each may wait, six never fit.
    assert check(demand(gang(4, 2)), read_cluster(str(DEMO)), "team-a").verdict == "may-queue"
    never = check(demand(gang(6, 2, where=Where("runs.yaml", 3, 1))), read_cluster(str(DEMO)), "team-a")
    assert never.verdict == "never"


def test_pod_sets_that_differ_are_one_gang_to_a_quota(tmp_path: Path) -> None:
    """Each of the two fits alone, and both together never do."""
    found = report(demand(gang(2, 2, leader_gpus=2)), tmp_path, quota({f"requests.{GPU}": "5"}))
    assert found.verdict == "never"
    (finding,) = [each for each in found.findings if each.code == "GF501"]
    assert f'step "train": a gang of 3 pods asks for 6 of requests.{GPU}' in finding.message
    assert report(demand(gang(2, 2, leader_gpus=2)), tmp_path, quota({f"requests.{GPU}": "6"})).verdict == "always"


def test_two_gangs_whose_pods_differ_can_block_each_other(tmp_path: Path) -> None:
    """Together they need 12. With 8, one may hold its workers, the other a leader and a worker."""
    both = demand(gang(2, 2, leader_gpus=2), gang(2, 2, leader_gpus=2, name="tune"))
    assert "GF555" in codes(report(both, tmp_path, quota({f"requests.{GPU}": "8"})))
    assert "GF555" not in codes(report(both, tmp_path, quota({f"requests.{GPU}": "12"})))
    alone = demand(gang(2, 2, leader_gpus=2))
    assert "GF555" not in codes(report(alone, tmp_path, quota({f"requests.{GPU}": "8"})))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 3)), min_size=1, max_size=2), st.integers(1, 2)),
        min_size=1,
        max_size=2,
    ),
    st.integers(0, 14),
)
def test_mixed_gangs_block_each_other_when_trying_every_way_to_hold_pods_says_so(
    gangs: list[tuple[list[tuple[int, int]], int]], free: int
) -> None:
    parts = []
    alive: list[list[tuple[int, int]]] = []
    for sets, copies in gangs:
        (weight, pods), *others = sets
        rest = tuple((Quantity(str(other)), count) for other, count in others)
        parts.append(Part(Quantity(str(weight)), pods, copies, rest))
        alive += [sets] * copies
    held = [
        {
            sum(weight * count for (weight, _), count in zip(sets, counts, strict=True))
            for counts in product(*(range(pods + 1) for _, pods in sets))
            if any(count < pods for (_, pods), count in zip(sets, counts, strict=True))
        }
        for sets in alive
    ]
    smallest = min(weight for sets in alive for weight, _ in sets)
    blocked = len(alive) > 1 and free >= smallest and any(free - smallest < sum(way) <= free for way in product(*held))
    assert may_block(parts, Quantity(str(free))) == blocked


def test_a_leader_and_workers_that_the_nodes_never_hold_together(tmp_path: Path) -> None:
    offer = {"cpu": "9", "memory": "99Gi", GPU: "4", "pods": "9"}
    nodes = [thing("Node", f"n{index}", status={"allocatable": offer}) for index in (1, 2)]
    assert report(demand(gang(2, 3, leader_gpus=1)), tmp_path, *nodes).verdict == "always"
    found = report(demand(gang(2, 3, leader_gpus=2)), tmp_path, *nodes)
    assert found.verdict == "never"
    assert [each.message for each in found.findings if each.code == "GF506"] == [
        'step "train" fits on no set of nodes: with one pod of train/leader they hold 1 of the 2 pods of train/workers'
    ]


def queues(gpus: int) -> list[dict[str, Any]]:
    amounts = {"cpu": "99", "memory": "999Gi", GPU: str(gpus)}
    resources = [{"name": name, "nominalQuota": amount} for name, amount in amounts.items()]
    groups = [{"coveredResources": list(amounts), "flavors": [{"name": "any", "resources": resources}]}]
    kueue = "kueue.x-k8s.io/v1beta1"
    return [
        thing("Namespace", "team-a"),
        thing("ResourceFlavor", "any", kueue, spec={}),
        thing("ClusterQueue", "team", kueue, spec={"namespaceSelector": {}, "resourceGroups": groups}),
        thing("LocalQueue", "research", kueue, spec={"clusterQueue": "team"}),
    ]


def test_kueue_admits_a_leader_and_its_workers_together_or_never(tmp_path: Path) -> None:
    label = {"labels": {"kueue.x-k8s.io/queue-name": "research"}}
    sets = (PodSet("leader", 1, pod(2, metadata=label)), PodSet("workers", 2, pod(2, "2", metadata=label)))
    found = report(demand(StepDemand("train", sets)), tmp_path, *queues(5))
    assert found.verdict == "never"
    (finding,) = [each for each in found.findings if each.code == "GF507"]
    assert "its pods fit one by one, but not all together" in finding.message
    assert f"insufficient quota for {GPU} in flavor any" in (finding.kubernetes or "")
    assert report(demand(StepDemand("train", sets)), tmp_path, *queues(6)).verdict == "always"


def test_everything_else_of_a_demand_is_told_without_a_pipeline(tmp_path: Path) -> None:
    claim = ClaimDemand("scratch", {"spec": {"resources": {"requests": {"storage": "20Gi"}}}}, "scratch")
    found = demand(
        StepDemand("a", (PodSet("main", 1, pod(1)),), tries=3),
        StepDemand("b", (PodSet("main", 1, pod()),), is_exit=True),
        engine="argo",
        claims=(claim,),
        deadline=Deadline("1h", 3600),
        overlap=Overlap("a cron job every minute"),
        later=(LaterAttempts("after running out of memory", {"a": (PodSet("main", 1, pod(1, memory="64Gi")),)}),),
    )
    hard = {"requests.storage": "10Gi", "count/pods": "3"}
    answer = report(found, tmp_path, quota(hard))
    assert {"GF501", "GF552", "GF553"} <= codes(answer)
    assert "GF525" in codes(report(replace(found, claims=()), tmp_path, quota({"requests.memory": "32Gi"})))
    assert str(line(answer, "count/pods").peak) == "4"
    refused = replace(found, refusals=(Finding("GF301", "argo does not support it"),))
    assert "GF301" in codes(report(refused, tmp_path, quota({"pods": "9"})))
    terminating = report(replace(found, claims=()), tmp_path, quota({"pods": "9"}, scopes=["Terminating"]))
    assert str(line(terminating, "pods").peak) == "1"  # Argo writes no deadline on the exit step


def test_what_cannot_be_a_demand_is_an_error() -> None:
    one = StepDemand("a", (PodSet("main", 1, pod()),))
    with pytest.raises(ValueError, match="steps and graph do not agree about a, b"):
        Demand("x", (one,), Dag({"b": Leaf("b", {}, 1)}))
    with pytest.raises(ValueError, match="steps and graph do not agree about a"):
        Demand("x", (one,), Dag({"a": Leaf("a", {}, 2)}))
    with pytest.raises(ValueError, match="has no pod set"):
        StepDemand("a", ())
    with pytest.raises(ValueError, match="has 0 pods"):
        PodSet("main", 0, pod())
