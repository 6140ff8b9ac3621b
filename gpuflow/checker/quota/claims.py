"""Volume claims before the API server: what quotas charge for them, which are always refused, which nothing ever fills.

These are the claims that a run makes, those of ephemeral volumes (Kubernetes makes one for each pod, and deletes it
with the pod, not when it ends), and those that steps mount and that may not exist.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuflow.core.errors import Where
from gpuflow.demands import Bound, Demand, peaks_of
from gpuflow.demands.model import sum_usages
from gpuflow.demands.peaks import Usage
from gpuflow.kubernetes.admission.classes import default_class, name_of
from gpuflow.kubernetes.admission.quota import Quota
from gpuflow.kubernetes.admission.usage import claims_of_pod, usage_of_claim
from gpuflow.kubernetes.resources import read_map, read_maps
from gpuflow.quantity import Quantity

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
