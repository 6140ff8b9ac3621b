"""A cluster leaves the machine as it found it, also when it is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..engines import build
from .cluster import CONTROL_PLANE, Cluster
from .fixtures import lacking
from .keeper import PRETENDED_SYSCTLS, PRIVATE_FOLDERS
from .layout import Layout
from .machine import CGROUPS, MachineError, cgroup_processes, require
from .pods import pod
from .waiting import until

NAME = "lifecycle"
ROOT = Path(__file__).resolve().parents[2]
# Where Kubernetes, containerd, network plugins and Kueue write when nobody stops them.
WRITTEN_FOLDERS = (
    "/etc/cni",
    "/etc/kueue",
    "/opt/cni",
    "/opt/containerd",
    "/run/containerd",
    "/run/kubernetes",
    "/run/netns",
    "/usr/libexec/kubernetes",
    "/var/lib/cni",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/log/containers",
    "/var/log/pods",
)


def machine_state() -> dict[str, object]:
    """Everything a cluster could change on a machine."""
    return {
        "mounts": mounts(),
        "sysctls": {name: Path("/proc/sys", name).read_text() for name in PRETENDED_SYSCTLS},
        "forwarding": Path("/proc/sys/net/ipv4/ip_forward").read_text(),
        "interfaces": sorted(os.listdir("/sys/class/net")),
        "folders": {name: sorted(os.listdir(name)) for name in WRITTEN_FOLDERS if os.path.isdir(name)},
        "control groups": sorted(str(path) for path in CGROUPS.rglob(f"gpuflow-{NAME}*")),
        "processes": processes(),
    }


def mounts() -> list[str]:
    """The mounts where a cluster makes any: other programs may come and go elsewhere."""
    places = ("/proc", *PRIVATE_FOLDERS, str(Layout(NAME).run))
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line for line in lines if line.split()[1].startswith(places)]


def processes() -> list[str]:
    """The command lines that mention this cluster's run directory; a zombie has none."""
    place = str(Layout(NAME).run)
    lines = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = file.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if place in line:
            lines.append(line)
    return lines


@pytest.fixture
def before() -> Iterator[dict[str, object]]:
    try:
        require(build.cache(), node=False)
        build.build(CONTROL_PLANE)
    except (MachineError, build.BuildError) as error:
        lacking(str(error))
    Cluster.down(NAME)
    yield machine_state()
    Cluster.down(NAME)


def begin(*options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.cluster", "--name", NAME, "up", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def begun() -> subprocess.Popen[str]:
    process = begin("--control-plane")
    until("the API server's process", lambda: any("kube-apiserver" in line for line in processes()))
    return process


@pytest.mark.control_plane
def test_up_and_down_leave_nothing(before: dict[str, object]) -> None:
    output, _ = begin("--control-plane").communicate()
    assert "up; use it" in output
    assert processes()
    assert Cluster.down(NAME)
    assert machine_state() == before
    assert not Layout(NAME).run.exists()


@pytest.mark.control_plane
def test_ctrl_c_during_up_leaves_nothing(before: dict[str, object]) -> None:
    process = begun()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate()
    assert "interrupted; nothing was left running" in output
    assert process.returncode == 130
    assert machine_state() == before
    assert not Layout(NAME).run.exists()


@pytest.mark.control_plane
def test_a_killed_up_takes_its_programs_with_it_and_the_next_up_works(before: dict[str, object]) -> None:
    process = begun()
    process.kill()
    process.wait()
    until("the programs to end", lambda: not processes())
    assert Cluster.find(NAME) is None
    output, _ = begin("--control-plane").communicate()
    assert "up; use it" in output
    assert Cluster.down(NAME)
    assert machine_state() == before


@pytest.mark.control_plane
def test_a_cluster_whose_first_process_was_killed_is_dead_and_down_clears_it(before: dict[str, object]) -> None:
    begin("--control-plane").communicate()
    cluster = Cluster.find(NAME)
    assert cluster is not None
    os.kill(cluster.sandbox.pid, signal.SIGKILL)
    until("the programs to end", lambda: not processes())
    assert Cluster.find(NAME) is None
    assert Cluster.down(NAME)
    assert machine_state() == before
    assert not Layout(NAME).run.exists()


@pytest.mark.cluster
def test_a_node_that_dies_with_its_pods_leaves_nothing(before: dict[str, object]) -> None:
    output, _ = begin().communicate()
    cluster = Cluster.find(NAME)
    assert cluster is not None, output
    until("the service account", lambda: cluster.kube.get("serviceaccount", "default"))
    cluster.kube.create(pod("running", cluster.image("busybox"), ["sleep", "600"]))
    cluster.kube.await_pod("running", "Running")
    in_pods = cgroup_processes(cluster.layout.cgroup)
    assert in_pods
    os.kill(cluster.sandbox.pid, signal.SIGKILL)
    until("the pods' processes to end", lambda: not cgroup_processes(cluster.layout.cgroup))
    assert Cluster.down(NAME)
    assert machine_state() == before
    assert not Layout(NAME).run.exists()
