"""Quotas of which it is not known what they say to a step: their usage is not counted yet, or they count what is not
modeled here."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission
from gpuflow.checker.report import LimitLine
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding
from gpuflow.kubernetes.admission.quota import Quota, UsageUnknown
from gpuflow.resources import read_maps

CLAIMED = "count/resourceclaims.resource.k8s.io"
BY_DEVICE_CLASS = (".deviceclass.resource.k8s.io/", "requests.deviceclass.resource.kubernetes.io/")


def unknown_usage(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission], lines: Sequence[LimitLine]
) -> Iterator[Finding]:
    """Why it is not known whether the quotas let the pipeline pass."""
    yield from _uncounted(policy, admissions, lines)
    yield from _devices(demand, policy, admissions)
    yield from _default_class(demand, policy, admissions)


def _uncounted(
    policy: NamespacePolicy, admissions: Sequence[StepAdmission], lines: Sequence[LimitLine]
) -> Iterator[Finding]:
    """A quota without usage for one of its keys refuses every pod that it is for, whatever the pod asks for."""
    reported = {scope.name for scope in lines if scope.kind == "ResourceQuota" and scope.used is None}
    for item, quota in policy.quotas:
        missing = [key for key in quota.tracked if key not in quota.used]
        words = next((one.now.message for one in admissions if _waits_for_usage(one, quota)), None)
        if missing and words and quota.name not in reported:
            yield Finding(
                "GF576",
                f"quota {quota.name} does not report yet how much of {missing[0]} is in use: until it does, Kubernetes "
                "refuses every pod that it counts",
                item.at("status", "used"),
                "take the snapshot again when Kubernetes has caught up",
                severity="warning",
                kubernetes=words,
            )


def _waits_for_usage(one: StepAdmission, quota: Quota) -> bool:
    return any(isinstance(each, UsageUnknown) and each.quota == quota.name for each in one.now.reasons)


def _devices(demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Claims for devices are made with the pods of a step, and quotas count them on their own."""
    claiming = [one.step.name for one in admissions if _makes_claims(one)]
    for _, quota in policy.quotas if claiming else ():
        keys = [key for key in sorted(quota.hard) if key == CLAIMED or any(word in key for word in BY_DEVICE_CLASS)]
        if keys and not quota.scopes:
            yield Finding(
                "GF535",
                f"{listed(claiming)}: it is unknown whether quota {quota.name} has room for the claimed devices; not "
                f"modeled: {', '.join(keys)}",
                where_of(demand, claiming[0]),
                "compare the key with what the ResourceClaimTemplate asks for, times the pods that run at once",
                severity="warning",
            )


def _makes_claims(one: StepAdmission) -> bool:
    claims = read_maps(one.step.pod["spec"].get("resourceClaims"), "spec.resourceClaims")
    return any(each.get("resourceClaimTemplateName") for each in claims)


def _default_class(demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Which quota a pod without a priority class counts in depends on the default class, when no class is known."""
    if policy.priority_classes is not None:
        return
    plain = [one.step.name for one in admissions if not one.step.pod["spec"].get("priorityClassName")]
    for item, quota in policy.quotas if plain else ():
        if quota.tracked and any(scope.name == "PriorityClass" for scope in quota.scopes):
            yield Finding(
                "GF573",
                f"{listed(plain)}: it is unknown whether quota {quota.name} counts it, because the snapshot has no "
                "PriorityClass objects and one of them may be the default",
                item.at("spec"),
                "add the cluster's PriorityClasses to the snapshot, or give the step a priority",
                severity="warning",
            )
