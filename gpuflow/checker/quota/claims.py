"""The claims of a run before the API server: what quotas charge for them, and which are always refused."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuflow.demands import Demand
from gpuflow.errors import Finding, Where
from gpuflow.kubernetes.admission import Quota, usage_of_claim
from gpuflow.kubernetes.admission.clauses import join_clauses, sentences
from gpuflow.kubernetes.admission.limit_range import broken_claim_bounds, read_limit_range
from gpuflow.kubernetes.ephemeral_claims import claims_of_pod
from gpuflow.quantity import Quantity
from gpuflow.resources import read_map

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
    newest = max((_made(body) for body in marked), default="")
    return min((_name(body) for body in marked if _made(body) == newest), default=None)


def is_default(body: Mapping[str, Any]) -> bool:
    annotations = read_map(read_map(body.get("metadata"), "metadata").get("annotations"), "metadata.annotations")
    return any(annotations.get(mark) == "true" for mark in DEFAULT_MARKS)


def _name(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("metadata"), "metadata").get("name") or "")


def _made(body: Mapping[str, Any]) -> str:
    return str(read_map(body.get("metadata"), "metadata").get("creationTimestamp") or "")


def charges_of_claims(claims: Claims) -> dict[str, Quantity]:
    """What a run's claims cost together, per quota key; they live as long as the run."""
    total: dict[str, Quantity] = {}
    for claim in claims.values():
        for key, amount in usage_of_claim(claim).items():
            total[key] = total.get(key, Quantity.zero) + amount
    return total


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
        name = own.name
        for limit_range in map(read_limit_range, limit_ranges):
            broken = broken_claim_bounds(claims[name], limit_range)
            if broken:
                words = join_clauses(sentences(broken))
                yield Finding(
                    "GF502",
                    f'claim "{name}" can never be created: LimitRange {limit_range.name} refuses its size',
                    own.size_where,
                    "stay within the namespace's LimitRange, or have it changed",
                    kubernetes=f'persistentvolumeclaims "{name}" is forbidden: {words}',
                )
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
            yield Finding(
                "GF573",
                f'claim "{nameless[0]}" names no storage class and the snapshot has none: it is not known whether '
                f"{keys[0]} of quota {quota.name} counts it",
                Where(source),
                "give the claim a storage_class, or add the cluster's StorageClasses to the snapshot",
                severity="warning",
            )
            return


def where_of_claims(demand: Demand) -> Where:
    """Where the first claim of the pipeline is written."""
    return demand.claims[0].where if demand.claims else Where()
