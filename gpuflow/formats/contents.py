"""What a file is, by its content: a pipeline of gpuflow, documents of other tools, a template, or something else.

Helm's templates, charts and values, and kustomizations, are not documents yet: a tool must render them first.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from gpuflow.core import files, yaml_tree
from gpuflow.core.errors import Finding, GpuflowError, Where, fail
from gpuflow.core.files import STREAMS
from gpuflow.formats.documents import OWN_GROUP, READERS, STDIN, Document, documents_of, read_documents, silenced_in
from gpuflow.kubernetes.yaml_scalars import parse_manifests

NOT_RENDERED = "GF406"
KUSTOMIZE = "kustomize.config.k8s.io"
KUSTOMIZATION = ("kustomization.yaml", "kustomization.yml", "kustomization")
_HELM = re.compile(r"\{\{-?\s*(?:\.(?:Values|Release|Chart|Capabilities|Files|Template)\b|include\s+\"|toYaml\b)")
"""What only Helm says: Argo and Jinja write braces too."""
_BRACES = re.compile(r"\{\{-?\s*[.$\w]")


def require_rendered(documents: list[Document]) -> list[Document]:
    """The documents; GF406 when they are what Helm or kustomize makes documents from."""
    for each in documents:
        file = Path(each.file)
        nameless = not each.kind and file.name.lower() in KUSTOMIZATION
        if each.group.split("/")[0] == KUSTOMIZE or nameless:
            raise _not_rendered_error("a kustomization", each.where(), f"kubectl kustomize {file.parent}")
        if not each.kind and file.name == "Chart.yaml":
            raise _not_rendered_error("a Helm chart", each.where(), f"helm template {file.parent}")
        if (place := _template(each.tree)) is not None:
            raise _not_rendered_error("a Helm template", Where(each.file, *place), "helm template CHART")
    return documents


def workload_message(refusal: GpuflowError) -> GpuflowError:
    """The refusal of a template, with the way out for workloads instead of that for a cluster."""
    first = refusal.findings[0]
    if first.code != NOT_RENDERED:
        return refusal
    return _not_rendered_error("a template", first.where, "helm template CHART")


def is_template(text: str, file: str) -> GpuflowError | None:
    """The refusal of a text that is not YAML because it is a template."""
    found = _BRACES.search(text)
    if found is None:
        return None
    start = found.start()
    where = Where(file, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))
    return _not_rendered_error("a template", where, "helm template CHART")


def is_unrendered(findings: Iterable[Finding]) -> bool:
    return any(each.code == NOT_RENDERED for each in findings)


def _not_rendered_error(what: str, where: Where, command: str) -> GpuflowError:
    hint = f"render it and pipe the result into the command: {command} | gpuflow check - …"
    return fail(NOT_RENDERED, f"{where.file} is {what}, which must be rendered first", where=where, hint=hint)


def _template(tree: Any) -> tuple[int, int] | None:
    """Where a value or a key is one of Helm's; scripts, which span lines, may hold anything."""
    waiting: list[tuple[Any, yaml_tree.Position]] = [(tree, getattr(tree, "spot", yaml_tree.Position(1, 1)))]
    while waiting:
        value, spot = waiting.pop()
        if isinstance(value, str):
            if "\n" not in value and _HELM.search(value):
                return spot.line, spot.column
        elif isinstance(value, Mapping):
            at = getattr(value, "value_at", {})
            waiting += [(each, at.get(key, spot)) for key, each in value.items()]
        elif isinstance(value, list):
            places = getattr(value, "item_at", ())
            waiting += [(each, places[i] if i < len(places) else spot) for i, each in enumerate(value)]
    return None


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
            raise workload_message(refusal) from None
        return Contents(file, [])
    return Contents(file, foreign_among(documents))


def foreign_among(documents: list[Document]) -> list[Document]:
    """The documents, unless one is a pipeline of ours or none says what it is."""
    if any(is_ours(each) for each in documents):
        return []
    require_rendered(documents)
    return documents if any(each.kind for each in documents) else []


def is_ours(document: Document) -> bool:
    """Whether it is a pipeline of gpuflow, or wants to be one."""
    kind = document.tree.get("kind")
    if document.group.partition("/")[0] == OWN_GROUP:
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
