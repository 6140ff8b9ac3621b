"""What objects cost against a ResourceQuota, and the claims that Kubernetes makes for the ephemeral volumes of a pod.

Mirrors k8s.io/kubernetes/pkg/quota/v1/evaluator/core.PodUsageFunc, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from gpuflow.kubernetes.admission.names import is_extended, is_native
from gpuflow.kubernetes.admission.pod import Body, Pod
from gpuflow.kubernetes.resources import ResourceList, is_hugepages, read_map, read_maps, read_quantity
from gpuflow.quantity import Quantity


def claims_of_pod(spec: Mapping[str, Any], default_class: str | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each ephemeral volume by name with its claim; one without a storage class gets the default."""
    for volume in read_maps(spec.get("volumes"), "spec.volumes"):
        source = read_map(volume.get("ephemeral"), "ephemeral")
        template = read_map(source.get("volumeClaimTemplate"), "volumeClaimTemplate")
        if not template:
            continue
        claim = dict(read_map(template.get("spec"), "volumeClaimTemplate.spec"))
        if "storageClassName" not in claim and default_class is not None:
            claim["storageClassName"] = default_class
        name = str(volume.get("name") or "")
        yield name, {"metadata": {**read_map(template.get("metadata"), "metadata"), "name": name}, "spec": claim}


ONE: Final = Quantity("1")
DEVICE_CLASS: Final = "deviceclass.resource.kubernetes.io/"

COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
LIMIT_KEYS: Final = tuple((name, f"limits.{name}") for name in COMPUTE)
POD_KEYS: Final = frozenset(
    {"pods", "count/pods", *COMPUTE} | {f"requests.{name}" for name in COMPUTE} | {f"limits.{name}" for name in COMPUTE}
)
OLD_NAMES: Final = frozenset({"configmaps", "replicationcontrollers", "resourcequotas", "secrets", "services"})


def is_tracked_for_pods(key: str) -> bool:
    """Whether a quota key is enforced when a pod is made.

    Keys such as `nvidia.com/gpu` or `limits.nvidia.com/gpu` are accepted in a quota and never enforced.
    """
    if key in POD_KEYS or key.startswith(("hugepages-", "requests.hugepages-")):
        return True
    if not key.startswith("requests."):
        return False
    return not is_native(key) or key.startswith(f"requests.{DEVICE_CLASS}")


def compute_usage(requests: ResourceList, limits: ResourceList) -> dict[str, Quantity]:
    """The quota keys of one pair of requests and limits, with one pod."""
    usage = {"pods": ONE}
    for name, quantity in requests.items():
        for key in _request_keys(name):
            usage[key] = quantity
    for name, key in LIMIT_KEYS:
        if name in limits:
            usage[key] = limits[name]
    return usage


@lru_cache(maxsize=4096)
def _request_keys(name: str) -> tuple[str, ...]:
    """The quota keys that a request counts under."""
    if name in COMPUTE or is_hugepages(name):
        return name, f"requests.{name}"
    return (f"requests.{name}",) if is_extended(name) or name.startswith(DEVICE_CLASS) else ()


def pod_usage(pod: Pod) -> dict[str, Quantity]:
    """What a new pod is charged."""
    return {"count/pods": ONE, **compute_usage(pod.requests(), pod.limits())}


def usage_of_claim(claim: Body) -> dict[str, Quantity]:
    """What a PersistentVolumeClaim is charged, its storage class included."""
    spec = read_map(claim.get("spec"), "spec")
    usage = {"count/persistentvolumeclaims": ONE, "persistentvolumeclaims": ONE}
    storage = _storage(claim, spec)
    if storage is not None:
        usage["requests.storage"] = storage
    storage_class = _storage_class(claim, spec)
    if storage_class:
        prefix = f"{storage_class}.storageclass.storage.k8s.io"
        usage[f"{prefix}/persistentvolumeclaims"] = ONE
        if storage is not None:
            usage[f"{prefix}/requests.storage"] = storage
    return usage


def _storage_class(claim: Body, spec: Body) -> str:
    annotations = read_map(read_map(claim.get("metadata"), "metadata").get("annotations"), "annotations")
    legacy = annotations.get("volume.beta.kubernetes.io/storage-class")
    return str(legacy if legacy is not None else spec.get("storageClassName") or "")


def _storage(claim: Body, spec: Body) -> Quantity | None:
    """Whole bytes asked for, or allocated where an expansion that failed left more than that."""
    requests = read_map(read_map(spec.get("resources"), "spec.resources").get("requests"), "requests")
    if "storage" not in requests:
        return None
    status = read_map(claim.get("status"), "status")
    allocated = read_map(status.get("allocatedResources"), "status.allocatedResources").get("storage")
    quantity = read_quantity(requests["storage"])
    if allocated is not None:
        quantity = max(quantity, read_quantity(allocated))
    whole = Quantity.from_units(quantity.value, quantity.format)
    return quantity if whole == quantity else whole
