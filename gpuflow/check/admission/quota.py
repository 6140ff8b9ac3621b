"""ResourceQuota: which quotas a pod counts against, and what each says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from gpuflow.check.admission.pod import Manifest, Pod, read_object, read_text, rounded
from gpuflow.check.admission.stored import quality_of_service
from gpuflow.check.admission.usage import is_tracked_for_pods, pod_usage
from gpuflow.quantity import Quantity
from gpuflow.resources import ResourceList, has_pod_level, read_map, read_maps, read_resource_list, read_texts

MUST_SPECIFY: Final = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}
"""The keys for which a quota wants every container to say something, and where it must say it."""


class Scope(NamedTuple):
    name: str
    operator: str
    values: frozenset[str]


class Quota(NamedTuple):
    """A quota as enforced: by its status. `assumed` when the manifest has none and `spec.hard` stands in."""

    name: str
    namespace: str | None
    scopes: tuple[Scope, ...]
    hard: ResourceList
    used: ResourceList
    tracked: tuple[str, ...]
    assumed: bool


def read_quota(manifest: Manifest | Quota) -> Quota:
    """A quota from its manifest.

    One without a status, as kept in Git, is taken to be enforced as written and unused so far.
    """
    if isinstance(manifest, Quota):
        return manifest
    metadata = read_map(read_object(manifest, "ResourceQuota").get("metadata"), "ResourceQuota metadata")
    name = read_text(metadata, "name", "ResourceQuota metadata") or ""
    where = f"ResourceQuota {name}"
    spec = read_map(manifest.get("spec"), f"{where}: spec")
    assumed = manifest.get("status") is None
    if assumed:
        hard = rounded(read_resource_list(spec.get("hard"), f"{where}: spec.hard"))
        used: ResourceList = dict.fromkeys(hard, Quantity.zero)
    else:
        status = read_map(manifest["status"], f"{where}: status")
        hard = rounded(read_resource_list(status.get("hard"), f"{where}: status.hard"))
        used = rounded(read_resource_list(status.get("used"), f"{where}: status.used"))
    return Quota(
        name,
        read_text(metadata, "namespace", "ResourceQuota metadata"),
        tuple(_read_scopes(spec, where)),
        hard,
        used,
        tuple(sorted(filter(is_tracked_for_pods, hard))),
        assumed,
    )


def _read_scopes(spec: Manifest, where: str) -> Iterable[Scope]:
    for name in read_texts(spec.get("scopes"), f"{where}: spec.scopes"):
        yield Scope(name, "Exists", frozenset())
    selector = read_map(spec.get("scopeSelector"), f"{where}: spec.scopeSelector")
    for expression in read_maps(selector.get("matchExpressions"), f"{where}: spec.scopeSelector"):
        values = frozenset(read_texts(expression.get("values"), f"{where}: spec.scopeSelector values"))
        yield Scope(str(expression.get("scopeName")), str(expression.get("operator")), values)


class Verdict(NamedTuple):
    """What the quotas say: every refusal that may be the first one, or the new totals."""

    refusals: tuple[str, ...]
    used: dict[str, ResourceList]


def judge(pod: Pod, quotas: Sequence[Quota]) -> Verdict:
    """Ask all quotas. Missing requests and unknown usage are looked for in all of them before any total is."""
    matching = [quota for quota in quotas if quota.tracked and _in_scopes(pod, quota.scopes)]
    refusals = tuple(reason for quota in matching if (reason := _unready(pod, quota)))
    if refusals:
        return Verdict(refusals, {})
    used = {quota.name: quota.used for quota in quotas}
    if not matching:
        return Verdict((), used)
    charge = [(key, quantity) for key, quantity in pod_usage(pod).items() if quantity]
    exceeded = []
    for quota in matching:
        totals = dict(quota.used)
        over = []
        for key, quantity in charge:
            limit = quota.hard.get(key)
            if limit is not None:
                totals[key] = total = totals[key] + quantity if key in totals else quantity
                if total > limit:
                    over.append((key, quantity, limit))
        if over:
            exceeded.append(_exceeded(quota, sorted(over)))
        used[quota.name] = totals
    return Verdict(tuple(exceeded), {} if exceeded else used)


def _exceeded(quota: Quota, over: Sequence[tuple[str, Quantity, Quantity]]) -> str:
    requested = ",".join(f"{key}={quantity.text}" for key, quantity, _ in over)
    used = ",".join(f"{key}={quota.used[key].text}" for key, _, _ in over if key in quota.used)
    limited = ",".join(f"{key}={limit.text}" for key, _, limit in over)
    return f"exceeded quota: {quota.name}, requested: {requested}, used: {used}, limited: {limited}"


def _unready(pod: Pod, quota: Quota) -> str | None:
    missing = _unspecified(pod, quota.tracked)
    if missing:
        listed = "; ".join(f"{key} for: {','.join(sorted(names))}" for key, names in sorted(missing.items()))
        return f"failed quota: {quota.name}: must specify {listed}"
    if any(key not in quota.used for key in quota.tracked):
        return f"status unknown for quota: {quota.name}, resources: {','.join(quota.tracked)}"
    return None


def _unspecified(pod: Pod, keys: Iterable[str]) -> dict[str, set[str]]:
    """The containers that do not say what the quota counts, by key. Pod-level resources speak for all."""
    wanted = [(key, *MUST_SPECIFY[key]) for key in keys if key in MUST_SPECIFY]
    if not wanted or (pod.level is not None and any(map(has_pod_level, pod.level))):
        return {}
    missing: dict[str, set[str]] = {}
    for container in pod.every_container:
        for key, side, name in wanted:
            if name not in (container.requests if side == "requests" else container.limits):
                missing.setdefault(key, set()).add(container.name)
    return missing


def _in_scopes(pod: Pod, scopes: tuple[Scope, ...]) -> bool:
    return all(_in_scope(pod, scope) for scope in scopes)


def _in_scope(pod: Pod, scope: Scope) -> bool:
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


def _matches_class(name: str, scope: Scope) -> bool:
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
        terms = read_maps(rules.get("requiredDuringSchedulingIgnoredDuringExecution"), where)
        for weighted in read_maps(rules.get("preferredDuringSchedulingIgnoredDuringExecution"), where):
            terms.append(read_map(weighted.get("podAffinityTerm"), where))
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False
