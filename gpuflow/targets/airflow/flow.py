"""A pipeline as Airflow tasks: sub-pipelines as task groups, and for each task what it waits for and when it runs.

Airflow decides a run's state by its last tasks alone, and marks a task skipped as soon as one task before it is: both
can hide a failure. So `watched` names every task that nothing reliable follows; what ends a run waits for all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpuflow.errors import fail
from gpuflow.graph.order import order
from gpuflow.spec import flow
from gpuflow.spec.step import Step
from gpuflow.targets.airflow.references import Scope, both


@dataclass(frozen=True)
class Task:
    """One step where it stands."""

    scope: Scope
    name: str
    step: Step
    after: tuple[str, ...] = ()
    """Full ids of the tasks it waits for."""
    when: Any = None
    """Its condition, the conditions of the sub-pipelines around it included."""
    run_anyway: bool = False
    """It also runs when a task before it was skipped."""
    skippable: bool = False
    """It may end skipped."""

    @property
    def id(self) -> str:
        return self.scope.list_id(self.name) if self.is_list else self.scope.task_id(self.name)

    @property
    def is_list(self) -> bool:
        """Whether it is only the list of items that a sub-pipeline is run for."""
        return self.step.pipeline is not None

    @property
    def is_mapped(self) -> bool:
        return bool(self.step.for_each or self.scope.keys) and not self.is_list

    @property
    def lists_items(self) -> bool:
        """Whether its items are only known when the run is under way, so that a task of its own lists them first."""
        return self.name in self.scope.pipeline.steps and self.scope.has_own_list(self.name)


def tasks_of(scope: Scope) -> list[Task]:
    """Every step of a pipeline and its sub-pipelines as a task, each after the ones it waits for."""
    found: dict[str, Task] = {}
    for task in _opened(scope, (), None, False):
        skipped = any(found[need].skippable for need in task.after) and not task.run_anyway
        found[task.id] = replace(task, skippable=task.when is not None or task.lists_items or skipped)
    return list(found.values())


def limits_of(scope: Scope, name: str) -> list[tuple[int, str, dict[str, list[str]]]]:
    """What bounds the pods of a step beside its own fan-out: how many, of which group, and per or of which items."""
    limits: list[tuple[int, str, dict[str, list[str]]]] = []
    root = scope.root
    keys: list[str] = []
    for depth, part in enumerate(scope.group):
        step = root.steps[part]
        group = ".".join(scope.group[: depth + 1])
        own = [f"{group}.{key}" for key in step.for_each or ()]
        if step.parallel is not None:
            limits.append((step.parallel, group, {"items": [*keys, *own]}))
        keys += own
        assert step.pipeline is not None
        root = step.pipeline
        if root.parallel is not None:
            limits.append((root.parallel, group, {"per": list(keys)} if keys else {}))
    step = scope.pipeline.effective(name)
    if step.parallel is not None and scope.keys:
        limits.append((step.parallel, scope.task_id(name), {"per": list(scope.keys)}))
    return limits


def _opened(scope: Scope, before: tuple[str, ...], when: Any, maybe: bool) -> Iterator[Task]:
    """The tasks of one scope. `before`, `when`: what its first steps wait for, and the condition on all of it."""
    pipeline = scope.pipeline
    needs = flow.upstream(pipeline)
    skippable = flow.may_be_skipped(pipeline)
    ends: dict[str, tuple[str, ...]] = {}
    for name in order(flow.edges(pipeline)):
        step = pipeline.effective(name)
        after = tuple(dict.fromkeys(end for need in needs[name] for end in ends[need])) or before
        condition = None if step.when is None else scope.condition(step.when, name)
        condition = None if condition is True else condition
        if not scope.keys:
            condition = _conjoined(when, condition)
        if maybe and step.if_skipped == "run" and needs[name]:
            raise fail(
                "GF301",
                f'airflow does not carry if_skipped: run on step "{name}" inside a sub-pipeline that may be skipped '
                "as a whole: it would run although the sub-pipeline does not",
                hint="drop it, or put the condition on the inner steps",
                where=pipeline.where("steps", name, "if_skipped"),
            )
        if step.pipeline is None:
            ends[name] = (scope.task_id(name),)
            yield Task(scope, name, step, after, condition, step.if_skipped == "run")
            continue
        _refuse_around(scope, name, step)
        inner_scope = scope.inner(name)
        if step.for_each:
            # The list is a task too: it takes the condition, and the steps inside run for what it lists.
            yield Task(scope, name, step, after, condition, step.if_skipped == "run")
            after, condition = (scope.list_id(name),), None
        inner = list(_opened(inner_scope, after, condition, not step.for_each and (maybe or name in skippable)))
        followed = {need for task in inner for need in task.after}
        ends[name] = tuple(task.id for task in inner if task.id not in followed)
        yield from inner


def _refuse_around(scope: Scope, name: str, step: Step) -> None:
    """What cannot be said about a group of tasks as a whole."""
    inner = step.pipeline
    assert inner is not None
    for what, given in {"timeout": step.timeout, "deadline": inner.deadline, "claims": inner.claims}.items():
        if given:
            raise fail(
                "GF301",
                f'airflow does not carry {what} of a sub-pipeline (step "{name}"): a task group has none of its own',
                hint="put it on the steps inside or on the whole pipeline, or compile for Argo",
                where=scope.pipeline.where("steps", name),
            )


def _conjoined(first: Any, second: Any) -> Any:
    terms = [term for term in (first, second) if term is not None]
    whole = both("and", terms) if terms else None
    return None if whole is True else whole


def watched(tasks: list[Task]) -> list[str]:
    """The tasks whose end and failure no later task is sure to show."""
    skippable = {task.id: task.skippable for task in tasks}
    shown: set[str] = set()
    for task in tasks:
        for need in task.after:
            # Another task before it that is skipped would mark it skipped at once, whatever this one does.
            if task.run_anyway or not any(skippable[other] for other in task.after if other != need):
                shown.add(need)
    return [task.id for task in tasks if task.id not in shown]
