"""How many processors this container may use at once."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

_GROUPS = "/sys/fs/cgroup"


def available() -> int:
    """Those it may run on, or fewer where its limit is lower: at least one."""
    try:
        here = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        here = os.cpu_count() or 1
    limits = [here, *(max(1, int(-(-quota // period))) for quota, period in _quotas())]
    return min(limits)


def _quotas(groups: str = _GROUPS) -> Iterator[tuple[int, int]]:
    """What the kernel gives the group of processes in each period: cgroup v2, and v1. In a container it is the root."""
    words = _words(f"{groups}/cpu.max")
    if len(words) != 2:
        words = [*_words(f"{groups}/cpu/cpu.cfs_quota_us"), *_words(f"{groups}/cpu/cpu.cfs_period_us")]
    # "max", or -1: no limit.
    if len(words) == 2 and all(word.isascii() and word.isdigit() and int(word) > 0 for word in words):
        yield int(words[0]), int(words[1])


def _words(path: str) -> list[str]:
    try:
        with open(path, encoding="ascii") as file:
            return file.read().split()
    except (OSError, ValueError):
        return []
