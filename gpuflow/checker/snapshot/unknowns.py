"""What a snapshot leaves open: kinds that could not be read, objects without a status, fields that do not exist."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from typing import Any

from gpuflow.checker.kueue.queues import read_cluster_queue, read_cohort
from gpuflow.checker.kueue.tree import cyclic_cohorts
from gpuflow.checker.nodes.subjects import GROUP_MAX
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.fields import strays
from gpuflow.errors import Finding, Where, did_you_mean
from gpuflow.resources import read_map, read_maps

LIVE = "take a snapshot of the live cluster: gpuflow snapshot"
MOST_NAMES = 5


def unknowns(cluster: Cluster, namespace: str, related: Collection[str]) -> Iterator[Finding]:
    """What keeps the verdict from being *always*: something of the cluster is not known.

    `related` are the ClusterQueues that share quota with those of the pipeline.
    """
    if cluster.namespace not in (None, namespace):
        yield Finding(
            "GF533",
            f'the snapshot is of namespace "{cluster.namespace}": it does not show what limits "{namespace}"',
            Where(cluster.source),
            f"take another with gpuflow snapshot --namespace {namespace}",
            severity="warning",
        )
    yield from _strays(cluster, namespace)
    yield from _empty_limits(cluster, namespace)
    yield from _silent_nodes(cluster)
    yield from _lost_workloads(cluster, related)


def assumptions(cluster: Cluster) -> Iterator[Finding]:
    """What is taken for granted where the snapshot says nothing, and what is worth knowing besides."""
    yield from _cycles(cluster)
    nodes = [node for node in cluster.of("Node") if not _is_template(node)]
    if nodes and not cluster.knows("Pod"):
        yield _assumed(nodes, "the snapshot has nodes and no pods: the nodes are assumed to be empty")
    queues = cluster.of("ClusterQueue")
    bare = [queue for queue in (*queues, *cluster.of("LocalQueue")) if not queue.body.get("status")]
    if bare:
        used = "" if cluster.knows("Workload") else ", with nothing in use"
        verb = "has" if len(bare) == 1 else "have"
        yield _assumed(bare, f"{_listed(bare)} {verb} no status: assumed active and as written{used}")


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


def _assumed(items: list[Manifest], message: str) -> Finding:
    return Finding("GF573", message, items[0].where, LIVE, severity="note")


def _strays(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    for item in cluster.objects:
        for stray in strays(item.kind, item.body) if item.is_known and item.in_namespace(namespace) else ():
            *above, name = stray.path
            holder = ".".join(map(str, above)) or "it"
            yield Finding(
                "GF407",
                f"{item.kind} {item.name}: {holder} has no field {name}; Kubernetes ignores or refuses it",
                item.at(*stray.path, key=True),
                did_you_mean(str(name), stray.known) or f"known there: {', '.join(stray.known)}",
                severity="warning",
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
            yield Finding(
                "GF572",
                f"node {node.name} has no status.allocatable: it counts as a node that holds nothing",
                node.at("status"),
                "take the manifest from the live cluster, or add what the node offers",
                severity="warning",
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
            yield Finding(
                "GF574",
                f"ClusterQueue {queue.name} {words}",
                queue.at("status"),
                "add the Workloads and LocalQueues of all namespaces: gpuflow snapshot, or kubectl get "
                "workloads,localqueues -A -o yaml",
                severity="warning",
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
            yield Finding(
                "GF575",
                f"cohorts are each other's parents: {' -> '.join((*ring, name))}; Kueue admits nothing below them",
                manifests[name].at("spec", "parentName"),
                "remove one of these parents",
                severity="warning",
            )


def _is_template(node: Manifest) -> bool:
    annotations = read_map(node.body.get("metadata"), "metadata").get("annotations")
    return GROUP_MAX in read_map(annotations, "metadata.annotations")


def _listed(items: list[Manifest]) -> str:
    names = [f"{item.kind} {item.name}" for item in items]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more
