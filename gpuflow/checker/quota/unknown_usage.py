"""Quotas of which it is not known what they say to a step: their usage is not counted yet, or they count what is not
weighed here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.quota.namespace import Judged, Surroundings
from gpuflow.checker.report import Scope
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding
from gpuflow.resources import read_maps

CLAIMED = "count/resourceclaims.resource.k8s.io"
BY_DEVICE_CLASS = (".deviceclass.resource.k8s.io/", "requests.deviceclass.resource.kubernetes.io/")


def open_quotas(
    demand: Demand, around: Surroundings, judged: Sequence[Judged], lines: Sequence[Scope]
) -> Iterator[Finding]:
    """Why it is not known whether the quotas let the pipeline pass."""
    yield from _uncounted(around, judged, lines)
    yield from _devices(demand, around, judged)
    yield from _default_class(demand, around, judged)


def _uncounted(around: Surroundings, judged: Sequence[Judged], lines: Sequence[Scope]) -> Iterator[Finding]:
    """A quota without usage for one of its keys refuses every pod that it is for, whatever the pod asks for."""
    said = {scope.name for scope in lines if scope.kind == "ResourceQuota" and scope.used is None}
    for item, quota in around.quotas:
        missing = [key for key in quota.tracked if key not in quota.used]
        sentence = f"status unknown for quota: {quota.name}, "
        words = next((one.now.message for one in judged if sentence in (one.now.message or "")), None)
        if missing and words and quota.name not in said:
            yield Finding(
                "GF576",
                f"quota {quota.name} does not say yet how much of {missing[0]} is in use: until then Kubernetes "
                "refuses every pod that it counts",
                item.at("status", "used"),
                "take the snapshot again when Kubernetes has caught up",
                severity="warning",
                kubernetes=words,
            )


def _devices(demand: Demand, around: Surroundings, judged: Sequence[Judged]) -> Iterator[Finding]:
    """Claims for devices are made with the pods of a step, and quotas count them on their own."""
    claiming = [one.step.name for one in judged if _makes_claims(one)]
    for _, quota in around.quotas if claiming else ():
        keys = [key for key in sorted(quota.hard) if key == CLAIMED or any(word in key for word in BY_DEVICE_CLASS)]
        if keys and not quota.scopes:
            yield Finding(
                "GF535",
                f"{listed(claiming)}: whether quota {quota.name} has room for the devices it claims is unknown; not "
                f"weighed: {', '.join(keys)}",
                where_of(demand, claiming[0]),
                "compare the key with what the ResourceClaimTemplate asks for, times the pods that run at once",
                severity="warning",
            )


def _makes_claims(one: Judged) -> bool:
    claims = read_maps(one.step.pod["spec"].get("resourceClaims"), "spec.resourceClaims")
    return any(each.get("resourceClaimTemplateName") for each in claims)


def _default_class(demand: Demand, around: Surroundings, judged: Sequence[Judged]) -> Iterator[Finding]:
    """Which quota a pod without a priority class counts in hangs on the default class, when no class is known."""
    if around.priority_classes is not None:
        return
    plain = [one.step.name for one in judged if not one.step.pod["spec"].get("priorityClassName")]
    for item, quota in around.quotas if plain else ():
        if quota.tracked and any(scope.name == "PriorityClass" for scope in quota.scopes):
            yield Finding(
                "GF573",
                f"{listed(plain)}: whether quota {quota.name} counts it is not known, because the snapshot has no "
                "PriorityClass objects and one of them may be the default",
                item.at("spec"),
                "add the cluster's PriorityClasses to the snapshot, or give the step a priority",
                severity="warning",
            )
