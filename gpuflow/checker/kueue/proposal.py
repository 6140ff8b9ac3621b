"""What a search for flavors comes to: the flavors of each pod set, or what stands against them.

Mirrors sigs.k8s.io/kueue/pkg/scheduler/flavorassigner.Assignment.Message and PodSetAssignment.RepresentativeMode,
Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from gpuflow.checker.kueue.amounts import FlavorResource
from gpuflow.checker.kueue.reasons import FlavorReason, NoPlace
from gpuflow.checker.kueue.topology_placement import NotPlaced, PlaceRequest, Places
from gpuflow.checker.kueue.workloads import PodSet, scaled

Progress = tuple[Mapping[str, int], ...]
"""Per pod set and resource the flavor at which the last scan stopped, -1 when it saw them all."""


class PreemptionMode(IntEnum):
    """How a flavor could be had, best last."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class GranularMode(NamedTuple):
    """How a flavor could be had, and how far up the tree its quota lies."""

    mode: PreemptionMode
    height: int


BEST = GranularMode(PreemptionMode.FIT, 0)
WORST = GranularMode(PreemptionMode.NO_FIT, 2**63 - 1)


class PodSetResources(NamedTuple):
    """A pod set with what all its pods together ask for."""

    pod_set: PodSet
    pods: int
    amounts: Mapping[str, int]

    def scaled_to(self, pods: int) -> PodSetResources:
        if self.pods in (0, pods):
            return self
        return self._replace(pods=pods, amounts=scaled(self.amounts, self.pods, pods))


class Choice(NamedTuple):
    """The flavor chosen for one resource."""

    flavor: str
    mode: PreemptionMode
    stopped_at: int


class Found(NamedTuple):
    """What the search came to for one pod set."""

    demand: PodSetResources
    choices: Mapping[str, Choice]
    reasons: tuple[FlavorReason, ...]
    error: str | None = None

    def sentences(self) -> list[str]:
        return [each.sentence() for each in self.reasons]

    def preempting(self) -> Found:
        mode = PreemptionMode.PREEMPT
        return self._replace(choices={name: each._replace(mode=mode) for name, each in self.choices.items()})

    @property
    def mode(self) -> PreemptionMode:
        if self.error is None and not self.reasons:
            return PreemptionMode.FIT
        if self.error is not None or not self.choices:
            return PreemptionMode.NO_FIT
        return min(choice.mode for choice in self.choices.values())


class Proposal(NamedTuple):
    """What the search came to for a workload; pod sets after one that failed are not in it."""

    found: tuple[Found, ...]
    usage: Mapping[FlavorResource, int]
    asked: tuple[PlaceRequest, ...] = ()
    """What is asked of the nodes, by topology."""
    places: Mapping[str, Places] | None = None
    """The domains that each pod set gets; `None` where that is not known, or not possible now."""
    by_place: PreemptionMode | None = None
    """The mode, where topology-aware scheduling has decided it."""

    @property
    def mode(self) -> PreemptionMode:
        if self.by_place is not None:
            return self.by_place
        return min((each.mode for each in self.found), default=PreemptionMode.NO_FIT)

    def refused(self, failure: NotPlaced) -> Proposal:
        """The quota is there, and the place is not."""
        reason = NoPlace(failure.reason)
        found = (
            each._replace(reasons=(*each.reasons, reason)) if each.demand.pod_set.name == failure.pod_set else each
            for each in self.found
        )
        return self._replace(found=tuple(found), by_place=PreemptionMode.PREEMPT)

    def preempting(self) -> Proposal:
        """Whoever holds a place may have to leave it, also where quota is left."""
        placed = {each.pod_set for each in self.asked}
        found = (each.preempting() if each.demand.pod_set.name in placed else each for each in self.found)
        return self._replace(found=tuple(found), by_place=PreemptionMode.PREEMPT)

    @property
    def progress(self) -> Progress:
        return tuple({name: choice.stopped_at for name, choice in each.choices.items()} for each in self.found)

    @property
    def needed(self) -> set[FlavorResource]:
        """Where quota has to be preempted."""
        return {
            (choice.flavor, resource)
            for each in self.found
            for resource, choice in each.choices.items()
            if choice.mode is not PreemptionMode.FIT
        }

    @property
    def reasons(self) -> tuple[FlavorReason, ...]:
        """What the message lists; nothing where an error hides it."""
        if any(each.error is not None for each in self.found):
            return ()
        return tuple(dict.fromkeys(reason for each in self.found for reason in each.reasons))

    def message(self) -> str:
        parts = []
        for each in self.found:
            name = each.demand.pod_set.name
            if each.error is not None:
                return f"failed to assign flavors to pod set {name}: {each.error}"
            if each.reasons:
                parts.append(f"couldn't assign flavors to pod set {name}: {', '.join(sorted(each.sentences()))}")
        return "; ".join(parts)
