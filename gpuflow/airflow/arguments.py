"""DAG arguments of `to_dag`: the same words, and the same refusals, as `engines: {airflow: …}` in a pipeline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date
from typing import Any

from pydantic import ValidationError

from gpuflow.errors import Finding, GpuflowError
from gpuflow.spec.building import caller
from gpuflow.spec.canonical import to_document
from gpuflow.spec.engine_words import PipelineEngines
from gpuflow.spec.engine_words.airflow import AirflowDag
from gpuflow.spec.engine_words.rules import word_faults
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.problems import problems

TIMETABLE = "airflow.timetables"
"""Stands for a timetable that is handed over as an object, while the pipeline is judged."""


def with_dag_arguments(pipeline: Pipeline, given: Mapping[str, Any]) -> tuple[Pipeline, dict[str, Any]]:
    """The pipeline with these words for the DAG, and those of them that are Python objects and have no import path."""
    if not given:
        return pipeline, {}
    said = pipeline.engines.airflow if pipeline.engines is not None else None
    plain, live = _parted(given)
    if "timetable" in live:
        plain["timetable"] = f"{TIMETABLE}.Timetable"
    where = caller()
    standing = to_document(said) if said is not None else {}
    if "default_args" in plain:
        plain["default_args"] = {**standing.get("default_args", {}), **plain["default_args"]}
    try:
        words = AirflowDag.model_validate({**standing, **plain})
    except ValidationError as error:
        raise GpuflowError(
            Finding(code, f"to_dag, {'.'.join(map(str, path))}: {message}", where, hint)
            for code, message, hint, path, _ in problems(error, AirflowDag)
        ) from None
    engines = (pipeline.engines or PipelineEngines()).model_copy(update={"airflow": words})
    changed = pipeline.model_copy(update={"engines": engines})
    if found := list(word_faults(changed)):
        raise GpuflowError(Finding(each.code, f"to_dag: {each.message}", where, each.hint) for each in found)
    return changed, live


def with_objects(settings: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """The DAG's settings with what was handed over as Python objects."""
    changed = dict(settings)
    for name, value in live.items():
        if name == "timetable":
            changed["schedule"] = value
        elif name == "default_args":
            changed[name] = with_objects(changed.get(name, {}), value)
        else:
            changed[name] = [*changed.get(name, ()), *value]
    return changed


def _parted(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a document could say, and what only Python can."""
    plain: dict[str, Any] = {}
    live: dict[str, Any] = {}
    for name, value in given.items():
        if name == "default_args" and isinstance(value, Mapping):
            plain[name], inner = _parted(value)
            live |= {name: inner} if inner else {}
        elif name.endswith("_callback"):
            every = list(value) if isinstance(value, list | tuple) else [value]
            plain[name] = [each for each in every if not callable(each)]
            if objects := [each for each in every if callable(each)]:
                live[name] = objects
        elif name == "timetable" and not isinstance(value, str | Mapping):
            live[name] = value
        else:
            plain[name] = _written(value)
    return plain, live


def _written(value: Any) -> Any:
    """A value as a document would write it."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _written(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else value
