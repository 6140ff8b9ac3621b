"""Templates that call others, steps and DAGs, as graphs: what waits for what, and how much of it at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gpuflow.graph import Dag, Leaf, Loop, Tree, find_cycle
from gpuflow.readers.argo.depends import BadDepends, Outcomes, Waits, waits_of, with_daemons
from gpuflow.readers.argo.spec import Template
from gpuflow.readers.argo.values import listing, mapping, number_of, text_of
from gpuflow.readers.argo.walk import At, Child, Place, Walk, together


def own_name(text: str | None, index: int) -> str:
    """The name of a step, without what would read as a path."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)[:128] if text else f"step-{index}"


def read_steps(walk: Walk, template: Template, tree: Mapping[str, Any], at: At, name: str) -> Child:
    """Groups of steps, one group after the other."""
    groups: dict[str, dict[str, Child]] = {}
    place = Place(template.home, (*template.path, "steps"))
    for index, group in enumerate(listing(tree.get("steps"))):
        if not isinstance(group, list):
            walk.refuse("GF713", f"template {template.name}: steps[{index}] is not a list", place.where(index))
            continue
        children: dict[str, Child] = {}
        for number, step in enumerate(group):
            spot = place.at(index, number)
            if not isinstance(step, Mapping):
                walk.refuse("GF713", f"template {template.name}: a step is not a map", spot.where())
                continue
            called = f"{name}.{own_name(text_of(step.get('name')), number)}"
            child = walk.called(step, at, called, spot)
            key = called if called not in children else f"{called}-{number}"
            children[key] = child
        groups[f"{name}[{index}]"] = children
    most = _limit(walk, tree, template, list(groups.values()))
    nodes: dict[str, Tree] = {}
    edges: dict[str, list[str]] = {}
    before: str | None = None
    for now, children in groups.items():
        waiting = {key: most.tree(child) for key, child in children.items() if not child.is_daemon}
        nodes[now] = together(waiting) if waiting else Leaf(now, {}, 0)
        daemons = {f"{now} {key}": most.tree(child) for key, child in children.items() if child.is_daemon}
        nodes |= daemons
        if before is not None:
            edges[before] = [now, *daemons]
        before = now
    return most.whole(walk, nodes, edges, name)


def read_dag(walk: Walk, template: Template, tree: Mapping[str, Any], at: At, name: str) -> Child:
    """Tasks, each after those that it waits for."""
    place = Place(template.home, (*template.path, "dag", "tasks"))
    dag = mapping(tree.get("dag"))
    tasks: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for index, task in enumerate(listing(dag.get("tasks"))):
        key = text_of(mapping(task).get("name"))
        if not isinstance(task, Mapping) or not key or key in tasks:
            text = f"template {template.name}: task {key or index} has no name, or that of another"
            walk.refuse("GF713", text, place.where(index))
            continue
        tasks[key] = index, task
    waits = _waits(walk, template, tasks, place)
    if waits is None:
        return walk.nothing(name)
    wanted = _targets(walk, template, dag, waits)
    children: dict[str, Child] = {}
    outcomes, asked = Outcomes(), _asked_about(waits, wanted)
    for key in wanted:
        index, task = tasks[key]
        called = f"{name}.{own_name(key, index)}"
        may, surely = outcomes.answer(waits[key])
        inside = at if surely else replace(at, sure=False)
        known_before = len(walk.found.conditional)
        child = children[key] = walk.called(task, inside, called, place.at(index))
        is_skippable = len(walk.found.conditional) > known_before and called in walk.found.conditional
        if not may or key in asked:
            walk.found.conditional.setdefault(called, False)
        elif not surely:
            walk.found.inherited[called] = None
        outcomes.of[key] = _ends(child, is_skippable=is_skippable, surely=surely)
    edges = {key: [each for each in waits[key].names if each in children] for key in children}
    edges = with_daemons(edges, {key for key, child in children.items() if child.is_daemon})
    after: dict[str, list[str]] = {}
    for key, before in edges.items():
        for each in before:
            after.setdefault(each, []).append(key)
    most = _limit(walk, tree, template, [children])
    return most.whole(walk, {key: most.tree(child) for key, child in children.items()}, after, name)


def _ends(child: Child, *, is_skippable: bool, surely: bool) -> tuple[str, ...]:
    """How a task may end when nothing fails."""
    if child.is_daemon:
        return ("Daemoned", "Skipped") if is_skippable else ("Daemoned",)
    found = ["Succeeded"]
    if is_skippable or (child.count == 0 and isinstance(child.tree, Leaf)):
        found.append("Skipped")
    if not surely:
        found.append("Omitted")
    return tuple(found)


def _waits(
    walk: Walk, template: Template, tasks: Mapping[str, tuple[int, Mapping[str, Any]]], place: Place
) -> dict[str, Waits] | None:
    """What each task waits for; None when Argo refuses it."""
    found: dict[str, Waits] = {}
    for key, (index, task) in tasks.items():
        field = "depends" if task.get("depends") else "dependencies"
        try:
            found[key] = waits_of(task)
        except BadDepends as refusal:
            walk.refuse("GF716", f"template {template.name}, task {key}: {refusal}", place.where(index, field))
            return None
        lost = [each for each in found[key].names if each not in tasks]
        if lost:
            text = f"template {template.name}: task {key} waits for {', '.join(lost[:5])}, which does not exist"
            walk.refuse("GF716", text, place.where(index, field))
            return None
    cycle = find_cycle({key: list(waits.names) for key, waits in found.items()})
    if cycle:
        text = f"template {template.name}: tasks wait for each other: {' → '.join(cycle[:8])}"
        walk.refuse("GF716", text, place.where(tasks[cycle[0]][0]))
        return None
    return found


def _targets(walk: Walk, template: Template, dag: Mapping[str, Any], waits: Mapping[str, Waits]) -> list[str]:
    """The tasks that run, those that others wait for first: with `target`, only what its tasks need."""
    written = text_of(dag.get("target"))
    roots = list(waits)
    if written:
        filled = walk.globals.filled(written)[0]
        roots = [each for each in filled.split(" ") if each in waits]
        lost = [each for each in filled.split(" ") if each and each not in waits]
        if lost:
            text = f"template {template.name}: target names {', '.join(lost[:5])}, which does not exist"
            walk.refuse("GF716", text, template.where("dag", "target"))
    ordered: dict[str, None] = {}
    for root in roots:
        stack: list[tuple[str, int]] = [(root, 0)]
        while stack:
            key, number = stack.pop()
            if key in ordered:
                continue
            names = waits[key].names
            if number < len(names):
                stack += ((key, number + 1), (names[number], 0))
            else:
                ordered[key] = None
    return list(ordered)


def _asked_about(waits: Mapping[str, Waits], wanted: list[str]) -> set[str]:
    """Tasks that exclude others: what waits for a task whose failure, or being left out, somebody asks about."""
    unhappy = {name for key in wanted for name in waits[key].unhappy}
    if not unhappy:
        return set()
    found: set[str] = set()
    for key in wanted:
        if any(name in unhappy or name in found for name in waits[key].names):
            found.add(key)
    return found


class _Limit(NamedTuple):
    """How many children of a template run at once: pods where all are, else copies of each loop."""

    pods: int | None = None
    copies: int | None = None

    def tree(self, child: Child) -> Tree:
        tree = child.tree
        if self.copies is None or not child.is_loop or not isinstance(tree, Loop):
            return tree
        return replace(tree, parallel=self.copies if tree.parallel is None else min(tree.parallel, self.copies))

    def whole(self, walk: Walk, nodes: Mapping[str, Tree], edges: Mapping[str, list[str]], name: str) -> Child:
        """All nodes. To the template around them they are one child, and not a pod."""
        if not nodes:
            return walk.nothing(name)
        alone = len(nodes) == 1 and self.pods is None
        tree = next(iter(nodes.values())) if alone else Dag(nodes, edges, self.pods)
        return Child(tree, is_pods=False, count=1)


def _limit(walk: Walk, tree: Mapping[str, Any], template: Template, groups: list[dict[str, Child]]) -> _Limit:
    """The template's parallelism, which counts its direct children: pods, steps and DAGs.

    Mirrors checkParallelism of workflow/controller/operator.go. A graph counts pods; where children are more than
    pods, only one loop at a time can be counted by its copies, and everything else is a bound.
    """
    most = number_of(tree.get("parallelism"))
    children = [child for group in groups for child in group.values()]
    if most is None or most <= 0 or _sum(children) <= most:
        return _Limit()
    walk.found.limited.append(template.name)
    if all(child.is_pods for child in children):
        return _Limit(pods=most)
    has_daemons = any(child.is_daemon for child in children)
    for group in groups:
        counted = [child for child in group.values() if child.count != 0]
        certain = len(counted) == 1 and counted[0].is_loop and not has_daemons
        if _sum(counted) > most and not certain:
            walk.found.at_most.append(
                f"parallelism of template {template.name} counts its children, and some are more than a pod"
            )
            break
    return _Limit(copies=most)


def _sum(children: Iterable[Child]) -> float:
    return sum(float("inf") if child.count is None else child.count for child in children)
