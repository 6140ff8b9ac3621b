"""Explore the supervisor.

python -m proofs supervisor [--depth 2] [--seconds 600] [--jobs 2] [--seed 1] [--scenario NAME …]
    A bound that was stopped goes on where it was, as long as the code is the same (build/explorer).
python -m proofs supervisor --mutate D1      take one fix back: the trace that shows what it is for
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing.pool import AsyncResult
from pathlib import Path

from proofs.supervisor import mutations
from proofs.supervisor.choices import KINDS, Bounds
from proofs.supervisor.invariants import HELD
from proofs.supervisor.saved import Saved
from proofs.supervisor.scenarios import ALL, BY_NAME
from proofs.supervisor.search import Report, explore, sample

ROOT = Path(__file__).resolve().parents[2]
BEYOND = 6
"""Decisions in an execution by chance."""


def prove(names: list[str], depth: int, seconds: float, jobs: int, seed: int | None) -> list[Report]:
    """Bound after bound, each scenario whole, while there is time; with a seed, the rest of it by chance."""
    until = time.monotonic() + seconds
    reports: list[Report] = []
    print(f"{'scenario':10} {'decisions':>9} {'executions':>10} {'states':>9} {'moves':>10} {'seconds':>8}")
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        for total in range(1, depth + 1):
            for name in names:
                if time.monotonic() >= until:
                    continue
                tasks = [(name, total, until, (index, jobs)) for index in range(jobs)]
                parts = pool.starmap_async(_explore, tasks, chunksize=1)
                while not _ready(parts, name, total):
                    pass
                reports.append(_joined(parts.get()))
        left = until - time.monotonic()
        if seed is not None and left > 1 and not any(report.found for report in reports):
            for name in names:
                share = time.monotonic() + (until - time.monotonic()) / (len(names) - names.index(name))
                tasks2 = [(name, share, f"{seed}-{index}") for index in range(jobs)]
                reports.append(_joined(pool.starmap(_sample, tasks2, chunksize=1), by_chance=True))
    return reports


def _explore(name: str, total: int, until: float, share: tuple[int, int]) -> Report:
    return explore(BY_NAME[name], Bounds(total), until, share=share, saved=_saved(name, total, share))


def _saved(name: str, total: int, share: tuple[int, int]) -> Saved:
    return Saved(f"{name}-{total}-{share[0]}-of-{share[1]}")


def _ready(parts: AsyncResult[list[Report]], name: str, total: int) -> bool:
    """Whether a bound is through; a line of progress for who waits."""
    parts.wait(30.0)
    if not parts.ready() and sys.stderr.isatty():
        known = [json.loads(path.read_text()) for path in Saved(name).path.parent.glob(f"{name}-{total}-*.json")]
        print(f"{name:10} {total:9} {sum(each['executions'] for each in known):10} so far", file=sys.stderr)
    return parts.ready()


def _sample(name: str, until: float, seed: str) -> Report:
    return sample(BY_NAME[name], Bounds(BEYOND), until, seed)


def _joined(parts: list[Report], *, by_chance: bool = False) -> Report:
    whole = parts[0]
    for part in parts[1:]:
        whole.add(part)
    state = "by chance" if by_chance else "all" if whole.complete else "not all: time is up"
    what = f"{len(whole.found)} VIOLATIONS" if whole.found else "held"
    line = f"{whole.executions:10} {len(whole.states):9} {whole.moves:10} {whole.seconds:8.1f}  {state}; {what}"
    print(f"{whole.scenario:10} {whole.bounds.total:9} {line}", flush=True)
    return whole


def mutate(name: str) -> int:
    """Run the explorer over a copy of the package that lacks a fix; 0 when it finds out."""
    mutation = mutations.ALL[name]
    with tempfile.TemporaryDirectory(prefix="gpuflow-mutation-") as folder:
        mutations.apply(mutation, Path(folder))
        words = [sys.executable, "-m", "proofs.supervisor", "--scenario", mutation.scenario, "--find"]
        words += [f"{kind}={most}" for kind, most in mutation.bounds.items()]
        environ = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
        done = subprocess.run(words, env=environ, cwd=folder, capture_output=True, text=True)
    print(f"without the fix of {name} ({mutation.says}):")
    print(done.stdout + done.stderr)
    return 0 if done.returncode == 3 else 1


def find(names: list[str], each: dict[str, int]) -> int:
    """The first violation with so many decisions of these kinds, and its trace; 3 when there is one."""
    limits = {kind: each.get(kind, 0) for kind in KINDS}
    executions = 0
    for total in range(1, sum(limits.values()) + 1):
        for name in names:
            report = explore(BY_NAME[name], Bounds(total, limits), stop_at=1)
            executions += report.executions
            if report.found:
                print(report.found[0].story())
                print(f"found after {executions} executions, with {total} decisions")
                return 3
    print(f"found nothing in {executions} executions")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m proofs supervisor",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-chance", action="store_true", help="whole bounds only, nothing by chance")
    parser.add_argument("--scenario", action="append", choices=sorted(BY_NAME))
    parser.add_argument("--mutate", choices=sorted(mutations.ALL))
    parser.add_argument("--find", nargs="*", metavar="KIND=MOST", help="the first violation with such decisions only")
    options = parser.parse_args()
    names = options.scenario or [scenario.name for scenario in ALL]
    if options.mutate:
        return mutate(options.mutate)
    if options.find is not None:
        pairs = (word.partition("=") for word in options.find)
        return find(names, {kind: int(most) for kind, _, most in pairs})
    if os.environ.get("PYTHONHASHSEED") != "0":
        # States are counted by their hash, which must be the same when the search goes on.
        words = [sys.executable, "-m", "proofs.supervisor", *sys.argv[1:]]
        return subprocess.run(words, env={**os.environ, "PYTHONHASHSEED": "0"}).returncode
    seed = None if options.no_chance else options.seed
    reports = prove(names, options.depth, options.seconds, options.jobs, seed)
    found = [each for report in reports for each in report.found]
    for each in found:
        print(f"\n{each.story()}")
    states = len(set().union(*(report.states for report in reports)))
    total = f"{sum(r.executions for r in reports)} executions, {states} states, {sum(r.moves for r in reports)} moves"
    print(f"\n{total}")
    print("bound: decisions that differ from the plain next step, among", ", ".join(KINDS))
    for scenario in ALL:
        if scenario.name in names:
            print(f"  {scenario.name}: {scenario.says}; {len(scenario.starts)} starts, {scenario.steps} steps")
    print("invariants VIOLATED" if found else "invariants held:")
    for sentence in HELD:
        print(f"  {sentence}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
