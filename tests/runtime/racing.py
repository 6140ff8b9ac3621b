"""Many that create one object at the same moment: a store lets exactly one of them succeed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from gpuflow.runtime.stores.store import Store


def one_of_many_creates(opened: Callable[[], Store], count: int, key: str = "claim") -> None:
    """`opened` gives each of them a store of its own, as pods have. What the winner wrote is what is kept."""
    stores = [opened() for _ in range(count)]
    ready = threading.Barrier(count, timeout=60)

    def create(index: int) -> bool:
        ready.wait()
        return stores[index].create(key, str(index).encode())

    with ThreadPoolExecutor(count) as threads:
        won = [index for index, created in enumerate(threads.map(create, range(count))) if created]
    assert len(won) == 1, f"{won} of {count} believe that they created {key}"
    assert all(store.read(key) == str(won[0]).encode() for store in stores)
