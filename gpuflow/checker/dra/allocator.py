"""Which devices the scheduler gives to the claims of a pod on one node.

The first solution in a fixed order is taken: claim by claim, request by request, device by device, with a step back
where it does not work out. The scheduler gives up after ten seconds; here a search that takes too many steps is not
judged. Attributes may have to be the same, or differ, over the devices of a claim.

Mirrors Allocator.Allocate, matchAttributeConstraint and distinctAttributeConstraint in
k8s.io/dynamic-resource-allocation/structured/internal/incubating, Kubernetes v1.36.3.

The pools of devices that a node can reach, and what of their devices is left.

A pool may be whole or not, and only some slices count. Claims hold devices already. The devices of a pool share
counters, such as the memory slices of a GPU that its partitions are cut from, and a device has capacity of which a
request takes a part.

Mirrors GatherPools, buildPool, checkSlicesInPool, checkAvailableCounters, deallocateCountersForDevice,
CmpRequestOverCapacity and GetConsumedCapacityFromRequest in
k8s.io/dynamic-resource-allocation/structured/internal/incubating, and
k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.foreachAllocatedDevice, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from gpuflow.checker.dra.cel.parser import CelError, Unsupported, compile_expression
from gpuflow.checker.dra.objects import (
    ALL,
    EXACT_COUNT,
    Attribute,
    Capacity,
    Claim,
    Constraint,
    Device,
    DeviceClass,
    DeviceId,
    Policy,
    Request,
    Slice,
    SliceSpec,
)
from gpuflow.core.work_budget import TOO_LARGE, TooLarge, spend, spend_work
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


class ConstraintState:
    """A constraint and the values of the devices that were picked so far."""

    def __init__(self, constraint: Constraint) -> None:
        self._constraint = constraint
        self._values: dict[str, Attribute] = {}
        """For distinct values: the last value of each request, which is what the scheduler remembers too."""
        self._same: Attribute | None = None
        self._count = 0

    def add(self, request: Request, device: Device) -> bool:
        """Take a device if it fits to the others."""
        if not self._applies(request):
            return True
        value = device.attribute(self._constraint.attribute)
        if value is None:
            return False
        if self._count:
            if self._constraint.is_distinct:
                if any(value == other or not value[0] for other in self._values.values()):
                    return False
            elif not value[0] or value != self._same:
                return False
        if self._constraint.is_distinct:
            self._values[request.base_name] = value
        elif not self._count:
            self._same = value
        self._count += 1
        return True

    def remove(self, request: Request) -> None:
        if self._applies(request):
            self._values.pop(request.base_name, None)
            self._count -= 1

    def _applies(self, request: Request) -> bool:
        names = self._constraint.requests
        return not names or not names.isdisjoint((request.base_name, request.full_name))


MOST_RESULTS: Final = 32
"""So many devices one claim may hold."""
MOST_STEPS: Final = 50_000
"""After so many steps it is not known what the scheduler finds in its time."""
MOST_DEVICES: Final = 200
"""So many devices one pod may ask for here; the scheduler has no such bound."""


Position = tuple[int, int, int]
"""Of a device: the number of its pool, of the slice there, and its own in that."""
START: Final = (0, 0, 0)


class AllocationError(Exception):
    """Something is wrong with a claim or class: the scheduler ends the attempt for all nodes."""


class AllocationUnknown(Exception):
    """What the scheduler answers is not known; it says why."""


class _TooMany(Exception):
    """A claim would get more devices than it may hold."""


class DeviceResult(NamedTuple):
    request: str
    device: DeviceId
    share: tuple[tuple[str, Quantity], ...] = ()
    """What it takes of a device that is shared."""
    takes_nothing: bool = False
    """The device is shared without a capacity: anybody may have it too."""

    def __str__(self) -> str:
        return f"{self.request}={self.device}"


@dataclass(frozen=True, slots=True)
class Allocation:
    """What one node can give. Status: `allocated`, `none`, or `invalid` when a pool of the node is."""

    status: str
    claims: tuple[tuple[DeviceResult, ...], ...] = ()


@dataclass(slots=True)
class _RequestData:
    """A request, or an alternative of one, with what is known of it before the search."""

    request: Request
    device_class: DeviceClass
    count: int
    everything: list[tuple[Pool, Device]] = field(default_factory=list)
    selectable: dict[DeviceId, bool] = field(default_factory=dict)


class Allocator:
    """The devices of a cluster, asked about many nodes and claims."""

    def __init__(
        self, slices: Iterable[Slice], classes: Mapping[str, DeviceClass], allocated: AllocatedState | None = None
    ) -> None:
        self.index = SliceIndex(slices)
        self.classes = classes
        self.allocated = AllocatedState() if allocated is None else allocated

    def with_allocated(self, allocated: AllocatedState) -> Allocator:
        """The same devices, of which others are in use."""
        other = Allocator((), self.classes, allocated)
        other.index = self.index
        return other

    def allocate(self, name: str, labels: Labels, claims: Sequence[Claim]) -> Allocation:
        """What a node gives to claims. `AllocationError`, or `AllocationUnknown` where that is not known."""
        try:
            pools = self.index.pools(name, labels)
        except TooLarge as reason:
            raise AllocationUnknown(str(reason)) from None
        search = _Search(self, name, labels, pools, claims)
        if search.run():
            return Allocation("allocated", tuple(map(tuple, search.results)))
        return Allocation("invalid" if any(pool.fault == INVALID for pool in pools) else "none")


def selectors_match(device_class: DeviceClass, request: Request, device: Device) -> bool:
    """Whether the selectors of a class and of a request take a device."""
    for owner, selectors in (
        (f"class {device_class.name}", device_class.selectors),
        (f"request {request.full_name}", request.selectors),
    ):
        for expression in selectors:
            try:
                if not compile_expression(expression).matches(device.view):
                    return False
            except Unsupported as reason:
                raise AllocationUnknown(
                    f"{owner}: the selector {expression!r} is not evaluated here: {reason}"
                ) from None
            except CelError as error:
                raise AllocationError(f"{owner}: CEL runtime error: {error}") from None
    return True


class _Search:
    def __init__(
        self, allocator: Allocator, name: str, labels: Labels, pools: Sequence[Pool], claims: Sequence[Claim]
    ) -> None:
        self.allocator, self.allocated = allocator, allocator.allocated
        self.name, self.labels, self.pools, self.claims = name, labels, pools, claims
        self.taken: dict[DeviceId, set[int]] = {}
        """The claims for which a device is being picked."""
        self.taking: dict[DeviceId, ConsumedCapacity] = {}
        """What is being taken of devices that are shared."""
        self.counters = ConsumedCounters(allocator.allocated)
        self.results: list[list[DeviceResult]] = [[] for _ in claims]
        self.steps = 0
        self.wanted: list[list[list[_RequestData]]] = []
        self.constraints: list[list[ConstraintState]] = []
        for claim in claims:
            wanted = [[self._request_data(claim, each) for each in alternatives] for alternatives in claim.requests]
            least = sum(min(each.count for each in alternatives) for alternatives in wanted)
            if least > MOST_RESULTS:
                raise AllocationError(
                    f"claim {claim.name}: number of requested devices {least} exceeds the claim limit of {MOST_RESULTS}"
                )
            self.wanted.append(wanted)
            self.constraints.append([ConstraintState(each) for each in claim.constraints])

    def _request_data(self, claim: Claim, request: Request) -> _RequestData:
        where = f"claim {claim.name}, request {request.name}"
        if not request.device_class:
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        device_class = self.allocator.classes.get(request.device_class)
        if device_class is None:
            raise AllocationError(f"{where}: could not retrieve device class {request.device_class}")
        wanted = _RequestData(request, device_class, request.devices)
        if request.mode == ALL:
            for pool in self.pools:
                if pool.fault is not None:
                    raise AllocationError(
                        f"{where}: asks for all devices, but resource pool {pool.driver}/{pool.name} is currently "
                        f"{pool.fault}"
                    )
                self._count_work(sum(len(each.devices) for each in pool.slices))
                wanted.everything += [
                    (pool, device)
                    for each in pool.slices
                    for device in each.devices
                    if self._is_selectable(wanted, each, device) and self._has_room(request, device)
                ]
            wanted.count = len(wanted.everything)
        elif request.mode != EXACT_COUNT:
            raise AllocationError(f"{where}: unsupported count mode {request.mode}")
        return wanted

    def run(self) -> bool:
        if sum(each.count for claim in self.wanted for request in claim for each in request) > MOST_DEVICES:
            raise AllocationUnknown(f"a pod that asks for more than {MOST_DEVICES} devices")
        try:
            return not self.claims or self._allocate_requests_from(0, 0)
        except _TooMany:  # only from the first claim: the rest is caught on the way
            raise AllocationError("allocation max size exceeded") from None

    def _allocate_requests_from(self, claim: int, request: int) -> bool:
        """Everything from this request on."""
        if request >= len(self.wanted[claim]):
            try:
                return claim + 1 == len(self.claims) or self._allocate_requests_from(claim + 1, 0)
            except _TooMany:
                return False
        alternatives = self.wanted[claim][request]
        if alternatives[0].request.parent is None:
            return self._allocate_devices(claim, request, alternatives[0], 0, START)
        too_many = 0
        for alternative in alternatives:
            try:
                if self._allocate_devices(claim, request, alternative, 0, START):
                    return True
            except _TooMany:
                too_many += 1
        if too_many == len(alternatives):
            raise _TooMany
        return False

    def _allocate_devices(self, claim: int, request: int, wanted: _RequestData, number: int, start: Position) -> bool:
        """The devices of a request from this number on, then everything that follows."""
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise AllocationUnknown(TOO_LARGE["devices"])
        is_all = wanted.request.mode == ALL
        if is_all and not wanted.everything:
            return False
        if number >= wanted.count:
            return self._allocate_requests_from(claim, request + 1)
        if len(self.results[claim]) + wanted.count - number > MOST_RESULTS:
            raise _TooMany
        if is_all:
            pool, device = wanted.everything[number]
            undo = self._allocate_device(claim, wanted.request, pool, device, must=True)
            if undo is None:
                return False
            return self._try_rest(undo, lambda: self._allocate_devices(claim, request, wanted, number + 1, START))
        # Whether there are so many devices at all spares the search that would find out, device by device: that looks
        # at the same ones in the same order, and so meets the same error first.
        if number == 0 and sum(1 for _ in islice(self._candidates(claim, wanted, START), wanted.count)) < wanted.count:
            return False
        for position, pool, device in self._candidates(claim, wanted, start):
            undo = self._allocate_device(claim, wanted.request, pool, device, must=False)
            if undo is not None and self._try_rest(
                undo, partial(self._allocate_devices, claim, request, wanted, number + 1, position)
            ):
                return True
        return False

    def _candidates(self, claim: int, wanted: _RequestData, start: Position) -> Iterator[tuple[Position, Pool, Device]]:
        """The devices that a request can get, from a position on, each with the position behind it."""
        for pool_index in range(start[0], len(self.pools)):
            pool = self.pools[pool_index]
            for slice_index in range(start[1] if pool_index == start[0] else 0, len(pool.slices)):
                each = pool.slices[slice_index]
                begin = start[2] if (pool_index, slice_index) == start[:2] else 0
                self._count_work(len(each.devices) - begin)
                for index, device in enumerate(each.devices[begin:], begin + 1):
                    if (
                        not self._is_in_use(claim, wanted.request, device.id)
                        and self._is_selectable(wanted, each, device)
                        and self._has_room(wanted.request, device)
                    ):
                        yield (pool_index, slice_index, index), pool, device

    @staticmethod
    def _count_work(devices: int) -> None:
        """Count devices that are held against a request, over all nodes and claims of a check."""
        if not spend_work("devices", devices):
            raise AllocationUnknown(TOO_LARGE["devices"])

    @staticmethod
    def _try_rest(undo: Callable[[], None], rest: Callable[[], bool]) -> bool:
        done = False
        try:
            done = rest()
        finally:
            if not done:
                undo()
        return done

    def _is_in_use(self, claim: int, request: Request, device: DeviceId) -> bool:
        if request.has_admin_access:
            return claim in self.taken.get(device, ())
        return device in self.allocated.devices or bool(self.taken.get(device))

    def _is_selectable(self, wanted: _RequestData, each: SliceSpec, device: Device) -> bool:
        known = wanted.selectable.get(device.id)
        if known is None:
            known = selectors_match(wanted.device_class, wanted.request, device) and (
                not each.per_device_node_selection or device.matches(self.name, self.labels)
            )
            wanted.selectable[device.id] = known
        return known

    def _has_room(self, request: Request, device: Device) -> bool:
        return has_room(request, device, self.allocated.capacity.get(device.id, {}), self.taking.get(device.id, {}))

    def _allocate_device(
        self, claim: int, request: Request, pool: Pool, device: Device, *, must: bool
    ) -> Callable[[], None] | None:
        """Take a device for a request; what undoes it, or `None` when it cannot be taken."""
        id, shares = device.id, device.allow_multiple_allocations
        if (not shares or not request.has_admin_access) and self._is_in_use(claim, request, id):
            return None
        reserves = bool(device.consumes) and not (shares and (id in self.allocated.capacity or id in self.taking))
        self._count_work(1 + (len(pool.counters) if reserves else 0))
        if reserves and not self.counters.reserve(pool, device):
            return None
        added: list[ConstraintState] = []

        def back() -> None:
            for each in reversed(added):
                each.remove(request)
            if reserves:
                self.counters.release(pool, device)

        if device.is_tainted_for(request):
            back()
            return None
        for constraint in self.constraints[claim]:
            if not constraint.add(request, device):
                back()
                if must:
                    raise AllocationError(
                        f"claim {self.claims[claim].name}, request {request.name}: cannot add device {id} because a "
                        "claim constraint would not be satisfied"
                    )
                return None
            added.append(constraint)
        if not self._has_room(request, device):
            back()
            return None
        before = self.taking.get(id)
        more = consumed_capacity(request, device) if shares else {}
        if shares:
            held = before or {}
            self.taking[id] = {name: held.get(name, Quantity.zero) + amount for name, amount in more.items()}
        else:
            self.taken.setdefault(id, set()).add(claim)
        is_free = shares and not more and not device.consumes
        self.results[claim].append(DeviceResult(request.full_name, id, tuple(more.items()), is_free))

        def undo() -> None:
            self.results[claim].pop()
            if not shares:
                self.taken[id].discard(claim)
            elif before is None:
                del self.taking[id]
            else:
                self.taking[id] = before
            back()

        return undo
