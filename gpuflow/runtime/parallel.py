"""Several transfers at a time."""

from __future__ import annotations

import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any


def in_parallel(action: Callable[[Any], None], items: Iterable[Any], streams: int) -> None:
    """Each item once, at most `streams` at a time. The first error is raised, after the others have stopped."""
    rest = iter(items)
    if streams <= 1:
        for item in rest:
            action(item)
        return
    lock = threading.Lock()
    errors: list[BaseException] = []

    def work() -> None:
        while True:
            with lock:
                # The list of items may be made while it is read, and break off.
                try:
                    item = None if errors else next(rest, None)
                except BaseException as error:
                    errors.append(error)
                    return
            if item is None:
                return
            try:
                action(item)
            except BaseException as error:
                with lock:
                    errors.append(error)
                return

    threads = [threading.Thread(target=work, name=f"put-{index}", daemon=True) for index in range(streams)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
