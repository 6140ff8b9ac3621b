"""Gangs whose checkpoints have a part from each rank, killed at random moments: the end is that of an undisturbed run.

    python -m proofs.shards --count 100 --seed 1 [--training fsdp]

Whatever is killed, every checkpoint that exists is whole, nothing else is resumed from, and the last attempt ends with
the same bits. `toy` needs the standard library only; `fsdp` is a real one, four processes with PyTorch and gloo.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from proofs.supervisor_kills import end_session
from tests.runtime import shard_toy_digest
from tests.runtime.gangs import Gang
from tests.runtime.harness import free_port

SIZE = 4
ROOT = Path(__file__).resolve().parents[1]
TOY = ROOT / "tests" / "runtime" / "shard_toy.py"
WAYS = ("container", "supervisor", "program", "all", "term")
MOMENTS = ("any", "any", "upload")
"""An upload is caught about every third time: its files lie in the store, and its manifest does not yet."""


class Killing:
    """One run in a folder, attempt after attempt, until it succeeds."""

    def __init__(self, folder: Path, training: str, kills: int, seed: str) -> None:
        self.folder, self.training, self.kills = folder, training, kills
        self.chance = random.Random(seed)
        self.killed: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.resumed = 0
        self.stale: set[str] = set()
        # More than the attempts that are killed can do.
        self.steps = 60 + 120 * kills if training == "toy" else 24 + 50 * kills
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def run(self) -> str:
        """Kill so often, then let it end; the digest that its success marker has."""
        for attempt in range(3 * self.kills + 10):
            if self.attempt(last=self.killed.total() >= self.kills):
                break
            print(f"attempt {attempt + 1}: {dict(self.killed)}", flush=True)
        else:
            raise AssertionError("it never ends")
        assert self.killed.total() == self.kills, f"it ended after {self.killed.total()} kills"
        corrupt = self.folder / "corrupt"
        assert not corrupt.exists(), corrupt.read_text()
        (marker,) = (json.loads(path.read_text()) for path in self.store.rglob("success*.json"))
        return str(marker["outputs"]["digest"]["value"])

    def attempt(self, *, last: bool) -> bool:
        """One attempt, killed unless it is the last; whether it succeeded."""
        gang = Gang(self.folder, SIZE, times="beat=0.2,lost=4,settle=8,linger=1")
        for up in self.folder.glob("up-*"):
            up.unlink()
        way, moment, victim = self.chance.choice(WAYS), self.chance.choice(MOMENTS), self.chance.randrange(SIZE)
        delay = self.chance.random() * (3.0 if self.training == "toy" else 6.0)
        self.stale = set(self.unfinished())
        ranks = self.start(gang, quick=last)
        try:
            # Also before the programs run, unless one of them is to be killed: while the ranks meet, and restore.
            early = self.training == "toy" and delay < 0.6 and way != "program"
            if not last and self.wait(ranks, moment, delay, early=early):
                self.disturb(way, victim, ranks)
                self.killed[f"{way}, {moment}"] += 1
            self.leave(ranks, gang)
        finally:
            for each in ranks.values():
                end_session(each.pid)
        self.see_that_all_is_whole()
        self.resumed += "resumes from" in self.log(gang, 0)
        # A supervisor that is told to stop before it can hear ends of the signal itself.
        deaf = (-signal.SIGKILL, -signal.SIGTERM)
        found = {each.returncode for each in ranks.values() if each.returncode not in deaf}
        assert len(found) <= 1, (way, victim, found, self.logs(gang))
        assert not found & {3, 78, 79}, (way, victim, found, self.logs(gang))
        self.codes.update(found)
        return ranks[0].returncode == 0

    def start(self, gang: Gang, *, quick: bool) -> dict[int, subprocess.Popen[bytes]]:
        """Every rank in a session of its own, as in a container of its own, with a directory of its own."""
        port, found = str(free_port()), {}
        for rank in reversed(range(SIZE)):
            words = [
                sys.executable,
                "-m",
                "gpuflow.runtime.supervise.main",
                "--gang",
                str(SIZE),
                "--gang-port",
                str(gang.port),
            ]
            words += ["--sharded", "--checkpoint-dir", str(self.folder / f"c{rank}"), "--store", str(self.store)]
            words += ["--run-id", "kill", "--every", "0s", "--grace", "6s", "--failures", "9999"]
            words += ["--interruptions", "9999", "--output", "digest", "--outputs-dir", str(self.folder / "out")]
            environ = {**os.environ, **gang.environ(rank), "GPUFLOW_WORLD_SIZE": str(SIZE), "PYTHONPATH": str(ROOT)}
            if self.training == "toy":
                environ |= {"TOY_PORT": port, "TOY_STEPS": str(self.steps), "TOY_PAUSE": "0.001" if quick else "0.08"}
                environ |= {"TOY_CORRUPT": str(self.folder / "corrupt")}
                words += ["--", sys.executable, str(TOY)]
            else:
                environ |= {"RANK": str(rank), "WORLD_SIZE": str(SIZE), "MASTER_ADDR": "127.0.0.1"}
                environ |= {"MASTER_PORT": port, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
                words += ["--", sys.executable, "-m", "tests.runtime.shard_training", str(self.folder)]
                words += [f"steps={self.steps}", "every=3", f"pause={0 if quick else 0.25}"]
            with (self.folder / f"log-{gang.port}-{rank}").open("ab") as log:
                found[rank] = subprocess.Popen(
                    words, env=environ, stdout=log, stderr=log, start_new_session=True, cwd=ROOT
                )
        return found

    def wait(self, ranks: dict[int, subprocess.Popen[bytes]], moment: str, delay: float, *, early: bool) -> bool:
        """Until the moment has come; False when the attempt has ended before it."""
        until = time.monotonic() + 120
        while not early and len(list(self.folder.glob("up-*"))) < SIZE:
            if ranks[0].poll() is not None or time.monotonic() > until:
                return False
            time.sleep(0.02)
        if moment == "upload" and not early:
            end = time.monotonic() + 6
            while time.monotonic() < end:
                if set(self.unfinished()) - self.stale:
                    return True
                time.sleep(0.001)
        with contextlib.suppress(subprocess.TimeoutExpired):
            ranks[0].wait(delay)
        return ranks[0].poll() is None

    def unfinished(self) -> Iterator[str]:
        """Checkpoints in the store that have files and no manifest."""
        for folder in self.store.glob("default/kill/default/checkpoints/*"):
            if (folder / "files").is_dir() and not (folder / "manifest.json").exists():
                yield folder.name

    def disturb(self, way: str, victim: int, ranks: dict[int, subprocess.Popen[bytes]]) -> None:
        if way == "all":
            for each in ranks.values():
                end_session(each.pid)
        elif way == "container":
            end_session(ranks[victim].pid)
        elif way == "supervisor":
            ranks[victim].kill()
        elif way == "term":
            ranks[victim].send_signal(signal.SIGTERM)
        else:
            pid = ranks[victim].pid
            with contextlib.suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                    os.kill(int(child), signal.SIGKILL)

    def leave(self, ranks: dict[int, subprocess.Popen[bytes]], gang: Gang) -> None:
        """Until all have ended. Ranks that wait for a gang that was never complete are told to stop."""
        until = time.monotonic() + 180
        while any(each.poll() is None for each in ranks.values()):
            gone = any(each.poll() is not None for each in ranks.values())
            if gone and f"all {SIZE} ranks are here" not in self.log(gang, 0):
                # As the Job controller does when a pod of it is gone.
                for each in ranks.values():
                    if each.poll() is None:
                        each.terminate()
            assert time.monotonic() < until, ("a rank hangs", self.logs(gang))
            time.sleep(0.1)

    def see_that_all_is_whole(self) -> None:
        """Every checkpoint that exists has every part, byte for byte as its manifest says."""
        for path in self.store.rglob("manifest.json"):
            manifest = json.loads(path.read_text())
            assert manifest["shards"] == SIZE, path
            files = {file["path"]: file for file in manifest["files"]}
            parts = [f"part-{rank}.json" for rank in range(SIZE)]
            if self.training != "toy":
                parts = [name for rank in range(SIZE) for name in (f"__{rank}_0.distcp", f"rank-{rank:05d}.pt")]
            assert set(parts) <= set(files), (path, sorted(files))
            for name, file in files.items():
                data = (path.parent / "files" / name).read_bytes()
                assert hashlib.sha256(data).hexdigest() == file["sha256"], (path, name)

    def log(self, gang: Gang, rank: int) -> str:
        return (self.folder / f"log-{gang.port}-{rank}").read_text(errors="replace")

    def logs(self, gang: Gang) -> str:
        return "\n".join(self.log(gang, rank)[-2500:] for rank in range(SIZE))


def undisturbed(killing: Killing) -> str:
    """The end of the same training that nobody disturbs."""
    if killing.training == "toy":
        return shard_toy_digest.undisturbed(SIZE, killing.steps)
    alone = Killing(killing.folder / "undisturbed", killing.training, 0, "0")
    alone.steps = killing.steps
    return alone.run()


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m proofs.shards", description=__doc__)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--training", choices=("toy", "fsdp"), default="toy")
    given = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        killing = Killing(Path(folder) / "run", given.training, given.count, f"{given.seed}{given.training}")
        digest = killing.run()
        assert digest == undisturbed(killing), "the end differs from that of an undisturbed run"
    print(f"{given.training}: {killing.killed.total()} kills {dict(killing.killed)}; exit codes {dict(killing.codes)}")
    print(f"{killing.resumed} attempts resumed; 0 half checkpoints, 0 other ends")


if __name__ == "__main__":
    main()
