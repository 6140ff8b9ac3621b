"""One checkpoint to the store and back: files first, each with its hash, the manifest last.

A checkpoint without a manifest does not exist. A manifest that is there names every file with size and SHA-256, and a
hash of itself; a restore that does not match is never handed to the program. Several files travel at once, each in
pieces, so that memory stays bounded; what has arrived is not sent or fetched again when the rest fails.
"""

from __future__ import annotations

import os
import stat
import threading
import time

from gpuflow.runtime.base import records
from gpuflow.runtime.base.files import close_after, open_same
from gpuflow.runtime.base.record_fields import attempt_of
from gpuflow.runtime.base.records import Corrupt, File, Manifest
from gpuflow.runtime.stores import local_files, storage_timeout
from gpuflow.runtime.stores.local_files import (
    CheckpointChanged,
    CheckpointRefused,
    CheckpointVanished,
    Item,
    file_facts,
)
from gpuflow.runtime.stores.store import CHUNK, BadName, StorageError, Store, in_parallel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpuflow.runtime.base.signing import Keys

LARGE = 8 << 20
"""A file of this size is put on its own; smaller ones many at a time."""


class TransferAbandoned(Exception):
    """There is no time left, or no reason, to go on."""


class Throttle:
    """Limits bytes per second, and checks before each chunk whether to go on. Shared by all threads."""

    def __init__(
        self,
        bandwidth: Callable[[], int | None],
        proceed: Callable[[], bool],
        progress: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.bandwidth, self.proceed, self.progress = bandwidth, proceed, progress
        self._lock = threading.Lock()
        self._free = time.monotonic()

    def pass_through(self, count: int) -> None:
        self.ask()
        self.progress(count)
        storage_timeout.report_moved(count)
        if (most := self.bandwidth()) is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free = free = max(self._free, now - 0.1) + count / most
        while now < free and self.bandwidth() is not None:
            self.ask()
            self.progress(0)  # waiting of our own will is no standstill
            storage_timeout.report_moved(0)
            time.sleep(min(0.2, free - now))
            now = time.monotonic()

    def ask(self) -> None:
        if not self.proceed():
            raise TransferAbandoned()


def no_throttle(proceed: Callable[[], bool], progress: Callable[[int], None] = lambda _: None) -> Throttle:
    return Throttle(lambda: None, proceed, progress)


class Upload:
    """One checkpoint on its way to the store. `send` may be called again after it failed."""

    def __init__(self, prefix: str, items: list[Item]) -> None:
        self.prefix, self.items = prefix, items
        self._arrived: dict[str, File] = {}

    @property
    def arrived_files(self) -> int:
        """How many files have arrived."""
        return len(self._arrived)

    def send(self, store: Store, throttle: Throttle) -> list[File]:
        """Put every file below the prefix and see that all arrived; what the manifest says about them."""
        missing = [item for item in self.items if item.is_file and item.relative not in self._arrived]
        try:
            for item in missing:
                store.see_name(self._key(item))
        except BadName as refusal:
            raise CheckpointRefused(str(refusal)) from None
        small = [item for item in missing if item.size < LARGE]
        for at in range(0, len(small), store.batch):
            batch = [(item, _Reader(item.path, throttle, item.facts)) for item in small[at : at + store.batch]]
            store.put_all((self._key(item), reader, item.size) for item, reader in batch)
            # Only now: until all are there, none of them is sure to last.
            self._arrived.update((item.relative, _file(item, reader)) for item, reader in batch)

        def put(item: Item) -> None:
            reader = _Reader(item.path, throttle, item.facts)
            store.put(self._key(item), reader, item.size)
            self._arrived[item.relative] = _file(item, reader)

        in_parallel(put, [item for item in missing if item.size >= LARGE], store.streams)
        there = dict(store.names(self.prefix))
        for item in self.items:
            file = self._arrived.get(item.relative)
            if file is not None and there.get(self._key(item)) != file.size:
                del self._arrived[item.relative]
                size = there.get(self._key(item))
                raise StorageError(f"{self._key(item)} has {size} bytes in the store, not {file.size}")
        return [self._arrived.get(item.relative) or _link_or_directory(item) for item in self.items]

    def _key(self, item: Item) -> str:
        return f"{self.prefix}/files/{item.relative}" if item.relative else f"{self.prefix}/file"


def commit(store: Store, prefix: str, manifest: Manifest, keys: Keys | None = None) -> None:
    """Write the manifest and read it back: now the checkpoint exists."""
    key = f"{prefix}/manifest.json"
    data = records.pack(manifest, key, keys)
    if len(data) > records.LARGE:
        raise CheckpointRefused(
            f"its {len(manifest.files)} files are too many to name in one manifest; put them into archives"
        )
    store.write_surely(key, data)


def manifests(store: Store, base: str, since: int = 0) -> list[tuple[str, str]]:
    """Checkpoints that exist, oldest first, as (name, prefix). The name orders them: attempt, then number. Those of
    attempts before `since` were forgotten."""
    top = f"{base}/checkpoints/"
    found = []
    for key, _ in store.names(top.rstrip("/")):
        # Exactly so deep: a checkpoint may hold files of this name itself.
        name, _, rest = key[len(top) :].partition("/")
        attempt = attempt_of(name)
        if key.startswith(top) and rest == "manifest.json" and attempt is not None and attempt >= since:
            found.append((name, f"{top}{name}"))
    return sorted(found)


def read_manifest(store: Store, key: str, keys: Keys | None = None) -> Manifest:
    """A manifest that is whole, with keys also signed; or Corrupt."""
    try:
        manifest: Manifest = records.unpack(Manifest, store.read(key), key, keys)
    except FileNotFoundError:
        raise Corrupt(f"{key} is gone") from None
    name = key.split("/")[-2]
    if manifest.checkpoint != name or manifest.attempt != attempt_of(name):
        raise Corrupt(f"{key} is of another checkpoint")
    return manifest


def is_same_content(path: str, files: list[File], throttle: Throttle, follow: Sequence[str] = ()) -> bool:
    """Whether `path` holds exactly what a manifest names. TransferAbandoned on a stop request."""
    try:
        # A file that a link led to comes back as a file; here it may still be the link.
        here = {item.relative: item for item in local_files.list_items(path, follow)}
        if set(here) != {file.path for file in files}:
            return False
        for file in files:
            item = here[file.path]
            if item.link != file.link or item.is_directory != bool(file.directory):
                return False
            if file.sha256 is not None:
                if not item.is_file or item.size != file.size:
                    return False
                if _hash_file(item.path, throttle, item.facts).sha256 != file.sha256:
                    return False
    except (OSError, CheckpointVanished, CheckpointRefused):
        return False
    return True


def content_hash(items: Iterable[Item], throttle: Throttle) -> str:
    """One hash over all that a manifest would say about files that stay where they are."""
    import hashlib

    whole = hashlib.sha256()
    for item in items:
        file = _file(item, _hash_file(item.path, throttle, item.facts)) if item.is_file else _link_or_directory(item)
        whole.update(records.encode({**file.plain(), "mode": None}))
    return whole.hexdigest()


class _Reader:
    """The pieces of a file, hashed on the way. Changed when it is not, or not to the end, what it was."""

    def __init__(self, path: str, throttle: Throttle, seen: tuple[int, int, int, int]) -> None:
        self.path, self.throttle, self.seen = path, throttle, seen
        self.size, self.sha256 = 0, ""
        self._moved = 0

    @property
    def is_limited(self) -> bool:
        return self.throttle.bandwidth() is not None

    def report_moved(self, count: int) -> None:
        """Report `count` more bytes, sent by another process."""
        self._moved += count
        self.throttle.pass_through(count)

    def accept_result(self, size: int, sha256: str, _: int, seen: list[int]) -> bool:
        """Another process has read it; False when that was not the file that was meant."""
        if tuple(seen) != self.seen:
            return False
        self.size, self.sha256 = size, sha256
        self.throttle.pass_through(max(0, size - self._moved))
        return True

    def __iter__(self) -> Iterator[bytes]:
        import hashlib

        hashed, self.size = hashlib.sha256(), 0
        try:
            handle = open_same(self.path, self.seen)
        except FileNotFoundError:
            raise CheckpointVanished(self.path) from None
        with close_after(handle):
            while file_facts(os.fstat(handle)) == self.seen:
                if not (data := os.read(handle, CHUNK)):
                    break
                self.throttle.pass_through(len(data))
                hashed.update(data)
                self.size += len(data)
                yield data
            after = file_facts(os.fstat(handle))
        if after != self.seen or self.size != after[3]:
            raise CheckpointChanged(self.path)
        self.sha256 = hashed.hexdigest()


def _hash_file(path: str, throttle: Throttle, seen: tuple[int, int, int, int]) -> _Reader:
    reader = _Reader(path, throttle, seen)
    for _ in reader:
        pass
    return reader


def _file(item: Item, reader: _Reader) -> File:
    return File(path=item.relative, size=reader.size, sha256=reader.sha256, mode=stat.S_IMODE(item.mode))


def _link_or_directory(item: Item) -> File:
    return (
        File(path=item.relative, link=item.link) if item.link is not None else File(path=item.relative, directory=True)
    )
