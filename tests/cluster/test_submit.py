"""`gpuflow submit` and its siblings on a running Argo: runs that succeed, queue, fail, are stopped and are retried.

Tests gpuflow/runs/argo.py, gpuflow/runs/argo_nodes.py and gpuflow/runs/argo_retry.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from .cluster import Cluster
from .fixtures import lacking
from .kube import Kube
from .layout import REAL_NODE
from .pods import pod
from .waiting import until

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / ".venvs" / "demo" / "bin" / "python"
SHAPES = ROOT / "tests" / "runs" / "recorded" / "shapes.yaml"
SITE = f"""apiVersion: gpuflow/v1
kind: Site
name: proof
gpu: {{models: {{a100-80gb: {{labels: {{kubernetes.io/hostname: {REAL_NODE}}}}}}}}}
"""
ONE = """apiVersion: gpuflow/v1
kind: Pipeline
name: one
defaults: {image: "gpuflow.test/gpuflow:1", cpu: 50m, memory: 128Mi}
steps:
  train: {command: [sh, -c, '%s'], gpu: a100-80gb x %d}
exit:
  tell: {command: [echo, told]}
"""


class Shell:
    """`gpuflow` in the cluster's network, against one namespace."""

    def __init__(self, cluster: Cluster, kube: Kube, folder: Path) -> None:
        self.cluster, self.kube, self.folder = cluster, kube, folder
        (folder / "site.yaml").write_text(SITE, encoding="utf-8")

    def start(self, *words: object) -> subprocess.Popen[str]:
        place = ("--engine", "argo", "--namespace", self.kube.namespace, "--site", self.folder / "site.yaml")
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(self.kube.kubeconfig)}
        command = [*self.cluster.enter, PYTHON, "-m", "gpuflow", *words, *place]
        pipe = subprocess.PIPE
        return subprocess.Popen([str(word) for word in command], env=environment, text=True, stdout=pipe, stderr=pipe)

    def __call__(self, *words: object) -> tuple[int, str, str]:
        process = self.start(*words)
        out, err = process.communicate(timeout=400)
        assert "Traceback" not in err, err
        return process.returncode, out, err

    def json(self, *words: object) -> tuple[int, dict[str, Any]]:
        code, out, err = self(*words, "--format", "json")
        assert out, err
        found: dict[str, Any] = json.loads(out)
        return code, found

    def pipeline(self, command: str, gpus: int = 1) -> Path:
        file = self.folder / "one.yaml"
        file.write_text(ONE % (command, gpus), encoding="utf-8")
        return file


@pytest.fixture
def gpuflow(private_cluster: Cluster, workflows: Kube, tmp_path: Path) -> Shell:
    probe = [PYTHON, "-c", "import hera, kubernetes"]
    if not PYTHON.exists() or subprocess.run(probe, capture_output=True, check=False).returncode:
        lacking("submitting to Argo needs .venvs/demo: make env")
    private_cluster.image("gpuflow")
    return Shell(private_cluster, workflows, tmp_path)


def states(document: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: each["state"] for each in document["steps"]}


def test_a_run_fails_is_mended_and_retried(gpuflow: Shell) -> None:
    assert gpuflow("submit", SHAPES, "--name", "shapes")[0] == 0
    until("the first attempt", lambda: steps_of(gpuflow, "again")["attempts"] > 1)
    gpuflow.kube.create(switch("again"))
    code, failed = gpuflow.json("status", "shapes", "--watch")
    keep(gpuflow, "shapes-failed")
    steps = {each["name"]: each for each in failed["steps"]}
    assert code == 1 and failed["state"] == "failed"
    assert states(failed) == {
        "prepare": "succeeded",
        "train": "succeeded",
        "train@0": "succeeded",
        "train@1": "succeeded",
        "again": "succeeded",
        "tune": "succeeded",
        "tune@0": "succeeded",
        "tune@0.tune": "succeeded",
        "tune@0.score": "succeeded",
        "tune@1": "succeeded",
        "tune@1.tune": "succeeded",
        "tune@1.score": "succeeded",
        "left": "skipped",
        "after-left": "skipped",
        "breaks": "failed",
        "follows": "not run",
        "tell": "succeeded",
    }, json.dumps(failed)
    assert steps["again"]["attempts"] > 1 and "exit" in steps["breaks"]["because"] and steps["breaks"]["because"]
    assert steps["prepare"]["outputs"] == {"count": "7", "sizes": "[3, 4]"}
    assert json.loads(steps["train"]["outputs"]["loss"]) in ([3, 4], ["3", "4"])
    assert steps["tune@1.score"]["outputs"] == {"score": "b(1).c!"}
    assert "size 4" in gpuflow("logs", "shapes", "train@1")[1]
    second = gpuflow("logs", "shapes", "again", "--attempt", "2")[1]
    assert "== again, attempt 2" in second and "again, attempt 1" not in second
    gpuflow.kube.create(switch("mended"))
    before = gpuflow.kube.get("pod", steps_pod(gpuflow, "prepare"))
    code, mended = gpuflow.json("retry", "shapes", "--watch")
    keep(gpuflow, "shapes-retried")
    assert code == 0 and mended["state"] == "succeeded", mended
    assert {name: state for name, state in states(mended).items() if state != "succeeded"} == {
        "left": "skipped",
        "after-left": "skipped",
    }
    after = gpuflow.kube.get("pod", steps_pod(gpuflow, "prepare"))
    assert before and after and before["metadata"]["uid"] == after["metadata"]["uid"], "what has succeeded stays"
    code, _, err = gpuflow("submit", SHAPES, "--name", "shapes")
    assert code == 0 and "GF956" in err and len(gpuflow.kube.list("workflow")) == 1
    assert "GF953" in gpuflow("retry", "shapes")[2]


def switch(name: str) -> dict[str, Any]:
    """What a step of the pipeline waits for."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"it": "yes"}}


def steps_of(gpuflow: Shell, step: str) -> dict[str, Any]:
    """A step as `gpuflow status` shows it."""
    _, found = gpuflow.json("status", "shapes")
    return next(each for each in found["steps"] if each["name"] == step)


def steps_pod(gpuflow: Shell, step: str) -> str:
    """The one pod of a step."""
    [found] = gpuflow.kube.list("pod", f"gpuflow.dev/step={step}")
    return str(found["metadata"]["name"])


def keep(gpuflow: Shell, name: str) -> None:
    """Where somebody records: the Workflow as it is, for tests/runs."""
    if folder := os.environ.get("GPUFLOW_RECORD"):
        found = gpuflow.kube.get("workflow", name.partition("-")[0])
        Path(folder, f"{name}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def test_a_run_that_queues_says_why_and_goes_on(gpuflow: Shell) -> None:
    holder = pod("holder", gpuflow.cluster.image("busybox"), ["sleep", "600"], resources={"nvidia.com/gpu": "4"})
    gpuflow.kube.create(holder)
    gpuflow.kube.await_pod("holder", "Running")
    watched = gpuflow.start("submit", gpuflow.pipeline("echo ran"), "--name", "queued", "--watch")
    lines: list[str] = []
    assert watched.stdout is not None
    reader = threading.Thread(target=lambda: lines.extend(iter(watched.stdout.readline, "")))  # type: ignore[union-attr]
    reader.start()
    until("the sentence of gpuflow why", lambda: any("has no room now" in line for line in lines))
    gpuflow.kube("delete", "pod", "holder", "--grace-period=1")
    watched.wait(200)
    reader.join()
    assert watched.returncode == 0, lines
    assert [line for line in lines if "train waits: " in line] and "  + train  succeeded\n" in lines


def test_what_can_never_run_is_not_started(gpuflow: Shell) -> None:
    code, _, err = gpuflow("submit", gpuflow.pipeline("true", 9), "--name", "never")
    assert code == 1 and "GF952" in err
    assert gpuflow.kube.list("workflow") == []


def test_a_stopped_run_interrupts_its_program_and_runs_its_exit_steps(gpuflow: Shell) -> None:
    script = 'trap "echo stopping; sleep 1; exit 0" TERM; echo on; while :; do sleep 0.2; done'
    watched = gpuflow.start("submit", gpuflow.pipeline(script), "--name", "stopped", "--watch")
    until("the program", lambda: "on\n" in gpuflow("logs", "stopped", "train")[1])
    assert gpuflow("stop", "stopped")[0] == 0
    out, err = watched.communicate(timeout=200)
    assert watched.returncode == 75, (out, err)
    assert "! train  interrupted: the run was stopped" in out and "+ tell  succeeded" in out
    until("the last words", lambda: "stopping\n" in gpuflow("logs", "stopped", "train")[1])


def test_an_api_server_that_restarts_ends_no_watch(gpuflow: Shell) -> None:
    watched = gpuflow.start("submit", gpuflow.pipeline("sleep 25"), "--name", "watched", "--watch")
    until("the run", lambda: gpuflow.kube.get("workflow", "watched"))
    time.sleep(4)
    gpuflow.cluster.restart("kube-apiserver")
    out, err = watched.communicate(timeout=200)
    assert watched.returncode == 0, (out, err)
    assert "+ train  succeeded" in out
