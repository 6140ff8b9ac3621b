"""`gpuflow runs`."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuflow.cli.terminal import print_text, show_json, table
from gpuflow.core.errors import GpuflowError
from gpuflow.local.record import FOLDER, RUNNING, RunFolder, runs_in
from gpuflow.runtime.base.units import format_seconds

EXAMPLE = """gpuflow runs
gpuflow runs --format json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--folder", default=FOLDER, metavar="DIR", help=f"where runs are kept; default: {FOLDER}")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(args: argparse.Namespace) -> int:
    rows = [_row(each) for each in runs_in(Path(args.folder))]
    if args.format == "json":
        show_json(rows)
    elif not rows:
        print_text(f"no runs in {args.folder}\n")
    else:
        cells = [[each["run"], each["pipeline"], each["state"], each["begun"], _took(each["seconds"])] for each in rows]
        print_text(table(cells, ("run", "pipeline", "state", "begun", "took")) + "\n")
    return 0


def _row(run: RunFolder) -> dict[str, Any]:
    try:
        facts = run.facts()
    except GpuflowError:
        return {"run": run.id, "pipeline": "", "state": "cannot be read", "begun": "", "seconds": None}
    run.read()
    state = RUNNING if run.is_locked() else run.state
    return {
        "run": run.id,
        "pipeline": facts.pipeline,
        "state": state,
        "begun": facts.moment,
        "seconds": _seconds(run, is_running=state == RUNNING),
    }


def _seconds(run: RunFolder, *, is_running: bool) -> float | None:
    """From its beginning to its last end; of one that was killed to the last that is known."""
    if not run.begun:
        return None
    last = datetime.now(UTC).isoformat() if is_running else run.closed or run.last
    return round((datetime.fromisoformat(last) - datetime.fromisoformat(run.begun)).total_seconds(), 1)


def _took(seconds: float | None) -> str:
    return "" if seconds is None else format_seconds(seconds)
