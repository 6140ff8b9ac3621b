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
AFTER_SUCCESS = ("all_success", "one_success", "all_done_setup_success", "None")
"""Rules by which what is before a task has run when it starts. A teardown waits for all that its setups were for."""
UNFAILED = ("none_failed", "none_failed_min_one_success", "none_failed_or_skipped")
"""Rules by which what is before a task has run, or was skipped."""
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
    names, known = list(tasks), _Ends()
    # Sets of tasks as numbers: what has ended for sure before a task starts.
    waits: dict[str, int] = {}
    reached: dict[str, int] = {}
    bit = {name: 1 << index for index, name in enumerate(tasks)}
    for name in order(after):
        task, before = tasks[name], _before(tasks[name], tasks)
        rule = str(task.get("trigger_rule"))
        ran = [known.ran[each] for each in before]
        earlier = [known.by(rule)[each] for each in before]
        if rule in FREE or not before:
            waits[name] = 0
        elif rule in EARLY and len(before) > 1:
            waits[name] = reduce(and_, earlier)
            found.loose.append(f"{name} has trigger rule {rule}: how early it starts is only known in the run")
        else:
            waits[name] = reduce(or_, earlier)
            if waits[name] != reduce(or_, ran):
                text = "when a task right before it does not run, tasks before that one may still run"
                found.loose.append(f"{name} has trigger rule {rule}: {text}")
        if _is_conditional(task, before, tasks, found.conditional, rule):
            found.conditional.add(name)
        # A task that does not wait for its pods passes on only what was before it.
        own = 0 if task.get("waits") is False else bit[name]
        known.add(name, own, waits[name], rule, before, name in found.conditional)
        reached[name] = 0
        right_before = [each for each in before if waits[name] & bit[each]]
        for each in (*right_before, *_members(waits[name], names)):
            # Edges are passed on: one stands for all that was before its first end, too.
            if not reached[name] & bit[each] and not waits[each] & ~waits[name]:
                found.edges[each].append(name)
                reached[name] |= bit[each] | reached[each]
    return found


@dataclass
class _Ends:
    """What has ended for sure when a task has ended: after it ran, in whatever way, or without a failure.

    Airflow gives up on a task, or skips it, as soon as one task before it failed or was skipped, while others before it
    still run. So a task that does not run says nothing about all of those.
    """

    ran: dict[str, int] = field(default_factory=dict)
    over: dict[str, int] = field(default_factory=dict)
    unfailed: dict[str, int] = field(default_factory=dict)

    def by(self, rule: str) -> dict[str, int]:
        """What a task of this rule knows of one that is before it."""
        if rule in AFTER_SUCCESS:
            return self.ran
        return self.unfailed if rule in UNFAILED else self.over

    def add(self, name: str, own: int, waits: int, rule: str, before: list[str], conditional: bool) -> None:
        self.ran[name] = own | waits
        if not before or rule in FREE:
            self.over[name] = self.unfailed[name] = self.ran[name]
            return
        whole = rule == "all_done"
        self.over[name] = self.ran[name] if whole else own | waits & reduce(and_, (self.over[each] for each in before))
        skipped = own | waits & reduce(and_, (self.unfailed[each] for each in before))
        self.unfailed[name] = skipped if conditional and not whole else self.ran[name]


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
