"""Where state is kept: a directory, or an object store through fsspec. Keys are relative, with `/` between parts.

Both make the same promises, and the rest of the runtime relies on nothing else: `write` and `put` appear whole or not
at all, `create` succeeds for one caller only (where the store can say so: it is probed), and `names` lists all there
is, sorted here, or fails. docs/reference/store.md says what each kind of store must be able to do.

`in_parallel` and `run_ahead` run several transfers at a time. `Progress` writes to the log how far a long one is: how
much of how much, how fast, and how long it still takes.
"""

from __future__ import annotations

import contextvars
import threading
import time

from gpuflow.runtime.base import units

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import Any, Protocol

    class Workers(Protocol):
        """Processes that move files; `transfer_pool` has them."""

        def move(self, orders: Iterable[Any]) -> Generator[Any, None, None]: ...


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
    """The result of an action in another thread."""

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


def run_ahead(actions: Iterable[Callable[[], Any]], width: int) -> Iterator[Any]:
    """What the actions come to, in their order, while up to `width` of them run. None still runs when this ends."""
    rest = iter(actions)
    running: list[_Result] = []
    try:
        while True:
            while len(running) < width:
                if (action := next(rest, None)) is None:
                    break
                running.append(_Result(action))
            if not running:
                return
            yield running[0].get()
            del running[0]
    finally:
        for result in running:
            result.wait()


EVERY = 10.0
"""Seconds between two lines."""


class Progress:
    """One transfer. `moved` is called from any thread, with the bytes of each piece."""

    def __init__(self, say: Callable[[str], None], what: str, every: float = EVERY) -> None:
        self.say, self.what, self.every = say, what, every
        self.total = self.done = self.files = 0
        self.began = self._last = time.monotonic()
        self._lock = threading.Lock()

    def begin(self, total: int, files: int, done: int = 0) -> None:
        """So many bytes in so many files are to come; called again when it is tried again."""
        self.total, self.files, self.done = total, files, done

    def add(self, count: int) -> None:
        with self._lock:
            self.done = min(self.total, self.done + count)  # what is tried again counts once
            now = time.monotonic()
            if now - self._last < self.every:
                return
            self._last = now
        self.say(self.line(now))

    def line(self, now: float) -> str:
        """The progress line."""
        rate = self.done / max(now - self.began, 0.001)
        left = max(0, self.total - self.done)
        rest = f", about {units.format_seconds(left / rate)} left" if rate > 0 and self.total else ""
        return f"{self.what}: {amount(self.done)} of {amount(self.total)}, {amount(rate)}/s{rest}"

    def summary(self) -> str:
        """The final line."""
        took = time.monotonic() - self.began
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        rate = f" ({amount(self.total / took)}/s)" if took > 1 else ""
        return f"{self.what}: {amount(self.total)} in {files}, in {units.format_seconds(took)}{rate}"


def amount(count: float) -> str:
    """Bytes for a person: `12 bytes`, `3.4 MB`."""
    for limit, name in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if count >= limit:
            return f"{count / limit:.3g} {name}"
    return f"{count:.0f} bytes"


CHUNK = 1 << 20


class StorageError(Exception):
    """Storage did not do what was asked. Worth another try, later."""


class Refusal(StorageError):
    """A permanent storage error: a retry cannot help."""


class BadName(Refusal):
    """The store can have no object of this name."""


class Store:
    """What a store can do."""

    conditional: bool | None = None
    """Whether `create` keeps its promise; None until it was probed."""
    sure = True
    """False when a probe proves little: a mount may promise for its own machine what the store does not keep."""
    streams = 1
    """How many puts at once are worth it, and fit in memory."""
    batch = 500
    """How many small files are put together: a store may then force them to disk at once."""

    def read(self, key: str) -> bytes:
        """The bytes under a key, or the first of too many; FileNotFoundError when there are none."""
        raise NotImplementedError

    def write(self, key: str, data: bytes) -> None:
        """Put or replace a small object."""
        raise NotImplementedError

    def write_surely(self, key: str, data: bytes, called: str = "") -> None:
        """Put or replace a small object, and read it back. `called`: what it is in the error."""
        self.write(key, data)
        try:
            if self.read(key) == data:
                return
        except FileNotFoundError:
            pass
        raise StorageError(f"{called or key} does not read back as it was written")

    def create(self, key: str, data: bytes) -> bool:
        """Put a small object unless there is one already; False when there is."""
        raise NotImplementedError

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        """Write a large object from a stream of about `size` bytes."""
        raise NotImplementedError

    def chunks(self, key: str) -> Iterator[bytes]:
        """Read a large object as a stream."""
        raise NotImplementedError

    def clone(self, key: str, handle: int) -> bool:
        """Make an open empty file share the bytes of an object, where the file system can; False when it cannot."""
        return False

    def size(self, key: str) -> int:
        """How many bytes there are under a key; FileNotFoundError when there is no such object."""
        return len(self.read(key))

    def names(self, prefix: str) -> list[tuple[str, int]]:
        """Keys below a prefix with their sizes, sorted."""
        raise NotImplementedError

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects, manifests before all others; those that are not there are no error."""
        raise NotImplementedError

    def probe(self, key: str) -> bool:
        """Whether `create` keeps its promise: the same object twice, and the second is refused. Sets `conditional`."""
        self.create(key, b"1\n")
        second = self.create(key, b"2\n")
        self.conditional = not second and self.sure and self.read(key) == b"1\n"
        self._unprobe(key)
        return self.conditional

    def _unprobe(self, key: str) -> None:
        self.delete([key])

    def put_all(self, items: Iterable[tuple[str, Iterable[bytes], int]]) -> None:
        """Put many large objects, several at once. All of them last when this returns; on an error, some may."""
        in_parallel(lambda item: self.put(*item), items, self.streams)

    def workers(self, files: int, top: int | None = None) -> Workers | None:
        """Processes that move so many files, where that is worth it; `top` is an open folder to write below."""
        return None

    def clear_uploads(self, prefix: str) -> None:
        """Free what writers that were killed left below a prefix, where it is not listed."""

    def url(self, key: str) -> str:
        """Where others find an object."""
        return key

    def see_name(self, key: str) -> None:
        """BadName where no object can have this key: known before it is written."""


class Memory(Store):
    """A store in memory, for the records of an attempt that is not followed by another."""

    conditional = True

    def __init__(self) -> None:
        self._objects: dict[str, bytes] = {}

    def read(self, key: str) -> bytes:
        if key not in self._objects:
            raise FileNotFoundError(key)
        return self._objects[key]

    def write(self, key: str, data: bytes) -> None:
        self._objects[key] = data

    def create(self, key: str, data: bytes) -> bool:
        return self._objects.setdefault(key, data) is data

    def names(self, prefix: str) -> list[tuple[str, int]]:
        return sorted((key, len(data)) for key, data in self._objects.items() if key.startswith(f"{prefix}/"))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._objects.pop(key, None)


def is_no_manifest(key: str) -> bool:
    """What sorts manifests to the front: without its manifest nothing is half there."""
    return not key.endswith("/manifest.json")
