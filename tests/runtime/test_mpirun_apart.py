"""A real mpirun over ranks that share nothing but a network, as pods do.

Each has an address, a host name, processes and temporary files of its own (namespaces of Linux); the names of the
others do not resolve. Needs root and iproute2.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.gangs import QUICK
from tests.runtime.harness import environment, eventually, words
from tests.runtime.real_mpi import Mpi, expected, processes, real

__all__ = ["real"]
SIZE = 3
INSIDE = 'mount -t tmpfs tmpfs "$TMPDIR" && hostname "train-worker-0-$GPUFLOW_RANK" && exec "$@"'
APART = ("unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", INSIDE, "sh")


def ip(*given: str) -> None:
    subprocess.run(["ip", *given], check=True, capture_output=True)


class Pods:
    """So many hosts on one bridge, 10.77.0.10 and following."""

    def __init__(self, folder: Path) -> None:
        # Of its own: the kernel takes a while to remove devices.
        self.folder, self.name = folder, f"gf{os.urandom(4).hex()}"
        # A short path, at which every pod mounts its own.
        self.temporary = tempfile.mkdtemp(prefix="pods-", dir="/var/tmp")
        self.ranks: dict[int, subprocess.Popen[str]] = {}

    def make(self) -> None:
        ip("link", "add", self.name, "type", "bridge")
        ip("link", "set", self.name, "up")
        for rank in range(SIZE):
            host, link = f"{self.name}-{rank}", f"{self.name}v{rank}"
            ip("netns", "add", host)
            ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", host)
            ip("link", "set", link, "master", self.name, "up")
            ip("-n", host, "addr", "add", f"10.77.0.{10 + rank}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", host, "link", "set", device, "up")

    def start(self, slots: int, *program: str) -> None:
        """The program on every pod, with 2 slots; `slots` of rank 0."""
        for rank in reversed(range(SIZE)):
            own = self.folder / str(rank)
            own.mkdir()
            (own / "log").touch()
            environ = {
                "GPUFLOW_RANK": str(rank),
                "GPUFLOW_LEADER": "10.77.0.10",
                "GPUFLOW_GANG": "gang-1",
                "GPUFLOW_GANG_TIMES": QUICK,
                "GPUFLOW_RUN_TERMINATION_LOG": str(own / "log"),
                "TMPDIR": self.temporary,
                "OWN": str(own),
            }
            options = ("--gang", SIZE, "--grace", "5s", "--mpi", 2 if rank else slots, "--", *program)
            self.ranks[rank] = subprocess.Popen(
                ["ip", "netns", "exec", f"{self.name}-{rank}", *APART, *words(*options)],
                env=environment(environ),
                stdin=subprocess.DEVNULL,
                stdout=(own / "out").open("w"),
                stderr=(own / "err").open("w"),
                text=True,
            )

    def codes(self) -> list[int]:
        return [self.ranks[rank].wait(60) for rank in range(SIZE)]

    def text(self, rank: int, name: str) -> str:
        return (self.folder / str(rank) / name).read_text()

    def end(self) -> None:
        for process in self.ranks.values():
            process.kill()
            process.wait()
        for rank in range(SIZE):
            subprocess.run(["ip", "netns", "del", f"{self.name}-{rank}"], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.name], check=False, capture_output=True)
        shutil.rmtree(self.temporary)


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    if shutil.which("ip") is None or shutil.which("unshare") is None:
        pytest.skip("ip (iproute2) or unshare (util-linux) is not installed here")
    allowed = subprocess.run([*APART[:5], "--net", "true"], capture_output=True)
    if allowed.returncode:
        pytest.skip("namespaces cannot be made here: this needs root")
    made = Pods(tmp_path)
    try:
        made.make()
        yield made
    finally:
        made.end()


@pytest.mark.parametrize("slots", [2, 0])
def test_mpirun_reaches_ranks_whose_names_do_not_resolve(real: Mpi, pods: Pods, slots: int) -> None:
    pods.start(slots, real.mpirun, real.program)
    assert pods.codes() == [0, 0, 0], [pods.text(rank, "err") for rank in range(SIZE)]
    assert processes(pods.text(0, "out")) == expected("001122" if slots else "1122")


@pytest.mark.parametrize("how", ["killed", "cut off"])
def test_a_pod_that_is_lost_is_an_interruption(real: Mpi, pods: Pods, how: str) -> None:
    pods.start(2, real.mpirun, real.program, "wait")
    eventually(lambda: len(processes(pods.text(0, "out"))) == 6)
    if how == "killed":
        pods.ranks[2].kill()
    else:
        ip("link", "set", f"{pods.name}v2", "down")
    codes = pods.codes()
    assert codes[:2] == [75, 75], [pods.text(rank, "err") for rank in range(SIZE)]
    assert how == "killed" or codes[2] == 75, "it has lost rank 0, and ends too"
    assert '"outcome": "interrupted"' in pods.text(0, "log")
