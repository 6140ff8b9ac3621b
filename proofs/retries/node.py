"""What the node's kernel does to a container, caused from outside it."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path
from typing import Any

from tests.cluster.cluster import Cluster
from tests.cluster.machine import CGROUPS
from tests.cluster.waiting import until

EATER = "GPUFLOW_EATER"
SUPERVISOR = "gpuflow-run"
QUALITIES = ("burstable", "besteffort", "")
"""Where the kubelet puts a pod by its quality of service; the guaranteed ones stand at the top."""


def container_group(cluster: Cluster, pod: dict[str, Any], container: str = "main") -> Path:
    """The control group of a running container, in the tree that counts memory."""
    name, kube = pod["metadata"]["name"], cluster.kube.within(pod["metadata"]["namespace"])

    def started() -> str:
        statuses = (kube.get("pod", name) or {"status": {}})["status"].get("containerStatuses", ())
        return next((item.get("containerID", "") for item in statuses if item["name"] == container), "")

    identity = until(f"container {container} of pod {name}", started, timeout=30).rpartition("/")[2]
    one_tree = (CGROUPS / "cgroup.procs").exists()
    top = (CGROUPS if one_tree else CGROUPS / "memory") / cluster.layout.cgroup / "kubepods"
    inside = f"pod{pod['metadata']['uid']}/{identity}"
    return next(path for path in (top / quality / inside for quality in QUALITIES) if path.is_dir())


def processes(group: Path) -> dict[int, str]:
    """Process id as this machine sees it -> command line."""
    found = {}
    for pid in map(int, (group / "cgroup.procs").read_text().split()):
        with contextlib.suppress(OSError):
            found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    return found


def send(number: signal.Signals, pids: Any) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def kill_everything(cluster: Cluster, pod: dict[str, Any], container: str = "main") -> None:
    """SIGKILL to every process of a container, the first one included."""
    send(signal.SIGKILL, processes(container_group(cluster, pod, container)))


def kill_supervisor(cluster: Cluster, pod: dict[str, Any]) -> None:
    """SIGKILL to the supervisor and nothing else."""
    found = processes(container_group(cluster, pod))
    send(signal.SIGKILL, [pid for pid, line in found.items() if SUPERVISOR in line and "emissary" not in line])


def out_of_memory_as_a_group(cluster: Cluster, pod: dict[str, Any], go: Path) -> None:
    """The kernel's OOM kill, and everything else in the container dies with it before it can see or write anything.

    `memory.oom.group` of cgroup version 2 does that by itself. Version 1 kills one process: the others are stopped
    before, and killed after it.
    """
    group = container_group(cluster, pod)
    found = processes(group)
    # The puppet's own command line holds the eater's source too, but does not end with the file that lets it go.
    eaters = [pid for pid, line in found.items() if EATER in line and line.rstrip(" \0").endswith("/go")]
    others = [pid for pid in found if pid not in eaters]
    send(signal.SIGSTOP, others)
    go.touch()
    alive = lambda: not any(Path(f"/proc/{pid}").exists() and _state(pid) != "Z" for pid in eaters)  # noqa: E731  # said once, used once
    until("the kernel to end the process that eats memory", alive, timeout=30, every=0.05)
    until("the kernel to count it", lambda: _oom_kills(group) > 0, timeout=5, every=0.05)
    # The runtime hears of it a moment later, and what it then says is what the kubelet reports.
    until("a moment", _after(0.7), timeout=5, every=0.1)
    send(signal.SIGKILL, others)


def _after(seconds: float) -> Any:
    import time

    then = time.monotonic() + seconds
    return lambda: time.monotonic() >= then


def _state(pid: int) -> str:
    with contextlib.suppress(OSError, IndexError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return "Z"


def _oom_kills(group: Path) -> int:
    for name in ("memory.events", "memory.oom_control"):
        if (group / name).exists():
            rows = (line.split() for line in (group / name).read_text().splitlines())
            return next((int(row[1]) for row in rows if row[:1] == ["oom_kill"]), 0)
    return 0
