"""`gpuflow compile FILE… --target ENGINE`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpuflow.cli.fitting import fitted
from gpuflow.cli.inputs import add_common, read_pipelines, read_site
from gpuflow.cli.output import shown_source, stale, write_files
from gpuflow.cli.terminal import paint, show_findings, show_json
from gpuflow.errors import Finding, GpuflowError, Where, fail
from gpuflow.spec.pipeline import Pipeline
from gpuflow.targets import TARGETS, load_target
from gpuflow.targets.frame import Artifact, Request, compile_with, site_notes, weaknesses

EXAMPLE = """gpuflow compile pipeline.yaml --target argo -o argo_templates/
gpuflow compile pipelines/*.yaml --target argo -o argo_templates/ --kustomization   # for kubectl apply -k, Argo CD
gpuflow compile pipeline.yaml --target airflow -o dags/
gpuflow compile pipelines/*.yaml --target argo -o argo_templates/ --check   # in CI: exit 1 with a diff when stale"""

OWN = {
    "form": ("--as", ("argo", "kubeflow")),
    "kustomization": ("--kustomization", ("argo",)),
    "semaphores": ("--semaphores", ("argo",)),
    "pools": ("--pools", ("airflow",)),
    "standalone": ("--standalone", ("airflow",)),
}
"""Options that only some targets have; elsewhere they are refused, because they would do nothing."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"))
    parser.add_argument("--target", required=True, choices=tuple(TARGETS), help="the engine")
    parser.add_argument(
        "-o", "--output", metavar="FILE|DIR", help="where to write; standard output when - or not given"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 with a diff when the file at -o is stale"
    )
    parser.add_argument(
        "--allow-lossy", action="store_true", help="compile without what the engine cannot say, and name it"
    )
    parser.add_argument(
        "--as",
        dest="form",
        metavar="KIND",
        help="argo: WorkflowTemplate, Workflow, CronWorkflow, ClusterWorkflowTemplate; kubeflow: crd",
    )
    parser.add_argument(
        "--kustomization", action="store_true", help="argo: also write kustomization.yaml, which lists what is compiled"
    )
    parser.add_argument(
        "--fit",
        metavar="CLUSTER",
        help="argo: cap the parallelism of the run so that it always fits the namespace's quotas (DIR|FILE|live)",
    )
    parser.add_argument(
        "--semaphores",
        metavar="CONFIGMAP",
        help="argo: let GPU steps hold a semaphore of their size (gpuflow argo semaphores prints the ConfigMap)",
    )
    parser.add_argument("--pools", action="store_true", help="airflow: put GPU tasks in pools (gpuflow airflow pools)")
    parser.add_argument("--standalone", action="store_true", help="airflow: a DAG file that imports nothing of gpuflow")


def run(args: argparse.Namespace) -> int:
    _refuse_strange_options(args)
    target = load_target(args.target)
    site = read_site(args)
    namespace = args.namespace or site.namespace
    pipelines = read_pipelines(args)
    output = Path(args.output) if args.output not in (None, "-") else None
    folder = output if output is not None and _is_folder(args.output, len(pipelines)) else None
    if args.check and output is None:
        raise fail("GF903", "--check compares with a file, so it needs -o", where=Where("gpuflow compile"))
    if output is None and len(pipelines) > 1 and args.target == "kubeflow" and args.format == "text":
        hint = "name a folder: -o compiled/"
        where = Where("gpuflow compile")
        raise fail("GF903", f"{len(pipelines)} KFP pipelines cannot stand in one document", where=where, hint=hint)
    options = {"as": args.form} if args.form else {}
    if args.semaphores:
        options["semaphores"] = args.semaphores
    if args.pools:
        options["pools"] = "true"
    if args.standalone:
        options["standalone"] = "true"
    files: dict[Path, str] = {}
    names: list[str] = []
    texts: list[str] = []
    notes: list[Finding] = []
    for pipeline, reason in fitted(args, site, pipelines):
        source = shown_source(pipeline.source.file, output)
        request = Request(pipeline, site, namespace, source, (), {**options, **reason})
        artifact, lost = compile_with(target, request, allow_lossy=args.allow_lossy)
        notes += [
            Finding("GF303", loss.sentence(args.target), loss.where, loss.why.instead, "warning") for loss in lost
        ]
        notes += weaknesses(pipeline, target.capabilities)
        notes += site_notes(pipeline, site)
        notes += target.notes(request)
        notes += artifact.findings
        names.append(artifact.name)
        texts.append(artifact.text)
        if output is not None:
            path = folder / artifact.name if folder else output
            _place(files, path, artifact, pipeline, [*args.files, args.site])
    if args.kustomization:
        notes += _add_kustomization(files, folder, namespace, args)
    if args.format == "json":
        return _report(names, texts, notes, files, args.check)
    show_findings(notes)
    if output is None:
        sys.stdout.write(("---\n" if args.target == "argo" else "").join(texts))
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


def _report(names: list[str], texts: list[str], notes: list[Finding], files: dict[Path, str], check: bool) -> int:
    """What was compiled, for a program. Files are written, or compared, as without --format json."""
    diffs = stale(files) if check else []
    if not check:
        write_files(files)
    show_json(
        {
            "artifacts": [{"name": name, "text": text} for name, text in zip(names, texts, strict=True)],
            "files": [str(path) for path in files],
            "stale": diffs,
            "findings": [note.document() for note in notes],
        }
    )
    return 1 if diffs else 0


def _refuse_strange_options(args: argparse.Namespace) -> None:
    for name, (option, targets) in OWN.items():
        if getattr(args, name) and args.target not in targets:
            known = " and ".join(targets)
            where = Where("gpuflow compile")
            raise fail("GF903", f"{option} is for --target {known}", where=where, hint=f"leave {option} out")
    if args.output == "":
        raise fail(
            "GF903", "-o is given without a place", where=Where("gpuflow compile"), hint="name a file or a folder"
        )


def _is_folder(output: str, count: int) -> bool:
    return output.endswith("/") or Path(output).is_dir() or (count > 1 and not Path(output).is_file())


def _add_kustomization(
    files: dict[Path, str], folder: Path | None, namespace: str | None, args: argparse.Namespace
) -> list[Finding]:
    """Put kustomization.yaml beside the compiled files; what somebody else wrote there is never written over."""
    from gpuflow.targets.argo import kustomize  # loads Hera

    where = Where("gpuflow compile")
    if args.target != "argo" or folder is None:
        raise fail("GF903", "--kustomization is for --target argo with a folder at -o", where=where)
    if args.form == "Workflow":
        hint = "compile WorkflowTemplates, and start runs with argo submit --from"
        raise fail("GF903", "a Workflow has no name yet, so kustomize cannot list it", where=where, hint=hint)
    path = folder / kustomize.NAME
    if path in files:
        hint = f'do not call a pipeline "{path.stem}"'
        raise fail(
            "GF304", f"a pipeline would be written to {path}, as would the kustomization", where=where, hint=hint
        )
    names = [file.name for file in files]
    present = {file.name: file.read_text("utf-8", errors="replace") for file in folder.glob("*") if file.is_file()}
    refusals = kustomize.refusals(folder, present)
    if refusals:
        raise GpuflowError(refusals)
    # A cluster-wide template has no namespace, and kustomize would give it one.
    files[path] = kustomize.kustomization(names, None if args.form == "ClusterWorkflowTemplate" else namespace)
    return kustomize.left_over(folder, present, names)


def _place(files: dict[Path, str], path: Path, artifact: Artifact, pipeline: Pipeline, read: list[str]) -> None:
    """Note what goes where; never over one of the files that were `read`."""
    source = pipeline.source.file
    written_over = next((file for file in read if path.exists() and Path(file).exists() and path.samefile(file)), None)
    if written_over is not None:
        itself = "the pipeline itself" if written_over == source else "read by this command"
        raise fail(
            "GF903",
            f"-o {path} is {itself}, which would be written over",
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
