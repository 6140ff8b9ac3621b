"""Whole pipelines as live Airflow objects: the same calls that a compiled DAG file holds.

DAG arguments of `to_dag` are the same, and are refused alike, as `engines: {airflow: …}` in a pipeline.
"""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, TaskGroup
from pydantic import ValidationError

from gpuflow.airflow.references import COMPARISONS
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.site import Site
from gpuflow.site.model import exposed_in_site, without_site_silenced
from gpuflow.spec.builder import caller
from gpuflow.spec.canonical import meaning_of, to_document
from gpuflow.spec.engine_options import PipelineEngines
from gpuflow.spec.engine_options.airflow import AirflowDag
from gpuflow.spec.engine_options.rules import option_faults
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.problems import problems
from gpuflow.spec.rules.remarks import log_findings, remarks_on, without_silenced
from gpuflow.targets.airflow import target
from gpuflow.targets.airflow.dag import Dag, dag_of
from gpuflow.targets.airflow.facts import AirflowOptions
from gpuflow.targets.airflow.python_source import HOMES, Call, Import, Infix, Invert, Method, Name
from gpuflow.targets.target import Request, accept_losses

TIMETABLE = "airflow.timetables"
"""Stands for a timetable that is handed over as an object, while the pipeline is judged."""


def with_dag_arguments(pipeline: Pipeline, given: Mapping[str, Any]) -> tuple[Pipeline, dict[str, Any]]:
    """The pipeline with these DAG arguments, and those of them that are Python objects without an import path."""
    if not given:
        return pipeline, {}
    said = pipeline.engines.airflow if pipeline.engines is not None else None
    plain, live = _split_arguments(given)
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
    if found := list(option_faults(changed)):
        raise GpuflowError(Finding(each.code, f"to_dag: {each.message}", where, each.hint) for each in found)
    return changed, live


def with_objects(settings: Mapping[str, Any], live: Mapping[str, Any]) -> dict[str, Any]:
    """The DAG's settings with the arguments that were passed as Python objects."""
    changed = dict(settings)
    for name, value in live.items():
        if name == "timetable":
            changed["schedule"] = value
        elif name == "default_args":
            changed[name] = with_objects(changed.get(name, {}), value)
        else:
            changed[name] = [*changed.get(name, ()), *value]
    return changed


def _split_arguments(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments that a document can express, and those that only Python can."""
    plain: dict[str, Any] = {}
    live: dict[str, Any] = {}
    for name, value in given.items():
        if name == "default_args" and isinstance(value, Mapping):
            plain[name], inner = _split_arguments(value)
            live |= {name: inner} if inner else {}
        elif name.endswith("_callback"):
            every = list(value) if isinstance(value, list | tuple) else [value]
            plain[name] = [each for each in every if not callable(each)]
            if objects := [each for each in every if callable(each)]:
                live[name] = objects
        elif name == "timetable" and not isinstance(value, str | Mapping):
            live[name] = value
        else:
            plain[name] = _document_value(value)
    return plain, live


def _document_value(value: Any) -> Any:
    """A value as a document would write it."""
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {key: _document_value(each) for key, each in value.items()}
    if isinstance(value, set | frozenset):
        return sorted(value)
    return list(value) if isinstance(value, Iterable) and not isinstance(value, str | bytes) else value


_SIGNS = {**COMPARISONS, "+": operator.add, "&": operator.and_, "|": operator.or_}


def to_dag(
    pipeline: Pipeline | str | Path,
    site: Site | str = "nvidia",
    *,
    namespace: str | None = None,
    allow_lossy: bool = False,
    pools: bool = False,
    **dag_arguments: Any,
) -> Any:
    """A pipeline, or the file it is written in, as a DAG.

    `dag_arguments` are arguments of Airflow's DAG, as under `engines: {airflow: …}` in the pipeline: they overrule
    what stands there. Callbacks may be functions, and the timetable an object.

    A relative path is looked for beside the DAG file that asks. `pools` puts GPU tasks into the pools that
    `gpuflow airflow pools` prints.

    :param pipeline: a `gpuflow.Pipeline`, or its file.
    :param site: how the cluster names its GPUs and queues: a Site, a preset, or a file.
    :param namespace: where the pods run; the site's namespace unless given.
    :param allow_lossy: leave out what Airflow cannot express, and say so in the log.
    :param pools: put GPU tasks into the pools that `gpuflow airflow pools` prints.
    :param dag_arguments: arguments of Airflow's DAG, such as `tags` and `on_failure_callback`.
    """
    folder = Path(sys._getframe(1).f_globals.get("__file__", ".")).parent
    if not isinstance(pipeline, Pipeline):
        pipeline = load(next_to(pipeline, folder))
    pipeline, live = with_dag_arguments(pipeline, dag_arguments)
    site = site if isinstance(site, Site) else Site.load(str(next_to(site, folder)))
    file = pipeline.source.file
    shown = Path(file).name if file else pipeline.name
    request = Request(pipeline, site, namespace or site.namespace, shown, (), AirflowOptions(pools=pools))
    missing = accept_losses(target, request, allow_lossy=allow_lossy)
    log_findings(
        without_site_silenced(site, without_silenced(pipeline, [*remarks_on(pipeline), *exposed_in_site(site)])),
        __name__,
    )
    dag = dag_of(replace(request, losses=missing, pipeline=meaning_of(pipeline)))
    return _live_dag(replace(dag, settings=with_objects(dag.settings, live)))


def next_to(path: str | Path, folder: Path) -> Path | str:
    """A path as a DAG file means it: next to itself, where there is such a file."""
    found = folder / path
    return found if found.exists() else path


def _live_dag(plan: Dag) -> Any:
    """The DAG that a compiled file would make."""
    live: dict[str, Any] = {}
    with make_object(Call("DAG", (), plan.settings), live) as dag:
        groups: dict[tuple[str, ...], Any] = {}
        for planned in plan.tasks:
            with ExitStack() as stack:
                for depth in range(len(planned.group)):
                    path = planned.group[: depth + 1]
                    if path not in groups:
                        groups[path] = TaskGroup(path[-1])
                    stack.enter_context(groups[path])
                live[planned.variable] = make_object(planned.call, live)
        for before, after in plan.edges:
            [live[name] for name in before] >> live[after]
        for role in plan.roles:
            make_object(role, live)
    assert isinstance(dag, DAG)
    return dag


def make_object(node: Any, live: Mapping[str, Any]) -> Any:
    """The object that a piece of source would make."""
    if isinstance(node, Call):
        head, _, rest = node.name.partition(".")
        function = _imported_object(head)
        function = getattr(function, rest) if rest else function
        return function(*(make_object(arg, live) for arg in node.args), **make_object(dict(node.named), live))
    if isinstance(node, Method):
        function = getattr(make_object(node.target, live), node.name)
        return function(*(make_object(arg, live) for arg in node.args), **make_object(dict(node.named), live))
    if isinstance(node, Name):
        head, _, rest = node.text.partition(".")
        found = live[head] if head in live else _imported_object(head)
        return getattr(found, rest) if rest else found
    if isinstance(node, Import):
        found = getattr(importlib.import_module(node.module), node.attribute)
        return found if node.arguments is None else found(**node.arguments)
    if isinstance(node, Infix):
        return _SIGNS[node.sign](make_object(node.left, live), make_object(node.right, live))
    if isinstance(node, Invert):
        return ~make_object(node.term, live)
    if isinstance(node, dict):
        return {key: make_object(value, live) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(make_object(value, live) for value in node)
    return node


def _imported_object(name: str) -> Any:
    return range if name == "range" else getattr(importlib.import_module(HOMES[name]), name)
