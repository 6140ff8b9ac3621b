"""A cluster for a program that proves something: the one that is up under its name, or one of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from .cluster import Cluster


@contextlib.contextmanager
def borrowed(name: str, *addons: str, node: bool = True) -> Iterator[Cluster]:
    """One that is up gets what it lacks, and stays; else one is started, and ended."""
    found = Cluster.find(name)
    if found is not None:
        for addon in addons:
            found.ensure(addon)
        yield found
        return
    made = Cluster.up(name, node=node, addons=addons)
    try:
        yield made
    finally:
        Cluster.down(name)
