"""What the files of a check bring, laid over the cluster: accounts, claims, classes, quotas, queues, policies.

`kubectl apply`, Helm and Argo CD create these objects with the workloads, and controllers try again until they are
there. An object that the snapshot has is as it will be after that: the file's, with what only the cluster has (its
status, its labels, the volume of a claim). Others are new. They say nothing of what else the cluster has of their kind:
one quota of a file does not mean that there is no other.

What only a cluster itself writes (nodes, workloads, slices of devices) is not taken from files, nor is any status: the
API server drops it too (PrepareForCreate and PrepareForUpdate of pkg/registry, Kubernetes v1.36.3).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuflow.cluster.kinds import NAMESPACED, NATIVE, SOURCES
from gpuflow.cluster.manifests import manifest_of
from gpuflow.cluster.model import Cluster, Manifest, with_entry
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.kubernetes.admission.classes import default_class
from gpuflow.kubernetes.admission.pod import read_pod
from gpuflow.kubernetes.admission.quota import read_quota, usage_of
from gpuflow.kubernetes.resources import read_map

OBSERVED: Final = ("CSINode", "CSIStorageCapacity", "DaemonSet", "Node", "Pod", "ResourceSlice", "Workload")
"""Kinds whose objects a cluster makes itself, or that are workloads of their own."""
_RBAC: Final = "rbac.authorization.k8s.io"
_NETWORK: Final = "networking.k8s.io"
BESIDE: Final = frozenset(
    {
        ("ConfigMap", ""), ("Secret", ""), ("Service", ""), ("Ingress", _NETWORK), ("NetworkPolicy", _NETWORK),
        ("Role", _RBAC), ("RoleBinding", _RBAC),
    }
)  # fmt: skip
"""What stands beside workloads in a namespace. Quotas count it, webhooks look at it, and pods do not wait for it."""
KINDS: Final = (*NATIVE, *((each.kind, each.group) for each in SOURCES), *BESIDE)
COUNTED: Final = frozenset(each for each in KINDS if each[0] not in OBSERVED)
POLICIES: Final = ("kyverno.io", "policies.kyverno.io", "constraints.gatekeeper.sh", "mutations.gatekeeper.sh")
"""Groups of which every object may refuse or change a pod."""


def is_counted(kind: str, group: str) -> bool:
    """Whether objects of a kind are part of the cluster when a file brings them."""
    return (kind, group) in COUNTED or group in POLICIES


def objects_of(trees: Iterable[tuple[Mapping[str, Any], str]]) -> tuple[Manifest, ...]:
    """The objects among the documents of files, each with its file; all that cannot be read in one go."""
    found: list[Manifest] = []
    findings: list[Finding] = []
    for tree, file in trees:
        try:
            item = manifest_of(tree, file)
        except GpuflowError as refusal:
            findings += refusal.findings
            continue
        has_home = item.kind in (*NAMESPACED, "HierarchicalResourceQuota") or item.group in POLICIES
        found.append(item if has_home else replace(item, namespace=None))  # as the API server does
    if findings:
        raise GpuflowError(findings)
    return tuple(found)


def lay_over(cluster: Cluster, files: Iterable[Manifest], home: str) -> Cluster:
    """The cluster with these objects. `home`: where those are that name no namespace, as `kubectl apply -n` does.

    Of several with one name the last one counts, as the last one applied does.
    """
    given = Cluster("", tuple(files)).with_default_namespace(home).objects
    last = {item.key: item for item in given}
    there = [(item, last.pop(item.key, None)) for item in cluster.objects]
    objects = [item if over is None else _with_usage(_object_after_apply(over, item), cluster) for item, over in there]
    classes = [each.body for each in (*cluster.of("StorageClass"), *last.values()) if each.kind == "StorageClass"]
    new = (replace(each, body=_object_as_stored(each, classes), is_new=True) for each in last.values())
    return replace(cluster, objects=(*objects, *(_with_usage(each, cluster) for each in new)), given=given)


def _object_as_stored(item: Manifest, classes: Collection[Mapping[str, Any]]) -> Mapping[str, Any]:
    """An object as it is stored: without a status, and a claim that names no storage class with the default one."""
    body, spec = with_entry(item.body, "status", None), item.body.get("spec")
    if (
        item.kind != "PersistentVolumeClaim"
        or not isinstance(spec, Mapping)
        or spec.get("storageClassName") is not None
    ):
        return body
    try:
        default = default_class(classes)
    except ValueError:
        return body  # whoever validates the classes says why
    return body if default is None else with_entry(body, "spec", with_entry(spec, "storageClassName", default))


def _object_after_apply(over: Manifest, under: Manifest) -> Manifest:
    """An object of the cluster after a file was applied: what others have put on it stays."""
    # Of claims and volumes the cluster fills in what they are bound to, and it cannot be changed.
    parts = ("metadata", "status", *(("spec",) if over.kind.startswith("PersistentVolume") else ()))
    known = {part: under.body[part] for part in parts if part in under.body}
    body = _complete(with_entry(over.body, "status", None), known, (*parts, "labels", "annotations"))
    return replace(over, body=body, is_new=under.is_new)


def _complete(over: Mapping[str, Any], under: Mapping[str, Any], merged: Collection[str]) -> Mapping[str, Any]:
    """A mapping with the entries that it has not; those that are `merged` are completed in turn."""
    for key, value in under.items():
        mine = over.get(key)
        if mine is None:
            over = with_entry(over, key, value)
        elif key in merged and isinstance(mine, Mapping) and isinstance(value, Mapping):
            over = with_entry(over, key, _complete(mine, value, merged))
    return over


def _with_usage(item: Manifest, cluster: Cluster) -> Manifest:
    """A quota with what the pods of its namespace use already; without a status where they use nothing."""
    if item.kind != "ResourceQuota" or not item.is_known:
        return item
    try:
        spec, known = (read_map(item.body.get(part), part) for part in ("spec", "status"))
        pods = cluster.of("Pod", item.namespace)
        live = (pod.body for pod in pods if read_map(pod.body.get("status"), "status").get("phase") not in FINISHED)
        used = usage_of(read_quota(with_entry(item.body, "status", None)), map(read_pod, live))
        if not known and not any(used.values()):
            return item
        counted = {key: str(amount) for key, amount in used.items()} if cluster.knows("Pod") else {}
        total = {**counted, **read_map(known.get("used"), "status.used")}
    except ValueError:
        return item  # whoever validates it says why
    return replace(item, body=with_entry(item.body, "status", {"hard": spec.get("hard"), "used": total}))


FINISHED: Final = ("Succeeded", "Failed")
