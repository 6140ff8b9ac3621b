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
    _packages(CONTROL_PLANE_TOOLS | NODE_TOOLS if node else CONTROL_PLANE_TOOLS)


def _packages(tools: dict[str, str]) -> None:
    packages = sorted({package for tool, package in tools.items() if not shutil.which(tool)})
    if not packages:
        return
    install = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *packages]
    if not shutil.which("apt-get"):
        raise MachineError(f"missing on this machine: the programs of the Debian packages {', '.join(packages)}")
    print(f"installing Debian packages: {' '.join(packages)}", flush=True)
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


def make_cgroups(name: str) -> None:
    for tree in _hierarchies():
        (tree / name).mkdir(exist_ok=True)


def cgroup_processes(name: str) -> set[int]:
    """Every process in the cluster's control groups, that is, in its pods."""
    files = (file for tree in _hierarchies() for file in (tree / name).rglob("cgroup.procs"))
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
