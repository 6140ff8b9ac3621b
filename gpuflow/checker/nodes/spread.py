"""Topology spread constraints that must hold (`DoNotSchedule`).

Mirrors k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread.PodTopologySpread.Filter, Kubernetes
v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission.pod import read_integer, read_text
from gpuflow.kubernetes.labels import Labels, Selector, read_selector
from gpuflow.resources import read_maps, read_texts

UNEVEN: Final = "node(s) didn't match pod topology spread constraints"
UNLABELED: Final = f"{UNEVEN} (missing required label)"


class Constraint(NamedTuple):
    topology_key: str
    max_skew: int
    selector: Selector | None
    min_domains: int
    honors_affinity: bool
    honors_taints: bool

    def counts(self, labels: Labels) -> bool:
        """Whether a pod with these labels is one to spread."""
        return self.selector is not None and self.selector.matches(labels)

    def tally(self, pods: Iterable[Labels]) -> int:
        # An empty selector counts no pod that is there, though it does count the pod to be placed.
        if self.selector is None or not self.selector.requirements:
            return 0
        return sum(map(self.selector.matches, pods))


def read_constraints(spec: Mapping[str, Any], labels: Labels) -> tuple[Constraint, ...]:
    where = "spec.topologySpreadConstraints"
    return tuple(
        _read_constraint(item, labels, f"{where}[{index}]")
        for index, item in enumerate(read_maps(spec.get("topologySpreadConstraints"), where))
        if read_text(item, "whenUnsatisfiable", f"{where}[{index}]") == "DoNotSchedule"
    )


def _read_constraint(item: Mapping[str, Any], labels: Labels, where: str) -> Constraint:
    selector = read_selector(item.get("labelSelector"), f"{where}.labelSelector")
    if selector is not None:
        selector = selector.narrowed(read_texts(item.get("matchLabelKeys"), f"{where}.matchLabelKeys"), labels)
    min_domains = read_integer(item, "minDomains", where)
    return Constraint(
        read_text(item, "topologyKey", where) or "",
        read_integer(item, "maxSkew", where) or 0,
        selector,
        1 if min_domains is None else min_domains,
        (read_text(item, "nodeAffinityPolicy", where) or "Honor") == "Honor",
        (read_text(item, "nodeTaintsPolicy", where) or "Ignore") == "Honor",
    )


class Balance(NamedTuple):
    """How the pods that one constraint counts lie over its domains, and what one more may make of it."""

    constraint: Constraint
    tallies: Mapping[str, int]
    own: int
    """1 when the pod to be placed counts itself."""

    def refusal(self, labels: Labels) -> str | None:
        domain = labels.get(self.constraint.topology_key)
        if domain is None:
            return UNLABELED
        fewest = min(self.tallies.values()) if len(self.tallies) >= max(self.constraint.min_domains, 1) else 0
        if self.tallies.get(domain, 0) + self.own - fewest > self.constraint.max_skew:
            return UNEVEN
        return None
