"""Quotas in the report: why a line is not *always*."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.quota.claims import where_of_claims
from gpuflow.checker.quota.lines import QuotaLine
from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.checker.quota.stored_objects import COUNTED_PODS, COUNTED_WORKLOADS, cannot_finish, run_objects
from gpuflow.checker.wording import amount, asking, bounding, waiting
from gpuflow.demands import Demand
from gpuflow.errors import Finding, Where
from gpuflow.kubernetes.admission.quota import Exceeded, UsageUnknown
from gpuflow.quantity import Quantity


def _quoted(witness: Sequence[str]) -> str:
    return f'"{witness[0]}"' if witness else "the fan-out"


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
            if isinstance(reason, Exceeded | UsageUnknown)
            and reason.quota == scope.name
            and reason.names(scope.resource)
        ),
        None,
    )
    if scope.used is None:
        yield Finding(
            "GF576",
            f"quota {scope.name} does not report yet how much of {scope.resource} is in use: what it leaves is unknown",
            item.at("status", "used"),
            "take the snapshot again when Kubernetes has caught up",
            severity="warning",
            kubernetes=words,
        )
        return
    where = (
        demand.where(scope.witness[0]) if scope.witness else Where() if made is not None else where_of_claims(demand)
    )
    left = max(scope.hard - scope.used, Quantity.zero)
    if scope.peak is None:
        yield Finding(
            "GF514",
            f"{scope.resource}: the worst moment is unknown: {bound.because}",
            where,
            bounding(demand, _quoted(bound.witness)),
            severity="warning",
        )
        return
    if scope.verdict == "unknown" and bound.reached is not None:
        way_out = "give the pipeline a parallel cap, or a quota for the most that it may hold"
        if scope.safe_parallelism is not None:
            way_out = f"with parallel: {scope.safe_parallelism} this line of the quota always has room"
        yield Finding(
            "GF514",
            f"{scope.resource}: quota {scope.name} leaves {left} of {scope.hard}, and the worst moment is at most "
            f"{scope.peak}, perhaps less: {bound.because}",
            where,
            way_out,
            severity="warning",
        )
        return
    if scope.witness:
        together = asking(scope.witness)
    else:
        together = "the claims of the run ask" if made is None else f"the run's own {made.kind} asks"
    left_behind = scope.resource in (COUNTED_PODS, COUNTED_WORKLOADS) or (made is not None and made.per == "pod")
    hint = waiting(demand, "objects" if left_behind else "quota", scope.witness)
    if made is not None and made.per == "run":
        hint = f"nothing asks again: while old ones are kept, no run starts; delete some {made.kind}s first"
    most = amount(scope.peak) if bound.reached is None else f"up to {amount(scope.peak)}"
    yield Finding(
        "GF512",
        f"{together} for {most} of {scope.resource}; quota {scope.name} leaves {amount(left)} of {amount(scope.hard)}",
        where,
        hint,
        severity="warning",
        kubernetes=words,
    )
