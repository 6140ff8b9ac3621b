"""What the commands about runs on engines share: how an engine is reached, and how a run is shown and followed."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TextIO

from gpuflow.cli.inputs import add_live, add_namespace, read_site
from gpuflow.cli.terminal import line_writer, paint, show_json
from gpuflow.core.errors import Finding
from gpuflow.engines import engine_choices
from gpuflow.plan import Plan
from gpuflow.runs import Connection, client_of
from gpuflow.runs.model import RunClient, RunState
from gpuflow.runs.watch import PATIENCE, PlainView, View, follow, tree_lines, why_on_cluster
from gpuflow.site import presets

EXIT_LEFT = 130
"""Ctrl-C while watching: the run goes on."""


def add_engine_run(parser: argparse.ArgumentParser, *, formats: bool = True, is_engine_needed: bool = True) -> None:
    """--engine, and how to reach it."""
    help = "the engine" if is_engine_needed else "show a run on this engine; default: one on this machine"
    parser.add_argument("--engine", required=is_engine_needed, choices=engine_choices(), help=help)
    help = f"site document or preset ({', '.join(presets())}); default: nvidia"
    parser.add_argument("--site", default="nvidia", metavar="FILE|PRESET", help=help)
    add_namespace(parser)
    add_live(parser)
    help = "address of the engine's UI; default: GPUFLOW_<ENGINE>_URL, or what the engine's own configuration says"
    parser.add_argument("--url", help=help)
    if formats:
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def add_watch(parser: argparse.ArgumentParser) -> None:
    help = "follow the run until it ends; exit code 0 it succeeded, 1 it failed, 75 it was stopped"
    parser.add_argument("--watch", action="store_true", help=help)
    help = f"seconds that the engine may be silent while the run is watched; default: {PATIENCE:g}"
    parser.add_argument("--patience", type=float, default=PATIENCE, metavar="S", help=help)


def connection_of(args: argparse.Namespace) -> Connection:
    namespace = args.namespace or read_site(args).namespace
    return Connection(namespace, args.context, args.kubeconfig, args.timeout, args.url)


def reach(args: argparse.Namespace) -> RunClient:
    """The client of the engine that --engine names."""
    return client_of(args.engine, connection_of(args))


def words_for(args: argparse.Namespace, run: str) -> str:
    """What names a run in another command: its engine, and how that was reached."""
    given = {"--namespace": connection_of(args).namespace, "--context": args.context, "--kubeconfig": args.kubeconfig}
    return " ".join((run, f"--engine {args.engine}", *(f"{name} {value}" for name, value in given.items() if value)))


def writer(args: argparse.Namespace) -> Callable[[str], None]:
    """Lines for a person; with --format json they leave standard output alone."""
    return line_writer(sys.stderr if args.format == "json" else sys.stdout)


def show(args: argparse.Namespace, state: RunState) -> int:
    """The run as it is now."""
    if args.format == "json":
        show_json(state.document())
        return state.exit_code
    write = writer(args)
    told = f": {state.because}" if state.because else ""
    write(f"run {state.run} of {state.pipeline} on {state.engine}: {state.state}{told}")
    for each in (*([f"  {state.url}"] if state.url else []), *tree_lines(state, paint)):
        write(each)
    return state.exit_code


def watch(
    args: argparse.Namespace, client: RunClient, run: str, plan: Plan | None = None, findings: tuple[Finding, ...] = ()
) -> int:
    """Follow a run and show how it ended; the exit code."""
    write = writer(args)
    out = sys.stderr if args.format == "json" else sys.stdout
    view = PlainView(write, lambda text, style: paint(text, style, stream=out))
    with _live_tree(out, view) as shown:
        try:
            why = why_on_cluster(connection_of(args))
            state = follow(client, run, shown, plan=plan, why=why, patience=args.patience)
        except KeyboardInterrupt:
            state = None
    if state is None:
        words = words_for(args, run)
        view.say(f"run {run} goes on. Watch it again: gpuflow status {words} --watch. Stop it: gpuflow stop {words}")
        return EXIT_LEFT
    view.end(state)
    if args.format == "json":
        show_json(replace(state, findings=findings).document())
    return state.exit_code


@contextlib.contextmanager
def _live_tree(out: TextIO, view: PlainView) -> Iterator[View]:
    """The tree that moves, where a person watches and the library for it is there; else the lines."""
    if not out.isatty() or os.environ.get("TERM") == "dumb" or os.environ.get("CI"):
        yield view
        return
    try:
        from gpuflow.cli.live_tree import LiveTree
    except ModuleNotFoundError:
        yield view
        return
    with LiveTree(out) as tree:
        yield tree
