"""The graph of a DAG: flat, or, where gpuflow's operator limits a group, with groups as graphs of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuflow.graph import Dag, Loop, Tree, Unknown


@dataclass(frozen=True)
class Node:
    """A task in the graph."""

    tree: Tree
    """With all its copies."""
    body: Tree
    """One copy."""
    groups: tuple[str, ...] = ()
    levels: tuple[Mapping[str, Any], ...] = ()
    """The lists that its copies come from, the outermost first."""


@dataclass
class _Group:
    pods: int | None = None
    """At most so many pods of each item at once."""
    items: int | None = None
    """At most so many items at once."""
    members: list[str] = field(default_factory=list)


def graph_of_tasks(
    nodes: Mapping[str, Node],
    edges: Mapping[str, Iterable[str]],
    limits: Mapping[str, Iterable[Mapping[str, Any]]],
    parallel: int | None,
) -> tuple[Dag, bool]:
    """The graph, and whether every limit of a group is in it. `limits`: by task, those of gpuflow's own operator."""
    flat = Dag(
        {name: each.tree for name, each in nodes.items()}, {key: list(to) for key, to in edges.items()}, parallel
    )
    groups, own = _limited(nodes, limits)
    if not groups and not own:
        return flat, True
    try:
        return _level(nodes, edges, groups, own, list(nodes), (), parallel), True
    except ValueError:
        return flat, False  # a task outside stands between two of a group


def _limited(
    nodes: Mapping[str, Node], limits: Mapping[str, Iterable[Mapping[str, Any]]]
) -> tuple[dict[str, _Group], dict[str, int]]:
    """The groups that have limits, and tasks whose copies have one within each item of the groups around them."""
    groups: dict[str, _Group] = {}
    own: dict[str, int] = {}
    for name, each in limits.items():
        for limit in each:
            if limit["group"] == name:
                own[name] = limit["most"]
            elif limit["group"] in nodes[name].groups:
                group = groups.setdefault(limit["group"], _Group())
                if limit["items"]:
                    group.items = limit["most"]
                else:
                    group.pods = limit["most"]
    if groups or own:
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
            trees[key] = _repeated(key, body, _level_of(nodes, names, f"{key}-items"), groups[key].items)
        else:
            trees[key] = _task(names[0], nodes[names[0]], own.get(names[0]))
    joined = {(place[a], place[b]) for a, after in edges.items() if a in place for b in after if b in place}
    between: dict[str, list[str]] = {key: [] for key in trees}
    for a, b in sorted(joined):
        if a != b:
            between[a].append(b)
    return Dag(trees, between, parallel)


def _task(name: str, node: Node, most: int | None) -> Tree:
    """A task with the copies that it has within one item of the groups around it."""
    if not node.groups:
        return node.tree
    around = {f"{group}-items" for group in node.groups}
    own = [level for level in node.levels if level["list"] not in around]
    if not node.levels:
        return node.tree
    return _repeated(name, node.body, own[-1] if own else None, most)


def _repeated(name: str, body: Tree, level: Mapping[str, Any] | None, most: int | None) -> Tree:
    if level is None:
        return body
    number = level["number"]
    copies = Unknown(str(level["because"])) if number is None else int(number)
    return Loop(name, body, copies, most)


def _level_of(nodes: Mapping[str, Node], names: Iterable[str], lister: str) -> Mapping[str, Any] | None:
    """How many items a group is run for, as its tasks say."""
    return next((level for name in names for level in nodes[name].levels if level["list"] == lister), None)
