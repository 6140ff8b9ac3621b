"""Several transfers at a time."""

from __future__ import annotations

import contextvars
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
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

    # Each in a copy of the context: whoever waits for us waits for them.
    runs = [contextvars.copy_context().run for _ in range(streams)]
    threads = [
        threading.Thread(target=run, args=(work,), name=f"put-{index}", daemon=True) for index, run in enumerate(runs)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class _Result:
    """What an action of another thread came to, once it is there."""

    def __init__(self, action: Callable[[], Any]) -> None:
        self._action, self._there = action, threading.Event()
        self._value: Any = None
        self._error: BaseException | None = None
        run = contextvars.copy_context().run
        threading.Thread(target=run, args=(self._work,), name="ahead", daemon=True).start()

    def _work(self) -> None:
        try:
            self._value = self._action()
        except BaseException as error:
            self._error = error
        self._there.set()

    def wait(self) -> None:
        self._there.wait()

    def get(self) -> Any:
        self._there.wait()
        if self._error is not None:
            raise self._error
        return self._value


def ahead(actions: Iterable[Callable[[], Any]], width: int) -> Iterator[Any]:
    """What the actions come to, in their order, while up to `width` of them run. None still runs when this ends."""
    rest = iter(actions)
    running: list[_Result] = []
    try:
        while True:
            while len(running) < width:
                action = next(rest, None)
                if action is None:
                    break
                running.append(_Result(action))
            if not running:
                return
            yield running[0].get()
            del running[0]
    finally:
        for result in running:
            result.wait()
