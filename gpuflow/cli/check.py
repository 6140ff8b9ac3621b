"""`gpuflow check FILE… --cluster DIR|FILE`."""

from __future__ import annotations

import argparse
from dataclasses import replace

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.checker.side_by_side import check_together, checked_alone
from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.cli.inputs import (
    add_common,
    add_engine,
    namespace_of,
    python_is_allowed,
    read_pipelines,
    read_site,
    with_params,
)
from gpuflow.cli.progress import progress
from gpuflow.cli.revisions import earlier
from gpuflow.cli.snapshot import add_live
from gpuflow.cli.terminal import paint, put, say, show_json
from gpuflow.cluster import Cluster, read_cluster
from gpuflow.cluster.live import read_live
from gpuflow.demands import Demand, demand_of
from gpuflow.errors import Where, fail
from gpuflow.report.machine import github, junit, sarif
from gpuflow.report.markdown import comparison, markdown
from gpuflow.report.text import render
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.frame import engine_findings

EXAMPLE = """gpuflow check pipeline.yaml --cluster cluster/ --namespace team-a --engine argo
gpuflow check pipeline.yaml --cluster cluster/ --namespace team-a --fail-on may-queue --format json
gpuflow check a.yaml b.yaml --cluster cluster/ --namespace team-a --together   # at the same time
gpuflow check pipeline.yaml --cluster cluster/ --namespace team-a --compare origin/main   # for the pull request"""
FAILS = {"never": {"never"}, "unknown": {"never", "unknown"}, "may-queue": {"never", "unknown", "may-queue"}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json", "sarif", "junit", "markdown", "github"))
    parser.add_argument(
        "--cluster",
        required=True,
        metavar="DIR|FILE|live",
        help="manifests of the cluster, or live for the current cluster",
    )
    add_live(parser)
    add_engine(parser)
    parser.add_argument(
        "--allow-lossy", action="store_true", help="check what compile --allow-lossy writes for the engine"
    )
    parser.add_argument(
        "--runs",
        type=int,
        metavar="N",
        help="how many runs are active at the same time; default: as many as the engine lets overlap, else 1",
    )
    parser.add_argument(
        "--together", action="store_true", help="also check all these pipelines side by side, as if they run at once"
    )
    parser.add_argument(
        "--fail-on",
        choices=tuple(FAILS),
        default="unknown",
        help="which verdicts exit with 1; default: never and unknown",
    )

    parser.add_argument(
        "--compare",
        metavar="FILE|REV",
        help="show how peak and verdict change compared with another file or Git revision; git:REV is never a file",
    )


def run(args: argparse.Namespace) -> int:
    if args.runs is not None and args.runs < 1:
        raise fail("GF903", f"--runs {args.runs} is below 1", where=Where("gpuflow check"))
    site = read_site(args)
    namespace = namespace_of(args, site)
    pipelines = read_pipelines(args, site, args.engine)
    cluster = PreparedCluster(_cluster(args, namespace), namespace)
    if args.compare:
        if args.together:
            raise fail("GF903", "--compare and --together exclude each other", where=Where("gpuflow check"))
        return _compare(args, pipelines, site, cluster, namespace)
    demands, reports = [], []
    for pipeline in pipelines:
        with progress(f"checking {pipeline.name}"):
            demands.append(_demand(args, pipeline, site))
            reports.append(check(demands[-1], cluster, namespace, runs=args.runs))
    whole = None
    if args.together and len(demands) > 1:
        with progress("checking them together"):
            whole = check_together(demands, reports, cluster, namespace, args.runs)
    elif len(reports) > 1 and args.format != "text":
        reports = [checked_alone(each, [other for other in reports if other is not each]) for each in reports]
    _show(reports, whole, args.format, FAILS[args.fail_on])
    verdicts = [each.verdict for each in (*reports, whole) if each is not None]
    return 1 if any(verdict in FAILS[args.fail_on] for verdict in verdicts) else 0


def _demand(args: argparse.Namespace, pipeline: Pipeline, site: Site) -> Demand:
    demand = demand_of(pipeline, site, args.engine)
    if args.allow_lossy:
        return replace(demand, refusals=engine_findings(args.engine, pipeline, site, allow_lossy=True))
    return demand


def _cluster(args: argparse.Namespace, namespace: str) -> Cluster:
    if args.cluster != "live":
        with progress(f"reading {args.cluster}"):
            return read_cluster(args.cluster)
    return read_live(namespace, args.context, kubeconfig=args.kubeconfig, timeout=args.timeout)


def _show(reports: list[Report], whole: Report | None, format: str, failing: set[str]) -> None:
    """`whole`: the report about all pipelines side by side, where that was asked for."""
    if format == "json":
        documents = [report.document() for report in reports]
        if whole is not None:
            documents.append({"together": whole.document()})
        show_json(documents[0] if len(documents) == 1 else documents)
        return
    if whole is not None:
        reports = [*reports, whole]
    if format == "text":
        say("\n".join(render(report, paint) for report in reports))
        if whole is None and len(reports) > 1:
            say(f"\nEach of these {len(reports)} pipelines was checked alone; --together checks them side by side.")
    elif format == "markdown":
        put(markdown(reports))
    elif format == "sarif":
        put(sarif(reports))
    else:
        put({"junit": junit, "github": github}[format](reports, failing))


def _compare(
    args: argparse.Namespace, pipelines: list[Pipeline], site: Site, cluster: PreparedCluster, namespace: str
) -> int:
    """Markdown for a pull request: verdict and peaks before and after. Exits by the verdict after."""
    if args.format not in ("text", "markdown", "json"):
        hint = "use --format markdown or json, or leave --compare out"
        raise fail("GF903", f"--compare has no {args.format} form", where=Where("gpuflow check"), hint=hint)
    failed = False
    documents = []
    for pipeline, file in zip(pipelines, args.files, strict=True):
        other = earlier(file, args.compare, allow_python=python_is_allowed(args))
        with progress(f"checking {pipeline.name} before and after"):
            before, after = (
                check(_demand(args, one, site), cluster, namespace, runs=args.runs)
                for one in (with_params(other, args.param), pipeline)
            )
        failed |= after.verdict in FAILS[args.fail_on]
        documents.append({"before": before.document(), "after": after.document()})
        if args.format != "json":
            put(comparison(before, after))
    if args.format == "json":
        show_json(documents[0] if len(documents) == 1 else documents)
    return 1 if failed else 0
