"""Files from a store on their way to a folder of ours: nothing is written outside of it, and no more than was said.

Every folder on the way is opened, not named, and never through a link; a file is made only where there is none. So
neither a manifest nor a neighbor who plants a link meanwhile decides where bytes go.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading

from gpuflow.runtime.files import Shared, end_here, write_sparse
from gpuflow.runtime.parallel import in_parallel
from gpuflow.runtime.records import Corrupt
from gpuflow.runtime.store import CHUNK
from gpuflow.runtime.transfer_workers import Order, to_get

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Protocol

    from gpuflow.runtime.records import File
    from gpuflow.runtime.store import Store

    class Source(Protocol):
        """What a file is fetched from. A piece is good until the next one is asked for."""

        def chunks(self, key: str) -> Iterator[bytes | memoryview]: ...
        def clone(self, key: str, handle: int) -> bool: ...


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CANNOT_BE = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
"""What a file system says to a name that it cannot have, or takes for another one."""
_SPARE = 1 << 20


class NoRoom(Exception):
    """What is to be brought does not fit on the disk."""


def bring(
    store: Store,
    prefix: str,
    files: Sequence[File],
    shared: Shared,
    into: str,
    key: Callable[[File], str],
    passed: Callable[[int], None],
    *,
    single: bool,
    arrived: set[str],
) -> None:
    """Every file below `into` in a shared folder, or the `single` one as `into`, each byte checked; links come last.

    `arrived` are those that an earlier call has brought; `passed` hears of each piece, and may raise. A file whose hash
    is not known (it is empty) has it afterwards.
    """
    missing = [file for file in files if file.sha256 is not None and file.path not in arrived]
    with shared.above(into, make=True) as (outer, name), contextlib.ExitStack() as rest:
        _see_that_it_fits(outer, os.path.dirname(shared.path(into)), missing)
        top = outer if single else rest.enter_context(_below(outer, [name], into))
        folders = rest.enter_context(Folders(top))

        def object_of(file: File) -> str:
            return f"{prefix}/{key(file)}" if prefix else key(file)

        def place(file: File) -> tuple[int, str]:
            inside, _, last = ("", "", name) if single else file.path.rpartition("/")
            return folders.get(inside, file.path), last

        def fetch(file: File) -> None:
            fetch_one(store, object_of(file), file, *place(file), passed)
            arrived.add(file.path)

        def order(file: File) -> Order:
            """The same for a process of its own; what it left half done makes way for us."""
            moved = 0

            def moves(count: int) -> None:
                nonlocal moved
                moved += count
                passed(count)

            def done(answer: list[Any]) -> bool:
                file.sha256 = str(answer[1])
                arrived.add(file.path)
                passed(max(0, (file.size or 0) - moved))
                return True

            def lost() -> None:
                folder, last = place(file)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(last, dir_fd=folder)

            return Order(file, to_get(object_of(file), file, mode_of(file)), done, lost, moves)

        for file in files:
            if file.directory:
                folders.get(file.path, file.path)
        workers = None if single else store.workers(len(missing), top)
        if workers is None:
            in_parallel(fetch, missing, store.streams)
        else:
            with contextlib.closing(workers.move(map(order, missing))) as left:
                in_parallel(fetch, left, store.streams)
        # Links come last, so that no file is written through one.
        for file in files:
            if file.link is not None and file.path not in arrived:
                parts = file.path.split("/")
                with _below(top, parts[:-1], file.path) as folder, _named(file.path):
                    os.symlink(file.link, parts[-1], dir_fd=folder)
                arrived.add(file.path)


def fetch_one(store: Source, key: str, file: File, folder: int, name: str, passed: Callable[[int], None]) -> None:
    size = file.size or 0
    with _named(file.path):
        handle = os.open(name, _FILE, 0o600, dir_fd=folder)
    try:
        try:
            pieces = _read(handle) if store.clone(key, handle) else _written(store.chunks(key), handle)
            count, sha256 = _passing(pieces, key, size, passed)
        except FileNotFoundError:
            raise Corrupt(f"{key} is gone") from None
        if count != size or (file.sha256 and sha256 != file.sha256):
            raise Corrupt(f"{key} has {count} bytes that do not match its manifest")
        file.sha256 = sha256
        os.fchmod(handle, mode_of(file))
    except BaseException:
        # The next try makes it anew: a file that is there already is never written to.
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(handle)


def mode_of(file: File) -> int:
    return 0o644 if file.mode is None else file.mode & 0o777


def _passing(
    pieces: Iterable[bytes | memoryview], key: str, size: int, passed: Callable[[int], None]
) -> tuple[int, str]:
    """How many bytes there are and their hash; Corrupt as soon as there are more than there should be."""
    import hashlib

    hashed, count = hashlib.sha256(), 0
    for data in pieces:
        passed(len(data))
        count += len(data)
        if count > size:
            raise Corrupt(f"{key} has more than the {size} bytes that were kept")
        hashed.update(data)
    return count, hashed.hexdigest()


def _read(handle: int) -> Iterator[bytes]:
    """What was cloned, from the clone itself: that is what the program gets."""
    os.lseek(handle, 0, os.SEEK_SET)
    while True:
        data = os.read(handle, CHUNK)
        if not data:
            return
        yield data


def _written(pieces: Iterable[bytes | memoryview], handle: int) -> Iterator[bytes | memoryview]:
    """Each piece once it was looked at: more than was said is not written."""
    for data in pieces:
        yield data
        write_sparse(handle, data)
    end_here(handle)


def _see_that_it_fits(handle: int, folder: str, files: Iterable[File]) -> None:
    needed = sum(file.size or 0 for file in files)
    try:
        disk = os.fstatvfs(handle)
    except OSError:
        return
    free = disk.f_bavail * disk.f_frsize
    # Some network file systems do not say how large they are.
    if disk.f_blocks and needed > max(0, free - _SPARE) and needed > 0:
        raise NoRoom(f"it needs {needed} bytes, and {folder} has room for {free}")


class Folders:
    """Folders below an open one, each opened as `_below` does; every thread holds its last one for the next file."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._lock = threading.Lock()
        self._open: dict[int, tuple[str, int]] = {}

    def __enter__(self) -> Folders:
        return self

    def __exit__(self, *_: object) -> None:
        for folder in self._open.values():
            os.close(folder[1])

    def get(self, inside: str, path: str) -> int:
        """A handle on the folder, which this thread may use until it asks for the next one."""
        if not inside:
            return self._top
        me = threading.get_ident()
        last = self._open.get(me)
        if last is not None and last[0] == inside:
            return last[1]
        with _below(self._top, inside.split("/"), path) as folder:
            handle = os.dup(folder)
        with self._lock:
            self._open[me] = inside, handle
        if last is not None:
            os.close(last[1])
        return handle


@contextlib.contextmanager
def _below(top: int, parts: Sequence[str], path: str) -> Iterator[int]:
    """A folder below an open one, made where it is missing, and never through a link."""
    handle = os.dup(top)
    try:
        for part in parts:
            with _named(path):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
                inner = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as refusal:
        if refusal.errno not in _CANNOT_BE:
            raise
        raise Corrupt(f"{path!r} cannot be made here: {refusal.strerror}"[:300]) from None
