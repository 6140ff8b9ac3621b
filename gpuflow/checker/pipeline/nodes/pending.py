"""Pods of others that no node has yet: the scheduler may give them the seats that the pipeline counts on.

Which of several pods the scheduler takes first depends on priorities and on who comes when; here every one of them may
be first. A pod that only fits once others have left a node is among them, one that no node could hold is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gpuflow.checker.contention.pending import Rival, Rivals
from gpuflow.checker.nodes.stock import Stock, in_order
from gpuflow.checker.nodes.subjects import WaitingPod, read_unbound
from gpuflow.cluster import Cluster
from gpuflow.errors import Finding, GpuflowError


class Waiter(NamedTuple):
    name: str
    pod: WaitingPod


def read_waiters(cluster: Cluster) -> list[Waiter]:
    """The pods of a snapshot that wait for a node and for nothing else."""
    found = []
    for item in cluster.of("Pod"):
        try:
            pod = read_unbound(item.body)
        except ValueError as refusal:
            raise GpuflowError(Finding("GF403", str(refusal), item.where, "fix the manifest")) from None
        if pod is not None:
            found.append(Waiter(f"{pod.namespace}/{item.name}", pod))
    return found


class WaitingRoom:
    """All who wait, asked about the nodes of many kinds of pods."""

    def __init__(self, stock: Stock, waiters: Sequence[Waiter], count: str) -> None:
        self.stock = stock
        self._count = count
        alike: dict[object, list[Waiter]] = {}
        for each in waiters:
            key = id(stock.pool(each.pod)), tuple(sorted(each.pod.requests.items()))
            alike.setdefault(key, []).append(each)
        self._alike = [members for members in alike.values() if self._sits(members[0].pod)]
        self._rivals: dict[frozenset[int], Rivals | None] = {}

    def rivals(self, hosts: frozenset[int]) -> Rivals | None:
        """Those who may take a seat on one of these nodes; `None` when nobody does."""
        if hosts not in self._rivals:
            members = [
                Rival(each.name, {**each.pod.requests, self._count: 1})
                for group in self._alike
                if self._sits_on(group[0].pod, hosts)
                for each in group
            ]
            self._rivals[hosts] = Rivals(members) if members else None
        return self._rivals[hosts]

    def shunning(self, pod: WaitingPod) -> tuple[Rival, ...]:
        """Those who, once they sit somewhere, keep this pod away from there."""
        labels = self.stock.fleet.namespaces.get(pod.namespace, {})
        return tuple(
            Rival(each.name, each.pod.requests)
            for group in self._alike
            for each in group
            if any(term.matches(pod.namespace, pod.labels, labels) for term in each.pod.affinity.apart)
        )

    def _sits(self, pod: WaitingPod) -> bool:
        """Whether some node could hold it, if it was empty."""
        names = in_order(pod.requests)
        table = self.stock.pool(pod).table("empty", names)
        return table.count(tuple(pod.requests[name] for name in names), enough=1) > 0

    def _sits_on(self, pod: WaitingPod, hosts: frozenset[int]) -> bool:
        empty = self.stock.empty
        return any(index in hosts and empty[index].holds(pod.requests) for index in self.stock.pool(pod).ever)
