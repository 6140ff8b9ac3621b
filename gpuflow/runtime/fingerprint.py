"""What tells an entry of a directory from another of the same name: inode, time of birth, time of change, size.

File systems give a freed inode number away at once, so the number alone names nothing. A birth time does together with
it; Python does not tell it on Linux, so it is asked of the C library. Where there is none (NFS 3, some FUSE) it is 0,
and the time of change has to do.
"""

from __future__ import annotations

import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_AT_FDCWD, _NO_FOLLOW = -100, 0x100
_BIRTH = 0x800
_statx: Any = None


def of(path: str, marker: str) -> dict[str, int] | None:
    """The fingerprint of a file, or of a directory with its marker's time; None for what cannot be a checkpoint."""
    try:
        status = os.lstat(path)
        facts = {"inode": status.st_ino, "born": born(path), "changed": status.st_mtime_ns}
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


def same(one: Mapping[str, int] | None, other: Mapping[str, int] | None) -> bool:
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


def born(path: str) -> int:
    """When a file was made, in nanoseconds; 0 where that is not known."""
    ask = _library()
    if ask is None:
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


def _library() -> Any:
    global _statx
    if _statx is None:
        try:
            import ctypes

            _statx = ctypes.CDLL(None).statx
        except (ImportError, OSError, AttributeError):
            _statx = False
    return _statx or None
