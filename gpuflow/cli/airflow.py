"""`gpuflow airflow pools FILE…`."""

from __future__ import annotations

import argparse

from gpuflow.cli.inputs import (
    add_common,
    add_live,
    available_amounts,
    cluster_at,
    namespace_of,
    read_pipelines,
    read_site,
    show_remarks,
)
from gpuflow.cli.terminal import show_findings, show_json
from gpuflow.site.model import without_site_silenced
from gpuflow.targets.airflow.pools import pools

EXAMPLE = """gpuflow airflow pools pipelines/*.yaml --cluster cluster/ --namespace nlp > pools.json
gpuflow airflow pools pipelines/*.yaml --available nvidia.com/gpu=10 > pools.json
airflow pools import pools.json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="pools")
    each = actions.add_parser("pools", help="the GPU pools these pipelines need, as `airflow pools import` reads them")
    add_common(each, ("json",))
    help = "how many of a resource the namespace may use; may be repeated, and overrules --cluster"
    each.add_argument("--available", action="append", default=[], metavar="RESOURCE=N", help=help)
    help = "take the numbers from there: the smallest of quota, Kueue's nominal quota and nodes; default: as many as "
    help += "the largest pipeline takes at its worst moment"
    each.add_argument("--cluster", metavar="DIR|FILE|live", help=help)
    add_live(each)


def run(args: argparse.Namespace) -> int:
    available = available_amounts(args.available, "gpuflow airflow pools")
    site = read_site(args)
    pipelines = read_pipelines(args, site, "airflow")
    cluster, namespace = None, args.namespace or site.namespace or "default"
    if args.cluster is not None:
        namespace = namespace_of(args, site)
        cluster = cluster_at(args, namespace).with_default_namespace(namespace).seen_from(namespace)
    show_remarks(pipelines, site)
    found, findings = pools(pipelines, site, available, cluster, namespace)
    show_findings(without_site_silenced(site, findings))
    show_json(found)
    return 0
