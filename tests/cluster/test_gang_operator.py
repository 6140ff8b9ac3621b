"""`GpuGangOperator` and its trigger in Airflow's own Python, against a real API server, Job controller and JobSet.

As in test_gang_launcher.py the ends of the pods are written by hand, so that every ending comes at the wanted moment.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import kubelet_by_hand, nodes
from .cluster import Cluster
from .fixtures import AnyCluster, lacking
from .gangs import ranks
from .kube import Kube
from .pods import pod
from .waiting import until

pytestmark = pytest.mark.control_plane

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venvs" / "airflow"
NODE = "gang-operator"
POOL = {"gpuflow.test/pool": NODE}
ONLY_POOL: dict[str, Any] = {"nodeSelector": POOL, "tolerations": [{"key": nodes.FENCE["key"], "operator": "Exists"}]}
SIZE = 3
SAID = "gpuflow-run: attempt 1 succeeded\n" + json.dumps({"gpuflow": 1, "outputs": {"accuracy": "0.9", "n": 3}})


@pytest.fixture(scope="module")
def node(private_cluster: Cluster, jobset: AnyCluster) -> Iterator[str]:
    with nodes.standing(private_cluster.kube, NODE, POOL) as name:
        yield name


@pytest.fixture
def second_node(node: str, private_cluster: Cluster) -> Iterator[str]:
    with nodes.standing(private_cluster.kube, f"{NODE}-2", POOL) as name:
        yield name


class Play:
    """One task instance, and its gang. Each worker is a process of its own."""

    def __init__(self, cluster: Cluster, kube: Kube, folder: Path) -> None:
        self.cluster, self.kube, self.folder = cluster, kube, folder
        self.workers: list[subprocess.Popen[str]] = []

    def start(self, more: dict[str, Any] | None = None, **arguments: Any) -> subprocess.Popen[str]:
        """A worker that runs the task; `more`: as tests.targets.airflow.real takes it."""
        made = pod("unused", "gpuflow.test/never-pulled:1", ["train"], **ONLY_POOL, terminationGracePeriodSeconds=1)
        order = {
            "namespace": self.kube.namespace,
            "pod": {"metadata": {"labels": kubelet_by_hand.LABELS}, "spec": made["spec"]},
            "arguments": {"workers": SIZE, "settle": 8.0, **arguments},
            **(more or {}),
        }
        extra = {"kube_config_path": str(self.kube.kubeconfig), "in_cluster": False}
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "PYTHONPATH": str(ROOT),
            "PYTHONPYCACHEPREFIX": str(ENVIRONMENT / "pycache"),
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW_CONN_KUBERNETES_DEFAULT": json.dumps({"conn_type": "kubernetes", "extra": extra}),
        }
        words = [str(ENVIRONMENT / "bin" / "python"), "-m", "tests.targets.airflow.real", json.dumps(order)]
        with (self.folder / f"log-{len(self.workers)}").open("w") as file:
            process = subprocess.Popen(
                [*self.cluster.enter, *words], env=environ, cwd=ROOT, stdout=file, stderr=subprocess.STDOUT, text=True
            )
        self.workers.append(process)
        return process

    def said(self) -> str:
        return "".join((self.folder / f"log-{number}").read_text() for number in range(len(self.workers)))

    def ended(self, timeout: float = 600) -> dict[str, Any]:
        until("the task to end", lambda: self.workers[-1].poll() is not None, timeout=timeout, otherwise=self.said)
        for line in self.said().splitlines():
            if line.startswith("ENDED "):
                found: dict[str, Any] = json.loads(line.removeprefix("ENDED "))
                return found
        raise AssertionError(f"the task did not end:\n{self.said()[-6000:]}")

    def jobsets(self) -> dict[int, dict[str, Any]]:
        found = self.kube.list("jobset")
        return {int(each["metadata"]["annotations"]["gpuflow.dev/attempt"]): each for each in found}

    def running(self, attempt: int = 1) -> list[dict[str, Any]]:
        """The pods of an attempt, all of them started, and seen so by the trigger."""

        def placed() -> list[dict[str, Any]]:
            jobset = self.jobsets().get(attempt)
            found = ranks(self.kube, jobset["metadata"]["name"]) if jobset else []
            found = [each for each in found if each["spec"].get("nodeName")]
            return found if len(found) == SIZE else []

        pods = until(f"attempt {attempt}", placed, timeout=300, otherwise=self.said)
        for each in pods:
            kubelet_by_hand.start(self.kube, each)
        line = f"JobSet {self.jobsets()[attempt]['metadata']['name']}: running, {SIZE} of {SIZE} pods"
        until("the trigger to see it run", lambda: line in self.said(), timeout=180, otherwise=self.said)
        return pods

    def swept(self, attempt: int) -> None:
        """What a kubelet does with the ranks that the Job controller deletes."""
        name = self.jobsets()[attempt]["metadata"]["name"]

        def going() -> list[dict[str, Any]]:
            return [each for each in ranks(self.kube, name) if each["metadata"].get("deletionTimestamp")]

        until("the survivors to be deleted", going, timeout=180, otherwise=self.said)
        for each in going():
            kubelet_by_hand.end(self.kube, each, 75)
            kubelet_by_hand.bury(self.kube, each)

    def counts(self, attempt: int) -> tuple[str, str]:
        notes = self.jobsets()[attempt]["metadata"]["annotations"]
        return notes["gpuflow.dev/failures"], notes["gpuflow.dev/interruptions"]


@pytest.fixture
def play(node: str, private_cluster: Cluster, namespace: Kube, tmp_path: Path) -> Iterator[Play]:
    if not (ENVIRONMENT / "bin" / "airflow").exists():
        lacking("no Airflow in .venvs/airflow; make it: make .venvs/airflow/.ready")
    made = Play(private_cluster, namespace, tmp_path)
    yield made
    for process in made.workers:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_an_interruption_stays_in_the_try_a_failure_takes_the_next_and_both_budgets_end(play: Play) -> None:
    play.start(failures=1, interruptions=1)
    pods = play.running()
    kubelet_by_hand.end(play.kube, pods[2], 143, disruption="EvictionByEvictionAPI")
    play.swept(1)
    pods = play.running(2)
    assert play.counts(2) == ("0", "1")
    kubelet_by_hand.end(play.kube, pods[1], 1)
    play.swept(2)
    pods = play.running(3)
    assert play.counts(3) == ("1", "1")
    kubelet_by_hand.end(play.kube, pods[0], 7)
    play.swept(3)
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 2)
    assert "failure 1 of 1 that are retried" in ended["messages"][0]
    assert "worker 0: it failed with exit code 7; the only retry is used up" in ended["messages"][1]
    assert len(play.jobsets()) == 3
    assert {each["metadata"]["labels"]["already_checked"] for each in play.jobsets().values()} == {"True"}


def test_after_running_out_of_memory_all_ranks_get_more_on_other_nodes_and_leave_spot_when_interrupted(
    play: Play, second_node: str
) -> None:
    plain = {"tolerations": ONLY_POOL["tolerations"]}
    spot = [*ONLY_POOL["tolerations"], {"key": "spot", "operator": "Exists"}]
    made = pod("unused", "gpuflow.test/never-pulled:1", ["train"], **{**ONLY_POOL, "tolerations": spot})
    made["spec"]["terminationGracePeriodSeconds"] = 1
    made["spec"]["containers"][0]["resources"] = {"limits": {"memory": "64Mi"}}
    policies = {"more_memory": {"factor": 2, "max": "96Mi"}, "other_node": True}
    play.start(
        {"pod": {"metadata": {"labels": kubelet_by_hand.LABELS}, "spec": made["spec"]}},
        failures=1, interruptions=1, fallback_after=1, on_demand=plain, **policies,
    )  # fmt: skip

    def seen(attempt: int) -> tuple[str, bool, set[str]]:
        specs = [each["spec"] for each in ranks(play.kube, play.jobsets()[attempt]["metadata"]["name"])]
        on_spot = any(entry.get("key") == "spot" for entry in specs[0]["tolerations"])
        return specs[0]["containers"][0]["resources"]["limits"]["memory"], on_spot, {each["nodeName"] for each in specs}

    pods = play.running()
    assert seen(1)[:2] == ("64Mi", True)
    (good,) = {NODE, second_node} - {pods[1]["spec"]["nodeName"]}
    kubelet_by_hand.end(play.kube, pods[1], 137, reason="OOMKilled")
    play.swept(1)
    pods = play.running(2)
    assert seen(2) == ("96Mi", True, {good})
    assert "memory 96Mi instead of 64Mi after running out of it once" in play.said()
    kubelet_by_hand.end(play.kube, pods[2], 143, disruption="EvictionByEvictionAPI")
    play.swept(2)
    play.running(3)
    assert seen(3) == ("96Mi", False, {good})
    assert play.counts(3) == ("1", "1")


@pytest.mark.parametrize("said", ["all", "none"])
def test_outputs_come_from_rank_0_and_without_them_it_is_no_success(said: str, play: Play) -> None:
    play.start(outputs={"accuracy": "float", "n": "int"}, failures=0)
    for rank, each in enumerate(play.running()):
        kubelet_by_hand.end(play.kube, each, 0, message=SAID if rank == 0 and said == "all" else "")
    ended = play.ended()
    if said == "all":
        assert (ended["state"], ended["result"]) == ("success", {"accuracy": 0.9, "n": 3})
        until("the gang to be deleted", lambda: not play.jobsets(), timeout=180)
    else:
        assert ended["state"] == "failed"
        assert "rank 0 left no outputs" in ended["messages"][0]


def test_a_final_exit_code_ends_it_whatever_the_budget(play: Play) -> None:
    play.start(failures=5, interruptions=5, final_exit_codes=[4])
    kubelet_by_hand.end(play.kube, play.running()[1], 4)
    play.swept(1)
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 1)
    assert "the step calls exit code 4 final; it is not retried" in ended["messages"][0]


def test_a_lost_worker_finds_its_gang_again(play: Play) -> None:
    first = play.start(deferrable=False)
    play.running()
    first.send_signal(signal.SIGKILL)
    first.wait()
    (before,) = play.jobsets().values()
    play.start({"tries_before": 1})
    until("it to be found", lambda: "continuing with JobSet" in play.said(), timeout=300, otherwise=play.said)
    for each in ranks(play.kube, before["metadata"]["name"]):
        kubelet_by_hand.end(play.kube, each, 0)
    assert play.ended()["state"] == "success"
    assert "created JobSet" not in (play.folder / "log-1").read_text()


def test_a_verdict_that_a_lost_trigger_wrote_down_is_not_judged_again(play: Play) -> None:
    first = play.start(failures=0)
    pods = play.running()
    kubelet_by_hand.end(play.kube, pods[1], 9)
    notes = "gpuflow.dev/verdict"

    def is_noted() -> bool:
        return notes in play.jobsets()[1]["metadata"]["annotations"]

    until("the verdict", is_noted, timeout=180, otherwise=play.said)
    first.kill()
    first.wait()
    play.swept(1)
    # Its evidence goes: only what was written down is left.
    name = play.jobsets()[1]["metadata"]["name"]
    for each in ranks(play.kube, name):
        kubelet_by_hand.bury(play.kube, each)
    play.start({"tries_before": 1}, failures=0)
    ended = play.ended()
    assert ended["state"] == "failed"
    assert "worker 1: it failed with exit code 9" in ended["messages"][0]


def test_waiting_too_long_for_its_pods_deletes_it_and_ends_the_task(play: Play) -> None:
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "two"}, "spec": {"hard": {"pods": "2"}}}
    play.kube.create(quota)
    until("the quota's status", lambda: (play.kube.get("resourcequota", "two") or {}).get("status", {}).get("used"))
    play.start(queue_timeout=25)
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 1)
    assert "waited longer than 0:00:25" in ended["messages"][0]
    assert "exceeded quota: two" in ended["messages"][0], "half started, and why, is said"
    for each in play.kube.list("pod"):
        kubelet_by_hand.bury(play.kube, each)
    until("the gang to be gone", lambda: not play.jobsets(), timeout=180)


@pytest.mark.parametrize("where", ["operator", "trigger"])
def test_told_to_stop_it_deletes_every_rank(where: str, play: Play) -> None:
    worker = play.start({"killed_in": where}, deferrable=where == "trigger")
    play.running()
    worker.send_signal(signal.SIGTERM)
    until("the task to stop", lambda: worker.poll() is not None, timeout=180, otherwise=play.said)
    assert "KILLED" in play.said()

    def all_go() -> bool:
        made = [*play.kube.list("jobset"), *play.kube.list("pod")]
        return all(each["metadata"].get("deletionTimestamp") for each in made)

    until("every rank to be told", all_go, timeout=180, otherwise=play.said)
    for each in play.kube.list("pod"):
        kubelet_by_hand.bury(play.kube, each)
    until("nothing to be left", lambda: not play.kube.list("jobset"), timeout=180)


def test_a_cluster_without_jobset_says_so_and_no_try_follows(play: Play) -> None:
    play.start({"jobset_version": "v0"}, failures=3)
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 1)
    assert "GF503" in ended["messages"][0] and "has no JobSet" in ended["messages"][0]
