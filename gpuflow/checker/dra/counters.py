"""Counters that the devices of a pool share, such as the memory slices of a GPU that its partitions are cut from.

Mirrors k8s.io/dynamic-resource-allocation/structured/internal/incubating.checkAvailableCounters and
deallocateCountersForDevice, Kubernetes v1.36.3.
"""

from __future__ import annotations

from gpuflow.checker.dra.allocated import AllocatedState
from gpuflow.checker.dra.objects import Device
from gpuflow.checker.dra.pools import Pool
from gpuflow.quantity import Quantity

CounterSets = dict[str, dict[str, Quantity]]


class AvailableCounters:
    """What is left in each pool beside the claims that hold devices; worked out once for all nodes.

    The scheduler tells pools apart by their name alone, without the driver; so does this.
    """

    def __init__(self, allocated: AllocatedState) -> None:
        self._allocated = allocated
        self._pools: dict[str, CounterSets] = {}

    def of(self, pool: Pool) -> CounterSets:
        if pool.name not in self._pools:
            left = {name: dict(counters) for name, counters in pool.counters.items()}
            for each in (*pool.slices, *pool.elsewhere):
                for device in each.devices:
                    if self._allocated.is_allocated(device.id):
                        _take(left, device, -1)
            self._pools[pool.name] = left
        return self._pools[pool.name]


class ConsumedCounters:
    """What the devices take that are being picked."""

    def __init__(self, available: AvailableCounters) -> None:
        self._available = available
        self._pools: dict[str, CounterSets] = {}

    def reserve(self, pool: Pool, device: Device) -> bool:
        """Take what a device consumes, unless something is then short."""
        available = self._available.of(pool)
        taken = self._pools.setdefault(pool.name, {})
        _take(taken, device, 1)
        for name, counters in available.items():
            used = taken.get(name, {})
            if any(left < used.get(counter, Quantity.zero) for counter, left in counters.items()):
                self.release(pool, device)
                return False
        return True

    def release(self, pool: Pool, device: Device) -> None:
        _take(self._pools[pool.name], device, -1)


def _take(sets: CounterSets, device: Device, sign: int) -> None:
    for name, consumed in device.consumes:
        counters = sets.setdefault(name, {})
        for counter, amount in consumed.items():
            counters[counter] = counters.get(counter, Quantity.zero) + amount * sign
