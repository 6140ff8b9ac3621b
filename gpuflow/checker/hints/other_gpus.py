"""Which other GPU, smaller MIG slice or smaller count of this very cluster would hold a step that fits on no node.

Every suggestion is tried: the step's pod is made anew with it and held against the nodes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from typing import Final

from gpuflow.catalog import Model, Offer
from gpuflow.catalog.labels import PRODUCT_KEY, read_product_label
from gpuflow.catalog.lookup import model as find_model
from gpuflow.catalog.resources import profile_of_resource
from gpuflow.checker.nodes.capacity import room
from gpuflow.checker.nodes.fit import read_pending
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.nodes.subjects import Node
from gpuflow.checker.wording import home_of, step_of
from gpuflow.demands import Demand
from gpuflow.errors import GpuflowError
from gpuflow.pod import pod_for
from gpuflow.pod.injected import engine_of, with_engine
from gpuflow.site import Site
from gpuflow.spec.resources import Gpu, Mig
from gpuflow.spec.step import Step

MOST: Final = 3
"""So many suggestions of a kind: more are a list to read, not a way out."""
GIB: Final = 2**30


class OtherGpus:
    """The GPUs and slices on the nodes of a cluster, to ask about the steps of one pipeline."""

    def __init__(self, demand: Demand, node_pools: NodePools) -> None:
        self.demand, self.node_pools = demand, node_pools
        self._told: dict[str, str | None] = {}

    def hint(self, name: str) -> str | None:
        """What the step could ask for instead; None when it asks for no GPU, or when nothing here would hold it."""
        step = step_of(self.demand, name)
        key = repr((step.gpu, step.mig, step.cpu, step.memory, step.ephemeral_storage, step.gang, step.kubernetes))
        if key not in self._told:
            asked = step.gpu or step.mig
            self._told[key] = "\n".join(self._lines(name, step, asked)) or None if asked else None
        return self._told[key]

    def _lines(self, name: str, step: Step, asked: Gpu | Mig) -> Iterator[str]:
        # What fits in some number fits in any smaller one.
        fewer = bisect_left(range(1, asked.count), True, key=lambda n: not self._fits(name, step, asked, n))
        if fewer:
            yield f"one node here holds at most {fewer} of {_words(asked)} for this step: ask for {fewer} in each pod"
        need = _need_gib(step)
        # Slices do not talk to each other as whole GPUs do, so several GPUs are not answered with slices.
        offered = [each for each in self._offered if each.profile is None or step.mig is not None or asked.count == 1]
        holding = [each for each in offered if self._fits(name, step, _wish(each, asked.count), asked.count)]
        if need is None:
            enough, smaller = [], []
        else:
            known = [(offer, offer.usable_gib) for offer in holding if offer.usable_gib is not None]
            enough = sorted((size, str(offer), offer) for offer, size in known if size >= need)
            smaller = sorted((-size, str(offer), offer) for offer, size in known if size < need)
        if enough:
            yield f"fits here, with as much GPU memory: {_list([each[2] for each in enough])}"
        if smaller:
            yield f"fits here, with less GPU memory: {_list([each[2] for each in smaller])}"

    def _fits(self, name: str, step: Step, wish: Gpu | Mig, count: int) -> bool:
        """Whether a node could hold the step's pod, or the nodes its gang, if it asked for this."""
        wished = wish.model_copy(update={"count": count})
        fields = {
            "gpu": wished if isinstance(wished, Gpu) else None,
            "mig": wished if isinstance(wished, Mig) else None,
        }
        home, own = home_of(self.demand, name)
        part = "steps" if own in home.steps else "exit"
        changed = getattr(home, part)[own].model_copy(update=fields)
        pipeline = home.model_copy(update={part: {**getattr(home, part), own: changed}})
        try:
            pod = pod_for(pipeline, own, self.demand.site)
        except GpuflowError:
            return False  # the site has no word for it
        made = with_engine(pod, step, engine_of(self.demand.site, self.demand.engine))
        return room(self.node_pools, read_pending(made), step.gang.pods if step.gang else 1).verdict != "never"

    @cached_property
    def _offered(self) -> tuple[Offer, ...]:
        """Every GPU and slice that some node has, once."""
        node_list = self.node_pools.node_list
        nodes = (*(host.node for host in node_list.hosts), *(node for node in node_list.templates if node.group_max))
        found: dict[str, Offer] = {}
        for node in nodes:
            for offer in _offers(node, self.demand.site):
                found.setdefault(str(offer), offer)
        return tuple(found.values())


def _offers(node: Node, site: Site) -> Iterator[Offer]:
    label = read_product_label(node.labels.get(PRODUCT_KEY, ""))
    whole = node.labels.get(site.mig.profile_label or "") or label.profile
    for owner in _models(node, site) or label.models:
        profiles = {profile.name: profile for profile in owner.profiles}
        for resource, amount in node.allocatable.items():
            cut = profile_of_resource(resource)
            if amount > 0 and cut in profiles:
                yield Offer(owner, profiles[cut])
        serves = node.allocatable.get(site.gpu.resource, 0) > 0 and not label.shared and not label.invalid
        if serves and (whole is None or whole in profiles):
            yield Offer(owner, None if whole is None else profiles[whole])


def _models(node: Node, site: Site) -> tuple[Model, ...]:
    """The models that the site itself recognises the node by."""
    return tuple(
        find_model(name)
        for name, nodes in site.gpu.models.items()
        if nodes.labels and all(node.labels.get(key) in values for key, values in nodes.labels.items())
    )


def _wish(offer: Offer, count: int) -> Gpu | Mig:
    if offer.profile is None:
        return Gpu(model=offer.model.id, count=count)
    return Mig(profile=offer.profile.name, model=offer.model.id, count=count)


def _need_gib(step: Step) -> float | None:
    """The GPU memory that the step's wish promises it; None when nobody knows."""
    if step.mig is not None:
        owner = find_model(step.mig.model)
        return next((profile.usable_gib for profile in owner.profiles if profile.name == step.mig.profile), None)
    if step.gpu is None:
        return None
    if step.gpu.memory is not None:
        return step.gpu.memory.value / GIB
    names = (step.gpu.model,) if step.gpu.model is not None else step.gpu.any_of or ()
    sizes = [find_model(name).usable_gib for name in names]
    return min((size for size in sizes if size is not None), default=None)


def _words(asked: Gpu | Mig) -> str:
    if isinstance(asked, Mig):
        return f"{asked.profile} of {asked.model}"
    return asked.model or " or ".join(asked.any_of or ()) or f"the GPUs with {asked.memory}"


def _list(offers: list[Offer]) -> str:
    words = [
        f"{f'{offer.profile.name} of ' if offer.profile else ''}{offer.model.id} ({offer.usable_gib:g} GiB)"
        for offer in offers[:MOST]
    ]
    return ", ".join(words)
