"""Templates that call others, steps and DAGs, as graphs: what waits for what, and how much of it runs at once.

`depends` mirrors GetTaskDependencies of workflow/common/ancestry.go, and evaluateDependsLogic of workflow/controller;
exit handlers and lifecycle hooks mirror executeTmplLifeCycleHook and runOnExitNode of workflow/controller; Argo v4.0.2.

Argo tells a daemon to end when the template around it has ended, and goes on at once: the pod lives for its grace
period beside whatever comes next, exit handlers and the next copy of a loop included. Argo's own limits do not count
it any more; quotas do.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain, product
from math import prod
from typing import Any, Final, NamedTuple

from gpuflow.formats.argo import LOOPS, Template
from gpuflow.formats.nodes import as_list, mapping, number_of, text_of
from gpuflow.graph import Dag, Leaf, Loop, Tree, find_cycle
from gpuflow.readers.argo.expressions import NotConstant, depends_holds
from gpuflow.readers.argo.variables import arguments_of
from gpuflow.readers.argo.walk import Call, Child, Place, Walk, parallel_tree, serial_tree

_NAME: Final = re.compile(r"([a-zA-Z0-9][-a-zA-Z0-9]*?\.[A-Z][a-zA-Z]+)|([a-zA-Z0-9][-a-zA-Z0-9]*)")
_SIMPLE_DEPENDS: Final = re.compile(r"[\w\s&()-]*")
DONE_RESULTS: Final = ("Succeeded", "Skipped", "Daemoned")
FAILED_RESULTS: Final = frozenset({"Failed", "Errored", "AllFailed", "Skipped", "Omitted"})
RESULTS: Final = frozenset({*DONE_RESULTS, *FAILED_RESULTS, "AnySucceeded"})
MOST_CASES: Final = 64


@dataclass(frozen=True)
class Waits:
    names: tuple[str, ...]
    logic: str | None = None
    """None: until all of them are done, and none was left out."""
    unhappy: frozenset[str] = frozenset()
    """Tasks whose failure, or being left out, it asks about."""


class BadDepends(ValueError):
    """Text that Argo refuses."""


def waits_of(task: Mapping[str, Any]) -> Waits:
    """What a task waits for. Raises `BadDepends`."""
    written = text_of(task.get("depends"))
    if not written:
        names = [text_of(each) for each in as_list(task.get("dependencies"))]
        return Waits(tuple(dict.fromkeys(name for name in names if name)))
    if task.get("dependencies"):
        raise BadDepends("it has both depends and dependencies")
    found: dict[str, None] = {}
    unhappy: set[str] = set()
    for result, bare in _NAME.findall(written):
        if bare:
            found[bare] = None
            continue
        name, _, word = result.partition(".")
        if word not in RESULTS:
            raise BadDepends(f"task result {word} does not exist")
        found[name] = None
        if word in FAILED_RESULTS:
            unhappy.add(name)
    if "!" in written:
        unhappy |= found.keys()
    if _SIMPLE_DEPENDS.fullmatch(written):
        return Waits(tuple(found))
    done = " || ".join(rf"\2.{word}" for word in DONE_RESULTS)
    logic = _NAME.sub(lambda match: match[0] if match[1] else match.expand(f"({done})"), written)
    return Waits(tuple(found), logic, frozenset(unhappy))


def may_and_must_run(waits: Waits, outcomes: Mapping[str, tuple[str, ...]]) -> tuple[bool, bool]:
    """Whether a task may run when nothing fails, and whether it surely does, by how each other may end."""
    cases = [outcomes.get(name, ("Succeeded",)) for name in waits.names]
    if waits.logic is None:
        surely = not any("Omitted" in case for case in cases)
        return all(set(case) - {"Omitted"} for case in cases), surely
    if prod(map(len, cases)) > MOST_CASES:
        return True, False
    answers = set()
    for case in product(*cases):
        ends = list(zip(waits.names, case, strict=True))
        results = {f"{name}.{word}": True for name, word in ends}
        results |= {f"{name}.AnySucceeded": True for name, word in ends if word == "Succeeded"}
        try:
            answers.add(depends_holds(waits.logic, results))
        except NotConstant:
            return True, False
    return True in answers, answers == {True}


def with_daemons(edges: Mapping[str, Collection[str]], daemons: Collection[str]) -> dict[str, list[str]]:
    """Edges where nobody waits for the end of a daemon: what waits for one waits for what it waited for.

    `edges`: for each task, those that it waits for, in an order in which they come first.
    """
    found: dict[str, list[str]] = {}
    for name, before in edges.items():
        wanted = (found.get(each, ()) if each in daemons else (each,) for each in before)
        found[name] = list(dict.fromkeys(chain.from_iterable(wanted)))
    return found


def own_name(text: str | None, index: int) -> str:
    """The name of a step, without what would read as a path."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)[:128] if text else f"step-{index}"


def read_steps(walk: Walk, template: Template, tree: Mapping[str, Any], at: Call, name: str) -> Child:
    """Groups of steps, one group after the other."""
    groups: dict[str, dict[str, Child]] = {}
    place = Place(template.workflow, (*template.path, "steps"))
    for index, group in enumerate(as_list(tree.get("steps"))):
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
            child = walk.read_call(step, at, called, spot)
            key = called if called not in children else f"{called}-{number}"
            children[key] = child
        groups[f"{name}[{index}]"] = children
    most = _limit(walk, tree, template, list(groups.values()))
    nodes: dict[str, Tree] = {}
    edges: dict[str, list[str]] = {}
    before: str | None = None
    for now, children in groups.items():
        waiting = {key: most.tree(child) for key, child in children.items() if not child.is_daemon}
        nodes[now] = parallel_tree(waiting) if waiting else Leaf(now, {}, 0)
        daemons = {f"{now} {key}": most.tree(child) for key, child in children.items() if child.is_daemon}
        nodes |= daemons
        if before is not None:
            edges[before] = [now, *daemons]
        before = now
    return most.limit_all(walk, nodes, edges, name)


def read_dag(walk: Walk, template: Template, tree: Mapping[str, Any], at: Call, name: str) -> Child:
    """Tasks, each after those that it waits for."""
    place = Place(template.workflow, (*template.path, "dag", "tasks"))
    dag = mapping(tree.get("dag"))
    tasks: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for index, task in enumerate(as_list(dag.get("tasks"))):
        key = text_of(mapping(task).get("name"))
        if not isinstance(task, Mapping) or not key or key in tasks:
            text = f"template {template.name}: task {key or index} has no name, or that of another"
            walk.refuse("GF713", text, place.where(index))
            continue
        tasks[key] = index, task
    waits = _waits(walk, template, tasks, place)
    if waits is None:
        return walk.empty_node(name)
    wanted = _targets(walk, template, dag, waits)
    children: dict[str, Child] = {}
    outcomes: dict[str, tuple[str, ...]] = {}
    asked = _excluding_tasks(waits, wanted)
    for key in wanted:
        index, task = tasks[key]
        called = f"{name}.{own_name(key, index)}"
        may, surely = may_and_must_run(waits[key], outcomes)
        inside = at if surely else replace(at, sure=False)
        known_before = len(walk.found.conditional)
        child = children[key] = walk.read_call(task, inside, called, place.at(index))
        is_skippable = len(walk.found.conditional) > known_before and called in walk.found.conditional
        if not may or key in asked:
            walk.found.conditional.setdefault(called, False)
        elif not surely:
            walk.found.inherited[called] = None
        outcomes[key] = _ends(child, is_skippable=is_skippable, surely=surely)
    edges = {key: [each for each in waits[key].names if each in children] for key in children}
    edges = with_daemons(edges, {key for key, child in children.items() if child.is_daemon})
    after: dict[str, list[str]] = {}
    for key, before in edges.items():
        for each in before:
            after.setdefault(each, []).append(key)
    most = _limit(walk, tree, template, [children])
    return most.limit_all(walk, {key: most.tree(child) for key, child in children.items()}, after, name)


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
        filled = walk.globals.fill(written)[0]
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


def _excluding_tasks(waits: Mapping[str, Waits], wanted: list[str]) -> set[str]:
    """Tasks that exclude others: what waits for a task whose failure, or being left out, somebody asks about."""
    unhappy = {name for key in wanted for name in waits[key].unhappy}
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

    def limit_all(self, walk: Walk, nodes: Mapping[str, Tree], edges: Mapping[str, list[str]], name: str) -> Child:
        """All nodes. To the template around them they are one child, and not a pod."""
        if not nodes:
            return walk.empty_node(name)
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


EXIT = "exit"
_END_STATUS = re.compile(r"""['"](Succeeded|Failed|Error)['"]""")


def with_hooks(walk: Walk, call: Mapping[str, Any], child: Child, at: Call, name: str, place: Place) -> Child:
    """A step with what its hooks run."""
    beside: dict[str, Tree] = {}
    after: dict[str, Tree] = {}
    is_pods, count = child.is_pods, child.count
    for key, hook, spot, ends in hooks_of(walk, call, place):
        inside = replace(at, sure=False, on_exit=at.on_exit or key == EXIT)
        called = f"{name}.{'onExit' if key == EXIT else f'hook-{key}'}"
        if key != EXIT or text_of(hook.get("expression")):
            walk.found.conditional[called] = False
        found = run_hook(walk, hook, inside, called, spot)
        (after if ends else beside)[called] = found.tree
        is_pods = is_pods and found.is_pods
        count = None if count is None or found.count is None else count + found.count
    if not beside and not after:
        return child
    tree = Dag({name: child.tree, **beside}) if beside else child.tree
    if after:
        tree = serial_tree(tree, Dag(after))
        if child.is_daemon or any(call.get(each) for each in LOOPS):
            # A daemon ends with its template, and the handlers of all copies need not live at once.
            walk.found.at_most.append(f"the exit handler of {name} may never run beside all that it could")
    return replace(child, tree=tree, is_pods=is_pods, count=count)


def hooks_of(walk: Walk, call: Mapping[str, Any], place: Place) -> Iterator[tuple[str, Mapping[str, Any], Place, bool]]:
    """The hooks of a step or workflow: name, hook, place, and whether it starts only when the step has ended."""
    hooks = mapping(call.get("hooks"))
    written = text_of(call.get("onExit"))
    if written:
        yield EXIT, {"template": written}, place.at("onExit"), True
    for key, hook in hooks.items():
        if not isinstance(hook, Mapping) or (key == EXIT and written):
            continue
        expression = text_of(hook.get("expression")) or ""
        spot = place.at("hooks", str(key))
        if key == EXIT:
            yield EXIT, hook, spot, True
            continue
        ended = _END_STATUS.search(expression) is not None and "Running" not in expression and "!" not in expression
        running = "'Running'" in expression or '"Running"' in expression
        if not ended and not running:
            walk.found.at_most.append(f"hook {key} may never run beside its step")
        yield re.sub(r"[^A-Za-z0-9_-]", "-", str(key)), hook, spot, ended


def run_hook(walk: Walk, hook: Mapping[str, Any], at: Call, name: str, place: Place) -> Child:
    """The template that a hook calls; without arguments of its own it gets those of the workflow."""
    walk.found.names[name] = None
    template = walk.resolve_template(hook, at, name, place)
    if template is None:
        return Child(Leaf(name, {}, 0), count=0)
    source = hook if mapping(hook.get("arguments")) else walk.workflow.tree
    return walk.template(template, arguments_of(source, at.scope, walk.library), at, name, place)


def with_ending_daemons(tree: Tree, daemons: Collection[str]) -> Tree:
    """The graph with each daemon beside everything that follows the template around it. A bound: it may end sooner."""
    match tree:
        case Leaf():
            return tree
        case Loop():
            return _loop(replace(tree, body=with_ending_daemons(tree.body, daemons)), daemons)
        case Dag():
            return _dag(tree, daemons)


def _loop(tree: Loop, daemons: Collection[str]) -> Tree:
    """A daemon of one copy is still ending when the next copy starts."""
    if tree.parallel is None or _is_daemon(tree.body, daemons):
        return tree
    rest, released = _split_daemons(tree, daemons)
    return _next_to(rest, released, tree.name)


def _dag(tree: Dag, daemons: Collection[str]) -> Tree:
    nodes: dict[str, Tree] = {}
    released: list[Tree] = []
    for name, node in tree.nodes.items():
        nodes[name] = with_ending_daemons(node, daemons)
        if tree.edges.get(name) and not _is_daemon(nodes[name], daemons):
            nodes[name], more = _split_daemons(nodes[name], daemons)
            released += more
    if nodes == tree.nodes:
        return tree
    return _next_to(replace(tree, nodes=nodes), released, "daemons")


def _next_to(rest: Tree, released: list[Tree], name: str) -> Tree:
    """Outside of `rest`, so that no limit in it counts them."""
    return Dag({"rest": rest, **{f"{name}-{index}": each for index, each in enumerate(released)}}) if released else rest


def _split_daemons(tree: Tree, daemons: Collection[str]) -> tuple[Tree, list[Tree]]:
    """A graph without its daemons, and the daemons."""
    match tree:
        case Leaf():
            return (Leaf(f"{tree.name} ready", {}, 0), [tree]) if _is_daemon(tree, daemons) else (tree, [])
        case Loop():
            body, released = _split_daemons(tree.body, daemons)
            return replace(tree, body=body), [replace(tree, body=each, parallel=None) for each in released]
        case Dag():
            parts = {name: _split_daemons(node, daemons) for name, node in tree.nodes.items()}
            nodes = {name: part for name, (part, _) in parts.items()}
            return replace(tree, nodes=nodes), [each for _, released in parts.values() for each in released]


def _is_daemon(tree: Tree, daemons: Collection[str]) -> bool:
    return isinstance(tree, Leaf) and tree.name in daemons
