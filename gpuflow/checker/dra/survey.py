"""Which devices of each node a request can get, when each is looked at alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuflow.checker.dra.allocator import AllocationError, Allocator, Undecided, selects
from gpuflow.checker.dra.consumable import has_room
from gpuflow.checker.dra.counters import ConsumedCounters
from gpuflow.checker.dra.objects import Device, DeviceId, Request
from gpuflow.checker.dra.pools import Pool
from gpuflow.checker.dra.taints import prevents
from gpuflow.checker.nodes.subjects import Node
from gpuflow.work import TOO_LARGE, take

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
        for name, _ in self.device.consumes:
            yield (self.pool.driver, self.pool.name, name, "counters")


@dataclass(frozen=True, slots=True)
class Survey:
    matches: tuple[Match, ...]
    fault: str | None = None
    """A selector fails on a device, which ends the scheduler's attempt when it comes to it."""
    change: str | None = None
    """A pool that is being updated: other devices may come."""


def survey(allocator: Allocator, node: Node, pools: Iterable[Pool], request: Request) -> Survey:
    """The devices of a node for a request, whether they are in use or not. `Undecided` for a selector not evaluated."""
    matches: list[Match] = []
    fault = change = None
    device_class = allocator.classes[request.device_class]
    for pool in pools:
        if pool.is_incomplete or pool.is_invalid:
            state = "being updated" if pool.is_incomplete else "invalid"
            change = change or f"resource pool {pool.driver}/{pool.name} is {state}"
            continue
        for each in pool.slices:
            if not take("devices", len(each.devices)):
                raise Undecided(TOO_LARGE["devices"])
            for device in each.devices:
                try:
                    chosen = selects(device_class, request, device)
                except AllocationError as error:
                    fault = fault or f"on device {device.id} the scheduler gives up: {error}"
                    continue
                if not chosen or (each.is_per_device and not device.nodes.matches(node.name, node.labels)):
                    continue
                if prevents(device.taints, request.tolerations) or not has_room(request, device, {}, {}):
                    continue
                where = device.nodes if each.is_per_device else each.nodes
                matches.append(Match(pool, device, bool(where.node_name)))
    return Survey(tuple(matches), fault, change)


def joint(allocator: Allocator, matches: Iterable[Match]) -> int | None:
    """How many of these devices can be had beside what is in use; `None` when some of them exclude each other."""
    free = [each for each in matches if each.device.id not in allocator.allocated.devices]
    alone = [each for each in free if _fits(allocator, [each])]
    return len(alone) if _fits(allocator, alone) else None


def _fits(allocator: Allocator, matches: Iterable[Match]) -> bool:
    taken = ConsumedCounters(allocator.counters)
    return all(not each.device.consumes or taken.reserve(each.pool, each.device) for each in matches)
