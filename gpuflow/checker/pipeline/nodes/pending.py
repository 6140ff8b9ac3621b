"""Pods of others that no node has yet: the scheduler may give them the places that the pipeline counts on.

Which of several pods the scheduler takes first depends on priorities and on who comes when; here every one of them may
be first. A pod that only fits once others have left a node is among them, one that no node could hold is not.

Among them are the pods that Kueue has sent to the nodes, or may still send there. A workload that waits in some queue
may be admitted at any time, and then its pods look for nodes like all others. That the quotas of all queues together
are no more than the nodes have does not keep them apart: what is free can lie in pieces. And a workload that is
admitted already, but of which no pod is on a node yet, will take its place there too. All pods that the queues of one
cohort let through at the same time ask for no more than the cohort has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from gpuflow.checker.contention.concurrency import PendingRequest, PendingRequests
from gpuflow.checker.kueue import Kueue
from gpuflow.checker.kueue.reasons import UNLIMITED, FlavorResource, plus
from gpuflow.checker.kueue.workloads import AdmittedPodSet, Holder
from gpuflow.checker.nodes.capacity import NodePools, scarce_first
from gpuflow.checker.nodes.controllers import missing_daemons
from gpuflow.checker.nodes.node_info import Amounts, NodeInfo, UnboundPod, read_unbound_pod
from gpuflow.checker.pipeline.queues.requests import (
    FlavorAssignment,
    PendingPodSet,
    PendingWorkload,
    sent_spec,
    tolerations_of,
)
from gpuflow.checker.snapshot.validation import PreparedCluster


class PendingPod(NamedTuple):
    name: str
    pod: UnboundPod
    source: tuple[str, str] | None = None
    """The queues that send it, if it comes from such."""


def read_pending_pods(prepared: PreparedCluster, node_pools: NodePools) -> list[PendingPod]:
    """The pods of a snapshot that wait for a node and for nothing else, and those that DaemonSets are about to make."""
    found = [PendingPod(f"{pod.namespace}/{item.name}", pod) for item, pod in prepared.valid.waiting]
    if prepared.cluster.knows("Pod"):
        daemon_sets = prepared.cluster.of("DaemonSet")
        for number, pod in missing_daemons(node_pools.node_list, [item.body for item in daemon_sets]):
            found.append(PendingPod(f"{pod.namespace}/{daemon_sets[number].name} (of a DaemonSet)", pod))
    return found


class PendingPods:
    """All pending pods, asked about the nodes of many pod groups."""

    def __init__(
        self,
        node_pools: NodePools,
        pending_pods: Sequence[PendingPod],
        count: str,
        most: Mapping[tuple[str, str], Mapping[str, int]] | None = None,
    ) -> None:
        """`most`: what pods of one source ask for at most, all of them at once."""
        self.node_pools = node_pools
        self._most = most or {}
        self._count = count
        alike: dict[object, list[PendingPod]] = {}
        for each in pending_pods:
            key = node_pools.pool(each.pod), tuple(sorted(each.pod.requests.items())), each.pod.ports, each.pod.disks
            alike.setdefault(key, []).append(each)
        self._alike = [members for members in alike.values() if self._could_run(members[0].pod)]
        self.pods = [members[0].pod for members in self._alike]
        """One of each kind."""
        self.all_pods = [each for members in self._alike for each in members]
        self._pending: dict[frozenset[int], PendingRequests | None] = {}

    def on(self, hosts: frozenset[int]) -> PendingRequests | None:
        """The pending pods that may be bound to one of these nodes; `None` when there is none."""
        if hosts not in self._pending:
            members = [
                PendingRequest(each.name, {**each.pod.requests, self._count: 1}, each.source)
                for group in self._alike
                if self._could_run_on(group[0].pod, hosts)
                for each in group
            ]
            self._pending[hosts] = PendingRequests(members, self._most) if members else None
        return self._pending[hosts]

    def repelling_requests(self, pod: UnboundPod) -> tuple[PendingRequest, ...]:
        """The pending pods that, once bound, keep this pod off their node by anti-affinity."""
        labels = self.node_pools.node_list.namespaces.get(pod.namespace, {})
        return tuple(
            PendingRequest(each.name, each.pod.requests)
            for each in self.all_pods
            if any(term.matches(pod.namespace, pod.labels, labels) for term in each.pod.affinity.apart)
        )

    def _could_run(self, pod: UnboundPod) -> bool:
        """Whether some node could hold it, if it was empty."""
        names = scarce_first(pod.requests)
        table = self.node_pools.pool(pod).table("empty", names)
        return table.count(tuple(pod.requests[name] for name in names), enough=1) > 0

    def _could_run_on(self, pod: UnboundPod, hosts: frozenset[int]) -> bool:
        empty = self.node_pools.empty
        return any(index in hosts and empty[index].holds(pod.requests) for index in self.node_pools.pool(pod).ever)


Source = tuple[str, str]
"""The root of a tree of queues, and the flavor that its quota is of."""


class SentPods(NamedTuple):
    """Pods of queues, and the most of each resource that all pods of one source ask for at the same time."""

    pods: list[PendingPod]
    most: Mapping[Source, Mapping[str, int]]


def sent_pods(
    kueue: Kueue,
    waiting: Iterable[PendingWorkload],
    node_pools: NodePools,
    unbound: Sequence[PendingPod],
) -> SentPods:
    """The pods of workloads that wait, and those of admitted workloads that are on no node yet.

    `unbound` are pods that wait for a node and count already.
    """
    found = [each for workload in waiting for each in _pods_of_waiting(kueue, workload)]
    there = _Places(node_pools.node_list.hosts if kueue.holders else (), unbound)
    placed: Counter[tuple[Source, str]] = Counter()
    for holder in kueue.holders.values():
        if holder.is_evicted or holder.cluster_queue not in kueue.snapshot.nodes:
            continue
        for pod_set in holder.pod_sets:
            missing = pod_set.pods - there.take(holder.key[0], pod_set)
            found += _pods_of_admitted(kueue, holder, pod_set, missing)
            source = _source(kueue, holder.cluster_queue, frozenset(pod_set.flavors.values()))
            if source is not None:
                for resource, amount in pod_set.each.items():
                    placed[source, resource] += amount * (pod_set.pods - missing)
    sources = {each.source for each in found if each.source is not None}
    totals = {source: _quota(kueue, source) for source in sources}
    return SentPods(
        found,
        {
            source: {name: amount - placed[source, name] for name, amount in total.items() if amount != UNLIMITED}
            for source, total in totals.items()
        },
    )


class _Places:
    """The pods that are there: each stands for one pod of an admitted workload at most."""

    def __init__(self, hosts: Sequence[NodeInfo], unbound: Sequence[PendingPod]) -> None:
        self._pods: dict[str, list[Amounts]] = {}
        for host in hosts:
            for pod in host.pods:
                self._pods.setdefault(pod.namespace, []).append(pod.requests)
        for each in unbound:
            self._pods.setdefault(each.pod.namespace, []).append(each.pod.requests)
        self._counts: dict[tuple[str, tuple[str, ...]], Counter[tuple[int, ...]]] = {}

    def take(self, namespace: str, pod_set: AdmittedPodSet) -> int:
        """How many of its pods are there. They are known by what they ask for of what Kueue counts."""
        names = tuple(sorted(name for name in pod_set.each if name != "pods"))
        key = namespace, names
        if key not in self._counts:
            pods = self._pods.get(namespace, ())
            self._counts[key] = Counter(tuple(pod.get(name, 0) for name in names) for pod in pods)
        wanted = tuple(pod_set.each[name] for name in names)
        count = min(self._counts[key][wanted], pod_set.pods)
        self._counts[key][wanted] -= count
        return count


def _pods_of_waiting(kueue: Kueue, workload: PendingWorkload) -> Iterator[PendingPod]:
    name = f"{workload.name} (in queue {workload.queue.name})"
    for pod_set in workload.pods:
        pod = _pod_on_flavor(kueue, pod_set)
        if pod is not None:
            source = _source(kueue, workload.queue.name, pod_set.flavors)
            yield from [PendingPod(name, pod, source)] * pod_set.pods


def _pods_of_admitted(kueue: Kueue, holder: Holder, pod_set: AdmittedPodSet, pods: int) -> Iterator[PendingPod]:
    flavors = frozenset(name for name in pod_set.flavors.values() if name in kueue.flavors)
    pod = _pod_on_flavor(kueue, PendingPodSet(holder.key[0], pod_set.spec, pods, flavors)) if pods > 0 else None
    if pod is not None:
        counted = {name: amount for name, amount in pod_set.each.items() if name != "pods" and amount > 0}
        pod = pod._replace(requests={**pod.requests, **counted})
        name = f"{'/'.join(holder.key)} (admitted by queue {holder.cluster_queue})"
        yield from [PendingPod(name, pod, _source(kueue, holder.cluster_queue, flavors))] * pods


def _source(kueue: Kueue, queue: str, flavors: frozenset[str]) -> Source | None:
    """Where the quota of pods comes from; `None` when it may come from several flavors."""
    return (kueue.snapshot.nodes[queue].path()[-1].name, next(iter(flavors))) if len(flavors) == 1 else None


def _quota(kueue: Kueue, source: Source) -> dict[str, int]:
    """All quota of a flavor in the tree of queues below a root; no less than what is given out of it."""
    nodes = {
        each for node in kueue.snapshot.nodes.values() for each in node.path() if node.path()[-1].name == source[0]
    }
    total: dict[str, int] = {}
    for node in nodes:
        for (flavor, resource), quota in node.quotas.items():
            if flavor == source[1]:
                total[resource] = plus(total.get(resource, 0), quota.nominal)
    held: Counter[FlavorResource] = Counter()
    for name, holders in kueue.snapshot.holders.items():
        if kueue.snapshot.nodes[name].path()[-1].name == source[0]:
            for holder in holders:
                held.update(holder.usage)
    return {resource: max(amount, held[source[1], resource]) for resource, amount in total.items()}


def _pod_on_flavor(kueue: Kueue, pod_set: PendingPodSet) -> UnboundPod | None:
    """A pod with what its flavor puts on it; of several flavors with the tolerations of all. `None`: it has none."""
    names = tuple(sorted(pod_set.flavors))
    if not names:
        return None
    labels = kueue.flavors[names[0]].labels if len(names) == 1 else {}
    spec = sent_spec(pod_set.spec, FlavorAssignment(names, labels, tuple(tolerations_of(kueue, names))))
    spec.pop("schedulingGates", None)
    return read_unbound_pod({"metadata": {"namespace": pod_set.namespace}, "spec": spec})
