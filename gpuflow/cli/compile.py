"""`gpuflow compile FILE… --target ENGINE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuflow.cli.destination import COMMAND, Destination
from gpuflow.cli.fitting import add_fit, fitted
from gpuflow.cli.inputs import add_common, read_pipelines, read_site
from gpuflow.cli.output import shown_source
from gpuflow.cli.target_options import add_target_options, target_options
from gpuflow.cli.terminal import paint, put, say, show_findings, show_json
from gpuflow.errors import EnvironmentFailure, Finding, GpuflowError, fail
from gpuflow.printable import line
from gpuflow.site.silence import heard_at
from gpuflow.spec.remarks import heard, remarks_on
from gpuflow.targets import TARGETS, load_target
from gpuflow.targets.frame import Artifact, Batch, Request, Target, compile_with, findings_of

EXAMPLE = """gpuflow compile pipeline.yaml --target argo -o argo_templates/
gpuflow compile pipelines/ --target argo -o argo_templates/ --kustomization   # for kubectl apply -k, Argo CD
gpuflow compile pipeline.yaml --target airflow -o dags/
gpuflow compile pipelines/ --target argo -o argo_templates/ --check   # in CI: exit 1 with a diff when stale"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"))
    parser.add_argument("--target", required=True, choices=tuple(TARGETS), help="the engine")
    parser.add_argument("-o", "--output", metavar="FILE|DIR", help="where to write; default: standard output (-)")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 with a diff when the file at -o is stale"
    )
    parser.add_argument(
        "--follow-links", action="store_true", help="read and write through links at -o; default: they are refused"
    )
    parser.add_argument(
        "--allow-lossy", action="store_true", help="compile without what the engine cannot express, and list it"
    )
    add_target_options(parser)
    add_fit(parser)


def run(args: argparse.Namespace) -> int:
    target = load_target(args.target)
    options = target_options(args, target)
    _refuse_misuse(args)
    site = read_site(args)
    pipelines = read_pipelines(args, site, args.target)
    destination = Destination(args.output, len(pipelines), [*args.files, args.site], follow_links=args.follow_links)
    if destination.output is None and len(pipelines) > 1 and target.separator is None and args.format == "text":
        text = f"{len(pipelines)} {target.facts.title} pipelines do not fit into one document"
        raise fail("GF903", text, where=COMMAND, hint="name a folder: -o compiled/")
    namespace = args.namespace or site.namespace
    requests = [
        Request(
            pipeline,
            site,
            namespace,
            shown_source(pipeline.source.file, destination.output),
            (),
            options,
            remarks,
            file=destination.file,
        )
        for pipeline, remarks in fitted(args, target, site, pipelines)
    ]
    artifacts, notes = _compile_all(args, target, requests, destination)
    for artifact in target.beside(Batch(artifacts, options, namespace, destination.folder, destination.present)):
        notes += artifact.findings
        destination.add(artifact)
    if args.format == "json":
        return _report(artifacts, notes, destination, args.check)
    show_findings(notes)
    if destination.output is None:
        put((target.separator or "").join(artifact.text for artifact in artifacts))
        return 0
    return _compare(destination) if args.check else _write(destination)


def _compile_all(
    args: argparse.Namespace, target: Target, requests: list[Request], destination: Destination
) -> tuple[tuple[Artifact, ...], list[Finding]]:
    """The artifacts of all pipelines and what is to be said of them. What is refused of any of them is one error."""
    artifacts: list[Artifact] = []
    notes: list[Finding] = []
    refusals: list[Finding] = []
    for request in requests:
        try:
            compiled = compile_with(target, request, allow_lossy=args.allow_lossy)
        except EnvironmentFailure:
            raise
        except GpuflowError as refusal:
            remarks = heard(request.pipeline, remarks_on(request.pipeline))
            refusals += [*refusal.findings, *heard_at(request.site, remarks)]
            continue
        notes += findings_of(target, request, compiled)
        artifacts += compiled.artifacts
        destination.place(request.pipeline, compiled.artifacts)
    if refusals:
        if args.format == "json":
            _document((), {}, [], refusals)
        raise GpuflowError(refusals)
    return tuple(artifacts), notes


def _compare(destination: Destination) -> int:
    diffs = destination.stale()
    say("".join(diffs))
    if diffs:
        noun = "file is" if len(diffs) == 1 else "files are"
        say(f"{len(diffs)} {noun} stale: compile again without --check\n", sys.stderr)
    return 1 if diffs else 0


def _write(destination: Destination) -> int:
    destination.write()
    for path in destination.files:
        say(f"{paint('wrote', 'green', stream=sys.stderr)} {line(str(path))}\n", sys.stderr)
    return 0


def _report(artifacts: tuple[Artifact, ...], notes: list[Finding], destination: Destination, check: bool) -> int:
    """What was compiled, for a program. Files are written, or compared, as without --format json."""
    diffs = destination.stale() if check else []
    if not check:
        destination.write()
    _document(artifacts, destination.files, diffs, notes)
    return 1 if diffs else 0


def _document(
    artifacts: tuple[Artifact, ...], files: dict[Path, str], diffs: list[str], findings: list[Finding]
) -> None:
    show_json(
        {
            "artifacts": [{"name": artifact.name, "text": artifact.text} for artifact in artifacts],
            "files": [str(path) for path in files],
            "stale": diffs,
            "findings": [finding.document() for finding in findings],
        }
    )


def _refuse_misuse(args: argparse.Namespace) -> None:
    if args.output == "":
        raise fail("GF903", "-o needs a path", where=COMMAND, hint="name a file or a folder")
    if args.check and args.output in (None, "-"):
        raise fail("GF903", "--check compares with a file, so it needs -o", where=COMMAND)
