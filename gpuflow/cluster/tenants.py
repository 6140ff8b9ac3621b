"""Other tenants in a snapshot: how much room their pods and workloads take and where, not whose they are.

Of objects in other namespaces names become short digests, and labels stay where some selector of the cluster asks for
them: another label can decide nothing. The namespaces of the snapshot itself stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuflow.cluster.model import Cluster, Manifest
from gpuflow.kubernetes.labels import REPLACED_SLICE

NAMELESS: Final = ("DaemonSet", "Pod", "ResourceClaim", "Workload")
"""The kinds that nothing of another namespace refers to by name."""
UNREAD_SELECTORS: Final = ("CSIStorageCapacity", "PersistentVolumeClaim", "PodDisruptionBudget")
"""Kinds whose selectors are for nodes or volumes, or decide nothing that a check reads."""
KEPT_LABELS: Final = (
    "kueue.x-k8s.io/queue-name",
    "kueue.x-k8s.io/priority-class",
    "kubernetes.io/metadata.name",
    "resource.kubernetes.io/admin-access",
)
"""How the labels begin that are read without a selector, or that every namespace has. Others of Kueue name jobs."""


def without_tenants(cluster: Cluster) -> Cluster:
    """The cluster as a snapshot keeps it."""
    selected = frozenset(
        key for item in cluster.objects if item.kind not in UNREAD_SELECTORS for key in _selector_keys(item.body)
    )
    objects = tuple(_hide(item, cluster, selected) for item in cluster.objects)
    return replace(cluster, objects=objects, labels=selected)


def _hide(item: Manifest, cluster: Cluster, selected: frozenset[str]) -> Manifest:
    if item.kind == "PersistentVolume":
        return _hide_claim(item, cluster)
    lives_in = item.name if item.kind == "Namespace" else item.namespace
    if lives_in is None or cluster.shows(lives_in):
        return item
    body = dict(item.body)
    metadata = dict(body.get("metadata") or {})
    labels = metadata.pop("labels", None)
    if isinstance(labels, Mapping):
        kept = {key: value for key, value in labels.items() if key in selected or key.startswith(KEPT_LABELS)}
        metadata |= {"labels": kept} if kept else {}
    body["metadata"] = metadata
    if item.kind not in NAMELESS:
        return replace(item, body=body)
    metadata["name"] = name = _digest(item.kind, item.namespace, item.name)
    if item.kind == "Pod":
        body |= _nameless_pod(body)
    elif item.kind == "DaemonSet":
        body |= _nameless_daemons(body, selected)
    elif item.kind == "ResourceClaim":
        # Pods of its namespace name it by the same digest.
        metadata["name"] = name = _digest("resourceClaimName", item.name)
        body |= _nameless_claim(body)
    elif isinstance(body.get("spec"), Mapping):
        body |= _nameless_workload(body)
        if REPLACED_SLICE in (metadata.get("annotations") or {}):
            metadata["annotations"] = {**metadata["annotations"], REPLACED_SLICE: "another"}
    return replace(item, name=name, body=body)


def _hide_claim(volume: Manifest, cluster: Cluster) -> Manifest:
    """A volume without the name of the claim that holds it, unless the claim is of a namespace that is shown."""
    spec = volume.body.get("spec")
    claim = spec.get("claimRef") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(claim, Mapping) or cluster.shows(str(claim.get("namespace"))):
        return volume
    hidden = {"namespace": _digest("namespace", claim.get("namespace")), "name": _digest("claim", claim.get("name"))}
    return replace(volume, body={**volume.body, "spec": {**spec, "claimRef": hidden}})


def _nameless_daemons(daemons: Mapping[str, Any], selected: frozenset[str]) -> dict[str, Any]:
    """What runs on every node, with the labels that some selector asks for."""
    spec = daemons.get("spec")
    template = spec.get("template") if isinstance(spec, Mapping) else None
    if not isinstance(spec, Mapping) or not isinstance(template, Mapping):
        return {}
    metadata = template.get("metadata")
    labels = metadata.get("labels") if isinstance(metadata, Mapping) else None
    kept = {key: value for key, value in labels.items() if key in selected} if isinstance(labels, Mapping) else {}
    named = {"metadata": {"labels": kept}} if metadata is not None else {}
    return {"spec": {**spec, "template": {**template, **named, **_nameless_pod(template)}}}


def _nameless_claim(claim: Mapping[str, Any]) -> dict[str, Any]:
    """A claim of devices that does not say which pods hold it."""
    status = claim.get("status")
    if not isinstance(status, Mapping) or not status.get("reservedFor"):
        return {}
    holders = [{**each, "name": _digest("Pod", each.get("name"))} for each in status["reservedFor"]]
    return {"status": {**status, "reservedFor": holders}}


def _nameless_workload(workload: Mapping[str, Any]) -> dict[str, Any]:
    """Spec and status with pod sets by number. What is assigned to a pod set, or freed of it, is found by its name."""
    spec, status = workload["spec"], workload.get("status")
    sets = [each for each in spec.get("podSets") or () if isinstance(each, Mapping)]
    names = {each["name"]: f"s{index}" for index, each in enumerate(sets) if each.get("name")}
    found: dict[str, Any] = {"spec": {**spec, "podSets": [_nameless_set(each, names) for each in sets]}}
    if isinstance(status, Mapping):
        found["status"] = {**status, **_rename_pod_sets(status, "reclaimablePods", names)}
        admission = status.get("admission")
        if isinstance(admission, Mapping):
            found["status"]["admission"] = {**admission, **_rename_pod_sets(admission, "podSetAssignments", names)}
    return found


def _rename_pod_sets(holder: Mapping[str, Any], field: str, names: Mapping[Any, str]) -> dict[str, Any]:
    if not holder.get(field):
        return {}
    return {
        field: [{**each, "name": names[each["name"]]} if each.get("name") in names else each for each in holder[field]]
    }


def _nameless_set(pod_set: Mapping[str, Any], names: Mapping[Any, str]) -> Mapping[str, Any]:
    found = {**pod_set, **({"name": names[pod_set["name"]]} if pod_set.get("name") in names else {})}
    template, topology = pod_set.get("template"), pod_set.get("topologyRequest")
    if isinstance(template, Mapping):
        found["template"] = {**template, **_nameless_pod(template)}
    if isinstance(topology, Mapping) and topology.get("podSetGroupName"):
        found["topologyRequest"] = {**topology, "podSetGroupName": _digest("group", topology["podSetGroupName"])}
    return found


def _nameless_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Spec and status with containers, volumes and claims by number. A container's state is found by its name."""
    spec, status = pod.get("spec"), pod.get("status")
    if not isinstance(spec, Mapping):
        return {}
    names: dict[Any, str] = {}
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            names.setdefault(container.get("name"), f"c{len(names)}")
    claims = {each.get("name"): f"d{index}" for index, each in enumerate(spec.get("resourceClaims") or ())}
    changed: dict[str, Any] = {
        field: [_with_claims(each, claims) for each in _rename(spec[field], names)]
        for field in spec
        if field.lower().endswith("containers")
    }
    if claims:
        changed["resourceClaims"] = [_device(each, claims) for each in spec["resourceClaims"]]
    if isinstance(spec.get("resources"), Mapping):
        changed |= _with_claims({"resources": spec["resources"]}, claims)
    if spec.get("volumes"):
        changed["volumes"] = [_volume(volume, f"v{index}") for index, volume in enumerate(spec["volumes"])]
    found: dict[str, Any] = {"spec": {**spec, **changed}}
    if isinstance(status, Mapping):
        states = {field: _rename(status[field], names) for field in status if field.endswith("ontainerStatuses")}
        found["status"] = {**status, **states}
    return found


def _rename(holders: Any, names: Mapping[Any, str]) -> Any:
    return [{**each, "name": names.get(each.get("name"), "c")} for each in holders or ()]


def _with_claims(holder: Mapping[str, Any], names: Mapping[Any, str]) -> dict[str, Any]:
    """A container, or a pod, that takes its devices from claims by number."""
    resources = holder.get("resources")
    if not isinstance(resources, Mapping) or not resources.get("claims"):
        return dict(holder)
    claims = [{**each, "name": names.get(each.get("name"), "d")} for each in resources["claims"]]
    return {**holder, "resources": {**resources, "claims": claims}}


def _device(claim: Mapping[str, Any], names: Mapping[Any, str]) -> dict[str, Any]:
    hidden = {key: _digest(key, value) for key, value in claim.items() if key.endswith("Name") and value}
    return {**claim, "name": names[claim.get("name")], **hidden}


def _volume(volume: Mapping[str, Any], name: str) -> dict[str, Any]:
    claim = volume.get("persistentVolumeClaim")
    hidden = {"claimName": _digest("claim", claim.get("claimName"))} if isinstance(claim, Mapping) else None
    return {**volume, "name": name, **({"persistentVolumeClaim": {**claim, **hidden}} if claim and hidden else {})}


def _digest(*parts: object) -> str:
    return f"x{hashlib.sha256(repr(parts).encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _selector_keys(tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            if key == "matchLabels" and isinstance(part, Mapping):
                yield from map(str, part)
            elif key == "matchExpressions" and isinstance(part, list | tuple):
                yield from (str(each.get("key")) for each in part if isinstance(each, Mapping))
            elif key in ("matchLabelKeys", "mismatchLabelKeys") and isinstance(part, list | tuple):
                yield from map(str, part)
            else:
                yield from _selector_keys(part)
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from _selector_keys(part)
