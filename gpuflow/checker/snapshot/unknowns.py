"""What a snapshot leaves open: kinds that could not be read, objects without a status, fields that do not exist.

Two more: quotas whose status is not yet what their spec says, so that what is enforced is about to change; and labels
of other tenants, of which a snapshot shows few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuflow.checker.kueue.queues import read_cluster_queue, read_cohort
from gpuflow.checker.kueue.snapshot import cyclic_cohorts
from gpuflow.checker.nodes.node_info import GROUP_MAX
from gpuflow.checker.nodes.pod_affinity import PodAffinityTerm, read_affinity
from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.checker.snapshot.namespace_rules import annotations_of
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.fields import unknown_fields
from gpuflow.cluster.model import with_entry
from gpuflow.cluster.tenants import KEPT_LABELS
from gpuflow.core.errors import Finding, Where, did_you_mean, join_names, list_names, warning
from gpuflow.kubernetes.resources import ResourceList, read_map, read_maps, read_resource_list


def hidden_labels(cluster: Cluster, namespace: str, admissions: Sequence[StepAdmission]) -> Iterator[Finding]:
    """Steps whose affinity to pods of other namespaces asks for labels that the snapshot does not show."""
    if cluster.labels is None:
        return
    asking: dict[str, set[str]] = {}
    for one in admissions:
        affinity = read_affinity(one.step.pod["spec"], namespace)
        for term in (*affinity.together, *affinity.apart):
            hidden = {key for key in _asked_keys(term, namespace) if not _is_shown(key, cluster.labels)}
            if hidden:
                asking.setdefault(one.step.name, set()).update(hidden)
    if asking:
        keys = sorted(set().union(*asking.values()))
        yield warning(
            "GF577",
            f"{list_names(sorted(asking))}: it is unknown which pods of other namespaces have the labels "
            f"{', '.join(keys)}; the snapshot does not show them",
            Where(cluster.source),
            "check against the live cluster: --cluster live",
        )


def _asked_keys(term: PodAffinityTerm, namespace: str) -> Iterator[str]:
    """The keys it asks other namespaces for."""
    if term.namespace_selector is None and term.namespaces <= {namespace}:
        return
    for selector in (term.selector, term.namespace_selector):
        yield from (each.key for each in (selector.requirements if selector is not None else ()))


def _is_shown(key: str, shown: frozenset[str]) -> bool:
    return key in shown or key.startswith(KEPT_LABELS)


def changing_quotas(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """A finding for each quota that is being changed."""
    for item in cluster.of("ResourceQuota", namespace):
        wanted, enforced = _limits(item.body)
        differing = sorted(key for key in {*wanted, *enforced} if wanted.get(key) != enforced.get(key))
        if enforced and wanted and differing:
            key = differing[0]
            yield warning(
                "GF576",
                f"quota {item.name} is being changed: {key} is {_amount(wanted, key)} in spec.hard and "
                f"{_amount(enforced, key)} in status.hard",
                item.at("status", "hard", key),
                "take the snapshot again when Kubernetes has caught up",
            )


def with_changes(cluster: Cluster, namespace: str) -> Cluster:
    """The cluster after all its quotas have changed."""
    return replace(
        cluster,
        objects=tuple(
            _with_new_limits(item)
            if item.kind == "ResourceQuota" and item.is_known and item.in_namespace(namespace)
            else item
            for item in cluster.objects
        ),
    )


def _with_new_limits(item: Manifest) -> Manifest:
    wanted, enforced = _limits(item.body)
    if not wanted or not enforced or wanted == enforced:
        return item
    status = with_entry(item.body["status"], "hard", item.body["spec"]["hard"])
    return replace(item, body=with_entry(item.body, "status", status))


def _limits(body: Mapping[str, Any]) -> tuple[ResourceList, ResourceList]:
    """What the quota shall limit, and what it limits now."""
    wanted, enforced = (
        read_resource_list(read_map(body.get(part), part).get("hard"), f"{part}.hard") for part in ("spec", "status")
    )
    return wanted, enforced


def _amount(amounts: ResourceList, key: str) -> str:
    return str(amounts[key]) if key in amounts else "missing"


LIVE = "take a snapshot of the live cluster: gpuflow snapshot"


def unknowns(cluster: Cluster, namespace: str, related: Collection[str]) -> Iterator[Finding]:
    """What keeps the verdict from being *always*: something of the cluster is not known.

    `related` are the ClusterQueues that share quota with those of the pipeline.
    """
    if cluster.namespace not in (None, namespace):
        yield warning(
            "GF533",
            f'the snapshot is of namespace "{cluster.namespace}": it does not show what limits "{namespace}"',
            Where(cluster.source),
            f"take another with gpuflow snapshot --namespace {namespace}",
        )
    yield from _unknown_field_findings(cluster, namespace)
    yield from _empty_limits(cluster, namespace)
    yield from _silent_nodes(cluster)
    yield from _lost_workloads(cluster, related)


def assumptions(cluster: Cluster) -> Iterator[Finding]:
    """What is taken for granted where the snapshot says nothing, and what is worth knowing besides."""
    yield from _cycles(cluster)
    nodes = [node for node in cluster.of("Node") if GROUP_MAX not in annotations_of(node)]
    if nodes and not cluster.knows("Pod"):
        yield _assumption(nodes, "the snapshot has nodes and no pods: the nodes are assumed to be empty")
    queues = cluster.of("ClusterQueue")
    bare = [queue for queue in (*queues, *cluster.of("LocalQueue")) if not queue.body.get("status")]
    if bare:
        used = "" if cluster.knows("Workload") else ", with nothing in use"
        verb = "has" if len(bare) == 1 else "have"
        names = [f"{item.kind} {item.name}" for item in bare]
        yield _assumption(bare, f"{join_names(names)} {verb} no status: assumed active and as written{used}")


def related_queues(cluster: Cluster, names: Collection[str]) -> set[str]:
    """The ClusterQueues that share quota with some of these: all in the same tree of cohorts."""
    parents = {item.name: read_cohort(item.body).parent for item in cluster.of("Cohort")}

    def root(queue: Manifest) -> tuple[str, str]:
        cohort = read_cluster_queue(queue.body).cohort
        if not cohort:
            return "ClusterQueue", queue.name
        above, seen = cohort, {""}
        while above not in seen:
            cohort, above = above, parents.get(above) or ""
            seen.add(cohort)
        return "Cohort", cohort

    roots = {queue.name: root(queue) for queue in cluster.of("ClusterQueue")}
    own = {roots[name] for name in names if name in roots}
    return {name for name, top in roots.items() if top in own}


def _assumption(items: list[Manifest], message: str) -> Finding:
    return Finding("GF573", message, items[0].where, LIVE, severity="note")


def _unknown_field_findings(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    for item in cluster.objects:
        for stray in unknown_fields(item.kind, item.body) if item.is_known and item.in_namespace(namespace) else ():
            *above, name = stray.path
            holder = ".".join(map(str, above)) or "it"
            yield warning(
                "GF407",
                f"{item.kind} {item.name}: {holder} has no field {name}; Kubernetes ignores or refuses it",
                item.at(*stray.path, key=True),
                did_you_mean(str(name), stray.known) or f"known there: {', '.join(stray.known)}",
            )


def _empty_limits(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """Limit ranges that say nothing, which is never meant."""
    for item in cluster.of("LimitRange", namespace):
        limits = read_maps(read_map(item.body.get("spec"), "spec").get("limits"), "spec.limits")
        if not limits or not all(any(limit.get(field) for field in BOUNDS) for limit in limits):
            yield Finding(
                "GF534", f"limit range {item.name} limits nothing", item.at("spec", "limits"), "is the key misspelled?"
            )


BOUNDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def _silent_nodes(cluster: Cluster) -> Iterator[Finding]:
    """Nodes that do not say what they have hold nothing, which is not what their author meant."""
    for node in cluster.of("Node"):
        status = read_map(node.body.get("status"), "status")
        if not status.get("allocatable") and not status.get("capacity"):
            yield warning(
                "GF572",
                f"node {node.name} has no status.allocatable: it counts as a node that holds nothing",
                node.at("status"),
                "take the manifest from the live cluster, or add what the node offers",
            )


def _lost_workloads(cluster: Cluster, related: Collection[str]) -> Iterator[Finding]:
    """Queues that say that more is admitted, or waits, than the snapshot shows: who holds quota is then not known."""
    homes = {(item.namespace, item.name): _target_of(item.body) for item in cluster.of("LocalQueue")}
    holders = Counter(_queue_of(item.body) for item in cluster.of("Workload"))
    lining_up = Counter(
        homes.get((item.namespace, str(read_map(item.body.get("spec"), "spec").get("queueName") or "")))
        for item in cluster.of("Workload")
        if not _queue_of(item.body)
    )
    for queue in cluster.of("ClusterQueue"):
        if queue.name not in related:
            continue  # who waits or runs there takes none of this quota
        status = read_map(queue.body.get("status"), "status")
        admitted = max(
            (n for n in (status.get(f"{word}Workloads") for word in COUNTS) if isinstance(n, int)), default=0
        )
        waiting, shown = status.get("pendingWorkloads"), holders[queue.name]
        words = f"has admitted {_workloads(admitted)}; the snapshot shows {shown}" if admitted > shown else None
        # A workload may have been admitted between the two lists, so that both kinds are compared together.
        if words is None and isinstance(waiting, int) and admitted + waiting > shown + lining_up[queue.name]:
            words = f"has {_workloads(waiting, 'pending')}; the snapshot shows {lining_up[queue.name]}"
        if words is not None:
            yield warning(
                "GF574",
                f"ClusterQueue {queue.name} {words}",
                queue.at("status"),
                "add the Workloads and LocalQueues of all namespaces: gpuflow snapshot, or kubectl get "
                "workloads,localqueues -A -o yaml",
            )


COUNTS = ("admitted", "reserving")


def _workloads(count: int, which: str = "") -> str:
    """`1 workload`, `2 pending workloads`."""
    return f"{count} {f'{which} ' if which else ''}workload{'' if count == 1 else 's'}"


def _queue_of(body: Any) -> str:
    admission = read_map(read_map(body.get("status"), "status").get("admission"), "status.admission")
    return str(admission.get("clusterQueue") or "")


def _target_of(body: Any) -> str:
    return str(read_map(body.get("spec"), "spec").get("clusterQueue") or "")


def _cycles(cluster: Cluster) -> Iterator[Finding]:
    manifests = {item.name: item for item in cluster.of("Cohort")}
    cohorts = {name: read_cohort(item.body) for name, item in manifests.items()}
    lost = cyclic_cohorts(cohorts)
    rings: set[frozenset[str]] = set()
    for name in sorted(lost):
        ring = [name]
        while (above := cohorts[ring[-1]].parent) not in ring:
            ring.append(above)
        if above == name and frozenset(ring) not in rings:
            rings.add(frozenset(ring))
            yield warning(
                "GF575",
                f"cohorts are each other's parents: {' -> '.join((*ring, name))}; Kueue admits nothing below them",
                manifests[name].at("spec", "parentName"),
                "remove one of these parents",
            )
