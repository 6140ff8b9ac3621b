"""A compiled gang of kind PyTorchJob: its launcher as a process, with the account that `gpuflow site gang` prints.

The API server and the definition of PyTorchJobs are real. The training operator and the kubelet are played by hand.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.kubernetes.expansion import expand
from gpuflow.spec.loading import loads

from . import kubelet_by_hand
from . import training_operator_by_hand as operator
from .cluster import Cluster
from .fixtures import AnyCluster
from .gang_launches import Launched, manifest_of, site_of
from .kube import Kube
from .waiting import until

pytestmark = pytest.mark.control_plane

NODE = "pytorchjobs"
SIZE = 3
SITE = site_of("pytorchjob")
PIPELINE = loads(
    b"apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n  train:\n    image: gpuflow.test/never-pulled:1\n"
    b"    command: [torchrun, train.py]\n    gang: {workers: 3, rendezvous: {framework: torchrun}}\n"
    b"    timeout: 1h\n    termination_grace: 1s\n"
    b"    sidecars: [{name: logs, image: gpuflow.test/never-pulled:1, command: [run]}]\n"
)


@pytest.fixture(scope="module")
def node(private_cluster: Cluster, control_plane: AnyCluster) -> Iterator[str]:
    with operator.ground(private_cluster.kube, NODE) as name:
        yield name


class Launch(Launched):
    """The launcher of one gang of PyTorchJobs."""

    def jobs(self) -> dict[int, dict[str, Any]]:
        return {
            int(each["metadata"]["annotations"]["gpuflow.dev/attempt"]): each for each in self.kube.list("pytorchjob")
        }

    def running(self, attempt: int = 1) -> list[dict[str, Any]]:
        """The pods of an attempt, as the operator would make them, all of them started."""
        job = until(f"attempt {attempt}", lambda: self.jobs().get(attempt), timeout=60, otherwise=self.said)
        pods = operator.make_pods(self.kube, job, NODE)
        for each in pods:
            kubelet_by_hand.start(self.kube, each)
        line = f"PyTorchJob {job['metadata']['name']}: running, {SIZE} of {SIZE} pods"
        until("the launcher to see it run", lambda: line in self.said(), timeout=60, otherwise=self.said)
        return pods

    def bury(self, attempt: int) -> None:
        """What a kubelet does with the pods of an attempt that were deleted."""
        for each in operator.pods_of(self.kube, {"metadata": {"name": self.name(attempt)}}):
            if each["metadata"].get("deletionTimestamp"):
                kubelet_by_hand.end(self.kube, each, 75)
                kubelet_by_hand.bury(self.kube, each)

    def name(self, attempt: int) -> str:
        (digest,) = {each["metadata"]["labels"]["gpuflow.dev/gang"] for each in self.jobs().values()}
        return f"train-{digest}-{attempt}"


@pytest.fixture
def launch(node: str, private_cluster: Cluster, namespace: Kube, tmp_path: Path) -> Iterator[Launch]:
    made = Launch(private_cluster, namespace, tmp_path, PIPELINE, SITE)
    yield made
    made.close()


def test_the_compiled_object_is_accepted_whole_and_its_ranks_know_who_they_are(launch: Launch) -> None:
    launch.start()
    pods = launch.running()
    job = launch.jobs()[1]
    compiled = manifest_of(PIPELINE, SITE)
    compiled["metadata"]["name"] = "again"
    launch.kube("create", "--dry-run=server", "--validate=strict", "-f", "-", given=json.dumps(compiled))
    assert job["spec"]["runPolicy"]["cleanPodPolicy"] == "Running" and "backoffLimit" not in job["spec"]["runPolicy"]
    (container,) = pods[1]["spec"]["containers"]
    assert container["name"] == "pytorch" and pods[1]["spec"]["initContainers"][0]["name"] == "logs"
    environ = {each["name"]: each for each in container["env"]}
    place = environ["GPUFLOW_RANK"]["valueFrom"]["fieldRef"]["fieldPath"]
    assert place == "metadata.labels['training.kubeflow.org/replica-index']"
    names = [each["name"] for each in container["env"]]
    assert names.index("GPUFLOW_GANG") < names.index("GPUFLOW_LEADER"), "the kubelet fills in what came before"
    host = expand(environ["GPUFLOW_LEADER"]["value"], {"GPUFLOW_GANG": job["metadata"]["name"]})
    assert host == pods[0]["metadata"]["name"], "the operator names the Service of a pod like the pod"
    assert environ["PET_MASTER_ADDR"]["value"] == environ["GPUFLOW_LEADER"]["value"]


def test_all_ranks_succeed(launch: Launch) -> None:
    launch.start()
    for each in launch.running():
        kubelet_by_hand.end(launch.kube, each, 0)
    operator.succeed(launch.kube, launch.jobs()[1])
    assert launch.code() == 0
    assert "the PyTorchJob is completed" in launch.said()


def test_a_failed_rank_costs_a_failure_and_those_deleted_for_it_nothing(launch: Launch) -> None:
    launch.start("--failures=1", "--interruptions=5")
    pods = launch.running()
    kubelet_by_hand.end(launch.kube, pods[1], 7)
    operator.fail(launch.kube, launch.jobs()[1])
    launch.bury(1)
    pods = launch.running(2)
    notes = launch.jobs()[2]["metadata"]["annotations"]
    assert (notes["gpuflow.dev/failures"], notes["gpuflow.dev/interruptions"]) == ("1", "0")
    kubelet_by_hand.end(launch.kube, pods[0], 7)
    operator.fail(launch.kube, launch.jobs()[2])
    launch.bury(2)
    assert launch.code() == 79
    assert "worker 0: it failed with exit code 7" in launch.said()
    assert len(launch.jobs()) == 2


def test_a_rank_that_was_evicted_costs_an_interruption_though_another_one_failed_of_it(launch: Launch) -> None:
    launch.start("--interruptions=1")
    pods = launch.running()
    kubelet_by_hand.end(launch.kube, pods[2], 143, disruption="EvictionByEvictionAPI")
    kubelet_by_hand.end(launch.kube, pods[0], 1)
    operator.fail(launch.kube, launch.jobs()[1])
    launch.bury(1)
    launch.running(2)
    notes = launch.jobs()[2]["metadata"]["annotations"]
    assert (notes["gpuflow.dev/failures"], notes["gpuflow.dev/interruptions"]) == ("0", "1")


def test_a_lost_rank_ends_the_attempt_though_the_operator_would_make_it_anew(launch: Launch) -> None:
    launch.start("--interruptions=1")
    pods = launch.running()
    kubelet_by_hand.bury(launch.kube, pods[2])
    operator.make_pods(launch.kube, launch.jobs()[1], NODE)
    first = launch.name(1)
    line = f"PyTorchJob {first}: deleted; its pods have their grace to stop"
    until("the attempt to be given up", lambda: line in launch.said(), timeout=60, otherwise=launch.said)
    assert 2 not in launch.jobs(), "two starts of one rank never run side by side"

    def gone() -> bool:
        for each in operator.pods_of(launch.kube, {"metadata": {"name": first}}):
            kubelet_by_hand.bury(launch.kube, each)
        return 2 in launch.jobs()

    until("the next attempt", gone, timeout=60, otherwise=launch.said)
    assert "worker 2: the pod is gone, and left no word" in launch.said()
    notes = launch.jobs()[2]["metadata"]["annotations"]
    assert (notes["gpuflow.dev/failures"], notes["gpuflow.dev/interruptions"]) == ("0", "1")


def test_a_gang_that_runs_too_long_has_timed_out(launch: Launch) -> None:
    launch.start("--interruptions=5")
    launch.running()
    operator.run_out_of_time(launch.kube, launch.jobs()[1])
    launch.bury(1)
    assert launch.code() == 79
    assert "it ran longer than it may" in launch.said()


def test_a_suspended_gang_waits_and_costs_nothing(launch: Launch) -> None:
    launch.start("--interruptions=1")
    pods = launch.running()
    name = launch.name(1)
    launch.kube("patch", "pytorchjob", name, "--type=merge", '--patch={"spec":{"runPolicy":{"suspend":true}}}')
    for each in pods:
        kubelet_by_hand.bury(launch.kube, each)
    until("the wait", lambda: "waits in the queue" in launch.said(), timeout=60, otherwise=launch.said)
    launch.kube("patch", "pytorchjob", name, "--type=merge", '--patch={"spec":{"runPolicy":{"suspend":false}}}')
    for each in launch.running():
        kubelet_by_hand.end(launch.kube, each, 0)
    operator.succeed(launch.kube, launch.jobs()[1])
    assert launch.code() == 0
    assert list(launch.jobs()) == [1]


def test_told_to_stop_it_deletes_the_object(launch: Launch) -> None:
    launch.start()
    pods = launch.running()
    assert launch.process is not None
    launch.process.send_signal(signal.SIGTERM)
    assert launch.code() == 75
    for each in pods:
        kubelet_by_hand.bury(launch.kube, each)
    until("the gang to be gone", lambda: not launch.jobs(), timeout=60)
