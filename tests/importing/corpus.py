"""What becomes of the files of a corpus: a pipeline with the same pods, or the first reason why there is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from gpuflow.core.errors import GpuflowError
from gpuflow.importing.pipelines import ImportResult, import_document
from gpuflow.readers import Document, Library, foreign_in, read_documents
from tests.importing.samples import SITE

EQUAL = "a pipeline with the same pods"


def documents_below(root: Path) -> tuple[Library, list[tuple[Path, Document]], list[str]]:
    """Everything below a folder, the objects that run something, and lines for the files that are no YAML."""
    everything: list[Document] = []
    active: list[tuple[Path, Document]] = []
    unread: list[str] = []
    for path in sorted(root.rglob("*.yaml")):
        try:
            found = read_documents(str(path))
        except GpuflowError as refusal:
            unread.append(f"{path.relative_to(root)}: {refusal.findings[0].code}")
            continue
        everything += found
        active += [(path, each.document) for each in foreign_in(found)[0]]
    return Library(tuple(everything)), active, unread


def answers(root: Path, same_pods: Callable[[Path, Document, ImportResult], bool]) -> Iterator[str]:
    """One line for each object."""
    library, active, unread = documents_below(root)
    yield from unread
    for path, document in active:
        beside = Library(tuple(each for each in library.documents if each.file == document.file))
        result = import_document(document, library if document.group != "kfp" else beside, SITE)
        if result.pipeline is None:
            first = result.findings[0]
            reason = f"{first.code} {first.message.rpartition(': ')[2]}"
        else:
            reason = EQUAL if same_pods(path, document, result) else "OTHER PODS"
        yield f"{path.relative_to(root)} {document.kind}: {reason}"


def summary(lines: list[str]) -> str:
    """The lines, and how many there are of each kind."""
    equal = sum(line.endswith(EQUAL) for line in lines)
    return f"{equal} of {len(lines)} objects are pipelines with the same pods.\n\n" + "".join(f"{x}\n" for x in lines)
