"""Which flavors a pod's node selector and required node affinity leave open, as Kueue asks.

Mirrors sigs.k8s.io/kueue/pkg/scheduler/flavorassigner.flavorSelector, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from gpuflow.kubernetes.labels import Labels, Requirement, read_labels, read_requirements
from gpuflow.resources import BadField, read_map, read_maps

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeAffinity(NamedTuple):
    """The node selector of a pod, and the terms of its required node affinity, of which one must match."""

    selector: Labels
    terms: tuple[tuple[Requirement, ...], ...]
    where: str
    names: tuple[tuple[Requirement, ...], ...] = ()
    """Of each term, what it asks of the node's own name (`matchFields`)."""

    def matches_flavor(self, labels: Labels) -> bool:
        """Whether nodes of a flavor may do: keys that the flavor does not carry have no say."""
        if any(key in labels and labels[key] != value for key, value in self.selector.items()):
            return False
        terms = [_known(term, labels) for term in self.terms]
        # A term that knows none of the flavor's keys, or names fields only, leaves the affinity open.
        return not terms or not all(terms) or self._any_matches(terms, labels)

    def matches_node(self, name: str, labels: Labels) -> bool:
        """Whether one of the terms is for this node, as the scheduler reads them; an empty one is for none."""
        if not self.terms:
            return True
        for term, names in zip(self.terms, self.names, strict=True):
            if any(each.fault for each in (*term, *names)):
                continue
            named = all(each.matches({"metadata.name": name}) for each in names)
            if (term or names) and named and all(each.matches(labels) for each in term):
                return True
        return False

    def _any_matches(self, terms: Iterable[tuple[Requirement, ...]], labels: Labels) -> bool:
        faults: list[BadField] = []
        for index, term in enumerate(terms):
            faulty = [BadField(f"{self.where}[{index}]", each.fault) for each in term if each.fault]
            if not faulty and all(each.matches(labels) for each in term):
                return True
            faults += faulty
        if len(faults) == 1:
            raise faults[0]
        if faults:
            raise ValueError("; ".join(map(str, faults)))
        return False


def read_node_affinity(spec: Mapping[str, Any], where: str) -> NodeAffinity:
    affinity = read_map(spec.get("affinity"), f"{where}.affinity")
    node = read_map(affinity.get("nodeAffinity"), f"{where}.affinity.nodeAffinity")
    required = read_map(node.get(REQUIRED), f"{where}.affinity.nodeAffinity.{REQUIRED}")
    at = f"{where}.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms"
    terms = read_maps(required.get("nodeSelectorTerms"), at)

    def each(field: str) -> tuple[tuple[Requirement, ...], ...]:
        return tuple(read_requirements(term.get(field), f"{at}[{index}].{field}") for index, term in enumerate(terms))

    selector = read_labels(spec.get("nodeSelector"), f"{where}.nodeSelector")
    return NodeAffinity(selector, each("matchExpressions"), at, each("matchFields"))


def _known(term: Iterable[Requirement], labels: Collection[str]) -> tuple[Requirement, ...]:
    return tuple(each for each in term if each.key in labels)
