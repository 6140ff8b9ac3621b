"""The ResourceQuotas of a namespace against the peak of a pipeline: lines of the report, and why one is not *always*.

Of some quotas it is not known what they say to a step: their usage is not counted yet, or they count what is not
modeled here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from gpuflow.checker.quota.claims import (
    charges_of_claims,
    counts_claims,
    ephemeral_charges,
    ephemeral_peaks,
    run_claims,
    where_of_claims,
)
from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, driver_admission
from gpuflow.checker.quota.stored_objects import (
    COUNTED_PODS,
    COUNTED_WORKLOADS,
    cannot_finish,
    run_objects,
    stored_objects,
)
from gpuflow.checker.report import LimitLine, Verdict
from gpuflow.checker.wording import amount, asking_clause, bounding_hint, waiting_note
from gpuflow.cluster import Manifest
from gpuflow.core.errors import Finding, Where, list_names, warning
from gpuflow.core.work_budget import may_advise
from gpuflow.demands import ALIASES, Bound, Demand, peaks_of
from gpuflow.demands.model import largest_usage, sum_usages
from gpuflow.demands.peaks import Usage, tree_of
from gpuflow.graph import safe_parallel
from gpuflow.kubernetes.admission.decision import Admission
from gpuflow.kubernetes.admission.quota import Quota, QuotaExceeded, UsageUnknown
from gpuflow.kubernetes.resources import read_maps
from gpuflow.quantity import Quantity

Charges = Mapping[str, Mapping[str, Quantity]]
"""What one copy of each step costs, all its pods together, by quota key."""


class QuotaLine(NamedTuple):
    """A line, why its peak is what it is, its quota, and what a run surely leaves behind of it."""

    scope: LimitLine
    bound: Bound
    item: Manifest
    at_least: Quantity


def limit_lines(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission], runs: int, default_queue: bool
) -> Iterator[QuotaLine]:
    """Each line of each quota that the pipeline touches. `default_queue`: pods that name no queue go to one too."""
    claims = charges_of_claims(run_claims(demand, policy.storage_classes))
    mounted = ephemeral_charges(demand, policy.storage_classes)
    held = ephemeral_peaks(demand, mounted)
    driver, made = driver_admission(demand, policy), run_objects(demand)
    counted: dict[tuple[object, ...], QuotaCounts] = {}
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
            bound = peaks.get(_demand_key(key))
            if bound is not None and (bound.value is None or bound.value):
                # A gang runs whole or not at all, and a run needs all its claims.
                wholes = (charge.get(_demand_key(key), Quantity.zero) for charge in own.distinct)
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
    # Gangs whose pods differ run whole or not at all.
    mixed = (sum_usages((charges[part.name], 1) for part in parts) for parts in demand.gangs.values() if len(parts) > 1)
    return QuotaCounts(
        charges,
        before,
        [*known.values(), *mixed],
        tree_of(demand.graph, charges),
        peaks_of(demand.graph, charges, demand.conditional),
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
        safe = safe_parallel(tree, _demand_key(key), (hard - used).milli)
    return LimitLine("ResourceQuota", quota.name, key, verdict, used, hard, peak, bound.witness, safe)


def quota_findings(demand: Demand, line: QuotaLine, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Why a line is not *always*, with the server's own words where a single pod already meets them."""
    scope, bound, item, at_least = line
    made = run_objects(demand).get(scope.resource)
    if at_least > scope.hard and (scope.hard or scope.resource != COUNTED_PODS):
        yield cannot_finish(demand, scope, at_least)
        return
    if made is not None and made.per == "run" and scope.verdict == "never":
        yield Finding(
            "GF501",
            f"the run's own {made.kind} can never be created: quota {scope.name} allows {scope.hard} of "
            f"{scope.resource}",
            item.at("spec", "hard"),
            "run in another namespace, or have the quota raised; no step starts before",
        )
        return
    if scope.verdict == "always" or (scope.verdict == "never" and made is None):
        return  # the step that is too much for a line is named on its own
    words = next(
        (
            one.now.message
            for one in admissions
            for reason in one.now.reasons
            if isinstance(reason, QuotaExceeded | UsageUnknown)
            and reason.quota == scope.name
            and reason.names(scope.resource)
        ),
        None,
    )
    if scope.used is None:
        yield warning(
            "GF576",
            f"quota {scope.name} does not report yet how much of {scope.resource} is in use: what it leaves is unknown",
            item.at("status", "used"),
            "take the snapshot again when Kubernetes has caught up",
            kubernetes=words,
        )
        return
    where = (
        demand.where(scope.witness[0]) if scope.witness else Where() if made is not None else where_of_claims(demand)
    )
    left = max(scope.hard - scope.used, Quantity.zero)
    if scope.peak is None:
        yield warning(
            "GF514",
            f"{scope.resource}: the worst moment is unknown: {bound.because}",
            where,
            bounding_hint(demand, f'"{bound.witness[0]}"' if bound.witness else "the fan-out"),
        )
        return
    if scope.verdict == "unknown" and bound.reached is not None:
        hint = "give the pipeline a parallel cap, or a quota for the most that it may hold"
        if scope.safe_parallelism is not None:
            hint = f"with parallel: {scope.safe_parallelism} this line of the quota always has room"
        yield warning(
            "GF514",
            f"{scope.resource}: quota {scope.name} leaves {left} of {scope.hard}, and the worst moment is at most "
            f"{scope.peak}, perhaps less: {bound.because}",
            where,
            hint,
        )
        return
    if scope.witness:
        together = asking_clause(scope.witness)
    else:
        together = "the claims of the run ask" if made is None else f"the run's own {made.kind} asks"
    left_behind = scope.resource in (COUNTED_PODS, COUNTED_WORKLOADS) or (made is not None and made.per == "pod")
    hint = waiting_note(demand, "objects" if left_behind else "quota", scope.witness)
    if made is not None and made.per == "run":
        hint = f"nothing asks again: while old ones are kept, no run starts; delete some {made.kind}s first"
    most = amount(scope.peak) if bound.reached is None else f"up to {amount(scope.peak)}"
    yield warning(
        "GF512",
        f"{together} for {most} of {scope.resource}; quota {scope.name} leaves {amount(left)} of {amount(scope.hard)}",
        where,
        hint,
        kubernetes=words,
    )


CLAIMS_KEY = "count/resourceclaims.resource.k8s.io"
BY_DEVICE_CLASS = (".deviceclass.resource.k8s.io/", "requests.deviceclass.resource.kubernetes.io/")


def unknown_usage(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission], lines: Sequence[LimitLine]
) -> Iterator[Finding]:
    """Why it is not known whether the quotas let the pipeline pass."""
    yield from _unknown_usage_findings(policy, admissions, lines)
    yield from _devices(demand, policy, admissions)
    yield from _default_class(policy, admissions)


def _unknown_usage_findings(
    policy: NamespacePolicy, admissions: Sequence[StepAdmission], lines: Sequence[LimitLine]
) -> Iterator[Finding]:
    """A quota without usage for one of its keys refuses every pod that it is for, whatever the pod asks for."""
    reported = {scope.name for scope in lines if scope.kind == "ResourceQuota" and scope.used is None}
    for item, quota in policy.quotas:
        missing = [key for key in quota.tracked if key not in quota.used]
        words = next((one.now.message for one in admissions if _waits_for_usage(one, quota)), None)
        if missing and words and quota.name not in reported:
            yield warning(
                "GF576",
                f"quota {quota.name} does not report yet how much of {missing[0]} is in use: until it does, Kubernetes "
                "refuses every pod that it counts",
                item.at("status", "used"),
                "take the snapshot again when Kubernetes has caught up",
                kubernetes=words,
            )


def _waits_for_usage(one: StepAdmission, quota: Quota) -> bool:
    return any(isinstance(each, UsageUnknown) and each.quota == quota.name for each in one.now.reasons)


def _devices(demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Claims for devices are made with the pods of a step, and quotas count them on their own."""
    claiming = [one.step.name for one in admissions if _makes_claims(one)]
    for _, quota in policy.quotas if claiming else ():
        keys = [key for key in sorted(quota.hard) if key == CLAIMS_KEY or any(word in key for word in BY_DEVICE_CLASS)]
        if keys and not quota.scopes:
            yield warning(
                "GF535",
                f"{list_names(claiming)}: it is unknown whether quota {quota.name} has room for the claimed devices; "
                f"not modeled: {', '.join(keys)}",
                demand.where(claiming[0]),
                "compare the key with what the ResourceClaimTemplate asks for, times the pods that run at once",
            )


def _makes_claims(one: StepAdmission) -> bool:
    claims = read_maps(one.step.pod["spec"].get("resourceClaims"), "spec.resourceClaims")
    return any(each.get("resourceClaimTemplateName") for each in claims)


def _default_class(policy: NamespacePolicy, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Which quota a pod without a priority class counts in depends on the default class, when no class is known."""
    if policy.priority_classes is not None:
        return
    plain = [one.step.name for one in admissions if not one.step.pod["spec"].get("priorityClassName")]
    for item, quota in policy.quotas if plain else ():
        if quota.tracked and any(scope.name == "PriorityClass" for scope in quota.scopes):
            yield warning(
                "GF573",
                f"{list_names(plain)}: it is unknown whether quota {quota.name} counts it, because the snapshot has no "
                "PriorityClass objects and one of them may be the default",
                item.at("spec"),
                "add the cluster's PriorityClasses to the snapshot, or give the step a priority",
            )
