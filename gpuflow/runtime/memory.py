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
