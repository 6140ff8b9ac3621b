"""Capacity of a device: whether it is enough for a request, and how much of it the request takes.

Mirrors k8s.io/dynamic-resource-allocation/structured/internal/incubating.CmpRequestOverCapacity and
GetConsumedCapacityFromRequest, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuflow.checker.dra.objects import Capacity, Device, Policy, Request
from gpuflow.quantity import Format, Quantity

Consumed = dict[str, Quantity]


def has_room(request: Request, device: Device, used: Mapping[str, Quantity], taking: Mapping[str, Quantity]) -> bool:
    """Whether what a request takes fits beside what others hold of a device."""
    asked = request.capacity or {}
    if not asked.keys() <= device.capacity.keys():
        return False
    for name, capacity in device.capacity.items():
        amount = _consumed(asked.get(name), capacity)
        if _violates(amount, capacity.policy):
            return False
        if amount + used.get(name, Quantity.zero) + taking.get(name, Quantity.zero) > capacity.value:
            return False
    return True


def consumed(request: Request, device: Device) -> Consumed:
    asked = request.capacity or {}
    return {name: _consumed(asked.get(name), capacity) for name, capacity in device.capacity.items()}


def _consumed(asked: Quantity | None, capacity: Capacity) -> Quantity:
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


def _violates(amount: Quantity, policy: Policy | None) -> bool:
    if policy is None or amount == policy.default:
        return False
    if policy.has_range:
        if policy.most is not None and amount > policy.most:
            return True
        least = Quantity.zero if policy.least is None else policy.least
        return policy.step is not None and (amount.value - least.value) % policy.step.value != 0
    return bool(policy.values) and amount not in policy.values
