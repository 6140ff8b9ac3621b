"""Which nodes a pod may use: its node name, node selector and required node affinity, and the taints that it tolerates.

Mirrors k8s.io/component-helpers/scheduling/corev1/nodeaffinity.RequiredNodeAffinity.Match and
k8s.io/component-helpers/scheduling/corev1.FindMatchingUntoleratedTaint, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.decoding import read_as
from gpuflow.kubernetes.labels import BLOCKING_EFFECTS, Labels, Taint, Toleration, read_labels
from gpuflow.kubernetes.objects import REQUIRED, NodeSelectorTerm, NodeTaint
from gpuflow.kubernetes.resources import read_map, read_maps


class Placement:
    """What a pod says about the nodes it wants."""

    def __init__(self, node_name: str, selector: Labels, terms: tuple[NodeSelectorTerm, ...] | None) -> None:
        self.node_name = node_name
        self.selector = selector
        self.terms = terms

    @cached_property
    def _possible(self) -> tuple[NodeSelectorTerm, ...]:
        return tuple(term for term in self.terms or () if term.is_possible)

    def matches(self, name: str, labels: Labels) -> bool:
        """Whether the node selector and the affinity allow the node."""
        for key, value in self.selector.items():
            if labels.get(key) != value:
                return False
        return self.terms is None or any(term.matches(name, labels) for term in self._possible)

    @cached_property
    def node_names(self) -> frozenset[str] | None:
        """The only nodes the affinity allows, when every term of it gives names; `None` when all are open."""
        names: frozenset[str] = frozenset()
        for term in self.terms or ():
            if term.node_names is None:
                return None
            names |= term.node_names
        return names if self.terms else None

    @cached_property
    def keys(self) -> frozenset[str]:
        """The labels it looks at."""
        return frozenset(self.selector) | {each.key for term in self._possible for each in term.expressions}

    @cached_property
    def identity(self) -> tuple[object, ...]:
        """Equal for two pods that say the same."""
        return self.node_name, frozenset(self.selector.items()), self.terms

    @cached_property
    def looks_at_names(self) -> bool:
        return bool(self.node_name) or any(term.fields for term in self._possible)


def read_placement(spec: Mapping[str, Any]) -> Placement:
    affinity = read_map(spec.get("affinity"), "spec.affinity")
    node = read_map(affinity.get("nodeAffinity"), "spec.affinity.nodeAffinity")
    where = f"spec.affinity.nodeAffinity.{REQUIRED}"
    required = node.get(REQUIRED)
    terms = None
    if required is not None:
        where += ".nodeSelectorTerms"
        items = read_maps(read_map(required, where).get("nodeSelectorTerms"), where)
        terms = read_as(tuple[NodeSelectorTerm, ...], items, where)
    return Placement(
        read_text(spec, "nodeName", "spec") or "", read_labels(spec.get("nodeSelector"), "spec.nodeSelector"), terms
    )


COMPARISON_GATE: Final = "TaintTolerationComparisonOperators"
"""The alpha feature gate without which `Gt` and `Lt` tolerate nothing."""


CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What a pod must tolerate to be put on a node marked unschedulable."""

TEMPORARY_TAINTS: Final = frozenset(
    {
        CORDON.key,
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
        "node.kubernetes.io/memory-pressure",
        "node.kubernetes.io/disk-pressure",
        "node.kubernetes.io/pid-pressure",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/out-of-service",
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.cloudprovider.kubernetes.io/shutdown",
    }
)
"""Taints that come and go with the condition of a node and say nothing about whom it is for."""


class Tolerations(NamedTuple):
    items: tuple[Toleration, ...]
    comparing: bool

    def cover(self, taint: Taint) -> bool:
        return any(
            each.tolerates(taint.key, taint.value, taint.effect, comparing=self.comparing) for each in self.items
        )

    def cover_all(self, taints: tuple[Taint, ...]) -> bool:
        return all(self.cover(taint) for taint in taints)


def blocking_taints(listed: Iterable[NodeTaint]) -> tuple[Taint, ...]:
    """The taints that keep pods off; a preference is none, and its key and value are not read."""
    taints = []
    for index, item in enumerate(listed):
        if item.effect in BLOCKING_EFFECTS:
            key, value = (
                read_as(str | None, part, f"spec.taints[{index}].{field}") or ""
                for field, part in (("key", item.key), ("value", item.value))
            )
            taints.append(Taint(key, value, item.effect))
    return tuple(taints)
