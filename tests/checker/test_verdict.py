"""What the checker says about whole pipelines on small clusters.

Tests gpuflow/checker/quota/namespace.py, gpuflow/checker/quota/peak.py and gpuflow/checker/run.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cluster import Cluster, Manifest, read_cluster
from gpuflow.core.errors import Where
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import load, loads
from tests.assumed import ASSUMED

DEMO = Path(__file__).resolve().parents[2] / "gpuflow" / "demo"
HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i, cpu: 1, memory: 1Gi}\n"


def checked(text: str, *objects: dict[str, Any], site: str = "nvidia", engine: str = "none", runs: int = 1) -> Report:
    manifests = tuple(
        Manifest(
            item["kind"],
            item["apiVersion"].rpartition("/")[0],
            item["metadata"]["name"],
            item["metadata"].get("namespace"),
            item,
            Where("cluster.yaml", 1, 1),
        )
        for item in objects
    )
    pipeline = loads(HEAD + text, "p.yaml")
    return check(
        demand_of(pipeline, Site.load(site), engine),
        Cluster("cluster.yaml", manifests, assumed=ASSUMED),
        "ns",
        runs=runs,
    )


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    status = {"hard": hard, "used": {**dict.fromkeys(hard, "0"), **(used or {})}}
    spec = {"hard": hard, **spec}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": spec, "status": status}


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


TWO = "steps: {a: {command: [x], gpu: a100-80gb x 2}, b: {command: [x], gpu: a100-80gb x 3}}"


def test_steps_that_fit_together_are_always_admitted() -> None:
    report = checked(TWO, quota({"requests.nvidia.com/gpu": "5"}))
    assert report.verdict == "always"
    (scope,) = report.scopes
    assert (str(scope.peak), scope.witness) == ("5", ("a", "b"))


def test_steps_that_fit_only_one_after_the_other_may_queue_and_the_safe_parallelism_is_named() -> None:
    report = checked(TWO, quota({"requests.nvidia.com/gpu": "5"}, {"requests.nvidia.com/gpu": "1"}))
    assert report.verdict == "may-queue"
    assert report.scopes[0].safe_parallelism == 1
    assert codes(report) == ["GF512"]


def test_a_step_that_fits_alone_never_is_told_with_the_servers_sentence() -> None:
    report = checked(TWO, quota({"requests.nvidia.com/gpu": "2"}))
    assert report.verdict == "never"
    finding = report.findings[0]
    assert finding.code == "GF501"
    assert finding.kubernetes == (
        'pods "b" is forbidden: exceeded quota: q, requested: requests.nvidia.com/gpu=3, '
        "used: requests.nvidia.com/gpu=0, limited: requests.nvidia.com/gpu=2"
    )


def test_several_runs_at_once_multiply_the_peak() -> None:
    assert checked(TWO, quota({"requests.nvidia.com/gpu": "9"}), runs=2).verdict == "may-queue"
    assert checked(TWO, quota({"requests.nvidia.com/gpu": "10"}), runs=2).verdict == "always"


def test_a_quota_for_other_pods_does_not_count() -> None:
    report = checked(TWO, quota({"requests.nvidia.com/gpu": "1"}, scopes=["Terminating"]))
    assert report.verdict == "always"


def test_engine_containers_that_must_say_their_resources_are_named() -> None:
    report = checked("steps: {a: {command: [x]}}", quota({"limits.cpu": "9"}), engine="argo")
    assert report.verdict == "never"
    assert "for: init,wait" in (report.findings[0].kubernetes or "")


def test_a_fan_out_known_at_run_time_is_unknown_unless_it_is_capped() -> None:
    text = "steps: {a: {command: [x], outputs: {n: json}}, b: {for_each: {i: {output: a.n}}, %scommand: [x]}}"
    assert checked(text % "", quota({"pods": "5"})).verdict == "unknown"
    assert checked(text % "parallel: 5, ", quota({"pods": "5"})).verdict == "always"


def test_the_limit_range_that_people_copy_hands_gpus_to_every_container() -> None:
    cluster = read_cluster(str(DEMO / "cluster"))
    both = Cluster("both", (*cluster.objects, *read_cluster(str(DEMO / "limit-range")).objects))
    site = Site.load(str(DEMO / "site.yaml"))
    report = check(demand_of(load(DEMO / "nightly.yaml"), site, "argo"), both, "team-a")
    gift = next(finding for finding in report.findings if finding.code == "GF513")
    assert "2 nvidia.com/gpu" in gift.message
    assert "init, main, wait" in gift.message


def test_a_dead_quota_key_is_named_with_the_one_that_works() -> None:
    report = checked("steps: {a: {command: [x]}}", quota({"nvidia.com/gpu": "1"}))
    (finding,) = report.findings
    assert finding.code == "GF521"
    assert '"requests.nvidia.com/gpu"' in (finding.hint or "")


def node(**allocatable: str) -> dict[str, Any]:
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    amounts = {"cpu": "8", "memory": "64Gi", "pods": "110", "nvidia.com/gpu": allocatable["gpu"]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "labels": labels},
        "status": {"allocatable": amounts},
    }


def test_a_step_that_no_node_can_hold_is_told_with_the_schedulers_sentence() -> None:
    report = checked("steps: {a: {command: [x], gpu: a100-80gb x 2}}", node(gpu="1"))
    assert report.verdict == "never"
    assert report.findings[0].kubernetes == "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."


def test_a_step_that_a_node_has_room_for_is_always_admitted() -> None:
    report = checked("steps: {a: {command: [x], gpu: a100-80gb}}", node(gpu="8"))
    assert report.verdict == "always"
    assert [(scope.kind, scope.resource, str(scope.hard)) for scope in report.scopes] == [
        ("Nodes", "nvidia.com/gpu", "8")
    ]


QUEUES = (
    {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": {}},
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "research", "namespace": "ns"},
        "spec": {"clusterQueue": "cq"},
    },
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ClusterQueue",
        "metadata": {"name": "cq"},
        "spec": {
            "namespaceSelector": {},
            "resourceGroups": [
                {
                    "coveredResources": ["cpu", "memory", "nvidia.com/gpu"],
                    "flavors": [
                        {
                            "name": "f",
                            "resources": [
                                {"name": "cpu", "nominalQuota": "9"},
                                {"name": "memory", "nominalQuota": "9Gi"},
                                {"name": "nvidia.com/gpu", "nominalQuota": "1"},
                            ],
                        }
                    ],
                }
            ],
        },
    },
)


def test_a_step_that_its_queue_can_never_admit_is_told_with_kueues_sentence() -> None:
    report = checked("steps: {a: {command: [x], queue: research, gpu: a100-80gb x 2}}", *QUEUES)
    assert report.verdict == "never"
    finding = next(finding for finding in report.findings if finding.code == "GF507")
    assert "insufficient quota for nvidia.com/gpu in flavor f" in (finding.kubernetes or "")


def test_a_last_checkpoint_that_does_not_fit_is_warned_about() -> None:
    policy = "checkpoint: {path: /c, store: s3://b/c, grace: 60s}"
    on_spot = checked(f"steps: {{a: {{command: [x], spot: prefer, {policy}}}}}", site="gke")
    assert "gone after 15s" in on_spot.findings[0].message
    cut_off = checked(f"steps: {{a: {{command: [x], termination_grace: 10s, {policy}}}}}")
    assert "killed after 10s" in cut_off.findings[0].message
    no_margin = checked(f"steps: {{a: {{command: [x], termination_grace: 60s, {policy}}}}}").findings[0]
    assert "leaves 50s" in no_margin.message
    assert "termination_grace to 1m10s" in str(no_margin.hint)
    assert checked(f"steps: {{a: {{command: [x], termination_grace: 70s, {policy}}}}}").findings == ()
    assert checked(f"steps: {{a: {{command: [x], {policy}}}}}").findings == ()


def test_a_queued_step_without_an_interruption_budget_is_noted() -> None:
    assert codes(checked("steps: {a: {command: [x], queue: research}}")) == ["GF542"]
    assert codes(checked("steps: {a: {command: [x], queue: research, retry: {interruptions: 1}}}")) == []
