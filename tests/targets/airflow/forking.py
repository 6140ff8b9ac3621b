"""Airflow's programs from one process that has imported Airflow: `Forks(python, environment).run("airflow", …)`.

An import of Airflow costs more than most of what the tests then ask of it. Each program is a fork of that process and
runs as `python -m MODULE` would: same module, same arguments, same environment, its own process. The process ends when
its owner does.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
IMPORTED = (
    "airflow.__main__",
    "airflow.api_fastapi.execution_api.app",
    "airflow.cli.commands.dag_command",
    "airflow.providers.cncf.kubernetes.operators.pod",
    "airflow.providers.standard.sensors.python",
    "airflow.sdk.execution_time.supervisor",
    "gpuflow.airflow.functions",
    "gpuflow.airflow.operator",
    "gpuflow.airflow.trigger",
)
"""What nearly every program here needs."""


class Running:
    """A program that was started; what a caller of `subprocess.Popen` knows."""

    def __init__(self, words: list[str], pid: int, code: Path, owner: object) -> None:
        self.args, self.pid, self._code = words, pid, code
        self.returncode: int | None = None
        self._owner = owner  # the folder of the code stays as long as somebody may ask for it

    def poll(self) -> int | None:
        if self.returncode is None and self._code.exists():
            self.returncode = int(self._code.read_text())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout or 0)
            time.sleep(0.05)
        return code

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Forks:
    """The process that has imported Airflow, with the environment that its programs get.

    `enter`: the words that bring it into another network.
    """

    def __init__(self, python: str, environment: Mapping[str, str], enter: Sequence[str] = ()) -> None:
        self.environment = dict(environment)
        self._folder = _Folder()
        self._started = 0
        self._process = subprocess.Popen(
            [*enter, python, "-m", "tests.targets.airflow.forking"],
            env=self.environment, cwd=ROOT, stdin=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.close = weakref.finalize(self, _ended, self._process)

    def start(self, *words: str, log: Path, session: bool = False, **environment: str) -> Running:
        """Start `python -m words…`, with both of its streams in one file, and these variables besides."""
        self._started += 1
        place = self._folder.path / str(self._started)
        order = {"words": words, "log": str(log), "place": str(place), "session": session, "more": environment}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        pid = place.with_suffix(".pid")
        while not pid.exists():
            assert self._process.poll() is None, f"the process that starts {words} has ended"
            time.sleep(0.02)
        return Running(list(words), int(pid.read_text()), place.with_suffix(".code"), self._folder)

    def run(self, *words: str, timeout: float) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        log = self._folder.path / f"{self._started}.log"
        running = self.start(*words, log=log)
        try:
            code = running.wait(timeout)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
        return subprocess.CompletedProcess(list(words), code, log.read_text(errors="replace"), "")


class _Folder:
    """A folder that goes with the last who holds it."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="forks-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def _ended(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    _make_api()
    for line in sys.stdin:
        order = json.loads(line)
        if (name := order["words"][0]) != "airflow":
            importlib.import_module(name)  # here, so that the next one has it too
        if not os.fork():
            _keep(order)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _make_api() -> None:
    """What `dags test` asks instead of an API server: Airflow 3.3 makes one for a process, 3.2 one for each task."""
    api = importlib.import_module("airflow.sdk.execution_time.supervisor").in_process_api_server
    if hasattr(api, "cache_info"):
        assert api().app


def _keep(order: Mapping[str, Any]) -> None:
    """Start the program, and write down its process and how it ended; never returns."""
    try:
        child = os.fork()
        if not child:
            _be(order)
        _write(Path(order["place"] + ".pid"), child)
        _, status = os.waitpid(child, 0)
        _write(Path(order["place"] + ".code"), os.waitstatus_to_exitcode(status))
    finally:
        os._exit(0)


def _write(file: Path, number: int) -> None:
    with contextlib.suppress(FileNotFoundError):  # the owner has gone
        partial = file.with_suffix(".new" + file.suffix)
        partial.write_text(str(number))
        partial.replace(file)


def _be(order: Mapping[str, Any]) -> None:
    """Be `python -m words…`; never returns."""
    code = 1
    try:
        if order["session"]:
            os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ.update(order["more"])
        name, *words = order["words"]
        sys.argv = [name, *words]
        runpy.run_module(name, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
