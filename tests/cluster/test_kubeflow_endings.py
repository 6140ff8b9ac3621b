"""On a real Kubeflow Pipelines: which exit steps start after success, failure, eviction and termination."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.bundle import config_map

from . import kubeflow as addon
from .cluster import Cluster
from .faults import Faults
from .kfp import PYTHON, ROOT, Kfp, is_step
from .waiting import until

pytestmark = pytest.mark.cluster

SITE = """
apiVersion: gpuflow/v1
kind: Site
name: live
extends: nvidia
namespace: kubeflow
images: {alerts: "%s"}
"""
HEAD = """
apiVersion: gpuflow/v1
kind: Pipeline
name: %s
labels: {cost-centre: "4711"}
params: {how: {type: string, default: good, enum: [good, bad, wait]}}
defaults:
  image: "%s"
  image_pull_policy: IfNotPresent
  cpu: {request: 20m}
  memory: {request: 32Mi, limit: 256Mi}
  labels: {team: nlp}
  annotations: {example.com/owner: me}
"""
WORK = """
  work:
    command:
      - python3
      - -c
      - |
        import sys, time
        time.sleep(900 if sys.argv[1] == 'wait' else 0)
        sys.exit(3 if sys.argv[1] == 'bad' else 0)
      - {param: how}
"""
MORE = """
  more: {needs: [work], when: params.how == 'never', command: [python3, -c, "print('more')"]}
"""
EXIT = """
exit:
  alarm: {on: failure, command: [python3, -c, "print('alarm')"], gpu: 1}
  cheer: {on: success, command: [python3, -c, "print('cheer')"]}
  tell: {command: [python3, -c, "print('tell')"]}
"""
EXPECTED = {
    "plain-good": {"work", "cheer", "tell"},
    "plain-bad": {"work", "alarm", "tell"},
    "plain-wait": {"alarm", "tell"},
    "open-good": {"work", "run-outcome", "cheer", "tell"},
    "open-bad": {"work", "run-outcome", "alarm", "tell"},
    "open-wait": {"run-outcome", "alarm", "tell"},
}
"""The steps that have a pod at the end. The pod of `work` is gone where it was evicted."""


@pytest.fixture(scope="module")
def kfp(kubeflow: Cluster) -> Iterator[Kfp]:
    with Kfp(kubeflow) as client:
        yield client


@pytest.fixture(scope="module")
def folder(kubeflow: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two pipelines, compiled as a user compiles them."""
    made = tmp_path_factory.mktemp("endings")
    python = kubeflow.image("python")
    (made / "site.yaml").write_text(SITE % python)
    for name, steps in (("plain", WORK), ("open", WORK + MORE)):
        source = made / f"{name}.yaml"
        source.write_text(HEAD % (name, python) + "steps:" + steps + EXIT)
        compile_file(source, made / f"{name}.compiled.yaml")
    return made


def compile_file(source: Path, output: Path) -> None:
    words = [
        "compile",
        str(source),
        "--site",
        str(source.parent / "site.yaml"),
        "--target",
        "kubeflow",
        "-o",
        str(output),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([str(PYTHON), "-m", "gpuflow", *words], check=True, env=environment, timeout=600)


def steps_of(kfp: Kfp, run: str) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["labels"]["gpuflow.dev/step"]: pod for pod in kfp.pods(run) if is_step(pod)}


def test_exit_steps_start_for_the_outcome_that_argo_has(kfp: Kfp, folder: Path) -> None:
    # Without a retry of the installation an evicted pod ends its step.
    addon.settings(kfp.cluster, addon.ALWAYS)
    runs = {
        name: kfp.run(folder / f"{name.split('-')[0]}.compiled.yaml", {"how": name.split("-")[1]}, name=name)
        for name in EXPECTED
    }
    for name in ("plain-wait", "open-wait"):

        def running(run: str = runs[name]) -> str | None:
            pod = steps_of(kfp, run).get("work", {})
            return pod["metadata"]["name"] if pod.get("status", {}).get("phase") == "Running" else None

        Faults(kfp.cluster, kfp.kube).evict(str(until(f"{name} to work", running, timeout=600)))
    states = kfp.wait(runs.values(), timeout=1200)
    assert {name: states[run] for name, run in runs.items()} == {
        name: "SUCCEEDED" if name.endswith("good") else "FAILED" for name in runs
    }
    assert {name: set(steps_of(kfp, run)) for name, run in runs.items()} == EXPECTED
    labels = steps_of(kfp, runs["plain-good"])["work"]["metadata"]
    assert {"cost-centre": "4711", "team": "nlp"}.items() <= labels["labels"].items()
    assert labels["annotations"]["example.com/owner"] == "me"


def test_a_run_that_is_terminated_starts_no_exit_step(kfp: Kfp, folder: Path) -> None:
    run = kfp.run(folder / "plain.compiled.yaml", {"how": "wait"}, name="terminated")
    until(
        "the step to run",
        lambda: steps_of(kfp, run).get("work", {}).get("status", {}).get("phase") == "Running",
        timeout=600,
    )
    kfp.ask("terminate", run=run)
    kfp.wait([run], timeout=600)
    assert set(steps_of(kfp, run)) <= {"work"}


def test_the_headers_lines_start_a_run_as_they_stand(kfp: Kfp, folder: Path) -> None:
    text = (folder / "plain.compiled.yaml").read_text().splitlines()
    start = next(index for index, line in enumerate(text) if line.endswith(" with:"))
    lines = [line[4:] for line in text[start + 1 :] if line.startswith("#   ")]
    assert 'params={"how": "good"}' in lines[-1]
    made = kfp.ask("paste", lines=lines, folder=str(folder))
    assert kfp.wait([made["run_id"]], timeout=900) == {made["run_id"]: "SUCCEEDED"}


def test_a_step_creates_a_job_and_waits_for_it(kfp: Kfp, kubeflow: Cluster, folder: Path) -> None:
    runtime = config_map(namespace=kfp.kube.namespace)
    kfp.kube.apply(runtime)
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "made"},
        "spec": {
            "backoffLimit": 0,
            "template": {
                "spec": {
                    "restartPolicy": "Never",
                    "containers": [
                        {
                            "name": "main",
                            "image": kubeflow.image("busybox"),
                            "imagePullPolicy": "IfNotPresent",
                            "command": ["sh", "-c", 'echo "lr is $0"; exit "$1"', "", ""],
                        }
                    ],
                }
            },
        },
    }
    place = "spec.template.spec.containers[0].command"
    program = ["python3", "/gpuflow/bin/gpuflow-run", "create", "--run-id", {"run": "id"}]
    program += [
        "--set",
        {"join": [f"{place}[3]=", {"param": "lr"}]},
        "--set",
        {"join": [f"{place}[4]=", {"param": "code"}]},
    ]
    step = {
        "image": kubeflow.image("python"),
        "image_pull_policy": "IfNotPresent",
        "cpu": {"request": "20m"},
        "memory": {"request": "32Mi", "limit": "256Mi"},
        "command": [*program, "--manifest", json.dumps(job)],
        "volumes": {"/gpuflow/bin": {"config_map": runtime["metadata"]["name"]}},
    }
    document = {
        "apiVersion": "gpuflow/v1",
        "kind": "Pipeline",
        "name": "creates",
        "params": {"lr": {"type": "float", "default": 0.5}, "code": {"type": "int", "default": 0}},
        "steps": {"train": step},
    }
    source = folder / "creates.yaml"
    source.write_text(json.dumps(document))
    compile_file(source, folder / "creates.compiled.yaml")
    runs = [kfp.run(folder / "creates.compiled.yaml", {"code": code}, name=f"creates-{code}") for code in (0, 5)]
    states = kfp.wait(runs, timeout=900)
    assert [states[run] for run in runs] == ["SUCCEEDED", "FAILED"]
    for run, words in zip(runs, ("lr is 0.5", "exit status 5"), strict=True):
        assert words in kfp.log(steps_of(kfp, run)["train"]["metadata"]["name"])
