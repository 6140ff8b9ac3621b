"""Folders and patterns among the files of a command: what is in them, by what the files say and not by their names."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuflow.cli.terminal import print_text
from gpuflow.core import yaml_tree
from gpuflow.core.errors import Finding, GpuflowError, Where, fail, join_names
from gpuflow.core.files import read_at_most, reason_of
from gpuflow.core.printable import line
from gpuflow.formats.contents import OUR_OTHER_KINDS as OTHER_KINDS
from gpuflow.formats.contents import (
    Contents,
    contents_of,
    foreign_among,
    is_unrendered,
    is_workload,
    looks_like_workload,
)
from gpuflow.formats.documents import Document, read_documents

ENDINGS = (".yaml", ".yml", ".json", ".py")
"""What a pipeline may be called; other files of a folder are nobody's business here."""
MAX_SHOWN = 3
"""So many files that are left out are named."""
_GPUFLOW_MARK = re.compile(rb"gpuflow/|\bPipeline\b")
"""What every pipeline says somewhere; most files of a repository are told apart by this alone."""
_BEGIN = re.compile(r"""^apiVersion:\s*["']?gpuflow/""", re.MULTILINE)
_HEAD = re.compile(r"# Made by gpuflow \S+ from (.+) sha256:[0-9a-f]{16}\b")
"""How a compiled file begins."""
_KIND = re.compile(r"""^kind:\s*["']?(\w+)""", re.MULTILINE)


def pipeline_files(files: Sequence[str]) -> list[str]:
    """The files, with every folder replaced by the pipelines in it; each file once. Says what it leaves out."""
    if not any(Path(name).is_dir() for name in files):
        return list(files)
    # A hook hands over the files that changed beside the folder that they are in: each counts once.
    once: dict[str, str] = {}
    for name in files:
        for file in pipelines_in(name) if Path(name).is_dir() else [name]:
            once.setdefault(os.path.abspath(file), file)
    return list(once.values())


def pipelines_in(folder: str) -> list[str]:
    """The pipelines of a folder and of those below it, in order of their paths. None at all is an error."""
    sorted_out: dict[str, list[Path]] = {}
    for file in _candidates(Path(folder)):
        # Of a program only running it would tell: it must be named by itself.
        what = NOT_RUN if file.suffix == ".py" else "pipeline" if is_pipeline(file) else NOT_PIPELINES
        sorted_out.setdefault(what, []).append(file)
    found = sorted_out.pop("pipeline", [])
    noun = "pipelines" if len(found) > 1 else "pipeline"
    told = "; ".join([f"{len(found) or 'no'} {noun}", *_left_out_clauses(sorted_out)])
    if not found:
        hint = "a pipeline begins with apiVersion: gpuflow/v1, kind: Pipeline"
        raise fail("GF911", f"{folder}: {told}", where=Where(folder), hint=hint)
    print_text(f"{line(folder)}: {told}\n", sys.stderr)
    return list(map(str, found))


@dataclass
class CommandFiles:
    """The files of a command that takes pipelines and workloads, in order, each once."""

    files: list[Contents] = field(default_factory=list)
    beside: list[Document] = field(default_factory=list)
    """Documents of folders that start nothing, such as the runtime of a TrainJob: others may name them."""
    broken: list[Finding] = field(default_factory=list)
    """What is wrong with files of folders that name a workload and cannot be read."""


def given_files(words: Sequence[str], cluster: str | None = None) -> CommandFiles:
    """The files, with every folder and every quoted pattern replaced by what is in it. Says what it leaves out.

    A Python file is taken only when it is named by itself: only running it would tell what it says. Files of the
    `cluster` are what is there already, and not what is to run.
    """
    given = CommandFiles()
    seen: set[str] = set()
    once = any(_is_many(word) for word in words)
    for word in words:
        if _is_many(word):
            files = _candidates(Path(word)) if Path(word).is_dir() else _matches(word)
            _sort_out(word, files, seen, given, None if cluster is None else os.path.abspath(cluster))
        elif not once or os.path.abspath(word) not in seen:
            given.files.append(contents_of(word))
            seen.add(os.path.abspath(word))
    return given


def _is_many(word: str) -> bool:
    """Whether an argument names several files: a folder, or a pattern that is no file's name."""
    return Path(word).is_dir() or (glob.has_magic(word) and not os.path.lexists(word))


def _matches(pattern: str) -> list[Path]:
    found = sorted(Path(name) for name in glob.glob(pattern, recursive=True) if not os.path.isdir(name))
    if not found:
        raise fail("GF100", f"no file matches {pattern}", where=Where(pattern), hint="check the pattern")
    return found


def _sort_out(named: str, files: Iterable[Path], seen: set[str], given: CommandFiles, cluster: str | None) -> None:
    """Add the pipelines and workloads among the files of a folder. None at all is an error."""
    found: list[Contents] = []
    left_out: dict[str, list[Path]] = {}
    again = 0
    for file in files:
        if os.path.abspath(file) in seen:
            again += 1
            continue
        seen.add(os.path.abspath(file))
        is_there = cluster is not None and Path(os.path.abspath(file)).is_relative_to(cluster)
        what, documents, broken = (NOT_WORKLOADS, [], []) if is_there else _classify(file)
        if what in ("pipeline", "workload"):
            found.append(Contents(str(file), documents))
            continue
        given.beside += documents
        given.broken += broken
        left_out.setdefault(what, []).append(file)
    pipelines = [each.file for each in found if not each.documents]
    for each in [each for each in found if each.documents and _is_compiled_from(each.file, pipelines)]:
        found.remove(each)  # the same work once more
        left_out.setdefault(COMPILED, []).append(Path(each.file))
    ours = sum(not each.documents for each in found)
    theirs = len(found) - ours
    counts = [f"{ours} pipeline{'' if ours == 1 else 's'}"] if ours else []
    counts += [f"{theirs} file{'' if theirs == 1 else 's'} with workloads"] if theirs else []
    if ours and not theirs and NOT_WORKLOADS in left_out:
        left_out[NOT_PIPELINES] = left_out.pop(NOT_WORKLOADS)
    told = "; ".join([", ".join(counts) or "no pipeline, no workload", *_left_out_clauses(left_out)])
    if not found and not again:
        hint = "a pipeline begins with apiVersion: gpuflow/v1, kind: Pipeline; a workload is a Workflow, a Job, a Pod…"
        raise GpuflowError([*given.broken, Finding("GF911", f"{named}: {told}", Where(named), hint)])
    print_text(f"{line(named)}: {told}\n", sys.stderr)
    given.files += found


COMPILED = "compiled from these"
NOT_RUN = "Python, not run unless named"
NOT_RENDERED = "must be rendered first (helm template, kubectl kustomize)"
NOT_WORKLOADS = "not workloads"
NOT_PIPELINES = "not pipelines"
NOT_READABLE = "cannot be read"


def _is_compiled_from(file: str, pipelines: Sequence[str]) -> bool:
    """Whether the head of a compiled file names one of these pipelines; its path there may begin further down."""
    head = _HEAD.match(read_at_most(Path(file), 4_000).decode("utf-8", "replace"))
    return head is not None and any(f"/{Path(name).as_posix()}".endswith(f"/{head[1]}") for name in pipelines)


def _classify(file: Path) -> tuple[str, list[Document], list[Finding]]:
    """What a file of a folder is: a pipeline, a workload, or why it is left out; its documents; what is wrong."""
    if file.suffix == ".py":
        return NOT_RUN, [], []
    if is_pipeline(file):
        return "pipeline", [], []
    try:
        documents = foreign_among(read_documents(str(file)))
    except GpuflowError as refusal:
        if is_unrendered(refusal.findings):
            return NOT_RENDERED, [], []
        return NOT_READABLE, [], list(refusal.findings) if _is_broken_workload(file) else []
    is_snapshot = any(each.kind == "Snapshot" and each.group == "gpuflow" for each in documents)
    if is_snapshot or not any(map(is_workload, documents)):
        return NOT_WORKLOADS, [] if is_snapshot else documents, []
    return "workload", documents, []


def _is_broken_workload(file: Path) -> bool:
    try:
        raw = read_at_most(file, yaml_tree.MAX_BYTES)
    except OSError:
        return False
    return looks_like_workload(raw.decode("utf-8-sig", errors="replace"))


def _candidates(folder: Path) -> Iterator[Path]:
    """Hidden files and folders are left alone (.git, .venv, an editor's copies); no link to a folder is followed."""

    def refuse(refusal: OSError) -> None:
        raise fail("GF100", f"{refusal.filename} cannot be read: {reason_of(refusal)}", where=Where(refusal.filename))

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(ENDINGS) and not name.startswith("."):
                yield Path(place) / name


def _left_out_clauses(left_out: Mapping[str, Sequence[Path]]) -> list[str]:
    """Why files are left out, and which."""
    shown = {what: [line(str(file)) for file in left_out[what]] for what in sorted(left_out, key=str.lower)}
    return [f"{what}: {join_names(names, MAX_SHOWN)}" for what, names in shown.items()]


def is_pipeline(file: Path) -> bool:
    """Whether a file says that it is a pipeline of gpuflow. A broken one is one too: loading it says what is wrong."""
    try:
        raw = read_at_most(file, yaml_tree.MAX_BYTES)
    except OSError:
        return True  # as is one that cannot be read, or that a link takes elsewhere
    if len(raw) > yaml_tree.MAX_BYTES or not _GPUFLOW_MARK.search(raw):
        return False
    text = raw.decode("utf-8-sig", errors="replace")
    try:
        documents = yaml_tree.parse_all(text, str(file))
    except GpuflowError:
        return any(_looks_like_one(part) for part in re.split(r"^---", text, flags=re.MULTILINE))
    return any(_is_pipeline_document(document) for document in documents)


def _is_pipeline_document(document: object) -> bool:
    if not isinstance(document, yaml_tree.Map):
        return False
    version, kind = document.get("apiVersion"), document.get("kind")
    if isinstance(version, str) and version.startswith("gpuflow/"):
        return kind not in OTHER_KINDS
    return version is None and kind == "Pipeline" and "steps" in document


def _looks_like_one(text: str) -> bool:
    kind = _KIND.search(text)
    return _BEGIN.search(text) is not None and (kind is None or kind[1] not in OTHER_KINDS)
