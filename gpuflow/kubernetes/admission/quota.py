"""ResourceQuota: which quotas a pod counts against, and what each says.

Mirrors k8s.io/apiserver/pkg/admission/plugin/resourcequota.CheckRequest, Kubernetes v1.36.3.

What objects cost against a ResourceQuota, and the claims that Kubernetes makes for the ephemeral volumes of a pod.

Mirrors k8s.io/kubernetes/pkg/quota/v1/evaluator/core.PodUsageFunc, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission.field_errors import is_extended, is_native
from gpuflow.kubernetes.admission.pod import (
    Body,
    Pod,
    quality_of_service,
    read_object,
    read_once,
    read_text,
    round_to_milli,
)
from gpuflow.kubernetes.objects import REQUIRED, ResourceQuotaSpec, ResourceQuotaStatus, decode
from gpuflow.kubernetes.resources import ResourceList, is_hugepages, is_pod_level, read_map, read_maps, read_quantity
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


MUST_SPECIFY: Final = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}
"""The keys for which a quota wants every container to say something, and where it must say it."""


class QuotaScope(NamedTuple):
    name: str
    operator: str
    values: frozenset[str]


class Quota(NamedTuple):
    """A quota as enforced: by its status. `assumed` when the manifest has none and `spec.hard` stands in."""

    name: str
    namespace: str | None
    scopes: tuple[QuotaScope, ...]
    hard: ResourceList
    used: ResourceList
    tracked: tuple[str, ...]
    wanted: tuple[frozenset[str], frozenset[str]]
    """What every container must say for the quota to be counted: in its requests, in its limits."""
    assumed: bool


def read_quota(manifest: Body | Quota) -> Quota:
    """A quota from its manifest.

    One without a status, as kept in Git, is taken to be enforced as written and unused so far.
    """
    return manifest if isinstance(manifest, Quota) else read_once(_read_quota, manifest)


def _read_quota(manifest: Body) -> Quota:
    metadata = read_map(read_object(manifest, "ResourceQuota").get("metadata"), "ResourceQuota metadata")
    name = read_text(metadata, "name", "ResourceQuota metadata") or ""
    where = f"ResourceQuota {name}"
    given = read_map(manifest.get("spec"), f"{where}: spec")
    assumed = manifest.get("status") is None
    status = decode(ResourceQuotaStatus, {} if assumed else manifest["status"], f"{where}: status")
    # Where there is a status, it alone says what is enforced.
    spec = decode(ResourceQuotaSpec, given if assumed else {**given, "hard": {}}, f"{where}: spec")
    hard = round_to_milli(spec.hard if assumed else status.hard)
    selected = (
        QuotaScope(str(each.scope_name), str(each.operator), each.values)
        for each in spec.scope_selector.match_expressions
    )
    return Quota(
        name,
        read_text(metadata, "namespace", "ResourceQuota metadata"),
        (*(QuotaScope(scope, "Exists", frozenset()) for scope in spec.scopes), *selected),
        hard,
        dict.fromkeys(hard, Quantity.zero) if assumed else round_to_milli(status.used),
        *_tracked_keys(tuple(hard)),
        assumed,
    )


@lru_cache(maxsize=4096)
def _tracked_keys(keys: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[frozenset[str], frozenset[str]]]:
    """The keys of a quota that count for pods, and what they want every container to say."""
    tracked = tuple(sorted(filter(is_tracked_for_pods, keys)))
    wanted = [MUST_SPECIFY[key] for key in tracked if key in MUST_SPECIFY]
    requests, limits = (frozenset(name for side, name in wanted if side == each) for each in ("requests", "limits"))
    return tracked, (requests, limits)


def usage_of(quota: Quota, pods: Iterable[Pod]) -> dict[str, Quantity]:
    """What pods that are there use of the keys that count pods.

    Mirrors k8s.io/apiserver/pkg/quota/v1/generic.CalculateUsageStats, Kubernetes v1.36.3.
    """
    used = dict.fromkeys(quota.tracked, Quantity.zero)
    for pod in pods:
        if all(_in_scope(pod, scope) for scope in quota.scopes):
            for key, amount in pod_usage(pod).items():
                if key in used:
                    used[key] += amount
    return used


class QuotaExceeded(NamedTuple):
    """A quota has too little left."""

    quota: str
    requested: Mapping[str, str]
    used: Mapping[str, str]
    limited: Mapping[str, str]

    def names(self, key: str) -> bool:
        return key in self.requested

    def sentence(self) -> str:
        requested, used, limited = (_pairs(each) for each in (self.requested, self.used, self.limited))
        return f"exceeded quota: {self.quota}, requested: {requested}, used: {used}, limited: {limited}"


class UnspecifiedResources(NamedTuple):
    """Containers do not say what a quota counts."""

    quota: str
    missing: Mapping[str, tuple[str, ...]]
    """The names of the containers, by quota key."""

    def names(self, key: str) -> bool:
        return key in self.missing

    def sentence(self) -> str:
        listed = "; ".join(f"{key} for: {','.join(names)}" for key, names in self.missing.items())
        return f"failed quota: {self.quota}: must specify {listed}"


class UsageUnknown(NamedTuple):
    """A quota's status does not say yet what is in use."""

    quota: str
    keys: tuple[str, ...]

    def names(self, key: str) -> bool:
        return key in self.keys

    def sentence(self) -> str:
        return f"status unknown for quota: {self.quota}, resources: {','.join(self.keys)}"


QuotaRefusal = QuotaExceeded | UnspecifiedResources | UsageUnknown


def _pairs(amounts: Mapping[str, str]) -> str:
    return ",".join(f"{key}={amount}" for key, amount in amounts.items())


class QuotaDecision(NamedTuple):
    """What the quotas say: every refusal that may be the first one, or which of them are charged, and with what."""

    refusals: tuple[QuotaRefusal, ...]
    charged: Sequence[Quota] = ()
    charge: Sequence[tuple[str, Quantity]] = ()


def check_request(pod: Pod, quotas: Sequence[Quota]) -> QuotaDecision:
    """Ask all quotas. Missing requests and unknown usage are looked for in all of them before any total is."""
    matching = [quota for quota in quotas if quota.tracked and all(_in_scope(pod, scope) for scope in quota.scopes)]
    refusals: list[QuotaRefusal] = [reason for quota in matching if (reason := _unready_reason(pod, quota))]
    if refusals or not matching:
        return QuotaDecision(tuple(refusals))
    charge = [(key, quantity) for key, quantity in pod_usage(pod).items() if quantity.nano]
    for quota in matching:
        hard, used = quota.hard, quota.used
        over = []
        for key, quantity in charge:
            limit = hard.get(key)
            if limit is not None:
                before = used.get(key)
                if (quantity.nano if before is None else before.nano + quantity.nano) > limit.nano:
                    over.append((key, quantity, limit))
        if over:
            refusals.append(_quota_exceeded(quota, sorted(over)))
    return QuotaDecision(tuple(refusals), matching, charge)


def new_totals(verdict: QuotaDecision, quotas: Sequence[Quota]) -> dict[str, ResourceList]:
    """What each quota has used once the pod is there, whether it is charged or not."""
    totals = {quota.name: quota.used for quota in quotas}
    for quota in verdict.charged:
        added = {key: amount for key, amount in verdict.charge if key in quota.hard}
        more = {key: quota.used[key] + amount if key in quota.used else amount for key, amount in added.items()}
        totals[quota.name] = {**quota.used, **more}
    return totals


def _quota_exceeded(quota: Quota, over: Sequence[tuple[str, Quantity, Quantity]]) -> QuotaExceeded:
    return QuotaExceeded(
        quota.name,
        {key: quantity.text for key, quantity, _ in over},
        {key: quota.used[key].text for key, _, _ in over if key in quota.used},
        {key: limit.text for key, _, limit in over},
    )


def _unready_reason(pod: Pod, quota: Quota) -> UnspecifiedResources | UsageUnknown | None:
    missing = _unspecified_containers(pod, quota)
    if missing:
        return UnspecifiedResources(quota.name, {key: tuple(sorted(names)) for key, names in sorted(missing.items())})
    if not all(map(quota.used.__contains__, quota.tracked)):
        return UsageUnknown(quota.name, quota.tracked)
    return None


def _unspecified_containers(pod: Pod, quota: Quota) -> dict[str, set[str]]:
    """The containers that do not say what the quota counts, by key. Pod-level resources speak for all."""
    requests, limits = quota.wanted
    silent = [
        each for each in pod.every_container if not (requests <= each.requests.keys() and limits <= each.limits.keys())
    ]
    if not silent or (pod.level is not None and any(is_pod_level(name) for side in pod.level for name in side)):
        return {}
    missing: dict[str, set[str]] = {}
    for key in quota.tracked:
        if key in MUST_SPECIFY:
            side, name = MUST_SPECIFY[key]
            names = {each.name for each in silent if name not in (each.requests if side == "requests" else each.limits)}
            if names:
                missing[key] = names
    return missing


def _in_scope(pod: Pod, scope: QuotaScope) -> bool:
    match scope.name:
        case "Terminating":
            return _has_deadline(pod)
        case "NotTerminating":
            return not _has_deadline(pod)
        case "BestEffort":
            return quality_of_service(pod) == "BestEffort"
        case "NotBestEffort":
            return quality_of_service(pod) != "BestEffort"
        case "PriorityClass":
            return _matches_class(pod.priority_class, scope)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(pod.spec)
    return False


def _has_deadline(pod: Pod) -> bool:
    return pod.active_deadline is not None and pod.active_deadline >= 0


def _matches_class(name: str, scope: QuotaScope) -> bool:
    match scope.operator:
        case "In":
            return bool(name) and name in scope.values
        case "NotIn":
            return name not in scope.values
        case "Exists":
            return bool(name)
        case "DoesNotExist":
            return not name
    return False


def _crosses_namespaces(spec: Mapping[str, Any]) -> bool:
    affinity = read_map(spec.get("affinity"), "spec.affinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        where = f"spec.affinity.{kind}"
        rules = read_map(affinity.get(kind), where)
        terms = read_maps(rules.get(REQUIRED), where)
        for weighted in read_maps(rules.get("preferredDuringSchedulingIgnoredDuringExecution"), where):
            terms.append(read_map(weighted.get("podAffinityTerm"), where))
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
