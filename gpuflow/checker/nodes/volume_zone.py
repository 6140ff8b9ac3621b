"""Volumes that say by their labels in which zone or region they are.

Mirrors k8s.io/kubernetes/pkg/scheduler/framework/plugins/volumezone.VolumeZone.Filter, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpuflow.checker.nodes.storage import Volume
from gpuflow.kubernetes.labels import Labels

CURRENT: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
}
"""The names of today for labels of old."""
ZONE_KEYS: Final = (*CURRENT, *CURRENT.values())
BETWEEN: Final = "__"
"""Stands between zones, where a label of a volume names several."""


def zone_refuses(volumes: Iterable[Volume], labels: Labels) -> bool:
    """Whether a node with these labels is in another zone than a volume. A node without any zone is in all."""
    if not any(key in labels for key in ZONE_KEYS):
        return False
    for volume in volumes:
        for key in ZONE_KEYS:
            zones = _zones(volume, key)
            if zones is not None and labels.get(key, labels.get(CURRENT.get(key, key))) not in zones:
                return True
    return False


def is_zonal(volume: Volume) -> bool:
    return any(_zones(volume, key) is not None for key in ZONE_KEYS)


def _zones(volume: Volume, key: str) -> frozenset[str] | None:
    """The zones that a label names; `None` without the label, and when Kubernetes cannot read it."""
    if key not in volume.labels:
        return None
    zones = [zone.strip() for zone in volume.labels[key].split(BETWEEN)]
    return frozenset(zones) if all(zones) else None
