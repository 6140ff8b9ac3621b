"""The artifacts' kill test: steps are killed while they keep an output, and while they fetch an input.

Whatever lies in the store after each kill is offered to a consumer, which is killed too, and goes on at the same path.
Its program says of what it was given whether it is whole and of one attempt. In the end the
producer succeeds, and its artifact must be accepted.

By hand, in rounds that can be taken up again: `python -m proofs artifacts --count 300 --seed 1`, or
`python -m proofs artifacts --count 100 --seed 1 --stores local moto seaweedfs`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from gpuflow.runtime.stores.open import open_store
from proofs.supervisor_kills import end_session
from tests.runtime.servers import BUCKET, s3_server

ROOT = Path(__file__).resolve().parents[1]
STORES = ("local", "moto", "seaweedfs")
A_ROUND = 12
PROGRAM = str(ROOT / "tests" / "runtime" / "artifact_tree.py")
COMMITS = ("manifest.json", "success")


class Report:
    """What a round saw."""

    def __init__(self) -> None:
        self.kills: Counter[str] = Counter()
        self.codes: Counter[str] = Counter()
        self.whole = 0
        self.bad: list[str] = []
        """What must never be: an artifact that is not whole was accepted, or a whole one was not."""

    def row(self) -> dict[str, Any]:
        return {
            "kills": sum(self.kills.values()),
            "when": dict(self.kills),
            "codes": dict(self.codes),
            "accepted": self.whole,
            "bad": self.bad,
        }


class Round:
    """Runs of a producer and its consumers at one store: with a key or without."""

    def __init__(self, folder: Path, store: str, seed: str) -> None:
        self.folder, self.store, self.seed = folder, store, seed
        self.chance = random.Random(seed)
        self.report = Report()
        self.verdicts, self.log = folder / "verdicts", folder / "killed"
        folder.mkdir(parents=True, exist_ok=True)
        self.more: list[str] = []
        if self.chance.random() < 0.5:
            (folder / "key").write_text("0123456789abcdef0123456789abcdef\n")
            self.more += ["--key-file", str(folder / "key")]
        self.own = self.chance.random() < 0.3
        """At a URI of its own instead of the root."""
        self.runs = 0

    def run(self, kills: int) -> Report:
        """Runs until so many were killed; each succeeds in the end."""
        number = 0
        while not self.runs or sum(self.report.kills.values()) < kills:
            self.runs += 1
            code = -1
            while code != 0:
                number += 1
                assert number < 20 * kills + 100, f"it never ends; the last words are in {self.folder}/log"
                enough = sum(self.report.kills.values()) >= kills
                code = self._start(self._producer(), "upload", killed=not enough)
                for uri in self._folders():
                    self._consume(uri, f"{number}", kills)
            uri = (self.folder / "out" / "m.uri").read_text()
            if self._start(self._consumer(uri, f"last-{self.runs}"), "download", killed=False) != 0:
                self.report.bad.append(f"{uri} was not accepted after success")
        lines = self.verdicts.read_text().splitlines()
        self.report.whole = lines.count("whole")
        self.report.bad += [line for line in lines if line != "whole"]
        return self.report

    def _producer(self) -> list[str]:
        words = [
            "--state",
            f"{self.store}/state",
            "--run-id",
            f"r{self.runs}",
            "--step",
            "make",
            "--output",
            "m:directory",
        ]
        words += ["--artifact", f"m={self.store}/own"] if self.own else ["--artifacts", f"{self.store}/root"]
        words += ["--outputs-dir", str(self.folder / "out"), "--grace", "3s", *self.more]
        make = f'exec "{sys.executable}" "{PROGRAM}" write "$GPUFLOW_OUTPUTS/m" "{self.seed}" "$GPUFLOW_ATTEMPT"'
        return [*words, "--", "sh", "-c", make]

    def _consumer(self, uri: str, name: str) -> list[str]:
        path = self.folder / "in" / name
        path.mkdir(parents=True, exist_ok=True)
        words = ["--run-id", "r", "--step", "read", "--input", f"{path}={uri}", "--storage-timeout", "2s"]
        words += self.more
        return [*words, "--", sys.executable, PROGRAM, "check", str(path), str(self.verdicts)]

    def _folders(self) -> list[str]:
        """The URI of everything that looks like an artifact, finished or not; of some if there are many."""
        place = f"{self.store}/own" if self.own else f"{self.store}/root"
        store, found = open_store(place), {}
        for key, _ in store.names(""):
            top, inside, _ = key.partition("/files/")
            if inside:
                found.setdefault(top, False)
            elif key.endswith("/manifest.json"):
                found[key[: -len("/manifest.json")]] = True
        uris = [store.url(f"{top}/files") for top in sorted(found)]
        return uris if len(uris) < 3 else self.chance.sample(uris, 2)

    def _consume(self, uri: str, name: str, kills: int) -> None:
        """A consumer, killed and started again at the same path, until it accepts or refuses."""
        name = f"{name}-{uri.split('/')[-2]}"
        for _ in range(4):
            killed = self.chance.random() < 0.8 and sum(self.report.kills.values()) < kills
            code = self._start(self._consumer(uri, name), "download", killed=killed)
            if code in (0, 78):
                break
            if code != -signal.SIGKILL:
                self.report.bad.append(f"the consumer of {uri} ended with {code}")
                break
        shutil.rmtree(self.folder / "in" / name, ignore_errors=True)

    def _start(self, words: list[str], phase: str, *, killed: bool) -> int:
        """One process, perhaps killed at one of its operations or at a moment; its exit code."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "KILL_LOG": str(self.log)}
        at_step = killed and self.chance.random() < 0.7
        if at_step:
            environ["KILL_AT"] = str(self.chance.randint(1, 110))
        before = len(self.log.read_text().splitlines()) if self.log.exists() else 0
        module = "tests.runtime.killed_at" if at_step else "gpuflow.runtime.supervise.main"
        with (self.folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *words], env=environ, stdout=log, stderr=log, start_new_session=True
            )
        try:
            limit = self.chance.uniform(0.2, 2.5) if killed and not at_step else 300
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            self.report.kills[f"{phase}, by a clock"] += 1
            end_session(process.pid)
            process.wait(60)
            code = -signal.SIGKILL
        end_session(process.pid)
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        for line in lines[before:]:
            commit = any(word in line for word in COMMITS) and phase == "upload"
            self.report.kills["commit" if commit else phase] += 1
        self.report.codes[f"{phase} {code}"] += 1
        return code


def prove(kills: int, seed: int, kind: str, progress: Path) -> list[dict[str, Any]]:
    """Rounds at one kind of store until there were so many kills; what is done is in the file, and not done again."""
    progress.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in progress.read_text().splitlines()] if progress.exists() else []
    mine = [row for row in rows if row["store"] == kind]
    folder = Path(tempfile.mkdtemp(prefix="gpuflow-artifacts-"))
    with contextlib.ExitStack() as servers:
        if kind != "local":
            (folder / "server").mkdir()
            servers.enter_context(s3_server(kind, folder / "server"))
        while sum(row["kills"] for row in mine) < kills:
            number = len(mine)
            place = folder / f"{number}"
            store = str(place / "store") if kind == "local" else f"s3://{BUCKET}/{seed}-{number}"
            report = Round(place, store, f"{seed}-{kind}-{number}").run(A_ROUND)
            row = {"store": kind, "round": number, **report.row()}
            row["see"] = str(place) if report.bad else None
            if not report.bad:
                shutil.rmtree(place)
            mine.append(row)
            with progress.open("a") as file:
                file.write(json.dumps(row) + "\n")
            print(json.dumps(row), flush=True)
    if not any(row["bad"] for row in mine):
        shutil.rmtree(folder, ignore_errors=True)
    return mine


def summary(kind: str, rows: list[dict[str, Any]]) -> str:
    when: Counter[str] = Counter()
    for row in rows:
        when.update(row["when"])
    parts = ", ".join(f"{count} in {phase}" for phase, count in sorted(when.items()))
    accepted, bad = sum(row["accepted"] for row in rows), sum(len(row["bad"]) for row in rows)
    return (
        f"{kind}: {sum(when.values())} kills ({parts}); {accepted} artifacts accepted, {bad} that should not have been"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs artifacts", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="at each kind of store")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stores", nargs="+", choices=STORES, default=list(STORES))
    parser.add_argument("--progress", type=Path)
    options = parser.parse_args()
    bad = False
    lines = []
    for kind in options.stores:
        progress = options.progress or ROOT / "build" / f"artifact-kills-{kind}-{options.seed}.jsonl"
        rows = prove(options.count, options.seed, kind, progress)
        lines.append(summary(kind, rows))
        bad = bad or any(row["bad"] for row in rows)
    print("\n".join(lines))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
