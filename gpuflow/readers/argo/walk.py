"""A workflow followed from its entrypoint, template by template, into a graph of steps with their pods.

`depends` mirrors evaluateDependsLogic of workflow/controller; exit handlers and lifecycle hooks mirror
executeTmplLifeCycleHook and runOnExitNode of workflow/controller; Argo v4.0.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any, Final

from gpuflow.core.errors import Where
from gpuflow.demands.model import PodSet, StepDemand, usage_beyond
from gpuflow.demands.stored import StoredObject
from gpuflow.engines import NO_ENGINE
from gpuflow.formats.argo import (
    LOOPS,
    TYPES,
    BadDepends,
    Template,
    Waits,
    Workflow,
    names_of,
    template_of,
    waits_of,
)
from gpuflow.formats.documents import Library
from gpuflow.formats.nodes import as_list, as_plain, mapping, maps, number_of, text_of
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown, find_cycle
from gpuflow.kubernetes.pod_fields import BadPatch
from gpuflow.quantity import Quantity
from gpuflow.readers.argo.expressions import NotConstant, when_holds
from gpuflow.readers.argo.flow import (
    MOST_STEPS,
    Call,
    Child,
    Place,
    TooLarge,
    WalkResult,
    empty_child,
    excluding_tasks,
    keep_places,
    limit_of,
    may_and_must_run,
    parallel_tree,
    take_locks,
    ways_to_end,
    with_daemons,
)
from gpuflow.readers.argo.pods import ONLY_ENGINE, BadPod, BuiltPod, PodMaker, place_of
from gpuflow.readers.argo.removed_fields import removed_in_template
from gpuflow.readers.argo.resource_templates import Creation, read_resource_template
from gpuflow.readers.argo.variables import (
    BadLoop,
    Items,
    Lock,
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

DEEPEST: Final = 40
"""Templates inside templates. Argo itself gives up at 100."""
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
        self, workflow: Workflow, library: Library, scope: Scope, pods: PodMaker, options: Options, found: WalkResult
    ) -> None:
        self.workflow, self.library, self.globals, self.pods = workflow, library, scope, pods
        self.release = options.site.engine("argo").release
        self.params = options.params
        self.home = workflow.document.namespace or library.namespace
        self.most = number_of(workflow.tree.get("parallelism"))
        self.has_defaults = workflow.document.kind in ("WorkflowTemplate", "ClusterWorkflowTemplate")
        self.with_engine = options.engine != NO_ENGINE
        self.found = found
        self.created = Creation(found, library, options)
        self.calls = 0
        self.loops = 0
        self._trees: dict[int, Mapping[str, Any]] = {}
        self._sets: dict[int, tuple[PodSet, Mapping[str, Quantity]]] = {}
        self._kept: list[Any] = []

    # Calls

    def read_call(self, call: Mapping[str, Any], at: Call, name: str, place: Place) -> Child:
        """A step, task or hook, with its loop and its condition."""
        name = self.found.unique_name(name)
        try:
            items = items_of(call, at.scope)
        except BadLoop as refusal:
            self.found.refuse("GF714", f"{name}: {refusal}", place.where())
            return empty_child(name)
        if items is None:
            child = self._read_one_call(call, at, name, place)
            return empty_child(name) if child is None else self._note_locks(child, 1, at)
        return self._read_loop(call, items, at, name, place)

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
        self.found.touched |= frozenset() if unknown is None else unknown.loops
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
            return empty_child(name)
        if isinstance(items.count, OpenValue):
            self.found.touched |= items.count.loops
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
        body = self._read_one_call(call, inside, name, place)
        if body is None:
            return empty_child(name)
        if loop in self.found.touched and known is not None and known <= WRITTEN_OUT:
            spelled = list(items.variables())
            if len(spelled) == known:
                self.found.take_back(marks)
                self.found.touched.discard(loop)
                return self._read_items(call, spelled, at, name, place)
        copies: int | Unknown
        if isinstance(items.count, OpenValue):
            where = place.where(items.field)
            copies = Unknown(f"{items.field} ({where}): {items.count.because}")
        else:
            copies = items.count
        limits = [lock.limit for lock in body.locks if lock.limit is not None]
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
        locks: tuple[Lock, ...] = ()
        for variables, indexes in same.items():
            each = self.found.unique_name(f"{name}({indexes[0]})")
            inside = replace(
                at,
                scope=at.scope.with_variables(dict(variables)),
                copies=None if at.copies is None else at.copies * len(indexes),
            )
            child = self._read_one_call(call, inside, each, place)
            if child is None:
                continue
            if child.locks:
                locks = child.locks
            is_pods, is_daemon = is_pods and child.is_pods, is_daemon or child.is_daemon
            count = count + (child.count or 0) * len(indexes)
            nodes[each] = child.tree if len(indexes) == 1 else Loop(each, child.tree, len(indexes))
        if not nodes:
            return empty_child(name)
        limits = [lock.limit for lock in locks if lock.limit is not None]
        tree = parallel_tree(nodes)
        if limits and is_pods and min(limits) < count:
            tree = Dag(nodes, {}, min(limits))
        elif locks:
            self.found.at_most.append(f"{locks[0].name} may let fewer run at once than there are items of {name}")
        return self._note_locks(Child(tree, is_pods, count, is_daemon, locks), count, at)

    def read_beside(
        self, call: Mapping[str, Any], at: Call, name: str, place: Place, ahead: Sequence[str], template: Template
    ) -> Child:
        """A call that starts when these daemons of its own template run."""
        child = self.read_call(call, replace(at, daemons=(*at.daemons, *ahead)), name, place)
        if child.count != 0:
            step = name, place.where(), at.sure and name not in self.found.conditional
            what = f"parallelism of {self.workflow.document.kind} {self.workflow.document.name}"
            keep_places(self.found, self.most, (*at.daemons, *ahead), what, *step)
            own = number_of(self._with_defaults(template).get("parallelism"))
            keep_places(self.found, own, ahead, f"parallelism of template {template.name}", *step)
        return child

    def sure_daemons(self, child: Child, name: str, at: Call) -> Iterator[str]:
        """The daemons that a call surely leaves running, each as often as it has copies."""
        if child.is_daemon and at.sure and name not in self.found.conditional:
            yield from [name] * (child.count or 0)

    def _note_locks(self, child: Child, count: int | None, at: Call) -> Child:
        """The locks that a call takes, noted."""
        for lock in child.locks:
            self.found.locks.append((lock.name, lock.limit, count, at.copies))
        return replace(child, locks=())

    def _read_one_call(self, call: Mapping[str, Any], at: Call, name: str, place: Place) -> Child | None:
        """One copy of a call, with its hooks and its exit handler; None where its condition does not hold."""
        runs = self._condition(call, at.scope, name)
        if runs is False:
            return None
        at = at if runs else replace(at, sure=False)
        self.calls += 1
        if self.calls > MOST_CALLS:
            raise TooLarge
        template = self.resolve_template(call, at, name, place)
        if template is None:
            return empty_child(name)
        child = self.template(template, arguments_of(call, at.scope, self.library), at, name, place)
        return with_hooks(self, call, child, at, name, place)

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
            self.found.add_unknown(name, unknown, where)
        elif not found.is_given:
            because = f"templateRef names template {found.wanted} of {found.owner}, which was not given"
            self.found.add_unknown(name, OpenValue(because, hint=f"name the file of {found.owner} as well"), where)
        elif found.owner is not None:
            text = f"{name} calls template {found.wanted!r} of {found.owner}, which does not exist"
            self.found.refuse("GF712", text, where, f"templates there: {names_of(found.among)}")
        else:
            text = f"calls template {found.wanted!r}, which does not exist" if found.wanted else "calls no template"
            self.found.refuse("GF712", f"{name} {text}", where, f"templates of the document: {names_of(found.among)}")
        return None

    def template(self, template: Template, arguments: Mapping[str, Value], at: Call, name: str, place: Place) -> Child:
        mark = id(template.tree)
        if mark in at.stack:
            return self._read_recursion(template, at, name, place)
        if len(at.stack) >= DEEPEST:
            because = f"templates call each other more than {DEEPEST} deep"
            self.found.add_unknown(name, OpenValue(because), place.where())
            return empty_child(name)
        tree = self._with_defaults(template)
        kind = template.type
        if kind is None:
            text = f"template {template.name} is none, or more than one, of what a template can be"
            self.found.refuse("GF713", text, template.where(), f"give it exactly one of {', '.join(TYPES)}")
            return empty_child(name)
        scope = self.globals.with_variables(inputs_of(tree, arguments, self.globals, self.library))
        retry = tree.get("retryStrategy", self.workflow.tree.get("retryStrategy"))
        if isinstance(retry, Mapping):
            scope = scope.at(FIRST_ATTEMPT)
        tries = min(at.tries * self._tries(retry, scope), ENDLESS_RETRIES)
        sure = at.sure and not mapping(tree.get("memoize"))
        if mapping(tree.get("memoize")):
            cache = text_of(mapping(mapping(mapping(tree["memoize"]).get("cache")).get("configMap")).get("name"))
            why = f"results are kept in ConfigMap {cache}, which the first run makes"
            made = StoredObject("configmaps", "", 0, 1, why, owner=f"template {template.name}")
            if made.because not in [each.because for each in self.found.stored]:
                self.found.stored.append(made)
        inside = replace(at, workflow=template.workflow, scope=scope, stack=(*at.stack, mark), tries=tries, sure=sure)
        locks = tuple(locks_of(tree, scope, self.library, self.release, self.home))
        where = partial(self._template_place, template)
        take_locks(self.found, locks, inside, name, where("synchronization") if locks else place.where())
        inside = replace(inside, held=(*at.held, *((lock.name, name) for lock in locks)))
        self.found.findings += removed_in_template(template.name, tree, where, self.release)
        if kind in ("steps", "dag"):
            flow = read_steps if kind == "steps" else read_dag
            body = flow(self, template, tree, replace(inside, boundary=place_of(tree, scope)), name)
            return replace(body, locks=locks)
        child = self._leaf(template, tree, kind, inside, name)
        if tree.get("daemon") is True:
            self.found.daemons.append(name)
        return replace(child, locks=locks, is_daemon=tree.get("daemon") is True)

    def _read_recursion(self, template: Template, at: Call, name: str, place: Place) -> Child:
        """A template inside itself: any number of all that it runs, whatever it is given."""
        again = -id(template.tree)
        if again in at.stack:
            return empty_child(name)  # one of that number
        because = f"template {template.name} calls itself ({place.where()}): how often is decided in the run"
        inputs = maps(mapping(self._with_defaults(template).get("inputs")).get("parameters"))
        given = {str(each.get("name")): OpenValue(because) for each in inputs}
        around = tuple(each for each in at.stack if each != -again)
        inside = replace(at, stack=(*around, again), copies=None, sure=False)
        marks, refused, claims = self.found.marks(), set(self.found.findings), len(self.found.claims)
        body = self.template(template, given, inside, name, place)
        if not refused.issuperset(self.found.findings) or len(self.found.claims) > claims:
            self.found.take_back(marks)
            self.found.add_unknown(name, OpenValue(because), place.where())
            return empty_child(name)
        return Child(Loop(name, body.tree, Unknown(because)), is_pods=False)

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
                self.found.refuse(
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
            self.found.agent.append(at.is_exit)
            return empty_child(name)
        if kind == "suspend":
            return empty_child(name)
        own: Tree = Leaf(name, {}, 0)
        creates = kind == "resource" or gang_manifest(tree.get("container")) is not None
        if (kind not in ONLY_ENGINE and not creates) or self.with_engine:
            step = self._step(template, tree, kind, at, name)
            if step is None:
                return empty_child(name)
            own = Leaf(name, {}, 1)
        if not creates:
            return Child(own)
        return read_resource_template(self.created, template, tree, at, name, own)

    def _step(self, template: Template, tree: Mapping[str, Any], kind: str, at: Call, name: str) -> StepDemand | None:
        made = self._pod(template, tree, kind, at, at.scope)
        if made is None:
            return None
        field_path = ("podSpecPatch",) if "podSpecPatch" in tree else (kind, "resources")
        for part in made.missing:
            where = template.where(*field_path)
            self.found.add_unknown(name, part.value, where, part.resource, placement=part.resource is None)
        pods, overhead = self._pod_set(made)
        retry = mapping(tree.get("retryStrategy", self.workflow.tree.get("retryStrategy")))
        avoids = "nodeAntiAffinity" in mapping(retry.get("affinity"))
        step = StepDemand(
            name,
            (pods,),
            at.copies,
            where=template.where(),
            overhead=pods.amounts.usage if kind in ONLY_ENGINE else overhead,
            tries=at.tries,
            nodes_avoided=at.tries - 1 if avoids else 0,
            is_exit=at.is_exit,
            is_sure=at.sure,
        )
        if len(self.found.steps) >= MOST_STEPS:
            raise TooLarge
        self.found.steps.append(step)
        if at.daemons and at.sure:
            self.found.beside.append((*at.daemons, name))
        if at.scope.attempt and at.tries > 1:
            self._last_attempts(template, tree, kind, at, name, made)
        return step

    def _pod(self, template: Template, tree: Mapping[str, Any], kind: str, at: Call, scope: Scope) -> BuiltPod | None:
        """The pod of a template; None, with the reason noted, when none can be made."""
        try:
            return self.pods.make(tree, kind, scope, at.boundary, is_exit=at.on_exit)
        except BadPod as refusal:
            self.found.refuse("GF715", f"template {template.name}: {refusal}", template.where(*refusal.path))
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
                    self.found.add_unknown(name, unknown, where, part.resource, placement=part.resource is None)
            if last.bare != first.bare and last.missing == first.missing:
                self.found.later[f"{when} {name}"] = when, name, (self._pod_set(last)[0],)

    def _pod_set(self, made: BuiltPod) -> tuple[PodSet, Mapping[str, Quantity]]:
        """The pod as it counts here, and how much of it is the engine's."""
        found = self._sets.get(id(made))
        if found is None:
            bare = PodSet("main", 1, made.bare)
            found = bare, {}
            if self.with_engine and made.full != made.bare:
                full = PodSet("main", 1, made.full)
                found = full, usage_beyond(full.amounts.usage, bare.amounts.usage)
            self._sets[id(made)] = found
            self._kept.append(made)
        return found


def own_name(text: str | None, index: int) -> str:
    """The name of a step, without what would read as a path."""
    return re.sub(r"[^A-Za-z0-9_-]", "-", text)[:128] if text else f"step-{index}"


def read_steps(walk: Walk, template: Template, tree: Mapping[str, Any], at: Call, name: str) -> Child:
    """Groups of steps, one group after the other."""
    groups: dict[str, dict[str, Child]] = {}
    whens: dict[str, dict[str, object]] = {}
    place = Place(template.workflow, (*template.path, "steps"))
    ahead: list[str] = []
    for index, group in enumerate(as_list(tree.get("steps"))):
        if not isinstance(group, list):
            walk.found.refuse("GF713", f"template {template.name}: steps[{index}] is not a list", place.where(index))
            continue
        children: dict[str, Child] = {}
        conditions = whens[f"{name}[{index}]"] = {}
        for number, step in enumerate(group):
            spot = place.at(index, number)
            if not isinstance(step, Mapping):
                walk.found.refuse("GF713", f"template {template.name}: a step is not a map", spot.where())
                continue
            called = f"{name}.{own_name(text_of(step.get('name')), number)}"
            child = walk.read_beside(step, at, called, spot, ahead, template)
            key = called if called not in children else f"{called}-{number}"
            children[key] = child
            if not child.is_daemon:
                conditions[key] = step.get("when")
        groups[f"{name}[{index}]"] = children
        ahead += chain.from_iterable(walk.sure_daemons(child, key, at) for key, child in children.items())
    most = limit_of(number_of(tree.get("parallelism")), template, list(groups.values()), walk.found)
    nodes: dict[str, Tree] = {}
    edges: dict[str, list[str]] = {}
    before: str | None = None
    for now, children in groups.items():
        waiting = {key: most.tree(child) for key, child in children.items() if not child.is_daemon}
        nodes[now] = most.beside(waiting, whens[now]) if waiting else Leaf(now, {}, 0)
        daemons = {f"{now} {key}": most.tree(child) for key, child in children.items() if child.is_daemon}
        nodes |= daemons
        if before is not None:
            edges[before] = [now, *daemons]
        before = now
    return most.limit_all(nodes, edges, name, {})


def read_dag(walk: Walk, template: Template, tree: Mapping[str, Any], at: Call, name: str) -> Child:
    """Tasks, each after those that it waits for."""
    place = Place(template.workflow, (*template.path, "dag", "tasks"))
    dag = mapping(tree.get("dag"))
    tasks: dict[str, tuple[int, Mapping[str, Any]]] = {}
    for index, task in enumerate(as_list(dag.get("tasks"))):
        key = text_of(mapping(task).get("name"))
        if not isinstance(task, Mapping) or not key or key in tasks:
            text = f"template {template.name}: task {key or index} has no name, or that of another"
            walk.found.refuse("GF713", text, place.where(index))
            continue
        tasks[key] = index, task
    waits = _waits(walk, template, tasks, place)
    if waits is None:
        return empty_child(name)
    wanted = _targets(walk, template, dag, waits)
    children: dict[str, Child] = {}
    outcomes: dict[str, tuple[str, ...]] = {}
    asked = excluding_tasks(waits, wanted)
    ahead: dict[str, list[str]] = {}
    for key in wanted:
        index, task = tasks[key]
        called = f"{name}.{own_name(key, index)}"
        may, surely = may_and_must_run(waits[key], outcomes)
        inside = at if surely else replace(at, sure=False)
        known_before = len(walk.found.conditional)
        sure = () if "|" in str(task.get("depends")) else waits[key].names
        earlier = list(dict.fromkeys(chain.from_iterable(ahead[each] for each in sure)))
        child = children[key] = walk.read_beside(task, inside, called, place.at(index), earlier, template)
        ahead[key] = [*earlier, *walk.sure_daemons(child, called, inside)]
        is_skippable = len(walk.found.conditional) > known_before and called in walk.found.conditional
        if not may or key in asked:
            walk.found.conditional.setdefault(called, False)
        elif not surely:
            walk.found.inherited[called] = None
        outcomes[key] = ways_to_end(child, is_skippable=is_skippable, surely=surely)
    edges = {key: [each for each in waits[key].names if each in children] for key in children}
    edges = with_daemons(edges, {key for key, child in children.items() if child.is_daemon})
    after: dict[str, list[str]] = {}
    for key, before in edges.items():
        for each in before:
            after.setdefault(each, []).append(key)
    most = limit_of(number_of(tree.get("parallelism")), template, [children], walk.found)
    whens = {key: tasks[key][1].get("when") for key, child in children.items() if not child.is_daemon}
    return most.limit_all({key: most.tree(child) for key, child in children.items()}, after, name, whens)


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
            walk.found.refuse("GF716", f"template {template.name}, task {key}: {refusal}", place.where(index, field))
            return None
        lost = [each for each in found[key].names if each not in tasks]
        if lost:
            text = f"template {template.name}: task {key} waits for {', '.join(lost[:5])}, which does not exist"
            walk.found.refuse("GF716", text, place.where(index, field))
            return None
    cycle = find_cycle({key: list(waits.names) for key, waits in found.items()})
    if cycle:
        text = f"template {template.name}: tasks wait for each other: {' → '.join(cycle[:8])}"
        walk.found.refuse("GF716", text, place.where(tasks[cycle[0]][0]))
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
            walk.found.refuse("GF716", text, template.where("dag", "target"))
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


EXIT = "exit"
_END_STATUS = re.compile(r"""['"](Succeeded|Failed|Error)['"]""")


def with_hooks(walk: Walk, call: Mapping[str, Any], child: Child, at: Call, name: str, place: Place) -> Child:
    """A step with what its hooks run."""
    tree, hooks, has_handler = run_hooks(walk, call, at, place, child.tree, name)
    if has_handler and (child.is_daemon or any(call.get(each) for each in LOOPS)):
        # A daemon ends with its template, and the handlers of all copies need not live at once.
        walk.found.at_most.append(f"the exit handler of {name} may never run beside all that it could")
    counts = [each.count for each in (child, *hooks)]
    count = None if None in counts else sum(each or 0 for each in counts)
    return replace(child, tree=tree, is_pods=all(each.is_pods for each in (child, *hooks)), count=count)


def run_hooks(
    walk: Walk, call: Mapping[str, Any], at: Call, place: Place, main: Tree, name: str = ""
) -> tuple[Tree, list[Child], bool]:
    """The graph of a step with what its hooks run: hooks beside it, exit handlers after all that; also each of them,
    and whether there are handlers. Without a `name` it is the whole run."""
    beside: dict[str, Tree] = {}
    after: dict[str, Tree] = {}
    found: list[Child] = []
    for key, hook, spot, ends in hooks_of(walk, call, place):
        called = f"{name}{'.' if name else ''}{'onExit' if key == EXIT else f'hook-{key}'}"
        is_open = key != EXIT or bool(text_of(hook.get("expression")))
        if is_open:
            walk.found.conditional[called] = False
        inside = replace(
            at,
            sure=at.sure and not name and not is_open,
            is_exit=at.is_exit or (key == EXIT and not name),
            on_exit=at.on_exit or key == EXIT,
        )
        found.append(run_hook(walk, hook, inside, called, spot))
        (after if ends else beside)[called] = found[-1].tree
    tree = Dag({name or "main": main, **beside}) if beside else main
    if after:
        tree = Dag({"first": tree, "then": Dag(after)}, {"first": ["then"]})
    return tree, found, bool(after)


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
