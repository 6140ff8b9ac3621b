"""How many pods a node surely takes, when pods with different claims come and go in any order."""

from __future__ import annotations

from collections.abc import Sequence

from gpuflow.checker.dra.allocated import AllocatedState
from gpuflow.checker.dra.allocator import AllocationError, Allocator, Undecided
from gpuflow.checker.dra.objects import Claim, DeviceId
from gpuflow.kubernetes.labels import Labels

Held = tuple[tuple[DeviceId, ...], ...]
"""The devices of each pod that is there, in order."""


class Budget:
    """How many questions may still be asked."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, amount: int) -> bool:
        self.left -= amount
        return self.left >= 0


def turns(
    allocator: Allocator, name: str, labels: Labels, pods: Sequence[Sequence[Claim]], budget: Budget
) -> int | None:
    """The least number of these pods on a node beside which some of them finds no devices; `None`: there is none.

    Every way in which pods may have come and gone is tried, on a node where nobody else holds a device. Where that
    takes too long, or cannot be told, it is one: each of them finds devices on the node as it is. A pod with nothing
    but access for administrators takes no device, and is in nobody's way.
    """
    seen: set[Held] = {()}
    todo: list[Held] = [()]
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
                given = _given(allocator, name, labels, claims, held)
            except (AllocationError, Undecided):
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


def _given(
    allocator: Allocator, name: str, labels: Labels, claims: Sequence[Claim], held: Held
) -> tuple[DeviceId, ...] | None:
    """The devices that one more pod takes; `None` when there are too few."""
    state = AllocatedState()
    for devices in held:
        state.devices.update(devices)
    found = allocator.beside(state).allocate(name, labels, claims)
    if found.status != "allocated":
        return None
    return tuple(
        picked.device
        for claim, one in zip(claims, found.claims, strict=True)
        for picked in one
        if picked.request not in claim.admin_requests
    )
