"""Workloads of others that wait for quota: they may get what the pipeline counts on.

Whoever stands before whom, a workload that is there already can be admitted before one that is made later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from gpuflow.check.kueue import Assignment, Kueue
from gpuflow.check.kueue.queues import ClusterQueue
from gpuflow.check.kueue.tree import Node
from gpuflow.check.kueue.workloads import read_workload
from gpuflow.check.whole.lanes import COUNT
from gpuflow.check.whole.rivals import Rival, Rivals


class Candidate(NamedTuple):
    """A workload that its queue may admit some day, and what it will be charged."""

    name: str
    queue: ClusterQueue
    amounts: Mapping[str, int]


class WaitingLine:
    """All workloads that wait, by the ClusterQueue they wait in."""

    def __init__(self, kueue: Kueue, waiting: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        self.kueue = kueue
        self._candidates = list(_candidates(kueue, waiting))
        self._rivals: dict[tuple[int, tuple[str, ...]], Rivals | None] = {}

    def rivals(self, top: Node, flavors: tuple[str, ...]) -> Rivals | None:
        """Those who may be charged for these flavors in the queues below a node of the tree; `None` when nobody is."""
        key = id(top), flavors
        if key not in self._rivals:
            members = [
                Rival(each.name, {**amounts, COUNT: 1})
                for each in self._candidates
                if top in self.kueue.snapshot.nodes[each.queue.name].path()
                and (amounts := _charged(each, frozenset(flavors)))
            ]
            self._rivals[key] = Rivals(members) if members else None
        return self._rivals[key]


def _candidates(kueue: Kueue, waiting: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[Candidate]:
    for name in sorted(waiting):
        for workload in waiting[name]:
            read = read_workload(workload)
            case = kueue.enter(read)
            if isinstance(case, Assignment) or kueue.assign(workload).verdict in ("never", "blocked"):
                continue
            amounts: Counter[str] = Counter()
            for demand in case.demands:
                amounts.update(demand.amounts)
                amounts["pods"] += demand.pods
            yield Candidate(f"{read.namespace}/{read.name}", case.queue, amounts)


def _charged(candidate: Candidate, flavors: frozenset[str]) -> dict[str, int]:
    return {
        name: candidate.amounts[name]
        for group in candidate.queue.groups
        if not flavors.isdisjoint(group.flavors)
        for name in group.covered
        if candidate.amounts.get(name, 0) > 0
    }
