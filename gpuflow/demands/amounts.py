"""What a pod asks for and costs. Pods that ask for the same share one answer: most steps of a pipeline are alike."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from gpuflow.content import content_of, data_of
from gpuflow.kubernetes.admission.usage import compute_usage, usage_of_claim
from gpuflow.kubernetes.ephemeral_claims import claims_of_pod
from gpuflow.quantity import Quantity
from gpuflow.resources import pod_limits, pod_requests

CONTAINERS = ("initContainers", "containers")
COUNTED_OF_CONTAINER = ("resources", "restartPolicy")
COUNTED_OF_POD = ("overhead", "resources")


class Amounts(NamedTuple):
    """Of one pod."""

    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]
    usage: Mapping[str, Quantity]
    """What it costs, by quota key."""


def amounts_of(pod: Mapping[str, Any]) -> Amounts:
    """What one pod requests, its limits, and what it costs."""
    spec = pod["spec"]
    asked: dict[str, Any] = {key: spec[key] for key in COUNTED_OF_POD if key in spec}
    for field in CONTAINERS:
        if field in spec:
            asked[field] = [{key: each[key] for key in COUNTED_OF_CONTAINER if key in each} for each in spec[field]]
    claims = [usage_of_claim(claim) for _, claim in claims_of_pod(spec)] if "volumes" in spec else []
    if claims:
        own = _worked_out(asked)
        return own._replace(usage=_with_claims(own.usage, claims))
    content = content_of(asked)
    return _worked_out(asked) if content is None else _amounts_of(content)


@lru_cache(maxsize=4096)
def _amounts_of(asked: bytes) -> Amounts:
    return _worked_out(data_of(asked))


def _worked_out(asked: Mapping[str, Any]) -> Amounts:
    lists = {field: [_defaulted(each) for each in asked[field]] for field in CONTAINERS if field in asked}
    stored = {"spec": {**asked, **lists}}
    requests, limits = pod_requests(stored), pod_limits(stored)
    return Amounts(requests, limits, compute_usage(requests, limits))


def _with_claims(usage: Mapping[str, Quantity], claims: list[dict[str, Quantity]]) -> Mapping[str, Quantity]:
    """With the claims that Kubernetes makes for the pod's ephemeral volumes."""
    total = dict(usage)
    for claim in claims:
        for key, amount in claim.items():
            if not key.startswith("count/"):
                total[key] = total.get(key, Quantity.zero) + amount
    return total


def _defaulted(container: Mapping[str, Any]) -> Mapping[str, Any]:
    """The container with requests filled in from limits, as the API server does before anything is counted."""
    resources = container.get("resources", {})
    limits = resources.get("limits", {})
    if not limits.keys() - resources.get("requests", {}).keys():
        return container
    return {**container, "resources": {**resources, "requests": {**limits, **resources.get("requests", {})}}}
