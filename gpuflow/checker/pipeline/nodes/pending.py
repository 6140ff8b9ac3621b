"""Pods of others that no node has yet: the scheduler may give them the places that the pipeline counts on.

Which of several pods the scheduler takes first depends on priorities and on who comes when; here every one of them may
be first. A pod that only fits once others have left a node is among them, one that no node could hold is not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpuflow.checker.contention.pending import PendingRequest, PendingRequests
from gpuflow.checker.nodes.daemons import missing_daemons
from gpuflow.checker.nodes.node_pools import NodePools, in_order
from gpuflow.checker.nodes.subjects import UnboundPod, read_schedulable_pod
from gpuflow.cluster import Cluster
from gpuflow.errors import Finding, GpuflowError


class PendingPod(NamedTuple):
    name: str
    pod: UnboundPod
    source: tuple[str, str] | None = None
    """The queues that send it, if it comes from such."""


def read_pending_pods(cluster: Cluster, node_pools: NodePools) -> list[PendingPod]:
    """The pods of a snapshot that wait for a node and for nothing else, and those that DaemonSets are about to make."""
    found = []
    for item in cluster.of("Pod"):
        try:
            pod = read_schedulable_pod(item.body)
        except ValueError as refusal:
            raise GpuflowError(Finding("GF403", str(refusal), item.where, "fix the manifest")) from None
        if pod is not None:
            found.append(PendingPod(f"{pod.namespace}/{item.name}", pod))
    if cluster.knows("Pod"):
        daemon_sets = cluster.of("DaemonSet")
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

    def repelling(self, pod: UnboundPod) -> tuple[PendingRequest, ...]:
        """The pending pods that, once bound, keep this pod off their node by anti-affinity."""
        labels = self.node_pools.node_list.namespaces.get(pod.namespace, {})
        return tuple(
            PendingRequest(each.name, each.pod.requests)
            for group in self._alike
            for each in group
            if any(term.matches(pod.namespace, pod.labels, labels) for term in each.pod.affinity.apart)
        )

    def _could_run(self, pod: UnboundPod) -> bool:
        """Whether some node could hold it, if it was empty."""
        names = in_order(pod.requests)
        table = self.node_pools.pool(pod).table("empty", names)
        return table.count(tuple(pod.requests[name] for name in names), enough=1) > 0

    def _could_run_on(self, pod: UnboundPod, hosts: frozenset[int]) -> bool:
        empty = self.node_pools.empty
        return any(index in hosts and empty[index].holds(pod.requests) for index in self.node_pools.pool(pod).ever)
