"""`gpuflow validate FILE…`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from gpuflow.cli.folders import pipeline_files
from gpuflow.cli.inputs import add_common, own_pipeline, params_given, read_site
from gpuflow.cli.terminal import paint, print_text, show_findings, show_json
from gpuflow.core.errors import Finding, GpuflowError
from gpuflow.core.printable import line
from gpuflow.engines import NO_ENGINE, engine_names
from gpuflow.formats.contents import Contents, contents_of
from gpuflow.readers import Document, PassiveObject, foreign_in
from gpuflow.site import Site
from gpuflow.targets.target import findings_beside_broken_rules, validation_findings

EXAMPLE = """gpuflow validate pipeline.yaml --site site.yaml
gpuflow validate pipelines/ --site site.yaml --engine argo   # a whole folder, and what Argo would refuse"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"))
    help = "also say what this engine refuses or weakens; default: none"
    parser.add_argument("--engine", choices=(NO_ENGINE, *engine_names()), default=NO_ENGINE, help=help)


class Result(NamedTuple):
    """The findings about one pipeline, or about one object in another tool's file."""

    file: str
    kind: str
    name: str | None
    steps: int
    findings: list[Finding]


def run(args: argparse.Namespace) -> int:
    site = read_site(args)
    results: list[Result] = []
    theirs: list[Document] = []
    for file in pipeline_files(args.files):
        try:
            contents = contents_of(file)
        except GpuflowError as refusal:  # it must be rendered first
            results.append(Result(file, "Pipeline", None, 0, list(refusal.findings)))
            continue
        theirs += contents.documents
        results += [] if contents.documents else [_validate(contents, site, args)]
    results += _of_others(theirs, site, args)
    findings = [finding for each in results for finding in each.findings]
    if args.format == "json":
        show_json(
            [
                {
                    "file": each.file,
                    "pipeline": each.name,
                    **({} if each.kind == "Pipeline" else {"kind": each.kind}),
                    "findings": [finding.document() for finding in each.findings],
                }
                for each in results
            ]
        )
    else:
        show_findings(findings)
        for each in results:
            if each.name is not None and not any(finding.severity == "error" for finding in each.findings):
                noun = "pipeline" if each.kind == "Pipeline" else f"read as it is: {each.kind}"
                steps = "1 step" if each.steps == 1 else f"{each.steps} steps"
                print_text(f"{line(each.file)}: {paint('ok', 'green')}, {noun} {line(each.name)}, {steps}\n")
    return 2 if any(finding.severity == "error" for finding in findings) else 0


def _of_others(documents: list[Document], site: Site, args: argparse.Namespace) -> Iterator[Result]:
    """Documents of other tools: sound when their pods can be worked out. What refers to other files may stay open."""
    active, _ = foreign_in(documents, args.namespace or site.namespace)
    for each in active:
        try:
            demand = each.demand_on_site(site, None, params_given(args.param), args.namespace)
        except GpuflowError as refusal:
            yield Result(each.file, each.document.kind, each.name, 0, list(refusal.findings))
            continue
        if isinstance(demand, PassiveObject):
            yield Result(each.file, each.document.kind, each.name, 0, [])
        else:
            said = [finding for finding in demand.refusals if finding.code != "GF746"]  # nothing is judged there
            if demand.source is not None:
                said = demand.source.unsilenced_findings([*said, *demand.source.strict_findings(())])
            yield Result(each.file, each.document.kind, each.name, len(demand.steps), said)


def _validate(contents: Contents, site: Site, args: argparse.Namespace) -> Result:
    """The pipeline, and what is wrong with it: by itself, on this site, and for the engine."""
    file = contents.file
    try:
        pipeline = own_pipeline(file, args, contents.raw)
    except GpuflowError as refusal:
        found = [*refusal.findings, *findings_beside_broken_rules(refusal, site, args.engine)]
        return Result(file, "Pipeline", None, 0, [each.in_file(file) for each in found])
    steps = len(pipeline.steps) + len(pipeline.exit)
    return Result(
        file, "Pipeline", pipeline.name, steps, validation_findings(pipeline, site, args.engine, args.namespace)
    )
