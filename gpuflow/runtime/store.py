"""Where state is kept: a directory, or an object store through fsspec. Keys are relative, with `/` between parts.

Both make the same promises, and the rest of the runtime relies on nothing else: `write` and `put` appear whole or not
at all, `create` succeeds for one caller only (where the store can say so: it is probed), and `names` lists all there
is, sorted by us, or fails. docs/reference/store.md says what each kind of store must be able to do.
"""

from __future__ import annotations

from gpuflow.runtime.parallel import in_parallel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpuflow.runtime.transfer_workers import Workers

CHUNK = 1 << 20


class StorageError(Exception):
    """Storage did not do what was asked. Worth another try, later."""


class Refusal(StorageError):
    """Storage will never do it as it was asked: another try is in vain."""


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
    """What ends with this process: the book of an attempt that nothing follows."""

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

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        self._objects[key] = b"".join(chunks)

    def chunks(self, key: str) -> Iterator[bytes]:
        yield self.read(key)

    def names(self, prefix: str) -> list[tuple[str, int]]:
        return sorted((key, len(data)) for key, data in self._objects.items() if key.startswith(f"{prefix}/"))

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._objects.pop(key, None)


def open_store(where: str) -> Store:
    """The store at a path or URL."""
    from gpuflow.runtime.folder_store import Folder

    scheme, found, _ = where.partition("://")
    if not found:
        return Folder(where)
    if scheme.lower() == "file":
        return Folder(where[len("file://") :])
    from gpuflow.runtime.remote import Remote

    return Remote(where)


def is_no_manifest(key: str) -> bool:
    """What sorts manifests to the front: without its manifest nothing is half there."""
    return not key.endswith("/manifest.json")
