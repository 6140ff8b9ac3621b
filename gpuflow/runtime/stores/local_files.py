"""Files on this machine at either end of a transfer: held still while they are read, checked while they are written.

To a store: a snapshot holds the files of a checkpoint by hard links, and knows what each looked like at that moment. A
hard link shares its file with the program, which may write it again. So every file is compared, while it is read, with
what it was when the snapshot was taken, and the snapshot itself is good only when nothing moved meanwhile: what is read
is one checkpoint, never half of this and half of the next.

From a store: nothing is written outside of the folder, and no more than was said. Every folder on the way is opened,
not named, and never through a link; a file is made only where there is none. So neither a manifest nor a neighbor who
plants a link meanwhile decides where bytes go.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading

from gpuflow.runtime.base import record_fields
from gpuflow.runtime.base.files import SharedFolder, truncate_here, write_sparse
from gpuflow.runtime.base.record_fields import leads_out
from gpuflow.runtime.base.records import Corrupt
from gpuflow.runtime.base.signing import why_secret
from gpuflow.runtime.stores.store import CHUNK, in_parallel
from gpuflow.runtime.stores.transfer_pool import Order, get_order

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Protocol

    from gpuflow.runtime.base.records import File
    from gpuflow.runtime.stores.store import Store

    class Source(Protocol):
        """What a file is fetched from. A piece is good until the next one is asked for."""

        def chunks(self, key: str) -> Iterator[bytes | memoryview]: ...
        def clone(self, key: str, handle: int) -> bool: ...


class CheckpointVanished(Exception):
    """The program removed the checkpoint while it was read. Nothing is wrong; there will be another."""


class CheckpointChanged(CheckpointVanished):
    """The program writes to what it called finished."""


class CheckpointRefused(Exception):
    """What is in the checkpoint cannot be kept, and another try would not change that."""


class Item:
    """One file, directory or link of a checkpoint, as it was found."""

    def __init__(self, relative: str, path: str, status: os.stat_result, link: str | None) -> None:
        self.relative, self.path, self.status = relative, path, status
        self.mode = status.st_mode
        self.size = status.st_size
        self.facts = file_facts(status)
        self.link = link

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


def file_facts(status: os.stat_result) -> tuple[int, int, int, int]:
    """What changes when a file is written or replaced. Not the time of the inode: a hard link sets it."""
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def take_snapshot(
    source: str, shared: SharedFolder, into: str, still: Callable[[], bool], follow: Sequence[str] = ()
) -> list[Item]:
    """The items of a checkpoint, each file linked below `into` where that can be done, else to be read in place.

    `into` lies in a shared folder. `still` says whether the entry is what it was when it was found; it is asked once
    everything is linked.
    """
    try:
        items = list_items(source, follow)
        before = {item.relative: item.facts for item in items}
        for item in items:
            target = os.path.join(into, *item.relative.split("/")) if item.relative else into
            if item.is_directory:
                shared.make(target)
            elif item.is_file:
                item.path = _link_file(item.path, shared, target)
        after = {item.relative: item.facts for item in list_items(source, follow)}
    except (FileNotFoundError, NotADirectoryError):
        raise CheckpointVanished(source) from None
    if not still():
        raise CheckpointVanished(source)
    if before != after:
        raise CheckpointChanged(source)
    if not items:
        raise CheckpointVanished(source)  # all but removed
    return items


def snapshot_lasts(source: str, items: list[Item], follow: Sequence[str] = ()) -> bool:
    """Whether everything of a snapshot is still at its place. One file is whole, wherever it is now."""
    if [item.relative for item in items] == [""]:
        return True
    try:
        return {item.relative for item in items} <= {item.relative for item in list_items(source, follow)}
    except (OSError, CheckpointVanished):
        return False
    except CheckpointRefused:
        return True


def list_items(source: str, follow: Sequence[str] = ()) -> list[Item]:
    """Everything in a checkpoint, parents first; Refused for what cannot be carried to another machine, or must not be.

    A link that stays in the checkpoint is kept as it is. One that leads out stands for the file it leads to, if that
    lies in the checkpoint directory, in the blobs of a Hugging Face cache whose snapshot this is, or below a folder in
    `follow`: whoever else may write here must not choose which of our files are kept.
    """
    items = []
    top = os.path.realpath(os.path.dirname(source))
    real = os.path.join(top, os.path.basename(source))
    for relative, path, status, link in walk_items(source):
        try:
            f"{os.path.basename(source)}/{relative}".encode()
        except UnicodeEncodeError:
            raise CheckpointRefused(f"the name {os.fsencode(path)!r} is not UTF-8") from None
        if not record_fields.is_path(relative):
            raise CheckpointRefused(f"the path {path} is too long to be restored everywhere")
        item = Item(relative, path, status, link)
        if link is not None and leads_out(relative, link):
            item = _follow_link(top, item, link, follow)
        elif not (item.is_file or item.is_directory or link is not None):
            raise CheckpointRefused(f"{path} is neither a file nor a directory nor a link")
        if item.is_file:
            why = why_secret(item.path if link is not None else os.path.join(real, relative), item.status)
            if why is not None:
                raise CheckpointRefused(f"{path} must not be kept: {why}" + ("" if link is None else f" ({item.path})"))
        items.append(item)
    return items


def _follow_link(top: str, item: Item, link: str, follow: Sequence[str]) -> Item:
    """The file that a link in the checkpoint directory `top` leads to, by no other link."""
    path, real = item.path, os.path.realpath(item.path)
    for place in (top, *_blobs(top), *map(os.path.realpath, follow)):
        if not real.startswith(f"{place.rstrip('/')}/"):
            continue
        try:
            status = SharedFolder(os.path.dirname(place)).status(real)
        except OSError:
            break
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointRefused(f"{path} is a link out of the checkpoint to {real}, which is no file")
        return Item(item.relative, real, status, None)
    if not os.path.lexists(real):
        raise CheckpointRefused(f"{path} is a link to {link}, which is not there")
    raise CheckpointRefused(
        f"{path} is a link out of the checkpoint directory to {real}, and is not followed; put the file itself there, "
        "or name the folder that it lies in with --follow"
    )


def _blobs(top: str) -> Iterator[str]:
    """Of a Hugging Face cache, where <cache>/snapshots/<revision>/… links to <cache>/blobs/…."""
    cache, found, rest = f"{top}/".rpartition("/snapshots/")
    if found and rest.count("/") <= 1:
        yield f"{cache}/blobs"


def walk_items(source: str) -> Iterator[tuple[str, str, os.stat_result, str | None]]:
    """A file as ("", path, status, None); a directory's contents, parents first, sorted, with where links lead to."""
    above, name = os.path.split(source)
    shared = SharedFolder(above or ".")
    status = shared.status(name)
    if not stat.S_ISDIR(status.st_mode):
        yield "", source, status, shared.readlink(name) if stat.S_ISLNK(status.st_mode) else None
        return
    for relative, status in shared.walk(name):
        inside = f"{name}/{relative}"
        link = shared.readlink(inside) if stat.S_ISLNK(status.st_mode) else None
        yield relative, os.path.join(source, relative), status, link


def _link_file(path: str, shared: SharedFolder, target: str) -> str:
    with shared.open_parent(target, make=True) as (folder, name):
        try:
            try:
                os.link(path, name, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                # A snapshot of an earlier try is no snapshot of now.
                os.unlink(name, dir_fd=folder)
                os.link(path, name, dst_dir_fd=folder, follow_symlinks=False)
            return target
        except FileNotFoundError:
            raise
        except OSError:
            return path


_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_CANNOT_BE = (errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EISDIR, errno.ENAMETOOLONG, errno.EILSEQ, errno.EINVAL)
"""What a file system says to a name that it cannot have, or takes for another one."""
_SPARE = 1 << 20


class NoRoom(Exception):
    """What is to be brought does not fit on the disk."""


def bring_files(
    store: Store,
    prefix: str,
    files: Sequence[File],
    shared: SharedFolder,
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
    with shared.open_parent(into, make=True) as (outer, name), contextlib.ExitStack() as rest:
        _see_that_it_fits(outer, os.path.dirname(shared.path(into)), missing)
        top = outer if single else rest.enter_context(_open_below(outer, [name], into))
        folders = rest.enter_context(Folders(top))

        def object_of(file: File) -> str:
            return f"{prefix}/{key(file)}" if prefix else key(file)

        def place(file: File) -> tuple[int, str]:
            inside, _, last = ("", "", name) if single else file.path.rpartition("/")
            return folders.get(inside, file.path), last

        def fetch(file: File) -> None:
            fetch_file(store, object_of(file), file, *place(file), passed)
            arrived.add(file.path)

        def order(file: File) -> Order:
            """The same for a process of its own; what it left half done makes way for us."""
            moved = 0

            def moves(count: int) -> None:
                nonlocal moved
                moved += count
                passed(count)

            def finish_file(answer: list[Any]) -> bool:
                file.sha256 = str(answer[1])
                arrived.add(file.path)
                passed(max(0, (file.size or 0) - moved))
                return True

            def remove_part() -> None:
                folder, last = place(file)
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(last, dir_fd=folder)

            return Order(file, get_order(object_of(file), file, mode_of(file)), finish_file, remove_part, moves)

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
                with _open_below(top, parts[:-1], file.path) as folder, _with_name(file.path):
                    os.symlink(file.link, parts[-1], dir_fd=folder)
                arrived.add(file.path)


def fetch_file(store: Source, key: str, file: File, folder: int, name: str, passed: Callable[[int], None]) -> None:
    size = file.size or 0
    with _with_name(file.path):
        handle = os.open(name, _FILE, 0o600, dir_fd=folder)
    try:
        try:
            pieces = _read_clone(handle) if store.clone(key, handle) else _write_pieces(store.chunks(key), handle)
            count, sha256 = _count_and_hash(pieces, key, size, passed)
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


def _count_and_hash(
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


def _read_clone(handle: int) -> Iterator[bytes]:
    """What was cloned, from the clone itself: that is what the program gets."""
    os.lseek(handle, 0, os.SEEK_SET)
    yield from iter(lambda: os.read(handle, CHUNK), b"")


def _write_pieces(pieces: Iterable[bytes | memoryview], handle: int) -> Iterator[bytes | memoryview]:
    """Each piece once it was looked at: more than was said is not written."""
    for data in pieces:
        yield data
        write_sparse(handle, data)
    truncate_here(handle)


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
        if (last := self._open.get(me)) is not None and last[0] == inside:
            return last[1]
        with _open_below(self._top, inside.split("/"), path) as folder:
            handle = os.dup(folder)
        with self._lock:
            self._open[me] = inside, handle
        if last is not None:
            os.close(last[1])
        return handle


@contextlib.contextmanager
def _open_below(top: int, parts: Sequence[str], path: str) -> Iterator[int]:
    """A folder below an open one, made where it is missing, and never through a link."""
    handle = os.dup(top)
    try:
        for part in parts:
            with _with_name(path):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=handle)
                inner = os.open(part, _FOLDER, dir_fd=handle)
            os.close(handle)
            handle = inner
        yield handle
    finally:
        os.close(handle)


@contextlib.contextmanager
def _with_name(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as refusal:
        if refusal.errno not in _CANNOT_BE:
            raise
        raise Corrupt(f"{path!r} cannot be made here: {refusal.strerror}"[:300]) from None
