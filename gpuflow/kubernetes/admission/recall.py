"""What a cluster says over and over, read once.

The same few quotas, LimitRanges and resource lists come with every question. What was read is found again by what the
manifest says and never by which object says it, since a manifest may be changed between two questions. It is shared,
so nobody changes it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, TypeVar

from gpuflow.content import content_of, data_of
from gpuflow.quantity import MICRO
from gpuflow.resources import ResourceList, read_resource_list

EMPTY: Final[ResourceList] = {}

Read = TypeVar("Read")


def recalled(read: Callable[[Any], Read], manifest: Any) -> Read:
    """What `read` makes of a manifest, which must be a value that keeps nothing of the manifest itself."""
    content = content_of(manifest)
    if content is None:
        return read(manifest)
    return _recalled(read, content)  # type: ignore[return-value]  # what `read` gives


@lru_cache(maxsize=4096)
def _recalled(read: Callable[[Any], object], content: bytes) -> object:
    return read(data_of(content))


def read_stored(raw: object, where: str) -> ResourceList:
    """A resource list with nothing finer than a thousandth; an absent one is empty."""
    return EMPTY if raw is None else rounded(read_resource_list(raw, where))


def rounded(resources: ResourceList) -> ResourceList:
    """Nothing finer than a thousandth is stored."""
    for quantity in resources.values():
        if quantity.nano % MICRO:
            return {name: each.rounded_to_milli() for name, each in resources.items()}
    return resources
