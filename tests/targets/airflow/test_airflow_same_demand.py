"""The demand of a pipeline is the demand that a real Airflow gives back of the DAG that is compiled from it."""

from __future__ import annotations

import sys

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand
from gpuflow.readers import Document, ForeignObject, Library, Options
from gpuflow.readers.python import Pythons, read_program
from tests.readers.equality import EVERY_KEY, PIPELINES, assert_same, example

ALLOWED: dict[str, dict[str, str]] = {
    "construct:engines.airflow": {EVERY_KEY: "it names a pool, whose size is not in the file: at most"},
}
"""By pipeline, the quota keys that differ, and why."""
REFUSED: dict[str, str] = {}
"""Pipelines that Airflow refuses whatever is allowed, and why."""
DRIVER = """
import runpy
from pathlib import Path

import airflow

for number, path in enumerate(sorted(Path(__file__).parent.glob("*.txt"))):
    dag = runpy.run_path(str(path))["dag"]
    dag.dag_id = path.stem
    globals()[f"dag_{number}"] = dag
"""


def _name(name: str) -> str:
    return "".join(each if each.isalnum() else "_" for each in name)


@pytest.fixture(scope="module")
def dags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Document]:
    """Every compiled DAG, read by one Airflow."""
    folder = tmp_path_factory.mktemp("dags")
    for name in PIPELINES:
        try:
            (folder / f"{_name(name)}.txt").write_text(example(name).compiled("airflow"))
        except GpuflowError:
            continue
    driver = folder / "everything.py"
    driver.write_text(DRIVER)
    return {each.name: each for each in read_program(str(driver), Pythons(sys.executable), allowed=True)}


@pytest.mark.parametrize("name", PIPELINES)
def test_the_demand_of_the_dag_is_the_demand_of_the_pipeline(name: str, dags: dict[str, Document]) -> None:
    pipeline = example(name)
    if _name(name) not in dags:
        assert name in REFUSED
        return
    assert name not in REFUSED
    document = dags[_name(name)]
    read = ForeignObject(document, Library((document,))).demand(Options(pipeline.site))
    assert isinstance(read, Demand)
    assert_same(pipeline.demand(), read, ALLOWED.get(name, {}))
