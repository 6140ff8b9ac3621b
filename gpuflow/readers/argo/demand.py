"""Workflow, WorkflowTemplate, ClusterWorkflowTemplate and CronWorkflow as demands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuflow.core.errors import Finding
from gpuflow.demands.model import (
    ClaimDemand,
    Deadline,
    Demand,
    KeptPods,
    LaterAttempts,
    Overlap,
    PodSet,
    StepDemand,
    UnseenPart,
)
from gpuflow.demands.stored import HISTORY, StoredObject, kept_runs, resource_of
from gpuflow.engines import NO_ENGINE
from gpuflow.formats.argo import Workflow, names_of, workflow_of
from gpuflow.formats.documents import Document, Library
from gpuflow.formats.nodes import as_list, as_plain, mapping, maps_in, number_of, text_of
from gpuflow.graph import Dag, Leaf, Tree
from gpuflow.pod.engine_containers import agent_spec, engine_of, settings_of
from gpuflow.readers.argo.flow import (
    MOST_STEPS,
    Call,
    Place,
    TooLarge,
    WalkResult,
    daemons_at_once,
    lock_findings,
    may_keep_places,
    take_locks,
    with_ending_daemons,
)
from gpuflow.readers.argo.pods import PodMaker, wrong_in_claim
from gpuflow.readers.argo.removed_fields import Release, removed_in_workflow
from gpuflow.readers.argo.variables import Scope, arguments_of, bound_by, filled_tree, global_scope, locks_of
from gpuflow.readers.argo.walk import Walk, own_name, run_hooks
from gpuflow.readers.interface import Options, PassiveObject

NAME = "agent"


def agent_step(workflow: Workflow) -> StepDemand:
    """The agent as a step; all of it is the engine's."""
    labels = {
        "workflows.argoproj.io/workflow": workflow.document.name,
        "workflows.argoproj.io/completed": "false",
        "workflows.argoproj.io/component": "agent",
    }
    body: dict[str, Any] = {"restartPolicy": "OnFailure", "automountServiceAccountToken": False, **agent_spec()}
    for field in ("nodeSelector", "affinity", "tolerations", "schedulerName", "serviceAccountName"):
        value = as_plain(workflow.tree.get(field))
        if value:
            body[field] = value
    labels |= mapping(as_plain(mapping(workflow.tree.get("podMetadata")).get("labels")))
    step = StepDemand(
        NAME, (PodSet("main", 1, {"metadata": {"labels": labels}, "spec": body}),), where=workflow.where()
    )
    return replace(step, overhead=step.usage)


COLLECTING = ("OnPodCompletion", "OnPodSuccess")


def demand_of(document: Document, library: Library, options: Options) -> Demand | PassiveObject:
    """What a workflow asks of a cluster."""
    workflow = workflow_of(document, library)
    entry = workflow.text("entrypoint")
    if workflow.missing is not None:
        where = workflow.where("workflowTemplateRef")
        because = f"workflowTemplateRef names {workflow.missing}, which was not given"
        unseen = UnseenPart(document.name, because, where, hint=f"name the file of {workflow.missing} as well")
        return _demand(workflow, options, (), Dag({}), unseen=(unseen,))
    if entry is None and document.kind in ("WorkflowTemplate", "ClusterWorkflowTemplate"):
        return PassiveObject(document, "it has no entrypoint, so that its templates run only where others call them")
    template = workflow.templates.get(entry or "")
    if template is None:
        text = f"entrypoint {entry!r} is no template of the workflow" if entry else "the workflow has no entrypoint"
        hint = f"its templates: {names_of(workflow.templates)}"
        refusal = Finding("GF711", f"{document.kind} {document.name}: {text}", workflow.where("entrypoint"), hint)
        return _demand(workflow, options, (), Dag({}), refusals=(refusal,))
    scope, found = global_scope(workflow, library, options.params), WalkResult()
    for index, name in workflow.repeated_names:
        text = f"{document.kind} {document.name}: templates[{index}].name '{name}' is not unique"
        found.refuse("GF713", text, workflow.where("templates", index), "rename one of them")
    claims = {claim.volume: claim for claim in _claims(workflow, scope, found)}
    parts = engine_of(options.site, options.engine)
    walk = Walk(workflow, library, scope, PodMaker(workflow, parts, claims), options, found)
    locks = list(locks_of(workflow.tree, scope, library, walk.release, walk.home))
    take_locks(found, locks, Call(workflow, scope), document.name, workflow.where("synchronization"))
    at = Call(workflow, scope, held=tuple((lock.name, document.name) for lock in locks))
    if (trigger := document.trigger) is not None:
        written = [f"{trigger.title} writes {field} at each event" for field in trigger.writes]
        found.unseen += [UnseenPart(document.name, each, trigger.where) for each in written]
    try:
        place = Place(template.workflow, template.path)
        name = walk.found.unique_name(own_name(template.name, 0))
        arguments = arguments_of(workflow.tree, scope, library)
        main = walk.template(template, arguments, at, name, place).tree
        tree, _, _ = run_hooks(walk, workflow.tree, at, Place(workflow, workflow.path), main)
    except TooLarge:
        because = f"it has more than {MOST_STEPS:,} steps, or templates that call each other as often"
        unseen = UnseenPart(document.name, because, document.where())
        return _demand(workflow, options, (), Dag({}), unseen=(unseen,))
    return _make_demand(workflow, options, walk, tree, tuple(claims.values()))


def _make_demand(
    workflow: Workflow, options: Options, walk: Walk, tree: Tree, claims: tuple[ClaimDemand, ...]
) -> Demand:
    document, found = workflow.document, walk.found
    removed = removed_in_workflow(document, workflow.tree, workflow.where, walk.release)
    parallel = number_of(workflow.tree.get("parallelism"))
    refusals = [*found.findings, *removed]
    if parallel is not None and parallel < 1 and found.steps:
        text = f"{document.kind} {document.name}: parallelism is {parallel}, so that no pod ever starts"
        refusals.append(Finding("GF718", text, workflow.where("parallelism"), "give 1 or more, or leave it out"))
        parallel = None
    at_most = [*found.at_most, *bound_by(found.locks)]
    if found.daemons and len(found.daemons) < len(found.steps):
        daemons = daemons_at_once(tree, found.daemons)
        may_keep_places(found, daemons, parallel, f"parallelism of {document.kind} {document.name}", document.where())
    shared = list(lock_findings(found))
    if found.daemons and (parallel is not None or found.limited):
        # A daemon that has started keeps its place; the graph counts as if it could wait.
        at_most.append(f"{found.daemons[0]} is a daemon, which takes one of the places that parallelism leaves")
    if found.daemons and (outlived := with_ending_daemons(tree, frozenset(found.daemons))) != tree:
        tree, parallel = outlived, None  # Argo's limits do not count a daemon that it has told to end
        at_most.append(f"{found.daemons[0]} is a daemon, which may still be ending when the next step starts")
    if parallel is not None and found.created:
        # Argo counts the pods of its own steps, and none of what they create.
        at_most.append("parallelism of the workflow does not count the pods of what a step creates")
        parallel = None
    if parallel is not None:
        tree = (
            replace(tree, parallel=parallel)
            if isinstance(tree, Dag) and tree.parallel is None
            else Dag({"main": tree}, {}, parallel)
        )
    if found.escaped:
        at_most.append("objects that a step creates may live until the end of the run, and beyond")
        tree = Dag({"run": tree, **{f"created-{index}": each for index, each in enumerate(found.escaped)}})
    steps: tuple[StepDemand, ...] = tuple(found.steps)
    if found.agent and options.engine != NO_ENGINE:
        agent = agent_step(workflow)
        steps = (*steps, agent)
        leaf = Leaf(agent.name, {}, 1)
        # Its pod starts with the first step that it runs.
        if all(found.agent) and isinstance(tree, Dag) and tree.parallel is None and tree.edges == {"first": ["then"]}:
            tree = replace(tree, nodes={**tree.nodes, agent.name: leaf}, edges={"first": ["then", agent.name]})
        else:
            tree = Dag({"run": tree, agent.name: leaf})
    if not isinstance(tree, Dag):
        tree = Dag({"main": tree})
    conditional = dict(found.conditional)
    if len(conditional) > 1:
        conditional |= {name: False for name in found.inherited if name not in conditional}
    later: dict[str, dict[str, tuple[PodSet, ...]]] = {}
    for when, name, pods in found.later.values():
        later.setdefault(when, {})[name] = pods
    return _demand(
        workflow, options, steps, tree,
        claims=(*claims, *found.claims),
        conditional=conditional,
        later=tuple(LaterAttempts(when, pod_sets) for when, pod_sets in later.items()),
        refusals=tuple(dict.fromkeys(refusals)),
        unseen=tuple(dict.fromkeys(found.unseen)),
        created=(*found.stored, *(_AGENT if found.agent and options.engine != NO_ENGINE else ())),
        only_at_most=at_most[0] if at_most else None,
        waits=(*found.waits, *(each for each in shared if each.code == "GF832")),
        unsettled=tuple(each for each in shared if each.code == "GF833"),
        beside=tuple(found.beside),
        keeps_cap=not (found.daemons or found.created or found.escaped or found.agent),
    )  # fmt: skip


_AGENT = (StoredObject("workflowtasksets", "argoproj.io"),)
"""What Argo asks the agent in."""


def _stored_objects(workflow: Workflow) -> Iterator[StoredObject]:
    """The document itself, but for a Workflow, which is that of the run; the runs that a schedule keeps; its budget."""
    document = workflow.document
    owner = f"{document.kind} {document.name}"
    labels = mapping(as_plain(mapping(document.tree.get("metadata")).get("labels")))
    if document.kind in ("CronWorkflow", "WorkflowTemplate"):
        yield StoredObject(
            resource_of(document.kind), document.group, by_controller=False, per_run=False, labels=labels,
            owner=owner, where=document.where(),
        )  # fmt: skip
    if document.kind == "CronWorkflow":
        cron = mapping(document.tree.get("spec"))
        kept = kept_runs(*(number_of(cron.get(key)) for key in HISTORY))
        yield StoredObject("workflows", document.group, 0, 0, kept=kept, owner=owner, where=document.where("spec"))
    if mapping(workflow.tree.get("podDisruptionBudget")):
        yield StoredObject("poddisruptionbudgets", "policy", owner=owner, where=workflow.where("podDisruptionBudget"))


def _demand(
    workflow: Workflow,
    options: Options,
    steps: tuple[StepDemand, ...],
    tree: Tree,
    created: tuple[StoredObject, ...] = (),
    **more: Any,
) -> Demand:
    document = workflow.document
    argos = () if options.engine == NO_ENGINE else tuple(_stored_objects(workflow))
    keeps, collected = _kept_pods(workflow)
    parts = engine_of(options.site, options.engine)
    found = Demand(
        document.name,
        steps,
        tree,
        engine=options.engine,
        file=document.file,
        deadline=_deadline(workflow),
        overlap=_overlap(workflow, options.site.engine("argo").release),
        keeps_pods=keeps,
        pods_collected=collected,
        engine_settings=settings_of(parts, options.engine),
        kind=document.kind,
        stored=(*argos, *created),
        **more,
    )
    if mapping(workflow.tree.get("synchronization")) or mapping(workflow.tree.get("artifactGC")):
        return found  # its deadline counts from when it has the lock; pods that delete artifacts run afterwards
    cron = mapping(document.tree.get("spec"))
    late = number_of(cron.get("startingDeadlineSeconds")) or 0
    return found.without_overlap(_schedules(cron), text_of(cron.get("timezone")), late)


def _schedules(cron: Mapping[str, Any]) -> list[str]:
    return [text_of(each) or "" for each in (*as_list(cron.get("schedules")), cron.get("schedule")) if each]


def _claims(workflow: Workflow, scope: Scope, found: WalkResult) -> Iterator[ClaimDemand]:
    """The claims that are made for each run; what is not known of one, or wrong with it, is noted."""
    for index, written in maps_in(workflow.tree.get("volumeClaimTemplates")):
        path = ("volumeClaimTemplates", index)
        claim = filled_tree(as_plain(written), scope)
        name = text_of(mapping(claim.get("metadata")).get("name"))
        body = claim.get("spec")
        if not name or not isinstance(body, dict):
            continue
        wanted = mapping(mapping(body.get("resources")).get("requests")).get("storage")
        if isinstance(wanted, str) and "{{" in wanted:
            because = f"claim {name}: {scope.fill(wanted)[1][0].because}"
            found.unseen.append(UnseenPart(name, because, workflow.where(*path, "spec", "resources"), "storage"))
            body = {key: each for key, each in body.items() if key != "resources"}
        wrong = wrong_in_claim({"spec": body})
        if wrong is not None:
            found.findings.append(Finding("GF715", f"claim {name}: {wrong}", workflow.where(*path)))
            continue
        yield ClaimDemand(
            name,
            {"metadata": {"name": name}, "spec": body},
            name,
            workflow.where(*path),
            workflow.where(*path, "spec", "resources"),
            workflow.where(*path, "spec", "storageClassName"),
        )


def _deadline(workflow: Workflow) -> Deadline | None:
    seconds = number_of(workflow.tree.get("activeDeadlineSeconds"))
    if seconds is None or seconds <= 0:
        return None
    return Deadline(f"{seconds}s", seconds, workflow.where("activeDeadlineSeconds"))


def _kept_pods(workflow: Workflow) -> tuple[KeptPods, bool]:
    """Which finished pods stay, and whether the others go while the run goes on."""
    policy = mapping(workflow.tree.get("podGC"))
    collected = text_of(policy.get("strategy")) in COLLECTING
    if mapping(policy.get("labelSelector")):
        return "unknown", False
    return "all", collected


def _overlap(workflow: Workflow, release: Release | None) -> Overlap | None:
    """Runs of a schedule, or of a Sensor, that may be active at the same time."""
    document, trigger = workflow.document, workflow.document.trigger
    if trigger is not None:
        found = Overlap(f"{trigger.title} starts one at each event", trigger.where)
    elif document.kind == "CronWorkflow":
        cron = mapping(document.tree.get("spec"))
        policy = text_of(cron.get("concurrencyPolicy")) or "Allow"
        if policy != "Allow" or cron.get("suspend") is True:
            return None
        because = f'schedule "{", ".join(_schedules(cron))}", concurrencyPolicy: Allow'
        place = next((each for each in ("concurrencyPolicy", "schedules") if each in cron), "schedule")
        found = Overlap(because, document.where("spec", place))
    else:
        return None
    locks = locks_of(workflow.tree, global_scope(workflow, Library(), {}), Library(), release)
    return None if 1 in [lock.limit for lock in locks] else found
