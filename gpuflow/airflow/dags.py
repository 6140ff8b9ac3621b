"""Whole pipelines, and single steps, as live Airflow objects: the same calls that a compiled DAG file holds."""

from __future__ import annotations

import importlib
import operator
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, TaskGroup, XComArg

from gpuflow.errors import Finding, GpuflowError, did_you_mean, fail
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, ParamRef
from gpuflow.targets.airflow.capabilities import CAPABILITIES
from gpuflow.targets.airflow.dag import Dag, dag_of
from gpuflow.targets.airflow.flow import Task
from gpuflow.targets.airflow.operators import fixed_items
from gpuflow.targets.airflow.operators import operator as operator_call
from gpuflow.targets.airflow.python import Call, Infix, Invert, Method, Name
from gpuflow.targets.airflow.references import Scope
from gpuflow.targets.airflow.text import HOMES
from gpuflow.targets.frame import Request, losses
from gpuflow.targets.keywords import keywords_of

_SIGNS = {
    "+": operator.add, "&": operator.and_, "|": operator.or_, ">": operator.gt, ">=": operator.ge,
    "<": operator.lt, "<=": operator.le, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def to_dag(
    pipeline: Pipeline | str | Path,
    site: Site | str = "nvidia",
    *,
    namespace: str | None = None,
    allow_lossy: bool = False,
    pools: bool = False,
) -> Any:
    """A pipeline, or the file it is written in, as a DAG.

    A relative path is looked for beside the DAG file that asks. `pools` puts GPU tasks into the pools that
    `gpuflow airflow pools` prints.
    """
    folder = Path(sys._getframe(1).f_globals.get("__file__", ".")).parent
    if not isinstance(pipeline, Pipeline):
        pipeline = load(_beside(pipeline, folder))
    site = site if isinstance(site, Site) else Site.load(str(_beside(site, folder)))
    missing = losses(pipeline, CAPABILITIES)
    if missing and not allow_lossy:
        raise GpuflowError(loss.finding("airflow") for loss in missing)
    file = pipeline.source.file
    shown = Path(file).name if file else pipeline.name
    options = {"pools": "true"} if pools else {}
    request = Request(pipeline, site, namespace or site.namespace, shown, tuple(missing), options)
    return _live_dag(dag_of(request))


def task(
    step: Step,
    site: Site | str = "nvidia",
    *,
    task_id: str | None = None,
    namespace: str | None = None,
    pipeline: str = "airflow",
    airflow: Mapping[str, Any] | None = None,
    **values: Any,
) -> Any:
    """One GPU step as a task of a DAG of your own.

    `{param: x}` and `{output: step.x}` of the step take the keyword argument `x`, or `step_x` where two would share a
    name: a plain value, an XComArg such as `extract.output["path"]`, or a value of `gpuflow.airflow`. A step with
    `for_each` becomes a mapped task.
    `airflow` holds more arguments for the operator, for example `{"trigger_rule": "none_failed"}`.
    """
    name = task_id or "step"
    alone = Pipeline.model_construct(name=pipeline, steps={name: step.model_copy(update={"needs": ()})})
    site = site if isinstance(site, Site) else Site.load(site)
    missing = [loss for loss in losses(alone, CAPABILITIES) if loss.construct not in ("params",)]
    if missing:
        raise GpuflowError(loss.finding("airflow") for loss in missing)
    scope = _Alone(alone, (), _bound(step, values))
    request = Request(alone, site, namespace or site.namespace, pipeline)
    node = Task(scope, name, step, when=None if step.when is None else scope.condition(step.when))
    items = _items(node, values) if step.for_each else None
    call = operator_call(node, request, items)
    made = _made(_with_arguments(call, airflow or {}), {})
    for value in values.values():
        if isinstance(value, XComArg):
            made.set_upstream(value.operator)
    return made


class _Alone(Scope):
    """The scope of a step without a pipeline: every reference is a keyword argument."""

    def node(self, ref: Any, name: str | None = None, *, reader: tuple[str, ...] | None = None) -> Any:
        if isinstance(ref, ParamRef | OutputRef):
            (step,) = self.pipeline.steps.values()
            return self.bound[dict(keywords_of(step))[ref]]
        return super().node(ref, name, reader=reader)


def _bound(step: Step, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {name for _, name in keywords_of(step)}
    findings = [
        Finding("GF178", f'the step uses "{name}", and no value is given for it', hint=f"pass {name}=…")
        for name in sorted(names - set(values))
    ]
    findings += [
        Finding("GF178", f'"{name}" is not used by the step', hint=did_you_mean(name, names))
        for name in sorted(set(values) - names)
    ]
    if findings:
        raise GpuflowError(findings)
    return dict(values)


def _items(node: Task, values: Mapping[str, Any]) -> Any:
    """Items of a mapped step: known ones as they are; an XComArg is wrapped item by item."""
    sources = node.step.for_each or {}
    dynamic = {key: ref for key, ref in sources.items() if isinstance(ref, ParamRef | OutputRef)}
    if not dynamic:
        return fixed_items(node)
    if len(sources) > 1:
        raise fail("GF163", "a step on its own maps over one list that is only known in the run, not over several")
    ((key, ref),) = dynamic.items()
    given = values[dict(keywords_of(node.step))[ref]]
    return [{key: one} for one in given] if isinstance(given, list) else given.map(lambda one: {key: one})


def _with_arguments(call: Any, more: Mapping[str, Any]) -> Any:
    if isinstance(call, Method):
        return Method(_with_arguments(call.target, more), call.name, call.args, call.named)
    return Call(call.name, call.args, {**call.named, **more})


def _beside(path: str | Path, folder: Path) -> Path | str:
    beside = folder / path
    return beside if beside.exists() else path


def _live_dag(plan: Dag) -> Any:
    """The DAG that a compiled file would make."""
    live: dict[str, Any] = {}
    with _made(Call("DAG", (), plan.settings), live) as dag:
        groups: dict[tuple[str, ...], Any] = {}
        for made in plan.tasks:
            with ExitStack() as stack:
                for depth in range(len(made.group)):
                    path = made.group[: depth + 1]
                    if path not in groups:
                        groups[path] = TaskGroup(path[-1])
                    stack.enter_context(groups[path])
                live[made.variable] = _made(made.call, live)
        for before, after in plan.edges:
            [live[name] for name in before] >> live[after]
    assert isinstance(dag, DAG)
    return dag


def _made(node: Any, live: Mapping[str, Any]) -> Any:
    """The object that a piece of source would make."""
    if isinstance(node, Call):
        head, _, rest = node.name.partition(".")
        function = _named(head, live)
        function = getattr(function, rest) if rest else function
        return function(*(_made(arg, live) for arg in node.args), **_made(dict(node.named), live))
    if isinstance(node, Method):
        function = getattr(_made(node.target, live), node.name)
        return function(*(_made(arg, live) for arg in node.args), **_made(dict(node.named), live))
    if isinstance(node, Name):
        head, _, rest = node.text.partition(".")
        found = live[head] if head in live else _named(head, live)
        return getattr(found, rest) if rest else found
    if isinstance(node, Infix):
        return _SIGNS[node.sign](_made(node.left, live), _made(node.right, live))
    if isinstance(node, Invert):
        return ~_made(node.term, live)
    if isinstance(node, dict):
        return {key: _made(value, live) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return type(node)(_made(value, live) for value in node)
    return node


def _named(name: str, live: Mapping[str, Any]) -> Any:
    return range if name == "range" else getattr(importlib.import_module(HOMES[name]), name)
