"""Which other GPU, smaller MIG slice or smaller count of this very cluster would hold a step that fits on no node.

Every suggestion is tried: the step's pod is made anew with it and held against the nodes first; what a node could hold
is then judged whole, with quotas, LimitRanges and queues.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import islice
from typing import Final

from gpuflow.catalog import Offer
from gpuflow.checker.hints.trials import Trials, alone
from gpuflow.checker.nodes.capacity import room
from gpuflow.checker.nodes.fit import read_pending
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.demands import Demand
from gpuflow.demands.model import DeviceWish, OwnPipeline

MOST: Final = 3
"""So many suggestions of a kind: more are a list to read, not a way out."""


class OtherGpus:
    """The GPUs and slices on the nodes of a cluster, to ask about the steps of one pipeline.

    Only a document of ours says what else its steps could ask for; of any other demand there is nothing to say.
    """

    def __init__(self, demand: Demand, node_pools: NodePools, trials: Trials) -> None:
        self.demand, self.node_pools, self.trials = demand, node_pools, trials
        self._told: dict[str, str | None] = {}

    def hint(self, name: str) -> str | None:
        """What the step could ask for instead; None when it asks for no GPU, or when nothing here would hold it."""
        pipeline = self.demand.pipeline
        wish = None if pipeline is None else pipeline.devices(name)
        if pipeline is None or wish is None:
            return None
        if wish.key not in self._told:
            self._told[wish.key] = "\n".join(self._lines(pipeline, name, wish)) or None
        return self._told[wish.key]

    def _lines(self, pipeline: OwnPipeline, name: str, wish: DeviceWish) -> Iterator[str]:
        # What fits in some number fits in any smaller one.
        held = bisect_left(range(1, wish.count), True, key=lambda n: not self._fits(pipeline, name, None, n))
        fewer = self._most_admitted(pipeline, name, held)
        if fewer:
            most = f"one node here holds at most {fewer} of {wish.words} for this step: " if fewer == held else ""
            yield f"{most}ask for {fewer} in each pod"
        need = wish.needs_gib
        # Slices do not talk to each other as whole GPUs do, so several GPUs are not answered with slices.
        offered = [
            each
            for each in self._offered
            if (each.profile is None or wish.is_slice or wish.count == 1)
            and _words(each) not in wish.words.split(" or ")
        ]
        holding = [each for each in offered if self._fits(pipeline, name, each, wish.count)]
        if need is None:
            enough, smaller = [], []
        else:
            known = [(offer, offer.usable_gib) for offer in holding if offer.usable_gib is not None]
            # Whoever takes any GPU wants the most that is here.
            enough = sorted((size if need else -size, str(offer), offer) for offer, size in known if size >= need)
            smaller = sorted((-size, str(offer), offer) for offer, size in known if size < need)
        for memory, found in (
            (", with as much GPU memory" if need else "", enough),
            (", with less GPU memory", smaller),
        ):
            admitted = (each[2] for each in found if self._is_admitted(pipeline, name, each[2], wish.count))
            shown = list(islice(admitted, MOST))
            if shown:
                yield f"fits here{memory}: {_list(shown)}"

    def _most_admitted(self, pipeline: OwnPipeline, name: str, most: int) -> int:
        """The most devices, no more than a node holds, with which the step can run; 0 when there is no such number."""
        if not most or self._is_admitted(pipeline, name, None, most):
            return most
        if most == 1 or not self._is_admitted(pipeline, name, None, 1):
            return 0
        low, high = 1, most
        while high - low > 1 and self.trials.left:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_admitted(pipeline, name, None, middle) else (low, middle)
        return low

    def _is_admitted(self, pipeline: OwnPipeline, name: str, offer: Offer | None, count: int) -> bool:
        """Whether the step alone is admitted sooner or later if it asks for this."""
        pod = pipeline.pod_with(name, offer, count)
        before = alone(self.demand, name, self.demand.by_name[name].pod)
        return pod is not None and self.trials.can_run(alone(self.demand, name, pod), before)

    def _fits(self, pipeline: OwnPipeline, name: str, offer: Offer | None, count: int) -> bool:
        """Whether a node could hold the step's pod, or the nodes its gang, if it asked for this."""
        pod = pipeline.pod_with(name, offer, count)
        pods = self.demand.by_name[name].pods
        return pod is not None and room(self.node_pools, read_pending(pod), pods).verdict != "never"

    @cached_property
    def _offered(self) -> tuple[Offer, ...]:
        """Every GPU and slice that some node has, once."""
        node_list = self.node_pools.node_list
        nodes = (*(host.node for host in node_list.hosts), *(node for node in node_list.templates if node.group_max))
        found: dict[str, Offer] = {}
        for node in nodes:
            for offer in self.demand.pipeline.offers(node.labels, node.allocatable) if self.demand.pipeline else ():
                found.setdefault(str(offer), offer)
        return tuple(found.values())


def _list(offers: list[Offer]) -> str:
    return ", ".join(f"{_words(offer)} ({offer.usable_gib:g} GiB)" for offer in offers)


def _words(offer: Offer) -> str:
    """The offer as a pipeline asks for it."""
    return f"{offer.profile.name} of {offer.model.id}" if offer.profile else offer.model.id
