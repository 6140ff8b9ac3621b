"""The kill test: a toy training, killed at random moments in every way a cluster knows, must end as if undisturbed.

By hand, with thousands of kills, in rounds that can be taken up again where they stopped:
`python -m proofs supervisor-kills --count 2000 --seed 1 [--store s3://bucket/prefix] [--progress FILE]`.
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
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gpuflow.runtime.base import attempt_folder
from gpuflow.runtime.base.records import Success
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import Store

ROOT = Path(__file__).resolve().parents[1]
TOY = ROOT / "tests" / "runtime" / "toy.py"
ON_TERM = ("save", "save", "zero", "ignore")
WAYS = ("term", "term", "container", "container", "supervisor", "overlap")
EVERY = 5
"""Steps from one save to the next."""
SHAPES: dict[str, dict[str, str]] = {
    "plain": {},
    "ranks": {"TOY_RANKS": "2"},
    "workers": {"TOY_WORKERS": "2"},
    "items": {},
    "listings": {"BAD_LISTINGS": "0.02"},
    "slow": {"BAD_SECONDS": "0.1"},
}
"""What is special: two ranks; data loaders that die of SIGTERM; two items on one volume; listings that fail; a store
that takes its time."""
A_ROUND = 25


class Report:
    """What a kill test saw."""

    def __init__(self) -> None:
        self.ways: Counter[str] = Counter()
        self.codes: Counter[int] = Counter()
        self.corrupt: list[str] = []
        self.false_green: list[str] = []
        self.removed: list[str] = []
        """Starts that resumed from less than the store had held."""
        self.digest: str | None = None
        self.expected: str = ""
        self.fresh_starts = 0
        self.gone = 0
        """Starts on a shared volume whose checkpoint an older program had removed: they failed and were tried again."""
        self.most_lost = 0
        """Steps done again after a kill, at most."""
        self.seconds = 0.0

    @property
    def kills(self) -> int:
        return sum(self.ways.values())

    @property
    def good(self) -> bool:
        return self.digest == self.expected and not (self.corrupt or self.false_green or self.removed)


class Place:
    """Where one torture works: its folder, its store, its shape, and the item when there are two."""

    def __init__(self, folder: Path, store: str, shape: str, item: str = "") -> None:
        self.folder, self.store, self.shape, self.item = folder, store, shape, item
        self.journal = folder / f"journal{item}"
        self.corrupt = folder / f"corrupt{item}"

    @property
    def base(self) -> str:
        return attempt_folder.identity_path("default", "kill", "default", self.item or None)


def start(place: Place, node: str, steps: int, pause: float, on_term: str) -> subprocess.Popen[bytes]:
    """One attempt in a session of its own, as in a container of its own."""
    folder, shape = place.folder, SHAPES[place.shape]
    environ = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "TOY_STEPS": str(steps),
        "TOY_PAUSE": str(pause),
        "TOY_EVERY": str(EVERY),
        "TOY_ON_TERM": on_term,
        "TOY_CORRUPT": str(place.corrupt),
        "TOY_JOURNAL": str(place.journal),
        "TOY_NAME": place.item,
        "BAD_STORE": place.store,
        **shape,
    }
    bad = any(name.startswith("BAD_") for name in shape)
    words = [sys.executable, "-m", "tests.runtime.bad_store" if bad else "gpuflow.runtime.supervise.main"]
    words += ["--checkpoint-dir", str(folder / node), "--store", place.store]
    words += ["--run-id", "kill", "--every", "0s", "--grace", "3s", "--output", "digest"]
    words += ["--item", place.item, "--own-folder"] if place.item else []
    words += ["--outputs-dir", str(folder / f"out-{node}{place.item}"), "--", sys.executable, str(TOY)]
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


def torture(folder: Path, store: str, *, kills: int, steps: int, seed: int | str, shape: str = "plain") -> Report:
    """Kill until the budget of kills is used, then let it finish."""
    if shape != "items":
        return _torture(Place(folder, store, shape), kills=kills, steps=steps, seed=seed)
    reports: list[Report] = []

    def work(item: str) -> None:
        part = _torture(Place(folder, store, shape, item), kills=kills // 2, steps=steps, seed=f"{seed}{item}")
        reports.append(part)

    threads = [threading.Thread(target=work, args=(item,)) for item in ("-a", "-b")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(reports) == 2, "one of the two ended with an error"
    whole, other = reports
    whole.ways += other.ways
    whole.codes += other.codes
    for name in ("corrupt", "false_green", "removed"):
        getattr(whole, name).extend(getattr(other, name))
    whole.digest, whole.expected = f"{whole.digest} {other.digest}", f"{whole.expected} {other.expected}"
    whole.most_lost, whole.gone = max(whole.most_lost, other.most_lost), whole.gone + other.gone
    return whole


def _torture(place: Place, *, kills: int, steps: int, seed: int | str) -> Report:
    chance, report, began = random.Random(f"{seed}"), Report(), time.monotonic()
    report.expected = undisturbed(steps, place)
    store = open_store(place.store)
    book = Ledger(store, place.base)
    leftover: list[subprocess.Popen[bytes]] = []
    seen: list[tuple[int, int]] = []
    pause = 2.0 * kills / steps  # slow enough that the work outlasts the kills, also where nothing else takes time
    node = 0
    while True:
        assert sum(report.codes.values()) < 20 * kills + 100, f"it never ends; the last words are in {place.folder}/log"
        if chance.random() < 0.3 and not place.item:
            node += 1  # another machine: nothing of the old directory is there
            report.fresh_starts += 1
        last = report.kills >= kills
        seen.append((_newest_attempt(store, place), _newest_step(store, place)))
        attempt = start(place, f"node-{node}", steps, 0.0 if last else pause, chance.choice(ON_TERM))
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
                node += 0 if place.item else 1
            else:
                end_session(attempt.pid)
                code = attempt.wait(60)
        for old in leftover[:-1]:
            end_session(old.pid)
            old.wait(60)
        del leftover[:-1]
        if code is not None:
            report.codes[code] += 1
        if code == 0 or place.corrupt.exists():
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
    report.corrupt = place.corrupt.read_text().splitlines() if place.corrupt.exists() else []
    _read_journal(place, seen, report)
    report.seconds = time.monotonic() - began
    return report


def _read_journal(place: Place, seen: list[tuple[int, int]], report: Report) -> None:
    """Where each start resumed, against how far the work was and what the store held before."""
    reached = 0
    for line in place.journal.read_text().splitlines() if place.journal.exists() else []:
        attempt, what, step = line.split()
        report.gone += what == "gone"
        if what != "from":
            reached = max(reached, int(step))
            continue
        report.most_lost = max(report.most_lost, reached - int(step))
        held = max((there for number, there in seen if number < int(attempt)), default=0)
        if int(step) < held:
            report.removed.append(f"attempt {attempt} began at step {step}, the store had held step {held}")


def _below(store: Store, place: Place, folder: str) -> list[tuple[str, int]]:
    found = persist(lambda: store.names(f"{place.base}/{folder}"), Limit(60))
    assert isinstance(found, list)
    return found


def _newest_attempt(store: Store, place: Place) -> int:
    names = [key.rpartition("/")[2] for key, _ in _below(store, place, "attempts")]
    return max((int(name[:6]) for name in names if name[:6].isdigit()), default=0)


def _newest_step(store: Store, place: Place) -> int:
    """The step of the newest checkpoint whose files are all there; 0 when there is none."""
    there = dict(_below(store, place, "checkpoints"))
    top = f"{place.base}/checkpoints/"
    for key in sorted(there, reverse=True):
        if not key.endswith("/manifest.json") or key[len(top) :].count("/") != 1:
            continue
        try:
            manifest = json.loads(store.read(key))
        except (FileNotFoundError, ValueError):
            continue
        prefix = key[: -len("/manifest.json")]
        files = [file for file in manifest["files"] if "sha256" in file]
        paths = [f"{prefix}/files/{file['path']}" if file["path"] else f"{prefix}/file" for file in files]
        if all(there.get(path) == file["size"] for path, file in zip(paths, files, strict=True)):
            return int(manifest["entry"].rpartition("-")[2])
    return 0


def _marker(book: Ledger) -> dict[str, Any] | None:
    """The success marker, asked for patiently: the network may be part of the test."""
    found = persist(book.success, Limit(60))
    assert found is None or isinstance(found, Success)
    return None if found is None else found.plain()


def undisturbed(steps: int, place: Place) -> str:
    """The digest a run without any kill ends with."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "GPUFLOW_CHECKPOINT_DIR": folder, "GPUFLOW_OUTPUTS": folder, "TOY_PAUSE": "0"}
        environ = {**environ, "TOY_STEPS": str(steps), "TOY_EVERY": str(steps + 1), "TOY_NAME": place.item}
        environ = {**environ, **SHAPES[place.shape]}
        for name in ("GPUFLOW_RESUME_FROM", "GPUFLOW_STOP", "TOY_JOURNAL"):
            environ.pop(name, None)
        subprocess.run([sys.executable, str(TOY)], env=environ, check=True)
        return (Path(folder) / "digest").read_text().strip()


def prove(kills: int, seed: int, progress: Path, store: str | None = None) -> list[dict[str, Any]]:
    """Rounds of every shape in turn until there were so many kills. What is done is in the file, and not done again."""
    progress.parent.mkdir(parents=True, exist_ok=True)
    rounds = [json.loads(line) for line in progress.read_text().splitlines()] if progress.exists() else []
    while sum(each["kills"] for each in rounds) < kills:
        number = len(rounds)
        shape = sorted(SHAPES)[number % len(SHAPES)]
        folder = Path(tempfile.mkdtemp(prefix="gpuflow-kill-"))
        where = f"{store}/{seed}-{number}" if store else str(folder / "store")
        report = torture(folder, where, kills=A_ROUND, steps=16 * A_ROUND, seed=f"{seed}-{number}", shape=shape)
        row = {"round": number, "shape": shape, "kills": report.kills, "ways": report.ways, "codes": report.codes}
        row |= {"false_success": len(report.false_green), "corrupt": len(report.corrupt)}
        row |= {"removed": len(report.removed), "same_end": report.digest == report.expected}
        row |= {"gone": report.gone, "most_lost": report.most_lost, "seconds": round(report.seconds, 1)}
        if report.good:
            shutil.rmtree(folder)
        else:
            row["see"] = [str(folder), *report.corrupt, *report.false_green, *report.removed]
        rounds.append(row)
        with progress.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
    return rounds


def summary(rounds: list[dict[str, Any]]) -> str:
    """One line."""
    total = {
        name: sum(row[name] for row in rounds) for name in ("kills", "false_success", "corrupt", "removed", "gone")
    }
    ends = sum(not row["same_end"] for row in rounds)
    return (
        f"{total['kills']} kills in {len(rounds)} rounds: {total['false_success']} false successes, "
        f"{total['corrupt']} corrupt or mixed restores, {total['removed']} needed checkpoints removed, "
        f"{ends} other ends than undisturbed; most work lost at once: {max(row['most_lost'] for row in rounds)} steps "
        f"({EVERY} steps from save to save); starts tried again, since on a shared volume the program of an older "
        f"attempt had removed their checkpoint: {total['gone']}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs supervisor-kills", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--store")
    parser.add_argument("--progress", type=Path)
    options = parser.parse_args()
    progress = options.progress or ROOT / "build" / f"supervisor-kills-{options.seed}.jsonl"
    rounds = prove(options.count, options.seed, progress, options.store)
    print(summary(rounds))
    bad = [row for row in rounds if "see" in row]
    for row in bad:
        print(*row["see"], sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
