"""Renames into a directory, as the kernel tells them: polling cannot tell a rename from a file being written."""

from __future__ import annotations

import contextlib
import os
import select
import sys

_MOVED_TO = 0x80
_NONBLOCK_CLOEXEC = 0o2004000


class Watch:
    """The names that were renamed into one directory. Without inotify it only waits, and hears nothing."""

    def __init__(self, path: str) -> None:
        self.handle = -1
        # One byte in this pipe ends a wait early.
        self._listen, self._speak = os.pipe()
        os.set_blocking(self._speak, False)
        os.set_blocking(self._listen, False)
        try:
            import ctypes

            library = ctypes.CDLL(None, use_errno=True)
            handle = library.inotify_init1(_NONBLOCK_CLOEXEC)
            if handle >= 0 and library.inotify_add_watch(handle, os.fsencode(path), _MOVED_TO) >= 0:
                self.handle = handle
        except (ImportError, OSError, AttributeError):
            return

    @property
    def hears(self) -> bool:
        return self.handle >= 0

    def wake(self) -> None:
        """End a wait of another thread."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._speak, b".")

    def wait(self, timeout: float) -> list[str]:
        """Names renamed into the directory since the last call; waits for one up to `timeout` seconds."""
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
            names += _names(data)
        return names

    def close(self) -> None:
        for handle in (self.handle, self._listen, self._speak):
            if handle >= 0:
                os.close(handle)
        self.handle = self._listen = self._speak = -1


def _names(data: bytes) -> list[str]:
    """The names in a block of inotify events: int, three unsigned ints, and a padded name."""
    names, at = [], 0
    while at + 16 <= len(data):
        mask, length = (int.from_bytes(data[at + skip : at + skip + 4], sys.byteorder) for skip in (4, 12))
        name = data[at + 16 : at + 16 + length].rstrip(b"\0")
        if mask & _MOVED_TO and name:
            names.append(os.fsdecode(name))
        at += 16 + length
    return names
