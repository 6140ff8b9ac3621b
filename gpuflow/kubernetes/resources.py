"""What a pod asks for as a whole.

Quota, the scheduler and the kubelet all look at one sum per resource, worked out from the containers, the
init containers (which run one after the other, before the rest), the sidecars among them (which stay), the
pod-level resources and the runtime's overhead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gpuflow.quantity import Quantity

ResourceList = Mapping[str, Quantity]


class BadField(ValueError):
    """A value of a manifest that cannot be read, or that Kubernetes would refuse: its path, and what is wrong."""

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(f"{path}: {fault}")
        self.owner, _, self.field = path.rpartition(": ")
        """The object where the path begins with it, and the path within it: `LimitRange l: spec.limits[0].max[cpu]`."""
        if not self.owner and " " in self.field.partition(".")[0].partition("[")[0]:  # `LimitRange metadata.name`
            self.owner, _, self.field = self.field.partition(" ")


HUGEPAGES = "hugepages-"


def is_hugepages(name: str) -> bool:
    return name.startswith(HUGEPAGES)


def is_pod_level(name: str) -> bool:
    """Whether `spec.resources` may name this resource."""
    return name in ("cpu", "memory") or name.startswith(HUGEPAGES)


def read_resource_list(raw: object, where: str = "resources") -> dict[str, Quantity]:
    """A map of names to quantities as the API server decodes it; an absent map is empty.

    `ValueError` names the entry that cannot be read.
    """
    if raw is None:
        return {}
    result: dict[str, Quantity] = {}
    for name, value in read_map(raw, where).items():
        if not isinstance(name, str):
            raise BadField(where, f"resource name {name!r} must be a string")
        try:
            result[name] = _read_text(value) if type(value) is str else read_quantity(value)
        except ValueError as error:
            raise BadField(f"{where}[{name}]", f"{value!r}: {error}") from None
    return result


def read_quantity(value: object) -> Quantity:
    """A quantity of a JSON document: a string or number, blanks around it ignored, `null` for zero."""
    if isinstance(value, str):
        return _read_text(value)
    if value is None:
        return Quantity.zero
    return Quantity(value)  # type: ignore[arg-type]  # it refuses what is no text by itself


@lru_cache(maxsize=65536)
def _read_text(text: str) -> Quantity:
    return Quantity(text.strip())


def read_map(value: object, where: str) -> Mapping[str, Any]:
    """A map of a manifest; an absent one is empty."""
    if type(value) is dict:  # much quicker to ask than whether it is any kind of Mapping
        return value
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadField(where, f"must be a map, not {value!r}")
    return value


def read_maps(value: object, where: str) -> list[Mapping[str, Any]]:
    """A list of maps of a manifest; an absent one is empty."""
    if value is None:
        return []
    return [
        item if type(item) is dict else read_map(item, f"{where}[{index}]")
        for index, item in enumerate(_read_list(value, where))
    ]


def read_texts(value: object, where: str) -> list[str]:
    """A list of strings of a manifest; an absent one is empty."""
    texts = [] if value is None else _read_list(value, where)
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise BadField(f"{where}[{index}]", f"must be a string, not {text!r}")
    return list(texts)


def _read_list(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, list | tuple):
        raise BadField(where, f"must be a list, not {value!r}")
    return value


def aggregate(
    containers: Iterable[ResourceList], init_containers: Iterable[tuple[ResourceList, bool]] = ()
) -> dict[str, Quantity]:
    """The most that the containers of a pod use at one time.

    Each init container comes with whether it is a sidecar. A sidecar runs on beside all that start after it;
    any other init container runs alone with the sidecars before it.
    """
    total: dict[str, Quantity] = {}
    for resources in containers:
        if total:
            _add(total, resources)
        else:
            total = dict(resources)
    sidecars: dict[str, Quantity] = {}
    starting: dict[str, Quantity] = {}
    for resources, is_sidecar in init_containers:
        running = resources
        if is_sidecar:
            _add(total, resources)
            _add(sidecars, resources)
            running = sidecars
        elif sidecars:
            running = dict(resources)
            _add(running, sidecars)
        if starting:
            _keep_greater(starting, running)
        else:
            starting = dict(running)
    _keep_greater(total, starting)
    return total


def combine_requests(
    containers: dict[str, Quantity], pod_level: ResourceList, overhead: ResourceList
) -> dict[str, Quantity]:
    """The pod's requests from those of its containers: pod-level ones replace them, overhead comes on top."""
    containers |= {name: quantity for name, quantity in pod_level.items() if is_pod_level(name)}
    _add(containers, overhead)
    return containers


def combine_limits(
    containers: dict[str, Quantity], pod_level: ResourceList, overhead: ResourceList
) -> dict[str, Quantity]:
    """The pod's limits; overhead is added only where there is a limit to raise."""
    containers |= {name: quantity for name, quantity in pod_level.items() if is_pod_level(name)}
    for name, quantity in overhead.items():
        if containers.get(name):
            containers[name] = containers[name] + quantity
    return containers


def _add(total: dict[str, Quantity], more: ResourceList) -> None:
    for name, quantity in more.items():
        present = total.get(name)
        total[name] = quantity if present is None else present + quantity


def _keep_greater(total: dict[str, Quantity], other: ResourceList) -> None:
    for name, quantity in other.items():
        present = total.get(name)
        if present is None or quantity.nano > present.nano:
            total[name] = quantity
