"""Single ranks of a training, killed at random moments: always an interruption, never a failure, and the same end.

`GANG_KILLS=30 pytest tests/runtime/test_gang_killing.py` kills more often.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from proofs.supervisor_kills import end_session
from tests.runtime.gangs import Gang
from tests.runtime.harness import eventually, free_port, hears_term

TOY = Path(__file__).parent / "gang_toy.py"
SIZE = 3
KILLS = int(os.environ.get("GANG_KILLS", "4"))
STEPS = 100 + 70 * KILLS
"""More than all attempts that are killed can do."""
WAYS = ("container", "supervisor", "program and container", "term")


def undisturbed() -> str:
    digest = "start"
    for step in range(STEPS):
        for rank in range(1, SIZE):
            share = hashlib.sha256(f"{rank}:{step}".encode()).hexdigest()
            digest = hashlib.sha256((digest + share).encode()).hexdigest()
    return digest


def start(folder: Path, gang: Gang, *, shared: bool, pause: float) -> dict[int, subprocess.Popen[bytes]]:
    """Every rank in a session of its own, as in a container of its own."""
    toy = {"TOY_PORT": str(free_port()), "TOY_STEPS": str(STEPS), "TOY_PAUSE": str(pause)}
    toy |= {"TOY_CORRUPT": str(folder / "corrupt"), "GPUFLOW_WORLD_SIZE": str(SIZE)}
    found = {}
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
        words += ["--checkpoint-dir", str(folder / ("c" if shared else f"c{rank}")), "--run-id", "kill"]
        words += [] if shared else ["--store", str(folder / "store")]
        words += ["--every", "0s", "--grace", "3s", "--failures", "0", "--interruptions", "1000"]
        words += ["--output", "digest", "--outputs-dir", str(folder / "out"), "--", sys.executable, str(TOY)]
        environ = {**os.environ, **gang.environ(rank), **toy}
        with (folder / f"log-{gang.port}-{rank}").open("ab") as log:
            found[rank] = subprocess.Popen(words, env=environ, stdout=log, stderr=log, start_new_session=True)
    return found


def leave(rank: subprocess.Popen[bytes], gang: Gang, folder: Path) -> int:
    """A rank's exit code. One that waits for a gang that was never complete is told to stop, as a Job's pods are."""
    try:
        return rank.wait(25)
    except subprocess.TimeoutExpired:
        if f"all {SIZE} ranks are here" not in (folder / f"log-{gang.port}-0").read_text():
            rank.terminate()
        try:
            return rank.wait(120)
        except subprocess.TimeoutExpired:
            pytest.fail(f"a gang that was complete does not end: {log(folder, gang)}")


def disturb(way: str, rank: int, ranks: dict[int, subprocess.Popen[bytes]]) -> None:
    """As a cluster does: the container goes at once, the program shortly before it, or with notice."""
    victim = ranks[rank]
    if way == "container":
        end_session(victim.pid)
    elif way == "supervisor":
        victim.kill()
    elif way == "term":
        eventually(lambda: victim.poll() is not None or hears_term(victim))
        victim.send_signal(signal.SIGTERM)
    else:
        # The command's group dies first: its peers fail of it before their supervisors can know why.
        children = Path(f"/proc/{victim.pid}/task/{victim.pid}/children").read_text().split()
        for pid in children:
            os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.2)
        end_session(victim.pid)


@pytest.mark.parametrize("shared", [False, True], ids=["store", "shared"])
def test_single_ranks_killed_at_random_cost_interruptions_only(tmp_path: Path, shared: bool) -> None:
    chance = random.Random(f"{os.environ.get('GANG_SEED', '7')}{shared}")
    codes: Counter[int] = Counter()
    killed: Counter[str] = Counter()
    while True:
        assert sum(codes.values()) < SIZE * (4 * KILLS + 10), "it never ends"
        last = killed.total() >= KILLS
        gang = Gang(tmp_path, SIZE, times="beat=0.2,lost=3,settle=6,linger=1")
        ranks = start(tmp_path, gang, shared=shared, pause=0.002 if last else 0.2)
        rank, way = chance.randrange(SIZE), chance.choice(WAYS)
        try:
            try:
                ranks[0].wait(120 if last else 1.0 + 2.5 * chance.random())
            except subprocess.TimeoutExpired:
                assert not last, "the last attempt did not end"
                disturb(way, rank, ranks)
                killed[f"{way} of rank {rank}"] += 1
            for each in ranks.values():
                codes[leave(each, gang, tmp_path)] += 1
            gone = [each for each in ranks if ranks[each].returncode == -9]
            others = {ranks[each].returncode for each in ranks if each not in gone}
            assert others <= {0, 75} and len(others) <= 1, (way, rank, others, log(tmp_path, gang))
        finally:
            for each in ranks.values():
                end_session(each.pid)
        if ranks[0].returncode == 0:
            break
    assert not (tmp_path / "corrupt").exists(), (tmp_path / "corrupt").read_text()
    book = tmp_path / ("c/.gpuflow/state" if shared else "store")
    (marker,) = (json.loads(path.read_text()) for path in book.rglob("success*.json"))
    assert marker["outputs"]["digest"]["value"] == undisturbed()
    assert killed.total() == KILLS
    newest = json.loads(sorted(book.rglob("attempts/??????.json"))[-1].read_text())
    assert newest["failures"] == 0
    assert newest["interruptions"] <= killed.total()
    print(dict(killed), dict(codes), newest["interruptions"])


def log(folder: Path, gang: Gang) -> str:
    return "\n".join((folder / f"log-{gang.port}-{rank}").read_text()[-2000:] for rank in range(SIZE))
