"""Which pods of a DAG wait for which: its edges, as the trigger rules read them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_
from typing import Any

from gpuflow.graph import order

EARLY = ("one_success", "one_failed", "one_done")
"""A task with such a rule may start while others before it still run."""
FREE = ("always", "dummy")
RARE = ("one_failed", "all_failed", "all_skipped")
"""Rules by which a task only runs when something went wrong, or was skipped."""
PASSED_ON = ("all_success", "one_success", "all_done_min_one_success")
"""Rules by which a task is skipped when what is before it was."""


@dataclass
class Order:
    edges: dict[str, list[str]]
    """For each task, those that wait until its pods have ended."""
    conditional: set[str] = field(default_factory=set)
    loose: list[str] = field(default_factory=list)
    """Why the peak may never be reached."""


def order_of(tasks: Mapping[str, Mapping[str, Any]]) -> Order:
    """The order of the pods."""
    found = Order({name: [] for name in tasks})
    after: dict[str, list[str]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        for each in _before(task, tasks):
            after[each].append(name)
    bit = {name: 1 << index for index, name in enumerate(tasks)}
    names = list(tasks)
    # Sets of tasks as numbers: what has ended for sure before a task starts, and when it has ended.
    waits: dict[str, int] = {}
    ended: dict[str, int] = {}
    for name in order(after):
        task, before = tasks[name], _before(tasks[name], tasks)
        rule = str(task.get("trigger_rule"))
        earlier = [ended[each] for each in before]
        if rule in FREE or not before:
            waits[name] = 0
        elif rule in EARLY and len(before) > 1:
            waits[name] = reduce(and_, earlier)
            found.loose.append(f"{name} has trigger rule {rule}: how early it starts is only known in the run")
        else:
            waits[name] = reduce(or_, earlier)
        # A task that does not wait for its pods passes on only what was before it.
        ended[name] = waits[name] | (0 if task.get("waits") is False else bit[name])
        if _is_conditional(task, before, tasks, found.conditional, rule):
            found.conditional.add(name)
        right_before = [each for each in before if waits[name] & bit[each]]
        covered = reduce(or_, (bit[each] | waits[each] for each in right_before), 0)
        for each in {*right_before, *_members(waits[name] & ~covered, names)}:
            found.edges[each].append(name)
    return found


def _members(numbers: int, names: list[str]) -> Iterator[str]:
    while numbers:
        lowest = numbers & -numbers
        yield names[lowest.bit_length() - 1]
        numbers ^= lowest


def _is_conditional(
    task: Mapping[str, Any], before: list[str], tasks: Mapping[str, Mapping[str, Any]], known: set[str], rule: str
) -> bool:
    if rule in RARE or any(tasks[each].get("branches") for each in before):
        return True
    return rule in PASSED_ON and any(each in known for each in before)


def _before(task: Mapping[str, Any], tasks: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [str(each) for each in task.get("upstream") or () if each in tasks]
