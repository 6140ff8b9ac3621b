"""`python -m proofs local-kills --count 300 --seed 1`: random pipelines under `gpuflow run`, hurt until they are done.

Each is run once undisturbed. Then it is run again and hurt: `run` itself, a supervisor, a program, the processes of an
attempt, or everything at once, by SIGTERM, SIGINT or SIGKILL, at moments of the clock or right after an event; then
`--resume`, up to five times, the last time undisturbed. It must end as the undisturbed one: the same steps in the same
states, outputs and checkpoints of the same bytes. No success is false, nothing runs twice at once, nothing runs on.

Cases are kept, one a line; `--resume FILE` goes on with those of a file. Ends with 1 when a case is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from proofs.airflow.__main__ import _commit
from tests.conftest import ROOT

from .drawing import draw
from .judging import (
    checkpoints_in,
    differences,
    faults_at_end,
    faults_of_turn,
    found_in,
    has_succeeded,
    lines_of,
    said_in,
)
from .striking import Scene, end_all

Row = dict[str, Any]
TURNS = 5


def try_case(seed: int, number: int) -> Row:
    """One pipeline: undisturbed, and hurt."""
    document, approve = draw(seed, number)
    chance = random.Random(f"kills {seed}-{number}")
    folder = Path(tempfile.mkdtemp(prefix=f"gpuflow-local-kills-{number}-"))
    row: Row = {"case": number, "seed": seed, "faults": [], "strikes": {}}
    calm = Scene(folder / "calm", document, approve)
    began = time.monotonic()
    first = calm.turn(None, 0.0)
    seconds = time.monotonic() - began
    there = calm.run_folder()
    if first.code not in (0, 1) or there is None:
        return {**row, "faults": [f"undisturbed it ended with {first.code}: {first.lines[-2000:]}"], "see": str(folder)}
    faults: list[str] = faults_at_end(calm)
    expected, state = found_in(there), first.said["state"]
    row |= {"state": state, "programs": sum(line.startswith("begin") for line in lines_of(calm, "journal"))}
    hurt = Scene(folder / "hurt", document, approve)
    strikes: Counter[str] = Counter()
    turn, turns = first, 0
    for turns in range(1, TURNS + 1):
        if turns > 1 and chance.random() < 0.1 and hurt.run_folder() is not None:
            strikes["twins"] += 1
            turn, *others = sorted(hurt.twins(), key=lambda each: each.code not in (0, 1))
            faults += [
                f"a second run at the same time ended with {each.code}: {each.lines}"
                for each in others
                if "GF924" not in each.lines and "GF926" not in each.lines and each.code != 1
            ]
            if "GF926" in turn.lines:
                faults.append(f"neither of two runs went on: {turn.lines}")
        else:
            turn = hurt.turn(chance if turns < TURNS else None, seconds)
        strikes += turn.strikes
        faults += faults_of_turn(hurt, turn, expected, state)
        if faults or has_succeeded(hurt) or (turn.code == 1 and not turn.strikes):
            break
    here = hurt.run_folder()
    faults += faults_at_end(hurt)
    is_cut_off = has_succeeded(hurt) and turn.code not in (0, 1)
    if here is not None and (turn.code == first.code or is_cut_off):
        kept: list[str] = []
        faults += differences("the end", expected, found_in(here))
        if not is_cut_off:
            faults += differences("what is said", said_in(first, there), said_in(turn, here))
        faults += differences("the checkpoint", checkpoints_in(there, kept), checkpoints_in(here, kept))
        faults += kept
    elif not faults:
        faults.append(f"it ended with {turn.code}, undisturbed with {first.code}: {turn.lines[-2000:]}")
    begun = [line.split()[1] for line in lines_of(hurt, "journal") if line.startswith("begin")]
    row |= {"turns": turns, "strikes": dict(strikes), "faults": faults, "again": len(begun) - row["programs"]}
    row |= {"resumed": sum(line.startswith("from") for line in lines_of(hurt, "journal"))}
    row["seconds"] = round(time.monotonic() - began, 1)
    if faults:
        row["see"] = str(folder)
    else:
        shutil.rmtree(folder)
    return row


def prove(count: int, seed: int, workers: int, file: Path, show: Callable[[Row], None] = lambda row: None) -> list[Row]:
    """The cases that the file does not have yet, in order; each is written when it is known."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    rows = [row for row in rows if row["seed"] == seed and row["case"] < count]
    known = {row["case"] for row in rows}
    commit = _commit()
    with ThreadPoolExecutor(workers) as pool, file.open("a", encoding="utf-8") as kept:
        for row in pool.map(lambda number: try_case(seed, number), [n for n in range(count) if n not in known]):
            row["commit"] = commit
            kept.write(json.dumps(row) + "\n")
            kept.flush()
            rows.append(row)
            show(row)
    return rows


def show(row: Row) -> None:
    what = ", ".join(f"{way} {times}" for way, times in sorted(row["strikes"].items())) or "nothing was hit"
    print(f"case {row['case']}: {row.get('state')}, {row.get('programs')} programs; {what}", flush=True)
    for fault in row["faults"]:
        print(f"  RED {fault}", flush=True)
    if row["faults"]:
        print(f"  see {row['see']}", flush=True)


def is_hit(row: Row) -> bool:
    """Whether something of the case was killed while it ran."""
    return any(times for way, times in row["strikes"].items() if way != "twins")


def summary(rows: list[Row]) -> str:
    """One line."""
    strikes: Counter[str] = Counter()
    for row in rows:
        strikes.update(row["strikes"])
    twins = strikes.pop("twins", 0)
    texts = [fault for row in rows for fault in row["faults"]]
    ways = ", ".join(f"{way} {times}" for way, times in sorted(strikes.items()))
    return (
        f"{len(rows)} pipelines, {sum(is_hit(row) for row in rows)} of them hurt while they ran: {strikes.total()} "
        f"strikes ({ways}), {twins} times two runs at once; {sum(row.get('programs', 0) for row in rows)} programs, "
        f"{sum(row.get('again', 0) for row in rows)} starts more than undisturbed, "
        f"{sum(row.get('resumed', 0) for row in rows)} from a checkpoint; "
        f"{sum('FALSE SUCCESS' in text for text in texts)} false successes, "
        f"{sum('TWICE AT ONCE' in text for text in texts)} twice at once, "
        f"{sum('CORRUPT' in text for text in texts)} corrupt, {sum(bool(row['faults']) for row in rows)} wrong in all; "
        f"{', '.join(sorted({row['commit'] for row in rows}))}"
    )


def stop(number: int, _: object) -> None:
    """End what was started, and then this: a case that is cut off is tried again."""
    end_all()
    os._exit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs local-kills", description=__doc__)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only", type=int, help="the case of this number alone")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on with the cases of this file")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if options.only is not None:
        row = try_case(options.seed, options.only)
        show(row)
        return 1 if row["faults"] else 0
    file = options.resume or ROOT / "build" / f"local-kills-{options.seed}.jsonl"
    if options.resume is None:
        file.unlink(missing_ok=True)
    print(f"cases are kept in {file}; a proof that was stopped goes on with --resume {file}", flush=True)
    rows = prove(options.count, options.seed, options.workers, file, show)
    print(summary(rows))
    bad = [row["case"] for row in rows if row["faults"]]
    hit = sum(is_hit(row) for row in rows)
    if not hit:
        print("RED nothing was hurt, so nothing is shown")
    if bad:
        print(f"RED cases {bad}: again with --only NUMBER")
    return 1 if bad or not hit else 0


if __name__ == "__main__":
    sys.exit(main())
