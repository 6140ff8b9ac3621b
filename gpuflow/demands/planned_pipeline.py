"""The pipeline behind a demand, for hints and warnings that only a document of ours allows.

Warnings are about policies that cannot work as written (a last save that does not fit, a checkpoint that comes too
late, no budget) and about fan-outs over parameters, which are counted with the parameter's default. Only what is
certain from the documents is reported. The same finding about many steps is reported once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.catalog import Model, Offer
from gpuflow.catalog.catalog import model as find_model
from gpuflow.catalog.kubernetes_names import PRODUCT_KEY, profile_of_resource, read_product_label
from gpuflow.core.errors import Finding, GpuflowError, Problem, Rule, list_names, rule, warning
from gpuflow.demands.model import Demand, DeviceRequest
from gpuflow.graph import Unknown
from gpuflow.plan import Plan, PlannedStep, plan_of
from gpuflow.pod import pod_notes, pod_of
from gpuflow.pod.engine_containers import with_engine
from gpuflow.pod.supervision import GRACE_MARGIN, supervisor_grace
from gpuflow.quantity import Quantity
from gpuflow.site.model import Engine, Site, exposed_in_site, without_site_silenced
from gpuflow.spec.duration import Duration
from gpuflow.spec.resources import Gpu, Mig
from gpuflow.spec.rules.remarks import remarks_on, without_silenced
from gpuflow.spec.step import Step
from gpuflow.spec.text import ParamRef


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
