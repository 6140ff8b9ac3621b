"""A pipeline as Airflow tasks: sub-pipelines as task groups, and for each task what it waits for and when it runs.

Airflow decides a run's state by its last tasks alone, and marks a task skipped as soon as one task before it is: both
can hide a failure. So `tasks_to_watch` names every task that nothing reliable follows; what ends a run waits for all.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from gpuflow.graph.order import order
from gpuflow.plan import PlannedStep
from gpuflow.spec import references
from gpuflow.spec.duration import Duration
from gpuflow.spec.engine_options.rules import setups
from gpuflow.spec.step import Step
from gpuflow.targets.airflow.python_source import Call
from gpuflow.targets.airflow.references import Scope, is_dynamic, joined_conditions


@dataclass(frozen=True)
class Task:
    """One step where it stands."""

    scope: Scope
    planned: PlannedStep
    """Of a mark, the step that the sub-pipeline is."""
    after: tuple[str, ...] = ()
    """Full ids of the tasks it waits for."""
    when: Any = None
    """Its own condition."""
    run_anyway: bool = False
    """It also runs when a task before it was skipped."""
    gate: Any = None
    """Of a task that runs anyway: whether the sub-pipeline it stands in has begun at all."""
    mark: Literal["begin", "end"] | None = None
    """It is no step but the beginning or the end of the sub-pipeline it stands in."""
    skippable: bool = False
    """It may end skipped."""

    @property
    def step(self) -> Step:
        return self.planned.step

    @cached_property
    def name(self) -> str:
        return self.planned.own_name if self.mark is None else _mark(self.scope, self.mark)

    @property
    def id(self) -> str:
        return self.scope.list_id(self.name) if self.is_list else self.scope.task_id(self.name)

    @property
    def is_list(self) -> bool:
        """Whether it is only the list of items that a sub-pipeline is run for."""
        return self.step.pipeline is not None and self.mark is None

    @property
    def is_mapped(self) -> bool:
        if self.mark is not None:
            return self.mark == "begin" and bool(self.scope.keys)
        return bool(self.step.for_each or self.scope.keys) and not self.is_list

    @property
    def due(self) -> Any:
        """The condition under which it runs: its own, and that of the scope around it."""
        terms = [term for term in (self.gate, self.when) if term is not None]
        whole = joined_conditions("and", terms) if terms else None
        return None if whole is True else whole

    @property
    def lists_items(self) -> bool:
        """Whether its items are only known when the run is under way, so that a task of its own lists them first."""
        return self.mark is None and self.planned.section == "steps" and self.scope.has_own_list(self.name)


def tasks_of(scope: Scope) -> list[Task]:
    """Every step of a pipeline and its sub-pipelines as a task, each after the ones it waits for."""
    found: dict[str, Task] = {}
    for task in _scope_tasks(scope, (), None):
        if task.run_anyway:
            task = replace(task, after=tuple(dict.fromkeys((*task.after, *_tasks_after_skipped(task.after, found)))))
        skipped = any(found[need].skippable for need in task.after) and not task.run_anyway
        found[task.id] = replace(task, skippable=task.due is not None or task.lists_items or skipped)
    return list(found.values())


def _tasks_after_skipped(ids: tuple[str, ...], found: Mapping[str, Task]) -> Iterator[str]:
    """What may still run when these tasks are skipped: Airflow skips one as soon as one task before it is."""
    for task in (found[each] for each in ids):
        if not task.run_anyway and any(found[need].skippable for need in task.after):
            if len(task.after) > 1:
                yield from (need for need in task.after if need not in setups(task.scope.root))
            yield from _tasks_after_skipped(task.after, found)


def limits_of(task: Task) -> list[tuple[int, str, dict[str, list[str]]]]:
    """What bounds the pods of a step beside its own fan-out: how many, of which group, and per or of which items."""
    limits: list[tuple[int, str, dict[str, list[str]]]] = []
    keys: list[str] = []
    for each in _steps_around(task.planned):
        own = [f"{each.name}.{key}" for key in each.step.for_each or ()]
        if each.step.parallel is not None:
            limits.append((each.step.parallel, each.name, {"items": [*keys, *own]}))
        keys += own
        assert each.step.pipeline is not None
        if (most := each.step.pipeline.parallel) is not None:
            limits.append((most, each.name, {"per": list(keys)} if keys else {}))
    if task.step.parallel is not None and task.scope.keys:
        limits.append((task.step.parallel, task.id, {"per": list(task.scope.keys)}))
    return limits


def _steps_around(planned: PlannedStep) -> Iterator[PlannedStep]:
    """The steps whose sub-pipelines a step stands in, the outermost first."""
    if planned.parent is not None:
        yield from _steps_around(planned.parent)
        yield planned.parent


def deadlines_of(scope: Scope) -> list[tuple[str, Duration, Any]]:
    """The time limits of the run (without a name) and of the sub-pipelines around a step: how long, and since when.

    Airflow's own `dagrun_timeout` would leave out the exit steps, and leave pods behind.
    """
    found: list[tuple[str, Duration, Any]] = []
    while scope.parent is not None and scope.outer is not None:
        if (limit := _time_limit(scope.parent)) is not None:
            same = {"items": scope.lister, "same": list(scope.keys)} if scope.keys else {}
            begun = Call("output", (scope.task_id(_mark(scope, "begin")), "return_value", "float"), same)
            found.append((scope.parent.name, limit, begun))
        scope = scope.outer
    if scope.pipeline.deadline is not None:
        found.append(("", scope.pipeline.deadline, None))
    return found[::-1]


def _time_limit(planned: PlannedStep) -> Duration | None:
    """How long a sub-pipeline may take: its own deadline, or the timeout of the step that it is."""
    step = planned.step
    assert step.pipeline is not None
    limits = [limit for limit in (step.timeout, step.pipeline.deadline) if limit is not None]
    return min(limits, key=lambda limit: limit.seconds, default=None)


def _mark(scope: Scope, mark: Literal["begin", "end"]) -> str:
    """A name for the task that marks a sub-pipeline's beginning or end, which none of its steps has."""
    wishes = (mark, f"{mark}-of-all", f"{mark}-of-{scope.group[-1]}", f"the-{mark}-of-{scope.group[-1]}")
    return next(wish for wish in wishes if wish not in scope.pipeline.steps)


def _scope_tasks(scope: Scope, before: tuple[str, ...], gate: Any) -> Iterator[Task]:
    """The tasks of one scope. `before`: what its first steps wait for; `gate`: whether it has begun at all."""
    skippable = references.may_be_skipped(scope.pipeline)
    ends: dict[str, tuple[str, ...]] = {}
    for name in order(scope.followers):
        planned, step = scope.steps[name], scope.steps[name].step
        after = tuple(dict.fromkeys(end for need in planned.own_needs for end in ends[need])) or before
        condition = None if step.when is None else scope.condition(step.when, name)
        condition = None if condition is True else condition
        anyway = step.if_skipped == "run"
        # In a flattened sub-pipeline the lists of items say what runs.
        task = Task(scope, planned, after, condition, anyway, gate if anyway and not scope.keys else None)
        if step.pipeline is None:
            ends[name] = (task.id,)
            yield task
            continue
        inside = list(_sub_pipeline(task, gate, name in skippable or anyway, bool(scope.followers[name])))
        yield from inside
        ends[name] = _last_tasks(inside)


def _last_tasks(tasks: list[Task]) -> tuple[str, ...]:
    """The tasks that no other one of them waits for."""
    followed = {need for task in tasks for need in task.after}
    return tuple(task.id for task in tasks if task.id not in followed)


def _sub_pipeline(task: Task, gate: Any, may_be_skipped: bool, has_followers: bool) -> Iterator[Task]:
    """A sub-pipeline: the list of its items or the mark of its beginning, its tasks, and where needed its end."""
    scope, planned = task.scope.scope_of(task.name), task.planned
    after, timed = task.after, _time_limit(planned) is not None
    if task.scope.opens_list(task.name):
        # The list is a task too: it takes the condition, and the steps inside run for what it lists.
        yield task
        after, gate, task = (task.id,), Call("began", (task.id,)), Task(scope, planned)
    if timed or (may_be_skipped and not scope.keys):
        begin = replace(task, scope=scope, mark="begin", after=after)
        yield begin
        after, gate = (begin.id,), gate if scope.keys else Call("began", (begin.id,))
    inner = list(_scope_tasks(scope, after, gate))
    yield from inner
    lasts = _last_tasks(inner)
    if has_followers and not set(lasts).isdisjoint(_skippable_tasks(inner)):
        # What stands after a sub-pipeline runs although one of its last steps had nothing to do.
        yield Task(scope, planned, lasts, None, True, gate, mark="end")


def _skippable_tasks(tasks: list[Task]) -> set[str]:
    """The tasks of a sub-pipeline that may end skipped although it runs."""
    found: set[str] = set()
    for task in tasks:
        may = task.when is not None or (task.mark is None and is_dynamic(task.step))
        if may or (not task.run_anyway and any(need in found for need in task.after)):
            found.add(task.id)
    return found


def tasks_to_watch(tasks: list[Task], cleaning: Container[str] = ()) -> list[str]:
    """The tasks whose end and failure no later task is sure to show. `cleaning`: teardowns, which show none, and whose
    own failure is to fail nothing."""
    skippable = {task.id: task.skippable for task in tasks}
    shown: set[str] = set()
    for task in tasks:
        for need in task.after if task.id not in cleaning else ():
            # Another task before it that is skipped would mark it skipped at once, whatever this one does.
            if task.run_anyway or not any(skippable[other] for other in task.after if other != need):
                shown.add(need)
    return [task.id for task in tasks if task.id not in shown and task.id not in cleaning]
