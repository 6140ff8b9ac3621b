"""The rule for what a snapshot does not show.

A kind of which the snapshot has no object, and that nobody listed, is not known. Where pods of the pipeline need an
object of such a kind (a node, a queue, a class), the verdict is *unknown*. A kind that can only hold pods back (quotas,
limit ranges, webhooks) needs no object: a cluster may well have none. So a folder which shows the namespace, and no
quota in it, is read as a namespace without one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from gpuflow.checker.snapshot.namespace_rules import DEFAULT_ACCOUNT
from gpuflow.checker.snapshot.unmodeled_kinds import NAME_LABEL
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import SOURCES
from gpuflow.core.errors import Finding, Where, warning
from gpuflow.demands import Demand
from gpuflow.kubernetes.admission.classes import SYSTEM_CLASSES
from gpuflow.kubernetes.labels import DEFAULT_QUEUE, QUEUE_LABEL, QUEUE_PRIORITY_LABEL, read_selector
from gpuflow.kubernetes.resources import read_map, read_maps

QUEUES: Final = ("LocalQueue", "ClusterQueue", "ResourceFlavor")
"""What every named queue leads to."""
LIMITS: Final = ("ResourceQuota", "LimitRange")
WEBHOOK: Final = "kueue-mutating-webhook-configuration"
VOLUMES: Final = (
    "PersistentVolume", "PersistentVolumeClaim", "StorageClass", "CSIDriver", "CSINode", "CSIStorageCapacity",
)  # fmt: skip
DEVICES: Final = ("DeviceClass", "DeviceTaintRule", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice")
OPTIONAL: Final = frozenset(
    {
        *VOLUMES, *DEVICES, "PriorityClass", "RuntimeClass", "ServiceAccount", "WorkloadPriorityClass", "DaemonSet",
        "PodDisruptionBudget", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicyBinding",
    }
)  # fmt: skip
"""Kinds that decide nothing for pods which do not need them. A policy whose bindings are closed counts as bound."""
RECORD: Final = "apiVersion: gpuflow/v1, kind: Snapshot"


def needed_kinds(cluster: Cluster, namespace: str, demand: Demand) -> dict[str, str]:
    """The kinds of which the pods of a pipeline need some object, and what for."""
    pods: list[Mapping[str, Any]] = [each.pod for step in demand.steps for each in step.pod_sets]
    specs = [pod["spec"] for pod in pods]
    found = {"Node": "where the pods can run"} if pods else {}
    for kind, names in {
        "ServiceAccount": _field_values(specs, "serviceAccountName") - {DEFAULT_ACCOUNT},
        "PriorityClass": _field_values(specs, "priorityClassName") - {each.name for each in SYSTEM_CLASSES},
        "RuntimeClass": _field_values(specs, "runtimeClassName"),
        "WorkloadPriorityClass": {name for pod in pods if (name := _labels(pod).get(QUEUE_PRIORITY_LABEL))},
        "PersistentVolumeClaim": _mounted_claims(specs, demand),
        "StorageClass": {claim.storage_class or f"the default, for {claim.name}" for claim in demand.claims},
    }.items():
        found |= {kind: _join_sorted(names)} if names else {}
    if pods and not (
        shows_namespace(cluster, namespace) or any(item.namespace == namespace for item in cluster.objects)
    ):
        found |= dict.fromkeys(LIMITS, f"what limits {namespace}")
    queues = named_queues(cluster, namespace, pods)
    found |= dict.fromkeys(QUEUES, f"queue {_join_sorted(queues)}") if queues else {}
    elsewhere = any(map(cluster.of, QUEUES)) and not all(_labels(pod).get(QUEUE_LABEL) for pod in pods)
    if elsewhere and "LocalQueue" not in found:
        found["LocalQueue"] = f"whether a queue called {DEFAULT_QUEUE} takes the pods that name none"
    if queues and namespace_decides(cluster, namespace, queues):
        found["Namespace"] = f"whether queue {_join_sorted(queues)} is for {namespace}"
    return found


def kinds_not_shown(cluster: Cluster, namespace: str, needed: Mapping[str, str]) -> Iterator[Finding]:
    """One finding with all kinds that the pods need and that are not known."""
    missing = {kind: why for kind, why in needed.items() if _is_open(cluster, namespace, kind)}
    if not missing:
        return
    by_reason: dict[str, list[str]] = {}
    for kind, why in missing.items():
        by_reason.setdefault(why, []).append(kind)
    words = "; ".join(f"{', '.join(kinds)} ({why})" for why, kinds in by_reason.items())
    plurals = ",".join(source.plural for kind in missing for source in SOURCES if source.kind == kind)
    first = next(iter(missing))
    yield warning(
        "GF536",
        f"the snapshot does not show what decides: {words}",
        Where(cluster.source),
        f"add it: gpuflow snapshot -o DIR --namespace {namespace}, or kubectl get {plurals} -A -o yaml > DIR/x.yaml\n"
        f"where the cluster has none of a kind, say so in a file: {{{RECORD}, listed: [{first}]}}; "
        f"assumed: [{first}] leaves the kind out of the check",
    )


def closed_kinds(cluster: Cluster, needed: Collection[str]) -> Iterator[Finding]:
    """Kinds that the cluster has, would not show, and that can decide."""
    for reason, kinds in cluster.unread_by_reason().items():
        deciding = [kind for kind in kinds if kind not in OPTIONAL or kind in needed]
        if deciding:
            yield warning(
                "GF571",
                f"unknown, because they could not be listed ({reason}): {', '.join(deciding)}",
                Where(cluster.source),
                "gpuflow snapshot --rbac prints the permissions that are needed",
            )


def assumed_kinds(cluster: Cluster, needed: Collection[str]) -> tuple[str, ...]:
    """The kinds that the pods need and for which the author of the folder vouches."""
    return tuple(kind for kind in needed if kind in cluster.assumed and not cluster.knows(kind))


def named_queues(cluster: Cluster, namespace: str, pods: Sequence[Mapping[str, Any]]) -> set[str]:
    """The LocalQueues that pods go to: those they name, and the default one where it exists."""
    labels = [_labels(pod).get(QUEUE_LABEL) for pod in pods]
    found = {name for name in labels if name}
    if not all(labels) and has_default_queue(cluster, namespace):
        found.add(DEFAULT_QUEUE)
    return found


def has_default_queue(cluster: Cluster, namespace: str) -> bool:
    return any(item.name == DEFAULT_QUEUE for item in cluster.of("LocalQueue", namespace))


def cluster_queues(cluster: Cluster, namespace: str, queues: Collection[str]) -> list[Manifest]:
    """The ClusterQueues that some LocalQueues of a namespace lead to."""
    targets = {
        read_map(item.body.get("spec"), "spec").get("clusterQueue")
        for item in cluster.of("LocalQueue", namespace)
        if item.name in queues
    }
    return [item for item in cluster.of("ClusterQueue") if item.name in targets]


def runs_kueue(cluster: Cluster) -> bool:
    """Whether Kueue is there though no queue is: its webhook or its configuration says so, and somebody looked."""
    hooks = (item.name for item in cluster.objects if item.kind == "MutatingWebhookConfiguration")
    return "LocalQueue" in cluster.listed and (bool(cluster.of("Configuration")) or WEBHOOK in hooks)


def queues_without_kueue(cluster: Cluster, namespace: str, needed: Mapping[str, str]) -> Iterator[Finding]:
    """Pods that name a queue in a cluster that has none: without Kueue the name is a label like any other."""
    listed = all(kind in cluster.listed and not cluster.of(kind) for kind in QUEUES)
    if set(QUEUES) <= needed.keys() and listed and not runs_kueue(cluster):
        yield warning(
            "GF537",
            f"the cluster has no Kueue: {needed['LocalQueue']} holds nothing back, and the pods start without it",
            Where(cluster.source),
            f"install Kueue, or remove queue from the pipeline; is {namespace} on another cluster?",
        )


def namespace_decides(cluster: Cluster, namespace: str, queues: Collection[str]) -> bool:
    """Whether some ClusterQueue asks for labels of the namespace beside its name, which every namespace has."""
    managed = any(_asks(item.body, "managedJobsNamespaceSelector") for item in cluster.of("Configuration"))
    return managed or any(asks_namespace(item.body) for item in cluster_queues(cluster, namespace, queues))


def asks_namespace(cluster_queue: Mapping[str, Any]) -> bool:
    return _asks(read_map(cluster_queue.get("spec"), "spec"), "namespaceSelector")


def _asks(holder: Mapping[str, Any], field: str) -> bool:
    selector = read_selector(holder.get(field), field)
    return selector is not None and any(each.key != NAME_LABEL for each in selector.requirements)


def shows_namespace(cluster: Cluster, namespace: str) -> bool:
    """Whether the labels of the namespace are known: its own object counts, not those of others."""
    return "Namespace" in cluster.listed or any(item.name == namespace for item in cluster.of("Namespace"))


def _is_open(cluster: Cluster, namespace: str, kind: str) -> bool:
    if kind in cluster.unread or kind in cluster.assumed:
        return False  # said elsewhere
    return not (shows_namespace(cluster, namespace) if kind == "Namespace" else cluster.knows(kind))


def _field_values(specs: Sequence[Mapping[str, Any]], field: str) -> set[str]:
    return {name for spec in specs if (name := spec.get(field))}


def _mounted_claims(specs: Sequence[Mapping[str, Any]], demand: Demand) -> set[str]:
    """The claims that steps mount and that the run does not make itself."""
    own = {claim.volume for claim in demand.claims}
    return {
        str(claim["claimName"])
        for spec in specs
        for volume in read_maps(spec.get("volumes"), "spec.volumes")
        if volume["name"] not in own and (claim := volume.get("persistentVolumeClaim")) and claim.get("claimName")
    }


def _labels(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    labels: Mapping[str, Any] = pod["metadata"].get("labels", {})
    return labels


def _join_sorted(names: Collection[str]) -> str:
    return ", ".join(sorted(names))
