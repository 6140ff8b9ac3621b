"""What a private cluster needs of the machine, and the one thing it leaves there: control groups."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from . import keeper
from .waiting import until

CGROUPS = Path("/sys/fs/cgroup")
PROGRAMS = "programs"
"""The control group of the cluster's own programs, beside `kubepods`, in which the kubelet weighs pods by requests."""
WEIGHT_OF_ALL = 4 * (os.cpu_count() or 1)
WEIGHT_OF_PROGRAMS = 2 * (os.cpu_count() or 1)
"""Twice what the kubelet gives to all pods: whoever starts, watches and counts pods goes before them."""
# More than any one program of the cluster opens.
WATCHERS = 16
# What has to be there -> the Debian package that brings it.
CONTROL_PLANE_TOOLS = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "openssl": "openssl",
}
NODE_TOOLS = {
    "containerd": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "busybox": "busybox-static",
    "/usr/lib/cni/ptp": "containernetworking-plugins",
}
KUBEFLOW_TOOLS = {
    "/usr/sbin/mariadbd": "mariadb-server-core",
    "mariadb-install-db": "mariadb-server-core",
    "my_print_defaults": "mariadb-client-core",
}
"""The programs alone: the package mariadb-server would also start a server of the machine."""


class MachineError(RuntimeError):
    """This machine cannot carry the cluster; the message says what is missing and how to get it."""


def judge(cache: Path) -> None:
    """Say in one line why there can be no private cluster here, if there can be none."""
    if os.uname().sysname != "Linux":
        raise MachineError("a private cluster needs Linux (namespaces and control groups)")
    if os.geteuid() != 0:
        raise MachineError("a private cluster needs root for its namespaces; be root or set KUBECONFIG")
    if any(cache.is_relative_to(folder) for folder in keeper.PRIVATE_FOLDERS):
        raise MachineError(f"GPUFLOW_CACHE is {cache}; put it outside {', '.join(keeper.PRIVATE_FOLDERS)}")


def require(cache: Path, *, node: bool) -> None:
    """Judge the machine and install the Debian packages it lacks."""
    judge(cache)
    packages(CONTROL_PLANE_TOOLS | NODE_TOOLS if node else CONTROL_PLANE_TOOLS)


def packages(tools: dict[str, str]) -> None:
    """Install the Debian packages of the tools that are not there."""
    wanted = sorted({package for tool, package in tools.items() if not shutil.which(tool)})
    if not wanted:
        return
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *wanted]
    if not shutil.which("apt-get"):
        raise MachineError(f"missing on this machine: the programs of the Debian packages {', '.join(wanted)}")
    print(f"installing Debian packages: {' '.join(wanted)}", flush=True)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (install, ["apt-get", "update", "--quiet"], install):
        done = subprocess.run(command, env=environment, text=True, capture_output=True, check=False)
        if command is install and done.returncode == 0:
            return
    raise MachineError(f"`{' '.join(install)}` failed:\n{done.stderr.strip()[-2000:]}")


def await_watchers() -> None:
    """Wait until the kernel has file watchers to spare: the programs want some and die without."""

    def hint() -> str:
        limit = Path("/proc/sys/fs/inotify/max_user_instances").read_text().strip()
        return f"other programs of this user hold nearly all {limit}: raise fs.inotify.max_user_instances"

    until(f"{WATCHERS} free file watchers", _watchers_free, timeout=120, every=1.0, otherwise=hint)


def _watchers_free() -> bool:
    library = ctypes.CDLL(None)
    handles = [library.inotify_init1(os.O_CLOEXEC) for _ in range(WATCHERS)]
    for handle in handles:
        if handle >= 0:
            os.close(handle)
    return all(handle >= 0 for handle in handles)


def _hierarchies() -> list[Path]:
    """Where control groups are made: the one tree of version 2, or every tree of version 1."""
    if (CGROUPS / "cgroup.procs").exists():
        return [CGROUPS]
    return sorted(path.parent for path in CGROUPS.glob("*/cgroup.procs"))


def make_cgroups(name: str, weigher: int | None = None) -> None:
    """The cluster's groups with their share of CPU; the process `weigher`, and all it starts, goes before the pods.

    Without a group of its own each program of the cluster weighs as much as any process of the machine, and all pods
    together as much as one: on a busy machine a pod then takes a minute to start.
    """
    for tree in _hierarchies():
        (tree / name).mkdir(exist_ok=True)
    for tree in _cpu_hierarchies():
        programs = tree / name / PROGRAMS
        programs.mkdir(exist_ok=True)
        _weigh(tree / name, WEIGHT_OF_ALL)
        _weigh(programs, WEIGHT_OF_PROGRAMS)
        if weigher is not None:
            (programs / "cgroup.procs").write_text(str(weigher))


def _cpu_hierarchies() -> list[Path]:
    """The trees that share out CPU time: `cpu` of version 1, or the one tree of version 2 when it does."""
    one = CGROUPS / "cgroup.subtree_control"
    if one.exists():
        return [CGROUPS] if "cpu" in one.read_text().split() else []
    return [tree for tree in _hierarchies() if (tree / "cpu.shares").exists() and not tree.is_symlink()]


def _weigh(group: Path, processes: int) -> None:
    """Let the group weigh as much as so many processes of the machine."""
    if (group / "cpu.shares").exists():
        (group / "cpu.shares").write_text(str(1024 * processes))
    elif (group / "cpu.weight").exists():
        (group / "cpu.weight").write_text(str(min(10000, 100 * processes)))


def cpu_weights(name: str) -> dict[str, int]:
    """What each group of the cluster weighs, by its path inside the cluster's own; nothing where CPU is not shared."""
    found = {}
    for tree in _cpu_hierarchies():
        for file in (*(tree / name).rglob("cpu.shares"), *(tree / name).rglob("cpu.weight")):
            found[str(file.parent.relative_to(tree / name))] = int(file.read_text())
    return found


def cgroup_processes(name: str) -> set[int]:
    """Every process in the cluster's pods."""
    groups = (tree / name / "kubepods" for tree in _hierarchies())
    files = (file for group in groups for file in group.rglob("cgroup.procs"))
    return {int(pid) for file in files for pid in file.read_text().split()}


def remove_cgroups(name: str) -> None:
    """Remove the cluster's control groups; the kernel lets go when the last process is buried."""
    until(
        f"control groups called {name} to go",
        lambda: _remove(tree / name for tree in _hierarchies()),
        timeout=20,
    )


def _remove(groups: Iterable[Path]) -> bool:
    gone = True
    for group in groups:
        for folder, _, _ in os.walk(group, topdown=False):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                gone = False
    return gone
