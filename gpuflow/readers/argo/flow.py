"""What calls become in the graph of a run: what waits for what, how much runs at once, and what was found on the way.

`Call` is where a call stands, `Child` what it becomes, and `WalkResult` what was found so far.

A daemon that runs keeps its place in every parallelism that counts it, and what holds a lock keeps it until all below
it has ended: what can only start when one of them ends never does. Mirrors checkParallelism and TryAcquire of
workflow/controller and workflow/sync, Argo v4.0.2.

Argo tells a daemon to end when the template around it has ended, and goes on at once: the pod lives for its grace
period beside whatever comes next, exit handlers and the next copy of a loop included. Argo's own limits do not count
it any more; quotas do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise, product
from math import prod
from typing import Any, Final, NamedTuple

from gpuflow.core.errors import Finding, Where, list_names
from gpuflow.demands.model import ClaimDemand, PodSet, StepDemand, UnseenPart
from gpuflow.demands.stored import StoredObject
from gpuflow.formats.argo import Path, Template, Waits, Workflow
from gpuflow.graph import Dag, Leaf, Loop, Tree, find_either, order, peak, with_weights
from gpuflow.readers.argo.expressions import NotConstant, comparison_of, depends_holds, never_both
from gpuflow.readers.argo.variables import Lock, OpenValue, Scope

MOST_STEPS: Final = 20_000
"""Steps that are read of one workflow; templates that call others twice could make any number."""
MOST_CASES: Final = 64
"""Ways in which the tasks that one waits for may end together; with more, nothing is worked out."""


class TooLarge(Exception):
    """The workflow has more steps than are read."""


class Place(NamedTuple):
    """A part of a document."""

    workflow: Workflow
    path: Path

    def where(self, *more: str | int) -> Where:
        return self.workflow.document.where(*self.path, *more)

    def at(self, *more: str | int) -> Place:
        return Place(self.workflow, (*self.path, *more))


@dataclass(frozen=True)
class Call:
    """Where in the run something is called."""

    workflow: Workflow
    scope: Scope
    boundary: str = ""
    """Where the template around it wants its pods."""
    stack: tuple[int, ...] = ()
    copies: int | None = 1
    tries: int = 1
    sure: bool = True
    is_exit: bool = False
    on_exit: bool = False
    """Its pods belong to an exit handler, of the run or of a step."""
    held: tuple[tuple[str, str], ...] = ()
    """The locks that are held while it runs, and by what."""
    daemons: tuple[str, ...] = ()
    """The daemons that surely run when it starts."""


@dataclass(frozen=True)
class Child:
    """What a call becomes."""

    tree: Tree
    is_pods: bool = True
    """All that its template's parallelism counts are single pods."""
    count: int | None = 1
    """How many nodes that is at most."""
    is_daemon: bool = False
    locks: tuple[Lock, ...] = ()
    is_loop: bool = False
    """Its tree is a loop of what its template's parallelism counts."""


@dataclass
class WalkResult:
    """What the walk has collected. Trials are rolled back to their marks."""

    steps: list[StepDemand] = field(default_factory=list)
    unseen: list[UnseenPart] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    at_most: list[str] = field(default_factory=list)
    conditional: dict[str, bool] = field(default_factory=dict)
    inherited: dict[str, None] = field(default_factory=dict)
    """Steps that run only when a conditional one did."""
    later: dict[str, tuple[str, str, tuple[PodSet, ...]]] = field(default_factory=dict)
    """When, the step, and its pod in the last attempt."""
    names: dict[str, None] = field(default_factory=dict)
    locks: list[tuple[str, int | None, int | None, int | None]] = field(default_factory=list)
    """Lock, its limit, how many copies of one call hold it, how many such calls there are."""
    escaped: list[Tree] = field(default_factory=list)
    """What lives on after the step that created it."""
    agent: list[bool] = field(default_factory=list)
    """What Argo's agent runs, each with whether it is in the exit handler."""
    daemons: list[str] = field(default_factory=list)
    limited: list[str] = field(default_factory=list)
    """Templates whose parallelism holds something back."""
    claims: list[ClaimDemand] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    """Steps of what a step creates."""
    stored: list[StoredObject] = field(default_factory=list)
    waits: list[Finding] = field(default_factory=list)
    """What may keep a step waiting though there is room."""
    beside: list[tuple[str, ...]] = field(default_factory=list)
    """Daemons, and a step that surely runs beside them."""
    shared: dict[str, tuple[Lock, str, Where]] = field(default_factory=dict)
    """Locks that other workflows may hold, by name, each with the first that takes it."""
    touched: set[int] = field(default_factory=set)
    """Loops whose item decided something that matters."""

    def refuse(self, code: str, text: str, where: Where, hint: str | None = None) -> None:
        self.findings.append(Finding(code, text, where, hint))

    def add_unknown(
        self, name: str, value: OpenValue, where: Where, resource: str | None = None, *, placement: bool = False
    ) -> None:
        """A part that is not known."""
        self.touched |= value.loops
        self.unseen.append(UnseenPart(name, value.because, where, resource, value.hint, is_placement=placement))

    def unique_name(self, name: str) -> str:
        """A name that no other step has."""
        found, number = name, 2
        while found in self.names:
            found, number = f"{name}-{number}", number + 1
        self.names[found] = None
        return found

    def marks(self) -> list[int]:
        return [len(each) for each in self._collections()]

    def take_back(self, marks: list[int]) -> None:
        for each, mark in zip(self._collections(), marks, strict=True):
            if isinstance(each, list):
                del each[mark:]
            else:
                while len(each) > mark:
                    each.popitem()

    def _collections(self) -> tuple[list[Any] | dict[str, Any], ...]:
        return tuple(each for each in vars(self).values() if isinstance(each, list | dict))


def take_locks(found: WalkResult, locks: Iterable[Lock], at: Call, name: str, where: Where) -> None:
    """Note what these locks may have to wait for: others, or what it runs in itself."""
    for lock in locks:
        holders = [by for held, by in at.held if held == lock.name]
        if lock.limit is not None and len(holders) >= lock.limit:
            text = f"{name} waits for {lock.name}, which {' and '.join(holders)} holds until {name} has ended"
            _stuck(found, Finding("GF831", text, where, "take the lock in one of them only"), is_sure=at.sure)
        elif not lock.is_private:
            found.shared.setdefault(lock.name, (lock, name, where))


def _stuck(found: WalkResult, finding: Finding, *, is_sure: bool) -> None:
    """What surely starts never does; what may start may then wait without end. Of each code the first is said."""
    if not any(each.code == finding.code for each in (*found.findings, *(() if is_sure else found.waits))):
        (found.findings if is_sure else found.waits).append(finding)


def lock_findings(found: WalkResult) -> Iterator[Finding]:
    """What is said of locks that others may hold (GF832), and where it is not known how many may (GF833)."""
    for lock, name, where in found.shared.values():
        text, hint = f"{name} waits for {lock.name}, which other workflows may hold; no snapshot shows who does", None
        if lock.unknown is not None:
            text = f"{name} waits for {lock.name}, and how many may hold it is not known: {lock.unknown}"
            yield Finding("GF833", text, where, "name the file of its ConfigMap as well", "warning")
            continue
        if "mutex" in lock.name:
            hint = "a mutex whose name has {{workflow.uid}} in it is held by this run only"
        yield Finding("GF832", text, where, hint, "warning")


def keep_places(
    found: WalkResult, most: int | None, daemons: Sequence[str], what: str, name: str, where: Where, is_sure: bool
) -> None:
    """Note a step that never starts because daemons before it have all places of a parallelism."""
    if most is not None and 0 < most <= len(daemons):
        keep = "keeps its place" if most == 1 else "keep their places"
        text = (
            f"{name} never starts: {what} is {most}, and {list_names(daemons[:most], 'daemon')} {keep} while it waits"
        )
        hint = f"give {len(daemons) + 1} or more: a daemon counts until what is around it has ended"
        _stuck(found, Finding("GF830", text, where, hint), is_sure=is_sure)


def may_keep_places(found: WalkResult, daemons: float, most: int | None, what: str, where: Where) -> None:
    """Note that daemons may take all places of a parallelism while something else has not started."""
    if most is not None and 0 < most <= daemons:
        text = f"{what} is {most}, and its daemons may take all of that: what has not started then never does"
        _stuck(found, Finding("GF830", text, where, "give more: a daemon keeps its place while it runs"), is_sure=False)


def daemons_at_once(tree: Tree, daemons: Collection[str]) -> float:
    """The most daemons that run at the same time; without bound where only the run will tell."""
    most = peak(with_weights(tree, {name: {"places": 1} for name in daemons}), "places").value
    return float("inf") if most is None else most


def empty_child(name: str) -> Child:
    """A node without pods; others may wait for it."""
    return Child(Leaf(name, {}, 0), count=0)


def parallel_tree(nodes: Mapping[str, Tree]) -> Tree:
    """Nodes side by side; one alone stays as it is."""
    return next(iter(nodes.values())) if len(nodes) == 1 else Dag(nodes)


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


def ways_to_end(child: Child, *, is_skippable: bool, surely: bool) -> tuple[str, ...]:
    """How a task may end when nothing fails."""
    if child.is_daemon:
        return ("Daemoned", "Skipped") if is_skippable else ("Daemoned",)
    found = ["Succeeded"]
    if is_skippable or (child.count == 0 and isinstance(child.tree, Leaf)):
        found.append("Skipped")
    if not surely:
        found.append("Omitted")
    return tuple(found)


def excluding_tasks(waits: Mapping[str, Waits], wanted: list[str]) -> set[str]:
    """Tasks that exclude others: what waits for a task whose failure, or being left out, somebody asks about."""
    unhappy = {name for key in wanted for name in waits[key].unhappy}
    found: set[str] = set()
    for key in wanted:
        if any(name in unhappy or name in found for name in waits[key].names):
            found.add(key)
    return found


class Limit(NamedTuple):
    """How many children of a template run at once: pods where all are, else copies of each loop."""

    pods: int | None = None
    copies: int | None = None

    def tree(self, child: Child) -> Tree:
        tree = child.tree
        if self.copies is None or not child.is_loop or not isinstance(tree, Loop):
            return tree
        return replace(tree, parallel=self.copies if tree.parallel is None else min(tree.parallel, self.copies))

    one_by_one: bool = False
    """Children run one after the other, in whatever order."""

    def beside(self, nodes: Mapping[str, Tree], conditions: Mapping[str, object]) -> Tree:
        """Children that nothing but their conditions keeps apart."""
        if self.one_by_one and len(nodes) > 1:
            return Dag(nodes, _chain(nodes))
        either = _find_either({}, conditions)
        return Dag(nodes, {}, None, either) if either else parallel_tree(nodes)

    def limit_all(
        self,
        nodes: Mapping[str, Tree],
        edges: Mapping[str, list[str]],
        name: str,
        conditions: Mapping[str, object],
    ) -> Child:
        """All nodes. To the template around them they are one child, and not a pod."""
        if not nodes:
            return empty_child(name)
        if self.one_by_one:
            edges = _chain(order({key: edges.get(key, []) for key in nodes}))
        alone = len(nodes) == 1 and self.pods is None
        either = _find_either(edges, conditions)
        tree = next(iter(nodes.values())) if alone else Dag(nodes, edges, self.pods, either)
        return Child(tree, is_pods=False, count=1)


def _find_either(after: Mapping[str, Collection[str]], conditions: Mapping[str, object]) -> tuple[tuple[str, ...], ...]:
    comparisons = {name: found for name, when in conditions.items() if when and (found := comparison_of(str(when)))}
    return find_either(after, comparisons, lambda one, other: never_both(comparisons[one], comparisons[other]))


def _chain(names: Iterable[str]) -> dict[str, list[str]]:
    """Edges by which each waits for the one before it."""
    return {name: [then] for name, then in pairwise(names)}


def limit_of(most: int | None, template: Template, groups: list[dict[str, Child]], found: WalkResult) -> Limit:
    """The template's parallelism, which counts its direct children: pods, steps and DAGs.

    Mirrors checkParallelism of workflow/controller/operator.go. A graph counts pods; where children are more than
    pods, only one loop at a time can be counted by its copies, and everything else is a bound.
    """
    children = [child for group in groups for child in group.values()]
    daemons, name = [child for child in children if child.is_daemon], template.name
    if daemons and len(daemons) < len(children):
        may_keep_places(found, _sum(daemons), most, f"parallelism of template {name}", template.where())
    if most is None or most <= 0 or _sum(children) <= most:
        return Limit()
    found.limited.append(name)
    if all(child.is_pods for child in children):
        return Limit(pods=most)
    if most == 1 and not daemons and all(child.is_loop or child.count in (0, 1) for child in children):
        return Limit(copies=1, one_by_one=True)
    for group in groups:
        counted = [child for child in group.values() if child.count != 0]
        certain = len(counted) == 1 and counted[0].is_loop and not daemons
        if _sum(counted) > most and not certain:
            found.at_most.append(f"parallelism of template {name} counts its children, and some are more than a pod")
            break
    return Limit(copies=most)


def _sum(children: Iterable[Child]) -> float:
    return sum(float("inf") if child.count is None else child.count for child in children)


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
