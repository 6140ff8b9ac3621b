"""Labels matched by selectors and node affinity, as `k8s.io/apimachinery` matches them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from gpuflow.check.admission.names import label_value_faults
from gpuflow.check.admission.pod import read_text
from gpuflow.quantity import MAX_INT64
from gpuflow.resources import read_map, read_maps, read_texts

INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
SET_OPERATORS = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
NODE_OPERATORS = SET_OPERATORS | {"Gt", "Lt"}


class Requirement(NamedTuple):
    key: str
    operator: str
    values: frozenset[str]
    where: str

    def matches(self, labels: Mapping[str, str]) -> bool:
        value = labels.get(self.key)
        if self.operator == "In":
            return value in self.values
        if self.operator == "NotIn":
            return value is None or value not in self.values
        if self.operator == "Exists":
            return value is not None
        if self.operator == "DoesNotExist":
            return value is None
        number, bound = _integer(value), _integer(next(iter(self.values)))
        if number is None or bound is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound

    @property
    def fault(self) -> str | None:
        """Why no API server would have stored this requirement."""
        if self.operator not in NODE_OPERATORS:
            return f"operator {self.operator!r} is not one of {', '.join(sorted(NODE_OPERATORS))}"
        if self.operator in ("In", "NotIn") and not self.values:
            return f"{self.operator} needs values"
        if self.operator in ("Exists", "DoesNotExist") and self.values:
            return f"{self.operator} takes no values"
        if self.operator in ("Gt", "Lt") and (len(self.values) != 1 or _integer(next(iter(self.values))) is None):
            return f"{self.operator} needs one whole number"
        return next((fault for value in sorted(self.values) for fault in label_value_faults(value)), None)


def read_requirements(value: object, where: str) -> tuple[Requirement, ...]:
    return tuple(
        Requirement(
            read_text(item, "key", f"{where}[{index}]") or "",
            read_text(item, "operator", f"{where}[{index}]") or "",
            frozenset(read_texts(item.get("values"), f"{where}[{index}].values")),
            f"{where}[{index}]",
        )
        for index, item in enumerate(read_maps(value, where))
    )


def read_labels(value: object, where: str) -> dict[str, str]:
    labels = read_map(value, where)
    for key, text in labels.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise ValueError(f"{where}[{key}]: labels are strings, not {text!r}")
    return dict(labels)


class LabelSelector(NamedTuple):
    """All requirements must hold; `None` in place of a selector matches nothing, an empty one everything."""

    requirements: tuple[Requirement, ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(each.matches(labels) for each in self.requirements)


def read_label_selector(value: object, where: str) -> LabelSelector | None:
    if value is None:
        return None
    selector = read_map(value, where)
    labels = read_labels(selector.get("matchLabels"), f"{where}.matchLabels")
    expressions = read_requirements(selector.get("matchExpressions"), f"{where}.matchExpressions")
    for each in expressions:
        fault = each.fault or (each.operator not in SET_OPERATORS and f"{each.operator} is for node affinity only")
        if fault:
            raise ValueError(f"{each.where}: {fault}")
    equals = tuple(Requirement(key, "In", frozenset({text}), where) for key, text in labels.items())
    return LabelSelector(equals + expressions)


class NodeAffinity(NamedTuple):
    """The node selector of a pod, and the terms of its required node affinity, of which one must match."""

    selector: Mapping[str, str]
    terms: tuple[tuple[Requirement, ...], ...]

    def matches_flavor(self, labels: Mapping[str, str]) -> bool:
        """Whether nodes of a flavor may do: keys that the flavor does not carry have no say."""
        if any(key in labels and labels[key] != value for key, value in self.selector.items()):
            return False
        terms = [_known(term, labels) for term in self.terms]
        # A term that knows none of the flavor's keys, or names fields only, leaves the affinity open.
        return not terms or not all(terms) or _any_matches(terms, labels)


def read_node_affinity(spec: Mapping[str, Any], where: str) -> NodeAffinity:
    affinity = read_map(spec.get("affinity"), f"{where}.affinity")
    node = read_map(affinity.get("nodeAffinity"), f"{where}.affinity.nodeAffinity")
    field = "requiredDuringSchedulingIgnoredDuringExecution"
    required = read_map(node.get(field), f"{where}.affinity.nodeAffinity.{field}")
    where_terms = f"{where}.affinity.nodeAffinity.{field}.nodeSelectorTerms"
    return NodeAffinity(
        read_labels(spec.get("nodeSelector"), f"{where}.nodeSelector"),
        tuple(
            read_requirements(term.get("matchExpressions"), f"{where_terms}[{index}].matchExpressions")
            for index, term in enumerate(read_maps(required.get("nodeSelectorTerms"), where_terms))
        ),
    )


def _known(term: Iterable[Requirement], labels: Collection[str]) -> tuple[Requirement, ...]:
    return tuple(each for each in term if each.key in labels)


def _any_matches(terms: Iterable[tuple[Requirement, ...]], labels: Mapping[str, str]) -> bool:
    faults = []
    for term in terms:
        faulty = [f"{each.where}: {each.fault}" for each in term if each.fault]
        if not faulty and all(each.matches(labels) for each in term):
            return True
        faults += faulty
    if faults:
        raise ValueError("; ".join(faults))
    return False


def _integer(text: str | None) -> int | None:
    """As Go's `strconv.ParseInt` reads 64 bits."""
    if text is None or len(text) > 64 or not INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -MAX_INT64 - 1 <= number <= MAX_INT64 else None
