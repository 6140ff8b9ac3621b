"""One step as a task of a DAG that somebody writes by hand: its values, its place among other tasks, its items.

A step whose values are not all there yet is mapped as Airflow's own `@task` is: `task(STEP).expand(lr=[…])`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, NoReturn

from airflow.sdk import BaseOperator
from airflow.sdk.bases.operator import get_merged_defaults
from airflow.sdk.definitions._internal.contextmanager import DagContext, TaskGroupContext

from gpuflow.airflow.dags import make_object, next_to
from gpuflow.airflow.operator_arguments import refuse_arguments
from gpuflow.airflow.references import Value, asks_attempt, combinations, copy, given, item
from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.plan import Plan, planned_step
from gpuflow.site import Site
from gpuflow.spec.builder import caller
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.remarks import log_findings, step_template_warnings, value_template_warning
from gpuflow.spec.step import Step
from gpuflow.spec.text import Literally, OutputRef, ParamRef, RunRef
from gpuflow.targets.airflow.facts import CAPABILITIES, FACTS
from gpuflow.targets.airflow.flow import Task
from gpuflow.targets.airflow.operators import fixed_items
from gpuflow.targets.airflow.operators import operator as operator_call
from gpuflow.targets.airflow.python_source import Call, Method
from gpuflow.targets.airflow.references import Scope, is_dynamic
from gpuflow.targets.airflow.refusals import equal_items, gang_refusals
from gpuflow.targets.capabilities import construct_losses
from gpuflow.targets.single_step import keywords_of, refuse_flow, refuse_nothing
from gpuflow.targets.target import Request


class OpenTask(BaseOperator):  # type: ignore[misc]  # Airflow is not installed where types are checked
    """Keeps the place of a task in its DAG until `expand` gives it the values that are missing. Airflow loads no DAG
    with one that is left: a forgotten value is an import error, as everywhere."""

    def __init__(
        self, *, maker: StepTask, values: Mapping[str, Any], missing: Sequence[str], where: Where, **kwargs: Any
    ):
        super().__init__(**kwargs)
        self.maker, self.values, self.missing, self.where = maker, values, missing, where

    def expand(self, **lists: Any) -> Any:
        """One copy for each item; of several lists, one for each combination."""
        if not lists:
            raise fail("GF178", "expand() was given nothing to map over", where=caller(), hint="pass a list")
        later = {name: value for name, value in lists.items() if hasattr(value, "iter_references")}
        if later and len(lists) > 1:
            text = f"{', '.join(sorted(lists))}: a step maps over one list that is known only in the run, not several"
            hint = "let one task return all combinations, and pass it to expand_kwargs"
            raise fail("GF163", text, where=caller(), hint=hint)
        for name, value in lists.items():
            if name not in later and not isinstance(value, list | tuple | dict):
                raise fail("GF182", f'"{name}" is {value!r}, which is not a list', where=caller(), hint="pass a list")
        if later:
            ((name, value),) = later.items()
            return self._make_operator(list(lists), value.map(lambda one: {name: one}))
        return self._make_operator(list(lists), combinations({name: list(value) for name, value in lists.items()}))

    def expand_kwargs(self, rows: Any) -> Any:
        """One copy for each map of values: a list of them, or the value of a task that returns such a list."""
        if hasattr(rows, "iter_references"):
            return self._make_operator(list(self.missing), rows)
        maps = list(rows)
        wrong = next((row for row in maps if not isinstance(row, Mapping)), None)
        if wrong is not None or not maps:
            text = f"expand_kwargs takes a list of maps, not {wrong!r}" if maps else "expand_kwargs was given no map"
            raise fail("GF182", text, where=caller(), hint='write [{"lr": 0.1}, {"lr": 0.2}]')
        names = sorted({name for row in maps for name in row})
        for row in maps:
            if sorted(row) != names:
                lacking = sorted(set(names) - set(row))[0]
                text = f'"{lacking}" is missing in {dict(row)!r}'
                raise fail("GF178", text, where=caller(), hint="give every copy one")
        return self._make_operator(names, maps)

    def partial(self, **values: Any) -> Any:
        """The same task with more of its values."""
        self._leave(values)
        return self.maker.make_operator({**self.values, **values}, self.where)

    def _make_operator(self, names: list[str], items: Any) -> Any:
        self._leave(names)
        return self.maker.operator(self.values, names, items)

    def _leave(self, names: Iterable[str]) -> None:
        """Make room in the DAG for the task that takes this one's place, with values by these names."""
        if twice := sorted(set(names) & set(self.values)):
            raise fail("GF178", f'"{twice[0]}" is given twice', where=caller(), hint="give it once")
        del self.dag.task_dict[self.task_id]
        self.task_group._remove(self)

    def resolve_template_files(self) -> NoReturn:
        """Asked of every task when a DAG is loaded."""
        raise GpuflowError(
            Finding(
                "GF178",
                f'the step uses "{name}", but no value is given for it',
                self.where,
                f"pass {name}=…, or call .expand({name}=[…])",
            )
            for name in self.missing
        )

    def execute(self, context: Any) -> NoReturn:
        """Where a DAG is run without being loaded."""
        self.resolve_template_files()


FLOW = {
    "needs": ">> between tasks",
    "if_skipped": 'airflow={"trigger_rule": "none_failed"}',
    "on": 'airflow={"trigger_rule": …}',
    "pipeline": "to_dag",
}
"""What decides how steps hang together, and who decides it in a hand-written DAG."""
VALUE_HINT = "pass a value of gpuflow.airflow, such as param(…) or run_id(), or a task's output"
"""What to pass where a template was meant."""
OWN_ARGUMENTS = ("step", "site", "task_id", "namespace", "pipeline", "airflow")
"""The arguments of `task` itself."""
MAPPED_ARGUMENTS = ""
"""Stands for the arguments of a mapped function, which no item holds."""


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
    """One GPU step as a task of a DAG of your own. `gpu_step` is the same function, under a name that does not shadow
    `airflow.sdk.task`.

    :param step: what runs, a `gpuflow.Step`. With `for_each` it becomes a mapped task.
    :param site: how the cluster names its GPUs and queues: a Site, a preset, or a file. A relative path starts at the
        folder of the DAG file.
    :param task_id: the task's id; "step" where nothing is said.
    :param namespace: where the pod runs; the site's namespace unless given.
    :param pipeline: the pipeline's name in the labels of the pod, and in the paths of its checkpoints.
    :param airflow: arguments of Airflow's operator, for example `{"trigger_rule": "none_failed", "pool": "gpus"}`. What
        the step says itself is refused (GF361).
    :param values: `{param: x}` and `{output: step.x}` of the step take the keyword argument `x`, or `step_x` where two
        would share a name: a plain value, an XComArg such as `extract.output["path"]`, or a value of `gpuflow.airflow`.
    :return: the operator. Where values are missing, something to call `.expand(x=[…])`, `.expand_kwargs([…])` or
        `.partial(y=…)` on, as on a function of Airflow's own `@task`; a DAG with one that is left like this is not
        loaded.
    """
    _refuse(step)
    where = caller()
    refuse_arguments(airflow or {}, "task")
    if step.retry is not None and (airflow or {}).get("retries") is not None:
        text = "retries of Airflow stands beside the retry of the step"
        raise fail("GF361", text, where=where, hint="keep one: remove retries, or retry in the step")
    values_asked = [
        each for name, value in values.items() for each in value_template_warning(name, value, where, VALUE_HINT)
    ]
    log_findings([*step_template_warnings(step, where), *values_asked], __name__)
    more = dict(airflow or {})
    if task_id is not None:
        more["task_id"] = task_id
    site = load_site_of_dag(site, sys._getframe(1).f_globals)
    return StepTask(step, site, namespace, pipeline, more).make_operator(values, where)


gpu_step = task


def load_site_of_dag(site: Site | str, caller_globals: Mapping[str, Any]) -> Site:
    """A site as a DAG file means it: a relative path is looked for beside the file."""
    if isinstance(site, Site):
        return site
    return Site.load(str(next_to(site, Path(caller_globals.get("__file__", ".")).parent)))


@dataclass(frozen=True)
class StepTask:
    """A step that becomes a task: where it runs, and Airflow's other arguments."""

    step: Step
    site: Site
    namespace: str | None
    pipeline: str
    more: Mapping[str, Any]

    @property
    def name(self) -> str:
        return str(self.more.get("task_id") or "step")

    @property
    def own_retries(self) -> dict[str, int]:
        """The argument by which the step says how often it is tried again; none where it does not."""
        retry = self.step.retry
        if retry is None:
            return {}
        return {"failures": retry.failures} if retry.any is None else {"retries": retry.any}

    def make_operator(self, values: Mapping[str, Any], where: Where) -> Any:
        """The operator; or, where values are missing that a mapped task could bring, what makes it later."""
        missing = _missing_names(self.step, values)
        dag = self.more.get("dag") or DagContext.get_current()
        if missing and dag is not None and not set(missing) & set(OWN_ARGUMENTS) and not self.step.for_each:
            surplus = set(values) - {name for _, name in keywords_of(self.step)}
            _refuse_values(self.step, values, () if surplus else missing)
            place = {key: self.more[key] for key in ("dag", "task_group") if key in self.more}
            return OpenTask(maker=self, values=values, missing=missing, where=where, task_id=self.name, **place)
        return self.operator(values)

    def operator(self, values: Mapping[str, Any], mapped: Sequence[str] = (), items: Any = None) -> Any:
        """The operator with these values; `mapped`: those that each copy takes from its item in `items`."""
        step, more = self.step, dict(self.more)
        _refuse_values(step, values, mapped)
        bound = {name: _value(value) for name, value in values.items()}
        call = operator_of(self, bound, _items_of(items) if mapped else None, tuple(mapped))
        if step.retry is not None:
            more = {**self.own_retries, **more}  # the step has spoken, whatever default_args say
        elif isinstance(call, Method) and "retries" not in more and (count := default_retries(more)) is not None:
            more |= {"retries": count, "failures": None}  # a mapped task would have the budget of a step without any
        done = make_object(_with_arguments(call, more), {})
        for value in bound.values():
            for before, _ in value.iter_references() if isinstance(value, given) else ():
                done.set_upstream(before)
        return done


def operator_of(this: StepTask, bound: Mapping[str, Any], items: Any = None, mapped: tuple[str, ...] = ()) -> Any:
    """The call that makes the operator of a step; `items` are those of a task that is mapped by hand."""
    step, name, more, site = this.step, this.name, this.more, this.site
    alone = Pipeline.model_construct(name=this.pipeline, steps={name: step})
    lost = [loss for loss in construct_losses(alone, CAPABILITIES, FACTS.name) if loss.construct != "params"]
    if lost:
        raise GpuflowError(loss.refusal_by_hand(caller()) for loss in lost)
    _refuse_interval(step)
    unlike = [Finding("GF378", problem, caller(), hint) for _, problem, hint in gang_refusals(step, site.gangs.made_as)]
    if unlike:
        raise GpuflowError(unlike)
    around = more.get("task_group") or TaskGroupContext.get_current(more.get("dag"))
    planned = planned_step(alone, name, site)
    plan = Plan(alone, site, (planned,))
    scope = _StepScope(plan, bound=bound, around=around, mapped=mapped)
    request = Request(alone, site, this.namespace or site.namespace, this.pipeline, known=plan)
    node = Task(scope, planned, when=None if step.when is None else scope.condition(step.when))
    if step.for_each:
        items = _items(node, scope.bound)
    return operator_call(node, request, items)


@dataclass(frozen=True)
class _StepScope(Scope):
    """The scope of a step without a pipeline: every reference is a keyword argument."""

    around: Any = None
    """The task group it stands in."""
    mapped: tuple[str, ...] = ()
    """The keyword arguments that each copy of a mapped task has for itself."""

    @property
    def within(self) -> str:
        return ((self.around and self.around.group_id) or "").replace(".", "/")

    @property
    def asset_home(self) -> str:
        """The DAG, and the group: two DAGs may have a task of the same name, and not the same asset."""
        dag = (self.around and self.around.dag) or DagContext.get_current()
        return "/".join(filter(None, (self.root.name if dag is None else dag.dag_id, self.within)))

    def copies(self) -> list[tuple[str, Any]]:
        (step,) = self.pipeline.steps.values()
        if is_dynamic(step):
            return [("copy", copy())]  # two equal items of a list that is only known in the run
        if self.mapped:
            return [("copy", copy(*(item(name) for name in sorted(self.mapped) if name != MAPPED_ARGUMENTS)))]
        if self.around is None or next(self.around.iter_mapped_task_groups(), None) is None:
            return []
        # An attempt is no property of the copy: the next one would not find its checkpoints.
        kept = [value for _, value in sorted(self.bound.items()) if not asks_attempt(value)]
        return [("copy", copy(*kept))]

    def node(self, ref: Any, name: str | None = None, *, reader: tuple[str, ...] | None = None) -> Any:
        if isinstance(ref, ParamRef | OutputRef):
            (step,) = self.pipeline.steps.values()
            name = dict(keywords_of(step))[ref]
            return Call("item", (name,)) if name in self.mapped and name not in self.bound else self.bound[name]
        return super().node(ref, name, reader=reader)


def default_retries(more: Mapping[str, Any]) -> int | None:
    """How many retries the DAG, or the group around, has for tasks that say nothing."""
    dag = more.get("dag") or DagContext.get_current()
    group = more.get("task_group") or (TaskGroupContext.get_current(dag) if dag is not None else None)
    defaults, _ = get_merged_defaults(
        dag=dag, task_group=group, task_params=None, task_default_args=more.get("default_args")
    )
    found: int | None = defaults.get("retries")
    return found


def _refuse(step: Step) -> None:
    """What a step on its own cannot say."""
    refuse_nothing(step)
    is_mapped = isinstance(step, Step) and step.for_each
    # A mapped step has items; what it says of them is refused by the step itself.
    refuse_flow(
        step.model_copy(update={"command": (), "args": (), "env": {}, "gang": None}) if is_mapped else step,
        FLOW,
        "a claim",
    )


def _refuse_interval(step: Step) -> None:
    """Which schedule the DAG has is its author's business; the step alone has none."""
    if any(isinstance(ref, RunRef) and ref.field == "interval_start" for _, ref in step.references()):
        raise fail(
            "GF178",
            "the step uses {run: interval_start}, and a step on its own has no schedule",
            hint='write {param: start} in the step, and pass start=interval_start("0 3 * * *", "Europe/Berlin") of '
            "gpuflow.airflow",
        )


def _missing_names(step: Step, values: Mapping[str, Any]) -> list[str]:
    return sorted({name for _, name in keywords_of(step)} - set(values))


def _refuse_values(step: Step, values: Mapping[str, Any], later: Sequence[str] = ()) -> None:
    """Raise for values that are missing, that the step does not use, or that it cannot take."""
    names = {name for _, name in keywords_of(step)}
    findings = [
        Finding(
            "GF178",
            f'the step uses "{name}", but no value is given for it',
            hint=f"{name} is an argument of task itself: rename it in the step"
            if name in OWN_ARGUMENTS
            else f"pass {name}=…",
        )
        for name in _missing_names(step, values)
        if name not in later
    ]
    findings += [
        Finding("GF178", f'"{name}" is not used by the step', hint=did_you_mean(name, names))
        for name in sorted({*values, *later} - names)
    ]
    findings += [finding for name in sorted(names & set(values)) if (finding := _value_problem(name, values[name]))]
    if findings:
        raise GpuflowError(findings)


def _items_of(items: Any) -> Any:
    """Items of a task that is mapped by hand: maps of values, or a task's value that is a list of such maps."""
    return [{key: _value(value) for key, value in row.items()} for row in items] if isinstance(items, list) else items


def _value_problem(name: str, value: Any) -> Finding | None:
    """Why a value cannot be handed to a step."""
    if isinstance(value, str) and "{{" in value and ".xcom_pull(" in value:
        hint = "pass the task's value itself, and join texts in the step: {join: [s3://, {param: …}]}"
        return Finding("GF178", f'"{name}" contains a template, which would reach the container unchanged', hint=hint)
    if hasattr(value, "output") and hasattr(value, "task_id"):
        return Finding("GF178", f'"{name}" is the task {value.task_id}, not its value', hint=f"pass {name}=….output")
    if _is_plain(value) or isinstance(value, Value | PurePath) or hasattr(value, "iter_references"):
        return None
    hint = "pass text, a number, a list or map of those, or the value of one task"
    return Finding("GF178", f'"{name}" is a {type(value).__name__}, which has no unique form as text', hint=hint)


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(part) for key, part in value.items())
    return value is None or isinstance(value, str | int | float)


def _value(value: Any) -> Any:
    """A value as references know it: plain data, or something that is only known when the task runs."""
    if hasattr(value, "iter_references"):
        return value if isinstance(value, Value) else given(value)
    return str(value) if isinstance(value, PurePath | Literally) else list(value) if isinstance(value, tuple) else value


def _items(node: Task, bound: Mapping[str, Any]) -> Any:
    """Items of a mapped step: known ones as they are; a task's value is wrapped item by item."""
    sources = node.step.for_each or {}
    dynamic = {key: ref for key, ref in sources.items() if isinstance(ref, ParamRef | OutputRef)}
    if not dynamic:
        if node.planned.supervision.keeps_state:
            _refuse_duplicates(node.name, sources)
        return fixed_items(node)
    if len(sources) > 1:
        raise fail("GF163", "a single step maps over one list known only at run time, not over several")
    ((key, ref),) = dynamic.items()
    name = dict(keywords_of(node.step))[ref]
    source = bound[name]
    if isinstance(source, given) and hasattr(source.expression, "map"):
        return source.expression.map(lambda one: {key: one})
    if not isinstance(source, list):
        raise fail("GF182", f'the step runs over "{name}", which is {source!r}', hint="pass a list, or a task's value")
    if node.planned.supervision.keeps_state:
        _refuse_duplicates(node.name, {name: tuple(source)})
    return [{key: one} for one in source]


def _refuse_duplicates(name: str, sources: Mapping[str, Any]) -> None:
    if found := list(equal_items(name, sources)):
        raise GpuflowError(found)


def _with_arguments(call: Any, more: Mapping[str, Any]) -> Any:
    if isinstance(call, Method):
        return Method(_with_arguments(call.target, more), call.name, call.args, call.named)
    return Call(call.name, call.args, {**call.named, **more})
