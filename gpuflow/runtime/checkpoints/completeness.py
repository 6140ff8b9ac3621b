"""Whether a checkpoint is finished and whole: renames as the kernel reports them, and the files of a distributed one.

Polling cannot tell a rename from a file that is being written; inotify can.

Of a folder of PyTorch's distributed checkpoint, `.metadata` names the files. It is a pickle and is never loaded here:
the names are in it as plain text. A folder that lacks one of them was written by several ranks, and is a part of a
checkpoint, not one.
"""

from __future__ import annotations

import contextlib
import os
import posixpath
import select
import sys

from gpuflow.runtime.base import files
from gpuflow.runtime.base.files import open_regular

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

METADATA = ".metadata"
_NAME = rb"__[0-9]+_[0-9]+\.distcp"
_LONGEST = 64
"""Bytes that a name has at most: so many of one piece are looked at again with the next."""
_PIECE = 1 << 20


def lacking_file(indexes: Mapping[str, str], paths: Iterable[str]) -> str | None:
    """The first file that an index names and that is not there. `indexes`: path in the checkpoint -> where to read it.
    An index that cannot be read any more says nothing: the checkpoint is then gone, too."""
    there = set(paths)
    for relative in sorted(indexes):
        folder = posixpath.dirname(relative)
        try:
            named = files_in_index(indexes[relative])
        except OSError:
            continue
        for name in sorted(named):
            if posixpath.join(folder, name) not in there:
                return posixpath.join(folder, name)
    return None


def files_in_index(path: str) -> set[str]:
    """The files that an index names."""
    import re

    found: set[str] = set()
    rest = b""
    with open(open_regular(path), "rb") as file:
        while piece := file.read(_PIECE):
            window = rest + piece
            found.update(name.decode("ascii") for name in re.findall(_NAME, window))
            rest = window[-_LONGEST:]
    return found


_MOVED_TO, _CREATE, _DELETE_SELF, _MOVE_SELF = 0x80, 0x100, 0x400, 0x800
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_NONBLOCK_CLOEXEC = 0o2004000


class Watch:
    """The names that were renamed into one directory. Without inotify it only waits, and hears nothing.

    A user has few instances of inotify (128 by default, and all pods of a node may be one user to it): where none can
    be had now, each wait asks again.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.handle = -1
        self.missed = False
        """Whether the kernel had more to tell than it keeps; cleared by the one who looks for himself."""
        self._library: Any = None
        self._number = self._parent = -1
        self._watched: tuple[int, int, int] | None = None
        # One byte in this pipe ends a wait early.
        self._listen, self._speak = os.pipe()
        os.set_blocking(self._speak, False)
        os.set_blocking(self._listen, False)
        try:
            import ctypes

            self._library = ctypes.CDLL(None, use_errno=True)
            self.handle = self._library.inotify_init1(_NONBLOCK_CLOEXEC)
        except (ImportError, OSError, AttributeError):
            self._library = None
        self.renew()

    @property
    def hears(self) -> bool:
        return self.handle >= 0

    def is_gone(self) -> bool:
        """Whether the watched directory was removed or replaced."""
        return self._watched is None or _place(self.path) != self._watched

    def renew(self) -> bool:
        """Watch what stands at the path now; False when there is nothing, and then its coming back ends a wait."""
        self._watched = _place(self.path)
        if self._watched is None:
            if self.hears and self._parent < 0:
                self._parent = self._add(os.path.dirname(self.path), _CREATE | _MOVED_TO)
            return False
        if not self.hears:
            return True
        if self._parent >= 0:
            self._library.inotify_rm_watch(self.handle, self._parent)
            self._parent = -1
        # Its own removal is asked for only to be woken by it.
        self._number = self._add(self.path, _MOVED_TO | _DELETE_SELF | _MOVE_SELF)
        if self._number < 0:
            os.close(self.handle)
            self.handle = -1
        return True

    def wake(self) -> None:
        """End a wait of another thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._speak, b".")

    def wait(self, timeout: float) -> list[str]:
        """Names renamed into the directory since the last call; waits for one up to `timeout` seconds."""
        if not self.hears and self._library is not None:
            self.handle = self._library.inotify_init1(_NONBLOCK_CLOEXEC)
            if self.hears and not self.is_gone():
                self.missed = self.renew()
        handles = [self._listen] + ([self.handle] if self.hears else [])
        ready, _, _ = select.select(handles, [], [], max(0.0, timeout))
        if self._listen in ready:
            os.read(self._listen, 4096)
        names: list[str] = []
        while self.hears:
            try:
                data = os.read(self.handle, 65536)
            except BlockingIOError:
                break
            for watch, mask, name in _events(data):
                self.missed = self.missed or bool(mask & _OVERFLOW)
                if watch != self._number:
                    continue
                if mask & _IGNORED:
                    self._watched = None
                if mask & _MOVED_TO and name:
                    names.append(os.fsdecode(name))
        return names

    def close(self) -> None:
        for handle in (self.handle, self._listen, self._speak):
            if handle >= 0:
                os.close(handle)
        self.handle = self._listen = self._speak = -1

    def _add(self, path: str, wanted: int) -> int:
        return int(self._library.inotify_add_watch(self.handle, os.fsencode(path), wanted))


def _place(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino, files.birth_time(path)


def _events(data: bytes) -> list[tuple[int, int, bytes]]:
    """A block of inotify events as (watch, mask, name): int, three unsigned ints, and a padded name each."""
    events, at = [], 0
    while at + 16 <= len(data):
        watch, mask, length = (int.from_bytes(data[at + skip : at + skip + 4], sys.byteorder) for skip in (0, 4, 12))
        events.append((watch, mask, data[at + 16 : at + 16 + length].rstrip(b"\0")))
        at += 16 + length
    return events
