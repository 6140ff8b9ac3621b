"""The claims of ephemeral volumes: Kubernetes makes one for each pod, and deletes it with the pod, not when it ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuflow.checker.quota.claims import default_class
from gpuflow.demands import Bound, Demand, StepDemand, peaks_of
from gpuflow.demands.model import summed
from gpuflow.demands.peaks import Usage
from gpuflow.errors import Finding
from gpuflow.kubernetes.admission import usage_of_claim
from gpuflow.kubernetes.admission.clauses import join_clauses, sentences
from gpuflow.kubernetes.admission.limit_range import broken_claim_bounds, read_limit_range
from gpuflow.kubernetes.ephemeral_claims import claims_of_pod
from gpuflow.quantity import Quantity

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
            found[step.name] = summed(parts)
    return found


def ephemeral_peaks(demand: Demand, charges: Mapping[str, Usage]) -> dict[str, Bound]:
    """The most that these claims hold at once: those of running pods, and of finished ones that are kept."""
    if not charges:
        return {}
    live = peaks_of(demand.graph, {step.name: charges.get(step.name, {}) for step in demand.steps}, demand.conditional)
    collected = demand.keeps_pods == "failed" or demand.pods_collected
    return {key: _kept(demand, bound, charges, key, collected) for key, bound in live.items()}


def _kept(demand: Demand, live: Bound, charges: Mapping[str, Usage], key: str, collected: bool) -> Bound:
    """With the pods that stay: all of a run, or where the engine deletes pods that succeeded, those that failed."""
    total = Quantity.zero
    for step in demand.steps:
        amount = charges.get(step.name, {}).get(key)
        if amount is None:
            continue
        if step.copies is None:
            return Bound("unknown", None, f"how many copies {step.name} has is only known in the run", (step.name,))
        total = total + amount * (step.copies * (step.tries - 1 if collected else step.tries))
    if not collected:
        because = "the claim of an ephemeral volume is deleted with its pod, and finished pods may be kept"
        return live if live.value == total else Bound("at-most", total, because, live.witness, live.value)
    if not total or live.value is None:
        return live
    because = "the claim of an ephemeral volume is deleted with its pod, and failed pods are kept"
    return Bound("at-most", live.value + total, because, live.witness, live.value)


def refused_ephemeral_volumes(
    demand: Demand, limit_ranges: Sequence[Mapping[str, Any]], classes: Classes
) -> Iterator[Finding]:
    """Ephemeral volumes whose claims the namespace refuses, or that no storage class fills: the pod stays pending."""
    default = default_class(classes or ())
    for step in demand.steps:
        for name, claim in claims_of_pod(step.pod["spec"], default):
            yield from _refused(demand, step, name, claim, limit_ranges)
            yield from _unfilled(demand, step, name, claim, classes)


def _refused(
    demand: Demand, step: StepDemand, name: str, claim: Mapping[str, Any], limit_ranges: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    for limit_range in map(read_limit_range, limit_ranges):
        broken = broken_claim_bounds(claim, limit_range)
        if broken:
            yield Finding(
                "GF502",
                f'step "{step.name}": the claim of its volume {name} can never be created: LimitRange '
                f"{limit_range.name} refuses its size",
                demand.where(step.name),
                "stay within the namespace's LimitRange, or have it changed",
                kubernetes=f"persistentvolumeclaims is forbidden: {join_clauses(sentences(broken))}",
            )


def _unfilled(
    demand: Demand, step: StepDemand, name: str, claim: Mapping[str, Any], classes: Classes
) -> Iterator[Finding]:
    if classes is None:
        return
    names = sorted(str((body.get("metadata") or {}).get("name") or "") for body in classes)
    wanted = claim["spec"].get("storageClassName")
    if wanted in names or wanted == "":
        return
    what = "names no storage class, and the cluster has no default" if wanted is None else f"asks for {wanted}"
    yield Finding(
        "GF561",
        f'step "{step.name}": its ephemeral volume {name} {what}{"" if wanted is None else ", which does not exist"}: '
        "the pod stays pending",
        demand.where(step.name),
        f"give it storage_class: {' or '.join(names)}" if names else "create a StorageClass",
    )
