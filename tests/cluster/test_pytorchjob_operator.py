"""`GpuGangOperator` with `kind="pytorchjob"` in Airflow's own Python, against a real API server.

As in test_pytorchjob_gangs.py, the training operator and the kubelet are played by hand.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from . import kubelet_by_hand
from . import training_operator_by_hand as operator
from .cluster import Cluster
from .fixtures import AnyCluster, lacking
from .kube import Kube
from .test_gang_operator import ENVIRONMENT, SAID, SIZE, Play
from .waiting import until

pytestmark = pytest.mark.control_plane

NODE = "pytorchjob-operator"


@pytest.fixture(scope="module")
def node(private_cluster: Cluster, control_plane: AnyCluster) -> Iterator[str]:
    with operator.ground(private_cluster.kube, NODE) as name:
        yield name


class PyTorchPlay(Play):
    """One task instance whose gangs are PyTorchJobs."""

    def jobsets(self) -> dict[int, dict[str, Any]]:
        found = self.kube.list("pytorchjob")
        return {int(each["metadata"]["annotations"]["gpuflow.dev/attempt"]): each for each in found}

    def running(self, attempt: int = 1) -> list[dict[str, Any]]:
        job = until(f"attempt {attempt}", lambda: self.jobsets().get(attempt), timeout=300, otherwise=self.said)
        pods = operator.make_pods(self.kube, job, NODE)
        for each in pods:
            kubelet_by_hand.start(self.kube, each)
        line = f"PyTorchJob {job['metadata']['name']}: running, {SIZE} of {SIZE} pods"
        until("the trigger to see it run", lambda: line in self.said(), timeout=180, otherwise=self.said)
        return pods


@pytest.fixture
def play(node: str, private_cluster: Cluster, namespace: Kube, tmp_path: Path) -> Iterator[PyTorchPlay]:
    if not (ENVIRONMENT / "bin" / "airflow").exists():
        lacking("no Airflow in .venvs/airflow; make it: make .venvs/airflow/.ready")
    made = PyTorchPlay(private_cluster, namespace, tmp_path)
    yield made
    for process in made.workers:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_lost_rank_is_an_interruption_and_the_next_attempt_gives_the_outputs(play: PyTorchPlay) -> None:
    play.start(kind="pytorchjob", outputs={"accuracy": "float", "n": "int"}, failures=0, interruptions=1)
    pods = play.running()
    job = play.jobsets()[1]
    kubelet_by_hand.bury(play.kube, pods[2])
    operator.make_pods(play.kube, job, NODE)

    def buried() -> bool:
        there = play.jobsets().get(1)
        if there is not None and there["metadata"].get("deletionTimestamp"):
            for each in operator.pods_of(play.kube, job):
                kubelet_by_hand.bury(play.kube, each)
        return 2 in play.jobsets()

    until("the next attempt", buried, timeout=180, otherwise=play.said)
    assert play.counts(2) == ("0", "1") and 1 not in play.jobsets()
    assert "worker 2: the pod is gone, and left no word" in play.said()
    for rank, each in enumerate(play.running(2)):
        kubelet_by_hand.end(play.kube, each, 0, message=SAID if rank == 0 else "")
    operator.succeed(play.kube, play.jobsets()[2])
    ended = play.ended()
    assert (ended["state"], ended["result"]) == ("success", {"accuracy": 0.9, "n": 3})
    until("the gang to be deleted", lambda: not play.jobsets(), timeout=180)


def test_a_failed_rank_is_named_and_takes_the_next_try(play: PyTorchPlay) -> None:
    play.start(kind="pytorchjob", failures=1, interruptions=5)
    for attempt in (1, 2):
        pods = play.running(attempt)
        job = play.jobsets()[attempt]
        assert play.counts(attempt) == (str(attempt - 1), "0")
        kubelet_by_hand.end(play.kube, pods[1], 7)
        operator.fail(play.kube, job)
        for each in operator.pods_of(play.kube, job):
            if each["metadata"].get("deletionTimestamp"):
                kubelet_by_hand.end(play.kube, each, 75)
                kubelet_by_hand.bury(play.kube, each)
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 2)
    assert "worker 1: it failed with exit code 7" in ended["messages"][1]
