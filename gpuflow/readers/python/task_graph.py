"""The graph of a DAG: which pods wait for which, as the trigger rules read the edges, and task groups with a limit.

The graph is flat. Where gpuflow's operator limits a group, that group is a graph of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_, or_

from gpuflow.formats.airflow import Level, Task
from gpuflow.graph import Dag, Loop, Tree, Unknown, order

EARLY = ("one_success", "one_failed", "one_done")
"""A task with such a rule may start while others before it still run."""
ALWAYS_RULES = ("always", "dummy")
RARE = ("one_failed", "all_failed", "all_skipped")
"""Rules by which a task only runs when something went wrong, or was skipped."""
AFTER_SUCCESS = ("all_success", "one_success", "all_done_setup_success", "None")
"""Rules by which what is before a task has run when it starts. A teardown waits for all that its setups were for."""
NONE_FAILED_RULES = ("none_failed", "none_failed_min_one_success", "none_failed_or_skipped")
"""Rules by which what is before a task has run, or was skipped."""
SKIPPING_RULES = ("all_success", "one_success", "all_done_min_one_success")
"""Rules by which a task is skipped when what is before it was."""


@dataclass
class Order:
    edges: dict[str, list[str]]
    """For each task, those that wait until its pods have ended."""
    conditional: set[str] = field(default_factory=set)
    loose: list[str] = field(default_factory=list)
    """Why the peak may never be reached."""


def order_of(tasks: Mapping[str, Task]) -> Order:
    """The order of the pods."""
    found = Order({name: [] for name in tasks})
    after: dict[str, list[str]] = {name: [] for name in tasks}
    for name, task in tasks.items():
        for each in _upstream_tasks(task, tasks):
            after[each].append(name)
    names, known = list(tasks), _Ends()
    # Sets of tasks as numbers: what has ended for sure before a task starts.
    waits: dict[str, int] = {}
    reached: dict[str, int] = {}
    bit = {name: 1 << index for index, name in enumerate(tasks)}
    for name in order(after):
        task, before = tasks[name], _upstream_tasks(tasks[name], tasks)
        rule = task.trigger_rule
        ran = [known.ran[each] for each in before]
        earlier = [known.known_by_rule(rule)[each] for each in before]
        if rule in ALWAYS_RULES or not before:
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
        own = bit[name] if task.waits else 0
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

    def known_by_rule(self, rule: str) -> dict[str, int]:
        """What a task of this rule knows of one that is before it."""
        if rule in AFTER_SUCCESS:
            return self.ran
        return self.unfailed if rule in NONE_FAILED_RULES else self.over

    def add(self, name: str, own: int, waits: int, rule: str, before: list[str], conditional: bool) -> None:
        self.ran[name] = own | waits
        if not before or rule in ALWAYS_RULES:
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


def _is_conditional(task: Task, before: list[str], tasks: Mapping[str, Task], known: set[str], rule: str) -> bool:
    if rule in RARE or any(tasks[each].branches for each in before):
        return True
    return rule in SKIPPING_RULES and any(each in known for each in before)


def _upstream_tasks(task: Task, tasks: Mapping[str, Task]) -> list[str]:
    return [each for each in task.upstream if each in tasks]


@dataclass(frozen=True)
class Node:
    tree: Tree
    """With all its copies."""
    body: Tree
    """One copy."""
    task: Task

    @property
    def groups(self) -> Sequence[str]:
        return self.task.groups

    @property
    def levels(self) -> Sequence[Level]:
        """The lists that its copies come from, the outermost first."""
        return () if self.task.copies is None else self.task.copies.levels


@dataclass
class _Group:
    pods: int | None = None
    """At most so many pods of each item at once."""
    items: int | None = None
    """At most so many items at once."""
    members: list[str] = field(default_factory=list)


def graph_of_tasks(
    nodes: Mapping[str, Node], edges: Mapping[str, Iterable[str]], parallel: int | None
) -> tuple[Dag, bool]:
    """The graph, and whether every limit of a group is in it."""
    flat = Dag(
        {name: each.tree for name, each in nodes.items()}, {key: list(to) for key, to in edges.items()}, parallel
    )
    groups, own = _limited_groups(nodes)
    if not groups and not own:
        return flat, True
    try:
        return _level(nodes, edges, groups, own, list(nodes), (), parallel), True
    except ValueError:
        return flat, False  # a task outside stands between two of a group


def _limited_groups(nodes: Mapping[str, Node]) -> tuple[dict[str, _Group], dict[str, int]]:
    """The groups that have limits, and tasks whose copies have one within each item of the groups around them."""
    groups: dict[str, _Group] = {}
    own: dict[str, int] = {}
    for name, node in nodes.items():
        for limit in node.task.limits:
            if limit.group == name:
                own[name] = limit.most
            elif limit.group in node.groups:
                group = groups.setdefault(limit.group, _Group())
                if limit.items:
                    group.items = limit.most
                else:
                    group.pods = limit.most
    if groups or own or any(node.levels and node.groups for node in nodes.values()):
        # Copies of a task are counted level by level, so every group around it is a graph of its own.
        for node in nodes.values():
            for group_id in node.groups:
                groups.setdefault(group_id, _Group())
    return groups, own


def _level(
    nodes: Mapping[str, Node],
    edges: Mapping[str, Iterable[str]],
    groups: Mapping[str, _Group],
    own: Mapping[str, int],
    members: list[str],
    around: tuple[str, ...],
    parallel: int | None,
) -> Dag:
    """The graph of the tasks inside the groups `around`."""
    depth = len(around)
    place = {name: nodes[name].groups[depth] if len(nodes[name].groups) > depth else name for name in members}
    inside: dict[str, list[str]] = {}
    for name in members:
        inside.setdefault(place[name], []).append(name)
    trees: dict[str, Tree] = {}
    for key, names in inside.items():
        if key in groups and place[names[0]] != names[0]:
            body: Tree = _level(nodes, edges, groups, own, names, (*around, key), groups[key].pods)
            trees[key] = _loop_of(key, body, _level_of(nodes, names, f"{key}-items"), groups[key].items)
        else:
            trees[key] = _task_tree(names[0], nodes[names[0]], own.get(names[0]))
    joined = {(place[a], place[b]) for a, after in edges.items() if a in place for b in after if b in place}
    between: dict[str, list[str]] = {key: [] for key in trees}
    for a, b in sorted(joined):
        if a != b:
            between[a].append(b)
    return Dag(trees, between, parallel)


def _task_tree(name: str, node: Node, most: int | None) -> Tree:
    """A task with the copies that it has within one item of the groups around it."""
    if not node.groups:
        return node.tree
    around = {f"{group}-items" for group in node.groups}
    own = [level for level in node.levels if level.list not in around]
    if not node.levels:
        return node.tree
    return _loop_of(name, node.body, own[-1] if own else None, most)


def _loop_of(name: str, body: Tree, level: Level | None, most: int | None) -> Tree:
    if level is None:
        return body
    return Loop(name, body, Unknown(str(level.because)) if level.number is None else level.number, most)


def _level_of(nodes: Mapping[str, Node], names: Iterable[str], lister: str) -> Level | None:
    """How many items a group is run for, as its tasks say."""
    return next((level for name in names for level in nodes[name].levels if level.list == lister), None)
