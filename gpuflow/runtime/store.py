"""Where state is kept: a directory, or an object store through fsspec. Keys are relative, with `/` between parts.

Both make the same three promises, and the rest of the runtime relies on nothing else: `write` and `put` appear whole
or not at all, `create` succeeds for one caller only (where the store can say so), and `names` is sorted by us.
"""

from __future__ import annotations

import contextlib
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

CHUNK = 1 << 20


class StorageError(Exception):
    """Storage did not do what was asked. Worth another try, later."""


class Store:
    """What a store can do."""

    def read(self, key: str) -> bytes:
        """The bytes under a key; FileNotFoundError when there are none."""
        raise NotImplementedError

    def write(self, key: str, data: bytes) -> None:
        """Put or replace a small object."""
        raise NotImplementedError

    def create(self, key: str, data: bytes) -> bool:
        """Put a small object unless there is one already; False when there is."""
        raise NotImplementedError

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        """Write a large object from a stream of about `size` bytes."""
        raise NotImplementedError

    def chunks(self, key: str) -> Iterator[bytes]:
        """Read a large object as a stream."""
        raise NotImplementedError

    def names(self, prefix: str) -> list[tuple[str, int]]:
        """Keys below a prefix with their sizes, sorted."""
        raise NotImplementedError

    def delete(self, keys: Iterable[str]) -> None:
        """Remove objects; those that are not there are no error."""
        raise NotImplementedError


class Folder(Store):
    """A directory: a mounted claim, or a local disk. What need not outlive the machine is not forced to disk."""

    def __init__(self, root: str, *, lasting: bool = True) -> None:
        self.root, self.lasting = os.path.abspath(root), lasting

    def read(self, key: str) -> bytes:
        try:
            with open(self._path(key), "rb") as file:
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(key) from None
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    def write(self, key: str, data: bytes) -> None:
        self.put(key, [data], len(data))

    def create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        try:
            part = self._part(path, [data])
            try:
                os.link(part, path)
            except FileExistsError:
                return False
            except OSError:
                return self._create_without_links(path, data)
            finally:
                _remove(part)
            self._sync(path)
            return True
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        path = self._path(key)
        try:
            part = self._part(path, chunks)
            os.replace(part, path)
            self._sync(path)
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    def chunks(self, key: str) -> Iterator[bytes]:
        try:
            with open(self._path(key), "rb", buffering=0) as file:
                while True:
                    data = file.read(CHUNK)
                    if not data:
                        return
                    yield data
        except FileNotFoundError:
            raise
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    def names(self, prefix: str) -> list[tuple[str, int]]:
        top = self._path(prefix)
        found = []
        try:
            for folder, folders, files in os.walk(top):
                folders.sort()
                for name in files:
                    if name.startswith(".part-"):
                        continue
                    path = os.path.join(folder, name)
                    try:
                        found.append((os.path.relpath(path, self.root).replace(os.sep, "/"), os.stat(path).st_size))
                    except FileNotFoundError:
                        continue
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal
        return sorted(found)

    def delete(self, keys: Iterable[str]) -> None:
        folders = set()
        for key in keys:
            path = self._path(key)
            try:
                _remove(path)
            except OSError as refusal:
                raise StorageError(str(refusal)) from refusal
            folders.add(os.path.dirname(path))
        for folder in sorted(folders, key=len, reverse=True):
            self._drop_empty(folder)

    def _path(self, key: str) -> str:
        return os.path.join(self.root, *[part for part in key.split("/") if part])

    def _part(self, path: str, chunks: Iterable[bytes]) -> str:
        """The bytes beside their place, on disk for good; nothing stays behind when that fails."""
        os.makedirs(os.path.dirname(path), exist_ok=True)
        part = os.path.join(os.path.dirname(path), f".part-{os.getpid()}-{os.urandom(4).hex()}")
        try:
            with open(part, "wb", buffering=0) as file:
                for data in chunks:
                    view = memoryview(data)
                    while view:
                        view = view[file.write(view) :]
                if self.lasting:
                    os.fsync(file.fileno())
        except BaseException:
            _remove(part)
            raise
        return part

    def _sync(self, path: str) -> None:
        if self.lasting:
            _sync_directory(os.path.dirname(path))

    def _create_without_links(self, path: str, data: bytes) -> bool:
        try:
            with open(path, "xb", buffering=0) as file:
                file.write(data)
                os.fsync(file.fileno())
        except FileExistsError:
            return False
        return True

    def _drop_empty(self, folder: str) -> None:
        while len(folder) > len(self.root):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)


def open_store(where: str) -> Store:
    """The store at a path or URL."""
    scheme, found, _ = where.partition("://")
    if not found:
        return Folder(where)
    if scheme == "file":
        return Folder(where[len("file://") :])
    from gpuflow.runtime.remote import Remote

    return Remote(where)


def persist(
    action: Callable[[], object],
    until: float,
    give_up: Callable[[], bool] = lambda: False,
    *,
    first_wait: float = 0.1,
    longest_wait: float = 5.0,
) -> object:
    """Do it, and on a storage error again with growing waits, until a moment on the monotonic clock."""
    wait = first_wait
    while True:
        try:
            return action()
        except StorageError:
            if give_up() or time.monotonic() + wait >= until:
                raise
        time.sleep(wait)
        wait = min(2 * wait, longest_wait)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def _sync_directory(path: str) -> None:
    """Make a rename last. Some network file systems cannot; they keep their own promises."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
