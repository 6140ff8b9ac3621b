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
from typing import Any

from gpuflow.checker.dra.objects import Capacity, Counters, Device, DeviceId, Policy, Request, Slice
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


def read_allocated_state(claims: Iterable[Mapping[str, Any]]) -> AllocatedState:
    """What these ResourceClaims hold, from their status."""
    state = AllocatedState()
    for claim in claims:
        status = read_map(claim.get("status"), "status")
        allocation = read_map(status.get("allocation"), "status.allocation")
        devices = read_map(allocation.get("devices"), "status.allocation.devices")
        where = "status.allocation.devices.results"
        state.add(read_maps(devices.get("results"), where), where)
    return state


PoolId = tuple[str, str]
"""Driver and name."""


@dataclass(frozen=True, slots=True)
class Pool:
    driver: str
    name: str
    is_incomplete: bool = False
    """Slices of it are still to come."""
    is_invalid: bool = False
    """Its slices contradict each other."""
    slices: tuple[Slice, ...] = ()
    """Those with devices for the node."""
    elsewhere: tuple[Slice, ...] = ()
    """Those for other nodes: what is in use there may count here too."""
    counters: Mapping[str, Counters] = field(default_factory=dict)


class SliceIndex:
    """All slices of a cluster, by node and by pool."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self.slices = tuple(slices)
        self._on_node: dict[str, list[Slice]] = {}
        self._shared: list[Slice] = []
        self._pools: dict[PoolId, list[Slice]] = {}
        self._found: dict[str, list[Pool]] = {}
        for each in self.slices:
            self._pools.setdefault((each.driver, each.pool), []).append(each)
            if not each.nodes.node_name or each.counters:
                self._shared.append(each)
            else:
                self._on_node.setdefault(each.nodes.node_name, []).append(each)

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
            if _is_relevant(each, name, labels):
                _add_slice(found, each)
        spend("devices", sum(len(each.devices) for id in found for each in self._pools[id]))
        built = [pool for id, members in found.items() for pool in self._build_pools(id, members)]
        return sorted(built, key=lambda pool: (_has_binding_conditions(pool), pool.driver, pool.name))

    def _build_pools(self, id: PoolId, members: Sequence[Slice]) -> Iterator[Pool]:
        generation, count = members[0].generation, members[0].count
        everywhere: Sequence[Slice] = members
        if len(members) != count:
            siblings = self._pools[id]
            if any(each.generation > generation for each in siblings):
                return  # the driver is replacing it
            everywhere = [each for each in siblings if each.generation == generation]
            if len(everywhere) != count:
                yield Pool(*id, is_incomplete=True)
                return
        yield _build_pool(id, members, everywhere)


def _is_relevant(each: Slice, name: str, labels: Labels) -> bool:
    if each.counters:
        return True
    if each.nodes.is_set:
        return each.nodes.matches(name, labels)
    return each.is_per_device and any(device.nodes.matches(name, labels) for device in each.devices)


def _add_slice(pools: dict[PoolId, list[Slice]], each: Slice) -> None:
    """Only the newest generation counts."""
    members = pools.setdefault((each.driver, each.pool), [])
    if members and each.generation > members[0].generation:
        members.clear()
    if not members or each.generation == members[0].generation:
        members.append(each)


def _build_pool(id: PoolId, members: Iterable[Slice], everywhere: Sequence[Slice]) -> Pool:
    own = sorted(members, key=lambda each: each.name)
    with_devices = tuple(each for each in own if not each.counters)
    names = [device.name for each in with_devices for device in each.devices]
    sets = [entry for each in own for entry in each.counters]
    counters = dict(sets)
    here = {each.name for each in own}
    elsewhere = tuple(each for each in everywhere if each.name not in here)
    if len(names) != len(set(names)) or len(sets) != len(counters) or not _has_all_counters(counters, everywhere):
        return Pool(*id, is_invalid=True)
    return Pool(*id, slices=with_devices, elsewhere=elsewhere, counters=counters)


def _has_all_counters(counters: Mapping[str, Counters], slices: Iterable[Slice]) -> bool:
    return all(
        name in counters and counters[name].keys() >= consumed.keys()
        for each in slices
        for device in each.devices
        for name, consumed in device.consumes
    )


def _has_binding_conditions(pool: Pool) -> bool:
    return any(device.has_binding_conditions for each in pool.slices for device in each.devices)


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
                        _take_counters(left, device, -1)
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
    for name, consumed in device.consumes:
        counters = sets.setdefault(name, {})
        for counter, amount in consumed.items():
            counters[counter] = counters.get(counter, Quantity.zero) + amount * sign


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
