"""A gang on this machine: one gpuflow-run per rank, as a process of its own, all told that rank 0 is at 127.0.0.1."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.runtime.harness import eventually, free_port, start

QUICK = "beat=0.2,lost=3,settle=4,linger=0.8"


class Gang:
    """N ranks with the same options. Each rank's own folder is `<folder>/<rank>`."""

    def __init__(self, folder: Path, size: int, *, name: str = "gang-1", times: str = QUICK) -> None:
        self.folder, self.size, self.name, self.times = folder, size, name, times
        self.port = free_port()
        self.ranks: dict[int, subprocess.Popen[str]] = {}

    def environ(self, rank: int) -> dict[str, str]:
        own = self.folder / str(rank)
        own.mkdir(parents=True, exist_ok=True)
        (own / "log").touch()
        return {
            "GPUFLOW_RANK": str(rank),
            "GPUFLOW_LEADER": "127.0.0.1",
            "GPUFLOW_GANG": self.name,
            "GPUFLOW_GANG_TIMES": self.times,
            "GPUFLOW_RUN_TERMINATION_LOG": str(own / "log"),
            "HERE": str(self.folder),
            "OWN": str(own),
        }

    def start(
        self, *words: object, ranks: Sequence[int] | None = None, environ: Mapping[str, str] | None = None
    ) -> None:
        """Start these ranks, rank 0 last: the others wait for it."""
        for rank in sorted(range(self.size) if ranks is None else ranks, reverse=True):
            options = ("--gang", self.size, "--gang-port", self.port, "--grace", "5s")
            self.ranks[rank] = start(*options, *words, environ={**self.environ(rank), **(environ or {})})

    def run(self, *words: object) -> dict[int, int]:
        self.start(*words)
        return self.codes()

    def codes(self, seconds: float = 120.0) -> dict[int, int]:
        """Every rank's exit code."""
        until = time.monotonic() + seconds
        return {rank: each.wait(max(0.1, until - time.monotonic())) for rank, each in sorted(self.ranks.items())}

    def all_end_with(self, code: int) -> bool:
        found = self.codes()
        assert set(found.values()) == {code}, (found, self.said())
        return True

    def are_up(self) -> None:
        """Wait until the command runs on every rank: it writes `up`."""
        eventually(lambda: all((self.folder / str(rank) / "up").exists() for rank in self.ranks))

    def send(self, rank: int, number: signal.Signals) -> None:
        self.ranks[rank].send_signal(number)

    def said(self, rank: int | None = None) -> str:
        """What the supervisors said; once, when all have ended."""
        found = self._ends()
        return "\n".join(end[1] for end in found.values()) if rank is None else found[rank][1]

    def printed(self, rank: int) -> str:
        """What the command of a rank printed, when all have ended."""
        return self._ends()[rank][0]

    def _ends(self) -> dict[int, tuple[str, str]]:
        if not hasattr(self, "_said"):
            # All at once: a rank whose output nobody reads waits, and the others for it.
            with ThreadPoolExecutor(len(self.ranks)) as readers:
                found = readers.map(lambda process: process.communicate(timeout=120), self.ranks.values())
                self._said = dict(zip(self.ranks, found, strict=True))
        return self._said

    def last_words(self, rank: int) -> str:
        return (self.folder / str(rank) / "log").read_text()


def strangers_say(port: int, data: bytes, *, wait: float = 5.0) -> bytes:
    """What rank 0 answers to someone who connects and sends this."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), 5)
    except ConnectionRefusedError:
        return b""  # nobody listens yet
    with connection:
        connection.settimeout(wait)
        try:
            connection.sendall(data)
            connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass
        answer = b""
        try:
            while part := connection.recv(65536):
                answer += part
        except OSError:
            pass
        return answer


def orphans_of(folder: Path) -> list[int]:
    """Living processes that were started with this folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if re.fullmatch(r"\d+", entry.name) and int(entry.name) != os.getpid():
            try:
                if f"HERE={folder}".encode() in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found
