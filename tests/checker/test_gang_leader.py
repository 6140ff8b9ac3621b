"""A gang with a leader, judged: quotas, objects, nodes, and Kueue's two pod sets of one Workload.

Tests gpuflow/demands/gang_scheduling.py and gpuflow/demands/model.py.
"""

from __future__ import annotations

import pytest

import gpuflow
from tests.checker.findings.test_c_never_ends import counts
from tests.checker.gang_scenes import STEP, check, nodes, queue_objects, words
from tests.checker.whole_scenes import checked, codes, node, queues, quota, text_of


def gang(leader: str, more: str = "", workers: int = 2) -> str:
    shape = f"{{workers: {workers}, leader: {leader}}}"
    return f"steps: {{a: {{command: [x], gpu: a100-80gb x 2, gang: {shape}{more}}}}}"


@pytest.mark.parametrize("engine", ["airflow", "argo"])
@pytest.mark.parametrize("leader", ["true", "{gpu: null}"])
@pytest.mark.parametrize(
    ("key", "each"), [("count/jobsets.jobset.x-k8s.io", 1), ("count/jobs.batch", 2), ("services", 1)]
)
def test_a_leader_is_one_job_more_and_nothing_else(key: str, each: int, leader: str, engine: str) -> None:
    text = f"steps: {{a: {{command: [x], gang: {{workers: 2, leader: {leader}}}}}}}"
    assert checked(text, counts({key: each}), engine=engine).verdict == "always"
    assert checked(text, counts({key: each - 1}), engine=engine).verdict == "never"


@pytest.mark.parametrize("engine", ["none", "airflow", "argo"])
def test_both_pod_sets_are_one_workload(engine: str) -> None:
    key, text = "count/workloads.kueue.x-k8s.io", gang("{gpu: null}", ", queue: lq")
    scene = queues({"f": quota(8)})
    assert checked(text, *scene, counts({key: 1}), engine=engine).verdict == "always"
    assert checked(text, *scene, counts({key: 0}), engine=engine).verdict == "never"


@pytest.mark.parametrize("engine", ["none", "argo"])
@pytest.mark.parametrize(("leader", "gpus"), [("true", 6), ("{gpu: null}", 4), ("{gpu: a100-80gb}", 5)])
def test_kueue_admits_all_of_them_or_none(leader: str, gpus: int, engine: str) -> None:
    text = gang(leader, ", queue: lq")
    assert checked(text, *queues({"f": quota(gpus)}), engine=engine).verdict == "always"
    report = checked(text, *queues({"f": quota(gpus - 1)}), engine=engine)
    assert report.verdict == "never" and "GF507" in codes(report)


@pytest.mark.parametrize("engine", ["none", "argo", "airflow"])
@pytest.mark.parametrize(("leader", "verdict"), [("{gpu: null}", "always"), ("{gpu: a100-80gb}", "never")])
def test_the_nodes_must_hold_the_leader_beside_the_workers(leader: str, verdict: str, engine: str) -> None:
    """The workers take every GPU, also while whoever looks after them is there."""
    report = checked(gang(leader), node("n", 4), engine=engine)
    assert report.verdict == verdict
    if verdict == "never":
        assert "with one pod of a/leader they hold 1 of the 2 pods of a/worker" in text_of(report, "GF506")


def test_a_leader_like_the_workers_is_one_of_three_pods() -> None:
    assert checked(gang("true"), node("n", 6)).verdict == "always"
    assert checked(gang("true"), node("n", 5)).verdict == "never"


def test_later_attempts_of_the_leader_are_judged_too() -> None:
    """Four times the memory of the leader is more than a node has; of the workers it is not."""
    grows = ", memory: 1Gi, retry: {failures: 1, more_memory: {factor: 4, max: 1Ti}}"
    big = gang("{gpu: null, memory: 200Gi}", grows)
    first = checked(big.replace(grows, ", memory: 1Gi"), node("n", 4))
    assert first.verdict == "always", codes(first)
    assert "GF525" in codes(checked(big, node("n", 4)))
    assert "GF525" not in codes(checked(gang("{gpu: null, memory: 2Gi}", grows), node("n", 4)))


def led(leader: str) -> gpuflow.Pipeline:
    step = STEP.replace("gang: {workers: 4}", f"gang: {{workers: 4, leader: {leader}}}")
    return gpuflow.loads(f"apiVersion: gpuflow/v1\nkind: Pipeline\nname: demo\nsteps:\n  train:{step}")


def test_kueue_finds_one_rack_for_the_leader_and_its_workers() -> None:
    """Beside a worker there is room for a leader without a GPU, and none for one with eight."""
    no_gpu = led("{gpu: null, cpu: 1, memory: 1Gi}")
    report = check(no_gpu, *nodes(a=4, b=2), *queue_objects())
    assert report.verdict == "may-queue", words(report)
    assert check(no_gpu, *nodes(a=3, b=3), *queue_objects()).verdict == "never"
    assert check(led("true"), *nodes(a=4, b=4), *queue_objects()).verdict == "never"
    assert check(led("true"), *nodes(a=5, b=2), *queue_objects()).verdict == "may-queue"


@pytest.mark.parametrize(("tolerates", "never"), [("", True), ("{key: nvidia.com/gpu, operator: Exists}", False)])
def test_a_leader_without_a_gpu_must_tolerate_the_nodes_of_the_workers_flavor(tolerates: str, never: bool) -> None:
    """Kueue gives both pod sets of a group the same flavor. The launcher has a node of its own."""
    fence = {"taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]}
    fenced = [{**each, "spec": fence} for each in nodes(a=4)]
    plain = {**nodes(c=1)[0], "metadata": {"name": "plain", "labels": {"kubernetes.io/hostname": "plain"}}}
    given = led(f"{{gpu: null, cpu: 1, memory: 1Gi, kubernetes: {{tolerations: [{tolerates}]}}}}")
    report = check(given, *fenced, plain, *queue_objects())
    said = 'excluded: taint "nvidia.com/gpu:NoSchedule": 4' in words(report)
    assert (report.verdict == "never", said) == (never, never), words(report)
