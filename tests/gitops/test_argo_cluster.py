"""argo_templates/ on a real cluster: it is applied as Git has it, and the commands of its README start runs."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.conftest import argo, cluster, namespace, private_cluster, proof_ground, workflows
from tests.cluster.fixtures import lacking
from tests.cluster.kube import Kube
from tests.cluster.waiting import until
from tests.conftest import ROOT
from tests.engines import build
from tests.targets.argo.cluster.stage import ENVIRONMENT

__all__ = ["argo", "cluster", "namespace", "private_cluster", "proof_ground", "workflows"]
pytestmark = pytest.mark.cluster

FOLDER = ROOT / "argo_templates"
COMMANDS = re.findall(r"^argo submit .*$", (FOLDER / "README.md").read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["client-side", "server-side"])
def test_the_folder_is_applied_once_and_nothing_changes_the_second_time(
    private_cluster: Cluster, workflows: Kube, how: tuple[str, ...]
) -> None:
    first = workflows("apply", *how, "-k", str(FOLDER))
    second = workflows("apply", *how, "-k", str(FOLDER))
    assert len(first.splitlines()) == len(list(FOLDER.glob("*.yaml"))) - 1
    same = "serverside-applied" if how else "unchanged"
    assert [line for line in second.splitlines() if not line.endswith(f" {same}")] == []
    assert workflows("diff", *how, "-k", str(FOLDER)) == ""


def test_the_commands_of_the_readme_start_runs_with_the_values_they_give(
    private_cluster: Cluster, workflows: Kube
) -> None:
    workflows("apply", "-k", str(FOLDER))
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        place = [f"--kubeconfig={workflows.kubeconfig}", f"--namespace={workflows.namespace}", "--output=name"]
        program = [*workflows.prefix, str(build.binary("argo"))]
        name = subprocess.run([*program, *words, *place], text=True, capture_output=True, check=True).stdout.strip()
        # The images do not exist, so the run gets no further than its first pods: Argo has taken it by then.
        pods = until(
            f"pods of {name}", lambda name=name: workflows.list("pod", f"workflows.argoproj.io/workflow={name}")
        )
        assert {pod["metadata"]["labels"]["gpuflow.dev/pipeline"] for pod in pods} == {words[2].split("/")[1]}
        run = workflows.get("workflow", name)
        assert run is not None and run["status"]["phase"] == "Running"
        assert run["metadata"]["labels"]["gpuflow.dev/pipeline"] == words[2].split("/")[1]
        given = dict(word.split("=", 1) for word in words[4::2])
        stored = run["status"]["storedWorkflowTemplateSpec"] if "cronwf" not in command else run["spec"]
        told = {entry["name"]: entry["value"] for entry in stored["arguments"]["parameters"] if "value" in entry}
        assert given.items() <= told.items()


def test_what_init_writes_runs_once_its_account_is_applied(
    private_cluster: Cluster, argo: Cluster, namespace: Kube, tmp_path: Path
) -> None:
    """In a namespace where nobody has set anything up: its default account may not report results."""
    python = ENVIRONMENT / "bin" / "python"
    if not python.exists():
        lacking("compiling for argo needs .venvs/argo with gpuflow[argo]")

    def gpuflow(*words: str) -> str:
        command = [python, "-m", "gpuflow.cli.main", *words]
        return subprocess.run(command, cwd=tmp_path, text=True, capture_output=True, check=True).stdout

    gpuflow("init", "--engine", "argo")
    source, site = tmp_path / "pipeline.yaml", tmp_path / "site.yaml"
    small = {"python:3.12-slim": private_cluster.image("python"), "    gpu: l4\n": "", "cpu: 1\n": "cpu: 50m\n"}
    for old, new in {**small, "memory: 2Gi": "memory: 256Mi"}.items():
        assert old in source.read_text()
        source.write_text(source.read_text().replace(old, new))
    site.write_text(site.read_text().replace("my-team", namespace.namespace))
    gpuflow("compile", "pipeline.yaml", "--site", "site.yaml", "--target", "argo", "-o", "argo_templates/")
    namespace("apply", "-f", "-", given=gpuflow("site", "executor", "site.yaml"))
    namespace("apply", "-f", str(tmp_path / "argo_templates"))
    run = {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "metadata": {"name": "first"}}
    namespace.create({**run, "spec": {"workflowTemplateRef": {"name": "my-pipeline"}}})

    def ended() -> str | None:
        status = (namespace.get("workflow", "first") or {}).get("status", {})
        return str(status["phase"]) if status.get("phase") not in (None, "Pending", "Running") else None

    assert until("the end of the run", ended, timeout=180) == "Succeeded"
