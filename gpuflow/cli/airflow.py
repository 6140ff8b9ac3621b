"""`gpuflow airflow pools FILE…`."""

from __future__ import annotations

import argparse

from gpuflow.cli.inputs import add_common, available_amounts, read_pipelines, read_site, show_remarks
from gpuflow.cli.terminal import show_json
from gpuflow.targets.airflow.pools import pools

EXAMPLE = """gpuflow airflow pools pipelines/*.yaml --available nvidia.com/gpu=10 > pools.json
airflow pools import pools.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="pools")
    each = actions.add_parser("pools", help="the GPU pools these pipelines need, as `airflow pools import` reads them")
    add_common(each, ("json",))
    each.add_argument(
        "--available",
        action="append",
        default=[],
        metavar="RESOURCE=N",
        help="how many of a resource the namespace may use; may be repeated",
    )


def run(args: argparse.Namespace) -> int:
    available = available_amounts(args.available, "gpuflow airflow pools")
    site = read_site(args)
    pipelines = read_pipelines(args, site, "airflow")
    show_remarks(pipelines, site)
    show_json(pools(pipelines, site, available or None))
    return 0
