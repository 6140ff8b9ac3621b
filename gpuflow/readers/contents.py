"""What a file is, by what it says: a pipeline of ours, documents of other tools, or nothing that is read."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

from gpuflow import files, yaml_tree
from gpuflow.errors import GpuflowError, Where, fail
from gpuflow.files import STREAMS
from gpuflow.kubernetes.yaml_scalars import parse_manifests
from gpuflow.readers.documents import OURS, STDIN, Document, documents_of, read_documents, silenced_in
from gpuflow.readers.kinds import READERS
from gpuflow.readers.unrendered import is_template, is_unrendered, rendered, said_of_workload

OUR_OTHER_KINDS = ("Site", "Snapshot")
"""gpuflow's own documents that are no pipelines."""
_KIND = re.compile(r"""^kind:\s*["']?(\w+)""", re.MULTILINE)
_GROUP = re.compile(r"""^apiVersion:\s*["']?([\w.-]+)/""", re.MULTILINE)


class Contents(NamedTuple):
    """What a file says."""

    file: str
    """As messages name it."""
    documents: list[Document]
    """Those of other tools; none where the file may be ours, so that loading it says what is wrong."""
    raw: bytes | None = None
    """Of a stream, which can be read only once."""


def contents_of(file: str) -> Contents:
    """What a file says, `-` for standard input. Only what must be rendered first is refused here."""
    if file == STDIN or file.startswith(STREAMS):
        return _of_stream(file)
    if not Path(file).is_file() or file.endswith(".py"):
        return Contents(file, [])
    try:
        documents = read_documents(file)
    except GpuflowError as refusal:
        if is_unrendered(refusal.findings):
            raise said_of_workload(refusal) from None
        return Contents(file, [])
    return Contents(file, foreign_among(documents))


def foreign_among(documents: list[Document]) -> list[Document]:
    """The documents, unless one is a pipeline of ours or none says what it is."""
    if any(is_ours(each) for each in documents):
        return []
    rendered(documents)
    return documents if any(each.kind for each in documents) else []


def is_ours(document: Document) -> bool:
    """Whether it is a pipeline of gpuflow, or wants to be one."""
    kind = document.tree.get("kind")
    if document.group.partition("/")[0] == OURS:
        return document.kind not in OUR_OTHER_KINDS
    return "apiVersion" not in document.tree and kind == "Pipeline" and "steps" in document.tree


def is_workload(document: Document) -> bool:
    """Whether a reader reads it."""
    return (document.kind, document.group) in READERS


def looks_like_workload(text: str) -> bool:
    """Whether a text that is not valid YAML names a kind that a reader reads."""
    for part in re.split(r"^---", text, flags=re.MULTILINE):
        kind, group = _KIND.search(part), _GROUP.search(part)
        if kind is not None and (kind[1], group[1] if group else "") in READERS:
            return True
    return False


def _of_stream(file: str) -> Contents:
    shown = "<stdin>" if file == STDIN else file
    try:
        if file == STDIN:
            raw = sys.stdin.buffer.read(yaml_tree.MAX_BYTES + 1)
        else:
            raw = files.read_at_most(Path(file), yaml_tree.MAX_BYTES, named=True)
    except OSError as refusal:
        files.refuse_outside(refusal, Path(file))
        raise fail("GF100", f"{shown} cannot be read: {files.reason_of(refusal)}", where=Where(shown)) from None
    if not raw.strip():
        what = "standard input" if file == STDIN else shown
        raise fail("GF702", f"{what} is empty", where=Where(shown), hint="pipe a document into the command")
    text = yaml_tree.decode(raw, shown)
    try:
        documents = documents_of(parse_manifests(text, shown), shown, silenced_in(text))
    except GpuflowError:
        if (template := is_template(text, shown)) is not None:
            raise template from None
        return Contents(shown, [], raw)
    return Contents(shown, foreign_among(documents), raw)
