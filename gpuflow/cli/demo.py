"""`gpuflow demo`: the whole story in one screen."""

from __future__ import annotations

import argparse
from dataclasses import replace
from importlib import resources
from pathlib import Path

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.cli.output import write_files
from gpuflow.cli.terminal import paint, print_text
from gpuflow.cluster import Cluster, read_cluster
from gpuflow.core.errors import GpuflowError
from gpuflow.core.printable import line
from gpuflow.demands import demand_of
from gpuflow.engines import DEFAULT_ENGINE, ENGINES
from gpuflow.report.graph_drawing import pipeline_text
from gpuflow.report.text import COLOR, bar
from gpuflow.site import Site
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import load_target
from gpuflow.targets.target import Request, compile_with

EXAMPLE = """gpuflow demo
gpuflow demo -o demo/     # also writes the pipeline, the cluster and the three compiled files"""
DATA = Path(str(resources.files("gpuflow"))) / "demo"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="DIR", help="write the example and its compiled files to this folder")


def run(args: argparse.Namespace) -> int:
    site = Site.load(str(DATA / "site.yaml"))
    pipeline = load(DATA / "nightly.yaml")
    print_text(pipeline_text(pipeline, paint) + "\n")
    files = _compile_everywhere(pipeline, site)
    if args.output:
        sources = {path.relative_to(DATA): path.read_text(encoding="utf-8") for path in sorted(DATA.rglob("*.yaml"))}
        folder = Path(args.output)
        write_files({folder / name: text for name, text in {**sources, **files}.items()}, folder=folder)
        print_text(f"written to {line(args.output)}\n")
    team = read_cluster(str(DATA / "cluster"))
    wider = loads(
        (DATA / "nightly.yaml").read_text(encoding="utf-8").replace("a100-80gb x 2", "a100-80gb x 7"),
        "nightly-7-gpus.yaml",
    )
    limited = (*team.objects, *read_cluster(str(DATA / "limit-range")).objects)
    copied = replace(team, source="the same with gpu-limits", objects=limited)
    _show_check("team-a: GPU quota 10, 4 in use", pipeline, site, team)
    _show_check("the same, training on 7 GPUs", wider, site, team)
    _show_check("the same cluster with a common LimitRange (GPU min 1, max 2 per container)", pipeline, site, copied)
    return 0


def _compile_everywhere(pipeline: Pipeline, site: Site) -> dict[Path, str]:
    files: dict[Path, str] = {}
    for name in sorted(ENGINES):
        try:
            request = Request(pipeline, site, site.namespace, "nightly.yaml")
            compiled = compile_with(load_target(name), request, allow_lossy=True)
        except GpuflowError as refusal:
            print_text(f"compile {name:9} {paint('not here', 'yellow')}  {line(refusal.findings[0].message)}\n")
            continue
        artifact = compiled.artifact
        files |= {Path(name) / each.name: each.text for each in compiled.artifacts}
        lost = [loss.construct or loss.message for loss in compiled.losses]
        losses = f", without {', '.join(lost)}" if lost else ", nothing lost"
        size = f"{artifact.name}, {len(artifact.text.splitlines())} lines"
        print_text(f"compile {name:9} {paint('ok', 'green')}  {size}{losses}\n")
    print_text("\n")
    return files


def _show_check(title: str, pipeline: Pipeline, site: Site, cluster: Cluster) -> None:
    assert site.namespace is not None
    report = check(demand_of(pipeline, site, DEFAULT_ENGINE), cluster, site.namespace)
    verdict = paint(report.verdict.replace("-", " ").upper(), "bold", COLOR[report.verdict])
    print_text(f"{paint('check', 'bold')} {title}: {verdict}\n")
    for scope in report.scopes:
        if "nvidia" in scope.resource:
            numbers = f"used {scope.used!s:3} peak {scope.peak!s:3} hard {scope.hard!s:3}"
            print_text(f"  {scope.resource:33} {numbers} {bar(scope)}\n")
    print_text("".join(f"  {line(each)}\n" for each in _finding_lines(report)) + "\n")


def _finding_lines(report: Report) -> list[str]:
    lines = []
    for finding in report.findings[:3]:
        lines.append(f"{finding.code} {finding.message}")
        if finding.kubernetes:
            lines.append(f"      Kubernetes: {finding.kubernetes}")
    return lines
