"""A checkpoint held still while it is read: its files by hard links, and what each looked like at that moment.

A hard link shares its file with the program, which may write it again. So every file is compared, while it is read,
with what it was when the snapshot was taken, and the snapshot itself is good only when nothing moved meanwhile: what
is read is one checkpoint, never half of this and half of the next.
"""

from __future__ import annotations

import os
import stat

from gpuflow.runtime import naming
from gpuflow.runtime.naming import leads_out

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Vanished(Exception):
    """The program removed the checkpoint while it was read. Nothing is wrong; there will be another."""


class Changed(Vanished):
    """The program writes to what it called finished."""


class Refused(Exception):
    """What is in the checkpoint cannot be kept, and another try would not change that."""


class Item:
    """One file, directory or link of a checkpoint, as it was found."""

    def __init__(self, relative: str, path: str, status: os.stat_result) -> None:
        self.relative, self.path = relative, path
        self.mode = status.st_mode
        self.size = status.st_size
        self.facts = facts(status)
        self.link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else None

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


def facts(status: os.stat_result) -> tuple[int, int, int]:
    """What changes when a file is written or replaced. Not the time of the inode: a hard link sets it."""
    return status.st_ino, status.st_mtime_ns, status.st_size


def take(source: str, into: str, still: Callable[[], bool]) -> list[Item]:
    """The items of a checkpoint, each file linked below `into` where that can be done, else to be read in place.

    `still` says whether the entry is what it was when it was found; it is asked once everything is linked.
    """
    try:
        items = stock(source)
        before = {item.relative: item.facts for item in items}
        for item in items:
            target = os.path.join(into, *item.relative.split("/")) if item.relative else into
            if item.is_directory:
                os.makedirs(target, exist_ok=True)
            elif item.is_file:
                item.path = _linked(item.path, target)
        after = {item.relative: item.facts for item in stock(source)}
    except (FileNotFoundError, NotADirectoryError):
        raise Vanished(source) from None
    if not still():
        raise Vanished(source)
    if before != after:
        raise Changed(source)
    if not items:
        raise Vanished(source)  # all but removed
    return items


def lasts(source: str, items: list[Item]) -> bool:
    """Whether everything of a snapshot is still at its place. One file is whole, wherever it is now."""
    if [item.relative for item in items] == [""]:
        return True
    try:
        return {item.relative for item in items} <= {item.relative for item in stock(source)}
    except (OSError, Vanished):
        return False
    except Refused:
        return True


def stock(source: str) -> list[Item]:
    """Everything in a checkpoint, parents first; Refused for what cannot be carried to another machine.

    A link that stays in the checkpoint is kept as it is. One that leads out to a file stands for that file; one that
    leads out to anything else would be restored as a link to nothing.
    """
    items = []
    for relative, path, status in walk(source):
        try:
            f"{os.path.basename(source)}/{relative}".encode()
        except UnicodeEncodeError:
            raise Refused(f"the name {os.fsencode(path)!r} is not UTF-8") from None
        if not naming.is_path(relative):
            raise Refused(f"the path {path} is too long to be restored everywhere")
        item = Item(relative, path, status)
        if item.link is not None and leads_out(relative, item.link):
            followed = os.path.realpath(path)
            try:
                item = Item(relative, followed, os.stat(followed))
            except OSError:
                raise Refused(f"{path} is a link to {item.link}, which is not there") from None
            if not item.is_file:
                raise Refused(f"{path} is a link out of the checkpoint to {followed}, which is no file")
        elif not (item.is_file or item.is_directory or item.link is not None):
            raise Refused(f"{path} is neither a file nor a directory nor a link")
        items.append(item)
    return items


def walk(source: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """A file as ("", path, status); a directory's contents, parents first, sorted."""
    status = os.lstat(source)
    if not stat.S_ISDIR(status.st_mode):
        yield "", source, status
        return
    for folder, folders, names in os.walk(source, onerror=_tell):
        folders.sort()
        for name in sorted([*folders, *names]):
            path = os.path.join(folder, name)
            yield os.path.relpath(path, source).replace(os.sep, "/"), path, os.lstat(path)


def _linked(path: str, target: str) -> str:
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.link(path, target)
        return target
    except FileExistsError:
        # A snapshot of an earlier try is no snapshot of now.
        os.unlink(target)
        os.link(path, target)
        return target
    except FileNotFoundError:
        raise
    except OSError:
        return path


def _tell(refusal: OSError) -> None:
    raise refusal
