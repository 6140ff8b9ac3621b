"""What the kernel's memory controller says about this container."""

from __future__ import annotations

import os


def oom_kills() -> int:
    """How often the kernel has killed in this container's memory group; 0 when that cannot be read."""
    for path in _memory_files():
        try:
            with open(path, encoding="ascii") as file:
                counts = dict(line.split(None, 1) for line in file if " " in line)
        except (OSError, ValueError):
            continue
        if "oom_kill" in counts:
            return int(counts["oom_kill"])
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
    for folder in (os.path.dirname(path) for path in _memory_files()):
        for limit, used, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            try:
                most, now = (int(_text(os.path.join(folder, name))) for name in (limit, used))
                lines = _text(os.path.join(folder, "memory.stat")).splitlines()
            except (OSError, ValueError):
                # Not there, or "max": no limit on this level.
                continue
            counts = dict(line.split(None, 1) for line in lines if " " in line)
            return most - now + int(counts.get(cached, 0))
    return None


def _text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()
