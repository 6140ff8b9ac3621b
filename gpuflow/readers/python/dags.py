"""An Airflow DAG, as a real Airflow describes it, as a demand.

The graph of a DAG: which pods wait for which, as the trigger rules read the edges, and task groups with a limit.

The graph is flat. Where gpuflow's operator limits a group, that group is a graph of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from math import prod
from operator import and_, or_
from typing import Any

from gpuflow.core.errors import GpuflowError, Where
from gpuflow.demands import Demand
from gpuflow.demands.model import LAUNCHER, ClaimDemand, Deadline, Overlap, PodSet, StepDemand, UnseenPart
from gpuflow.formats.airflow import BY_ITEM, Dag, Level, Task
from gpuflow.formats.documents import READERS, Document, Library, kind_of
from gpuflow.graph import Dag as Graph
from gpuflow.graph import Leaf, Loop, Tree, Unknown, order, rename
from gpuflow.pod.engine_containers import engine_of, settings_of
from gpuflow.quantity import Quantity
from gpuflow.readers.gang_launcher import gang_manifest
from gpuflow.readers.interface import ForeignObject, Options, PassiveObject, with_parts

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
) -> tuple[Graph, bool]:
    """The graph, and whether every limit of a group is in it."""
    flat = Graph(
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
) -> Graph:
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
    return Graph(trees, between, parallel)


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


DEFAULT_POOL = "default_pool"
MOST_RUNS = 16
"""Airflow's `max_active_runs_per_dag`, unless it was changed."""


@dataclass(frozen=True)
class _Task:
    """One task as a part of the graph."""

    tree: Tree
    """With all its copies."""
    body: Tree | None = None
    """One copy, where all are alike."""
    steps: tuple[StepDemand, ...] = ()
    unseen: tuple[UnseenPart, ...] = ()
    conditional: Mapping[str, bool] | None = None


def demand_of(document: Document, library: Library, options: Options) -> Demand | PassiveObject:
    """What the pods of one run of a DAG ask for."""
    dag = document.dag
    assert dag is not None
    tasks = {each.task_id: each for each in dag.tasks}
    mixed = _mixed_groups(dag)
    made = {name: _task(document, dag, library, options, task, mixed) for name, task in tasks.items()}
    order = order_of(tasks)
    steps = tuple(step for each in made.values() for step in each.steps)
    conditional = {step: by_item for each in made.values() for step, by_item in (each.conditional or {}).items()}
    for name in order.conditional:
        conditional |= {step.name: False for step in made[name].steps if step.name not in conditional}
    pod_tasks = [task for name, task in tasks.items() if made[name].steps]
    ours = any(task.tries is not None for task in pod_tasks)
    are_pods = not mixed and all(_is_one_pod(task, made[task.task_id]) for task in pod_tasks)
    cap, loose = _cap(dag, pod_tasks, are_pods)
    nodes = {name: Node(made[name].tree, made[name].body or made[name].tree, task) for name, task in tasks.items()}
    graph, complete = graph_of_tasks(nodes, order.edges, cap)
    if not complete:
        loose.append("limits of task groups may let fewer run at once")
    reasons = [*loose, *order.loose, *_pools(pod_tasks)]
    return Demand(
        name=dag.dag_id,
        steps=steps,
        graph=graph,
        engine=options.engine,
        file=document.file,
        claims=tuple(_claims(document, dag)),
        overlap=_overlap(document, dag),
        deadline=_deadline(document, dag),
        keeps_pods="all" if any(task.keeps == "keep_pod" for task in pod_tasks) else "failed",
        conditional=conditional,
        places=lambda step: document.where_of_task(tasks.get(step.partition("/")[0])),
        kind="DAG",
        engine_settings=settings_of(engine_of(options.site, options.engine), options.engine),
        keeps_cap=are_pods or (ours and not mixed),
        cap_text=_cap_text(pod_tasks),
        unseen=tuple(part for each in made.values() for part in each.unseen),
        only_at_most=reasons[0] if reasons else None,
    )


def _task(document: Document, dag: Dag, library: Library, options: Options, task: Task, mixed: set[str]) -> _Task:
    name, where, kinds = task.task_id, document.where_of_task(task), task.made
    if task.makes is None:
        return _Task(Leaf(name, {}, 0))
    if task.makes == "unseen":
        return _Task(Leaf(name, {}, 0), unseen=(UnseenPart(name, str(task.because), where),))
    copies, by_item = _copies(dag, task)
    most = None if mixed & set(task.groups) or (task.tries is not None and task.groups) else task.at_once
    parts: dict[str, Tree] = {}
    bodies: list[Tree] = []
    steps: list[StepDemand] = []
    unseen: list[UnseenPart] = []
    conditional: dict[str, bool] = {}
    for number, kind in enumerate(kinds):
        own = name if len(kinds) == 1 else f"{name}/{number + 1}"
        # Copies that are alike are one step; where they differ, each kind was counted when it was built.
        times = copies if len(kinds) == 1 else kind.copies
        for place, manifest in enumerate(kind.objects):
            step = own if len(kind.objects) == 1 else f"{own}/{place + 1}"
            if task.makes == "pods":
                found = _pod(step, manifest, task, options, where)
                gang = gang_manifest(manifest["spec"]["containers"][0])
                if gang is not None:
                    found = _gang_task(found, _object(step, gang, document, library, options, where))
            else:
                found = _object(step, manifest, document, library, options, where)
            steps += [replace(each, copies=_times(each.copies, times)) for each in found.steps]
            unseen += found.unseen
            conditional |= found.conditional or {}
            bodies.append(found.tree)
            mapped = copies is not None
            parts[step] = Loop(step, found.tree, times, most) if mapped and times is not None else found.tree
    if by_item or task.when or task.only_after_failure:
        conditional |= {each.name: by_item or task.when == BY_ITEM for each in steps}
    tree = (
        next(iter(parts.values())) if len(parts) == 1 else Graph(parts, {}, most if len(steps) == len(kinds) else None)
    )
    return _Task(tree, bodies[0] if len(bodies) == 1 else None, tuple(steps), tuple(unseen), conditional)


def _pod(name: str, manifest: Mapping[str, Any], task: Task, options: Options, where: Where) -> _Task:
    pod, unseen = _without_templates(manifest, name, where)
    step = StepDemand(name, (PodSet("main", 1, pod),), where=where, tries=task.tries or 1 + task.retries)
    step = replace(step, fails_when_refused=task.is_stock)
    step = with_parts(step, options, has_outputs=task.has_outputs)
    return _Task(Leaf(name, {}, 1), steps=(step,), unseen=tuple(unseen))


def _gang_task(launcher: _Task, gang: _Task) -> _Task:
    """A gang together with its launcher pod, which lives as long."""
    (own,) = launcher.steps
    name = f"{own.name}/{LAUNCHER}"
    return _Task(
        Graph({"gang": gang.tree, LAUNCHER: Leaf(name, {}, 1)}),
        steps=(*gang.steps, replace(own, name=name)),
        unseen=(*gang.unseen, *launcher.unseen),
        conditional=gang.conditional,
    )


def _object(
    name: str, manifest: Mapping[str, Any], document: Document, library: Library, options: Options, where: Where
) -> _Task:
    """What an operator creates and Kubernetes makes pods of: the reader of its kind knows how many."""
    kind, group = kind_of(manifest)
    if (kind, group) not in READERS:
        return _Task(Leaf(name, {}, 0))
    inner = Document(manifest, document.file, kind, group, 0)
    try:
        demand = ForeignObject(inner, library).demand(replace(options, engine="none", params={}))
    except GpuflowError as refusal:
        text = f"its {kind} cannot be read: {refusal.findings[0].message}"
        return _Task(Leaf(name, {}, 0), unseen=(UnseenPart(name, text, where),))
    if isinstance(demand, PassiveObject):
        return _Task(Leaf(name, {}, 0))
    renamed = {step.name: name if len(demand.steps) == 1 else f"{name}/{step.name}" for step in demand.steps}
    return _Task(
        rename(demand.graph, lambda step: renamed.get(step, step)),
        steps=tuple(replace(step, name=renamed[step.name], where=where) for step in demand.steps),
        unseen=tuple(replace(part, step=renamed.get(part.step, name), where=where) for part in demand.unseen),
        conditional={renamed[step]: by_item for step, by_item in demand.conditional.items() if step in renamed},
    )


def _copies(dag: Dag, task: Task) -> tuple[int | Unknown | None, bool]:
    """How many copies a task has, with the mapped groups around it; None when it is not mapped. And whether each
    copy has a condition of its own."""
    counts = [dag.groups[each] for each in task.groups if each in dag.groups]
    counts += [task.copies] if task.copies else []
    if not counts:
        return None, False
    by_item = any(each.conditional == BY_ITEM for each in counts)
    known = [each.number for each in counts if each.number is not None]
    if len(known) < len(counts):
        return Unknown(str(next(each.because for each in counts if each.number is None))), by_item
    return prod(known), by_item


def _times(inner: int | None, outer: int | Unknown | None) -> int | None:
    if outer is None:
        return inner
    return None if inner is None or isinstance(outer, Unknown) else inner * outer


def _mixed_groups(dag: Dag) -> set[str]:
    """Mapped groups whose items are at different tasks at the same time, so that no limit can be counted. gpuflow's own
    operators are counted level by level."""
    pods = [task for task in dag.tasks if task.makes is not None and task.tries is None]
    return {group for group in dag.groups if sum(group in task.groups for task in pods) > 1}


def _is_one_pod(task: Task, made: _Task) -> bool:
    """Whether each copy of it is one pod, and active for as long as that lives."""
    return task.makes == "pods" and task.waits and len(made.steps) == len(task.made)


def _cap_text(pod_tasks: Collection[Task]) -> str | None:
    """What its file says so that no more than so many pods live at once; None where gpuflow compiled it."""
    if not all(task.is_stock for task in pod_tasks):
        return None
    if any(task.deferrable for task in pod_tasks):
        return "a pool of {} slots that counts deferred tasks"
    if len(pod_tasks) == 1:
        return "max_active_tis_per_dagrun={}"
    return "max_active_tasks={}"


def _without_templates(manifest: Mapping[str, Any], name: str, where: Where) -> tuple[dict[str, Any], list[UnseenPart]]:
    """The pod, without amounts that are no quantities: templates, which only the run fills in."""
    unseen: list[UnseenPart] = []

    def amounts(given: object, field: str) -> dict[str, Any]:
        found = {}
        for key, value in given.items() if isinstance(given, Mapping) else ():
            try:
                Quantity(str(value))
                found[key] = value
            except ValueError:
                text = f'{field}.{key} is "{value}", which only the run fills in'
                unseen.append(UnseenPart(name, text, where, resource=str(key)))
        return found

    spec = dict(manifest.get("spec") or {})
    for part in ("initContainers", "containers"):
        if not isinstance(spec.get(part), list):
            continue
        containers = []
        for each in spec[part]:
            given = each.get("resources")
            if isinstance(given, Mapping):
                kinds = {kind: amounts(given.get(kind), kind) for kind in ("requests", "limits") if given.get(kind)}
                each = {**each, "resources": {**given, **kinds}}
            containers.append(each)
        spec[part] = containers
    return {"metadata": dict(manifest.get("metadata") or {}), "spec": spec}, unseen


def _cap(dag: Dag, pod_tasks: Collection[Task], are_pods: bool) -> tuple[int | None, list[str]]:
    """How many pods of a run there are at most, and why fewer may be let in than can be counted here."""
    loose = []
    caps = [_whole_run(task) for task in pod_tasks]
    own = min((each for each in caps if each is not None), default=None) if None not in caps else None
    if any(task.at_once and set(dag.groups) & set(task.groups) for task in pod_tasks):
        loose.append("max_active_tis_per_dag of tasks in mapped groups may let fewer run at once")
    most = dag.max_active_tasks
    if most is not None:
        if are_pods and not any(task.deferrable for task in pod_tasks):
            own = most if own is None else min(own, most)
        elif own is None:
            loose.append(f"max_active_tasks={most} may let fewer run at once; it counts tasks, and no deferred ones")
    return own, loose


def _whole_run(task: Task) -> int | None:
    """The limit of gpuflow's own operator on the pods of the whole run."""
    limits = [each for each in task.limits if not each.group and not each.per and not each.items]
    return min((each.most for each in limits), default=None)


def _pools(pod_tasks: Iterable[Task]) -> Iterator[str]:
    named = sorted({task.pool for task in pod_tasks if task.pool != DEFAULT_POOL})
    if named:
        yield f"pool {named[0]} may let fewer run at once; its size is not in the file"


def _claims(document: Document, dag: Dag) -> Iterator[ClaimDemand]:
    """The volumes that gpuflow's own operator claims for a run."""
    for task in dag.tasks:
        claim = task.claim
        if claim is None:
            continue
        spec: dict[str, Any] = {"accessModes": [claim.access], "resources": {"requests": {"storage": claim.size}}}
        if claim.storage_class is not None:
            spec["storageClassName"] = claim.storage_class
        name, where = claim.name, document.where_of_task(task)
        yield ClaimDemand(name, {"metadata": {"name": name}, "spec": spec}, name, where, where, where)


def _overlap(document: Document, dag: Dag) -> Overlap | None:
    """Runs that start while another is active."""
    most = dag.max_active_runs
    if dag.schedule is None or most == 1:
        return None
    said = f"schedule {dag.schedule}, " + ("no max_active_runs" if most is None else f"max_active_runs={most}")
    return Overlap(said, document.where_of_task(), most or MOST_RUNS)


def _deadline(document: Document, dag: Dag) -> Deadline | None:
    if dag.timeout is None:
        return None
    return Deadline(f"dagrun_timeout of {dag.timeout}s", dag.timeout, document.where_of_task())
