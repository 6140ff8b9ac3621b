"""`gpuflow check FILE… --cluster DIR|FILE`."""

from __future__ import annotations

import argparse
import sys

from gpuflow.check.report import Report
from gpuflow.check.verdict import check
from gpuflow.cli.inputs import add_common, namespace_of, read_pipelines, read_site
from gpuflow.cli.terminal import paint, show_json
from gpuflow.cluster import read_cluster
from gpuflow.demand import demand_of
from gpuflow.pod.injected import ENGINES
from gpuflow.report.text import render

EXAMPLE = """gpuflow check pipeline.yaml --cluster cluster/ --namespace team-a --engine argo
gpuflow check pipeline.yaml --cluster cluster/ --namespace team-a --fail-on may-queue --format json"""
FAILS = {"never": {"never"}, "unknown": {"never", "unknown"}, "may-queue": {"never", "unknown", "may-queue"}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"))
    parser.add_argument("--cluster", required=True, metavar="DIR|FILE", help="manifests of the cluster")
    parser.add_argument(
        "--engine", choices=ENGINES, default="none", help="whose containers and pods are added; none when not given"
    )
    parser.add_argument(
        "--runs", type=int, default=1, metavar="N", help="how many runs go on at the same time; 1 when not given"
    )
    parser.add_argument(
        "--fail-on",
        choices=tuple(FAILS),
        default="unknown",
        help="which verdicts exit with 1; never and unknown when not given",
    )


def run(args: argparse.Namespace) -> int:
    if args.runs < 1:
        from gpuflow.errors import Where, fail

        raise fail("GF903", f"--runs {args.runs} is below 1", where=Where("gpuflow check"))
    site = read_site(args)
    namespace = namespace_of(args, site)
    pipelines = read_pipelines(args)
    cluster = read_cluster(args.cluster)
    reports = [
        check(demand_of(pipeline, site, args.engine), cluster, namespace, runs=args.runs) for pipeline in pipelines
    ]
    _show(reports, args.format)
    return 1 if any(report.verdict in FAILS[args.fail_on] for report in reports) else 0


def _show(reports: list[Report], format: str) -> None:
    if format == "json":
        documents = [report.document() for report in reports]
        show_json(documents[0] if len(documents) == 1 else documents)
        return
    sys.stdout.write("\n".join(render(report, paint) for report in reports))
