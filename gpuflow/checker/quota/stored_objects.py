"""What stays in the namespace after a step has ended: `count/` keys count finished pods and the objects beside them.

Such objects go when the run is deleted, not when a step ends. So a run that stores more of them than a quota allows
cannot finish: it holds the room itself that its last steps wait for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gpuflow.checker.report import LimitLine
from gpuflow.core.errors import Finding, Where, join_names
from gpuflow.demands import Bound, Demand, StepDemand, peaks_of
from gpuflow.demands.model import LAUNCHER, KeptPods
from gpuflow.demands.peaks import Usage
from gpuflow.engines import NO_ENGINE, RunObject, facts_of
from gpuflow.kubernetes.admission.quota import Quota
from gpuflow.kubernetes.labels import LEADER, MADE_BY, QUEUE_LABEL, QUEUED_BY, WORKERS
from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs.kinds import WORDS, GangKind, kind_of_integration

COUNTED_PODS: Final = "count/pods"
COUNTED_WORKLOADS: Final = "count/workloads.kueue.x-k8s.io"
"""Kueue's Workload of a pod, which is deleted with the pod."""
SERVICES: Final = ("services", "count/services")
"""The Services by which ranks find each other."""
JOBS: Final = "count/jobs.batch"
"""Of a gang one for its ranks, and one more for a leader."""
WHY_EVERY_TRY: Final = "every try of every step, because finished pods count until they are deleted"
FAILED_KEPT: Final = "the pods that run at once, and every try that failed, whose pod is kept"


class StoredObjects(NamedTuple):
    """Objects of one kind that a run leaves behind: the most, and as many as there are at least when it ends."""

    bound: Bound
    at_least: Quantity = Quantity.zero


def kept_pods(demand: Demand) -> KeptPods:
    """Which finished pods stay until the run is deleted.

    An engine that deletes them while the run goes on does so after a delay: they may stay, and do not have to.
    """
    return "unknown" if demand.pods_collected else demand.keeps_pods


def run_objects(demand: Demand) -> dict[str, RunObject]:
    """What the engine creates beside pods, by quota key; of pipelines on several engines, each of them."""
    engines = demand.runs_on or (demand.engine,)
    return {each.quota_key: each for engine in engines for each in facts_of(engine).objects_per_run}


def _runs_that_make(demand: Demand, key: str) -> int:
    """How many runs there are of the engines that create what a key counts."""
    runs = demand.runs_on or {demand.engine: demand.run_count}
    return sum(
        count
        for engine, count in runs.items()
        if any(key == each.quota_key for each in facts_of(engine).objects_per_run)
    )


def stored_objects(
    demand: Demand,
    charges: Mapping[str, Mapping[str, Quantity]],
    before: Mapping[str, Quantity],
    quota: Quota,
    live_pods: Bound | None,
    default_queue: bool,
) -> dict[str, StoredObjects]:
    """What a run leaves behind, by quota key.

    Scopes are about pods: a quota that has some counts the pods within them and no other objects.
    """
    counted = [step for step in demand.steps if charges[step.name].get(COUNTED_PODS)]
    found = {COUNTED_PODS: _count_stored(demand, counted, COUNTED_PODS in before, live_pods)}
    if not quota.scopes:
        for key, made in run_objects(demand).items():
            one = StoredObjects(Bound("exact", Quantity.from_units(_runs_that_make(demand, key))))
            # Results belong to the run: they stay when a pod is deleted.
            found[key] = (
                one if made.per == "run" else _count_kept(demand, demand.steps, demand.driver is not None, "all")
            )
        if COUNTED_WORKLOADS in quota.hard:
            queued = [
                step for step in demand.steps if default_queue or QUEUE_LABEL in step.pod["metadata"].get("labels", {})
            ]
            live = _live_copies(demand, queued, _one_each(queued)) if kept_pods(demand) == "failed" else None
            drivers = default_queue and demand.driver is not None
            found[COUNTED_WORKLOADS] = _count_stored(demand, queued, drivers, live, gangs_are_one=True)
        for key in quota.hard:
            stored = _gang_objects(demand, key)
            if stored is not None:
                found[key] = stored
    return {key: each for key, each in found.items() if each is not None}


def _gang_objects(demand: Demand, key: str) -> StoredObjects | None:
    """JobSets, or what else gangs are, and what each of them makes. A launcher leaves them all; an operator of the
    engine's keeps those that failed."""
    counts = {step.name: _object_count(step, key) for step in demand.steps}
    counted = [step for step in demand.steps if counts[step.name]]
    # Pods of one step that are not alike may be counted as steps of their own.
    by_launcher = {
        step.part_of or step.name for step in demand.steps if any(each.name == LAUNCHER for each in step.pod_sets)
    }
    launched = [step for step in counted if (step.part_of or step.name) in by_launcher]
    if launched:
        # What goes when a gang has ended may be gone before the next one is made.
        stays = all(_stays(step, key) for step in launched)
        return _count_kept(demand, launched, False, "all" if stays else "unknown", counts=counts)
    operated = [] if not (demand.runs_on.keys() | {demand.engine}) - {NO_ENGINE} else counted
    return _count_failed_kept(operated, _live_copies(demand, operated, counts), counts=counts) if operated else None


def _object_count(step: StepDemand, key: str) -> int:
    """How many objects that this key counts an attempt of the gang is, beside its pods."""
    ranks = [each for each in step.pod_sets if each.name in (LEADER, WORKERS)]
    if not ranks:
        return 0
    kind = _kind_of(step)
    if key == JOBS:
        if kind.leading_job is not None:
            return int(any(each.name == WORKERS for each in ranks))
        return len(ranks) if kind.has_jobs else 0
    if key in SERVICES and kind.service_for_each:
        return sum(each.count for each in ranks)
    # One for all of them, which is counted with the workers.
    one = key in SERVICES or key in kind.beside or key == _kind_key(kind)
    return int(one and any(each.name == WORKERS for each in ranks))


def _stays(step: StepDemand, key: str) -> bool:
    """Whether the object stays when an attempt of the gang has ended."""
    kind = _kind_of(step)
    return kind.leaves_all or key == _kind_key(kind)


def _kind_key(kind: GangKind) -> str:
    return f"count/{kind.plural}.{kind.group}"


def _kind_of(step: StepDemand) -> GangKind:
    """The kind of a gang, as its pods say it."""
    said = step.pod["metadata"].get("annotations", {})
    return WORDS[said[MADE_BY]] if said.get(MADE_BY) in WORDS else kind_of_integration(said.get(QUEUED_BY))


def _live_copies(demand: Demand, steps: Sequence[StepDemand], counts: Mapping[str, int]) -> Bound | None:
    """The most objects of these steps, so many of each copy, that are alive at once."""
    key = "alive"
    usages: dict[str, Usage] = {step.name: {} for step in demand.steps}
    usages |= {step.name: {key: Quantity.from_units(counts[step.name])} for step in steps}
    return peaks_of(demand.graph, usages, demand.conditional).get(key)


def _count_stored(
    demand: Demand,
    counted: Sequence[StepDemand],
    with_drivers: bool,
    live: Bound | None,
    *,
    gangs_are_one: bool = False,
) -> StoredObjects | None:
    kept = kept_pods(demand)
    if kept != "failed":
        return _count_kept(demand, counted, with_drivers, kept, counts=_one_each(counted) if gangs_are_one else None)
    return _count_failed_kept(counted, live, counts=_one_each(counted) if gangs_are_one else None)


def _one_each(steps: Sequence[StepDemand]) -> dict[str, int]:
    """One Workload for each step: the pod sets of a gang, which may be taken apart, have one together."""
    found: dict[str, int] = {}
    seen: set[str] = set()
    for step in steps:
        whole = step.name if step.part_of is None or step.is_launcher else step.part_of
        found[step.name] = int(whole not in seen)
        seen.add(whole)
    return found


def _count_failed_kept(
    counted: Sequence[StepDemand], live: Bound | None, *, counts: Mapping[str, int] | None
) -> StoredObjects | None:
    """Those that run at once, and what earlier tries left."""
    sure = [1 if counts is None else counts[step.name] for step in counted if step.is_sure and step.copies]
    some = Quantity.from_units(max(sure, default=0))
    if live is None or live.value is None:
        return None if live is None else StoredObjects(live, some)
    again = 0
    for step in counted:
        if step.copies is None and step.tries > 1:
            why = f"how many pods {step.name} leaves behind is only known when it has run"
            return StoredObjects(Bound("unknown", None, why, (step.name,)), some)
        again += (step.copies or 0) * (step.pods if counts is None else counts[step.name]) * (step.tries - 1)
    if not again:
        return StoredObjects(live, some)
    total = live.value + Quantity.from_units(again)
    return StoredObjects(Bound("at-most", total, FAILED_KEPT, tuple(step.name for step in counted)), some)


def _count_kept(
    demand: Demand,
    counted: Sequence[StepDemand],
    with_drivers: bool,
    kept: KeptPods,
    *,
    counts: Mapping[str, int] | None = None,
) -> StoredObjects | None:
    """All that a run leaves behind, and all that it surely does. `counts`: of each step, where it is not its pods."""
    most = least = 0
    unknown: Bound | None = None
    for step in counted:
        pods = step.pods if counts is None else counts[step.name]
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
        return StoredObjects(unknown, at_least)
    if not most:
        return None
    return StoredObjects(
        Bound("at-most", Quantity.from_units(most), WHY_EVERY_TRY, tuple(step.name for step in counted)), at_least
    )


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
        f"the run cannot finish: {join_names(steps)} leave {at_least} {kind} behind{drivers}, which count until "
        f"the run is deleted; quota {line.name} allows {line.hard} of {line.resource}",
        demand.where(steps[0]) if steps else Where(demand.file),
        facts_of(demand.engine).waits["objects"],
    )


def _kind(demand: Demand, key: str) -> str:
    if key == COUNTED_PODS:
        return "pods"
    made = run_objects(demand).get(key)
    return "Workloads" if made is None else f"{made.kind}s"
