"""`gpuflow compile FILE… --target ENGINE`: the flags of each target, `--fit`, and where compiled files go.

The flags are built from the targets' own options. A flag of another target is refused: it would do nothing. `--fit`
compiles with the cap that makes a pipeline fit the quotas of a namespace. Files go to standard output, to one file, or
into a folder; compiling never overwrites its input.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpuflow.cli.inputs import add_common, namespace_of, read_pipelines, read_site
from gpuflow.cli.output import MAX_BYTES, diff_files, show_written, shown_source, write_files
from gpuflow.cli.terminal import print_text, put, show_findings, show_json
from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, fail
from gpuflow.core.files import read_at_most
from gpuflow.engines import ENGINES, facts_of
from gpuflow.site.model import Site, without_site_silenced
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.remarks import remarks_on, without_silenced
from gpuflow.targets import load_target
from gpuflow.targets.target import Artifact, Batch, Flag, Request, Target, compile_with, findings_of, flags_of


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """One flag for each option there is; the help says whose it is."""
    for flag, owners in _flag_targets().items():
        text = "; ".join(f"{target}: {option.help}" for target, option in owners.items())
        metavar = next(iter(owners.values())).metavar
        if metavar is None:
            parser.add_argument(flag, dest=flag, action="store_true", help=text)
        else:
            parser.add_argument(flag, dest=flag, metavar=metavar, help=text)


def target_options(args: argparse.Namespace, target: Target) -> Any:
    """The options that were given, as the target's own type."""
    for flag, owners in _flag_targets().items():
        if getattr(args, flag) and target.name not in owners:
            known = " and ".join(owners)
            where = Where("gpuflow compile")
            raise fail("GF903", f"{flag} is for --target {known}", where=where, hint=f"leave {flag} out")
    return target.options(**{option.field: getattr(args, option.flag) for option in flags_of(target.options)})


def _flag_targets() -> dict[str, dict[str, Flag]]:
    """Every flag, with the targets that have it."""
    found: dict[str, dict[str, Flag]] = {}
    for name in sorted(ENGINES):
        for option in flags_of(load_target(name).options):
            found.setdefault(option.flag, {})[name] = option
    return found


def add_fit(parser: argparse.ArgumentParser) -> None:
    help = f"{', '.join(_targets_with_cap())}: limit the parallelism of the run so that it always "
    help += "fits the namespace's quotas "
    help += "(DIR|FILE|live)"
    parser.add_argument("--fit", metavar="CLUSTER", help=help)


def _targets_with_cap() -> list[str]:
    """The targets whose `parallel` bounds all the pods of a run."""
    return [name for name in ENGINES if facts_of(name).caps_pods]


def fit_pipelines(
    args: argparse.Namespace, target: Target, site: Site, pipelines: list[Pipeline]
) -> list[tuple[Pipeline, tuple[str, ...]]]:
    """Every pipeline with its cap, and the reason for it as a line of the header; as they are without --fit."""
    if not args.fit:
        return [(pipeline, ()) for pipeline in pipelines]
    if not target.facts.caps_pods:
        raise fail(
            "GF903",
            f"--fit is for --target {' and '.join(_targets_with_cap())}: {args.target} cannot limit all pods of a run",
            where=Where("gpuflow compile"),
            hint="gpuflow check prints a safe value for parallel; set it on the fan-outs",
        )
    # Imported here, because compiling without --fit needs nothing of the checker.
    from gpuflow.checker.fit import Misfit, fit
    from gpuflow.checker.snapshot.validation import PreparedCluster
    from gpuflow.cluster import read_cluster
    from gpuflow.cluster.live import read_live

    namespace = namespace_of(args, site)
    manifests = read_live(namespace) if args.fit == "live" else read_cluster(args.fit)
    cluster = PreparedCluster(manifests, namespace)
    found: list[tuple[Pipeline, tuple[str, ...]]] = []
    misfits: list[Finding] = []
    for pipeline in pipelines:
        try:
            one = fit(pipeline, site, cluster, namespace, args.target)
            found.append((one.pipeline, (one.reason,)))
        except Misfit as refusal:
            misfits += refusal.findings
    if misfits:
        raise Misfit(misfits)
    return found


COMMAND = Where("gpuflow compile")


class Destination:
    """The path given with -o, and the files to be written there."""

    def __init__(self, output: str | None, pipelines: int, read: Iterable[str], *, follow_links: bool = False) -> None:
        """`pipelines`: how many there are to write; `read`: the files that this command reads."""
        self.follow_links = follow_links
        self.output = Path(output) if output not in (None, "-") else None
        is_folder = output is not None and (
            output.endswith("/") or Path(output).is_dir() or (pipelines > 1 and not Path(output).is_file())
        )
        self.folder = self.output if is_folder else None
        self.files: dict[Path, str] = {}
        self._read = tuple(read)

    @property
    def file(self) -> str | None:
        """The name of the one file that -o names."""
        return self.output.name if self.output is not None and self.folder is None else None

    def add_files(self, pipeline: Pipeline, artifacts: tuple[Artifact, ...]) -> None:
        """Note what goes where."""
        if self.output is None:
            return
        if self.folder is None and len(artifacts) > 1:
            text = f'"{pipeline.name}" becomes {len(artifacts)} files, and -o {self.output} is one'
            raise fail("GF903", text, where=COMMAND, hint=f"name a folder: -o {self.output.parent}/")
        for artifact in artifacts:
            path = self.folder / artifact.name if self.folder else self.output
            self._refuse(path, pipeline)
            self.files[path] = artifact.text

    def _refuse(self, path: Path, pipeline: Pipeline) -> None:
        source = pipeline.source.file
        over = next(
            (file for file in self._read if path.exists() and Path(file).exists() and path.samefile(file)), None
        )
        if over is not None:
            itself = "the pipeline itself" if over == source else "a file that this command reads"
            text = f"-o {path} would overwrite {itself}"
            raise fail("GF903", text, where=Where(source), hint="name another file, or a folder")
        if path in self.files:
            text = f'two pipelines would be written to {path}; the second is "{pipeline.name}"'
            raise fail("GF304", text, where=Where(source), hint="give them different names, or name a folder at -o")

    def add(self, artifact: Artifact) -> None:
        """A file that stands beside those of the pipelines."""
        if self.folder is not None:
            self.files[self.folder / artifact.name] = artifact.text

    def diffs(self) -> list[str]:
        """A diff for every file that is not what it should be."""
        return diff_files(self.files, folder=self.folder, follow_links=self.follow_links)

    def write(self) -> None:
        """Write all files, or none when one of them leads elsewhere."""
        write_files(self.files, folder=self.folder, follow_links=self.follow_links)

    def current_files(self) -> Mapping[str, str]:
        """The files that lie in the folder now, with their text."""
        files = self.folder.glob("*") if self.folder is not None else ()
        # A link is not followed here either; the one that would be compared or written is refused by name.
        ordinary = [file for file in files if file.is_file() and (self.follow_links or not file.is_symlink())]
        return {file.name: _current_text(file) for file in ordinary}


def _current_text(file: Path) -> str:
    try:
        return read_at_most(file, MAX_BYTES, root=Path(os.path.realpath(file)).parent).decode("utf-8", errors="replace")
    except OSError:
        return ""  # comparing or writing says why


EXAMPLE = """gpuflow compile pipeline.yaml --target argo -o argo_templates/
gpuflow compile pipelines/ --target argo -o argo_templates/ --kustomization   # for kubectl apply -k, Argo CD
gpuflow compile pipeline.yaml --target airflow -o dags/
gpuflow compile pipelines/ --target argo -o argo_templates/ --check   # in CI: exit 1 with a diff when stale"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, ("text", "json"))
    parser.add_argument("--target", required=True, choices=tuple(ENGINES), help="the engine")
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
        for pipeline, remarks in fit_pipelines(args, target, site, pipelines)
    ]
    artifacts, notes = _compile_all(args, target, requests, destination)
    for artifact in target.batch_files(
        Batch(artifacts, options, namespace, destination.folder, destination.current_files)
    ):
        notes += artifact.findings
        destination.add(artifact)
    if args.format == "json":
        return _report(artifacts, notes, destination, args.check)
    show_findings(notes)
    if destination.output is None:
        put((target.separator or "").join(artifact.text for artifact in artifacts))
        return 0
    if args.check:
        return _compare(destination)
    destination.write()
    show_written(destination.files)
    return 0


def _compile_all(
    args: argparse.Namespace, target: Target, requests: list[Request], destination: Destination
) -> tuple[tuple[Artifact, ...], list[Finding]]:
    """The artifacts of all pipelines and their findings. All refusals together are one error."""
    artifacts: list[Artifact] = []
    notes: list[Finding] = []
    refusals: list[Finding] = []
    for request in requests:
        try:
            compiled = compile_with(target, request, allow_lossy=args.allow_lossy)
        except EnvironmentFailure:
            raise
        except GpuflowError as refusal:
            remarks = without_silenced(request.pipeline, remarks_on(request.pipeline))
            refusals += [*refusal.findings, *without_site_silenced(request.site, remarks)]
            continue
        notes += findings_of(target, request, compiled)
        artifacts += compiled.artifacts
        destination.add_files(request.pipeline, compiled.artifacts)
    if refusals:
        if args.format == "json":
            _document((), {}, [], refusals)
        raise GpuflowError(refusals)
    return tuple(artifacts), notes


def _compare(destination: Destination) -> int:
    diffs = destination.diffs()
    print_text("".join(diffs))
    if diffs:
        noun = "file is" if len(diffs) == 1 else "files are"
        print_text(f"{len(diffs)} {noun} stale: compile again without --check\n", sys.stderr)
    return 1 if diffs else 0


def _report(artifacts: tuple[Artifact, ...], notes: list[Finding], destination: Destination, check: bool) -> int:
    """What was compiled, for a program. Files are written, or compared, as without --format json."""
    diffs = destination.diffs() if check else []
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
