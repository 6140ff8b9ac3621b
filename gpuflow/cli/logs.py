"""`gpuflow logs [RUN] STEP`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gpuflow.cli.terminal import paint, print_text
from gpuflow.core.errors import Where, did_you_mean, fail
from gpuflow.local.record import FOLDER, NOT_RUN, SKIPPED, SUCCEEDED, RunFolder, find, runs_in

COMMAND = Where("gpuflow logs")
EXAMPLE = """gpuflow logs train                      # of the latest run: every attempt, copy and rank
gpuflow logs 20261119-101500-ab12 train@2 --attempt 1
gpuflow logs pretrain --rank 0           # of a gang: one rank
gpuflow logs --follow train"""
EVERY = 0.2
"""How often -f looks for more."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="[RUN] STEP", help="run, default the latest; step, or copy: train@2"
    )
    parser.add_argument("--attempt", type=int, metavar="N", help="one attempt; default: all")
    parser.add_argument("--rank", type=int, metavar="N", help="one rank of a gang; default: all")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the step, or the run, has ended")
    parser.add_argument("--folder", default=FOLDER, metavar="DIR", help=f"where runs are kept; default: {FOLDER}")


def run(args: argparse.Namespace) -> int:
    if len(args.words) > 2:
        raise fail("GF903", f"{len(args.words)} words are too many", where=COMMAND, hint="gpuflow logs [RUN] STEP")
    run = _run(args)
    step = args.words[-1]
    shown: dict[Path, int] = {}
    while True:
        run.read()
        found = list(_logs(run, step, args.attempt, args.rank))
        if not found and not (args.follow and run.is_locked()):
            known = sorted({key for key, each in run.steps.items() if each.attempts})
            which = "" if args.rank is None else f" at rank {args.rank}"
            text = f'run {run.id} has no log of "{step}"{which}'
            raise fail("GF927", text, where=COMMAND, hint=None if step in known else did_you_mean(step, known))
        for title, log in found:
            _show(log, title, shown, is_alone=len(found) == 1)
        if not args.follow or not _goes_on(run, step):
            return 0
        time.sleep(EVERY)


def _run(args: argparse.Namespace) -> RunFolder:
    if len(args.words) == 2:
        return find(Path(args.folder), args.words[0])
    runs = runs_in(Path(args.folder))
    if not runs:
        text = f"there are no runs in {args.folder}"
        raise fail("GF926", text, where=COMMAND, hint="gpuflow run FILE makes one; --folder names another place")
    return runs[0]


def _logs(run: RunFolder, step: str, attempt: int | None, rank: int | None) -> Iterator[tuple[str, Path]]:
    """The logs of a step, of its copies, of its ranks, and of what is inside it, with what each is."""
    for key, known in run.steps.items():
        if key != step and not key.startswith((f"{step}@", f"{step}.")):
            continue
        for number in range(1, known.attempts + 1):
            folder = run.attempt(key, number)
            if attempt not in (None, number):
                continue
            if rank is None and (folder / "log").is_file():
                yield f"{key}, attempt {number}", folder / "log"
            ranks = {int(log.parent.name.removeprefix("rank-")): log for log in folder.glob("rank-*/log")}
            for own, log in sorted(ranks.items()):
                if rank in (None, own):
                    yield f"{key}, attempt {number}, rank {own}", log


def _show(log: Path, title: str, shown: dict[Path, int], *, is_alone: bool) -> None:
    """What is new in a log, as far as its lines are whole. The last one in `shown` is what was shown last."""
    with open(log, "rb") as file:
        file.seek(shown.get(log, 0))
        data = file.read()
    is_new, is_next = log not in shown, bool(data) and bool(shown) and next(reversed(shown)) != log
    if (is_new or is_next) and not is_alone:
        print_text(paint(f"== {title}", "bold") + "\n")
    if is_new or is_next:
        shown[log] = shown.pop(log, 0)
    shown[log] += len(data)
    if data:
        print_text(data.decode("utf-8", "replace"))
        if not data.endswith(b"\n") and not is_alone:
            print_text("\n")
        sys.stdout.flush()


def _goes_on(run: RunFolder, step: str) -> bool:
    """Whether more may come: the run is being run, and the step has not ended."""
    if not run.is_locked():
        return False
    known = run.steps.get(step)
    # One that failed may be tried again.
    is_open = known is None or known.state not in (SUCCEEDED, SKIPPED, NOT_RUN)
    return is_open or any(key.startswith((f"{step}@", f"{step}.")) for key in run.steps)
