"""Volume claims before the API server: what quotas charge for them, which are always refused, which nothing ever fills.

These are the claims that a run makes, those of ephemeral volumes (Kubernetes makes one for each pod, and deletes it
with the pod, not when it ends), and those that steps mount and that may not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.cluster import Cluster
from gpuflow.core.errors import Finding, Where, did_you_mean, warning
from gpuflow.demands import Bound, Demand, StepDemand, peaks_of
from gpuflow.demands.model import sum_usages
from gpuflow.demands.peaks import Usage
from gpuflow.kubernetes.admission.field_errors import join_clauses, sentences
from gpuflow.kubernetes.admission.limit_range import broken_claim_bounds, read_limit_range
from gpuflow.kubernetes.admission.quota import Quota
from gpuflow.kubernetes.admission.usage import claims_of_pod, usage_of_claim
from gpuflow.kubernetes.resources import read_map, read_maps
from gpuflow.quantity import Quantity

DEFAULT_MARKS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)
BY_CLASS: Final = ".storageclass.storage.k8s.io/"
"""Stands in every quota key that counts the claims of one storage class."""

Claims = Mapping[str, Mapping[str, Any]]
"""Manifests of claims, by the names the pipeline gives them."""


def run_claims(demand: Demand, classes: Sequence[Mapping[str, Any]] | None) -> Claims:
    """The claims of one run as they are stored: one that names no storage class gets the cluster's default."""
    default = default_class(classes or ())
    found = {}
    for claim in demand.claims:
        given = {} if claim.storage_class is not None or default is None else {"storageClassName": default}
        found[claim.name] = {**claim.manifest, "spec": {**claim.manifest["spec"], **given}}
    return found


def default_class(classes: Iterable[Mapping[str, Any]]) -> str | None:
    """The storage class that a claim without one gets: the newest that is marked, and of equals the first by name."""
    marked = [body for body in classes if is_default(body)]
    newest = max((_created_at(body) for body in marked), default="")
    return min((_name(body) for body in marked if _created_at(body) == newest), default=None)


def is_default(body: Mapping[str, Any]) -> bool:
    annotations = read_map(read_map(body.get("metadata"), "metadata").get("annotations"), "metadata.annotations")
    return any(annotations.get(mark) == "true" for mark in DEFAULT_MARKS)


def _name(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("metadata"), "metadata").get("name") or "")


def _created_at(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("metadata"), "metadata").get("creationTimestamp") or "")


def charges_of_claims(claims: Claims) -> Usage:
    """What a run's claims cost together, per quota key; they live as long as the run."""
    return sum_usages((usage_of_claim(claim), 1) for claim in claims.values())


def counts_claims(quota: Quota) -> bool:
    """Whether a quota counts claims: one with scopes counts pods alone, unless it is for claims without a class."""
    return all(
        scope.name == "VolumeAttributesClass" and scope.operator in ("NotIn", "DoesNotExist") for scope in quota.scopes
    )


def refused_claims(
    demand: Demand, claims: Claims, quotas: Iterable[Quota], limit_ranges: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """Claims that the namespace refuses even when it is empty: no step that mounts one ever starts."""
    for own in demand.claims:
        who, subject = f'claim "{own.name}"', f'persistentvolumeclaims "{own.name}"'
        yield from _refused_sizes(claims[own.name], who, subject, own.size_where, limit_ranges)
    charges = charges_of_claims(claims)
    for quota in filter(counts_claims, quotas):
        for key in sorted(charges.keys() & quota.hard.keys()):
            if charges[key] > quota.hard[key]:
                who = f'claim "{next(iter(claims))}" asks' if len(claims) == 1 else "the claims of one run ask"
                yield Finding(
                    "GF501",
                    f"{who} for {charges[key]} of {key}, and quota {quota.name} allows at most {quota.hard[key]}",
                    where_of_claims(demand),
                    "ask for less in claims, or have the quota raised",
                )


def unknown_classes(demand: Demand, quotas: Iterable[Quota], source: str) -> Iterator[Finding]:
    """Quotas that count by storage class, where the snapshot does not say which class a claim gets."""
    nameless = [claim.name for claim in demand.claims if claim.storage_class is None]
    for step in demand.steps:
        made = claims_of_pod(step.pod["spec"])
        nameless += [name for name, claim in made if "storageClassName" not in claim["spec"]]
    for quota in filter(counts_claims, quotas) if nameless else ():
        keys = [key for key in sorted(quota.hard) if BY_CLASS in key]
        if keys:
            yield warning(
                "GF573",
                f'claim "{nameless[0]}" names no storage class and the snapshot has none: it is not known whether '
                f"{keys[0]} of quota {quota.name} counts it",
                Where(source),
                "give the claim a storage_class, or add the cluster's StorageClasses to the snapshot",
            )
            return


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
            who = f'step "{step.name}": the claim of its volume {name}'
            yield from _refused_sizes(claim, who, "persistentvolumeclaims", demand.where(step.name), limit_ranges)
            yield from _unfilled_ephemeral(demand, step, name, claim, classes)


def _refused_sizes(
    claim: Mapping[str, Any], who: str, subject: str, where: Where, limit_ranges: Sequence[Mapping[str, Any]]
) -> Iterator[Finding]:
    """What LimitRanges say to a claim, which is called `who` here and `subject` by Kubernetes."""
    for limit_range in map(read_limit_range, limit_ranges):
        broken = broken_claim_bounds(claim, limit_range)
        if broken:
            yield Finding(
                "GF502",
                f"{who} can never be created: LimitRange {limit_range.name} refuses its size",
                where,
                "stay within the namespace's LimitRange, or have it changed",
                kubernetes=f"{subject} is forbidden: {join_clauses(sentences(broken))}",
            )


def _unfilled_ephemeral(
    demand: Demand, step: StepDemand, name: str, claim: Mapping[str, Any], classes: Classes
) -> Iterator[Finding]:
    if classes is None:
        return
    names = sorted(map(_name, classes))
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


def pending_claims(
    demand: Demand, cluster: Cluster, namespace: str, admissions: Sequence[StepAdmission]
) -> Iterator[Finding]:
    """A finding for each volume that keeps its pod pending forever, as far as the snapshot can tell."""
    yield from _unfilled_claims(demand, cluster)
    yield from _missing_claims(demand, cluster, namespace, admissions)


def _unfilled_claims(demand: Demand, cluster: Cluster) -> Iterator[Finding]:
    """Claims of the run whose storage class makes no volumes because it does not exist."""
    classes = cluster.bodies("StorageClass")
    if classes is None:
        return
    names = sorted(_name(body) for body in classes)
    ready = {_class_of(volume.body) for volume in cluster.of("PersistentVolume")}
    for claim in demand.claims:
        name, wanted = claim.name, claim.storage_class
        if wanted is None and not any(map(is_default, classes)) and "" not in ready:
            yield Finding(
                "GF561",
                f'claim "{name}" names no storage class, and the cluster has no default: it stays pending',
                claim.where,
                f"give it storage_class: {' or '.join(names)}" if names else "create a StorageClass",
                kubernetes="no persistent volumes available for this claim and no storage class is set",
            )
        elif wanted and wanted not in names and wanted not in ready:
            known = did_you_mean(wanted, names) or f"the cluster has {', '.join(names) or 'none'}"
            yield Finding(
                "GF561",
                f'claim "{name}" asks for storage class {wanted}, which does not exist: it stays pending',
                claim.class_where,
                known,
                kubernetes=f'storageclass.storage.k8s.io "{wanted}" not found',
            )


def _missing_claims(
    demand: Demand, cluster: Cluster, namespace: str, admissions: Sequence[StepAdmission]
) -> Iterator[Finding]:
    """Claims that steps mount and that the namespace does not have."""
    claims = cluster.bodies("PersistentVolumeClaim", namespace)
    if claims is None:
        return
    names = sorted(_name(body) for body in claims)
    own = {claim.volume for claim in demand.claims}
    wanted: dict[str, list[str]] = {}
    for one in admissions:
        for volume in read_maps(one.step.pod["spec"].get("volumes"), "spec.volumes"):
            claim = read_map(volume.get("persistentVolumeClaim"), "persistentVolumeClaim").get("claimName")
            if claim is not None and volume["name"] not in own and claim not in names:
                wanted.setdefault(claim, []).append(one.step.name)
    for claim, steps in wanted.items():
        who = f'step "{steps[0]}" mounts' if len(steps) == 1 else f"steps {', '.join(steps)} mount"
        yield Finding(
            "GF561",
            f"{who} the claim {claim}, which does not exist in {namespace}: the pod stays pending",
            demand.where(steps[0]),
            did_you_mean(claim, names) or "create the claim first",
            kubernetes=f'persistentvolumeclaim "{claim}" not found',
        )


def _class_of(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("spec"), "spec").get("storageClassName") or "")
