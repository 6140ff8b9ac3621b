"""The pools of devices that a node can reach, and what of their devices is left.

A pool may be whole or not, and only some slices count. Claims hold devices already. The devices of a pool share
counters, such as the memory slices of a GPU that its partitions are cut from, and a device has capacity of which a
request takes a part.

Mirrors GatherPools, buildPool, checkSlicesInPool, checkAvailableCounters, deallocateCountersForDevice,
CmpRequestOverCapacity and GetConsumedCapacityFromRequest in
k8s.io/dynamic-resource-allocation/structured/internal/incubating, and
k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.foreachAllocatedDevice, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuflow.checker.dra.objects import Capacity, Device, DeviceId, Policy, Request, Slice, SliceSpec
from gpuflow.core.work_budget import spend
from gpuflow.kubernetes.admission.pod import read_flag, read_text
from gpuflow.kubernetes.labels import Labels
from gpuflow.kubernetes.resources import read_map, read_maps, read_resource_list
from gpuflow.quantity import Format, Quantity


class AllocatedState:
    def __init__(self) -> None:
        self.devices: set[DeviceId] = set()
        """Held by one claim alone."""
        self.shared: set[DeviceId] = set()
        """Held in shares."""
        self.capacity: dict[DeviceId, dict[str, Quantity]] = {}
        """What shares take of a device."""
        self._left: dict[str, CounterSets] = {}

    def is_allocated(self, device: DeviceId) -> bool:
        return device in self.devices or device in self.shared or device in self.capacity

    def counters_left(self, pool: Pool) -> CounterSets:
        """What is left in a pool beside the claims that hold devices; worked out once for all nodes, when all claims
        are known.

        The scheduler tells pools apart by their name alone, without the driver; so does this.
        """
        if pool.name not in self._left:
            left = {name: dict(counters) for name, counters in pool.counters.items()}
            for device in pool.devices_everywhere:
                if self.is_allocated(device.id):
                    _take_counters(left, device, -1)
            self._left[pool.name] = left
        return self._left[pool.name]

    def add_claim(self, claim: Mapping[str, Any]) -> None:
        """What a ResourceClaim holds, from its status. Access for administrators takes nothing."""
        allocation = read_map(read_map(claim.get("status"), "status").get("allocation"), "status.allocation")
        devices = read_map(allocation.get("devices"), "status.allocation.devices")
        where = "status.allocation.devices.results"
        for result in read_maps(devices.get("results"), where):
            if read_flag(result, "adminAccess", where):
                continue
            id = DeviceId(*(read_text(result, field, where) or "" for field in ("driver", "pool", "device")))
            if result.get("shareID") is None:
                self.devices.add(id)
                continue
            self.shared.add(id)
            if result.get("consumedCapacity") is not None:
                self.add_share(id, read_resource_list(result["consumedCapacity"], f"{where}.consumedCapacity"))

    def add_share(self, device: DeviceId, amounts: Mapping[str, Quantity]) -> None:
        self.shared.add(device)
        _add(self.capacity.setdefault(device, {}), amounts)


PoolId = tuple[str, str]
"""Driver and name."""

UPDATED: Final = "being updated"
"""Slices of a pool are still to come."""
INVALID: Final = "invalid"
"""Its slices contradict each other."""


@dataclass(frozen=True, slots=True)
class Pool:
    driver: str
    name: str
    fault: str | None = None
    """Why it gives no devices."""
    slices: tuple[SliceSpec, ...] = ()
    """Those with devices for the node."""
    elsewhere: tuple[SliceSpec, ...] = ()
    """Those for other nodes: what is in use there may count here too."""
    counters: Mapping[str, Mapping[str, Quantity]] = field(default_factory=dict)

    @property
    def has_binding_conditions(self) -> bool:
        return any(device.binding_conditions for each in self.slices for device in each.devices)

    @property
    def devices_everywhere(self) -> Iterator[Device]:
        return (device for each in (*self.slices, *self.elsewhere) for device in each.devices)


class SliceIndex:
    """All slices of a cluster, by node and by pool."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self._on_node: dict[str, list[Slice]] = {}
        self._shared: list[Slice] = []
        self._pools: dict[PoolId, list[Slice]] = {}
        self._found: dict[str, list[Pool]] = {}
        for each in slices:
            self._pools.setdefault(each.pool_id, []).append(each)
            if not each.spec.node_name or each.spec.shared_counters:
                self._shared.append(each)
            else:
                self._on_node.setdefault(each.spec.node_name, []).append(each)

    def pools(self, name: str, labels: Labels) -> list[Pool]:
        """The pools of a node, in the order in which devices are tried. `TooLarge` where so many nodes reach so many
        devices that this is not worked out."""
        if name not in self._found:
            self._found[name] = self._find(name, labels)
        return self._found[name]

    def _find(self, name: str, labels: Labels) -> list[Pool]:
        found: dict[PoolId, list[Slice]] = {}
        spend("devices", len(self._shared))
        for each in (*self._on_node.get(name, ()), *self._shared):
            if _is_relevant(each.spec, name, labels):
                members = found.setdefault(each.pool_id, [])
                generation = members[0].spec.pool.generation if members else each.spec.pool.generation
                if each.spec.pool.generation > generation:  # only the newest counts
                    members.clear()
                if each.spec.pool.generation >= generation:
                    members.append(each)
        spend("devices", sum(len(each.spec.devices) for id in found for each in self._pools[id]))
        built = [pool for id, members in found.items() for pool in self._build_pools(id, members)]
        return sorted(built, key=lambda pool: (pool.has_binding_conditions, pool.driver, pool.name))

    def _build_pools(self, id: PoolId, members: Sequence[Slice]) -> Iterator[Pool]:
        pool = members[0].spec.pool
        everywhere: Sequence[Slice] = members
        if len(members) != pool.resource_slice_count:
            siblings = self._pools[id]
            if any(each.spec.pool.generation > pool.generation for each in siblings):
                return  # the driver is replacing it
            everywhere = [each for each in siblings if each.spec.pool.generation == pool.generation]
            if len(everywhere) != pool.resource_slice_count:
                yield Pool(*id, fault=UPDATED)
                return
        yield _build_pool(id, members, everywhere)


def _is_relevant(spec: SliceSpec, name: str, labels: Labels) -> bool:
    if spec.shared_counters:
        return True
    if spec.is_set:
        return spec.matches(name, labels)
    return spec.per_device_node_selection and any(device.matches(name, labels) for device in spec.devices)


def _build_pool(id: PoolId, members: Iterable[Slice], everywhere: Sequence[Slice]) -> Pool:
    own = sorted(members, key=lambda each: each.metadata.name)
    with_devices = tuple(each.spec for each in own if not each.spec.shared_counters)
    names = [device.name for each in with_devices for device in each.devices]
    sets = [entry for each in own for entry in each.spec.shared_counters]
    counters = {entry.name: entry.counters for entry in sets}
    here = {each.metadata.name for each in own}
    elsewhere = tuple(each.spec for each in everywhere if each.metadata.name not in here)
    has_all_counters = all(
        use.name in counters and counters[use.name].keys() >= use.counters.keys()
        for each in everywhere
        for device in each.spec.devices
        for use in device.consumes
    )
    if len(names) != len(set(names)) or len(sets) != len(counters) or not has_all_counters:
        return Pool(*id, fault=INVALID)
    return Pool(*id, slices=with_devices, elsewhere=elsewhere, counters=counters)


CounterSets = dict[str, dict[str, Quantity]]


class ConsumedCounters:
    """What the devices take that are being picked."""

    def __init__(self, allocated: AllocatedState) -> None:
        self._allocated = allocated
        self._pools: dict[str, CounterSets] = {}

    def reserve(self, pool: Pool, device: Device) -> bool:
        """Take what a device consumes, unless something is then short."""
        available = self._allocated.counters_left(pool)
        taken = self._pools.setdefault(pool.name, {})
        _take_counters(taken, device, 1)
        for name, counters in available.items():
            used = taken.get(name, {})
            if any(left < used.get(counter, Quantity.zero) for counter, left in counters.items()):
                self.release(pool, device)
                return False
        return True

    def release(self, pool: Pool, device: Device) -> None:
        _take_counters(self._pools[pool.name], device, -1)


def _take_counters(sets: CounterSets, device: Device, sign: int) -> None:
    for use in device.consumes:
        _add(sets.setdefault(use.name, {}), use.counters, sign)


def _add(total: dict[str, Quantity], more: Mapping[str, Quantity], sign: int = 1) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Quantity.zero) + amount * sign


ConsumedCapacity = dict[str, Quantity]


def has_room(request: Request, device: Device, used: Mapping[str, Quantity], taking: Mapping[str, Quantity]) -> bool:
    """Whether what a request takes fits beside what others hold of a device."""
    asked = request.capacity or {}
    if not asked.keys() <= device.capacity.keys():
        return False
    for name, capacity in device.capacity.items():
        amount = _consumed_amount(asked.get(name), capacity)
        if _violates_policy(amount, capacity.policy):
            return False
        if amount + used.get(name, Quantity.zero) + taking.get(name, Quantity.zero) > capacity.value:
            return False
    return True


def consumed_capacity(request: Request, device: Device) -> ConsumedCapacity:
    asked = request.capacity or {}
    return {name: _consumed_amount(asked.get(name), capacity) for name, capacity in device.capacity.items()}


def _consumed_amount(asked: Quantity | None, capacity: Capacity) -> Quantity:
    policy = capacity.policy
    if asked is None:
        return capacity.value if policy is None or policy.default is None else policy.default
    if policy is None:
        return asked
    if policy.has_range and policy.least is not None:
        if asked < policy.least:
            return policy.least
        if policy.step is None:
            return asked
        steps = -(-(asked.value - policy.least.value) // policy.step.value)
        return Quantity.from_units(policy.least.value + steps * policy.step.value, Format.BINARY_SI)
    return next((each for each in policy.values if asked <= each), asked)


def _violates_policy(amount: Quantity, policy: Policy | None) -> bool:
    if policy is None or amount == policy.default:
        return False
    if policy.has_range:
        if policy.most is not None and amount > policy.most:
            return True
        least = Quantity.zero if policy.least is None else policy.least
        return policy.step is not None and (amount.value - least.value) % policy.step.value != 0
    return bool(policy.values) and amount not in policy.values
