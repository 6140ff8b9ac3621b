"""Who can use a device: the nodes for which a slice or a device is there, and the requests that tolerate its taints.

A DeviceTaintRule taints devices too; its gate is off by default.

Mirrors NodeMatches and taintPreventsAllocation in
k8s.io/dynamic-resource-allocation/structured/internal/incubating, and
k8s.io/dynamic-resource-allocation/resourceclaim.ToleratesTaint, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from gpuflow.checker.nodes.node_selection import NodeSelectorTerm, read_term
from gpuflow.kubernetes.admission.pod import read_flag, read_text
from gpuflow.kubernetes.labels import BLOCKING_EFFECTS, Labels, Taint, Toleration
from gpuflow.kubernetes.resources import read_map, read_maps


class NodeSelector(NamedTuple):
    """A node by name, all nodes, or those with certain labels."""

    node_name: str
    is_for_all: bool
    terms: tuple[NodeSelectorTerm, ...] | None

    @property
    def is_set(self) -> bool:
        return bool(self.node_name) or self.is_for_all or self.terms is not None

    def matches(self, name: str, labels: Labels) -> bool:
        if self.node_name:
            return name == self.node_name
        if self.is_for_all:
            return True
        return any(term.is_possible and term.matches(name, labels) for term in self.terms or ())


def read_node_selector(body: Mapping[str, Any], where: str) -> NodeSelector:
    return NodeSelector(
        read_text(body, "nodeName", where) or "",
        read_flag(body, "allNodes", where) is True,
        None if body.get("nodeSelector") is None else read_terms(body["nodeSelector"], f"{where}.nodeSelector"),
    )


def read_terms(selector: object, where: str) -> tuple[NodeSelectorTerm, ...]:
    terms = read_maps(read_map(selector, where).get("nodeSelectorTerms"), f"{where}.nodeSelectorTerms")
    return tuple(read_term(term, f"{where}.nodeSelectorTerms[{index}]") for index, term in enumerate(terms))


def taint_prevents_allocation(taints: Iterable[Taint], tolerations: Iterable[Toleration]) -> bool:
    """Whether a taint keeps a request from a device."""
    return any(
        taint.effect in BLOCKING_EFFECTS and not any(each.tolerates(*taint, comparing=False) for each in tolerations)
        for taint in taints
    )


def read_taints(body: Mapping[str, Any], where: str) -> tuple[Taint, ...]:
    return tuple(
        Taint(*(read_text(each, field, f"{where}.taints[{index}]") or "" for field in Taint._fields))
        for index, each in enumerate(read_maps(body.get("taints"), f"{where}.taints"))
    )
