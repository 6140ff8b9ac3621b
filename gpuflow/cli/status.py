"""`gpuflow status RUN --engine ENGINE`."""

from __future__ import annotations

import argparse

from gpuflow.cli.engine_runs import add_engine_run, add_watch, reach, show, watch

EXAMPLE = """gpuflow status nightly-x7k2p --engine argo --namespace team-a
gpuflow status nightly-x7k2p --engine argo --namespace team-a --watch"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="as gpuflow submit named it")
    add_engine_run(parser)
    add_watch(parser)


def run(args: argparse.Namespace) -> int:
    client = reach(args)
    return watch(args, client, args.run) if args.watch else show(args, client.state(args.run))
