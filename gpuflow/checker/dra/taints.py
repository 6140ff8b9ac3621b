"""Taints of devices, and the requests that tolerate them.

A DeviceTaintRule taints devices too; its gate is off by default.

Mirrors k8s.io/dynamic-resource-allocation/resourceclaim.ToleratesTaint and
k8s.io/dynamic-resource-allocation/structured/internal/incubating.taintPreventsAllocation, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.resources import read_maps

PREVENTING: Final = ("NoSchedule", "NoExecute")


class DeviceTaint(NamedTuple):
    key: str
    value: str
    effect: str


class DeviceToleration(NamedTuple):
    key: str
    operator: str
    value: str
    effect: str

    def tolerates(self, taint: DeviceTaint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        if self.operator in ("", "Equal"):
            return self.value == taint.value
        return self.operator == "Exists"


def prevents(taints: Iterable[DeviceTaint], tolerations: Iterable[DeviceToleration]) -> bool:
    """Whether a taint keeps a request from a device."""
    return any(
        taint.effect in PREVENTING and not any(each.tolerates(taint) for each in tolerations) for taint in taints
    )


def read_taints(body: Mapping[str, Any], where: str) -> tuple[DeviceTaint, ...]:
    return tuple(
        DeviceTaint(*(read_text(each, field, f"{where}.taints[{index}]") or "" for field in ("key", "value", "effect")))
        for index, each in enumerate(read_maps(body.get("taints"), f"{where}.taints"))
    )


def read_tolerations(body: Mapping[str, Any], where: str) -> tuple[DeviceToleration, ...]:
    fields = ("key", "operator", "value", "effect")
    return tuple(
        DeviceToleration(*(read_text(each, field, f"{where}.tolerations[{index}]") or "" for field in fields))
        for index, each in enumerate(read_maps(body.get("tolerations"), f"{where}.tolerations"))
    )
