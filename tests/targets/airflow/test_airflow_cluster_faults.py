"""GpuPodOperator against a real API server when nodes go away and when the server's answers are lost or wrong.

A graceful node shutdown needs a node whose init system announces it. Here the pod stands on a simulated node, and its
status is written as a kubelet writes it then; everything else, the API server included, is real.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...cluster import nodes
from ...cluster.conftest import cluster, control_plane, faults, kubeconfig, namespace, private_cluster, proof_ground
from ...cluster.faults import Faults
from ...cluster.fixtures import AnyCluster
from ...cluster.kube import Kube
from ...cluster.waiting import until
from .home import ROOT
from .on_cluster import PUPPET, Play, Start, home, number, running_pod, start, tell

__all__ = [
    "cluster", "control_plane", "faults", "home", "kubeconfig", "namespace", "private_cluster", "proof_ground", "start",
]  # fmt: skip
pytestmark = pytest.mark.cluster

SHUTDOWN = "Pod was terminated in response to imminent node shutdown."
KILLED = {"terminated": {"exitCode": 137, "reason": "Error"}}
DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet", "message": SHUTDOWN}


@pytest.fixture
def passing_node(namespace: Kube) -> Iterator[str]:
    """A simulated node for pods of this test alone."""
    name = f"passing-{namespace.namespace}"
    namespace.apply(nodes.simulated(name, taints=[nodes.FENCE]))
    nodes.await_ready(namespace, name)
    yield name
    namespace("delete", "node", name, "--ignore-not-found", "--wait=false")


def placed(node: str) -> dict[str, Any]:
    """What brings a pod to a simulated node and lets it be lost soon."""
    lost = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    return {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"key": nodes.FENCE["key"], "operator": "Exists"}, {**lost, "tolerationSeconds": 1}],
    }


def end_badly(kube: Kube, play: Play) -> None:
    """The second pod is interrupted too, which ends the task."""
    second = until("the second pod", lambda: [p for p in kube.list("pod") if number(p) == "2"], timeout=180)[0]
    assert second["metadata"]["annotations"]["gpuflow.dev/interruptions"] == "1"
    kube("delete", "pod", second["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 1)
    assert "the only interruption of the budget is used up" in ended["messages"][0]


@pytest.mark.parametrize("conditions", [[DISRUPTED], []], ids=["with its condition", "older kubelet"])
def test_a_graceful_node_shutdown_is_an_interruption(
    start: Start, namespace: Kube, passing_node: str, conditions: list[dict[str, str]]
) -> None:
    play = start("sleep 60", placed(passing_node), failures=5, interruptions=1)
    name = running_pod(namespace)
    shown = namespace.get("pod", name)
    assert shown is not None
    (status,) = shown["status"]["containerStatuses"]
    namespace.patch_status(
        "pod",
        name,
        {
            "phase": "Failed",
            "reason": "Terminated",
            "message": SHUTDOWN,
            "conditions": [*shown["status"].get("conditions", ()), *conditions],
            "containerStatuses": [{**status, "ready": False, "state": KILLED}],
        },
    )
    end_badly(namespace, play)


def test_a_pod_whose_node_is_removed_is_made_anew(start: Start, namespace: Kube, passing_node: str) -> None:
    play = start("sleep 60", placed(passing_node), failures=5, interruptions=1)
    running_pod(namespace)
    namespace("delete", "node", passing_node, "--wait=false")
    end_badly(namespace, play)


def test_a_pod_on_a_node_that_lost_its_power_is_made_anew_although_it_seems_to_run(
    start: Start, namespace: Kube, faults: Faults
) -> None:
    soon = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    spec = {"tolerations": [{**soon, "tolerationSeconds": 1}]}
    play = start("sleep 600", spec, failures=5, interruptions=1, lost_after=2)
    first = running_pod(namespace)
    faults.lose_node()
    second = until("the second pod", lambda: [p for p in namespace.list("pod") if number(p) == "2"], timeout=120)[0]
    shown = namespace.get("pod", first)
    assert shown is not None
    assert shown["status"]["phase"] == "Running", "the API server still believes in the pod"
    namespace("delete", "pod", second["metadata"]["name"], "--grace-period=0", "--force", "--wait=false")
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("failed", 1)
    assert "interrupted" in ended["messages"][0]


def test_a_failed_step_goes_to_another_node(start: Start, namespace: Kube) -> None:
    play = start("exit 1", failures=1, other_node=True, on_finish_action="keep_pod")
    waiting = until("the second pod", lambda: [p for p in namespace.list("pod") if number(p) == "2"], timeout=60)[0]
    until("the log to say that no node is left", lambda: play.says("didn't match Pod's node affinity"), timeout=60)
    assert waiting["metadata"]["annotations"]["gpuflow.dev/failed-nodes"] == "real"
    play.process.kill()


Faulty = Callable[..., tuple[Path, Callable[[], list[str]]]]


@pytest.fixture
def faulty(cluster: AnyCluster, namespace: Kube, tmp_path: Path) -> Iterator[Faulty]:
    """`faulty({"request": …, "status": 500})` gives a kubeconfig that leads through a faulty proxy, and what it did."""
    running: list[subprocess.Popen[str]] = []

    def of(*orders: dict[str, Any]) -> tuple[Path, Callable[[], list[str]]]:
        python = str(ROOT / ".venvs" / "core" / "bin" / "python")
        module = [python, "-m", "tests.targets.airflow.faulty", namespace.program, str(namespace.kubeconfig)]
        process = subprocess.Popen(
            [*cluster.enter, *module, str(tmp_path), json.dumps(orders)],
            cwd=ROOT,
            env={**os.environ, **cluster.environment()},
            text=True,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "READY\n"
        return tmp_path / "faulty.kubeconfig", lambda: _stopped(process)

    yield of
    for process in running:
        if process.poll() is None:
            _stopped(process)


def _stopped(process: subprocess.Popen[str]) -> list[str]:
    """End the proxy; the faults it made."""
    os.killpg(process.pid, signal.SIGTERM)
    told, _ = process.communicate()
    return [line for line in told.splitlines() if line.startswith("FAULT ")]


PODS = "/api/v1/namespaces/[^/]+/pods"


@pytest.mark.parametrize("status", [409, 429, 500])
def test_wrong_answers_of_the_api_server_cost_no_try(
    start: Start, namespace: Kube, faulty: Faulty, status: int
) -> None:
    kubeconfig, stop = faulty(
        {"request": f"GET {PODS}", "status": status},
        {"request": f"POST {PODS}", "status": status, "times": 2},
        {"request": f"GET {PODS}/[^/]+", "status": status, "times": 3},
    )
    ended = start("sleep 2; echo done", through=kubeconfig).ended()
    assert (ended["state"], ended["tries"]) == ("success", 1)
    assert len(stop()) == 6


def test_a_lost_answer_to_a_create_request_makes_no_second_pod(start: Start, namespace: Kube, faulty: Faulty) -> None:
    kubeconfig, stop = faulty({"request": f"POST {PODS}", "status": 500, "done": True})
    play = start(PUPPET, through=kubeconfig)
    name = running_pod(namespace)
    assert [item["metadata"]["name"] for item in namespace.list("pod")] == [name]
    tell(namespace, name, "USR2")
    assert play.ended()["state"] == "success"
    assert len(stop()) == 1


def test_a_broken_log_stream_costs_lines_and_nothing_else(start: Start, namespace: Kube, faulty: Faulty) -> None:
    kubeconfig, stop = faulty({"request": f"GET {PODS}/[^/]+/log", "cut": True, "times": 2})
    play = start("for i in 1 2 3 4 5 6; do echo line $i; sleep 1; done", through=kubeconfig)
    ended = play.ended()
    assert (ended["state"], ended["tries"]) == ("success", 1)
    assert len(stop()) == 2
    assert "could not be read" in play.log
    assert "[main] line 6" in play.log
