"""A file as it was: another file, or the same path in another Git revision."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

from gpuflow import yaml_tree
from gpuflow.cli.output import repository_of
from gpuflow.errors import Finding, Where, fail
from gpuflow.kubernetes.yaml_scalars import parse_manifests
from gpuflow.readers.contents import contents_of, foreign_among
from gpuflow.readers.documents import Document, documents_of, silenced_in
from gpuflow.readers.frame import Foreign, Library
from gpuflow.spec.loading import load, loads
from gpuflow.spec.pipeline import Pipeline

STDIN_SHOWN = "<stdin>"
REVISION = "git:"
"""Says that a revision is meant, whatever files there are: a repository may hold a file called origin/main."""


def earlier(file: str, other: str, *, allow_python: bool = True) -> Pipeline | Finding:
    """The pipeline to compare with: `other` is a file, or a Git revision of `file`; `git:REV` is never a file.

    A finding (GF912) where the revision has none: the pipeline is new, or it is Python and is not run again.
    """
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

    def of(self, foreign: Foreign) -> Foreign | Finding:
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
            text = f"{document.kind} {document.name} is new: {self._shown} does not have it"
            return Finding("GF912", text, document.where(), None, "note")
        library = Library((*found, *self._around(document.file)), self._now.default)
        return Foreign(same, library.seen_from(same))

    @property
    def _shown(self) -> str:
        return self._other.removeprefix(REVISION)

    def _around(self, file: str) -> Iterator[Document]:
        """The documents of the other files: as they were too, where a revision is asked for."""
        for each in dict.fromkeys(document.file for document in self._now.documents if document.file != file):
            found = None if is_file(self._other) else self._documents(each)
            if found is None:
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
            text = f"standard input has no revision {self._shown}"
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
    root = repository_of(Path(file))
    if root is None:
        raise fail("GF908", f'"{other}" is not a file, and {file} is not in a Git repository', where=Where(file))
    path = Path(file).resolve().relative_to(root).as_posix()
    if other.startswith("-"):
        raise fail("GF908", f'"{other}" is not a revision', where=Where(file))
    if path.endswith(".py"):
        text = f"{file} is not compared with {other}: a Python pipeline is not run at another revision"
        return Finding("GF912", text, Where(file), "compare with a file instead", "note")
    # The plain bytes: no filter, pager or program that a setting of the repository may name has a part in it.
    # Nor are files of the tree taken for a repository, where .git is empty: its settings would be a stranger's.
    git = ["git", "--no-pager", "-c", "safe.bareRepository=explicit", "-C", str(root)]
    found = _asked([*git, "cat-file", "blob", f"{other}:{path}"])
    if not found.returncode:
        return found.stdout
    # The commit is there, and its tree can be read, but has no such path.
    tree = _asked([*git, "ls-tree", "--name-only", "--full-tree", "-z", f"{other}^{{commit}}", "--", path])
    if not tree.returncode and not tree.stdout:
        return Finding("GF912", f"{file} is new: {other} does not have it", Where(file), None, "note")
    reason = found.stderr.decode(errors="replace").strip().splitlines()
    raise fail(
        "GF908",
        f"{file} cannot be read at {other}: {reason[0] if reason else 'git failed'}",
        where=Where(file),
        hint="name a file, or a revision such as HEAD~1 or origin/main",
    )


def _asked(command: list[str]) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
