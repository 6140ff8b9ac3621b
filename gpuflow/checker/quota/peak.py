"""The ResourceQuotas of a namespace against the peak of a pipeline: lines of the report, and why one is not *always*.

Of some quotas it is not known what they say to a step: their usage is not counted yet, or they count what is not
modeled here.

Volume claims before the API server: what quotas charge for them, which are always refused, which nothing ever fills.

These are the claims that a run makes, those of ephemeral volumes (Kubernetes makes one for each pod, and deletes it
with the pod, not when it ends), and those that steps mount and that may not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, driver_admission
from gpuflow.checker.report import LimitLine, Verdict
from gpuflow.cluster import Manifest
from gpuflow.core.errors import Where
from gpuflow.core.work_budget import may_advise
from gpuflow.demands import ALIASES, Bound, Demand, StepDemand, peaks_of
from gpuflow.demands.model import LAUNCHER, KeptPods, largest_usage, sum_usages
from gpuflow.demands.peaks import Usage, tree_of
from gpuflow.demands.stored import StoredObject, kind_of_key
from gpuflow.engines import NO_ENGINE, RunObject, facts_of
from gpuflow.graph import safe_parallel
from gpuflow.kubernetes.admission.classes import default_class, name_of
from gpuflow.kubernetes.admission.decision import Admission
from gpuflow.kubernetes.admission.quota import Quota, claims_of_pod, usage_of_claim
from gpuflow.kubernetes.labels import LEADER, MADE_BY, QUEUE_LABEL, QUEUED_BY, WORKERS
from gpuflow.kubernetes.resources import read_map, read_maps
from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs.kinds import WORDS, GangKind, kind_of_integration

Claims = Mapping[str, Mapping[str, Any]]
"""Manifests of claims, by the names the pipeline gives them."""


def run_claims(
    demand: Demand, classes: Sequence[Mapping[str, Any]] | None, brought: Sequence[Mapping[str, Any]] = ()
) -> Claims:
    """The claims of one run as they are stored: one that names no storage class gets the cluster's default. `brought`:
    claims of the checked files, which count where a step mounts them."""
    default = default_class(classes or ())
    found = {}
    for claim in demand.claims:
        given = {} if claim.storage_class is not None or default is None else {"storageClassName": default}
        found[claim.name] = {**claim.manifest, "spec": {**claim.manifest["spec"], **given}}
    volumes = (read_maps(step.pod["spec"].get("volumes"), "spec.volumes") for step in demand.steps if brought)
    sources = (each.get("persistentVolumeClaim") for some in volumes for each in some)
    mounted = {read_map(each, "persistentVolumeClaim").get("claimName") for each in sources}
    for body in brought:
        if (name := name_of(body)) in mounted:
            found[name] = {**body, "spec": {"storageClassName": default, **read_map(body.get("spec"), "spec")}}
    return found


def charges_of_claims(claims: Claims) -> Usage:
    """What a run's claims cost together, per quota key; they live as long as the run."""
    return sum_usages((usage_of_claim(claim), 1) for claim in claims.values())


def counts_claims(quota: Quota) -> bool:
    """Whether a quota counts claims: one with scopes counts pods alone, unless it is for claims without a class."""
    return all(
        scope.name == "VolumeAttributesClass" and scope.operator in ("NotIn", "DoesNotExist") for scope in quota.scopes
    )


def where_of_claims(demand: Demand) -> Where:
    """Where the first claim of the pipeline is written."""
    return demand.claims[0].where if demand.claims else Where()


Classes = Sequence[Mapping[str, Any]] | None


def ephemeral_charges(demand: Demand, classes: Classes) -> dict[str, Usage]:
    """What the claims of one copy of each step cost, by quota key; steps without such volumes are left out."""
    default = default_class(classes or ())
    found = {}
    for step in demand.steps:
        parts = [
            (usage_of_claim(claim), each.count)
            for each in step.pod_sets
            for _, claim in claims_of_pod(each.pod["spec"], default)
        ]
        if parts:
            found[step.name] = sum_usages(parts)
    return found


def ephemeral_peaks(demand: Demand, charges: Mapping[str, Usage]) -> dict[str, Bound]:
    """The most that these claims hold at once: those of running pods, and of finished ones that are kept."""
    if not charges:
        return {}
    live = peaks_of(demand.graph, {step.name: charges.get(step.name, {}) for step in demand.steps}, demand.conditional)
    collected = demand.keeps_pods == "failed" or demand.pods_collected
    return {key: _with_kept_pods(demand, bound, charges, key, collected) for key, bound in live.items()}


def _with_kept_pods(demand: Demand, live: Bound, charges: Mapping[str, Usage], key: str, collected: bool) -> Bound:
    """With the pods that stay: all of a run, or where the engine deletes pods that succeeded, those that failed."""
    total = Quantity.zero
    for step in demand.steps:
        amount = charges.get(step.name, {}).get(key)
        if amount is None:
            continue
        if step.copies is None:
            return Bound("unknown", None, f"how many copies {step.name} has is only known in the run", (step.name,))
        if step.of_job is not None:
            job = step.of_job.times(step.copies)
            if job.at_most is None:
                return Bound("unknown", None, f"how many pods {step.name} makes has no bound", (step.name,))
            total = total + amount * (job.at_most + job.kept[1])
            continue
        total = total + amount * (step.copies * (step.tries - 1 if collected else step.tries))
    if not collected:
        because = "the claim of an ephemeral volume is deleted with its pod, and finished pods may be kept"
        return live if live.value == total else Bound("at-most", total, because, live.witness, live.value)
    if not total or live.value is None:
        return live
    because = "the claim of an ephemeral volume is deleted with its pod, and failed pods are kept"
    return Bound("at-most", live.value + total, because, live.witness, live.value)


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
    once: Quantity = Quantity.zero
    """Those that serve all runs; they are among the least, and not in the bound."""
    kept: Quantity = Quantity.zero
    """Those of earlier runs that stay when each of them succeeded; and at most:"""
    most_kept: Quantity = Quantity.zero
    documents: tuple[StoredObject, ...] = ()
    """Those of them that a document says."""

    def fill_with_history(self, hard: Quantity) -> bool:
        """Whether those that are kept leave no room for another run, ever."""
        return bool(self.kept) and self.kept + max(self.at_least, Quantity.from_units(1)) > hard


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
            counts = _one_each(queued)
            live = _live_copies(demand, queued, counts) if kept_pods(demand) == "failed" else None
            drivers = default_queue and demand.driver is not None
            found[COUNTED_WORKLOADS] = _count_stored(demand, queued, drivers, live, counts)
        for key in quota.hard:
            stored = _gang_objects(demand, key)
            if stored is not None:
                found[key] = stored
            found[key] = _with_documents(demand, key, found.get(key))
    return {key: each for key, each in found.items() if each is not None}


def _with_documents(demand: Demand, key: str, before: StoredObjects | None) -> StoredObjects | None:
    """The same with what documents say that they and their controllers store."""
    said = tuple(each for each in demand.stored if key in each.keys)
    if not said:
        return before
    runs = [each for each in said if each.per_run]
    parts = [(each.at_least, each.at_most, each.because) for each in runs]
    if before is not None:
        value, reached = before.bound.value, before.bound.reached or Quantity.zero
        sure = value if value is not None and before.bound.bound == "exact" else reached
        parts.append((sure.value, None if value is None else value.value, before.bound.because or ""))
    least = Quantity.from_units(sum(each for each, _, _ in parts))
    most = Quantity.from_units(sum(each or 0 for _, each, _ in parts))
    because = next((why for each, least_of_it, why in parts if each != least_of_it), None)
    bound = Bound("exact", most) if least == most else Bound("at-most", most, because, (), least)
    if any(each is None for _, each, _ in parts):
        bound = Bound("unknown", None, next(why for _, each, why in parts if each is None))
    there = Quantity.from_units(sum(each.at_least for each in said))
    once = Quantity.from_units(sum(each.at_least for each in said if not each.per_run))
    good, bad = (Quantity.from_units(sum(each.kept[index] for each in said)) for index in (0, 1))
    at_least = there if before is None else there + before.at_least
    return StoredObjects(bound, at_least, once, good, bad, said)


class MadeKind(NamedTuple):
    """A kind of which objects are made, as rules of webhooks and policies name it."""

    group: str
    resource: str
    labels: Mapping[str, str] | None = None
    """None: not known."""


def made_kinds(demand: Demand) -> list[MadeKind]:
    """What the API server is asked to create beside pods: by the document, its controllers, the engine, a launcher."""
    found = [MadeKind(each.group, each.resource, each.labels) for each in demand.stored if "." not in each.resource]
    keys = set(run_objects(demand))
    gangs = [] if demand.by_itself or not _engines(demand) else demand.steps
    for step in gangs:
        if step.pods > 1 or step.part_of is not None:
            kind = _kind_of(step)
            keys |= {key for key in (_kind_key(kind), JOBS, *SERVICES, *kind.beside) if _object_count(step, key)}
    specs = [each.pod["spec"] for step in demand.steps for each in step.pod_sets]
    if demand.claims or any(claims_of_pod(spec) for spec in specs):
        keys.add("count/persistentvolumeclaims")
    if any(each.get("resourceClaimTemplateName") for spec in specs for each in spec.get("resourceClaims") or ()):
        keys.add("count/resourceclaims.resource.k8s.io")
    if any(QUEUE_LABEL in step.pod["metadata"].get("labels", {}) for step in demand.steps):
        keys.add(COUNTED_WORKLOADS)
    return [*found, *(MadeKind(group, resource) for resource, group in map(kind_of_key, sorted(keys)))]


def _gang_objects(demand: Demand, key: str) -> StoredObjects | None:
    """JobSets, or what else gangs are, and what each of them makes. A launcher leaves them all; an operator of the
    engine's keeps those that failed. Documents that no engine runs say theirs themselves."""
    if demand.by_itself:
        return None
    counts = {step.name: _object_count(step, key) for step in demand.steps}
    counted = [step for step in demand.steps if counts[step.name]]
    # Pods of one step that are not alike may be counted as steps of their own.
    by_launcher = {
        step.part_of or step.name for step in demand.steps if any(each.name == LAUNCHER for each in step.pod_sets)
    }
    launched = [step for step in counted if (step.part_of or step.name) in by_launcher]
    if launched:
        # What goes when a gang has ended may be gone before the next one is made.
        stays = all(kind.leaves_all or key == _kind_key(kind) for kind in map(_kind_of, launched))
        return _count_kept(demand, launched, False, "all" if stays else "unknown", counts)
    operated = counted if _engines(demand) else []
    return _count_failed_kept(operated, _live_copies(demand, operated, counts), counts) if operated else None


def _engines(demand: Demand) -> set[str]:
    return (demand.runs_on.keys() | {demand.engine}) - {NO_ENGINE}


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
    counts: Mapping[str, int] | None = None,
) -> StoredObjects | None:
    kept = kept_pods(demand)
    if kept == "failed":
        return _count_failed_kept(counted, live, counts)
    return _count_kept(demand, counted, with_drivers, kept, counts)


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
    counted: Sequence[StepDemand], live: Bound | None, counts: Mapping[str, int] | None
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
    counts: Mapping[str, int] | None = None,
) -> StoredObjects | None:
    """All that a run leaves behind, and all that it surely does. `counts`: of each step, where it is not its pods."""
    most = least = sure = before = before_most = 0
    unknown: Bound | None = None
    for step in counted:
        pods = step.pods if counts is None else counts[step.name]
        if counts is None and step.of_job is not None:
            # Its pods stay until it is deleted, whatever else is deleted.
            job = step.of_job.times(step.copies)
            sure += job.at_least if step.is_sure else 0
            before, before_most = before + job.kept[0], before_most + job.kept[1]
            if job.at_most is None:
                why = f"how many pods {step.name} makes has no bound: not all failures are counted"
                unknown = unknown or Bound("unknown", None, why, (step.name,))
            most += job.at_most or 0
            continue
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
    at_least = Quantity.from_units(sure + (min(least, 1) if kept == "unknown" else least))
    bound = unknown or Bound("at-most", Quantity.from_units(most), WHY_EVERY_TRY, tuple(step.name for step in counted))
    if unknown is None and not most:
        return None
    return StoredObjects(bound, at_least, kept=Quantity.from_units(before), most_kept=Quantity.from_units(before_most))


Charges = Mapping[str, Mapping[str, Quantity]]
"""What one copy of each step costs, all its pods together, by quota key."""


class QuotaLine(NamedTuple):
    """A line, why its peak is what it is, its quota, and what a run surely leaves behind of it."""

    scope: LimitLine
    bound: Bound
    item: Manifest
    at_least: Quantity
    stored: StoredObjects | None = None
    """Of a key that counts what is stored."""


def limit_lines(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission], runs: int, default_queue: bool
) -> Iterator[QuotaLine]:
    """Each line of each quota that the pipeline touches. `default_queue`: pods that name no queue go to one too."""
    claims = charges_of_claims(run_claims(demand, policy.storage_classes, policy.brought_claims))
    mounted = ephemeral_charges(demand, policy.storage_classes)
    held = ephemeral_peaks(demand, mounted)
    driver, made = driver_admission(demand, policy), run_objects(demand)
    counted: dict[tuple[object, ...], QuotaCounts] = {}
    may_be_capped = demand.pipeline is not None or (demand.keeps_cap and not demand.by_itself)
    for item, quota in policy.quotas:
        if quota.scopes not in counted:
            alike = [other for _, other in policy.quotas if other.scopes == quota.scopes]
            counted[quota.scopes] = _count(demand, alike, admissions, driver)
        own = counted[quota.scopes]
        names = {_demand_key(key) for key in quota.hard}
        peaks = {key: bound for key, bound in own.peaks.items() if key in names}
        if counts_claims(quota):
            peaks |= {
                key: _with_claims(held.get(key), claims.get(key)) for key in {**claims, **held} if key in quota.hard
            }
        stored = stored_objects(demand, own.charges, own.before, quota, own.peaks.get(COUNTED_PODS), default_queue)
        peaks |= {key: each.bound for key, each in stored.items() if key in quota.hard}
        for key in sorted(quota.hard):
            bound, left = peaks.get(_demand_key(key)), stored.get(key)
            kept = left is not None and bool(left.once + left.most_kept)
            if bound is not None and (bound.value is None or bound.value or kept):
                # A gang runs whole or not at all, and a run needs all its claims.
                wholes = (charge.get(_demand_key(key), Quantity.zero) for charge in own.distinct)
                volumes = (charge.get(key, Quantity.zero) for charge in mounted.values())
                together = claims.get(key, Quantity.zero) + max((Quantity.zero, *volumes))
                alone = max(*wholes, together, Quantity.zero)
                tree = None if key in claims or key in held or not may_be_capped else own.tree
                least = left.at_least if left is not None else Quantity.zero
                smallest = None if key in made and made[key].per == "run" else max(alone, least)
                yield QuotaLine(_limit_line(quota, key, bound, tree, runs, smallest, left), bound, item, least, left)


def _with_claims(held: Bound | None, claimed: Quantity | None) -> Bound:
    """What the ephemeral volumes hold at most, and the claims of the run all the time."""
    if held is None:
        return Bound("exact", claimed)
    if claimed is None or held.value is None:
        return held
    reached = None if held.reached is None else held.reached + claimed
    return replace(held, value=held.value + claimed, reached=reached)


class QuotaCounts(NamedTuple):
    """What the steps cost quotas that count the same pods, and the worst moment of each key."""

    charges: Charges
    before: Mapping[str, Quantity]
    """What the engine's driver costs, before a step."""
    distinct: list[Mapping[str, Quantity]]
    """The charges that differ."""
    tree: Any
    peaks: Mapping[str, Bound]


def _count(
    demand: Demand, quotas: Sequence[Quota], admissions: Sequence[StepAdmission], driver: Admission | None
) -> QuotaCounts:
    """Several quotas of a namespace often have keys in common: each key is asked about once."""
    before = {} if driver is None else _charges(driver, quotas)
    known: dict[tuple[bytes | str, int], Usage] = {}  # steps whose pods are alike share one answer
    charges: dict[str, Usage] = {}
    for one in admissions:
        key = (one.shape if one.ever.allowed else one.step.name, one.step.pods)
        if key not in known:
            # The engine's driver ends before the step's own pods start: the larger of the two counts.
            charge = largest_usage((_charges(one.ever, quotas), before))
            known[key] = sum_usages([({_demand_key(name): each for name, each in charge.items()}, one.step.pods)])
        charges[one.step.name] = known[key]
    beside = {_demand_key(name): each for name, each in before.items()}
    charges |= dict.fromkeys(demand.drivers_beside, beside)
    # Gangs whose pods differ run whole or not at all.
    mixed = (sum_usages((charges[part.name], 1) for part in parts) for parts in demand.gangs.values() if len(parts) > 1)
    return QuotaCounts(
        charges,
        before,
        [*known.values(), *mixed],
        tree_of(demand.moments, charges),
        peaks_of(demand.moments, charges, demand.conditional),
    )


def _charges(answer: Admission, quotas: Sequence[Quota]) -> dict[str, Quantity]:
    return {key: amount for quota in quotas for key, amount in charge_of(answer, quota).items()}


def _demand_key(key: str) -> str:
    """The name under which a demand counts a key: `cpu` in a quota is `requests.cpu`."""
    return f"requests.{key}" if key in ALIASES else key


def charge_of(answer: Admission, quota: Quota) -> dict[str, Quantity]:
    """What a pod costs this quota: its totals after the pod when it was empty before."""
    totals = answer.used.get(quota.name) if answer.allowed else answer.usage
    return {key: Quantity(value) for key, value in (totals or {}).items() if key in quota.hard}


def _limit_line(
    quota: Quota, key: str, bound: Bound, tree: Any, runs: int, alone: Quantity | None, left: StoredObjects | None
) -> LimitLine:
    """One line; `alone` is what it must hold at least, None for an object of the engine's own."""
    hard, used = quota.hard[key], quota.used.get(key)
    most, least = (left.once + left.most_kept, left.once + left.kept) if left is not None else (Quantity.zero,) * 2
    peak = None if bound.value is None else bound.value * runs + most
    reached = bound.value if bound.reached is None else bound.reached
    verdict: Verdict
    if (not hard) if alone is None else alone > hard:
        verdict = "never"
    elif used is None:
        verdict = "unknown"
    elif peak is None:
        # Nothing is too much alone, so what is known to be too much together has to wait.
        is_excess = left is None and reached is not None and used + reached * runs > hard
        verdict = "may-queue" if is_excess else "unknown"
    elif used + peak <= hard:
        verdict = "always"
    else:
        # Of a bound that is above what is free, only what is reached can show that a step may wait.
        sure = used if reached is None else used + reached * runs + least
        perhaps = bound.reached is None and most == least
        verdict = "may-queue" if perhaps or sure > hard else "unknown"
    safe = None
    asks = verdict != "always" and runs == 1 and not (left and left.documents) and may_advise()
    if asks and used is not None and tree is not None and not key.startswith("count/"):
        safe = safe_parallel(tree, _demand_key(key), (hard - used).milli)
    return LimitLine("ResourceQuota", quota.name, key, verdict, used, hard, peak, bound.witness, safe)
