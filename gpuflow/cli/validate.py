"""`gpuflow validate FILE…`."""

from __future__ import annotations

import argparse

from gpuflow.cli.folders import pipeline_files
from gpuflow.cli.inputs import add_common, own_pipeline, read_site
from gpuflow.cli.terminal import paint, say, show_findings, show_json
from gpuflow.engines import NO_ENGINE, engine_names
from gpuflow.errors import Finding, GpuflowError
from gpuflow.printable import line
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets.judging import further_faults, judged

EXAMPLE = """gpuflow validate pipeline.yaml --site site.yaml
gpuflow validate pipelines/ --site site.yaml --engine argo   # a whole folder, and what Argo would refuse"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"))
    parser.add_argument(
        "--engine",
        choices=(NO_ENGINE, *engine_names()),
        default=NO_ENGINE,
        help="also say what this engine refuses or weakens; default: none",
    )


def run(args: argparse.Namespace) -> int:
    site = read_site(args)
    results = {file: _validate(file, site, args) for file in pipeline_files(args.files)}
    findings = [finding for _, found in results.values() for finding in found]
    if args.format == "json":
        show_json(
            [
                {
                    "file": file,
                    "pipeline": pipeline.name if pipeline else None,
                    "findings": [finding.document() for finding in found],
                }
                for file, (pipeline, found) in results.items()
            ]
        )
    else:
        show_findings(findings)
        for file, (pipeline, found) in results.items():
            if pipeline is not None and not any(finding.severity == "error" for finding in found):
                count = len(pipeline.steps) + len(pipeline.exit)
                steps = "1 step" if count == 1 else f"{count} steps"
                say(f"{line(file)}: {paint('ok', 'green')}, pipeline {pipeline.name}, {steps}\n")
    return 2 if any(finding.severity == "error" for finding in findings) else 0


def _validate(file: str, site: Site, args: argparse.Namespace) -> tuple[Pipeline | None, list[Finding]]:
    """The pipeline, and what is wrong with it: by itself, on this site, and for the engine."""
    try:
        pipeline = own_pipeline(file, args)
    except GpuflowError as refusal:
        return None, [each.in_file(file) for each in (*refusal.findings, *further_faults(refusal, site, args.engine))]
    return pipeline, judged(pipeline, site, args.engine, args.namespace)
