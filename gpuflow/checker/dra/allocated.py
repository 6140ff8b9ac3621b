"""The devices that claims hold already.

Mirrors k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.foreachAllocatedDevice, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuflow.checker.dra.objects import DeviceId
from gpuflow.checker.nodes.flags import read_flag
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.quantity import Quantity
from gpuflow.resources import read_map, read_maps, read_resource_list


class AllocatedState:
    def __init__(self) -> None:
        self.devices: set[DeviceId] = set()
        """Held by one claim alone."""
        self.shared: set[DeviceId] = set()
        """Held in shares."""
        self.capacity: dict[DeviceId, dict[str, Quantity]] = {}
        """What shares take of a device."""

    def is_allocated(self, device: DeviceId) -> bool:
        return device in self.devices or device in self.shared or device in self.capacity

    def merge(self, other: AllocatedState) -> None:
        """What others hold too."""
        self.devices |= other.devices
        self.shared |= other.shared
        for device, amounts in other.capacity.items():
            held = self.capacity.setdefault(device, {})
            for name, amount in amounts.items():
                held[name] = held.get(name, Quantity.zero) + amount

    def add(self, results: Iterable[Mapping[str, Any]], where: str) -> None:
        """The results of one claim's allocation. Access for administrators takes nothing."""
        for result in results:
            if read_flag(result, "adminAccess", where):
                continue
            id = DeviceId(*(read_text(result, field, where) or "" for field in ("driver", "pool", "device")))
            if result.get("shareID") is None:
                self.devices.add(id)
                continue
            self.shared.add(id)
            if result.get("consumedCapacity") is not None:
                held = self.capacity.setdefault(id, {})
                for name, amount in read_resource_list(result["consumedCapacity"], f"{where}.consumedCapacity").items():
                    held[name] = held.get(name, Quantity.zero) + amount


def read_allocated(claims: Iterable[Mapping[str, Any]]) -> AllocatedState:
    """What these ResourceClaims hold, from their status."""
    state = AllocatedState()
    for claim in claims:
        status = read_map(claim.get("status"), "status")
        allocation = read_map(status.get("allocation"), "status.allocation")
        devices = read_map(allocation.get("devices"), "status.allocation.devices")
        where = "status.allocation.devices.results"
        state.add(read_maps(devices.get("results"), where), where)
    return state
