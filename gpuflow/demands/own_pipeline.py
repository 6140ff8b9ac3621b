"""The pipeline behind a demand, for hints that only a document of ours allows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gpuflow.catalog import Model, Offer
from gpuflow.catalog.labels import PRODUCT_KEY, read_product_label
from gpuflow.catalog.lookup import model as find_model
from gpuflow.catalog.resources import profile_of_resource
from gpuflow.demands.model import Demand, DeviceWish
from gpuflow.demands.parameter_defaults import counted_with_defaults
from gpuflow.demands.retry_and_checkpoint import retry_and_checkpoint
from gpuflow.errors import Finding, GpuflowError
from gpuflow.plan import Plan, plan_of
from gpuflow.pod import pod_for, pod_notes
from gpuflow.pod.injected import with_engine
from gpuflow.quantity import Quantity
from gpuflow.site.exposed_secrets import exposed_in_site
from gpuflow.site.model import Engine, Site
from gpuflow.site.silence import heard_at
from gpuflow.spec.remarks import heard, remarks_on
from gpuflow.spec.resources import Gpu, Mig
from gpuflow.spec.step import Step

GIB: Final = 2**30
UNHEARD: Final = frozenset(
    {
        "args",
        "cache",
        "command",
        "description",
        "engines",
        "env",
        "inputs",
        "needs",
        "outputs",
        "probes",
        "script",
        "timeout",
        "when",
    }
)
"""What a step says that has no say in where its pods go."""


@dataclass(frozen=True)
class PlannedPipeline:
    """A plan, with what an engine adds to its pods. It is what the checker knows as `OwnPipeline`."""

    plan: Plan
    parts: Engine
    remade: Callable[[Demand, Plan, Plan], Demand]
    """A demand as it would be by another plan of the same steps."""

    def warnings(self) -> Iterator[Finding]:
        """Policies that cannot work as written, secrets in plain text, and text that looks like a template."""
        yield from retry_and_checkpoint(self.plan)
        yield from counted_with_defaults(self.plan)
        yield from pod_notes(self.plan)
        yield from remarks_on(self.plan.pipeline)
        yield from exposed_in_site(self.plan.site)

    def heard(self, findings: Iterable[Finding]) -> list[Finding]:
        """The findings that neither the file nor the site silences."""
        return heard_at(self.plan.site, heard(self.plan.pipeline, findings))

    def devices(self, step: str) -> DeviceWish | None:
        """The GPUs or slices that a step asks for; None when it asks for none."""
        if step not in self.plan.by_name:
            return None  # a pod of the engine's own
        asking = self.plan.by_name[step].step
        asked = asking.gpu or asking.mig
        if asked is None:
            return None
        told = {name: getattr(asking, name) for name in sorted(type(asking).model_fields) if name not in UNHEARD}
        return DeviceWish(_words(asked), asked.count, asking.mig is not None, _needs_gib(asking), repr(told))

    def offers(self, labels: Mapping[str, str], allocatable: Mapping[str, int]) -> Iterator[Offer]:
        """The GPUs and slices that a node has, in the site's words."""
        site = self.plan.site
        label = read_product_label(labels.get(PRODUCT_KEY, ""))
        whole = labels.get(site.mig.profile_label or "") or label.profile
        for owner in _models(labels, site) or label.models:
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
        asked = planned.step.gpu or planned.step.mig if offer is None else _wish(offer)
        assert asked is not None  # only steps that ask for devices are asked about
        wished = asked.model_copy(update={"count": count})
        fields = {
            "gpu": wished if isinstance(wished, Gpu) else None,
            "mig": wished if isinstance(wished, Mig) else None,
        }
        steps = getattr(planned.pipeline, planned.section)
        changed = {**steps, planned.own_name: steps[planned.own_name].model_copy(update=fields)}
        try:
            pod = pod_for(
                planned.pipeline.model_copy(update={planned.section: changed}), planned.own_name, self.plan.site
            )
        except GpuflowError:
            return None
        return with_engine(pod, self.parts, has_outputs=bool(planned.step.outputs))

    def capped(self, demand: Demand, parallel: int) -> Demand:
        """The demand if the pipeline said `parallel`."""
        pipeline = self.plan.pipeline.model_copy(update={"parallel": parallel})
        return self.remade(demand, self.plan, plan_of(pipeline, self.plan.site))

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
        return self.remade(demand, self.plan, plan_of(pipeline, self.plan.site))


def _wish(offer: Offer) -> Gpu | Mig:
    if offer.profile is None:
        return Gpu(model=offer.model.id)
    return Mig(profile=offer.profile.name, model=offer.model.id)


def _models(labels: Mapping[str, str], site: Site) -> tuple[Model, ...]:
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


def _words(asked: Gpu | Mig) -> str:
    if isinstance(asked, Mig):
        return f"{asked.profile} of {asked.model}"
    return asked.words if asked.memory is None else f"the {asked.words.replace('GPU', 'GPUs')}"
