"""Running gpuflow-run as a user does: as a process of its own."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuflow.runtime import bundle

ROOT = Path(__file__).resolve().parents[2]


def words(*options: object) -> list[str]:
    return [sys.executable, "-m", "gpuflow.runtime.supervise.main", *map(str, options)]


OWN_DISK = 'ROOT, PLACE = "/", "/tmp"\n'
"""The line of the mounted program that says where compiled code is kept."""


def mount(folder: Path, root: str = "", place: str = "") -> Path:
    """The ConfigMap's files as a container sees them; the program among them. Compiled code stays in the folder."""
    (folder / "tmp").mkdir(parents=True)
    for name, text in bundle.files().items():
        own = f"ROOT, PLACE = {root or str(folder)!r}, {place or str(folder / 'tmp')!r}\n"
        (folder / name).write_text(text.replace(OWN_DISK, own), encoding="utf-8")
    return folder / bundle.FILE


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    plain = {key: value for key, value in os.environ.items() if not key.startswith("GPUFLOW_")}
    return {**plain, "PYTHONPATH": str(ROOT), **(extra or {})}


def start(*options: object, environ: Mapping[str, str] | None = None, cwd: Path | None = None) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        words(*options),
        env=environment(environ),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
    STARTED.append(process)
    return process


STARTED: list[subprocess.Popen[str]] = []


def end_started() -> None:
    """End what a test that failed has left running."""
    while STARTED:
        process = STARTED.pop()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def run(
    *options: object, environ: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words(*options),
        env=environment(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
    )


def python(code: str) -> Sequence[str]:
    """The words of a command that runs this Python code."""
    return ("--", sys.executable, "-c", code)


def shell(code: str) -> Sequence[str]:
    return ("--", "sh", "-c", code)


def eventually(true: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for something to become true; fail loudly when it does not."""
    until = time.monotonic() + seconds
    while not _is_true(true):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.01)


def _is_true(true: Callable[[], object]) -> bool:
    """A folder that goes away while it is listed is a folder that is not ready."""
    try:
        return bool(true())
    except FileNotFoundError:
        return False


def again(folder: Path, test: Callable[[Path], object], tries: int = 5) -> None:
    """For what happens at a moment, which a busy machine may miss: in one of a few tries it must be as it should be.
    Each has a folder of its own."""
    for number in range(1, tries + 1):
        own = folder / f"try-{number}"
        own.mkdir()
        try:
            test(own)
            return
        except AssertionError:
            if number == tries:
                raise
            end_started()


def hears_term(process: subprocess.Popen[Any]) -> bool:
    """Whether a supervisor is so far that it holds SIGTERM back: before, the signal would just end it.

    While it waits for the signal, the kernel does not show it as blocked; then its program runs.
    """
    status = Path(f"/proc/{process.pid}/status").read_text()
    blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:")).split()[1]
    program = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return bool(program or int(blocked, 16) >> (signal.SIGTERM - 1) & 1)


def clock_of_files_ticks(folder: Path) -> None:
    """Return when what is written next is younger than what was written before, as the file system sees it."""
    probe = folder.parent / f"{folder.name}.clock"

    def now() -> int:
        probe.write_text("")
        return probe.stat().st_ctime_ns

    before = now()
    eventually(lambda: now() > before)
    probe.unlink()


_PORTS = itertools.count(os.getpid() * 211)


def free_port() -> int:
    """A port that nobody listens on. It lies below those that the system gives to connections, and no other test of
    this process gets it."""
    while True:
        port = 10_000 + next(_PORTS) % 20_000
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("", port))
            return port
