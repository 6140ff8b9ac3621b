"""`gpuflow check FILE… --cluster DIR|FILE`, and the comparison with a file as it was.

What is compared with is another file, or the same path in another Git revision.
"""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from gpuflow.checker.report import Report
from gpuflow.checker.run import check
from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.cli.inputs import (
    add_common,
    add_engine,
    add_live,
    cluster_at,
    namespace_of,
    params_given,
    python_is_allowed,
    read_site,
    with_params,
)
from gpuflow.cli.output import repository_of, write_files
from gpuflow.cli.sources import SourceDemand, Sources, own_demand, read_sources
from gpuflow.cli.terminal import paint, print_text, progress, put, show_findings
from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.manifests import SUFFIXES, cluster_of, documents_in
from gpuflow.core import yaml_tree
from gpuflow.core.errors import Finding, Where, fail
from gpuflow.core.printable import json_text, lines
from gpuflow.demands import Demand
from gpuflow.formats.contents import contents_of, foreign_among
from gpuflow.formats.documents import Document, Library, documents_of, silenced_in
from gpuflow.kubernetes.yaml_scalars import parse_manifests
from gpuflow.readers import PassiveObject
from gpuflow.readers.interface import ForeignObject, objects_brought_by
from gpuflow.report.text import Paint, comparison, markdown, overview, plain_text, render
from gpuflow.site import Site
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline

STDIN_SHOWN = "<stdin>"
REVISION = "git:"
"""Says that a revision is meant, whatever files there are: a repository may hold a file called origin/main."""


def earlier_pipeline(file: str, other: str, *, allow_python: bool = True) -> Pipeline | Finding:
    """The pipeline to compare with: `other` is a file, or a Git revision of `file`; `git:REV` is never a file. A
    finding (GF912) where the revision has none: the pipeline is new, or it is Python and is not run again."""
    if is_file(other):
        return load(other, allow_python=allow_python)
    found = earlier_bytes(file, other)
    return found if isinstance(found, Finding) else loads(found, file)


class EarlierDocuments:
    """Documents of other tools as they were. What one of them refers to is looked up as it was, too."""

    def __init__(self, other: str, now: Library) -> None:
        self._other = other
        self._now = now
        self._found: dict[str, list[Document] | Finding] = {}

    def object_of(self, foreign: ForeignObject) -> ForeignObject | Finding:
        """The object of the same kind and name; GF912 where there is none."""
        document = foreign.document
        if document.file.endswith(".py"):
            text = f"{document.file} is not compared: a Python file is not run at another revision"
            return Finding("GF912", text, Where(document.file), "compare with what it compiles to", "note")
        found = self._documents(document.file)
        if isinstance(found, Finding):
            return found
        alike = [each for each in found if (each.kind, each.group) == (document.kind, document.group)]
        namesakes = [each for each in alike if each.name == document.name]
        here = [each for each in namesakes if each.namespace == document.namespace]
        # One that has moved to another namespace is the same; one of two teams' is not the other's.
        same = next(iter(here or (namesakes if len(namesakes) == 1 else ())), None)
        if same is None and is_file(self._other) and len(alike) == 1:
            same = alike[0]
        if same is None:
            text = f"{document.kind} {document.name} is new: {self._title} does not have it"
            return Finding("GF912", text, document.where(), None, "note")
        library = Library((*found, *self.documents_beside(document.file)), self._now.default)
        return ForeignObject(same, library.seen_from(same))

    @property
    def _title(self) -> str:
        return self._other.removeprefix(REVISION)

    def documents_beside(self, file: str | None) -> Iterator[Document]:
        """The documents of the other files: as they were too, where a revision is asked for."""
        for each in dict.fromkeys(document.file for document in self._now.documents if document.file != file):
            if (found := None if is_file(self._other) else self._documents(each)) is None:
                yield from (document for document in self._now.documents if document.file == each)
            elif not isinstance(found, Finding):
                yield from found

    def _documents(self, file: str) -> list[Document] | Finding:
        if file not in self._found:
            self._found[file] = self._read(file)
        return self._found[file]

    def _read(self, file: str) -> list[Document] | Finding:
        if is_file(self._other):
            return contents_of(self._other).documents
        if file == STDIN_SHOWN:
            text = f"standard input has no revision {self._title}"
            return Finding("GF912", text, Where(file), "compare with a file instead", "note")
        found = earlier_bytes(file, self._other)
        if isinstance(found, Finding):
            return found
        text = yaml_tree.decode(found, file)
        return foreign_among(documents_of(parse_manifests(text, file), file, silenced_in(text)))


def is_file(other: str) -> bool:
    """Whether what is compared with is a file, and no revision."""
    return not other.startswith(REVISION) and Path(other).is_file()


def earlier_bytes(file: str, other: str) -> bytes | Finding:
    """The bytes of a file at a Git revision; a finding (GF912) where it has none."""
    other = other.removeprefix(REVISION)
    if (root := repository_of(Path(file))) is None:
        raise fail("GF908", f'"{other}" is not a file, and {file} is not in a Git repository', where=Where(file))
    path = Path(file).resolve().relative_to(root).as_posix()
    if other.startswith("-"):
        raise fail("GF908", f'"{other}" is not a revision', where=Where(file))
    if path.endswith(".py"):
        text = f"{file} is not compared with {other}: a Python pipeline is not run at another revision"
        return Finding("GF912", text, Where(file), "compare with a file instead", "note")
    found = _git(root, "cat-file", "blob", f"{other}:{path}")
    if not found.returncode:
        return found.stdout
    # The commit is there, and its tree can be read, but has no such path.
    tree = _git(root, "ls-tree", "--name-only", "--full-tree", "-z", f"{other}^{{commit}}", "--", path)
    if not tree.returncode and not tree.stdout:
        return Finding("GF912", f"{file} is new: {other} does not have it", Where(file), None, "note")
    reason = found.stderr.decode(errors="replace").strip().splitlines()
    text = f"{file} cannot be read at {other}: {reason[0] if reason else 'git failed'}"
    raise fail("GF908", text, where=Where(file), hint="name a file, or a revision such as HEAD~1 or origin/main")


def earlier_cluster(path: str, file: str, other: str) -> Cluster | Finding:
    """The cluster that a folder, in the repository of a file, showed at a revision; a finding (GF912) without one."""
    revision = other.removeprefix(REVISION)
    root = None if path == "live" or revision.startswith("-") else repository_of(Path(path))
    manifests: list[Any] = []
    if root is not None and root == repository_of(Path(file)):
        inside = Path(path).resolve().relative_to(root)
        listed = _git(root, "ls-tree", "-r", "-z", "--full-tree", revision, "--", *inside.parts and [inside.as_posix()])
        for line in listed.stdout.decode(errors="replace").split("\0")[:-1]:
            mode, _, blob, name = line.split(maxsplit=3)
            manifest = Path(path, *Path(name).relative_to(inside).parts)
            hidden = any(each.startswith(".") for each in Path(name).relative_to(inside).parts)
            # Neither links nor submodules.
            if mode.startswith("100") and manifest.suffix.lower() in SUFFIXES and not hidden:
                found = documents_in(_git(root, "cat-file", "blob", blob).stdout, manifest)
                manifests += [each for each in found if each is not None]
    if manifests:
        return cluster_of(manifests, path)
    text = f"{revision} does not have {path}: what was is checked against {path} as it is now"
    return Finding("GF912", text, COMMAND, "keep the cluster's manifests in Git to compare with what they were", "note")


def _git(root: Path, *words: str) -> subprocess.CompletedProcess[bytes]:
    # The plain bytes: no filter, pager or program that a setting of the repository may name has a part in it.
    # Nor are files of the tree taken for a repository, where .git is empty: its settings would be a stranger's.
    command = ["git", "--no-pager", "-c", "safe.bareRepository=explicit", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)


EXAMPLE = """gpuflow check pipeline.yaml --cluster cluster/ --namespace team-a --engine argo
gpuflow check pipeline.yaml --cluster cluster/ --namespace team-a --fail-on may-queue --format json
gpuflow check a.yaml b.yaml --cluster cluster/ --namespace team-a --together   # at the same time
gpuflow check pipeline.yaml --cluster cluster/ --namespace team-a --compare origin/main   # for the pull request
gpuflow check workflow.yaml job.yaml --cluster cluster/ --namespace team-a   # what other tools run
helm template CHART | gpuflow check - --cluster cluster/ --namespace team-a"""
COMMAND = Where("gpuflow check")
FORMATS = ("text", "json", "sarif", "junit", "markdown", "github")
COMPARE_FORMATS = ("text", "markdown", "json")
"""The formats that show a comparison; the others are about the present only."""
FAILS = {"never": {"never"}, "unknown": {"never", "unknown"}, "may-queue": {"never", "unknown", "may-queue"}}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_common(parser, FORMATS, foreign=True)
    help = "also write the same check in another format to a file; may be repeated"
    parser.add_argument("--report", action="append", default=[], metavar="FORMAT=FILE", help=help)
    help = "manifests of the cluster, or live for the current cluster"
    parser.add_argument("--cluster", required=True, metavar="DIR|FILE|live", help=help)
    add_live(parser)
    add_engine(parser)
    parser.add_argument(
        "--allow-lossy", action="store_true", help="check what compile --allow-lossy writes for the engine"
    )
    help = "how many runs are active at the same time; default: as many as the engine lets overlap, else 1"
    parser.add_argument("--runs", type=int, metavar="N", help=help)
    parser.add_argument(
        "--together", action="store_true", help="also check all of these side by side, as if they run at once"
    )
    help = "which verdicts exit with 1; default: never and unknown; gangs that can block each other always do"
    parser.add_argument("--fail-on", choices=tuple(FAILS), default="unknown", help=help)

    help = "show how peak and verdict change compared with another file or Git revision; git:REV is never a file"
    parser.add_argument("--compare", metavar="FILE|REV", help=help)


def run(args: argparse.Namespace) -> int:
    if args.runs is not None and args.runs < 1:
        raise fail("GF903", f"--runs {args.runs} is below 1", where=COMMAND)
    if args.compare and args.together:
        raise fail("GF903", "--compare and --together exclude each other", where=COMMAND)
    files = _report_files(args)
    if args.compare and not {args.format, *files.values()} & set(COMPARE_FORMATS):
        hint = "use --format markdown or json, or --report markdown=FILE, or leave --compare out"
        raise fail("GF903", f"--compare has no {args.format} form", where=COMMAND, hint=hint)
    site = read_site(args)
    sources = read_sources(args, site, args.engine)
    answers = sources.demands(
        site, args.engine, args.param, namespace=args.namespace, allow_lossy=args.allow_lossy, with_cluster=True
    )
    demands = [each.demand for each in answers]
    homes = [namespace_of(args, site, demand) for demand in demands]
    # Files of folders that hold no workload count too: whoever applies the folder applies them.
    cluster = _cluster(args, site, homes[0], objects_brought_by(sources.library.documents))
    before = _earlier_reports(args, site, cluster, sources, answers) if args.compare else None
    reports = []
    for demand, home in zip(demands, homes, strict=True):
        with progress(f"checking {demand.name}"):
            reports.append(check(demand, cluster, home, runs=args.runs))
    definitions = [each.body for each in cluster.cluster.of("CustomResourceDefinition")]
    if others := sources.passive_findings(answers, definitions):  # said where the first of them is
        reports[0] = replace(reports[0], findings=(*others, *reports[0].findings))
    whole = None
    if args.together and len(demands) > 1:
        from gpuflow.checker.several_pipelines import check_together

        with progress("checking them together"):
            whole = check_together(demands, reports, cluster, args.runs)
    failing = FAILS[args.fail_on]
    # One check, written in as many formats as asked for.
    write_files({path: _format_reports(form, reports, whole, before, failing) for path, form in files.items()})
    if args.format == "text" and before is None:
        print_text(_text(reports, whole, paint))
    else:
        put(_format_reports(args.format, reports, whole, before, failing))
    if not sources.is_whole:
        return 2
    return 1 if any(each.fails(failing) for each in (*reports, whole) if each is not None) else 0


def _report_files(args: argparse.Namespace) -> dict[Path, str]:
    """What `--report FORMAT=FILE` asks for: the format of each file."""
    files: dict[Path, str] = {}
    for word in args.report:
        form, equals, name = word.partition("=")
        if not equals or form not in FORMATS or not name:
            hint = f"FORMAT is one of {', '.join(FORMATS)}"
            raise fail("GF903", f'--report "{word}" is not FORMAT=FILE', where=COMMAND, hint=hint)
        path = Path(name)
        if path in files:
            raise fail("GF903", f"two reports would be written to {path}", where=COMMAND, hint="name another file")
        if path.exists() and any(Path(file).exists() and path.samefile(file) for file in (*args.files, args.site)):
            text = f"--report would overwrite {path}, which this command reads"
            raise fail("GF903", text, where=COMMAND, hint="name another file")
        files[path] = form
    return files


def _cluster(
    args: argparse.Namespace, site: Site, namespace: str, files: tuple[Manifest, ...], was: Cluster | None = None
) -> PreparedCluster:
    """The cluster as a namespace sees it. Manifests that name no namespace are where such documents are, too."""
    read = partial(cluster_at, args)
    elsewhere = read if args.cluster == "live" else None
    default = args.namespace or site.namespace
    return PreparedCluster(was or read(namespace), namespace, default=default, read=elsewhere, files=files)


def _earlier_reports(
    args: argparse.Namespace, site: Site, cluster: PreparedCluster, sources: Sources, answers: list[SourceDemand]
) -> list[Report | None]:
    """The earlier report on each demand; None, with a note, where there is nothing to compare with."""
    others = EarlierDocuments(args.compare, sources.library)
    if not is_file(args.compare):
        was = earlier_cluster(args.cluster, args.files[0], args.compare)
        if isinstance(was, Finding):
            show_findings([was])
        else:
            cluster = _cluster(args, site, cluster.namespace, cluster.files, was)
    reports: list[Report | None] = []
    for demand, source in answers:
        other: Demand | PassiveObject | Finding
        documents: Iterable[Document] = ()
        if isinstance(source, Pipeline):
            documents = others.documents_beside(source.source.file)
            found = earlier_pipeline(source.source.file or "", args.compare, allow_python=python_is_allowed(args))
            if isinstance(found, Finding):
                other = found
            else:
                params = [
                    word for word in args.param if not sources.foreign_objects or word.split("=")[0] in found.params
                ]
                other = own_demand(with_params(found, params), site, args.engine, allow_lossy=args.allow_lossy)
        else:
            past = others.object_of(source)
            documents = () if isinstance(past, Finding) else past.library.documents
            other = (
                past if isinstance(past, Finding) else past.demand_on_site(site, args.engine, params_given(args.param))
            )
        if isinstance(other, PassiveObject):
            text = f"{demand.kind} {demand.name} is not compared: {other.because}"
            other = Finding("GF912", text, other.where, None, "note")
        if isinstance(other, Finding):
            show_findings([other])
            reports.append(None)
            continue
        if (brought := objects_brought_by(documents)) != cluster.files:
            cluster = cluster.with_files(brought)
        with progress(f"checking {other.name} as it was"):
            reports.append(check(other, cluster, namespace_of(args, site, other), runs=args.runs))
    return reports


def _format_reports(
    form: str, reports: list[Report], whole: Report | None, before: list[Report | None] | None, failing: set[str]
) -> str:
    """The reports in one format. `whole`: on all pipelines side by side; `before`: those to compare with, in order."""
    if before is not None and form in COMPARE_FORMATS:
        return _format_comparison(form, reports, before)
    if whole is None and len(reports) > 1 and form != "text":
        from gpuflow.checker.several_pipelines import with_alone_note

        reports = [with_alone_note(each, [other for other in reports if other is not each]) for each in reports]
    if form == "json":
        documents = [report.document() for report in reports]
        if whole is not None:
            documents.append({"together": whole.document()})
        return json_text(documents[0] if len(documents) == 1 else documents)
    if form == "text":
        return lines(_text(reports, whole, plain_text))
    everything = reports if whole is None else [*reports, whole]
    if form == "markdown":
        return markdown(everything)
    from gpuflow.report.ci_formats import github, junit, sarif

    if form == "sarif":
        return sarif(everything)
    return {"junit": junit, "github": github}[form](everything, failing)


def _text(reports: list[Report], whole: Report | None, paint: Paint) -> str:
    everything = (*reports, *([whole] if whole else []))
    text = "\n".join(render(report, paint) for report in everything)
    if len(everything) > 1:
        text = f"{overview(everything, paint)}\n{text}"
    if whole is not None or len(reports) == 1:
        return text
    return f"{text}\nEach of these {len(reports)} was checked alone; --together checks them side by side.\n"


def _format_comparison(form: str, reports: list[Report], before: list[Report | None]) -> str:
    """For a pull request: verdict and peaks before and after."""
    pairs = list(zip(before, reports, strict=True))
    if form == "json":
        documents = [{"before": old.document() if old else None, "after": new.document()} for old, new in pairs]
        return json_text(documents[0] if len(documents) == 1 else documents)
    return "".join(comparison(old, new) if old else markdown([new]) for old, new in pairs)
