"""Attributes that must be the same, or differ, over the devices of a claim.

Mirrors k8s.io/dynamic-resource-allocation/structured/internal/incubating.matchAttributeConstraint and
distinctAttributeConstraint, Kubernetes v1.36.3.
"""

from __future__ import annotations

from gpuflow.checker.dra.objects import Attribute, Constraint, Device, Request


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
            self._values[_base(request)] = value
        elif not self._count:
            self._same = value
        self._count += 1
        return True

    def remove(self, request: Request) -> None:
        if self._applies(request):
            self._values.pop(_base(request), None)
            self._count -= 1

    def _applies(self, request: Request) -> bool:
        names = self._constraint.requests
        return not names or _base(request) in names or (request.parent is not None and request.full_name in names)


def _base(request: Request) -> str:
    return request.name if request.parent is None else request.parent
