"""One checkpoint to the store and back: files first, each with its hash, the manifest last.

A checkpoint without a manifest does not exist. A manifest that is there names every file with size and SHA-256, and a
hash of itself; a restore that does not match is never handed to the program.
"""

from __future__ import annotations

import json
import os
import stat
import time

from gpuflow.runtime.records import Corrupt, digest, encode
from gpuflow.runtime.store import CHUNK, StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any


class Vanished(Exception):
    """The program removed or changed the checkpoint while it was read. Nothing is wrong; there will be another."""


class Abandoned(Exception):
    """There is no time left, or no reason, to go on."""


class Throttle:
    """At most so many bytes a second, and a question before each chunk whether to go on."""

    def __init__(self, bandwidth: int | None, proceed: Callable[[], bool]) -> None:
        self.bandwidth, self.proceed = bandwidth, proceed
        self._free = time.monotonic()

    def pass_through(self, count: int) -> None:
        if not self.proceed():
            raise Abandoned()
        if self.bandwidth is None:
            return
        now = time.monotonic()
        self._free = max(self._free, now - 0.1) + count / self.bandwidth
        while now < self._free:
            if not self.proceed():
                raise Abandoned()
            time.sleep(min(0.2, self._free - now))
            now = time.monotonic()


def upload(store: Store, prefix: str, source: str, throttle: Throttle) -> list[dict[str, Any]]:
    """Put every file below `prefix` and see that all arrived; what the manifest says about them."""
    files: list[dict[str, Any]] = []
    for relative, path, status in walk(source):
        if stat.S_ISLNK(status.st_mode):
            files.append({"path": relative, "link": os.readlink(path)})
        elif stat.S_ISDIR(status.st_mode):
            files.append({"path": relative, "directory": True})
        elif stat.S_ISREG(status.st_mode):
            reader = _Reader(path, throttle)
            store.put(f"{prefix}/files/{relative}" if relative else f"{prefix}/file", reader, status.st_size)
            mode = stat.S_IMODE(status.st_mode)
            files.append({"path": relative, "size": reader.size, "sha256": reader.sha256, "mode": mode})
    arrived = dict(store.names(prefix))
    for file in files:
        key = f"{prefix}/files/{file['path']}" if file["path"] else f"{prefix}/file"
        if "sha256" in file and arrived.get(key) != file["size"]:
            raise StorageError(f"{key} has {arrived.get(key)} bytes in the store, not {file['size']}")
    return files


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
    found = []
    for key, _ in store.names(f"{base}/checkpoints"):
        if key.endswith("/manifest.json"):
            prefix = key[: -len("/manifest.json")]
            found.append((prefix.rpartition("/")[2], prefix))
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


def download(store: Store, prefix: str, manifest: dict[str, Any], into: str, proceed: Callable[[], bool]) -> None:
    """Bring a checkpoint to `into`, every byte checked against the manifest."""
    throttle = Throttle(None, proceed)
    if manifest["kind"] == "directory":
        os.makedirs(into)
    for file in manifest["files"]:
        path = os.path.join(into, *file["path"].split("/")) if file["path"] else into
        if os.path.dirname(path) != into:
            os.makedirs(os.path.dirname(path), exist_ok=True)
        if "link" in file:
            os.symlink(file["link"], path)
        elif "directory" in file:
            os.makedirs(path, exist_ok=True)
        else:
            key = f"{prefix}/files/{file['path']}" if file["path"] else f"{prefix}/file"
            _fetch(store, key, file, path, throttle)


def same(path: str, manifest: dict[str, Any]) -> bool:
    """Whether what lies at `path` is, byte for byte, what the manifest names."""
    try:
        here = {relative: (item, status) for relative, item, status in walk(path)}
    except OSError:
        return False
    if set(here) != {file["path"] for file in manifest["files"]}:
        return False
    for file in manifest["files"]:
        item, status = here[file["path"]]
        if "sha256" in file:
            if not stat.S_ISREG(status.st_mode) or status.st_size != file["size"]:
                return False
            reader = _Reader(item, Throttle(None, lambda: True))
            try:
                for _ in reader:
                    pass
            except (OSError, Vanished):
                return False
            if reader.sha256 != file["sha256"]:
                return False
        elif "link" in file and not (stat.S_ISLNK(status.st_mode) and os.readlink(item) == file["link"]):
            return False
    return True


def snapshot(source: str, into: str) -> str:
    """Hard links to a checkpoint's files, so that the program may remove them while they are read.

    Where the file system has no links the source itself is read, and a removal abandons the upload.
    """
    try:
        if not os.path.isdir(source):
            os.link(source, into)
            return into
        os.makedirs(into)
        for relative, path, status in walk(source):
            target = os.path.join(into, *relative.split("/"))
            if stat.S_ISDIR(status.st_mode):
                os.makedirs(target, exist_ok=True)
            elif stat.S_ISLNK(status.st_mode):
                os.symlink(os.readlink(path), target)
            else:
                os.link(path, target)
        return into
    except FileNotFoundError:
        raise Vanished(source) from None
    except OSError:
        return source


def walk(source: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """A file as ("", path, status); a directory's contents, parents first, sorted."""
    status = os.lstat(source)
    if not stat.S_ISDIR(status.st_mode):
        yield "", source, status
        return
    for folder, folders, names in os.walk(source):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, source).replace(os.sep, "/"), path, os.lstat(path)


class _Reader:
    """The chunks of a file, hashed on the way. Vanished when it changes meanwhile."""

    def __init__(self, path: str, throttle: Throttle) -> None:
        self.path, self.throttle = path, throttle
        self.size, self.sha256 = 0, ""

    def __iter__(self) -> Iterator[bytes]:
        import hashlib

        hashed, self.size = hashlib.sha256(), 0
        try:
            with open(self.path, "rb", buffering=0) as file:
                before = os.fstat(file.fileno())
                while True:
                    data = file.read(CHUNK)
                    if not data:
                        break
                    self.throttle.pass_through(len(data))
                    hashed.update(data)
                    self.size += len(data)
                    yield data
                after = os.fstat(file.fileno())
        except FileNotFoundError:
            raise Vanished(self.path) from None
        if (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size) or self.size != after.st_size:
            raise Vanished(self.path)
        self.sha256 = hashed.hexdigest()


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
