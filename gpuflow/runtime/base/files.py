"""Files where others may have written: opened as what they must be, read to a limit, written whole, told apart.

A link, a pipe or a device in the place of a file is refused and never waited for. A new file is made under a name that
nobody can guess, and only where there is none.

`SharedFolder` is a folder that others may write to as well: a store, a checkpoint directory, the place of an input.
What is below it is reached by handles, one folder after the other and never through a link, so that whoever plants one,
or swaps a folder for one between two steps, decides neither what is written, nor what is removed, nor what is read.

A fingerprint tells an entry of a directory from another of the same name: inode, time of birth, time of change, size.
File systems give a freed inode number away at once, so the number alone names nothing. A birth time does together with
it; Python does not tell it on Linux, so it is asked of the C library. Where there is none (NFS 3, some FUSE) it is 0,
and the time of change has to do.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from typing import Any

MOST = 1 << 20
"""What a small file may hold: more was not written by us."""
DEEPEST = 500
"""Folders within folders; more were made to be in the way."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
"""To go on from a folder it need not be readable, as for a path."""
_LIST = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NO_FILE = (errno.ELOOP, errno.EMLINK, errno.ENXIO, errno.ENODEV, errno.EISDIR)
"""A link; a pipe nobody reads, a socket, a device without its driver; a folder that is opened to be written."""


class NotAFile(OSError):
    """A link, a pipe, a folder or something too large stands where a small file should be."""


class NotAFolder(NotADirectoryError):
    """A link, or something else, stands where a folder should be."""

    is_link = False


def open_regular(path: str, flags: int = os.O_RDONLY, folder: int | None = None) -> int:
    """A handle on a regular file, of a path or of a name in an open folder; NotAFile for anything else."""
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666, dir_fd=folder)
    except OSError as refusal:
        if refusal.errno in _NO_FILE:
            raise NotAFile(refusal.errno, "it is no regular file", path) from None
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise NotAFile(errno.EINVAL, "it is no regular file", path)
    return handle


def open_same(path: str, seen: Sequence[int]) -> int:
    """A handle on the very file that was seen at a path, by device and number; FileNotFoundError for another one."""
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    status = os.fstat(handle)
    if not stat.S_ISREG(status.st_mode) or [status.st_dev, status.st_ino] != list(seen[:2]):
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, "what was there is gone, and something else has its name", path)
    return handle


def read(path: str, most: int = MOST) -> bytes:
    """All of a small regular file."""
    return _read(open_regular(path), path, most)


def _read(handle: int, path: str, most: int) -> bytes:
    with close_after(handle):
        found: list[bytes] = []
        count = 0
        while count <= most and os.fstat(handle).st_size <= most:
            if not (data := os.read(handle, min(1 << 20, most + 1 - count))):
                return b"".join(found)
            found.append(data)
            count += len(data)
    raise NotAFile(errno.EFBIG, f"it is larger than {most} bytes", path)


@contextlib.contextmanager
def close_after(handle: int) -> Iterator[int]:
    """The handle, for as long as it is used."""
    try:
        yield handle
    finally:
        os.close(handle)


def create(path: str, folder: int | None = None) -> int:
    """A handle on a new file, which was not there before in any form."""
    return os.open(path, _NEW, 0o666, dir_fd=folder)


def write(path: str, data: bytes) -> None:
    """Whole or not at all; nothing stays behind when that fails."""
    SharedFolder(os.path.dirname(path) or ".").write(os.path.basename(path), data)


def discard(path: str) -> None:
    """Remove a file, a link or a tree, whatever is left of it."""
    path = os.path.normpath(path)
    SharedFolder(os.path.dirname(path) or ".").discard(os.path.basename(path))


class SharedFolder:
    """A folder that others may write to. The path that leads to it was given to us, and may be a link itself.

    With `inside` it is a folder within that one, to which no link leads. What lies below is named by its path from
    there, or by a whole path that begins like the folder's own.
    """

    def __init__(self, given: str, inside: str = "") -> None:
        self._given, self._inside = given, [part for part in inside.split("/") if part]
        self.root = os.path.join(given, *self._inside)

    def path(self, inside: str) -> str:
        """Where something lies, to be said to people and to programs."""
        return os.path.join(self.root, *self._parts(inside))

    def _parts(self, inside: str) -> list[str]:
        if os.path.isabs(inside):
            inside = os.path.relpath(inside, self.root)
        parts = [part for part in inside.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise NotAFolder(errno.EINVAL, f"it does not lie in {self.root}", inside)
        return parts

    @contextlib.contextmanager
    def folder(self, inside: str = "", *, make: bool = False, flags: int = _STEP) -> Iterator[int]:
        """A handle on a folder, made where it is missing if that is wanted; NotAFolder where a link stands."""
        handle = self._root(make=make)
        try:
            at = self._given
            for part in (*self._inside, *self._parts(inside)):
                at = os.path.join(at, part)
                inner = _open_folder(handle, part, at, make=make)
                os.close(handle)
                handle = inner
            if flags != _STEP:
                inner = os.open(".", flags, dir_fd=handle)
                os.close(handle)
                handle = inner
            yield handle
        finally:
            os.close(handle)

    def _root(self, *, make: bool) -> int:
        try:
            return os.open(self._given, _STEP)
        except FileNotFoundError:
            if not make:
                raise
            os.makedirs(self._given, exist_ok=True)
            return os.open(self._given, _STEP)

    @contextlib.contextmanager
    def open_parent(self, inside: str, *, make: bool = False) -> Iterator[tuple[int, str]]:
        """A handle on the folder that something lies in, and its name there."""
        *folders, name = self._parts(inside)
        with self.folder("/".join(folders), make=make) as handle:
            yield handle, name

    def make(self, inside: str = "") -> None:
        """The folder, and those above it."""
        with self.folder(inside, make=True):
            pass

    def status(self, inside: str) -> os.stat_result:
        """What stands there, which is not followed."""
        if not self._parts(inside):
            with self.folder() as handle:
                return os.fstat(handle)
        with self.open_parent(inside) as (folder, name):
            return os.stat(name, dir_fd=folder, follow_symlinks=False)

    def has(self, inside: str) -> bool:
        """Whether anything stands there, reached through no link."""
        try:
            self.status(inside)
            return True
        except OSError:
            return False

    def is_folder(self, inside: str) -> bool:
        """Whether it is a folder itself, and not a link to one."""
        try:
            return stat.S_ISDIR(self.status(inside).st_mode)
        except OSError:
            return False

    def readlink(self, inside: str) -> str:
        with self.open_parent(inside) as (folder, name):
            return os.readlink(name, dir_fd=folder)

    def open(self, inside: str, flags: int = os.O_RDONLY, *, make: bool = False) -> int:
        """A handle on a regular file; NotAFile or NotAFolder for anything else, which is not waited for."""
        with self.open_parent(inside, make=make) as (folder, name):
            try:
                return open_regular(name, flags, folder)
            except NotAFile as refusal:
                raise NotAFile(refusal.errno, refusal.strerror, self.path(inside)) from None

    def read(self, inside: str, most: int = MOST) -> bytes:
        """All of a small regular file."""
        return _read(self.open(inside), self.path(inside), most)

    def write(self, inside: str, data: bytes) -> None:
        """A small file, whole or not at all; nothing stays behind when that fails."""
        part = f".{os.urandom(8).hex()}.part"
        with self.open_parent(inside) as (folder, name):
            handle = create(part, folder)
            try:
                with close_after(handle):
                    write_all(handle, data)
                os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(part, dir_fd=folder)
                raise

    def names(self, inside: str = "") -> list[str]:
        """What a folder holds, sorted."""
        with self.folder(inside, flags=_LIST) as handle:
            return sorted(os.listdir(handle))

    def walk(self, inside: str = "") -> Iterator[tuple[str, os.stat_result]]:
        """All that a folder holds, with its path from there; parents first, sorted, links as what they are. A folder
        that is gone meanwhile, or is none any more, is passed over; one that cannot be read is an error."""
        left = [""]
        while left:
            above = left.pop()
            if above.count("/") > DEEPEST:
                raise OSError(errno.ELOOP, "folders are nested too deep", self.path(inside))
            try:
                found = self._scan(os.path.join(inside, above) if above else inside)
            except (FileNotFoundError, NotADirectoryError):
                if not above:
                    raise
                continue
            folders = []
            for name, status in found:
                relative = f"{above}/{name}" if above else name
                yield relative, status
                if stat.S_ISDIR(status.st_mode):
                    folders.append(relative)
            left.extend(reversed(folders))

    def _scan(self, inside: str) -> list[tuple[str, os.stat_result]]:
        with self.folder(inside, flags=_LIST) as handle, os.scandir(handle) as listing:
            found = []
            for item in listing:
                with contextlib.suppress(FileNotFoundError):
                    found.append((item.name, item.stat(follow_symlinks=False)))
        return sorted(found, key=lambda entry: entry[0])

    def rename(self, old: str, new: str) -> None:
        """Move something to another name below here; neither is followed."""
        with self.open_parent(old) as (source, name), self.open_parent(new) as (target, other):
            os.rename(name, other, src_dir_fd=source, dst_dir_fd=target)

    def unlink(self, inside: str) -> None:
        """Remove a file or a link."""
        with self.open_parent(inside) as (folder, name):
            os.unlink(name, dir_fd=folder)

    def discard(self, inside: str) -> None:
        """Remove a file, a link or a tree, whatever is left of it."""
        with contextlib.suppress(OSError, RecursionError), self.open_parent(inside) as (folder, name):
            _remove(folder, name)


def _open_folder(folder: int, name: str, path: str, *, make: bool) -> int:
    try:
        try:
            return os.open(name, _STEP | os.O_NOFOLLOW, dir_fd=folder)
        except FileNotFoundError:
            if not make:
                raise
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=folder)
            return os.open(name, _STEP | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as refusal:
        if refusal.errno not in (errno.ENOTDIR, errno.ELOOP, errno.EMLINK):
            raise
        planted = NotAFolder(errno.ENOTDIR, "it is no folder, or a link to one, and gpuflow-run did not make it", path)
        with contextlib.suppress(OSError):
            planted.is_link = stat.S_ISLNK(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
        raise planted from None


def _remove(folder: int, name: str) -> None:
    """A file, a link or a tree in an open folder. What cannot be removed does not keep the rest."""
    if not stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        os.unlink(name, dir_fd=folder)
        return
    with close_after(os.open(name, _LIST, dir_fd=folder)) as inner:
        for each in os.listdir(inner):
            with contextlib.suppress(OSError):
                _remove(inner, each)
    os.rmdir(name, dir_fd=folder)


def write_all(handle: int, data: bytes | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(handle, view) :]


_HOLE = 64 << 10
_ZEROS = bytes(_HOLE)


def write_sparse(handle: int, data: bytes | memoryview) -> None:
    """The same without blocks of zeros: what was sparse stays sparse. In the end: `truncate_here`."""
    view, at = memoryview(data), 0
    while at < len(view):
        end, hole = at, _is_hole(view, at)
        while end < len(view) and _is_hole(view, end) == hole:
            end += _HOLE
        end = min(end, len(view))
        if hole:
            os.lseek(handle, end - at, os.SEEK_CUR)
        else:
            write_all(handle, view[at:end])
        at = end


def _is_hole(data: memoryview, at: int) -> bool:
    # Most blocks do not begin with a zero, and then nothing is compared or copied.
    return data[at] == 0 and data[at : at + _HOLE].tobytes() == _ZEROS


def truncate_here(handle: int) -> None:
    """The file is as long as has been written, holes at its end included."""
    os.ftruncate(handle, os.lseek(handle, 0, os.SEEK_CUR))


def private_folder(places: Sequence[str], name: str) -> str:
    """A new folder that only this user may look into, under a name nobody can guess, in the first place that has room.
    OSError when there is none."""
    refusal: OSError = FileNotFoundError(errno.ENOENT, "there is no place for temporary files")
    for place in places:
        path = os.path.join(os.path.abspath(place), f"{name}-{os.urandom(8).hex()}")
        try:
            os.makedirs(place, exist_ok=True)  # $TMPDIR may name one that nobody has made yet
            os.mkdir(path, 0o700)
            return path
        except OSError as trouble:
            refusal = trouble
    raise refusal


_AT_FDCWD, _NO_FOLLOW = -100, 0x100
_BIRTH = 0x800
_statx: Any = None


def fingerprint_of(path: str, marker: str) -> dict[str, int] | None:
    """The fingerprint of a file, or of a directory with its marker's time; None for what cannot be a checkpoint."""
    try:
        status = os.lstat(path)
        facts = {"inode": status.st_ino, "born": birth_time(path), "changed": status.st_mtime_ns}
        if stat.S_ISREG(status.st_mode):
            return {**facts, "size": status.st_size}
        if not stat.S_ISDIR(status.st_mode):
            return None
        try:
            return {**facts, "marked": os.lstat(os.path.join(path, marker)).st_mtime_ns}
        except FileNotFoundError:
            return {**facts, "marked": 0}
    except OSError:
        return None


def is_same_fingerprint(one: Mapping[str, int] | None, other: Mapping[str, int] | None) -> bool:
    """Whether two fingerprints are of one entry in one state.

    A directory that was born once is the same one, also when a file was put into it later. Without births a directory
    that was changed cannot be told from one that was made anew.
    """
    if not one or not other or set(one) != set(other):
        return False
    facts = set(one)
    if not (one.get("born") and other.get("born")):
        facts.discard("born")
    elif "marked" in facts:
        facts.discard("changed")
    return all(one[fact] == other[fact] for fact in facts)


def birth_time(path: str) -> int:
    """When a file was made, in nanoseconds; 0 where that is not known."""
    if (ask := _statx_function()) is None:
        return 0
    import ctypes

    answer = ctypes.create_string_buffer(256)
    if ask(_AT_FDCWD, os.fsencode(path), _NO_FOLLOW, _BIRTH, answer) != 0:
        return 0
    # struct statx: the mask of what was filled in at 0, the birth time at 80 as seconds and nanoseconds.
    if not int.from_bytes(answer.raw[:4], sys.byteorder) & _BIRTH:
        return 0
    seconds = int.from_bytes(answer.raw[80:88], sys.byteorder, signed=True)
    return seconds * 10**9 + int.from_bytes(answer.raw[88:92], sys.byteorder)


def _statx_function() -> Any:
    global _statx
    if _statx is None:
        try:
            import ctypes

            _statx = ctypes.CDLL(None).statx
        except (ImportError, OSError, AttributeError):
            _statx = False
    return _statx or None
