"""`gpuflow retry RUN --engine ENGINE`."""

from __future__ import annotations

import argparse

from gpuflow.cli.engine_runs import add_engine_run, add_watch, reach, show, watch
from gpuflow.cli.terminal import show_findings

EXAMPLE = """gpuflow retry nightly-x7k2p --engine argo --namespace team-a
gpuflow retry nightly-x7k2p --engine argo --namespace team-a --watch"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", help="as gpuflow submit named it")
    add_engine_run(parser)
    add_watch(parser)


def run(args: argparse.Namespace) -> int:
    client = reach(args)
    started = client.retry(args.run)
    show_findings(started.findings)
    if not args.watch:
        show(args, client.state(started.run))
        return 0
    return watch(args, client, started.run, findings=started.findings)
