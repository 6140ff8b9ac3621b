"""What the kernel's memory controller says about this container."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def oom_kills() -> int:
    """How often the kernel has killed in this container's memory group; 0 when that cannot be read."""
    for path in _memory_files():
        try:
            with open(path, encoding="ascii") as file:
                counts = dict(line.split(None, 1) for line in file if " " in line)
        except (OSError, ValueError):
            continue
        if "oom_kill" in counts:
            # A whole group that is killed (memory.oom.group) counts apart from its processes.
            return int(counts["oom_kill"]) + int(counts.get("oom_group_kill", 0))
    return 0


def _memory_files() -> list[str]:
    """Where cgroup v2 and v1 count: in a container the group is the root of what it sees."""
    files = []
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        lines = []
    for _, controllers, path in lines:
        inside = path.lstrip("/")
        if controllers == "":
            files.append(os.path.join("/sys/fs/cgroup", inside, "memory.events"))
        elif "memory" in controllers.split(","):
            files.append(os.path.join("/sys/fs/cgroup/memory", inside, "memory.oom_control"))
    return [*files, "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]


def available() -> int | None:
    """Bytes of memory this container can still take: the kernel's figure or its group's limit; None if unknown."""
    found = [figure for figure in (_free_here(), _free_in_group()) if figure is not None]
    return max(0, min(found)) if found else None


def _free_here() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return None


def _free_in_group() -> int | None:
    """The limit less what is used, where file pages that can be dropped do not count as used."""
    for most, now, counts, inherited in _groups():
        return most - now + int(counts.get(f"{inherited}inactive_file", 0))
    return None


def working_set() -> tuple[int, int] | None:
    """Bytes that the kernel cannot take back from this container's group, and its limit; None where there is none.

    Not counted are file pages, active or not, and kernel memory that can be freed: a data loader that fills the page
    cache is not short of memory. Files in memory (`/dev/shm`) do count.
    """
    for most, now, counts, inherited in _groups():
        if 0 < most < _NO_LIMIT:
            freed = (f"{inherited}active_file", f"{inherited}inactive_file", "slab_reclaimable")
            return max(0, now - sum(int(counts.get(name, 0)) for name in freed)), most
    return None


_NO_LIMIT = 1 << 60
"""cgroup v1 has a number of this size where there is no limit."""


def _groups() -> Iterator[tuple[int, int, dict[str, str], str]]:
    """Limit, usage, `memory.stat` and the prefix of its sums, of each place where the group may be seen."""
    for folder in (os.path.dirname(path) for path in _memory_files()):
        for limit, used, inherited in (
            ("memory.max", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            try:
                most, now = (int(_text(os.path.join(folder, name))) for name in (limit, used))
                lines = _text(os.path.join(folder, "memory.stat")).splitlines()
            except (OSError, ValueError):
                # Not there, or "max": no limit on this level.
                continue
            yield most, now, dict(line.split(None, 1) for line in lines if " " in line), inherited


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
