"""The outside of the cluster's namespaces: launch, start and stop programs in them, enter, end."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from . import keeper
from .waiting import until

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LISTENING = "0A"


class ProgramError(RuntimeError):
    """A program of the cluster did not start or did not live; the message ends with its log."""


class Sandbox:
    """A running keeper, known by the socket in its run directory; there are no process ids to go stale."""

    def __init__(self, run: Path, process: subprocess.Popen[bytes] | None = None) -> None:
        self.run = run
        self.process = process

    @classmethod
    def launch(cls, run: Path, address: str) -> Sandbox:
        """Start a keeper; it dies with this process until `settle` is called."""
        (run / "log").mkdir()
        namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child=SIGKILL", "--"]
        command = [os.path.realpath(sys.executable), "-I", keeper.__file__, str(run), address]
        with (run / "log" / "keeper.log").open("w") as log:
            process = subprocess.Popen(
                [*namespaces, *command],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": PATH},
            )
        sandbox = cls(run, process)
        until(
            "the cluster's namespaces",
            lambda: sandbox.alive() or process.poll() is not None,
            timeout=20,
            every=0.02,
            otherwise=lambda: sandbox.log("keeper"),
        )
        if not sandbox.alive():
            raise ProgramError(f"the cluster's namespaces could not be made:\n{sandbox.log('keeper')}")
        return sandbox

    def settle(self) -> None:
        """From now on the keeper lives until `end`, whatever happens to this process."""
        assert self.process is not None
        assert self.process.stdin is not None
        self.process.stdin.write(b"ready\n")
        self.process.stdin.close()

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(20)
        try:
            connection.connect(str(self.run / "keeper.sock"))
        except BaseException:
            connection.close()
            raise
        return connection

    def alive(self) -> bool:
        try:
            self._connect().close()
        except OSError:
            return False
        return True

    @property
    def pid(self) -> int:
        """The keeper's process id as this process sees it, told by the kernel."""
        with self._connect() as connection:
            size = struct.calcsize("3i")
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
        return int(struct.unpack("3i", credentials)[0])

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._connect() as connection, connection.makefile("r") as stream:
            # Not by the stream: interrupted here, it would send once more when it is closed, perhaps to nobody.
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(stream.readline())
        if "error" in answer:
            raise ProgramError(answer["error"])
        return answer

    def start(self, name: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
        environment = {"PATH": PATH, "HOME": str(self.run), **env}
        self._ask(do="start", name=name, argv=[str(word) for word in argv], env=environment)

    def running(self) -> dict[str, int]:
        """Each running program with its process id inside the namespaces."""
        found: dict[str, int] = self._ask(do="status")["running"]
        return found

    def stop(self, name: str, how: signal.Signals = signal.SIGTERM, patience: float = 10.0) -> None:
        """Signal a program and wait until it is gone; kill it when it does not listen."""
        for number in (how, signal.SIGKILL):
            if name not in self.running():
                return
            self._ask(do="signal", name=name, number=int(number))
            with contextlib.suppress(AssertionError):
                until(f"{name} to end", lambda: name not in self.running(), timeout=patience, every=0.05)
        if name in self.running():
            raise ProgramError(f"{name} cannot be killed")

    def listening(self, port: int) -> bool:
        """Whether something inside the network namespace listens on a TCP port."""
        suffix = f":{port:04X}"
        for table in ("tcp", "tcp6"):
            rows = Path(f"/proc/{self.pid}/net/{table}").read_text().splitlines()[1:]
            if any(row.split()[1].endswith(suffix) and row.split()[3] == LISTENING for row in rows):
                return True
        return False

    def await_port(self, name: str, port: int, timeout: float = 60.0) -> None:
        """Wait until program `name` serves `port`; say at once when it has died instead."""

        def look() -> bool:
            if name not in self.running():
                raise ProgramError(f"{name} ended:\n{self.log(name)}")
            return self.listening(port)

        until(f"{name} on port {port}", look, timeout=timeout, every=0.1, otherwise=lambda: self.log(name))

    def log(self, name: str, lines: int = 15) -> str:
        file = self.run / "log" / f"{name}.log"
        text = file.read_text(errors="replace") if file.exists() else ""
        return "\n".join(text.splitlines()[-lines:]) or "(nothing was logged)"

    @property
    def enter(self) -> tuple[str, ...]:
        """The words before a command that make it run in the cluster's network, and change nothing else."""
        return ("nsenter", f"--net=/proc/{self.pid}/ns/net", "--")

    def path(self, inside: str) -> Path:
        """A path of the cluster's own file system view, seen from here."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def end(self) -> None:
        """Kill the keeper and with it everything in its namespaces; returns when the kernel is through."""
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(self.pid)
            try:
                signal.pidfd_send_signal(handle, signal.SIGKILL)
                select.select([handle], [], [], 30)
            finally:
                os.close(handle)
        if self.process is not None:
            if self.process.stdin is not None:
                self.process.stdin.close()
            self.process.wait(30)
