"""`gpuflow compile FILE… --target ENGINE`."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from gpuflow.cli.fitting import add_fit, fitted
from gpuflow.cli.inputs import add_common, read_pipelines, read_site
from gpuflow.cli.output import shown_source, stale, write_files
from gpuflow.cli.target_options import add_target_options, target_options
from gpuflow.cli.terminal import paint, show_findings, show_json
from gpuflow.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import TARGETS, load_target
from gpuflow.targets.frame import Artifact, Batch, Request, compile_with, findings_of

EXAMPLE = """gpuflow compile pipeline.yaml --target argo -o argo_templates/
gpuflow compile pipelines/*.yaml --target argo -o argo_templates/ --kustomization   # for kubectl apply -k, Argo CD
gpuflow compile pipeline.yaml --target airflow -o dags/
gpuflow compile pipelines/*.yaml --target argo -o argo_templates/ --check   # in CI: exit 1 with a diff when stale"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"))
    parser.add_argument("--target", required=True, choices=tuple(TARGETS), help="the engine")
    parser.add_argument("-o", "--output", metavar="FILE|DIR", help="where to write; default: standard output (-)")
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 with a diff when the file at -o is stale"
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
    namespace = args.namespace or site.namespace
    pipelines = read_pipelines(args)
    output = Path(args.output) if args.output not in (None, "-") else None
    folder = output if output is not None and _is_folder(args.output, len(pipelines)) else None
    if output is None and len(pipelines) > 1 and target.separator is None and args.format == "text":
        text = f"{len(pipelines)} {target.facts.title} pipelines do not fit into one document"
        raise fail("GF903", text, where=Where("gpuflow compile"), hint="name a folder: -o compiled/")
    files: dict[Path, str] = {}
    artifacts: list[Artifact] = []
    notes: list[Finding] = []
    refusals: list[Finding] = []
    for pipeline, remarks in fitted(args, target, site, pipelines):
        source = shown_source(pipeline.source.file, output)
        request = Request(pipeline, site, namespace, source, (), options, remarks)
        try:
            compiled = compile_with(target, request, allow_lossy=args.allow_lossy)
        except EnvironmentFailure:
            raise
        except GpuflowError as refusal:
            refusals += refusal.findings
            continue
        notes += findings_of(target, request, compiled)
        artifacts += compiled.artifacts
        if output is not None and folder is None and len(compiled.artifacts) > 1:
            text = f'"{pipeline.name}" becomes {len(compiled.artifacts)} files, and -o {output} is one'
            raise fail("GF903", text, where=Where("gpuflow compile"), hint=f"name a folder: -o {output.parent}/")
        for artifact in compiled.artifacts if output is not None else ():
            path = folder / artifact.name if folder else output
            assert path is not None
            _place(files, path, artifact, pipeline, [*args.files, args.site])
    if refusals:
        raise GpuflowError(refusals)
    for artifact in target.beside(Batch(tuple(artifacts), options, namespace, folder, partial(_present, folder))):
        notes += artifact.findings
        if folder is not None:
            files[folder / artifact.name] = artifact.text
    if args.format == "json":
        return _report(artifacts, notes, files, args.check)
    show_findings(notes)
    if output is None:
        sys.stdout.write((target.separator or "").join(artifact.text for artifact in artifacts))
        return 0
    if args.check:
        diffs = stale(files)
        sys.stdout.write("".join(diffs))
        if diffs:
            noun = "file is" if len(diffs) == 1 else "files are"
            sys.stderr.write(f"{len(diffs)} {noun} stale: compile again without --check\n")
        return 1 if diffs else 0
    write_files(files)
    for path in files:
        sys.stderr.write(f"{paint('wrote', 'green', stream=sys.stderr)} {path}\n")
    return 0


def _report(artifacts: list[Artifact], notes: list[Finding], files: dict[Path, str], check: bool) -> int:
    """What was compiled, for a program. Files are written, or compared, as without --format json."""
    diffs = stale(files) if check else []
    if not check:
        write_files(files)
    show_json(
        {
            "artifacts": [{"name": artifact.name, "text": artifact.text} for artifact in artifacts],
            "files": [str(path) for path in files],
            "stale": diffs,
            "findings": [note.document() for note in notes],
        }
    )
    return 1 if diffs else 0


def _refuse_misuse(args: argparse.Namespace) -> None:
    where = Where("gpuflow compile")
    if args.output == "":
        raise fail("GF903", "-o needs a path", where=where, hint="name a file or a folder")
    if args.check and args.output in (None, "-"):
        raise fail("GF903", "--check compares with a file, so it needs -o", where=where)


def _is_folder(output: str, count: int) -> bool:
    return output.endswith("/") or Path(output).is_dir() or (count > 1 and not Path(output).is_file())


def _present(folder: Path | None) -> dict[str, str]:
    """The files that lie in a folder, with their text."""
    files = folder.glob("*") if folder is not None else ()
    return {file.name: file.read_text("utf-8", errors="replace") for file in files if file.is_file()}


def _place(files: dict[Path, str], path: Path, artifact: Artifact, pipeline: Pipeline, read: list[str]) -> None:
    """Note what goes where; never over one of the files that were `read`."""
    source = pipeline.source.file
    written_over = next((file for file in read if path.exists() and Path(file).exists() and path.samefile(file)), None)
    if written_over is not None:
        itself = "the pipeline itself" if written_over == source else "read by this command"
        raise fail(
            "GF903",
            f"-o {path} would overwrite {itself}",
            where=Where(source),
            hint="name another file, or a folder",
        )
    if path in files:
        raise fail(
            "GF304",
            f'two pipelines would be written to {path}; the second is "{pipeline.name}"',
            where=Where(pipeline.source.file),
            hint="give them different names, or name a folder at -o",
        )
    files[path] = artifact.text
