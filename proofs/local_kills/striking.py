"""One pipeline under `gpuflow run` in a folder of its own, undisturbed or hurt at random moments."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpuflow.local.attempt import kill_all
from tests.conftest import ROOT
from tests.local.programs import marked

LIMIT = 120.0
"""Seconds after which a run hangs."""
RUN_WAYS = ("run-term", "run-term", "run-int", "run-twice", "run-kill", "run-kill", "run-kill", "everything")
OTHER_WAYS = ("supervisor", "supervisor", "program", "program-term", "group")
HARMLESS = (0, 1, 75, 130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT)
"""How a run may end that was hurt: done, a step's budget spent, stopped, or ended before it could listen."""

RUNNING: dict[subprocess.Popen[str], Path] = {}
"""Runs that go on, and their folders."""


def end_all() -> None:
    """End what still runs of every scene."""
    for process, folder in [*RUNNING.items()]:
        process.kill()
        kill_all(str(folder))


@dataclass
class Turn:
    """One start of `gpuflow run`, and what was done to it."""

    code: int
    said: dict[str, Any]
    lines: str
    strikes: Counter[str] = field(default_factory=Counter)


class Scene:
    """A folder in which one pipeline is run."""

    def __init__(self, folder: Path, document: dict[str, Any], approve: list[str]) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "kills.yaml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
        self.words = ["run", "kills.yaml", "--format", "json", "--jobs", "4"]
        self.words += [word for name in approve for word in ("--approve", name)]

    def start(self, *more: str) -> subprocess.Popen[str]:
        """`gpuflow run` as a process."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1", "KILLS_PLACE": str(self.folder)}
        process = subprocess.Popen(
            [sys.executable, "-m", "gpuflow", *self.words, *more],
            cwd=self.folder,
            env=environ,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        RUNNING[process] = self.folder
        return process

    def run_folder(self) -> Path | None:
        """The run, once there is one."""
        return next((path.parent for path in self.folder.glob(".gpuflow/runs/*/run.json")), None)

    def finish(self, process: subprocess.Popen[str], strikes: Counter[str] | None = None) -> Turn:
        """Wait for its end; a run that hangs is ended, and says so by its code."""
        try:
            out, err = process.communicate(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            return Turn(124, {}, f"it still ran after {LIMIT:.0f} s\n{err}", strikes or Counter())
        try:
            said = json.loads(out) if out.strip() else {}
        except ValueError:
            said = {}
        RUNNING.pop(process)
        return Turn(process.returncode, said, err, strikes or Counter())

    def turn(self, chance: random.Random | None, seconds: float) -> Turn:
        """Run it, or go on with it. `seconds`: as long as an undisturbed run takes. Without chance it is left alone."""
        resumed = ["--resume"] if self.run_folder() is not None else []
        process = self.start(*resumed)
        strikes: Counter[str] = Counter()
        if chance is None:
            return self.finish(process)
        # Nobody reads its pipes meanwhile; what it says fits into them.
        for _ in range(chance.choice((1, 1, 2, 3))):
            self._await_moment(process, chance, seconds)
            if process.poll() is not None:
                break
            way = chance.choice(RUN_WAYS + OTHER_WAYS)
            hits = self._strike(process, way, chance)
            if not hits:  # no program runs just now
                way, hits = "run-kill", self._strike(process, "run-kill", chance)
            strikes[way] += hits
            if way in RUN_WAYS:
                break
        else:
            if chance.random() < 0.7 and process.poll() is None:
                self._await_moment(process, chance, seconds)
                way = chance.choice(RUN_WAYS)
                strikes[way] += self._strike(process, way, chance)
        return self.finish(process, +strikes)

    def _await_moment(self, process: subprocess.Popen[str], chance: random.Random, seconds: float) -> None:
        """Wait for a moment of the clock, or right for the next event of the run or of a program."""
        if chance.random() < 0.5:
            until = time.monotonic() + chance.uniform(0.05, max(0.4, 0.75 * seconds))
            while time.monotonic() < until and process.poll() is None:
                time.sleep(0.005)
            return
        until = time.monotonic() + seconds
        wanted = self._events() + chance.randint(1, 6)
        while self._events() < wanted and process.poll() is None and time.monotonic() < until:
            time.sleep(0.002)
        time.sleep(chance.choice((0, 0, 0.005, 0.03)))

    def _events(self) -> int:
        """How many lines the run and its programs have written."""
        found = 0
        for path in (self.folder / "journal", *self.folder.glob(".gpuflow/runs/*/journal.jsonl")):
            with contextlib.suppress(OSError):
                found += path.read_bytes().count(b"\n")
        return found

    def _strike(self, process: subprocess.Popen[str], way: str, chance: random.Random) -> int:
        """Hurt something that is there; 0 when nothing was."""
        signals = {"run-term": signal.SIGTERM, "run-int": signal.SIGINT, "run-kill": signal.SIGKILL}
        if way in signals:
            process.send_signal(signals[way])
            return 1
        if way == "run-twice":
            process.terminate()
            time.sleep(chance.uniform(0.02, 0.3))
            process.terminate()
            return 1
        if way == "everything":
            process.kill()
            kill_all(str(self.folder))
            return 1
        found = [pid for pid in marked(self.folder) if is_supervisor(pid) != way.startswith("program")]
        if not found:
            return 0
        pid = chance.choice(found)
        try:
            if way == "group":
                session = os.getsid(pid)
                if session in (0, os.getsid(0)):  # of a process that is just going; 0 would be this program's own
                    return 0
                os.killpg(session, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGTERM if way == "program-term" else signal.SIGKILL)
        except ProcessLookupError:
            return 0
        return 1

    def twins(self) -> list[Turn]:
        """Go on with it in two processes at the same time."""
        both = [self.start("--resume") for _ in range(2)]
        return [self.finish(each) for each in both]

    def left(self) -> list[int]:
        """What still runs some seconds after the end."""
        until = time.monotonic() + 15
        while (found := marked(self.folder)) and time.monotonic() < until:
            time.sleep(0.05)
        return found


def is_supervisor(pid: int) -> bool:
    try:
        return b"supervise.main" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
