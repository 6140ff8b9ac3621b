"""`gpuflow validate FILE…`."""

from __future__ import annotations

import argparse

from gpuflow.cli.folders import pipeline_files
from gpuflow.cli.inputs import add_common, python_is_allowed, read_site, with_params
from gpuflow.cli.terminal import paint, say, show_findings, show_json
from gpuflow.errors import Finding, GpuflowError
from gpuflow.plan import plan_of
from gpuflow.pod import pod_for
from gpuflow.printable import line
from gpuflow.site import Site
from gpuflow.site.exposed_secrets import exposed_in_site
from gpuflow.spec.exposed_secrets import exposed_secrets
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline

EXAMPLE = """gpuflow validate pipeline.yaml --site site.yaml
gpuflow validate pipelines/ --site site.yaml   # every pipeline in the folder"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"))


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
                steps = len(pipeline.steps) + len(pipeline.exit)
                say(f"{line(file)}: {paint('ok', 'green')}, pipeline {pipeline.name}, {steps} steps\n")
    return 2 if any(finding.severity == "error" for finding in findings) else 0


def _validate(file: str, site: Site, args: argparse.Namespace) -> tuple[Pipeline | None, list[Finding]]:
    """The pipeline, and what is wrong with it: by itself, and on this site."""
    try:
        pipeline = with_params(load(file, allow_python=python_is_allowed(args)), args.param)
    except GpuflowError as refusal:
        return None, [finding.in_file(file) for finding in refusal.findings]
    return pipeline, [*site_findings(pipeline, site), *exposed_secrets(pipeline), *exposed_in_site(site)]


def site_findings(pipeline: Pipeline, site: Site) -> list[Finding]:
    """What the site has no word for, over all steps."""
    findings: list[Finding] = []
    for each in plan_of(pipeline, site).containers:
        try:
            pod_for(each.pipeline, each.own_name, site)
        except GpuflowError as refusal:
            findings += refusal.findings
    return findings
