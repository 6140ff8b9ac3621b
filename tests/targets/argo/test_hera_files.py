"""Hera files: run by a real Hera in a process of its own, and read as the workflows that it makes of them.

Tests gpuflow/readers/python/inside_engine.py.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow

__all__ = ["gpuflow"]
TEXT = """
from hera.workflows import DAG, Container, CronWorkflow, Parameter, Resources, Workflow, WorkflowsService

service = WorkflowsService(host="https://argo.example.com", token="none")

def fan_out(count):
    with Workflow(generate_name="sweep-", entrypoint="main", workflows_service=service,
                  arguments=[Parameter(name="gpus", value="2")]) as w:
        train = Container(name="train", image="i", resources=Resources(gpus=2))
        with DAG(name="main"):
            for number in range(count):
                train(name=f"train-{number}")
    return w

fan_out(3).create()
with CronWorkflow(name="nightly", schedule="0 0 * * *", entrypoint="one") as cron:
    Container(name="one", image="i", resources=Resources(gpus=1))
"""


def test_every_workflow_of_a_file_is_read_and_nothing_is_sent(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "flows.py"
    file.write_text(TEXT)
    words = ("--allow-python", "--hera-python", sys.executable, "--format", "json")
    answer = gpuflow("demand", file, *words)
    assert answer.code == 0, answer.err
    told = {each["pipeline"]: (each["kind"], each["peak"]["requests.nvidia.com/gpu"]["value"]) for each in answer.data}
    assert told == {"sweep": ("Workflow", "6"), "nightly": ("CronWorkflow", "1")}
    assert {each["file"] for each in answer.data} == {str(file)}
    assert gpuflow("demand", file, *words, "--param", "gpus=1").code == 0
    assert "GF178" in gpuflow("demand", file, *words, "--param", "gpu=1").err
    file.write_text("import hera.workflows\n")
    assert f"{file}:1:1: GF709 {file} makes no workflow" in gpuflow("demand", file, *words).err
