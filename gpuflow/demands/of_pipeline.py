"""The demand of a pipeline on a site, with what an engine adds to it and the limits that it keeps.

Options of an engine that the pipeline sets change how many runs there are and which pods stay. Besides the pods of its
steps a run leaves others in the namespace: Kubeflow runs a driver pod for every task and for every group of tasks.
Which groups there are follows from the compiled pipeline (`gpuflow.targets.kubeflow`), and which drivers a group has
from KFP 2.17's compiler, backend/src/v2/compiler/argocompiler/dag.go:

- one for the run (`DAG`, the entry point);
- one for each container, in each of its copies (`task`, `containerDriverTask`);
- one for each sub-pipeline, condition and exit handler (`task`, `dagDriverTask`);
- one for each loop, and one for each of its items (`iterationItemTask`);
- one to create a claim and one to delete it, without an executor (`dummyImages`).

The pipeline behind a demand, for hints and warnings that only a document of ours allows.

Warnings are about policies that cannot work as written (a last save that does not fit, a checkpoint that comes too
late, no budget) and about fan-outs over parameters, which are counted with the parameter's default. Only what is
certain from the documents is reported. The same finding about many steps is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from gpuflow.catalog import Model, Offer
from gpuflow.catalog.catalog import model as find_model
from gpuflow.catalog.kubernetes_names import PRODUCT_KEY, profile_of_resource, read_product_label
from gpuflow.core.errors import Finding, GpuflowError, Problem, Rule, Where, list_names, rule, warning
from gpuflow.demands.gang_scheduling import volcano_queue_unseen
from gpuflow.demands.model import (
    LAUNCHER,
    ClaimDemand,
    Deadline,
    Demand,
    DeviceRequest,
    DriverPods,
    KeptPods,
    LaterAttempts,
    Overlap,
    PodSet,
    StepDemand,
    UnseenPart,
    usage_beyond,
)
from gpuflow.demands.stored import StoredObject, kept_runs, kind_of_key
from gpuflow.engines import NO_ENGINE, EngineFacts, facts_of, load_engine
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown, find_either, reachable
from gpuflow.kubernetes.labels import LEADER, WORKERS
from gpuflow.plan import Plan, PlannedStep, Restarts, plan_of
from gpuflow.pod import Engine as PodEngine
from gpuflow.pod.build import leader_pod, made_pod, pod_of
from gpuflow.pod.engine_containers import driver_pod, engine_of, settings_of, with_engine
from gpuflow.pod.gang import as_queued
from gpuflow.pod.gang_kinds import SPELLINGS
from gpuflow.pod.later_attempts import attempts, changes_of, falls_back
from gpuflow.pod.launcher import launcher_for
from gpuflow.pod.notes import pod_notes
from gpuflow.pod.supervision import GRACE_MARGIN, supervisor_grace
from gpuflow.pod.volumes import run_claim_spec, run_claim_volume
from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs.later_attempts import Changes, EarlierAttempts
from gpuflow.site.model import Engine, Site, exposed_in_site, without_site_silenced
from gpuflow.spec.duration import Duration
from gpuflow.spec.engine_options import PipelineEngines, StepEngines
from gpuflow.spec.engine_options.base import EngineOptions
from gpuflow.spec.expression import asks_item, exclude, references
from gpuflow.spec.fan_out import Range
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Gang
from gpuflow.spec.resources import Gpu, Mig
from gpuflow.spec.rules.remarks import remarks_on, without_silenced
from gpuflow.spec.rules.volume_room import put_into_claims
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, ParamRef


@rule("GF529", severity="note")
def default_counts(plan: Plan) -> Iterator[Problem]:
    """A note for each parameter of the pipeline whose default decides how many copies of steps are counted."""
    found: dict[str, list[PlannedStep]] = {}
    for each in plan.steps:
        for source in (each.step.for_each or {}).values():
            if each.parent is None and isinstance(source, ParamRef) and not isinstance(each.copies, Unknown):
                found.setdefault(source.name, []).append(each)
    for name, steps in found.items():
        param = plan.pipeline.params[name]
        default, whose = param.default, "as --param says" if param.is_given else "its default"
        items = len(default) if isinstance(default, list) else 0
        verb = "runs" if len(steps) == 1 else "run"
        yield Problem(
            f'{list_names([each.name for each in steps])} {verb} over the parameter "{name}": counted with '
            f"{items} item{'' if items == 1 else 's'}, {whose}",
            steps[0].where("for_each"),
            f"--param {name}=[…] checks the list of another run; parallel bounds the fan-out whatever the list is",
        )


@rule("GF541", "GF544", "GF545")
def checkpoints(plan: Plan) -> Iterator[Finding]:
    """A last save that does not fit, checkpoints that come too late, and none where one is needed; step by step."""
    for each in _main_steps(plan):
        yield from _last_save(each, plan.site)
        yield from _late_checkpoints(each, plan.site)
        yield from _lifetime(each, plan.site)


def _main_steps(plan: Plan) -> list[PlannedStep]:
    return [each for each in plan.containers if each.section == "steps"]


def _is_on_spot(step: Step) -> bool:
    return step.spot is not None and step.spot.mode != "never"


def _last_save(placed: PlannedStep, site: Site) -> Iterator[Finding]:
    step, name = placed.step, placed.name
    needed = step.checkpoint.grace if step.checkpoint is not None else None
    if needed is None:
        return
    left = supervisor_grace(step)
    if left is not None and left < needed:
        yield warning(
            "GF541",
            f'step "{name}" needs {needed} for a last save, and its pod is killed after {step.termination_grace}: '
            f"with the supervisor's own end that leaves {left}",
            placed.where("checkpoint"),
            f"raise termination_grace to {Duration(needed.seconds + GRACE_MARGIN)}, or leave it out",
        )
    if _is_on_spot(step) and site.spot.notice is not None and site.spot.notice < needed:
        yield warning(
            "GF541",
            f'step "{name}" needs {needed} for a last save, and a spot node of this site is gone after '
            f"{site.spot.notice}",
            placed.where("checkpoint"),
            "save more often (every), so that little is lost without a last checkpoint; or do not run on spot",
        )


def _late_checkpoints(placed: PlannedStep, site: Site) -> Iterator[Finding]:
    """Checkpoints so far apart that most attempts end before the first."""
    step = placed.step
    if step.checkpoint is None or step.checkpoint.every == "auto":
        return
    every = Duration(step.checkpoint.every)
    ends = []
    if step.timeout is not None and step.timeout <= every:
        ends.append(f"an attempt is ended after {step.timeout} (timeout)")
    lifetime = site.spot.mean_time_between
    if _is_on_spot(step) and lifetime is not None and lifetime <= every:
        ends.append(f"a spot node of this site lives {lifetime} on average")
    if ends:
        text = f'step "{placed.name}" keeps a checkpoint every {every}, and {" and ".join(ends)}'
        yield warning("GF544", text, placed.where("checkpoint"), "save more often, or write every: auto")


def _lifetime(placed: PlannedStep, site: Site) -> Iterator[Finding]:
    step, lifetime = placed.step, site.spot.mean_time_between
    if not _is_on_spot(step) or step.checkpoint is not None or lifetime is None or step.timeout is None:
        return
    if step.timeout > lifetime:
        yield warning(
            "GF545",
            f'step "{placed.name}" may take {step.timeout} and has no checkpoint, and a spot node of this site lives '
            f"{lifetime} on average",
            placed.where("spot"),
            "add a checkpoint, or spot: never; without one it starts from nothing after each interruption",
        )


@rule("GF542", "GF543")
def missing_budgets(plan: Plan) -> Iterator[Finding]:
    """Steps that can be interrupted by no fault of their own, and that nothing starts again."""
    site = plan.site
    bare = [each for each in _main_steps(plan) if not (each.step.retry and each.step.retry.after_interruptions)]
    spot = [each for each in bare if _is_on_spot(each.step)]
    if spot:
        text = f"{list_names([each.name for each in spot])}: on spot nodes without a budget for interruptions; when a "
        text += "node goes, nothing starts the step again"
        yield warning("GF543", text, spot[0].where(), "add retry: {interruptions: N}")
    queued = [each for each in bare if each.step.queue or site.queue]
    if queued:
        queues = ", ".join(sorted({str(each.step.queue or site.queue) for each in queued}))
        text = f"{list_names([each.name for each in queued])}: in queue {queues} without a budget for interruptions; "
        text += "Kueue preempts by deleting the pod, and nothing starts the step again"
        yield Finding("GF542", text, queued[0].where(), "add retry: {interruptions: N}", severity="note")


RULES: Final[tuple[Rule[Plan], ...]] = (checkpoints, missing_budgets, default_counts)

GIB: Final = 2**30
NO_EFFECT: Final = frozenset(
    ("args", "cache", "command", "description", "engines", "env", "inputs", "needs", "outputs", "probes", "script",
     "timeout", "when")
)  # fmt: skip
"""What a step says that has no say in where its pods go."""


@dataclass(frozen=True)
class PlannedPipeline:
    """A plan, with what an engine adds to its pods. It is what the checker knows as `OwnPipeline`."""

    plan: Plan
    parts: Engine
    rebuild: Callable[[Demand, PlannedPipeline, Plan], Demand]
    """A demand as it would be by another plan of the same steps."""
    refused: frozenset[str] = frozenset()
    """The messages of all that the engine refuses."""

    def warnings(self) -> Iterator[Finding]:
        """Policies that cannot work as written, secrets in plain text, and text that looks like a template."""
        yield from (finding for each in RULES for finding in each(self.plan))
        yield from pod_notes(self.plan)
        yield from remarks_on(self.plan.pipeline)
        yield from exposed_in_site(self.plan.site)

    def strict_findings(self, definitions: Iterable[Mapping[str, Any]]) -> tuple[Finding, ...]:
        """None: its fields were judged when it was loaded."""
        return ()

    def unsilenced_findings(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that neither the file nor the site silences."""
        return without_site_silenced(self.plan.site, without_silenced(self.plan.pipeline, findings))

    def devices(self, step: str) -> DeviceRequest | None:
        """The GPUs or slices that a step asks for; None when it asks for none."""
        if step not in self.plan.by_name:
            return None  # a pod of the engine's own
        asking = self.plan.by_name[step].step
        asked = asking.gpu or asking.mig
        if asked is None:
            return None
        told = {name: getattr(asking, name) for name in sorted(type(asking).model_fields) if name not in NO_EFFECT}
        return DeviceRequest(_device_words(asked), asked.count, asking.mig is not None, _needs_gib(asking), repr(told))

    def offers(self, labels: Mapping[str, str], allocatable: Mapping[str, int]) -> Iterator[Offer]:
        """The GPUs and slices that a node has, in the site's words."""
        site = self.plan.site
        label = read_product_label(labels.get(PRODUCT_KEY, ""))
        whole = labels.get(site.mig.profile_label or "") or label.profile
        for owner in _site_models(labels, site) or label.models:
            profiles = {profile.name: profile for profile in owner.profiles}
            for resource, amount in allocatable.items():
                cut = profile_of_resource(resource)
                if amount > 0 and cut in profiles:
                    yield Offer(owner, profiles[cut])
            serves = allocatable.get(site.gpu.resource, 0) > 0 and not label.shared and not label.invalid
            if serves and (whole is None or whole in profiles):
                yield Offer(owner, None if whole is None else profiles[whole])

    def pod_with(self, step: str, offer: Offer | None, count: int) -> Mapping[str, Any] | None:
        """The step's pod if it asked for so many of these, or of what it asks for now; None: the site has no such."""
        planned = self.plan.by_name[step]
        asked = planned.step.gpu or planned.step.mig if offer is None else _gpu_request(offer)
        assert asked is not None  # only steps that ask for devices are asked about
        wished = asked.model_copy(update={"count": count})
        gpu, mig = (wished, None) if isinstance(wished, Gpu) else (None, wished)
        try:
            pod = pod_of(planned.with_fields(gpu=gpu, mig=mig))
        except GpuflowError:
            return None
        return with_engine(pod, self.parts, has_outputs=bool(planned.step.outputs))

    def with_cap(self, demand: Demand, parallel: int) -> Demand:
        """The demand if the pipeline said `parallel`."""
        return self.rebuild(demand, self, self.plan.with_parallel(parallel))

    def with_memory_max(self, demand: Demand, steps: Collection[str], most: Quantity) -> Demand | None:
        """The demand if `retry.more_memory.max` of these steps were so much; None inside sub-pipelines."""
        pipeline = self.plan.pipeline
        for name in steps:
            planned = self.plan.by_name[name]
            retry = planned.step.retry
            if retry is None or retry.more_memory is None or planned.pipeline is not self.plan.pipeline:
                return None
            policy = retry.model_copy(update={"more_memory": retry.more_memory.model_copy(update={"max": most})})
            own = getattr(pipeline, planned.section)
            changed = {**own, planned.own_name: own[planned.own_name].model_copy(update={"retry": policy})}
            pipeline = pipeline.model_copy(update={planned.section: changed})
        return self.rebuild(demand, self, plan_of(pipeline, self.plan.site))


def _gpu_request(offer: Offer) -> Gpu | Mig:
    if offer.profile is None:
        return Gpu(model=offer.model.id)
    return Mig(profile=offer.profile.name, model=offer.model.id)


def _site_models(labels: Mapping[str, str], site: Site) -> tuple[Model, ...]:
    """The models that the site itself recognizes the node by."""
    return tuple(
        find_model(name)
        for name, nodes in site.gpu.models.items()
        if nodes.labels and all(labels.get(key) in values for key, values in nodes.labels.items())
    )


def _needs_gib(step: Step) -> float | None:
    """The GPU memory that the step's wish promises it; None when nobody knows."""
    if step.mig is not None:
        owner = find_model(step.mig.model)
        return next((profile.usable_gib for profile in owner.profiles if profile.name == step.mig.profile), None)
    if step.gpu is None:
        return None
    if step.gpu.is_any:
        return 0
    if step.gpu.memory is not None:
        return step.gpu.memory.value / GIB
    names = (step.gpu.model,) if step.gpu.model is not None else step.gpu.any_of or ()
    sizes = [find_model(name).usable_gib for name in names]
    return min((size for size in sizes if size is not None), default=None)


def _device_words(asked: Gpu | Mig) -> str:
    if isinstance(asked, Mig):
        return f"{asked.profile} of {asked.model}"
    return asked.description if asked.memory is None else f"the {asked.description.replace('GPU', 'GPUs')}"


def most_runs(pipeline: Pipeline, facts: EngineFacts) -> int | None:
    """The most runs that are active at once, where they may overlap; None: no bound."""
    words = _engine_options(pipeline.engines, facts.name)
    said = None if words is None else words.most_runs()
    # Airflow gets max_active_runs=1 with a timetable, as it does with a schedule that says nothing.
    return said or (1 if has_timetable(pipeline, facts.name) else facts.most_runs)


def has_timetable(pipeline: Pipeline, engine: str) -> bool:
    """Whether runs start by a timetable of the user's own."""
    return bool(getattr(_engine_options(pipeline.engines, engine), "timetable", None))


def kept_pods(plan: Plan, facts: EngineFacts) -> KeptPods:
    """Which finished pods stay: the engine's own words may keep those that succeeded too."""
    said = [plan.pipeline.engines, *(each.step.engines for each in plan.containers)]
    found = [words for words in (_engine_options(engines, facts.name) for engines in said) if words is not None]
    return "all" if any(words.keeps_pods() for words in found) else facts.keeps_pods


def pods_collected(pipeline: Pipeline, parts: Engine, engine: str) -> bool:
    """Whether the engine deletes pods while the run goes on."""
    policy = getattr(_engine_options(pipeline.engines, engine), "pod_gc", None) or parts.pod_gc
    return policy is not None and policy.strategy in ("OnPodSuccess", "OnPodCompletion")


def _engine_options(said: PipelineEngines | StepEngines | None, engine: str) -> EngineOptions | None:
    return getattr(said, engine, None)


def driver_pods(plan: Plan) -> DriverPods:
    """The drivers that Kubeflow runs for a pipeline."""
    pipeline = plan.pipeline
    groups = 1  # the run itself
    if pipeline.exit or pipeline.claims:
        groups += 1  # the steps stand in an exit handler
    if pipeline.claims:
        groups += 1 + 2 * len(pipeline.claims)  # all of that in a group, claims created before it and deleted after
    if pipeline.claims or len(pipeline.exit) > 1 or any(each.step.when for each in plan.steps if _is_exit(each)):
        groups += 1  # exit steps, and what deletes claims, in a group of their own
    return DriverPods(groups, groups) + _drivers_inside(plan, sure_steps(plan), "")


def sure_steps(plan: Plan) -> frozenset[str]:
    """The steps that every run starts which succeeds: no condition, and no result from a cache, can leave them out."""
    open_ended = {
        each.name
        for each in plan.steps
        if each.step.when is not None or each.step.on in ("success", "failure") or each.step.cache
    }
    return frozenset(each.name for each in plan.steps) - _with_followers(plan, open_ended)


def _with_followers(plan: Plan, names: set[str]) -> set[str]:
    """These steps, those that wait for one of them, and everything inside them."""
    after: dict[str, list[str]] = {}
    for each in plan.steps:
        for before in (*each.needs, *(() if each.parent is None else (each.parent.name,))):
            after.setdefault(before, []).append(each.name)
    return names | reachable(after, names)


def _is_exit(each: PlannedStep) -> bool:
    return each.section == "exit" and each.parent is None


def _drivers_inside(plan: Plan, sure: frozenset[str], within: str) -> DriverPods:
    """The drivers of one pipeline's steps."""
    found = DriverPods()
    for each in plan.steps_by_parent.get(within, ()):
        own = _drivers_of(plan, sure, each)
        found += own if each.name in sure else replace(own, at_least=0)
    return found


def _drivers_of(plan: Plan, sure: frozenset[str], each: PlannedStep) -> DriverPods:
    """The drivers of a step with its loops and its condition."""
    found = DriverPods() if each.kind == "approval" else DriverPods(1, 1)
    if each.kind == "pipeline":
        found += _drivers_inside(plan, sure, each.name)
    when, one = each.step.when, DriverPods(1, 1)
    if when is not None and asks_item(when):
        found += one
    if each.step.for_each is not None:
        found = _drivers_of_loop(each, found)
    return found + one if when is not None and not asks_item(when) else found


def _drivers_of_loop(each: PlannedStep, body: DriverPods) -> DriverPods:
    """Lists that are written out are one loop together; others nest, each in a loop of its own."""
    if isinstance(each.copies, Unknown):
        return DriverPods(None, 1, body.because or each.copies.because)
    copies, sources = each.copies, list((each.step.for_each or {}).values())
    nested = 1 if all(isinstance(source, Range | tuple) for source in sources) else len(sources)
    # Of nested loops only the number of all copies is known here: no loop has more drivers than twice that.
    drivers = 1 + copies if nested == 1 else 2 * nested * max(copies, 1)
    return DriverPods(drivers, 1 + copies) + body.times(copies)


def demand_of(pipeline: Pipeline, site: Site, engine: str = NO_ENGINE) -> Demand:
    """The demand of a pipeline on a site, with what the engine adds to it and the limits it keeps."""
    return demand_of_plan(plan_of(pipeline, site), engine)


def demand_of_plan(plan: Plan, engine: str = NO_ENGINE) -> Demand:
    """The same, of a plan."""
    plan = plan if engine == NO_ENGINE else load_engine(engine).with_alerts(plan)
    pipeline, facts, parts = plan.pipeline, facts_of(engine), engine_of(plan.site, engine)
    restarts: Restarts = "by cause" if engine == NO_ENGINE else load_engine(engine).restarts_at(plan.site)
    before = driver_pod(parts, facts)
    driver = None if before is None else PodSet("driver", 1, before)
    sure = sure_steps(plan)
    steps: list[StepDemand] = []
    unmade: list[Finding] = []
    for planned in plan.under(restarts).containers:
        try:
            made = _step(planned, parts, driver, facts)
            steps.append(replace(made, is_sure=planned.name in sure))
        except GpuflowError as refusal:
            unmade += refusal.findings
    if unmade:
        raise GpuflowError(dict.fromkeys((*unmade, *_refusals(plan, engine))))
    alert = _alert(plan, engine)
    refusals = tuple(_refusals(plan, engine))
    own_pipeline = PlannedPipeline(plan, parts, _rebuild, frozenset(finding.message for finding in refusals))
    found = Demand(
        name=pipeline.name,
        steps=(*steps, *alert),
        graph=_graph(plan, {step.name: step.pods for step in steps}, facts.keeps_parallel, alert),
        engine=engine,
        file=pipeline.source.file,
        claims=tuple(_claims(pipeline)),
        deadline=_deadline(pipeline),
        overlap=_overlap(pipeline, facts),
        driver=driver,
        driver_pods=None if driver is None else driver_pods(plan),
        keeps_pods=kept_pods(plan, facts),
        conditional=dict(_conditional_steps(plan)) | {each.name: False for each in alert},
        later=tuple(_later_attempts(plan, tuple(steps))),
        refusals=refusals,
        engine_settings=settings_of(parts, engine),
        pods_collected=pods_collected(pipeline, parts, engine),
        unseen=(*_other_queues(plan), *_hooks(plan, engine)),
        stored=tuple(_stored_objects(pipeline, facts)),
        places=plan.where if not alert else partial(_place, plan),
        source=own_pipeline,
        pipeline=own_pipeline,
    )
    schedule, late = pipeline.schedule, parts.starting_deadline
    if schedule is None or not facts.drops_late_runs:
        return found
    return found.without_overlap([schedule.cron], schedule.timezone, 0 if late is None else late.seconds)


def _stored_objects(pipeline: Pipeline, facts: EngineFacts) -> Iterator[StoredObject]:
    """The artifact itself, and the runs of a schedule that are kept."""
    if facts.artifacts is None:
        return
    (template, schedule, run), owner = map(kind_of_key, facts.artifacts), f"pipeline {pipeline.name}"
    if pipeline.schedule is None:
        yield StoredObject(*template, 0, 1, "compile --as may write another kind", owner=owner)
        return
    where, words = pipeline.where("schedule"), getattr(_engine_options(pipeline.engines, facts.name), "history", None)
    yield StoredObject(*schedule, by_controller=False, per_run=False, owner=owner, where=where)
    kept = kept_runs(*((None, None) if words is None else (words.successful, words.failed)))
    yield StoredObject(*run, 0, 0, kept=kept, owner=owner, where=where)


def _rebuild(demand: Demand, before: PlannedPipeline, after: Plan) -> Demand:
    """A demand as it would be by another plan with the same first attempts: graph, later attempts, refusals."""
    own = [step for step in demand.steps if step.name in after.by_name]
    alert = [step for step in demand.steps if step.name not in after.by_name]
    pods = {step.name: step.pods for step in own}
    new = [finding for finding in _refusals(after, demand.engine) if finding.message not in before.refused]
    return replace(
        demand,
        graph=_graph(after, pods, facts_of(demand.engine).keeps_parallel, alert),
        later=tuple(_later_attempts(after, own)) if demand.later else (),
        refusals=(*demand.refusals, *new),
    )


def _step(planned: PlannedStep, parts: Engine, driver: PodSet | None, facts: EngineFacts) -> StepDemand:
    gang, retry, site = planned.step.gang, planned.step.retry, planned.site
    engine = PodEngine(requests_disk=facts.requests_disk)
    bare, leader = pod_of(planned, None, engine), leader_pod(planned, None, engine)
    first = None if leader is None else leader.manifest

    def whole(pod: Mapping[str, Any]) -> Mapping[str, Any]:
        # The ranks of a gang are no pods of the engine's: it runs the pod that looks after them.
        outputs = bool(planned.step.outputs)
        made = as_queued(pod, site.gangs.made_as) if gang is not None else with_engine(pod, parts, has_outputs=outputs)
        if parts.service_account is None:
            return made
        # A run has one account, for the steps that name none.
        return {**made, "spec": {"serviceAccountName": parts.service_account, **made["spec"]}}

    pod = whole(bare)
    avoided = 0
    if retry is not None and retry.other_node:
        # Whatever the engine does: of a gang the node of one failed rank is avoided after each failure.
        by_attempt = facts.avoids_nodes_of == "attempts" and gang is None
        avoided = attempts(retry) if by_attempt else retry.after_failures
    demand = StepDemand(
        planned.name,
        _pod_sets(gang, pod, None if first is None else whole(first)),
        planned.copies_in_run,
        tries=1 + planned.supervision.pods_again,
        nodes_avoided=avoided,
        is_exit=planned.section == "exit",
        waits_at_most=None if planned.step.queue_timeout is None else str(planned.step.queue_timeout),
        put_into_claims=put_into_claims(planned.pipeline, planned.step),
    )
    if gang is not None and facts.name != NO_ENGINE and facts.launches_gangs:
        launcher = _launcher(planned, parts)
        return replace(demand, pod_sets=(*demand.pod_sets, launcher), overhead=launcher.amounts.usage)
    if pod is bare:
        return demand
    own = StepDemand(planned.name, _pod_sets(gang, bare, first)).usage
    return replace(demand, overhead=usage_beyond(demand.usage, own))


def _launcher(planned: PlannedStep, parts: Engine) -> PodSet:
    """The pod that looks after a gang, and lives as long as it."""
    pod = with_engine(launcher_for(planned), parts, has_outputs=bool(planned.step.outputs))
    return PodSet(LAUNCHER, 1, pod)


def _pod_sets(gang: Gang | None, pod: Mapping[str, Any], leader: Mapping[str, Any] | None) -> tuple[PodSet, ...]:
    """The pods of one copy of a step."""
    if gang is None:
        return (PodSet("main", 1, pod),)
    workers = PodSet(WORKERS, gang.workers, pod)
    return (workers,) if leader is None else (PodSet(LEADER, 1, leader), workers)


def _other_queues(plan: Plan) -> Iterator[UnseenPart]:
    """Gangs that wait in a queue which is not Kueue's."""
    kind = SPELLINGS[plan.site.gangs.made_as].kind
    for each in plan.containers if not kind.in_kueue else ():
        if each.step.gang is not None:
            yield volcano_queue_unseen(each.name, each.step.queue or plan.site.queue, each.where("queue"))


def _hooks(plan: Plan, engine: str) -> Iterator[UnseenPart]:
    """Templates of the cluster that run beside the run: no file of ours says what they are."""
    for name, hook in getattr(_engine_options(plan.pipeline.engines, engine), "hooks", {}).items():
        called = f"hook-{name}"
        because = f"engines.{engine}.hooks names template {hook.template_ref.template} of {hook.template_ref.name}"
        where = plan.pipeline.where("engines", engine, "hooks", name)
        hint = f"gpuflow demand FILE shows what {hook.template_ref.name} asks for"
        yield UnseenPart(called, f"{because}, which only the cluster has", where, hint=hint)


def _alert(plan: Plan, engine: str) -> tuple[StepDemand, ...]:
    """The pod that the engine sends alerts from when a run has ended. All of it is the engine's."""
    pod = None if engine == NO_ENGINE else load_engine(engine).alert_pod(plan)
    if pod is None:
        return ()
    name = next(name for name in ("alert", "alert-agent", "agent-of-the-run") if name not in plan.by_name)
    step = StepDemand(name, (PodSet("main", 1, pod),), is_exit=True)
    return (replace(step, overhead=step.usage),)


def _place(plan: Plan, name: str) -> Where:
    """Where a step is written; alerts are where the pipeline says whom to tell, or nowhere but in the site."""
    return plan.where(name) if name.partition(".")[0] in plan.by_name else plan.pipeline.where("notify", key=True)


def _graph(plan: Plan, pods: Mapping[str, int], keeps_parallel: bool, alert: Sequence[StepDemand] = ()) -> Tree:
    """The pipeline as the graph that peaks are computed on. `alert`: what the engine runs beside the exit steps."""

    def tree(within: str) -> Tree:
        steps = plan.steps_by_parent[within]
        cap = steps[0].pipeline.parallel if keeps_parallel else None
        nodes = {each.own_name: node(each) for each in steps if each.section == "steps"}
        after: dict[str, list[str]] = {name: [] for name in nodes}
        for each in steps:
            for need in each.needs:
                after[need.rpartition(".")[2]].append(each.own_name)
        main: Tree = Dag(nodes, after, cap, _find_either(after, steps, "steps"))
        ends = {each.own_name: node(each) for each in steps if each.section == "exit"}
        either = _find_either({}, steps, "exit")
        if not within:
            ends |= {each.name: Leaf(each.name, {}, each.pods) for each in alert}
        return Dag({"main": main, "exit": Dag(ends, {}, cap, either)}, {"main": ["exit"]}) if ends else main

    def node(each: PlannedStep) -> Tree:
        # An approval has no pod.
        body = tree(each.name) if each.kind == "pipeline" else Leaf(each.name, {}, pods.get(each.name, 0))
        return body if each.step.for_each is None else Loop(each.name, body, each.copies, each.step.parallel)

    return tree("")


def _find_either(
    after: Mapping[str, Sequence[str]], steps: Sequence[PlannedStep], section: str
) -> tuple[tuple[str, ...], ...]:
    """The steps of a section of which one at most runs, by conditions about values that a run has once."""
    asked = {each.own_name: each.step for each in steps if each.section == section and not asks_item(each.step.when)}
    conditional = {name: step for name, step in asked.items() if step.when is not None or step.on is not None}

    def excludes(name: str, other: str) -> bool:
        one, two = conditional[name], conditional[other]
        if {one.on, two.on} == {"success", "failure"}:
            return True
        return one.when is not None and two.when is not None and exclude(one.when, two.when)

    return find_either(after, conditional, excludes)


def _claims(pipeline: Pipeline) -> Iterator[ClaimDemand]:
    for name, claim in pipeline.claims.items():
        yield ClaimDemand(
            name,
            {"metadata": {"name": name}, "spec": run_claim_spec(claim)},
            run_claim_volume(name),
            pipeline.where("claims", name, key=True),
            pipeline.where("claims", name, "size"),
            pipeline.where("claims", name, "storage_class"),
        )


def _deadline(pipeline: Pipeline) -> Deadline | None:
    deadline = pipeline.deadline
    return None if deadline is None else Deadline(str(deadline), deadline.seconds, pipeline.where("deadline"))


def _overlap(pipeline: Pipeline, facts: EngineFacts) -> Overlap | None:
    """Runs that start while another is active: by a schedule that allows it, or whenever there is new data."""
    schedule = pipeline.schedule
    one_by_one = schedule is not None and schedule.concurrency == "forbid" and facts.forbids_data_runs
    if schedule is not None and schedule.concurrency == "allow" and not schedule.suspended:
        because, where = f'schedule "{schedule.cron}", concurrency: allow', pipeline.where("schedule")
    elif pipeline.on_data and not one_by_one:
        because, where = "on_data starts a run whenever there is new data", pipeline.where("on_data")
    elif has_timetable(pipeline, facts.name):
        because, where = "a timetable starts them", pipeline.where("engines", facts.name, "timetable")
    else:
        return None
    at_most = most_runs(pipeline, facts)
    return None if at_most == 1 else Overlap(because, where, at_most)


def _conditional_steps(plan: Plan) -> Iterator[tuple[str, bool]]:
    """Steps that may not run though the run gets to them, and whether each item of a fan-out has its own answer."""
    for each in plan.steps:
        when = each.step.when
        if when is not None or each.step.on in ("success", "failure"):
            asked = () if when is None else references(when)
            yield each.name, any(isinstance(found.ref, ItemRef) for found in asked)


def _later_attempts(plan: Plan, steps: Sequence[StepDemand]) -> Iterator[LaterAttempts]:
    """The pods of the last attempts, where they are not those of the first."""
    grown: dict[str, tuple[PodSet, ...]] = {}
    moved: dict[str, tuple[PodSet, ...]] = {}
    for planned, demand in zip(plan.containers, steps, strict=True):
        retry, spot = planned.step.retry, planned.step.spot
        grows = retry is not None and retry.more_memory is not None and retry.after_failures > 0
        if not grows and not falls_back(planned.step):
            continue
        leader, changes = leader_pod(planned), changes_of(made_pod(planned))
        of_leader = changes if leader is None else changes_of(leader)
        out_of_memory = EarlierAttempts(out_of_memory=retry.after_failures if retry is not None and grows else 0)
        interrupted = EarlierAttempts(interruptions=(spot.fallback_after if spot is not None else None) or 0)
        for found, before in ((grown, out_of_memory), (moved, interrupted)):
            # Whoever looks after a gang is as it was.
            own = {LAUNCHER: Changes(), LEADER: of_leader}
            pod_sets = tuple(
                replace(each, pod={**each.pod, "spec": own.get(each.name, changes).spec(each.pod["spec"], before)})
                for each in demand.pod_sets
            )
            if pod_sets != demand.pod_sets:
                found[planned.name] = pod_sets
    for when, pods in (("after running out of memory", grown), ("after losing spot nodes", moved)):
        if pods:
            yield LaterAttempts(when, pods)


def _refusals(plan: Plan, engine: str) -> Iterator[Finding]:
    """What the engine does not support of the pipeline."""
    if engine != NO_ENGINE:
        yield from load_engine(engine).refusals(plan)
