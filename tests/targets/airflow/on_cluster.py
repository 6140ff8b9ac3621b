"""Tasks played on a real cluster, each in a process of its own, and how their pods are told to end."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ...cluster.fixtures import AnyCluster, lacking
from ...cluster.kube import Kube
from ...cluster.pods import pod
from ...cluster.waiting import until
from .home import ROOT, Home

ENVIRONMENT = ROOT / ".venvs" / "airflow"
GPU = {"nvidia.com/gpu": "1"}
PUPPET = "trap 'exit 1' USR1; trap 'exit 0' USR2; trap 'exit 143' TERM; while :; do sleep 1 & wait; done"
"""A program that fails, ends well or obeys SIGTERM when it is told."""


class Play:
    """One task under way in another process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.log = ""

    def ended(self, timeout: float = 120) -> dict[str, Any]:
        """How it ended."""
        rest, _ = self.process.communicate(timeout=timeout)
        self.log += rest
        for line in self.log.splitlines():
            if line.startswith("ENDED "):
                found: dict[str, Any] = json.loads(line.removeprefix("ENDED "))
                return found
        raise AssertionError(f"the task did not end:\n{self.log[-4000:]}")

    def says(self, words: str) -> bool:
        """Whether the next line of its log, waited for, holds these words."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        self.log += line
        return words in line


Start = Callable[..., Play]


@pytest.fixture
def home(cluster: AnyCluster, namespace: Kube, tmp_path: Path) -> Home:
    """An Airflow of its own whose connection leads to the cluster."""
    if not (ENVIRONMENT / "bin" / "airflow").exists():
        lacking("no Airflow in .venvs/airflow; `make test-airflow` makes it")
    extra = {
        "kube_config_path": str(namespace.kubeconfig),
        "in_cluster": False,
        "xcom_sidecar_container_image": cluster.image("busybox"),
    }
    more = {**cluster.environment(), "PYTHONPYCACHEPREFIX": str(ENVIRONMENT / "pycache")}
    return Home(tmp_path, ENVIRONMENT / "bin", extra, cluster.enter, **more)


@pytest.fixture
def start(cluster: AnyCluster, namespace: Kube, home: Home) -> Iterator[Start]:
    """`start("echo hello", failures=1)` starts a task whose pod runs a shell command; `through`: another kubeconfig."""
    running: list[Play] = []

    def of(script: str, spec: dict[str, Any] | None = None, memory: str = "", **arguments: Any) -> Play:
        made = pod(
            "unused", cluster.image("busybox"), ["sh", "-c", script], resources=GPU, memory_limit=memory, **(spec or {})
        )
        labels, tries = arguments.pop("labels", {}), arguments.pop("tries_before", 0)
        environment = dict(home.environment)
        if through := arguments.pop("through", None):
            extra = {"kube_config_path": str(through), "in_cluster": False}
            environment["AIRFLOW_CONN_KUBERNETES_DEFAULT"] = json.dumps({"conn_type": "kubernetes", "extra": extra})
        order = {
            "namespace": namespace.namespace,
            "pod": {"metadata": {"labels": labels}, "spec": made["spec"]},
            "lost_after": arguments.pop("lost_after", None),
            "arguments": arguments,
            "tries_before": tries,
        }
        words = [home.python, "-m", "tests.targets.airflow.real", json.dumps(order)]
        process = subprocess.Popen(
            [*cluster.enter, *words],
            env=environment,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        running.append(Play(process))
        return running[-1]

    yield of
    for play in running:
        if play.process.poll() is None:
            play.process.kill()
            play.process.wait()


def number(pod: dict[str, Any]) -> str:
    """The how manieth pod of its task it is."""
    return str(pod["metadata"].get("annotations", {}).get("gpuflow.dev/pods", ""))


def running_pod(kube: Kube, count: int = 1) -> str:
    """The name of the pod that runs now, when so many have been made."""

    def found() -> str:
        pods = [item for item in kube.list("pod") if item["status"].get("phase") == "Running"]
        alive = [item for item in pods if not item["metadata"].get("deletionTimestamp")]
        return next((item["metadata"]["name"] for item in alive if number(item) == str(count)), "")

    return until(f"pod number {count} to run", found, timeout=60)


def tell(kube: Kube, name: str, signal: str) -> None:
    """Make a puppet end: USR1 fails, USR2 ends well."""
    # Said a moment later: the container's end would end this command too.
    kube("exec", name, "-c", "main", "--", "sh", "-c", f"(sleep 1; kill -{signal} 1) >/dev/null 2>&1 &")
