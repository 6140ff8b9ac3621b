"""The kill test: a toy training, killed at random moments in every way a cluster knows, must end as if undisturbed.

By hand, with hundreds of kills: `python -m tests.runtime.killing --kills 300 [--store s3://bucket/prefix]`.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gpuflow.runtime import identity
from gpuflow.runtime.ledger import Ledger
from gpuflow.runtime.records import Success
from gpuflow.runtime.store import open_store, persist

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ON_TERM = ("save", "save", "zero", "ignore")
WAYS = ("term", "term", "container", "container", "supervisor", "overlap")


class Report:
    """What a kill test saw."""

    def __init__(self) -> None:
        self.ways: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.corrupt: list[str] = []
        self.false_green: list[str] = []
        self.digest: str | None = None
        self.expected: str = ""
        self.fresh_starts = 0
        self.seconds = 0.0

    @property
    def kills(self) -> int:
        return sum(self.ways.values())


def start(folder: Path, node: str, store: str, steps: int, pause: float, on_term: str) -> subprocess.Popen[bytes]:
    """One attempt in a session of its own, as in a container of its own."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TOY_STEPS": str(steps),
        "TOY_PAUSE": str(pause),
        "TOY_EVERY": "5",
        "TOY_ON_TERM": on_term,
        "TOY_CORRUPT": str(folder / "corrupt"),
    }
    words = [sys.executable, "-m", "gpuflow.runtime.main", "--checkpoint-dir", str(folder / node), "--store", store]
    words += ["--run-id", "kill", "--every", "0s", "--grace", "3s", "--output", "digest"]
    words += ["--outputs-dir", str(folder / f"out-{node}"), "--", sys.executable, str(HERE / "toy.py")]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(words, env=environ, stdout=log, stderr=log, start_new_session=True)


def end_session(leader: int) -> None:
    """SIGKILL for everything in a session at once: a container that is gone."""
    for _ in range(50):
        members = _session(leader)
        for pid in members:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not members:
            return
        time.sleep(0.01)


def _session(leader: int) -> list[int]:
    members = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == leader and fields[0] != "Z":
                members.append(int(entry))
    return members


def torture(folder: Path, store: str, *, kills: int, steps: int, seed: int) -> Report:
    """Kill until the budget of kills is used, then let it finish."""
    chance, report, began = random.Random(seed), Report(), time.monotonic()
    report.expected = undisturbed(steps)
    book = Ledger(open_store(store), identity.path("default", "kill", "default", None))
    leftover: list[subprocess.Popen[bytes]] = []
    pause = 0.6 * kills / steps  # slow enough that the work outlasts the kills
    node = 0
    while True:
        if chance.random() < 0.3:
            node += 1  # another machine: nothing of the old directory is there
            report.fresh_starts += 1
        last = report.kills >= kills
        attempt = start(folder, f"node-{node}", store, steps, 0.0 if last else pause, chance.choice(ON_TERM))
        try:
            code = attempt.wait(300 if last else chance.choice([0.05, 0.3, 0.8, 1.5]) * (0.5 + chance.random()))
        except subprocess.TimeoutExpired:
            code = None
        if code is None:
            way = chance.choice(WAYS)
            report.ways[way] += 1
            if way == "term":
                attempt.send_signal(signal.SIGTERM)
                code = attempt.wait(60)
            elif way == "supervisor":
                attempt.kill()
                code = attempt.wait(60)
                leftover.append(attempt)
            elif way == "overlap":
                leftover.append(attempt)
                node += 1
            else:
                end_session(attempt.pid)
                code = attempt.wait(60)
        for old in leftover[:-1]:
            end_session(old.pid)
            old.wait(60)
        del leftover[:-1]
        if code is not None:
            report.codes[code] += 1
        if code == 0:
            break
        if code is not None and (marker := _marker(book)) is not None:
            done = marker["outputs"]["digest"]["value"] == report.expected
            # SIGKILL may come between the marker and the exit; a supervisor that lives on must not say "failed" then.
            # An older attempt that is still alive may have written the marker after this one's end.
            denied = code > 0 and not leftover
            if denied or not done:
                report.false_green.append(f"code {code}: {marker}")
    for old in leftover:
        end_session(old.pid)
        old.wait(60)
    marker = _marker(book)
    report.digest = marker["outputs"]["digest"]["value"] if marker else None
    corrupt = folder / "corrupt"
    report.corrupt = corrupt.read_text().splitlines() if corrupt.exists() else []
    report.seconds = time.monotonic() - began
    return report


def _marker(book: Ledger) -> dict[str, Any] | None:
    """The success marker, asked for patiently: the network may be part of the test."""
    found = persist(book.success, time.monotonic() + 60)
    assert found is None or isinstance(found, Success)
    return None if found is None else found.plain()


def undisturbed(steps: int) -> str:
    """The digest a run without any kill ends with."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "GPUFLOW_CHECKPOINT_DIR": folder, "GPUFLOW_OUTPUTS": folder, "TOY_PAUSE": "0"}
        environ = {**environ, "TOY_STEPS": str(steps), "TOY_EVERY": str(steps + 1)}
        environ.pop("GPUFLOW_RESUME_FROM", None)
        subprocess.run([sys.executable, str(HERE / "toy.py")], env=environ, check=True)
        return (Path(folder) / "digest").read_text().strip()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpuflow-kill-"))
    report = torture(
        folder, options.store or str(folder / "store"), kills=options.kills, steps=options.steps, seed=options.seed
    )
    print(json.dumps({"kills": report.kills, "ways": report.ways, "exit codes": report.codes}))
    print(f"new machines: {report.fresh_starts}; seconds: {report.seconds:.0f}")
    print(f"same final state: {report.digest == report.expected}; corrupt restores: {len(report.corrupt)}")
    print(f"markers without success: {len(report.false_green)}")
    good = report.digest == report.expected and not report.corrupt and not report.false_green
    if good:
        shutil.rmtree(folder)
    else:
        print(f"see {folder}", *report.corrupt, *report.false_green, sep="\n")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
