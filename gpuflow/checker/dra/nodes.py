"""For which nodes a slice or a device is there.

Mirrors k8s.io/dynamic-resource-allocation/structured/internal/incubating.NodeMatches, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuflow.checker.nodes.flags import read_flag
from gpuflow.checker.nodes.placement import NodeSelectorTerm
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.labels import Labels, read_requirements
from gpuflow.resources import read_map, read_maps


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
    return tuple(
        NodeSelectorTerm(
            read_requirements(term.get("matchExpressions"), f"{where}.nodeSelectorTerms[{index}].matchExpressions"),
            read_requirements(term.get("matchFields"), f"{where}.nodeSelectorTerms[{index}].matchFields"),
        )
        for index, term in enumerate(terms)
    )
