"""`gpuflow logs [RUN] STEP`."""

from __future__ import annotations

import argparse
import codecs
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from gpuflow.cli.engine_runs import add_engine_run, reach
from gpuflow.cli.terminal import paint, print_text
from gpuflow.core.errors import Where, did_you_mean, fail
from gpuflow.core.printable import lines
from gpuflow.local.record import FOLDER, NOT_RUN, SKIPPED, SUCCEEDED, RunFolder, find, runs_in
from gpuflow.runs.model import LogQuery

COMMAND = Where("gpuflow logs")
EXAMPLE = """gpuflow logs train                      # of the latest run: every attempt, copy and rank
gpuflow logs 20261119-101500-ab12 train@2 --attempt 1
gpuflow logs pretrain --rank 0           # of a gang: one rank
gpuflow logs --follow train
gpuflow logs nightly-x7k2p train --engine argo --namespace team-a --attempt 2"""
EVERY = 0.2
"""How often -f looks for more."""
MOST = 1 << 16
"""The bytes of a line that are read at once, however long it is."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words", nargs="+", metavar="[RUN] STEP", help="run, default the latest; step, or copy: train@2"
    )
    parser.add_argument("--attempt", type=int, metavar="N", help="one attempt; default: all")
    parser.add_argument("--rank", type=int, metavar="N", help="one rank of a gang; default: all")
    parser.add_argument("-f", "--follow", action="store_true", help="go on until the step, or the run, has ended")
    parser.add_argument("--folder", default=FOLDER, metavar="DIR", help=f"where runs are kept; default: {FOLDER}")

    add_engine_run(parser, formats=False, is_engine_needed=False)


def run(args: argparse.Namespace) -> int:
    if len(args.words) > 2:
        raise fail("GF903", f"{len(args.words)} words are too many", where=COMMAND, hint="gpuflow logs [RUN] STEP")
    if args.engine:
        return _show_from_engine(args)
    run = _run(args)
    step = args.words[-1]
    shown: dict[Path, _Shown] = {}
    while True:
        may_go_on = args.follow and run.is_locked()  # asked before anything is read: what is written later is seen
        goes_on = _is_open(run.read(), step) and may_go_on
        found = list(_logs(run, step, args.attempt, args.rank))
        if not found and not goes_on:
            known = sorted({key for key, each in run.steps.items() if each.attempts})
            which = "" if args.rank is None else f" at rank {args.rank}"
            text = f'run {run.id} has no log of "{step}"{which}'
            raise fail("GF927", text, where=COMMAND, hint=None if step in known else did_you_mean(step, known))
        for title, log in found:
            _show(log, "" if len(found) == 1 else title, shown, is_last=not goes_on)
        if not goes_on:
            return 0
        time.sleep(EVERY)


def _show_from_engine(args: argparse.Namespace) -> int:
    """The logs of a run on an engine, piece by piece."""
    if len(args.words) != 2:
        raise fail("GF903", "no run is named", where=COMMAND, hint=f"gpuflow logs RUN STEP --engine {args.engine}")
    title, end = "", "\n"
    query = LogQuery(args.words[1], args.attempt, args.rank, args.follow)
    for part in reach(args).logs(args.words[0], query):
        if part.title != title:
            title = part.title
            print_text(("" if end == "\n" else "\n") + paint(f"== {title}", "bold") + "\n")
        end = part.text[-1:] or end
        sys.stdout.write(lines(part.text))
        sys.stdout.flush()
    return 0


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


class _Shown:
    """How far a log was shown. Half a character waits for its other half."""

    def __init__(self) -> None:
        self.at, self.decoder = 0, codecs.getincrementaldecoder("utf-8")("replace")


def _show(log: Path, title: str, shown: dict[Path, _Shown], *, is_last: bool) -> None:
    """What is new in a log, piece by piece; the last one in `shown` is what was shown last. What programs wrote is no
    terminal's or CI system's command."""
    is_next = log not in shown or (log != next(reversed(shown)) and log.stat().st_size > shown[log].at)
    if is_next:
        shown[log] = shown.pop(log) if log in shown else _Shown()
    if title and is_next:
        print_text(paint(f"== {title}", "bold") + "\n")
    data, state = b"\n", shown[log]
    with open(log, "rb") as file:
        file.seek(state.at)
        for data in iter(lambda: file.readline(MOST), b""):
            sys.stdout.write(lines(state.decoder.decode(data)))
        state.at = file.tell()
    sys.stdout.write(lines(state.decoder.decode(b"", final=is_last)))
    if title and not data.endswith(b"\n"):
        sys.stdout.write("\n")
    sys.stdout.flush()


def _is_open(run: RunFolder, step: str) -> bool:
    """Whether the step, or one inside it, has not ended for good."""
    known = run.steps.get(step)
    # One that failed may be tried again.
    is_open = known is None or known.state not in (SUCCEEDED, SKIPPED, NOT_RUN)
    return is_open or any(key.startswith((f"{step}@", f"{step}.")) for key in run.steps)
