"""Devices as amounts on nodes, so that they are counted like everything else that pods ask for.

Where the devices of a request are all alike to it, each for one pod and one node, and nothing else of the pipeline can
take them, their number is exact. Elsewhere the allocator says on which nodes one pod finds its devices, and how many
such pods a node takes in whatever order they come and go; where that cannot be told, it counts for one at a time.
*always* is then proved, *may queue* may be too careful.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuflow.checker.dra.allocator import (
    MOST_RESULTS,
    AllocatedState,
    AllocationError,
    AllocationUnknown,
    Allocator,
    ConsumedCounters,
    Pool,
    has_room,
    selectors_match,
)
from gpuflow.checker.dra.inventory import DeviceNeeds, Inventory, read_device_needs
from gpuflow.checker.dra.objects import EXACT_COUNT, Claim, Device, DeviceId, Reach, Request
from gpuflow.checker.nodes.capacity import NodePools
from gpuflow.checker.nodes.node_info import Node, NodeInfo, NodeList, UnboundPod
from gpuflow.core.work_budget import TOO_LARGE, TooLarge, spend_work
from gpuflow.kubernetes.labels import Labels
from gpuflow.quantity import Quantity

Token = DeviceId | tuple[str, str, str, str]
"""A device, or a set of counters that devices share."""


@dataclass(frozen=True, slots=True)
class Match:
    """A device that a request can get."""

    pool: Pool
    device: Device
    is_local: bool
    """Whether only this node reaches it."""

    @property
    def tokens(self) -> Iterator[Token]:
        yield self.device.id
        for use in self.device.consumes:
            yield (self.pool.driver, self.pool.name, use.name, "counters")


@dataclass(frozen=True, slots=True)
class Survey:
    matches: tuple[Match, ...]
    fault: str | None = None
    """A selector fails on a device, which ends the scheduler's attempt when it comes to it."""
    change: str | None = None
    """A pool that is being updated: other devices may come."""


def survey_node(allocator: Allocator, node: Node, request: Request) -> Survey:
    """The devices of a node for a request, in use or not. `AllocationUnknown` for a selector not evaluated."""
    matches: list[Match] = []
    fault = change = None
    device_class = allocator.classes[request.device_class]
    for pool in allocator.index.pools(node.name, node.labels):
        if pool.fault is not None:
            change = change or f"resource pool {pool.driver}/{pool.name} is {pool.fault}"
        for each in pool.slices:
            if not spend_work("devices", len(each.devices)):
                raise AllocationUnknown(TOO_LARGE["devices"])
            for device in each.devices:
                try:
                    chosen = selectors_match(device_class, request, device)
                except AllocationError as error:
                    fault = fault or f"on device {device.id} the scheduler gives up: {error}"
                    continue
                reach: Reach = device if each.per_device_node_selection else each
                if not chosen or (reach is device and not device.matches(node.name, node.labels)):
                    continue
                if not device.is_tainted_for(request) and has_room(request, device, {}, {}):
                    matches.append(Match(pool, device, bool(reach.node_name)))
    return Survey(tuple(matches), fault, change)


def most_at_once(allocator: Allocator, matches: Iterable[Match]) -> int | None:
    """How many of these devices can be had beside what is in use; `None` when some of them exclude each other."""
    free = [each for each in matches if each.device.id not in allocator.allocated.devices]
    alone = [each for each in free if _counters_suffice(allocator, [each])]
    return len(alone) if _counters_suffice(allocator, alone) else None


def _counters_suffice(allocator: Allocator, matches: Iterable[Match]) -> bool:
    taken = ConsumedCounters(allocator.allocated)
    return all(not each.device.consumes or taken.reserve(each.pool, each.device) for each in matches)


Held = tuple[DeviceId, tuple[tuple[str, Quantity], ...]]
"""A device, and what is taken of one that is shared."""
HeldDevices = tuple[tuple[Held, ...], ...]
"""The devices of each pod that is there, in order."""


class Budget:
    """How many questions may still be asked."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, amount: int) -> bool:
        self.left -= amount
        return self.left >= 0


def least_blocking(
    allocator: Allocator, name: str, labels: Labels, pods: Sequence[Sequence[Claim]], budget: Budget
) -> int | None:
    """The least number of these pods on a node beside which some of them finds no devices; `None`: there is none.

    Every way in which pods may have come and gone is tried, on a node where nobody else holds a device. Where that
    takes too long, or cannot be told, it is one: each of them finds devices on the node as it is. A pod with nothing
    but access for administrators takes no device, and is in nobody's way.
    """
    seen: set[HeldDevices] = {()}
    todo: list[HeldDevices] = [()]
    least: int | None = None
    while todo:
        held = todo.pop()
        if least is not None and len(held) >= least:
            continue
        for claims in pods:
            # Each way is as long as there are pods, and leads to as many others.
            if not budget.take(1 + len(held) ** 2 // 64):
                return 1
            try:
                given = _devices_of_one_more(allocator, name, labels, claims, held)
            except (AllocationError, AllocationUnknown):
                return 1
            if given is None:
                least = len(held)
                continue
            if not given:
                continue
            more = tuple(sorted((*held, given)))
            # A pod may go at any time: what is then left is a way too.
            for after in (more, *(more[:at] + more[at + 1 :] for at in range(len(more)))):
                if after not in seen:
                    seen.add(after)
                    todo.append(after)
    return None if least is None else max(least, 1)


def _devices_of_one_more(
    allocator: Allocator, name: str, labels: Labels, claims: Sequence[Claim], held: HeldDevices
) -> tuple[Held, ...] | None:
    """The devices that one more pod takes; `None` when there are too few."""
    state = AllocatedState()
    for device, share in (each for devices in held for each in devices):
        if share:
            state.add_share(device, dict(share))
        else:
            state.devices.add(device)
    found = allocator.with_allocated(state).allocate(name, labels, claims)
    if found.status != "allocated":
        return None
    return tuple(
        (picked.device, picked.share)
        for claim, one in zip(claims, found.claims, strict=True)
        for picked in one
        if picked.request not in claim.admin_requests and not picked.takes_nothing
    )


ANY: Final = 1_000_000
"""More than any node ever needs."""
CLAIMS: Final = "resource.k8s.io/"
"""How the amounts begin that only say whether a claim can be allocated."""
MOST_TRIES: Final = 5_000
"""So often the allocator is asked how many pods a node takes; beyond that a node counts for one."""
TURN: Final = f"{CLAIMS}claims"
DEVICES: Final = ".deviceclass.resource.k8s.io/devices"
"""How Kubernetes' own quotas call the devices of a class."""

Key = tuple[object, ...]
Share = tuple[str, frozenset[Token]]


@dataclass(eq=False)
class Group:
    """Pods of a pipeline that ask for the same devices."""

    ask: DeviceNeeds
    hosts: tuple[int, ...]
    """The nodes that labels and taints leave to them."""
    has_templates: bool
    adds: dict[str, int] = field(default_factory=dict)
    """What the pods ask for, as amounts."""
    unknown: list[str] = field(default_factory=list)
    surveys: dict[Key, dict[int, Survey]] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)
    """The amounts of devices, which are fit for a report."""


class DevicePlan:
    """All pod groups of a pipeline that ask for devices, and the nodes with the amounts added."""

    def __init__(
        self,
        inventory: Inventory,
        node_pools: NodePools,
        pods: Mapping[int, tuple[Mapping[str, Any], UnboundPod]],
        is_alone: Callable[[Sequence[int]], bool],
        pending: Iterable[str] = (),
    ) -> None:
        """`pods`: by number of the group its pod, as stored and as read. `is_alone`: whether at most one pod of these
        groups is alive at a time. `pending`: other pods that wait for devices."""
        self.inventory, self.source = inventory, node_pools
        self._surveys: dict[Key, dict[int, Survey]] = {}
        self._free: dict[int, dict[str, int]] = {}
        self._empty: dict[int, dict[str, int]] = {}
        self.groups: dict[int, Group] = {}
        nodes = (*(host.node for host in node_pools.node_list.hosts), *node_pools.node_list.templates)
        offered = {name for node in nodes for name, amount in node.allocatable.items() if amount > 0}
        for number, (body, pod) in pods.items():
            ask = read_device_needs(body, inventory, offered)
            if ask is not None:
                pool = node_pools.pool(pod)
                self.groups[number] = Group(ask, pool.ever, bool(pool.templates))
        hidden = tuple(inventory.unknown()) if self.groups else ()
        waiting = list(pending)
        for group in self.groups.values():
            needs_devices = group.ask.claims or group.ask.held or group.ask.shared
            group.unknown += [*(hidden if needs_devices else ()), *group.ask.unknown]
            if waiting:
                group.unknown.append(f"{waiting[0]} waits for devices too")
        self._share(is_alone)
        judged = {number: group for number, group in self.groups.items() if not group.unknown and not group.ask.never}
        for group in judged.values():
            self._survey_group(group)
        self._count({number: group for number, group in judged.items() if not group.unknown})
        self.node_pools = self._with_amounts() if self.groups else node_pools

    def _share(self, is_alone: Callable[[Sequence[int]], bool]) -> None:
        """Claims by name, which several pods may use: their devices are where the first of them runs."""
        users: dict[str, list[int]] = {}
        for number, group in self.groups.items():
            for name in group.ask.shared:
                users.setdefault(name, []).append(number)
        for name, numbers in users.items():
            if len(numbers) > 1 or not is_alone(numbers):
                for number in numbers:
                    self.groups[number].unknown.append(f"several pods share the claim {name}")
        if users and len(self.groups) > 1:
            for numbers in users.values():
                for number in numbers:
                    self.groups[number].unknown.append("other steps may take the devices of its claim in between")

    def _survey_group(self, group: Group) -> None:
        """Which devices there are for each request of a group."""
        try:
            for request in (each for some in group.ask.requests for each in some):
                group.surveys[_key(request)] = self._survey(request)
        except (AllocationUnknown, TooLarge) as reason:
            group.unknown.append(str(reason))
            return
        own = [[found[index] for index in group.hosts] for found in group.surveys.values()]
        group.unknown += list(dict.fromkeys(each.change for found in own for each in found if each.change))[:1]
        for some in group.ask.requests:
            if not any(group.surveys[_key(each)][index].matches for each in some for index in group.hosts):
                return  # there is no device for it, whatever else is the matter
        group.unknown += list(dict.fromkeys(each.fault for found in own for each in found if each.fault))[:1]
        if any(match.device.binding_conditions for found in own for each in found for match in each.matches):
            group.unknown.append("whether devices with binding conditions become ready")

    def _survey(self, request: Request) -> dict[int, Survey]:
        """The devices of every node for a request."""
        key = _key(request)
        if key not in self._surveys:
            self._surveys[key] = {
                index: survey_node(self.inventory.empty_allocator, host.node, request)
                for index, host in enumerate(self.source.node_list.hosts)
            }
        return self._surveys[key]

    def _count(self, groups: Mapping[int, Group]) -> None:
        """Amounts for each group: exact numbers where that is right, else one pod a node at a time."""
        exact = self._exact_groups(groups)
        names: dict[frozenset[Token], str] = {}
        for number, group in groups.items():
            if number in exact:
                self._add_numbers(group, names)
            else:
                self._add_turns(number, group)
        self._limit_turns([group for group in groups.values() if TURN in group.adds])
        for group in groups.values():
            if group.has_templates and not group.unknown and not self._is_possible(group):
                group.unknown.append("which devices the nodes bring that a node group adds")

    def _is_possible(self, group: Group) -> bool:
        """Whether a node that is there has the devices, were they all free."""
        needs = dict(group.adds) or _extended_needs(group)
        return any(
            all(self._empty.get(index, {}).get(name, 0) >= amount for name, amount in needs.items())
            or any(self.source.node_list.hosts[index].node.allocatable.get(name, 0) for name in group.ask.extended)
            for index in group.hosts
        )

    def _exact_groups(self, groups: Mapping[int, Group]) -> set[int]:
        """The groups for which numbers of devices say all that there is to say, and that draw on no others' devices."""
        shares = {number: _shares(group) for number, group in groups.items()}
        exact = {number for number, group in groups.items() if self._is_countable(group, shares[number])}
        left = -1
        while left != len(exact):
            left = len(exact)
            exact = {
                number
                for number in exact
                if all(
                    _can_be_counted_together(shares[number], shares[other]) and other in exact
                    for other in groups
                    if other != number and _overlap(shares[number], shares[other])
                )
            }
        return exact

    def _is_countable(self, group: Group, own: Sequence[Share]) -> bool:
        """Whether the devices of a group are alike, each for one pod and one node."""
        ask, firsts = group.ask, [some[0] for some in group.ask.requests]
        if (
            (ask.held or ask.shared or (ask.extended and ask.made))
            or len({each.name for each in ask.extended.values()}) != len(ask.extended)
            or any(claim.constraints for claim in ask.claims)
            or any(each.parent is not None or each.mode != EXACT_COUNT or each.has_admin_access for each in firsts)
            or any(sum(some[0].devices for some in claim.requests) > MOST_RESULTS for claim in ask.claims)
            or not _can_be_counted_together(own, own)
        ):
            return False
        for found in group.surveys.values():
            for each in found.values():
                if any(not match.is_local or match.device.allow_multiple_allocations for match in each.matches):
                    return False
                if None in (
                    most_at_once(self.inventory.empty_allocator, each.matches),
                    most_at_once(self.inventory.current_allocator, each.matches),
                ):
                    return False
        return True

    def _add_numbers(self, group: Group, names: dict[frozenset[Token], str]) -> None:
        for (request,) in group.ask.requests:
            found = group.surveys[_key(request)]
            extended = group.ask.resources.get(request.device_class)
            if extended is None:
                name = names.setdefault(_tokens(found), _name(request, names.values()))
                group.adds[name] = group.adds.get(name, 0) + request.devices
            else:
                name = extended
            if name not in group.names:
                group.names.append(name)
            for index, each in found.items():
                node = self.source.node_list.hosts[index].node
                if extended is None or node.allocatable.get(extended, 0) <= 0:  # else a device plug-in gives it there
                    now = most_at_once(self.inventory.current_allocator, each.matches) or 0
                    self._set(index, name, len(each.matches), now)

    def _add_turns(self, number: int, group: Group) -> None:
        """One pod of such groups on each node at a time, where the allocator finds its devices."""
        reached = (match for found in group.surveys.values() for each in found.values() for match in each.matches)
        if any(not match.is_local for match in reached):
            group.unknown.append("devices that several nodes reach")
        name = f"{CLAIMS}{(*(claim.name for claim in group.ask.claims), *group.ask.shared, str(number))[0]}-{number}"
        has_choice = any(len(some) > 1 for some in group.ask.requests)
        fault: str | None = None
        is_possible = False
        for index in group.hosts:
            node = self.source.node_list.hosts[index].node
            ever = now = False
            try:
                ever = self._finds(self.inventory.empty_allocator, group.ask, node, is_now=False)
                now = self._finds(self.inventory.current_allocator, group.ask, node, is_now=True)
            except AllocationUnknown as reason:
                group.unknown.append(str(reason))
                return
            except AllocationError as error:
                fault = fault or str(error)
            is_possible = is_possible or ever
            self._set(index, name, ANY if ever else 0, ANY if now else 0)
            self._set(index, TURN, ANY, 1)
            for resource in group.ask.extended:
                if not node.allocatable.get(resource, 0):
                    self._set(index, resource, ANY, ANY)
        if fault is not None and (is_possible or has_choice):
            # It ends the attempt on all nodes, or does not come up while some device is in use.
            group.unknown.append(fault)
            return
        group.adds[name] = 1
        if not _takes_nothing(group):
            group.adds[TURN] = 1

    def _limit_turns(self, groups: Sequence[Group]) -> None:
        """How many pods of these groups a node surely takes, in whatever order they come and go."""
        budget = Budget(MOST_TRIES)
        for index, host in enumerate(self.source.node_list.hosts):
            node = host.node
            here = []
            for group in groups:
                claims = group.ask.claims_on(node.allocatable)
                name = next(each for each in group.adds if each != TURN)
                if index in group.hosts and claims and self._free.get(index, {}).get(name):
                    here.append(claims)
            # What others hold may come free, and then be taken in other ways: such a node counts for one pod.
            if here and not self._is_in_use(node):
                self._set(
                    index,
                    TURN,
                    ANY,
                    least_blocking(self.inventory.empty_allocator, node.name, node.labels, here, budget) or ANY,
                )

    def _is_in_use(self, node: Node) -> bool:
        """Whether a claim holds a device that the node can access."""
        allocator = self.inventory.current_allocator
        pools = allocator.index.pools(node.name, node.labels)
        return any(allocator.allocated.is_allocated(device.id) for pool in pools for device in pool.devices_everywhere)

    @staticmethod
    def _finds(allocator: Allocator, ask: DeviceNeeds, node: Node, *, is_now: bool) -> bool:
        """Whether one pod finds its devices on a node."""
        if is_now and not all(each is None or each.matches(node.name, node.labels) for each in ask.held):
            return False
        claims = ask.claims_on(node.allocatable)
        return not claims or allocator.allocate(node.name, node.labels, claims).status == "allocated"

    def _set(self, index: int, name: str, ever: int, now: int) -> None:
        self._empty.setdefault(index, {})[name] = ever
        self._free.setdefault(index, {})[name] = now

    def _with_amounts(self) -> NodePools:
        """The nodes with what claims find there; what is not known is no reason to refuse."""
        open_resources = {
            resource
            for group in self.groups.values()
            if group.unknown or group.ask.never
            for resource in group.ask.extended
        } | {resource for group in self.groups.values() for resource in group.ask.open}
        every = {name for group in self.groups.values() for name in group.adds}
        extended = {each for group in self.groups.values() for each in (*group.ask.extended, *group.ask.open)}
        node_list = self.source.node_list
        hosts = tuple(self._host(index, host, every, open_resources) for index, host in enumerate(node_list.hosts))
        # Nobody knows which devices a node brings that is not there yet.
        templates = tuple(
            node._replace(
                allocatable={**dict.fromkeys(every | extended, ANY), **node.allocatable},
                claimed=frozenset((every | extended) - node.allocatable.keys()),
            )
            for node in node_list.templates
        )
        changed: NodeList = node_list._replace(hosts=hosts, templates=templates)
        return NodePools(changed)

    def _host(self, index: int, host: NodeInfo, every: set[str], open_resources: set[str]) -> NodeInfo:
        empty, free = self._empty.get(index, {}), self._free.get(index, {})
        node = host.node
        hidden = {name for name in open_resources if not node.allocatable.get(name, 0)} - empty.keys()
        empty = {**empty, **dict.fromkeys(hidden, ANY)}
        free = {**free, **dict.fromkeys(hidden, ANY)}
        if not empty and not every:
            return host
        # What bound pods ask of these resources is counted by their claims.
        used = {**host.used, **{name: amount - free[name] for name, amount in empty.items()}}
        changed = node._replace(allocatable={**node.allocatable, **empty}, claimed=frozenset({*empty, *every}))
        return host._replace(node=changed, used=used)


def _key(request: Request) -> Key:
    capacity = None if request.capacity is None else tuple(sorted(request.capacity.items()))
    return request.device_class, request.selectors, request.tolerations, capacity


def _tokens(found: Mapping[int, Survey]) -> frozenset[Token]:
    return frozenset(token for each in found.values() for match in each.matches for token in match.tokens)


def _takes_nothing(group: Group) -> bool:
    """Whether a group has access for administrators only, to devices of which nothing is ever used up: it finds them
    whoever holds them, and is in nobody's way."""
    return not group.ask.shared and all(
        each.has_admin_access
        and not any(match.device.consumes or match.device.allow_multiple_allocations for match in found.matches)
        for some in group.ask.requests
        for each in some
        for found in group.surveys[_key(each)].values()
    )


def _shares(group: Group) -> list[Share]:
    """What a group draws on, and by which name: two that draw on the same by one name can be counted together."""
    return [(group.ask.resources.get(str(key[0]), ""), _tokens(found)) for key, found in group.surveys.items()]


def _overlap(own: Sequence[Share], others: Sequence[Share]) -> bool:
    return any(not a[1].isdisjoint(b[1]) for a in own for b in others)


def _can_be_counted_together(own: Sequence[Share], others: Sequence[Share]) -> bool:
    """Whether what both draw on is the same, under one name."""
    return all(a == b or a[1].isdisjoint(b[1]) for a in own for b in others)


def _extended_needs(group: Group) -> dict[str, int]:
    needs: dict[str, int] = {}
    for request, *_ in group.ask.requests:
        name = group.ask.resources.get(request.device_class, "")
        needs[name] = needs.get(name, 0) + request.devices
    return needs


def _name(request: Request, taken: Iterable[str]) -> str:
    name, names = f"{request.device_class}{DEVICES}", set(taken)
    number = 2
    while name in names:
        name = f"{request.device_class}{DEVICES}-{number}"
        number += 1
    return name
