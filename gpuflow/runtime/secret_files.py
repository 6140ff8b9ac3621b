"""Files that never leave this machine: the keys that sign, tokens, mounted Secrets, and what the kernel shows as files.

A link in a checkpoint or an output may lead to any of them; whoever can read the store would have it then.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re

_PLACES = ("/var/run/secrets", "/run/secrets", "/proc", "/sys", "/dev")
_SHARED_MEMORY = "/dev/shm"
_KUBELET = re.compile(r"\.\.(data|\d{4}_\d\d_\d\d_.*)")
"""What the kubelet calls the folders in which it keeps the files of a Secret, a ConfigMap or a token."""
_MOUNTS = "/proc/self/mountinfo"
_KEYS: set[tuple[int, int]] = set()


def add_key(status: os.stat_result) -> None:
    """This file holds a key of ours."""
    _KEYS.add((status.st_dev, status.st_ino))


def why_secret(path: str, status: os.stat_result) -> str | None:
    """Why a file at a path without links must not be kept; None when it may be."""
    if (status.st_dev, status.st_ino) in _KEYS:
        return "it is the key file"
    place = next((place for place in _places() if f"{path}/".startswith(f"{place}/")), None)
    if place is not None and not path.startswith(f"{_SHARED_MEMORY}/"):
        return f"it lies in {place}"
    if any(_KUBELET.fullmatch(part) for part in path.split("/")) or status.st_dev in _devices():
        return "it is a file of a mounted Secret or token"
    return None


@functools.lru_cache(maxsize=1)
def _places() -> tuple[str, ...]:
    return (*_PLACES, *(os.path.realpath(place) for place in _PLACES))


@functools.lru_cache(maxsize=1)
def _devices() -> set[int]:
    """The devices of volumes that the kubelet fills (in memory: Secrets, tokens), wherever they are mounted."""
    found = set()
    with contextlib.suppress(OSError), open(_MOUNTS, encoding="utf-8", errors="replace") as file:
        for line in file:
            before, _, after = line.partition(" - ")
            words = before.split()
            if len(words) < 5 or not after.startswith("tmpfs "):
                continue
            # A file of it that is mounted alone (subPath) is named in the fourth word.
            parts = words[3].split("/")
            if any(map(_KUBELET.fullmatch, parts)) or os.path.islink(os.path.join(words[4], "..data")):
                major, _, minor = words[2].partition(":")
                found.add(os.makedev(int(major), int(minor)))
    return found
