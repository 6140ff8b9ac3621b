"""`gpuflow stop RUN --engine ENGINE`."""

from __future__ import annotations

import argparse

from gpuflow.cli.engine_runs import add_engine_run, reach, show

EXAMPLE = "gpuflow stop nightly-x7k2p --engine argo --namespace team-a"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="as gpuflow submit named it")
    add_engine_run(parser)


def run(args: argparse.Namespace) -> int:
    state = reach(args).stop(args.run)
    show(args, state)
    return 0
