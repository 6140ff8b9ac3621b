"""What the files of a check bring, laid over the cluster: accounts, claims, classes, quotas, queues, policies.

`kubectl apply`, Helm and Argo CD create these objects with the workloads, and controllers try again until they are
there. An object that the snapshot has is as it will be after that: the file's, with what only the cluster has (its
status, its labels, the volume of a claim). Others are new. They say nothing of what else the cluster has of their kind:
one quota of a file does not mean that there is no other.

What only a cluster itself writes (nodes, workloads, slices of devices) is not taken from files, nor is any status: the
API server drops it too (PrepareForCreate and PrepareForUpdate of pkg/registry, Kubernetes v1.36.3).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from gpuflow.cluster.kinds import KUEUE_CONFIG, NAMESPACED, NATIVE, SOURCES
from gpuflow.cluster.manifests import manifest_of
from gpuflow.cluster.model import Cluster, Manifest, with_entry
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.kubernetes.admission.pod import read_pod
from gpuflow.kubernetes.admission.quota import read_quota, usage_of
from gpuflow.kubernetes.resources import read_map

OBSERVED: Final = ("CSINode", "CSIStorageCapacity", "DaemonSet", "Node", "Pod", "ResourceSlice", "Workload")
"""Kinds whose objects a cluster makes itself, or that are workloads of their own."""
COUNTED: Final = frozenset(
    {*NATIVE, *((each.kind, each.group) for each in SOURCES), ("ConfigMap", ""), ("Secret", "")}
) - {(kind, group) for kind, group in NATIVE if kind in OBSERVED}
POLICIES: Final = ("kyverno.io", "policies.kyverno.io", "constraints.gatekeeper.sh", "mutations.gatekeeper.sh")
"""Groups of which every object may refuse or change a pod."""
WITH_NAMESPACE: Final = (*NAMESPACED, "ConfigMap", "Secret", "HierarchicalResourceQuota")
Key = tuple[str, str, str | None, str]


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
        is_cluster_wide = (item.kind, item.group) in COUNTED and item.kind not in WITH_NAMESPACE
        found.append(replace(item, namespace=None) if is_cluster_wide else item)
    if findings:
        raise GpuflowError(findings)
    return tuple(found)


def lay_over(cluster: Cluster, files: Iterable[Manifest], home: str) -> Cluster:
    """The cluster with these objects. `home`: where those are that name no namespace, as `kubectl apply -n` does.

    Of several with one name the last one counts, as the last one applied does.
    """
    filled = Cluster("", tuple(files)).with_default_namespace(home).objects
    homeless = (item.namespace is None and item.kind in WITH_NAMESPACE for item in filled)
    given = tuple(replace(item, namespace=home) if bare else item for item, bare in zip(filled, homeless, strict=True))
    last = {key_of(item): item for item in given}
    objects = []
    for item in cluster.objects:
        over = last.pop(key_of(item), None)
        objects.append(item if over is None else _with_usage(_applied(over, item), cluster))
    new = (replace(each, body=with_entry(each.body, "status", None), is_new=True) for each in last.values())
    objects += [_with_usage(each, cluster) for each in new]
    return replace(cluster, objects=tuple(objects), given=given)


def key_of(item: Manifest) -> Key:
    """What two objects have in common that are the same one. One that Kubernetes names itself is like no other."""
    is_named = item.name or item.group == KUEUE_CONFIG
    return item.kind, item.group, item.namespace, item.name if is_named else f"/{item.where}"


def _applied(over: Manifest, under: Manifest) -> Manifest:
    """An object of the cluster after a file was applied: what others have put on it stays."""
    mine, theirs = (read_map(item.body.get("metadata"), "metadata") for item in (over, under))
    metadata = _completed(mine, theirs)
    for part in ("labels", "annotations"):
        if isinstance(mine.get(part), Mapping) and isinstance(theirs.get(part), Mapping):
            metadata = with_entry(metadata, part, _completed(mine[part], theirs[part]))
    body = with_entry(with_entry(over.body, "metadata", metadata), "status", under.body.get("status"))
    spec, known = body.get("spec"), under.body.get("spec")
    # Of claims and volumes the cluster fills in what they are bound to, and it cannot be changed.
    if over.kind.startswith("PersistentVolume") and isinstance(spec, Mapping) and isinstance(known, Mapping):
        body = with_entry(body, "spec", _completed(spec, known))
    return replace(over, body=body, is_new=under.is_new)


def _completed(over: Mapping[str, Any], under: Mapping[str, Any]) -> Mapping[str, Any]:
    for key, value in under.items():
        if over.get(key) is None:
            over = with_entry(over, key, value)
    return over


def _with_usage(item: Manifest, cluster: Cluster) -> Manifest:
    """A quota with what the pods of its namespace use already; without a status where they use nothing."""
    if item.kind != "ResourceQuota" or not item.is_known:
        return item
    status = item.body.get("status")
    try:
        spec = read_map(item.body.get("spec"), "spec")
        pods = cluster.of("Pod", item.namespace) if cluster.knows("Pod") else ()
        live = (pod.body for pod in pods if read_map(pod.body.get("status"), "status").get("phase") not in FINISHED)
        used = usage_of(read_quota(with_entry(item.body, "status", None)), map(read_pod, live))
        if not (status or any(used.values())):
            return item
        counted = {key: str(amount) for key, amount in used.items()} if pods else {}
        reported = read_map(read_map(status, "status").get("used"), "status.used")
    except ValueError:
        return item  # whoever validates it says why
    return replace(
        item, body=with_entry(item.body, "status", {"hard": spec.get("hard"), "used": {**counted, **reported}})
    )


FINISHED: Final = ("Succeeded", "Failed")
