"""What stays in the namespace after a step has ended: `count/` keys count finished pods and the objects beside them.

Such objects go when the run is deleted, not when a step ends. So a run that stores more of them than a quota allows
cannot finish: it holds the room itself that its last steps wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpuflow.checker.report import LimitLine
from gpuflow.checker.wording import shortened
from gpuflow.demands import Bound, Demand, StepDemand, peaks_of
from gpuflow.demands.model import KeptPods
from gpuflow.engines import RunObject, facts_of
from gpuflow.errors import Finding, Where
from gpuflow.kubernetes.admission import Quota
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.quantity import Quantity

COUNTED_PODS: Final = "count/pods"
COUNTED_WORKLOADS: Final = "count/workloads.kueue.x-k8s.io"
"""Kueue's Workload of a pod, which is deleted with the pod."""
KEPT: Final = "every try of every step, because finished pods count until they are deleted"
FAILED_KEPT: Final = "the pods that run at once, and every try that failed, whose pod is kept"


class Stored(NamedTuple):
    """Objects of one kind that a run leaves behind: the most, and as many as there are at least when it ends."""

    bound: Bound
    at_least: Quantity = Quantity.zero


def kept_pods(demand: Demand) -> KeptPods:
    """Which finished pods stay until the run is deleted.

    An engine that deletes them while the run goes on does so after a delay: they may stay, and do not have to.
    """
    return "unknown" if demand.pods_collected else demand.keeps_pods


def run_objects(demand: Demand) -> dict[str, RunObject]:
    """What the engine creates beside pods, by quota key."""
    return {each.quota_key: each for each in facts_of(demand.engine).objects_per_run}


def stored_objects(
    demand: Demand,
    charges: Mapping[str, Mapping[str, Quantity]],
    before: Mapping[str, Quantity],
    quota: Quota,
    live_pods: Bound | None,
    default_queue: bool,
) -> dict[str, Stored]:
    """What a run leaves behind, by quota key.

    Scopes are about pods: a quota that has some counts the pods within them and no other objects.
    """
    counted = [step for step in demand.steps if charges[step.name].get(COUNTED_PODS)]
    found = {COUNTED_PODS: _stored(demand, counted, COUNTED_PODS in before, live_pods)}
    if not quota.scopes:
        for key, made in run_objects(demand).items():
            one = Stored(Bound("exact", Quantity.from_units(demand.run_count)))
            # Results belong to the run: they stay when a pod is deleted.
            found[key] = one if made.per == "run" else _kept(demand, demand.steps, demand.driver is not None, "all")
        if COUNTED_WORKLOADS in quota.hard:
            queued = [step for step in demand.steps if default_queue or _is_queued(step)]
            live = _live(demand, queued) if kept_pods(demand) == "failed" else None
            drivers = default_queue and demand.driver is not None
            found[COUNTED_WORKLOADS] = _stored(demand, queued, drivers, live, gangs_are_one=True)
    return {key: each for key, each in found.items() if each is not None}


def _is_queued(step: StepDemand) -> bool:
    return QUEUE_LABEL in step.pod["metadata"].get("labels", {})


def _live(demand: Demand, steps: Sequence[StepDemand]) -> Bound | None:
    """The most copies of these steps that are alive at once."""
    key = "alive"
    names = {step.name for step in steps}
    usages = {step.name: {key: Quantity.from_units(1)} if step.name in names else {} for step in demand.steps}
    return peaks_of(demand.graph, usages, demand.conditional).get(key)


def _stored(
    demand: Demand,
    counted: Sequence[StepDemand],
    with_drivers: bool,
    live: Bound | None,
    *,
    gangs_are_one: bool = False,
) -> Stored | None:
    kept = kept_pods(demand)
    if kept != "failed":
        return _kept(demand, counted, with_drivers, kept, gangs_are_one=gangs_are_one)
    return _failed_kept(counted, live, gangs_are_one=gangs_are_one)


def _failed_kept(counted: Sequence[StepDemand], live: Bound | None, *, gangs_are_one: bool) -> Stored | None:
    """Those that run at once, and what earlier tries left."""
    some = Quantity.from_units(int(any(step.is_sure and step.copies for step in counted)))
    if live is None or live.value is None:
        return None if live is None else Stored(live, some)
    again = 0
    for step in counted:
        if step.copies is None and step.tries > 1:
            why = f"how many pods {step.name} leaves behind is only known when it has run"
            return Stored(Bound("unknown", None, why, (step.name,)), some)
        again += (step.copies or 0) * (1 if gangs_are_one else step.pods) * (step.tries - 1)
    if not again:
        return Stored(live, some)
    total = live.value + Quantity.from_units(again)
    return Stored(Bound("at-most", total, FAILED_KEPT, tuple(step.name for step in counted)), some)


def _kept(
    demand: Demand,
    counted: Sequence[StepDemand],
    with_drivers: bool,
    kept: KeptPods,
    *,
    gangs_are_one: bool = False,
) -> Stored | None:
    """All that a run leaves behind, and all that it surely does."""
    most = least = 0
    unknown: Bound | None = None
    for step in counted:
        pods = 1 if gangs_are_one else step.pods
        least += pods * (step.copies or 0) if step.is_sure else 0
        if step.copies is None:
            why = f"how many pods {step.name} leaves behind is only known when it has run"
            unknown = unknown or Bound("unknown", None, why, (step.name,))
        most += (step.copies or 0) * pods * step.tries
    if with_drivers:
        drivers = demand.driver_pods
        least += 0 if drivers is None else drivers.at_least
        if drivers is None:
            most += 1 + sum(step.copies or 0 for step in counted)
        elif drivers.at_most is None:
            unknown = unknown or Bound("unknown", None, drivers.because, ())
        else:
            most += drivers.at_most
    # Where finished pods do not surely stay, each may be deleted before the next is made.
    at_least = Quantity.from_units(min(least, 1) if kept == "unknown" else least)
    if unknown is not None:
        return Stored(unknown, at_least)
    if not most:
        return None
    return Stored(Bound("at-most", Quantity.from_units(most), KEPT, tuple(step.name for step in counted)), at_least)


def cannot_finish(demand: Demand, line: LimitLine, at_least: Quantity) -> Finding:
    """A run that stores more than a quota ever allows."""
    kind = _kind(demand, line.resource)
    if not line.hard:
        return Finding(
            "GF501",
            f"no step can finish: quota {line.name} allows 0 of {line.resource}, and each step needs one",
            Where(demand.file),
            "run in another namespace, or have the quota raised",
        )
    steps = [step.name for step in demand.steps if step.is_sure]
    drivers = ", the engine's driver pods among them" if demand.driver is not None and kind != "Workloads" else ""
    return Finding(
        "GF509",
        f"the run cannot finish: {shortened(steps)} leave {at_least} {kind} behind{drivers}, which count until "
        f"the run is deleted; quota {line.name} allows {line.hard} of {line.resource}",
        demand.where(steps[0]) if steps else Where(demand.file),
        facts_of(demand.engine).waits["objects"],
    )


def _kind(demand: Demand, key: str) -> str:
    if key == COUNTED_PODS:
        return "pods"
    made = run_objects(demand).get(key)
    return "Workloads" if made is None else f"{made.kind}s"
