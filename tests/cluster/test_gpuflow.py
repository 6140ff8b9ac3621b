"""What gpuflow compiles is what the engine runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from .cluster import Cluster
from .fixtures import lacking
from .kube import Kube

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = ROOT / ".venvs" / "argo"
PIPELINE = Path(__file__).with_name("proof.yaml")


def compiled(target: str, namespace: str) -> dict[str, Any]:
    """The one object that `gpuflow compile` prints."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        lacking(f"compiling for {target} needs .venvs/argo with gpuflow[argo]")
    words = ["-m", "gpuflow.cli.main", "compile", str(PIPELINE), "--target", target, "--namespace", namespace]
    done = subprocess.run(
        [python, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def words_of(kube: Kube, step: str) -> list[str]:
    """What the commands of a step printed, sorted; Argo's executor adds lines of its own."""
    found = kube.list("pod", f"gpuflow.dev/step={step}")
    logs = (kube("logs", item["metadata"]["name"], "--container=main") for item in found)
    return sorted(line for log in logs for line in log.splitlines() if " argo=true" not in line)


def test_a_compiled_pipeline_runs_on_argo(private_cluster: Cluster, workflows: Kube) -> None:
    private_cluster.image("gpuflow")
    workflows.create(compiled("argo", workflows.namespace))
    run = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "run"},
        "spec": {"workflowTemplateRef": {"name": "proof"}},
    }
    workflows.create(run)
    done = workflows.await_object(
        "workflow", "run", "ended", lambda item: bool(item.get("status", {}).get("finishedAt")), 240
    )
    assert done["status"]["phase"] == "Succeeded"
    assert words_of(workflows, "train") == ["trained on 3"]
    assert words_of(workflows, "evaluate") == [
        'quote " dollar $HOME',
        "with space",
        "{{quoted}} {{workflow.name}} $(HOME) $$",
    ]
