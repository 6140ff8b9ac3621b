"""Taints that keep pods off a node, and the tolerations that get past them.

Mirrors k8s.io/component-helpers/scheduling/corev1.FindMatchingUntoleratedTaint, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.labels import integer
from gpuflow.resources import read_maps

COMPARISON_GATE: Final = "TaintTolerationComparisonOperators"
"""The alpha feature gate without which `Gt` and `Lt` tolerate nothing."""

DECIMAL: Final = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
KEEPING_OFF: Final = ("NoSchedule", "NoExecute")


class Taint(NamedTuple):
    key: str
    value: str
    effect: str


CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What a pod must tolerate to be put on a node marked unschedulable."""

PASSING: Final = frozenset(
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


class PodToleration(NamedTuple):
    key: str
    operator: str
    value: str
    effect: str

    def covers(self, taint: Taint, comparing: bool) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        if self.operator == "Exists":
            return True
        if self.operator not in ("Gt", "Lt") or not comparing:
            return False
        bound, number = _decimal(self.value), _decimal(taint.value)
        if bound is None or number is None:
            return False
        return number > bound if self.operator == "Gt" else number < bound


class Tolerations(NamedTuple):
    items: tuple[PodToleration, ...]
    comparing: bool

    def cover(self, taint: Taint) -> bool:
        return any(each.covers(taint, self.comparing) for each in self.items)

    def cover_all(self, taints: tuple[Taint, ...]) -> bool:
        return all(self.cover(taint) for taint in taints)


def read_taints(spec: Mapping[str, Any]) -> tuple[Taint, ...]:
    """The taints that keep pods off; a preference is none."""
    taints = []
    for index, item in enumerate(read_maps(spec.get("taints"), "spec.taints")):
        where = f"spec.taints[{index}]"
        effect = read_text(item, "effect", where) or ""
        if effect in KEEPING_OFF:
            taints.append(Taint(read_text(item, "key", where) or "", read_text(item, "value", where) or "", effect))
    return tuple(taints)


def read_tolerations(spec: Mapping[str, Any], comparing: bool) -> Tolerations:
    items = read_maps(spec.get("tolerations"), "spec.tolerations")
    return Tolerations(
        tuple(
            PodToleration(
                *(read_text(item, field, f"spec.tolerations[{index}]") or "" for field in PodToleration._fields)
            )
            for index, item in enumerate(items)
        ),
        comparing,
    )


def _decimal(text: str) -> int | None:
    return integer(text) if DECIMAL.fullmatch(text) else None
