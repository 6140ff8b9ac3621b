"""ResourceFlavor: which pods the nodes behind a flavor would take, by taints, node selector and required node affinity.

Mirrors FlavorAssigner.checkFlavorForPodSets and flavorSelector in sigs.k8s.io/kueue/pkg/scheduler/flavorassigner, Kueue
v0.19.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from gpuflow.checker.kueue.reasons import AffinityMismatch, UntoleratedTaint
from gpuflow.kubernetes.admission.pod import Body, read_object, read_text
from gpuflow.kubernetes.labels import (
    BLOCKING_EFFECTS,
    Labels,
    Requirement,
    Toleration,
    read_labels,
    read_tolerations,
)
from gpuflow.kubernetes.objects import NAME_FIELD, REQUIRED, NodeSelector, NodeSelectorTerm, read_as
from gpuflow.kubernetes.resources import BadField, read_map, read_maps


class NodeAffinity(NamedTuple):
    """The node selector of a pod, and the terms of its required node affinity, of which one must match."""

    selector: Labels
    terms: tuple[NodeSelectorTerm, ...]
    where: str

    def matches_flavor(self, labels: Labels) -> bool:
        """Whether nodes of a flavor may do: keys that the flavor does not carry have no say."""
        if any(key in labels and labels[key] != value for key, value in self.selector.items()):
            return False
        terms = [tuple(each for each in term.expressions if each.key in labels) for term in self.terms]
        # A term that knows none of the flavor's keys, or names fields only, leaves the affinity open.
        return not terms or not all(terms) or self._any_matches(terms, labels)

    def matches_node(self, name: str, labels: Labels) -> bool:
        """Whether one of the terms is for this node, as the scheduler reads them; an empty one is for none."""
        own = {NAME_FIELD: name}
        return not self.terms or any(
            bool(term.expressions or term.fields)
            and not any(each.fault for each in (*term.expressions, *term.fields))
            and all(each.matches(own) for each in term.fields)
            and all(each.matches(labels) for each in term.expressions)
            for term in self.terms
        )

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
    at = f"{where}.affinity.nodeAffinity.{REQUIRED}"
    required: NodeSelector = read_as(NodeSelector | None, node.get(REQUIRED), at) or NodeSelector()
    selector = read_labels(spec.get("nodeSelector"), f"{where}.nodeSelector")
    return NodeAffinity(selector, required.node_selector_terms, f"{at}.nodeSelectorTerms")


class FlavorTaint(NamedTuple):
    key: str
    value: str
    effect: str
    added: datetime | None

    def __str__(self) -> str:
        """As Go prints the structure: Kueue hands it to `%s` as it is."""
        added = "<nil>" if self.added is None else f"{self.added:%Y-%m-%d %H:%M:%S} +0000 UTC"
        return f"{{{self.key} {self.value} {self.effect} {added}}}"


def untolerated_taint(taints: Iterable[FlavorTaint], tolerations: Iterable[Toleration]) -> FlavorTaint | None:
    """The first of these taints that keeps pods with these tolerations off."""
    for taint in taints:
        tolerated = (each.tolerates(*taint[:3], comparing=True) for each in tolerations)
        if taint.effect in BLOCKING_EFFECTS and not any(tolerated):
            return taint
    return None


class Flavor(NamedTuple):
    name: str
    labels: Mapping[str, str]
    taints: tuple[FlavorTaint, ...]
    tolerations: tuple[Toleration, ...]
    topology: str | None

    def mismatch(self, constraints: FlavorConstraints) -> UntoleratedTaint | AffinityMismatch | None:
        """Why pods with these constraints cannot run on nodes of this flavor."""
        tolerations = (*constraints.tolerations, *self.tolerations)
        taint = untolerated_taint(self.taints, tolerations)
        if taint is not None:
            return UntoleratedTaint(self.name, taint.key, str(taint))
        if not constraints.affinity.matches_flavor(self.labels):
            return AffinityMismatch(self.name)
        return None


def topologies_of(flavors: Mapping[str, Flavor], names: Iterable[str]) -> dict[str, str]:
    """The topology-aware ones among these flavors, with their Topologies."""
    known = (flavors[name] for name in names if name in flavors)
    return {flavor.name: flavor.topology for flavor in known if flavor.topology is not None}


class FlavorConstraints(NamedTuple):
    """What a pod demands of its node, as far as a flavor can tell."""

    tolerations: tuple[Toleration, ...]
    affinity: NodeAffinity


def read_flavor(manifest: object) -> Flavor:
    body, name = read_named(manifest, "ResourceFlavor")
    where = f"ResourceFlavor {name}: spec"
    spec = read_map(body.get("spec"), where)
    return Flavor(
        name,
        read_labels(spec.get("nodeLabels"), f"{where}.nodeLabels"),
        tuple(
            read_taint(taint, f"{where}.nodeTaints[{index}]")
            for index, taint in enumerate(read_maps(spec.get("nodeTaints"), f"{where}.nodeTaints"))
        ),
        read_tolerations(spec.get("tolerations"), f"{where}.tolerations"),
        read_text(spec, "topologyName", where),
    )


def read_constraints(spec: Mapping[str, Any], where: str) -> FlavorConstraints:
    return FlavorConstraints(
        read_tolerations(spec.get("tolerations"), f"{where}.tolerations"), read_node_affinity(spec, where)
    )


def read_named(manifest: object, kind: str) -> tuple[Body, str]:
    """A manifest of a kind, and its name."""
    body = read_object(manifest, kind)
    name = read_text(read_map(body.get("metadata"), f"{kind} metadata"), "name", f"{kind} metadata")
    if not name:
        raise ValueError(f"a {kind} without metadata.name")
    return body, name


def read_time(value: object, where: str) -> datetime | None:
    """A timestamp of a manifest: text, or what a YAML reader made of it."""
    if value is None:
        return None
    try:
        time = datetime.fromisoformat(value) if isinstance(value, str) else value
        if isinstance(time, datetime):
            return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        pass
    raise BadField(where, f"{value!r} is not a time such as 2026-01-01T00:00:00Z")


def read_taint(taint: Body, where: str) -> FlavorTaint:
    key, value, effect = (read_text(taint, field, where) or "" for field in ("key", "value", "effect"))
    return FlavorTaint(key, value, effect, read_time(taint.get("timeAdded"), f"{where}.timeAdded"))
