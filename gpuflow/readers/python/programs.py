"""From a Python file to documents: it is run in a process of its own, and only its answer is read."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from gpuflow.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail, install_line
from gpuflow.readers.documents import Document, kind_of, silenced_in
from gpuflow.readers.python.detection import parsed, program_of
from gpuflow.readers.python.old_snippets import old_snippets
from gpuflow.readers.python.places import places_of
from gpuflow.readers.python.running import answer_of
from gpuflow.spec.loading import read_bytes

AIRFLOW = "airflow"
DAG = "DAG"


@dataclass(frozen=True)
class Pythons:
    """Which Python runs which files; None: the one that gpuflow itself runs in."""

    airflow: str | None = None
    hera: str | None = None


def is_program(file: str) -> bool:
    """Whether a file is a Python program that is not a pipeline of ours. It is parsed, never run."""
    return program_of(file) != "pipeline"


def read_program(
    file: str, pythons: Pythons, *, allowed: bool, params: Mapping[str, str] | None = None
) -> list[Document]:
    """The DAGs or workflows of a file. Reading it runs it: `allowed` must say so. `params`: values of a DAG's."""
    kind = program_of(file)
    if kind not in ("airflow", "hera"):
        text = f"{file} is Python, but no pipeline of gpuflow, no Airflow DAG and no Hera workflow"
        raise fail("GF702", text, where=Where(file, 1, 1))
    if not allowed:
        what = "an Airflow DAG" if kind == "airflow" else "a Hera workflow"
        hint = "read what it does, then allow it: --allow-python runs it without credentials, in a process of its own"
        raise fail("GF196", f"{file} is {what}: a program, which is not run", where=Where(file), hint=hint)
    silenced = silenced_in(read_bytes(Path(file), named=True).decode("utf-8", "replace"))
    documents = _dags(file, parsed(file), pythons, params) if kind == "airflow" else _workflows(file, pythons)
    return [replace(each, silenced=silenced) for each in documents]


def _dags(file: str, tree: ast.Module, pythons: Pythons, params: Mapping[str, str] | None) -> list[Document]:
    old = list(old_snippets(tree, file))
    said = answer_of("inside_airflow", file, pythons.airflow or sys.executable, params)
    if "fault" in said:
        raise _fault(said["fault"], file, AIRFLOW, old)
    places = places_of(tree, file)
    documents = []
    for index, dag in enumerate(_list(said.get("dags"))):
        name = str(dag.get("dag_id"))
        for task in _list(dag.get("tasks")):
            place = places.get(str(task.get("task_id")).rpartition(".")[2])
            task["line"] = None if place is None else [place.line, place.column]
        where = places.get(name, Where(file, 1, 1))
        more = {"metadata": {"name": name}, "line": [where.line, where.column]}
        found = [[each.code, each.message, each.where.line, each.where.column, each.hint] for each in old]
        documents.append(Document({**dag, **more, "old": found}, file, DAG, AIRFLOW, index))
    if not documents:
        hint = "Airflow takes the DAGs at the top level of a file"
        raise fail("GF709", f"{file} makes no DAG", where=Where(file, 1, 1), hint=hint)
    return documents


def _workflows(file: str, pythons: Pythons) -> list[Document]:
    said = answer_of("inside_hera", file, pythons.hera or sys.executable)
    if "fault" in said:
        raise _fault(said["fault"], file, "hera", [])
    documents = [Document(tree, file, *kind_of(tree), index) for index, tree in enumerate(_list(said.get("documents")))]
    if not documents:
        hint = "gpuflow takes the Workflow objects at the top level of a file"
        raise fail("GF709", f"{file} makes no workflow", where=Where(file, 1, 1), hint=hint)
    return documents


def _list(value: object) -> list[Any]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _fault(fault: Mapping[str, Any], file: str, engine: str, old: list[Finding]) -> GpuflowError:
    if str(fault.get("missing") or "").partition(".")[0] == engine:
        title, extra = ("Airflow", "airflow") if engine == AIRFLOW else ("Hera", "argo")
        hint = f"--{engine}-python EXE names a Python that has it; or install it here:\n{install_line(extra)}"
        return EnvironmentFailure(Finding("GF707", f"{file} needs {title}, which this Python lacks", Where(file), hint))
    line = fault.get("line")
    where = Where(file, line if isinstance(line, int) else None, 1 if isinstance(line, int) else None)
    text = f"{file} cannot be loaded: {str(fault.get('message'))[:1000]}"
    hint = "it runs without the environment's credentials, connections and variables"
    return GpuflowError([Finding("GF708", text, where, hint), *old])
