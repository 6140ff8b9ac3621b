"""Folders among the files of a command: the pipelines in them, by what the files say and not by their names."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuflow import yaml_tree
from gpuflow.cli.terminal import say
from gpuflow.errors import GpuflowError, Where, fail
from gpuflow.files import read_at_most, reason_of
from gpuflow.printable import line

ENDINGS = (".yaml", ".yml", ".json", ".py")
"""What a pipeline may be called; other files of a folder are nobody's business here."""
OTHER_KINDS = ("Site", "Snapshot")
"""gpuflow's own documents that are no pipelines."""
SHOWN = 3
"""So many files that are left out are named."""
_OURS = re.compile(rb"gpuflow/|\bPipeline\b")
"""What every pipeline says somewhere; most files of a repository are told apart by this alone."""
_BEGIN = re.compile(r"""^apiVersion:\s*["']?gpuflow/""", re.MULTILINE)
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
    found: list[str] = []
    others: list[Path] = []
    programs: list[Path] = []
    for file in _candidates(Path(folder)):
        if file.suffix == ".py":
            programs.append(file)  # only running it would tell: it must be named by itself
        elif is_pipeline(file):
            found.append(str(file))
        else:
            others.append(file)
    noun = "pipelines" if len(found) > 1 else "pipeline"
    rest = [f"not pipelines: {_named(others)}"] if others else []
    rest += [f"Python, not run unless named: {_named(programs)}"] if programs else []
    told = "; ".join([f"{len(found) or 'no'} {noun}", *rest])
    if not found:
        hint = "a pipeline begins with apiVersion: gpuflow/v1, kind: Pipeline"
        raise fail("GF911", f"{folder}: {told}", where=Where(folder), hint=hint)
    say(f"{line(folder)}: {told}\n", sys.stderr)
    return found


def _candidates(folder: Path) -> Iterator[Path]:
    """Hidden files and folders are left alone (.git, .venv, an editor's copies); no link to a folder is followed."""

    def refuse(refusal: OSError) -> None:
        raise fail("GF100", f"{refusal.filename} cannot be read: {reason_of(refusal)}", where=Where(refusal.filename))

    for place, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if name.endswith(ENDINGS) and not name.startswith("."):
                yield Path(place) / name


def _named(files: list[Path]) -> str:
    names = ", ".join(line(str(file)) for file in files[:SHOWN])
    return names + (f" and {len(files) - SHOWN} more" if len(files) > SHOWN else "")


def is_pipeline(file: Path) -> bool:
    """Whether a file says that it is a pipeline of gpuflow. A broken one is one too: loading it says what is wrong."""
    try:
        raw = read_at_most(file, yaml_tree.MAX_BYTES)
    except OSError:
        return True  # as is one that cannot be read, or that a link takes elsewhere
    if len(raw) > yaml_tree.MAX_BYTES or not _OURS.search(raw):
        return False
    text = raw.decode("utf-8-sig", errors="replace")
    try:
        documents = yaml_tree.parse_all(text, str(file))
    except GpuflowError:
        return any(_looks_like_one(part) for part in re.split(r"^---", text, flags=re.MULTILINE))
    return any(_says_so(document) for document in documents)


def _says_so(document: object) -> bool:
    if not isinstance(document, yaml_tree.Map):
        return False
    version, kind = document.get("apiVersion"), document.get("kind")
    if isinstance(version, str) and version.startswith("gpuflow/"):
        return kind not in OTHER_KINDS
    return version is None and kind == "Pipeline" and "steps" in document


def _looks_like_one(text: str) -> bool:
    kind = _KIND.search(text)
    return _BEGIN.search(text) is not None and (kind is None or kind[1] not in OTHER_KINDS)
