"""GpuPodOperator on a real cluster: what its API server, kubelet, scheduler and Kueue really do to a pod."""

from __future__ import annotations

from pathlib import Path

import pytest

from ...cluster.conftest import cluster, control_plane, faults, kubeconfig, kueue, namespace, proof_ground
from ...cluster.faults import Faults
from ...cluster.fixtures import AnyCluster
from ...cluster.kube import Kube
from ...cluster.queues import LABEL, queue
from ...cluster.waiting import until
from .home import Home
from .on_cluster import PUPPET, Start, home, number, running_pod, start, tell

__all__ = ["cluster", "control_plane", "faults", "home", "kubeconfig", "kueue", "namespace", "proof_ground", "start"]
pytestmark = pytest.mark.cluster

OUTPUT = "mkdir -p /airflow/xcom; echo '{\"loss\": 0.25}' > /airflow/xcom/return.json"


def test_a_step_runs_and_hands_over_its_outputs(start: Start, namespace: Kube) -> None:
    play = start(f"{OUTPUT}; echo trained", outputs={"loss": "float"})
    ended = play.ended()
    assert (ended["state"], ended["result"]) == ("success", {"loss": 0.25})
    assert "[main] trained" in play.log
    assert "running on real with 1 nvidia.com/gpu" in play.log or "ended on real" in play.log


def test_a_failure_costs_a_try_and_its_exit_code_is_said(start: Start, namespace: Kube) -> None:
    ended = start("echo why > /dev/termination-log; exit 3", failures=1).ended()
    assert (ended["state"], ended["tries"]) == ("failed", 2)
    assert "exit code 3" in ended["messages"][-1]
    assert "why" in ended["messages"][-1]


@pytest.mark.parametrize("way", ["delete", "force_delete", "evict"])
def test_a_pod_that_is_taken_away_is_made_anew_in_the_same_try(
    way: str, start: Start, namespace: Kube, faults: Faults
) -> None:
    play = start("trap 'exit 143' TERM; if [ -e /dev/shm/x ]; then :; fi; sleep 60 & wait", interruptions=1)
    getattr(faults, way)(running_pod(namespace))
    second = running_pod(namespace, 2)
    notes = namespace.get("pod", second)["metadata"]["annotations"]  # type: ignore[index]  # one object, not a list
    assert notes["gpuflow.dev/interruptions"] == "1"
    faults.delete(second, grace=0)
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 1)
    assert "the only interruption" in ended["messages"][0]


def test_a_preempted_pod_is_made_anew(start: Start, namespace: Kube, faults: Faults) -> None:
    play = start("sleep 60", {"terminationGracePeriodSeconds": 1}, interruptions=1)
    intruder = faults.preempt(running_pod(namespace))
    until("the second pod", lambda: [p for p in namespace.list("pod") if number(p) == "2"], timeout=60)
    namespace("delete", "pod", intruder, "--grace-period=0", "--force", "--wait=false")
    faults.delete(running_pod(namespace, 2), grace=0)
    assert play.ended()["tries"] == 1


def test_exit_0_after_sigterm_is_not_a_success(start: Start, namespace: Kube, faults: Faults) -> None:
    play = start("trap 'exit 0' TERM; sleep 60 & wait", interruptions=0, failures=5)
    faults.delete(running_pod(namespace))
    ended = play.ended()
    assert ended["state"] == "failed"
    assert "interrupted" in ended["messages"][0]


def test_running_out_of_memory_gets_more_memory_on_the_next_try(start: Start, namespace: Kube) -> None:
    more = {"factor": 2.0, "max": "64Mi"}
    play = start("sleep 1; tail /dev/zero", memory="24Mi", failures=1, more_memory=more, on_finish_action="keep_pod")
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 2)
    assert "over its memory limit" in ended["messages"][0]
    limits = [item["spec"]["containers"][0]["resources"]["limits"]["memory"] for item in namespace.list("pod")]
    assert sorted(limits) == ["24Mi", "48Mi"]


def test_it_waits_while_the_quota_is_used_up_and_runs_when_there_is_room(start: Start, namespace: Kube) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpuq"}}
    namespace.create({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "1"}}})
    until("the quota's status", lambda: (namespace.get("resourcequota", "gpuq") or {}).get("status", {}).get("used"))
    first = start("sleep 60", task_id="first")
    holder = running_pod(namespace)
    second = start("echo done", task_id="second")
    until(
        "the second to wait",
        lambda: second.process.poll() is None and len(namespace.list("pod")) == 1,
    )
    namespace("delete", "pod", holder, "--grace-period=0", "--force", "--wait=false")
    ended = second.ended()
    assert (ended["state"], ended["tries"]) == ("success", 1)
    first.process.kill()


def test_a_step_above_the_quota_fails_at_once_with_the_finding(start: Start, namespace: Kube) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpuq"}}
    namespace.create({**quota, "spec": {"hard": {"requests.nvidia.com/gpu": "0"}}})
    until("the quota's status", lambda: (namespace.get("resourcequota", "gpuq") or {}).get("status", {}).get("used"))
    ended = start("echo no", failures=3, source="train.yaml#L7").ended()
    assert (ended["state"], ended["tries"]) == ("failed", 1)
    assert "train.yaml:7:1: GF501" in ended["messages"][0]


def test_it_waits_in_the_kueue_queue_and_says_why(start: Start, namespace: Kube, kueue: AnyCluster) -> None:
    with queue(namespace, {"nvidia.com/gpu": "1", "cpu": "1", "memory": "1Gi"}):
        first = start("sleep 60", task_id="first", labels=LABEL)
        holder = running_pod(namespace)
        second = start("echo done", task_id="second", labels=LABEL)
        until("the gated pod", lambda: [p for p in namespace.list("pod") if p["spec"].get("schedulingGates")])
        namespace("delete", "pod", holder, "--grace-period=0", "--force", "--wait=false")
        first.process.kill()
        ended = second.ended()
        assert (ended["state"], ended["tries"]) == ("success", 1)
        assert "waiting in queue gpus" in second.log


def test_a_pod_that_the_queue_can_never_admit_fails_at_once(start: Start, namespace: Kube, kueue: AnyCluster) -> None:
    with queue(namespace, {"nvidia.com/gpu": "0", "cpu": "1", "memory": "1Gi"}):
        ended = start("echo no", failures=3, labels=LABEL).ended()
    assert (ended["state"], ended["tries"]) == ("failed", 1)
    assert "can never be admitted" in ended["messages"][0]
    assert "insufficient quota" in ended["messages"][0]


def test_mixed_interruptions_and_failures_spend_both_budgets_exactly(
    start: Start, namespace: Kube, faults: Faults
) -> None:
    play = start(PUPPET, failures=2, interruptions=2)
    faults.delete(running_pod(namespace, 1))
    tell(namespace, running_pod(namespace, 2), "USR1")
    faults.evict(running_pod(namespace, 3))
    tell(namespace, running_pod(namespace, 4), "USR1")
    tell(namespace, running_pod(namespace, 5), "USR2")
    ended = play.ended()
    assert (ended["state"], ended["tries"], len(ended["messages"])) == ("success", 3, 2)


def test_a_killed_worker_leaves_the_pod_running_and_the_next_try_takes_it_up(start: Start, namespace: Kube) -> None:
    first = start(PUPPET, failures=0)
    name = running_pod(namespace)
    first.process.kill()
    first.process.wait()
    second = start(PUPPET, failures=0, tries_before=1)
    until("the next try to find the pod", lambda: second.says(f"continuing with pod {name}"), timeout=60)
    tell(namespace, name, "USR2")
    assert second.ended()["state"] == "success"
    assert [item["metadata"]["name"] for item in namespace.list("pod") if item["metadata"]["name"] != name] == []


PIPELINE = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: real
params: {lr: {type: float, default: 1}, who: {type: string, default: "{{ you }} $(HOME)"}}
parallel: 2
defaults: {image: IMAGE, image_pull_policy: IfNotPresent, cpu: 50m, memory: 64Mi}
steps:
  plan:
    script:
      interpreter: [python3]
      run: |
        import os, pathlib
        out = pathlib.Path(os.environ["GPUFLOW_OUTPUTS"])
        out.joinpath("shards").write_text('["a", "b", "c"]')
        out.joinpath("count").write_text("3")
    outputs: {shards: json, count: int}
  fan:
    for_each: {shard: {output: plan.shards}}
    parallel: 2
    gpu: a100-80gb
    retry: {failures: 1, interruptions: 2}
    script: 'echo 0.5 > "$GPUFLOW_OUTPUTS/score"'
    env: {SHARD: {item: shard}, WHO: {param: who}}
    outputs: {score: float}
  gather:
    command: [sh, -c, 'echo "gathered $@"; echo 0.5 > "$GPUFLOW_OUTPUTS/mean"', gather]
    args: [{output: fan.score}, {output: plan.count}, {param: lr}, {param: who}]
    outputs: {mean: float}
  deploy:
    when: steps.gather.mean > 0.9
    command: [echo, deployed]
  keep:
    needs: gather
    when: steps.gather.mean < 0.9
    command: [echo, kept]
exit:
  bye: {command: [echo, bye]}
"""


def test_a_compiled_pipeline_runs_to_its_end_in_a_real_airflow(
    cluster: AnyCluster, namespace: Kube, home: Home, tmp_path: Path
) -> None:
    (tmp_path / "real.yaml").write_text(PIPELINE.replace("IMAGE", cluster.image("gpuflow")))
    home.migrate()
    home.compile(tmp_path / "real.yaml", namespace.namespace)
    done = home.test("real")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "[main] gathered [0.5,0.5,0.5] 3 1.0 {{ you }} $(HOME)" in done.stdout
    assert "[main] kept" in done.stdout
    assert "[main] bye" in done.stdout
    assert "[main] deployed" not in done.stdout


CLAIMING = """\
apiVersion: gpuflow/v1
kind: Pipeline
name: claiming
claims: {data: {size: 1Mi, storage_class: CLASS}}
defaults: {image: IMAGE, security: {run_as_root: true}, volumes: {/data: {new_claim: data}}}
steps:
  write: {command: [sh, -c, "echo handed over > /data/x"]}
  read: {needs: write, command: [cat, /data/x]}
"""


def test_a_volume_is_made_for_the_run_shared_by_its_steps_and_deleted(
    cluster: AnyCluster, namespace: Kube, home: Home, tmp_path: Path
) -> None:
    name = namespace.namespace
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}}
    place = {"path": f"/tmp/{name}", "type": "DirectoryOrCreate"}
    kind = {"capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": name}
    text = CLAIMING.replace("CLASS", name).replace("IMAGE", cluster.image("busybox"))
    (tmp_path / "claiming.yaml").write_text(text)
    home.migrate()
    home.compile(tmp_path / "claiming.yaml", name)
    namespace.create({**volume, "spec": {**kind, "hostPath": place}})
    try:
        done = home.test("claiming")
        bound = namespace.get("persistentvolume", name)
    finally:
        namespace("delete", "persistentvolume", name, "--wait=false")
    assert done.returncode == 0, done.stdout[-4000:]
    assert "[main] handed over" in done.stdout
    assert bound is not None
    assert bound["spec"]["claimRef"]["name"].startswith("claiming-data-r")
    until("the claim to go", lambda: not namespace.list("persistentvolumeclaim"), timeout=30)
