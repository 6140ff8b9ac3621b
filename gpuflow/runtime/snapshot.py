"""A checkpoint held still while it is read: its files by hard links, and what each looked like at that moment.

A hard link shares its file with the program, which may write it again. So every file is compared, while it is read,
with what it was when the snapshot was taken, and the snapshot itself is good only when nothing moved meanwhile: what
is read is one checkpoint, never half of this and half of the next.
"""

from __future__ import annotations

import os
import stat

from gpuflow.runtime import naming
from gpuflow.runtime.files import Shared
from gpuflow.runtime.naming import leads_out
from gpuflow.runtime.secret_files import why_secret

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Vanished(Exception):
    """The program removed the checkpoint while it was read. Nothing is wrong; there will be another."""


class Changed(Vanished):
    """The program writes to what it called finished."""


class Refused(Exception):
    """What is in the checkpoint cannot be kept, and another try would not change that."""


class Item:
    """One file, directory or link of a checkpoint, as it was found."""

    def __init__(self, relative: str, path: str, status: os.stat_result, link: str | None) -> None:
        self.relative, self.path, self.status = relative, path, status
        self.mode = status.st_mode
        self.size = status.st_size
        self.facts = facts(status)
        self.link = link

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.mode)


def facts(status: os.stat_result) -> tuple[int, int, int, int]:
    """What changes when a file is written or replaced. Not the time of the inode: a hard link sets it."""
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size


def take(source: str, shared: Shared, into: str, still: Callable[[], bool], follow: Sequence[str] = ()) -> list[Item]:
    """The items of a checkpoint, each file linked below `into` where that can be done, else to be read in place.

    `into` lies in a shared folder. `still` says whether the entry is what it was when it was found; it is asked once
    everything is linked.
    """
    try:
        items = stock(source, follow)
        before = {item.relative: item.facts for item in items}
        for item in items:
            target = os.path.join(into, *item.relative.split("/")) if item.relative else into
            if item.is_directory:
                shared.make(target)
            elif item.is_file:
                item.path = _linked(item.path, shared, target)
        after = {item.relative: item.facts for item in stock(source, follow)}
    except (FileNotFoundError, NotADirectoryError):
        raise Vanished(source) from None
    if not still():
        raise Vanished(source)
    if before != after:
        raise Changed(source)
    if not items:
        raise Vanished(source)  # all but removed
    return items


def lasts(source: str, items: list[Item], follow: Sequence[str] = ()) -> bool:
    """Whether everything of a snapshot is still at its place. One file is whole, wherever it is now."""
    if [item.relative for item in items] == [""]:
        return True
    try:
        return {item.relative for item in items} <= {item.relative for item in stock(source, follow)}
    except (OSError, Vanished):
        return False
    except Refused:
        return True


def stock(source: str, follow: Sequence[str] = ()) -> list[Item]:
    """Everything in a checkpoint, parents first; Refused for what cannot be carried to another machine, or must not be.

    A link that stays in the checkpoint is kept as it is. One that leads out stands for the file it leads to, if that
    lies in the checkpoint directory, in the blobs of a Hugging Face cache whose snapshot this is, or below a folder in
    `follow`: whoever else may write here must not choose which of our files are kept.
    """
    items = []
    top = os.path.realpath(os.path.dirname(source))
    real = os.path.join(top, os.path.basename(source))
    for relative, path, status, link in walk(source):
        try:
            f"{os.path.basename(source)}/{relative}".encode()
        except UnicodeEncodeError:
            raise Refused(f"the name {os.fsencode(path)!r} is not UTF-8") from None
        if not naming.is_path(relative):
            raise Refused(f"the path {path} is too long to be restored everywhere")
        item = Item(relative, path, status, link)
        if link is not None and leads_out(relative, link):
            item = _followed(top, item, link, follow)
        elif not (item.is_file or item.is_directory or link is not None):
            raise Refused(f"{path} is neither a file nor a directory nor a link")
        if item.is_file:
            why = why_secret(item.path if link is not None else os.path.join(real, relative), item.status)
            if why is not None:
                raise Refused(f"{path} must not be kept: {why}" + ("" if link is None else f" ({item.path})"))
        items.append(item)
    return items


def _followed(top: str, item: Item, link: str, follow: Sequence[str]) -> Item:
    """The file that a link in the checkpoint directory `top` leads to, by no other link."""
    path, real = item.path, os.path.realpath(item.path)
    for place in (top, *_blobs(top), *map(os.path.realpath, follow)):
        if not real.startswith(f"{place.rstrip('/')}/"):
            continue
        try:
            status = Shared(os.path.dirname(place)).status(real)
        except OSError:
            break
        if not stat.S_ISREG(status.st_mode):
            raise Refused(f"{path} is a link out of the checkpoint to {real}, which is no file")
        return Item(item.relative, real, status, None)
    if not os.path.lexists(real):
        raise Refused(f"{path} is a link to {link}, which is not there")
    raise Refused(
        f"{path} is a link out of the checkpoint directory to {real}, and is not followed; put the file itself there, "
        "or name the folder that it lies in with --follow"
    )


def _blobs(top: str) -> Iterator[str]:
    """Of a Hugging Face cache, where <cache>/snapshots/<revision>/… links to <cache>/blobs/…."""
    cache, found, rest = f"{top}/".rpartition("/snapshots/")
    if found and rest.count("/") <= 1:
        yield f"{cache}/blobs"


def walk(source: str) -> Iterator[tuple[str, str, os.stat_result, str | None]]:
    """A file as ("", path, status, None); a directory's contents, parents first, sorted, with where links lead to."""
    above, name = os.path.split(source)
    shared = Shared(above or ".")
    status = shared.status(name)
    if not stat.S_ISDIR(status.st_mode):
        yield "", source, status, shared.readlink(name) if stat.S_ISLNK(status.st_mode) else None
        return
    for relative, status in shared.walk(name):
        inside = f"{name}/{relative}"
        link = shared.readlink(inside) if stat.S_ISLNK(status.st_mode) else None
        yield relative, os.path.join(source, relative), status, link


def _linked(path: str, shared: Shared, target: str) -> str:
    with shared.above(target, make=True) as (folder, name):
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
