"""Other tenants in a snapshot: how much room their pods and workloads take and where, not whose they are.

Of objects in other namespaces names become short digests, and labels stay where some selector of the cluster asks for
them: another label can decide nothing. The namespace of the snapshot itself stays as it is.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuflow.cluster.model import Cluster, Manifest

NAMELESS: Final = ("Pod", "Workload")
"""The kinds that nothing refers to by name."""
KEPT_LABELS: Final = ("kueue.x-k8s.io/", "kubernetes.io/metadata.name")
"""How the labels begin that are read without a selector, or that every namespace has."""


def without_tenants(cluster: Cluster) -> Cluster:
    """The cluster as a snapshot keeps it."""
    selected = label_keys(cluster)
    objects = tuple(_hidden(item, cluster.namespace, selected) for item in cluster.objects)
    return replace(cluster, objects=objects, labels=selected)


def label_keys(cluster: Cluster) -> frozenset[str]:
    """The keys of labels that selectors in the cluster ask for."""
    return frozenset(key for item in cluster.objects for key in _asked(item.body))


def _hidden(item: Manifest, home: str | None, selected: frozenset[str]) -> Manifest:
    lives_in = item.name if item.kind == "Namespace" else item.namespace
    if lives_in is None or lives_in == home:
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
    elif isinstance(body.get("spec"), Mapping):
        spec = body["spec"]
        body["spec"] = {**spec, "podSets": [_nameless_set(each) for each in spec.get("podSets") or ()]}
    return replace(item, name=name, body=body)


def _nameless_set(pod_set: Any) -> Any:
    if not isinstance(pod_set, Mapping) or not isinstance(pod_set.get("template"), Mapping):
        return pod_set
    return {**pod_set, "template": {**pod_set["template"], **_nameless_pod(pod_set["template"])}}


def _nameless_pod(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Spec and status with containers, volumes and claims by number. A container's state is found by its name."""
    spec, status = pod.get("spec"), pod.get("status")
    if not isinstance(spec, Mapping):
        return {}
    names: dict[Any, str] = {}
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for container in spec.get(field) or ():
            names.setdefault(container.get("name"), f"c{len(names)}")
    changed = {field: _renamed(spec[field], names) for field in spec if field.lower().endswith("containers")}
    if spec.get("volumes"):
        changed["volumes"] = [_volume(volume, f"v{index}") for index, volume in enumerate(spec["volumes"])]
    found: dict[str, Any] = {"spec": {**spec, **changed}}
    if isinstance(status, Mapping):
        states = {field: _renamed(status[field], names) for field in status if field.endswith("ontainerStatuses")}
        found["status"] = {**status, **states}
    return found


def _renamed(holders: Any, names: Mapping[Any, str]) -> Any:
    return [{**each, "name": names.get(each.get("name"), "c")} for each in holders or ()]


def _volume(volume: Mapping[str, Any], name: str) -> dict[str, Any]:
    claim = volume.get("persistentVolumeClaim")
    hidden = {"claimName": _digest("claim", claim.get("claimName"))} if isinstance(claim, Mapping) else None
    return {**volume, "name": name, **({"persistentVolumeClaim": {**claim, **hidden}} if claim and hidden else {})}


def _digest(*parts: object) -> str:
    return f"x{hashlib.sha256(repr(parts).encode('utf-8', 'surrogatepass')).hexdigest()[:10]}"


def _asked(tree: Any) -> Iterator[str]:
    if isinstance(tree, Mapping):
        for key, part in tree.items():
            if key == "matchLabels" and isinstance(part, Mapping):
                yield from map(str, part)
            elif key == "matchExpressions" and isinstance(part, list | tuple):
                yield from (str(each.get("key")) for each in part if isinstance(each, Mapping))
            elif key in ("matchLabelKeys", "mismatchLabelKeys") and isinstance(part, list | tuple):
                yield from map(str, part)
            else:
                yield from _asked(part)
    elif isinstance(tree, list | tuple):
        for part in tree:
            yield from _asked(part)
