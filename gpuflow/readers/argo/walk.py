"""A workflow followed from its entrypoint, template by template, into a graph of steps with their pods.

`Call` is where a call stands, `Child` what it becomes, and `WalkResult` what was found so far.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, NamedTuple

from gpuflow.core.errors import Finding, Where
from gpuflow.demands.model import ClaimDemand, PodSet, StepDemand, UnseenPart
from gpuflow.engines import NO_ENGINE
from gpuflow.formats.argo import TYPES, Path, Template, Workflow, names_of, template_of
from gpuflow.formats.documents import Library
from gpuflow.formats.nodes import as_plain, mapping, number_of, text_of
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown
from gpuflow.kubernetes.strategic_merge import BadPatch
from gpuflow.quantity import Quantity
from gpuflow.readers.argo.expressions import NotConstant, when_holds
from gpuflow.readers.argo.pods import ONLY_ENGINE, BadPod, BuiltPod, PodMaker, place_of
from gpuflow.readers.argo.removed_fields import removed_in_template
from gpuflow.readers.argo.variables import (
    BadLoop,
    Items,
    OpenValue,
    Scope,
    Value,
    arguments_of,
    inputs_of,
    items_of,
    locks_of,
    merge_open,
    names_in,
)
from gpuflow.readers.gang_launcher import gang_manifest
from gpuflow.readers.interface import Options


class Readers(NamedTuple):
    """Who reads what: templates that call others, what a step creates, and what runs around a step."""

    steps: Callable[..., Child]
    dag: Callable[..., Child]
    created: Callable[..., Child]
    hooks: Callable[..., Child]


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


@dataclass(frozen=True)
class Child:
    """What a call becomes."""

    tree: Tree
    is_pods: bool = True
    """All that its template's parallelism counts are single pods."""
    count: int | None = 1
    """How many nodes that is at most."""
    is_daemon: bool = False
    locks: tuple[tuple[str, int | None], ...] = ()
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
    daemons: list[str] = field(default_factory=list)
    limited: list[str] = field(default_factory=list)
    """Templates whose parallelism holds something back."""
    claims: list[ClaimDemand] = field(default_factory=list)
    created: list[str] = field(default_factory=list)
    """Steps of what a step creates."""

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
        return (
            self.steps, self.unseen, self.findings, self.at_most, self.conditional, self.inherited, self.later,
            self.names, self.locks, self.escaped, self.agent, self.daemons, self.limited, self.claims, self.created,
        )  # fmt: skip


DEEPEST: Final = 40
"""Templates inside templates. Argo itself gives up at 100."""
MOST_STEPS: Final = 20_000
"""Steps that are read of one workflow; templates that call others twice could make any number."""
MOST_CALLS: Final = 50_000
WRITTEN_OUT: Final = 1_000
"""Items of a loop that are read one by one, where what they ask for depends on the item."""
PARAMETER_PREFIX: Final = "workflow.parameters."
ENDLESS_RETRIES: Final = 1_000_000
"""Tries of a step that Argo would start again without end."""
FIRST_ATTEMPT: Final[Mapping[str, str]] = {
    "retries": "0",
    "lastRetry.exitCode": "0",
    "lastRetry.status": "",
    "lastRetry.duration": "0",
    "lastRetry.message": "",
}
"""What an attempt is told of those before it, when it is the first."""

LATER_ATTEMPTS: Final[Mapping[str, Mapping[str, str]]] = {
    "after running out of memory": {
        "lastRetry.exitCode": "137",
        "lastRetry.status": "Failed",
        "lastRetry.message": "main: OOMKilled (exit code 137)",
    },
    "after interruptions": {
        "lastRetry.exitCode": "143",
        "lastRetry.status": "Error",
        "lastRetry.message": "pod deleted",
    },
}
"""How an attempt may have ended, in Argo's words."""


class Walk:
    def __init__(
        self, workflow: Workflow, library: Library, scope: Scope, pods: PodMaker, options: Options, readers: Readers
    ) -> None:
        self.workflow, self.library, self.globals, self.pods = workflow, library, scope, pods
        self.readers = readers
        self.site, self.engine = options.site, options.engine
        self.release = options.site.engine("argo").release
        self.params = options.params
        self.has_defaults = workflow.document.kind in ("WorkflowTemplate", "ClusterWorkflowTemplate")
        self.with_engine = options.engine != NO_ENGINE
        self.found = WalkResult()
        self.calls = 0
        self.loops = 0
        self.touched: set[int] = set()
        """Loops whose item decided something that matters."""
        self._trees: dict[int, Mapping[str, Any]] = {}
        self._sets: dict[int, tuple[PodSet, PodSet, Mapping[str, Quantity]]] = {}
        self._kept: list[Any] = []

    # What is said

    def refuse(self, code: str, text: str, where: Where, hint: str | None = None) -> None:
        self.found.findings.append(Finding(code, text, where, hint))

    def add_unknown(
        self, name: str, value: OpenValue, where: Where, resource: str | None = None, *, placement: bool = False
    ) -> None:
        """A part that is not known."""
        self.touched |= value.loops
        self.found.unseen.append(UnseenPart(name, value.because, where, resource, value.hint, is_placement=placement))

    def empty_node(self, name: str) -> Child:
        """A node without pods; others may wait for it."""
        return Child(Leaf(name, {}, 0), count=0)

    # Calls

    def read_call(self, call: Mapping[str, Any], at: Call, name: str, place: Place) -> Child:
        """A step, task or hook, with its loop and its condition."""
        name = self.unique_name(name)
        try:
            items = items_of(call, at.scope)
        except BadLoop as refusal:
            self.refuse("GF714", f"{name}: {refusal}", place.where())
            return self.empty_node(name)
        if items is None:
            runs = self._condition(call, at.scope, name)
            if runs is False:
                return self.empty_node(name)
            at = at if runs else replace(at, sure=False)
            return self._note_locks(self._read_one_call(call, at, name, place), 1, at)
        return self._read_loop(call, items, at, name, place)

    def unique_name(self, name: str) -> str:
        """A name that no other step has."""
        found, number = name, 2
        while found in self.found.names:
            found, number = f"{name}-{number}", number + 1
        self.found.names[found] = None
        return found

    def _condition(self, call: Mapping[str, Any], scope: Scope, name: str) -> bool | None:
        """Whether it runs; None when only the run will tell."""
        written = text_of(call.get("when"))
        if not written:
            return True
        text, missing = scope.fill(written)
        unknown = merge_open(missing)
        if unknown is None and not self._may_be_given(written):
            try:
                return when_holds(text)
            except NotConstant:
                pass
        self.touched |= frozenset() if unknown is None else unknown.loops
        self.found.conditional[name] = bool(unknown and unknown.loops)
        return None

    def _may_be_given(self, text: str) -> bool:
        """Whether a text names a parameter of which a template only says what it is unless somebody gives another."""
        if not self.has_defaults:
            return False
        asked = {name.removeprefix(PARAMETER_PREFIX) for name in names_in(text) if name.startswith(PARAMETER_PREFIX)}
        return not asked <= self.params.keys()

    def _read_loop(self, call: Mapping[str, Any], items: Items, at: Call, name: str, place: Place) -> Child:
        self.loops += 1
        loop = self.loops
        known = None if isinstance(items.count, OpenValue) else items.count
        if known == 0:
            return self.empty_node(name)
        if isinstance(items.count, OpenValue):
            self.touched |= items.count.loops
        because = "what it asks for depends on the item"
        if known is not None and known > WRITTEN_OUT:
            because += f", and there are {known:,} of them"
        item = OpenValue(because, frozenset({loop}) if known is not None else frozenset())
        marks = self.found.marks()
        inside = replace(
            at,
            scope=at.scope.with_variables({"item": item}),
            copies=None if at.copies is None or known is None else at.copies * known,
            sure=at.sure and known is not None,
        )
        runs = self._condition(call, inside.scope, name)
        if runs is False:
            return self.empty_node(name)
        body = self._read_one_call(call, inside if runs else replace(inside, sure=False), name, place)
        if loop in self.touched and known is not None and known <= WRITTEN_OUT:
            spelled = list(items.variables())
            if len(spelled) == known:
                self.found.take_back(marks)
                self.touched.discard(loop)
                return self._read_items(call, spelled, at, name, place)
        copies: int | Unknown
        if isinstance(items.count, OpenValue):
            where = place.where(items.field)
            copies = Unknown(f"{items.field} ({where}): {items.count.because}")
        else:
            copies = items.count
        limits = [limit for _, limit in body.locks if limit is not None]
        tree = Loop(name, body.tree, copies, min(limits, default=None))
        count = None if body.count is None or known is None else body.count * known
        return self._note_locks(
            Child(tree, body.is_pods, count, body.is_daemon, body.locks, is_loop=body.count == 1), known, at
        )

    def _read_items(
        self, call: Mapping[str, Any], items: list[Mapping[str, Value]], at: Call, name: str, place: Place
    ) -> Child:
        """A loop whose items differ: one node for each item, one loop for those that are the same."""
        same: dict[tuple[tuple[str, Value], ...], list[int]] = {}
        for index, item in enumerate(items):
            same.setdefault(tuple(item.items()), []).append(index)
        nodes: dict[str, Tree] = {}
        is_pods, is_daemon, count = True, False, 0
        locks: tuple[tuple[str, int | None], ...] = ()
        for variables, indexes in same.items():
            each = self.unique_name(f"{name}({indexes[0]})")
            inside = replace(
                at,
                scope=at.scope.with_variables(dict(variables)),
                copies=None if at.copies is None else at.copies * len(indexes),
            )
            runs = self._condition(call, inside.scope, each)
            if runs is False:
                continue
            child = self._read_one_call(call, inside if runs else replace(inside, sure=False), each, place)
            if child.locks:
                locks = child.locks
            is_pods, is_daemon = is_pods and child.is_pods, is_daemon or child.is_daemon
            count = count + (child.count or 0) * len(indexes)
            nodes[each] = child.tree if len(indexes) == 1 else Loop(each, child.tree, len(indexes))
        if not nodes:
            return self.empty_node(name)
        limits = [limit for _, limit in locks if limit is not None]
        tree = parallel_tree(nodes)
        if limits and is_pods and min(limits) < count:
            tree = Dag(nodes, {}, min(limits))
        elif locks:
            self.found.at_most.append(f"{locks[0][0]} may let fewer run at once than there are items of {name}")
        return self._note_locks(Child(tree, is_pods, count, is_daemon, locks), count, at)

    def _note_locks(self, child: Child, count: int | None, at: Call) -> Child:
        """The locks that a call takes, noted."""
        for lock, limit in child.locks:
            self.found.locks.append((lock, limit, count, at.copies))
        return replace(child, locks=())

    def _read_one_call(self, call: Mapping[str, Any], at: Call, name: str, place: Place) -> Child:
        """One copy of a call, with its hooks and its exit handler."""
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise TooLarge
        template = self.resolve_template(call, at, name, place)
        if template is None:
            return self.empty_node(name)
        child = self.template(template, arguments_of(call, at.scope, self.library), at, name, place)
        return self.readers.hooks(self, call, child, at, name, place)

    def resolve_template(self, call: Mapping[str, Any], at: Call, name: str, place: Place) -> Template | None:
        """The template that is called; None, with the reason noted, when there is none."""
        opened: list[OpenValue] = []

        def fill(text: str) -> str | None:
            filled, missing = at.scope.fill(text)
            opened.extend(missing)
            return None if missing else filled

        found = template_of(call, at.workflow, place.path, self.library, fill)
        if found.template is not None:
            return found.template
        where = place.where("templateRef" if isinstance(call.get("templateRef"), Mapping) else "template")
        unknown = merge_open(opened)
        if unknown is not None:
            unknown = replace(unknown, because=f"which template it calls: {unknown.because}")
            self.add_unknown(name, unknown, where)
        elif not found.is_given:
            because = f"templateRef names template {found.wanted} of {found.owner}, which was not given"
            self.add_unknown(name, OpenValue(because, hint=f"name the file of {found.owner} as well"), where)
        elif found.owner is not None:
            text = f"{name} calls template {found.wanted!r} of {found.owner}, which does not exist"
            self.refuse("GF712", text, where, f"templates there: {names_of(found.among)}")
        else:
            text = f"calls template {found.wanted!r}, which does not exist" if found.wanted else "calls no template"
            self.refuse("GF712", f"{name} {text}", where, f"templates of the document: {names_of(found.among)}")
        return None

    def template(self, template: Template, arguments: Mapping[str, Value], at: Call, name: str, place: Place) -> Child:
        mark = id(template.tree)
        if mark in at.stack or len(at.stack) >= DEEPEST:
            because = f"template {template.name} calls itself: how often is decided in the run"
            because = because if mark in at.stack else f"templates call each other more than {DEEPEST} deep"
            self.add_unknown(name, OpenValue(because), place.where())
            return self.empty_node(name)
        tree = self._with_defaults(template)
        kind = template.type
        if kind is None:
            self.refuse(
                "GF713",
                f"template {template.name} is none, or more than one, of what a template can be",
                template.where(),
                f"give it exactly one of {', '.join(TYPES)}",
            )
            return self.empty_node(name)
        scope = self.globals.with_variables(inputs_of(tree, arguments, self.globals, self.library))
        retry = tree.get("retryStrategy", self.workflow.tree.get("retryStrategy"))
        if isinstance(retry, Mapping):
            scope = scope.at(FIRST_ATTEMPT)
        tries = min(at.tries * self._tries(retry, scope), ENDLESS_RETRIES)
        sure = at.sure and not mapping(tree.get("memoize"))
        inside = replace(at, workflow=template.workflow, scope=scope, stack=(*at.stack, mark), tries=tries, sure=sure)
        locks = tuple(locks_of(tree, scope, self.library, self.release))
        where = partial(self._template_place, template)
        self.found.findings += removed_in_template(template.name, tree, where, self.release)
        if kind in ("steps", "dag"):
            flow = self.readers.steps if kind == "steps" else self.readers.dag
            body = flow(self, template, tree, replace(inside, boundary=place_of(tree, scope)), name)
            return replace(body, locks=locks)
        child = self._leaf(template, tree, kind, inside, name)
        if tree.get("daemon") is True:
            self.found.daemons.append(name)
        return replace(child, locks=locks, is_daemon=tree.get("daemon") is True)

    def _template_place(self, template: Template, *path: str, key: bool = False) -> Where:
        """Where a field of a template is written: in it, or in the defaults of all templates."""
        if path[0] in template.tree:
            return template.where(*path, key=key)
        return self.workflow.where("templateDefaults", *path, key=key)

    def _with_defaults(self, template: Template) -> Mapping[str, Any]:
        found = self._trees.get(id(template.tree))
        if found is None:
            try:
                found = self.workflow.with_defaults(template)
            except (BadPatch, TypeError, AttributeError) as refusal:
                self.refuse(
                    "GF717", f"templateDefaults cannot be merged: {refusal}", self.workflow.where("templateDefaults")
                )
                found = mapping(template.tree)
            found = self._with_pod_metadata(template, found)
            self._trees[id(template.tree)] = found
            self._kept.append(template.tree)
        return found

    def _with_pod_metadata(self, template: Template, tree: Mapping[str, Any]) -> Mapping[str, Any]:
        """A template whose metadata its document's podMetadata has overwritten, which happens when it is looked up.

        Mirrors addPodMetadata of workflow/templateresolution/context.go.
        """
        own = template.workflow is self.workflow or template.workflow is self.workflow.behind
        written = (self.workflow.tree if own else template.workflow.own).get("podMetadata")
        if template.path[-1] == "inline" or not isinstance(written, Mapping):
            return tree
        metadata = dict(mapping(tree.get("metadata")))
        for field_name in ("labels", "annotations"):
            more, before = mapping(as_plain(written.get(field_name))), metadata.get(field_name)
            if more and (before is None or isinstance(before, Mapping)):
                metadata[field_name] = {**(before or {}), **more}
        return {**tree, "metadata": metadata}

    def _tries(self, retry: Any, scope: Scope) -> int:
        if not isinstance(retry, Mapping):
            return 1
        written = text_of(retry.get("limit"))
        if written is None:
            return ENDLESS_RETRIES
        limit = number_of(scope.fill(written)[0])
        return ENDLESS_RETRIES if limit is None or limit < 0 else 1 + limit

    # Pods

    def _leaf(self, template: Template, tree: Mapping[str, Any], kind: str, at: Call, name: str) -> Child:
        if kind in ("http", "plugin"):
            self.found.agent.append(True)
            return self.empty_node(name)
        if kind == "suspend":
            return self.empty_node(name)
        own: Tree = Leaf(name, {}, 0)
        creates = kind == "resource" or gang_manifest(tree.get("container")) is not None
        if (kind not in ONLY_ENGINE and not creates) or self.with_engine:
            step = self._step(template, tree, kind, at, name)
            if step is None:
                return self.empty_node(name)
            own = Leaf(name, {}, 1)
        if not creates:
            return Child(own)
        return self.readers.created(self, template, tree, at, name, own)

    def _step(self, template: Template, tree: Mapping[str, Any], kind: str, at: Call, name: str) -> StepDemand | None:
        made = self._pod(template, tree, kind, at, at.scope)
        if made is None:
            return None
        field_path = ("podSpecPatch",) if "podSpecPatch" in tree else (kind, "resources")
        for part in made.missing:
            where = template.where(*field_path)
            self.add_unknown(name, part.value, where, part.resource, placement=part.resource is None)
        bare, full, overhead = self._pod_sets(made)
        retry = mapping(tree.get("retryStrategy", self.workflow.tree.get("retryStrategy")))
        avoids = "nodeAntiAffinity" in mapping(retry.get("affinity"))
        step = StepDemand(
            name,
            (full if self.with_engine else bare,),
            at.copies,
            where=template.where(),
            overhead=full.amounts.usage if kind in ONLY_ENGINE else overhead,
            tries=at.tries,
            nodes_avoided=at.tries - 1 if avoids else 0,
            is_exit=at.is_exit,
            is_sure=at.sure,
        )
        if len(self.found.steps) >= MOST_STEPS:
            raise TooLarge
        self.found.steps.append(step)
        if at.scope.attempt and at.tries > 1:
            self._last_attempts(template, tree, kind, at, name, made)
        return step

    def _pod(self, template: Template, tree: Mapping[str, Any], kind: str, at: Call, scope: Scope) -> BuiltPod | None:
        """The pod of a template; None, with the reason noted, when none can be made."""
        try:
            return self.pods.make(tree, kind, scope, at.boundary, is_exit=at.on_exit)
        except BadPod as refusal:
            self.refuse("GF715", f"template {template.name}: {refusal}", template.where(*refusal.path))
            return None

    def _last_attempts(
        self, template: Template, tree: Mapping[str, Any], kind: str, at: Call, name: str, first: BuiltPod
    ) -> None:
        """The pods of the last attempt, where they are others than that of the first."""
        for when, told in LATER_ATTEMPTS.items():
            attempt = dict(told)
            if at.tries < ENDLESS_RETRIES:
                attempt["retries"] = str(at.tries - 1)
            last = self._pod(template, tree, kind, at, at.scope.at(attempt))
            if last is None:
                return
            for part in last.missing:
                if part not in first.missing:
                    unknown = replace(part.value, because=f"{when}: {part.value.because}")
                    where = template.where("podSpecPatch")
                    self.add_unknown(name, unknown, where, part.resource, placement=part.resource is None)
            if last.bare != first.bare and last.missing == first.missing:
                bare, full, _ = self._pod_sets(last)
                self.found.later[f"{when} {name}"] = when, name, (full if self.with_engine else bare,)

    def _pod_sets(self, made: BuiltPod) -> tuple[PodSet, PodSet, Mapping[str, Quantity]]:
        found = self._sets.get(id(made))
        if found is None:
            bare, full = PodSet("main", 1, made.bare), PodSet("main", 1, made.full)
            overhead: dict[str, Quantity] = {}
            if self.with_engine and made.full != made.bare:
                for key, amount in full.amounts.usage.items():
                    more = amount - bare.amounts.usage.get(key, Quantity.zero)
                    if more > Quantity.zero:
                        overhead[key] = more
            found = self._sets[id(made)] = bare, full, overhead
            self._kept.append(made)
        return found


def parallel_tree(nodes: Mapping[str, Tree]) -> Tree:
    """Nodes side by side; one alone stays as it is."""
    return next(iter(nodes.values())) if len(nodes) == 1 else Dag(nodes)


def serial_tree(first: Tree, then: Tree) -> Tree:
    """One after the other."""
    return Dag({"first": first, "then": then}, {"first": ["then"]})
