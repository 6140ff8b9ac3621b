"""One checkpoint to the store and back: files first, each with its hash, the manifest last.

A checkpoint without a manifest does not exist. A manifest that is there names every file with size and SHA-256, and a
hash of itself; a restore that does not match is never handed to the program. Several files travel at once, each in
pieces, so that memory stays bounded; what has arrived is not sent or fetched again when the rest fails.
"""

from __future__ import annotations

import json
import os
import stat
import threading
import time

from gpuflow.runtime.ledger import digest, encode
from gpuflow.runtime.snapshot import Changed, Item, Refused, Vanished, facts, leads_out, walk
from gpuflow.runtime.store import CHUNK, StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

__all__ = ["Abandoned", "Changed", "Corrupt", "Download", "Refused", "Throttle", "Upload", "Vanished"]
WORKERS = 4
"""How many files travel at once."""


class Corrupt(Exception):
    """What came from the store is not what was put there."""


class Abandoned(Exception):
    """There is no time left, or no reason, to go on."""


class Throttle:
    """At most so many bytes a second, and a question before each piece whether to go on. One for all threads."""

    def __init__(
        self,
        bandwidth: Callable[[], int | None],
        proceed: Callable[[], bool],
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        self.bandwidth, self.proceed, self.progress = bandwidth, proceed, progress
        self._lock = threading.Lock()
        self._free = time.monotonic()

    def pass_through(self, count: int) -> None:
        self.ask()
        self.progress()
        most = self.bandwidth()
        if most is None:
            return
        with self._lock:
            now = time.monotonic()
            self._free = free = max(self._free, now - 0.1) + count / most
        while now < free and self.bandwidth() is not None:
            self.ask()
            time.sleep(min(0.2, free - now))
            now = time.monotonic()

    def ask(self) -> None:
        if not self.proceed():
            raise Abandoned()


def unthrottled(proceed: Callable[[], bool], progress: Callable[[], None] = lambda: None) -> Throttle:
    return Throttle(lambda: None, proceed, progress)


class Upload:
    """One checkpoint on its way to the store. `send` may be called again after it failed."""

    def __init__(self, prefix: str, items: list[Item]) -> None:
        self.prefix, self.items = prefix, items
        self._arrived: dict[str, dict[str, Any]] = {}

    def send(self, store: Store, throttle: Throttle) -> list[dict[str, Any]]:
        """Put every file below the prefix and see that all arrived; what the manifest says about them."""

        def put(item: Item) -> None:
            reader = _Reader(item.path, throttle, item.facts)
            store.put(_key(self.prefix, item.relative), reader, item.size)
            mode = stat.S_IMODE(item.mode)
            self._arrived[item.relative] = {
                "path": item.relative,
                "size": reader.size,
                "sha256": reader.sha256,
                "mode": mode,
            }

        _together(put, [item for item in self.items if item.is_file and item.relative not in self._arrived], throttle)
        there = dict(store.names(self.prefix))
        for relative, file in sorted(self._arrived.items()):
            key = _key(self.prefix, relative)
            if there.get(key) != file["size"]:
                del self._arrived[relative]
                raise StorageError(f"{key} has {there.get(key)} bytes in the store, not {file['size']}")
        return [self._described(item) for item in self.items]

    def _described(self, item: Item) -> dict[str, Any]:
        if item.link is not None:
            return {"path": item.relative, "link": item.link}
        return {"path": item.relative, "directory": True} if item.is_directory else self._arrived[item.relative]


class Download:
    """One checkpoint on its way here, to `into`. `fetch` may be called again after it failed."""

    def __init__(self, prefix: str, manifest: dict[str, Any], into: str) -> None:
        self.prefix, self.manifest, self.into = prefix, manifest, into
        self._arrived: set[str] = set()

    def fetch(self, store: Store, throttle: Throttle) -> None:
        """Bring every file, each byte checked against the manifest."""
        files = self.manifest["files"]
        os.makedirs(self.into if self.manifest["kind"] == "directory" else os.path.dirname(self.into), exist_ok=True)
        for file in files:
            if "directory" in file:
                os.makedirs(self._path(file), exist_ok=True)

        def fetch(file: dict[str, Any]) -> None:
            path = self._path(file)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            _fetch(store, _key(self.prefix, file["path"]), file, path, throttle)
            self._arrived.add(file["path"])

        _together(fetch, [file for file in files if "sha256" in file and file["path"] not in self._arrived], throttle)
        # Links come last, so that no file is written through one.
        for file in files:
            if "link" in file and not os.path.islink(self._path(file)):
                if leads_out(file["path"], file["link"]) or os.path.lexists(self._path(file)):
                    raise Corrupt(f"{self.prefix}: {file['path']} is a link out of the checkpoint to {file['link']}")
                os.makedirs(os.path.dirname(self._path(file)), exist_ok=True)
                os.symlink(file["link"], self._path(file))

    def _path(self, file: dict[str, Any]) -> str:
        return os.path.join(self.into, *file["path"].split("/")) if file["path"] else self.into


def commit(store: Store, prefix: str, manifest: dict[str, Any]) -> None:
    """Write the manifest and read it back: now the checkpoint exists."""
    whole = {**manifest, "hash": digest(manifest)}
    store.write(f"{prefix}/manifest.json", encode(whole))
    try:
        same_as_written = read_manifest(store, f"{prefix}/manifest.json") == whole
    except Corrupt:
        same_as_written = False
    if not same_as_written:
        raise StorageError(f"{prefix}/manifest.json does not read back as it was written")


def manifests(store: Store, base: str) -> list[tuple[str, str]]:
    """Checkpoints that exist, oldest first, as (name, prefix). The name orders them: attempt, then number."""
    top = f"{base}/checkpoints/"
    found = []
    for key, _ in store.names(top.rstrip("/")):
        # Exactly so deep: a checkpoint may hold files of this name itself.
        name, _, rest = key[len(top) :].partition("/")
        if key.startswith(top) and rest == "manifest.json":
            found.append((name, f"{top}{name}"))
    return sorted(found)


def read_manifest(store: Store, key: str) -> dict[str, Any]:
    """A manifest that is whole, or Corrupt."""
    try:
        value = json.loads(store.read(key))
    except FileNotFoundError:
        raise Corrupt(f"{key} is gone") from None
    except ValueError:
        raise Corrupt(f"{key} is not whole") from None
    if not isinstance(value, dict) or value.get("hash") != digest(value):
        raise Corrupt(f"{key} is not whole")
    for name in [value["entry"], *(file["path"] for file in value["files"])]:
        if name.startswith("/") or ".." in name.split("/"):
            raise Corrupt(f"{key} names a file outside the checkpoint: {name}")
    return value


def same(path: str, files: list[dict[str, Any]], throttle: Throttle) -> bool:
    """Whether what lies at `path` is, byte for byte, what a manifest names. Abandoned when told to stop meanwhile."""
    try:
        here = {relative: (item, status) for relative, item, status in walk(path)}
        if set(here) != {file["path"] for file in files}:
            return False
        for file in files:
            item, status = here[file["path"]]
            if "link" in file and (not stat.S_ISLNK(status.st_mode) or os.readlink(item) != file["link"]):
                return False
            if "directory" in file and not stat.S_ISDIR(status.st_mode):
                return False
            if "sha256" in file:
                # A file that a link led to comes back as a file; here it may still be the link.
                if not os.path.isfile(item) or os.stat(item).st_size != file["size"]:
                    return False
                if _hashed(item, throttle).sha256 != file["sha256"]:
                    return False
    except (OSError, Vanished):
        return False
    return True


def sums(items: Iterable[Item], throttle: Throttle) -> list[dict[str, Any]]:
    """What a manifest would say about files that stay where they are."""
    described: list[dict[str, Any]] = []
    for item in items:
        if item.link is not None:
            described.append({"path": item.relative, "link": item.link})
        elif item.is_directory:
            described.append({"path": item.relative, "directory": True})
        else:
            reader = _hashed(item.path, throttle, item.facts)
            described.append({"path": item.relative, "size": reader.size, "sha256": reader.sha256})
    return described


class _Reader:
    """The pieces of a file, hashed on the way. Changed when it is not, or not to the end, what it was."""

    def __init__(self, path: str, throttle: Throttle, expected: tuple[int, int, int] | None = None) -> None:
        self.path, self.throttle, self.expected = path, throttle, expected
        self.size, self.sha256 = 0, ""

    def __iter__(self) -> Iterator[bytes]:
        import hashlib

        hashed, self.size = hashlib.sha256(), 0
        try:
            with open(self.path, "rb", buffering=0) as file:
                before = self.expected or facts(os.fstat(file.fileno()))
                while facts(os.fstat(file.fileno())) == before:
                    data = file.read(CHUNK)
                    if not data:
                        break
                    self.throttle.pass_through(len(data))
                    hashed.update(data)
                    self.size += len(data)
                    yield data
                after = facts(os.fstat(file.fileno()))
        except FileNotFoundError:
            raise Vanished(self.path) from None
        if before != after or self.size != after[2]:
            raise Changed(self.path)
        self.sha256 = hashed.hexdigest()


def _hashed(path: str, throttle: Throttle, expected: tuple[int, int, int] | None = None) -> _Reader:
    reader = _Reader(path, throttle, expected)
    for _ in reader:
        pass
    return reader


def _fetch(store: Store, key: str, file: dict[str, Any], path: str, throttle: Throttle) -> None:
    import hashlib

    hashed, count = hashlib.sha256(), 0
    try:
        with open(path, "wb", buffering=0) as target:
            for data in store.chunks(key):
                throttle.pass_through(len(data))
                hashed.update(data)
                count += len(data)
                view = memoryview(data)
                while view:
                    view = view[target.write(view) :]
    except FileNotFoundError:
        raise Corrupt(f"{key} is gone") from None
    if count != file["size"] or hashed.hexdigest() != file["sha256"]:
        raise Corrupt(f"{key} has {count} bytes that do not match its manifest")
    os.chmod(path, file["mode"])


def _key(prefix: str, relative: str) -> str:
    return f"{prefix}/files/{relative}" if relative else f"{prefix}/file"


def _together(work: Callable[[Any], None], things: list[Any], throttle: Throttle) -> None:
    """Do `work` for each thing, a few at a time; the first that fails ends the others and is raised."""
    failures: list[BaseException] = []
    rest = iter(things)
    lock = threading.Lock()

    def labor() -> None:
        while not failures:
            with lock:
                thing = next(rest, None)
            if thing is None:
                return
            try:
                throttle.ask()
                work(thing)
            except BaseException as failure:
                failures.append(failure)

    helpers = [
        threading.Thread(target=labor, name="transfer", daemon=True) for _ in range(min(WORKERS, len(things)) - 1)
    ]
    for helper in helpers:
        helper.start()
    labor()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[0]
