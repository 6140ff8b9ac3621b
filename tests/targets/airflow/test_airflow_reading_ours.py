"""DAG files that use gpuflow's own tasks: `gpuflow check` sees the pods of steps and of functions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from gpuflow import Step
from gpuflow.api import check, demand
from gpuflow.demands import Demand
from gpuflow.readers import ForeignObject, Library, Options
from gpuflow.readers.python import Pythons, read_program
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from tests.cli.commands import Gpuflow
from tests.cli.conftest import gpuflow

from .test_airflow_reading import QUOTA

__all__ = ["gpuflow"]
FIELDS: dict[str, Any] = {"image": "i", "gpu": "a100-80gb x 2", "memory": "8Gi", "cpu": 4, "queue": "research"}
HEAD = f"""
from airflow.sdk import DAG, task
from gpuflow import Step
from gpuflow.airflow import gpu_step, gpu_task
FIELDS = {FIELDS!r}

@gpu_task(**FIELDS)
def train(x=0) -> float:
    return 1.0

@gpu_task(**FIELDS)
def quiet(x=0) -> None:
    pass

"""
DAGS = {
    "function": "quiet()",
    "returns": "train()",
    "step": "gpu_step(Step(command=['x'], **FIELDS), task_id='a')",
    "mapped": "quiet.expand(x=[1, 2, 3])",
    "mapped_step": "gpu_step(Step(command=['x', {'param': 'a'}], **FIELDS), task_id='a').expand(a=[1, 2, 3])",
    "chain": "quiet() >> quiet()",
    "unknown": "@task\n    def rows(): return [1]\n    quiet.expand(x=rows())",
    "cleaned": "a = quiet().as_setup()\n    b = quiet()\n    a >> b >> quiet().as_teardown(setups=a)",
}


@pytest.fixture(scope="module")
def demands(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Demand]:
    folder = tmp_path_factory.mktemp("dags")
    parts = [f"with DAG('{name}', schedule=None):\n    {body}\n" for name, body in DAGS.items()]
    (folder / "dags.py").write_text(HEAD + "\n".join(parts))
    found = {}
    for document in read_program(str(folder / "dags.py"), Pythons(sys.executable), allowed=True):
        made = ForeignObject(document, Library((document,))).demand(Options(Site.load("nvidia")))
        assert isinstance(made, Demand)
        found[document.name] = made
    return found


def peaks(made: Demand) -> dict[str, str]:
    return {key: str(peak.value) for key, peak in made.peak.items()}


def test_a_function_asks_for_what_the_same_step_asks_for(demands: dict[str, Demand]) -> None:
    pipeline = Pipeline(name="p", steps={"a": Step(command=["x"], **FIELDS)})
    alone = peaks(demand(pipeline))
    assert peaks(demands["function"]) == peaks(demands["step"]) == alone
    assert alone["requests.nvidia.com/gpu"] == "2"
    with_outputs = peaks(demand(Pipeline(name="p", steps={"a": Step(command=["x"], outputs={"o": float}, **FIELDS)})))
    assert peaks(demands["returns"]) == with_outputs


def test_copies_and_order_count(demands: dict[str, Demand]) -> None:
    gpus = {name: each.peak["requests.nvidia.com/gpu"] for name, each in demands.items()}
    assert {name: str(gpus[name].value) for name in ("mapped", "mapped_step", "chain", "cleaned")} == {
        "mapped": "6", "mapped_step": "6", "chain": "2", "cleaned": "2",
    }  # fmt: skip
    assert gpus["unknown"].bound == "unknown"


def test_a_check_judges_them(demands: dict[str, Demand], tmp_path: Path) -> None:
    (tmp_path / "quota.yaml").write_text(QUOTA)
    reports = {name: check(demands[name], str(tmp_path), namespace="team") for name in ("function", "mapped")}
    of_quota = {name: [line.verdict for line in report.scopes] for name, report in reports.items()}
    assert of_quota == {"function": ["always"], "mapped": ["may-queue"]}
    assert {report.verdict for report in reports.values()} == {"unknown"}, "the queue is not shown"


def test_a_step_that_still_lacks_a_value_is_an_error_of_the_file(gpuflow: Gpuflow, tmp_path: Path) -> None:
    body = "with DAG('d'):\n    gpu_step(Step(image='i', command=['x', {'param': 'a'}]), task_id='a')\n"
    (tmp_path / "dag.py").write_text(HEAD + body)
    answer = gpuflow("demand", tmp_path / "dag.py", "--allow-python")
    assert answer.code == 2
    assert 'GF178 the step uses "a", but no value is given for it' in answer.err
