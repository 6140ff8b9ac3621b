"""The lines of a namespace's ResourceQuotas against the peak of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gpuflow.checker.quota.claims import charges_of_claims, counts_claims, run_claims
from gpuflow.checker.quota.ephemeral_volumes import ephemeral_charges, ephemeral_peaks
from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, driver_admission
from gpuflow.checker.quota.stored_objects import COUNTED_PODS, run_objects, stored_objects
from gpuflow.checker.report import LimitLine, Verdict
from gpuflow.cluster import Manifest
from gpuflow.demands import ALIASES, Bound, Demand, peaks_of
from gpuflow.demands.model import summed
from gpuflow.demands.peaks import Usage, tree_of
from gpuflow.graph import safe_parallel
from gpuflow.kubernetes.admission import Admission, Quota
from gpuflow.quantity import Quantity
from gpuflow.work import may_advise

Charges = Mapping[str, Mapping[str, Quantity]]
"""What one copy of each step costs, all its pods together, by quota key."""


class QuotaLine(NamedTuple):
    """A line, why its peak is what it is, its quota, and what a run surely leaves behind of it."""

    scope: LimitLine
    bound: Bound
    item: Manifest
    at_least: Quantity


def limit_lines(
    demand: Demand,
    policy: NamespacePolicy,
    admissions: Sequence[StepAdmission],
    runs: int,
    default_queue: bool = False,
) -> Iterator[QuotaLine]:
    """Each line of each quota that the pipeline touches. `default_queue`: pods that name no queue go to one too."""
    claims = charges_of_claims(run_claims(demand, policy.storage_classes))
    mounted = ephemeral_charges(demand, policy.storage_classes)
    held = ephemeral_peaks(demand, mounted)
    driver, made = driver_admission(demand, policy), run_objects(demand)
    counted: dict[tuple[object, ...], Counted] = {}
    for item, quota in policy.quotas:
        if quota.scopes not in counted:
            alike = [other for _, other in policy.quotas if other.scopes == quota.scopes]
            counted[quota.scopes] = _count(demand, alike, admissions, driver)
        own = counted[quota.scopes]
        peaks = {key: bound for key, bound in own.peaks.items() if _is_counted(key, quota)}
        if counts_claims(quota):
            peaks |= {
                key: _with_claims(held.get(key), claims.get(key)) for key in {**claims, **held} if key in quota.hard
            }
        stored = stored_objects(demand, own.charges, own.before, quota, own.peaks.get(COUNTED_PODS), default_queue)
        peaks |= {key: each.bound for key, each in stored.items() if key in quota.hard}
        for key in sorted(quota.hard):
            bound = peaks.get(_counted(key))
            if bound is not None and (bound.value is None or bound.value):
                # A gang runs whole or not at all, and a run needs all its claims.
                wholes = (charge.get(_counted(key), Quantity.zero) for charge in own.distinct)
                volumes = (charge.get(key, Quantity.zero) for charge in mounted.values())
                together = claims.get(key, Quantity.zero) + max((Quantity.zero, *volumes))
                alone = max(*wholes, together, Quantity.zero)
                tree = None if key in claims or key in held else own.tree
                least = stored[key].at_least if key in stored else Quantity.zero
                smallest = None if key in made and made[key].per == "run" else max(alone, least)
                yield QuotaLine(_limit_line(quota, key, bound, tree, runs, smallest), bound, item, least)


def _with_claims(held: Bound | None, claimed: Quantity | None) -> Bound:
    """What the ephemeral volumes hold at most, and the claims of the run all the time."""
    if held is None:
        return Bound("exact", claimed)
    if claimed is None or held.value is None:
        return held
    reached = None if held.reached is None else held.reached + claimed
    return replace(held, value=held.value + claimed, reached=reached)


class Counted(NamedTuple):
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
) -> Counted:
    """Several quotas of a namespace often have keys in common: each key is asked about once."""
    before = {} if driver is None else _charges(driver, quotas)
    known: dict[tuple[bytes | str, int], Usage] = {}  # steps whose pods are alike share one answer
    charges: dict[str, Usage] = {}
    for one in admissions:
        key = (one.shape if one.ever.allowed else one.step.name, one.step.pods)
        if key not in known:
            known[key] = summed([(_step_charge(_charges(one.ever, quotas), before), one.step.pods)])
        charges[one.step.name] = known[key]
    return Counted(
        charges,
        before,
        [*known.values(), *_mixed_gangs(demand, charges)],
        tree_of(demand.graph, charges),
        peaks_of(demand.graph, charges, demand.conditional),
    )


def _mixed_gangs(demand: Demand, charges: Charges) -> Iterator[Usage]:
    """What gangs cost whose pods differ: they run whole or not at all."""
    return (summed((charges[part.name], 1) for part in parts) for parts in demand.gangs.values() if len(parts) > 1)


def _charges(answer: Admission, quotas: Sequence[Quota]) -> dict[str, Quantity]:
    return {key: amount for quota in quotas for key, amount in _charge(answer, quota).items()}


def _is_counted(key: str, quota: Quota) -> bool:
    return any(_counted(each) == key for each in quota.hard)


def _counted(key: str) -> str:
    """The name under which a demand counts a key: `cpu` in a quota is `requests.cpu`."""
    return f"requests.{key}" if key in ALIASES else key


def _step_charge(own: Mapping[str, Quantity], before: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The larger of what the engine's driver and the step's own pod cost: the one ends before the other starts."""
    both = {key: max(own.get(key, Quantity.zero), before.get(key, Quantity.zero)) for key in {**own, **before}}
    return {_counted(key): amount for key, amount in both.items()}


def charge_of(one: StepAdmission, quota: Quota) -> dict[str, Quantity]:
    """What the step's pod costs this quota: its totals after the pod when it was empty before."""
    return _charge(one.ever, quota)


def _charge(answer: Admission, quota: Quota) -> dict[str, Quantity]:
    totals = answer.used.get(quota.name) if answer.allowed else answer.usage
    return {key: Quantity(value) for key, value in (totals or {}).items() if key in quota.hard}


def _limit_line(quota: Quota, key: str, bound: Bound, tree: Any, runs: int, alone: Quantity | None) -> LimitLine:
    """One line; `alone` is what it must hold at least, None for an object of the engine's own."""
    hard, used = quota.hard[key], quota.used.get(key)
    peak = None if bound.value is None else bound.value * runs
    verdict: Verdict
    if (not hard) if alone is None else alone > hard:
        verdict = "never"
    elif peak is None or used is None:
        verdict = "unknown"
    elif used + peak <= hard:
        verdict = "always"
    else:
        # Of a bound that is above what is free, only what is reached can show that a step may wait.
        verdict = "may-queue" if bound.reached is None or used + bound.reached * runs > hard else "unknown"
    safe = None
    asks = verdict != "always" and runs == 1 and may_advise()
    if asks and used is not None and tree is not None and not key.startswith("count/"):
        safe = safe_parallel(tree, _counted(key), (hard - used).milli)
    return LimitLine("ResourceQuota", quota.name, key, verdict, used, hard, peak, bound.witness, safe)
