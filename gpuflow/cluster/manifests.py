"""A cluster from files: single manifests, multi-document files, `kubectl get -o yaml` lists, whole directories.

Here is also which files are read, how large they may be, and which names their objects can have: a name that the API
server refuses is not carried into a report.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec

from gpuflow.cluster import block_yaml
from gpuflow.cluster.kinds import KNOWN, KUEUE_CONFIG, NATIVE, SOURCES, kind_fault
from gpuflow.cluster.model import Cluster, Manifest, place, with_entry
from gpuflow.core import files, gc_pause, yaml_tree
from gpuflow.core.errors import Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.core.printable import HIDDEN_CHARACTERS
from gpuflow.kubernetes.admission.field_errors import dns_label_faults, dns_subdomain_faults

SUFFIXES = (".yaml", ".yml", ".json")
MOST_JSON = 256 * 1024 * 1024
MOST_JSON_MEMORY = 1024 * 1024 * 1024
QUICK_JSON = 1024 * 1024
"""From this size on JSON is read without the place of every value, forty times faster."""
QUICK_YAML = 1024 * 1024
"""From this size on YAML as kubectl writes it is read with the place of every object only, five times faster."""
_TEMPLATE = re.compile(r"\{\{-?\s*[.$\w]")


def files_in(root: Path) -> tuple[list[Path], list[Finding]]:
    """Every manifest file below a folder, sorted, each once however many links lead to it; and what is closed to us.

    Hidden files and folders are passed over: they are the tools', not the cluster's.
    """
    found: dict[tuple[int, int], Path] = {}
    closed: list[Finding] = []
    seen: set[tuple[int, int]] = set()

    def note_refusal(refusal: OSError) -> None:
        closed.append(_unreadable_file(refusal.filename, refusal))

    for folder, folders, names in os.walk(root, onerror=note_refusal, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        identity = _file_identity(Path(folder))
        if identity in seen:
            folders[:] = []  # a link that leads back
            continue
        seen.add(identity)
        for name in tuple(folders):
            if (leaves := _outside_link(Path(folder) / name, root)) is not None:
                closed.append(leaves)
                folders.remove(name)
        for name in sorted(names):
            path = Path(folder) / name
            if path.suffix.lower() in SUFFIXES and not name.startswith("."):
                try:
                    found.setdefault(_file_identity(path), path)
                except OSError as refusal:
                    closed.append(_unreadable_file(str(path), refusal))
    return sorted(found.values()), closed


def _outside_link(folder: Path, root: Path) -> Finding | None:
    """What to say of a link to a folder outside the repository: what is in there was never part of it."""
    try:
        if folder.is_symlink():
            files.resolve_within(folder, folder=root)
        return None
    except files.OutsideBounds as refusal:
        return Finding("GF140", str(refusal), Where(str(folder)), "copy the manifests into the repository")


def _file_identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _unreadable_file(file: str | None, refusal: OSError) -> Finding:
    hint = "every file below the folder counts: make it readable, mend the link, or name another folder"
    return Finding("GF100", f"{file} cannot be read: {refusal.strerror}", Where(file), hint)


def documents(file: Path, *, piped: bool = False, folder: Path | None = None) -> list[Any]:
    """The documents of a file; `piped` allows one that is not an ordinary file, such as `/dev/stdin`. `folder`: the
    one that somebody named, in which it was found."""
    return documents_in(read_bytes(file, piped=piped, folder=folder), file)


def documents_in(raw: bytes, file: Path, parse: Callable[[str, str], list[Any]] | None = None) -> list[Any]:
    """The documents in the bytes of a file. `parse` reads its YAML, for whoever needs it as Kubernetes reads it."""
    if len(raw) >= QUICK_JSON and _is_json(raw):
        return [_parse_json(raw, str(file))]
    text = yaml_tree.decode(raw, str(file))
    if parse is None and len(raw) >= QUICK_YAML and (quick := block_yaml.read(text)) is not None:
        return quick
    try:
        return (parse or yaml_tree.parse_all)(text, str(file))
    except GpuflowError:
        template = _TEMPLATE.search(text)
        if template is None or "argoproj.io/" in text:  # Argo's own variables are written like that
            raise
        line = text.count("\n", 0, template.start()) + 1
        where = Where(str(file), line, template.start() - text.rfind("\n", 0, template.start()))
        raise must_be_rendered("the file is a template", where, "helm template CHART > cluster.yaml") from None


def must_be_rendered(what: str, where: Where, command: str) -> GpuflowError:
    """GF406: the cluster will hold what a tool makes of the file, not what stands in it."""
    return fail(
        "GF406", f"{what}, not a manifest", where=where, hint=f"render it first ({command}) and name the result"
    )


def read_bytes(file: Path, *, piped: bool = False, folder: Path | None = None) -> bytes:
    yaml_tree.require_plain_name(str(file))
    try:
        with files.open_file(file, named=piped, folder=folder) as stream:
            raw = stream.read(yaml_tree.MAX_BYTES + 1)
            if len(raw) > yaml_tree.MAX_BYTES and _is_json(raw):
                raw += stream.read(MOST_JSON + 1 - len(raw))
    except (OSError, ValueError) as refusal:
        files.refuse_outside(refusal, file)
        hint = "name a file or a folder of manifests, or `live`"
        reason = files.reason_of(refusal)
        raise fail("GF100", f"{file} cannot be read: {reason}", where=Where(str(file)), hint=hint) from None
    if len(raw) > (MOST_JSON if _is_json(raw) else yaml_tree.MAX_BYTES):
        text = f"the file has {max(file.stat().st_size, len(raw)):,} bytes; YAML manifests are read up to "
        text += f"{yaml_tree.MAX_BYTES:,} bytes, JSON up to {MOST_JSON:,}"
        hint = "use kubectl get -o json, split it by kind, or let gpuflow snapshot write what a check needs and no "
        hint += "more"
        raise fail("GF102", text, where=Where(str(file), 1, 1), hint=hint)
    return raw


def _is_json(raw: bytes) -> bool:
    return raw[:64].lstrip()[:1] == b"{"


def _json_memory(raw: bytes) -> int:
    """About what the values of a JSON text take, and the text itself, twice."""
    return 2 * len(raw) + 64 * raw.count(b",") + 200 * raw.count(b"{") + 56 * raw.count(b"[")


def _parse_json(raw: bytes, file: str) -> Any:
    if (memory := _json_memory(raw)) > MOST_JSON_MEMORY:
        raise fail(
            "GF102",
            f"the file has {len(raw):,} bytes, and its values take about {memory >> 20:,} MiB of memory; JSON is read "
            f"up to {MOST_JSON_MEMORY >> 20:,} MiB",
            where=Where(file, 1, 1),
            hint="split it by kind, or let gpuflow snapshot write what a check needs and no more",
        )

    def pairs(entries: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(entries)
        if len(found) != len(entries):
            names = [name for name, _ in entries]
            twice = next(name for name in names if names.count(name) > 1)
            raise fail("GF109", f'the key "{twice}" stands twice in one mapping', where=Where(file), hint="keep one")
        return found

    def constant(word: str) -> Any:
        raise fail("GF101", f"not valid JSON: {word} is not a number", where=Where(file), hint="write a number")

    with suppress(ValueError, RecursionError, msgspec.MsgspecError):  # the reader below says what is the matter
        found = msgspec.json.decode(raw) if b"\\u" not in raw else None
        if found is not None and msgspec.json.encode(found) == msgspec.json.format(raw, indent=-1):
            return found  # written again it is the same text: no key stands twice
    try:
        return json.loads(raw, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as problem:
        where = Where(file, problem.lineno, problem.colno)
        raise fail("GF101", f"not valid JSON: {problem.msg}", where=where, hint="fix the syntax there") from None
    except UnicodeDecodeError:
        yaml_tree.decode(raw, file)  # says where
        raise
    except RecursionError:
        raise fail("GF105", "nested far too deeply", where=Where(file, 1, 1), hint="is it a manifest?") from None
    except ValueError as problem:  # a number of thousands of digits
        raise fail("GF101", f"not valid JSON: {problem}", where=Where(file), hint="write a number") from None


# Custom resources and most kinds have DNS names, but Roles do not, and an API server of its own has its own rules.
# What holds for all: the name is a part of a path. And nobody names an object what nobody can read.
_PATH_SEGMENT: Final = re.compile(r"(?!\.\.?\Z)[^\s/%]+")
PATH_RULE: Final = "may not be '.' or '..', nor hold '/', '%', blanks or characters that cannot be seen"


def name_faults(kind: str, group: str, key: str, name: str) -> tuple[str, ...]:
    """What is wrong with a name, as Kubernetes says it; `key` is name, generateName or namespace."""
    if not name:
        return ()
    if key == "generateName" and len(name) > 1 and name.endswith("-"):
        name = name[:-2] + "a"  # as Kubernetes does: what it appends comes behind the dash
    if key == "namespace" or (kind, group) == ("Namespace", ""):
        return dns_label_faults(name)
    if (kind, group) in NATIVE and group != KUEUE_CONFIG:
        return dns_subdomain_faults(name)
    return () if _PATH_SEGMENT.fullmatch(name) and not HIDDEN_CHARACTERS.search(name) else (PATH_RULE,)


START: Final = yaml_tree.Position(1, 1)
RECORD = "Snapshot"
"""The kind of the document in which `gpuflow snapshot` says what it could list, and what it could not."""
LISTABLE = frozenset({*(source.kind for source in SOURCES), *(kind for kind, _ in NATIVE)})
"""The kinds that a record can speak of."""
RENDER_HINTS = {
    "kustomization": ("the file is a kustomization", "kubectl kustomize FOLDER > cluster.yaml"),
    "chart": ("the file describes a Helm chart", "helm template CHART > cluster.yaml"),
}
"""Files that are no manifests because a tool makes manifests of them, by the name that the tool gives them."""


MOST_FAULTS = 1_000
"""So many objects that are no manifests are told, and then no more is read of a file."""


@gc_pause.gc_paused()
def read_cluster(path: str) -> Cluster:
    """The cluster in a file or a directory. Raises `GpuflowError` with everything that is not a manifest."""
    if not path:
        raise fail("GF100", "no cluster is named", hint="name a file or a folder of manifests, or `live`")
    root = Path(path)
    try:
        is_folder = root.is_dir()
    except (OSError, ValueError):  # reading it says why
        is_folder = False
    files, findings = files_in(root) if is_folder else ([root], [])
    if not files and not findings:
        hint = "put .yaml or .json files there, or name another folder"
        raise fail("GF401", f"{path} holds no manifests", where=Where(path), hint=hint)
    objects: list[Manifest] = []
    for file in files:
        try:
            for document in documents(file, piped=not is_folder, folder=root if is_folder else None):
                if document is not None:
                    _collect(document, str(file), objects, findings)
        except GpuflowError as refusal:
            findings += refusal.findings
    return _cluster(path, objects, findings)


def cluster_of(manifests: Iterable[Mapping[str, Any]], source: str = "manifests") -> Cluster:
    """The cluster that these manifests describe, for those who have them in memory."""
    objects: list[Manifest] = []
    findings: list[Finding] = []
    for manifest in manifests:
        _collect(manifest, source, objects, findings)
    return _cluster(source, objects, findings)


def _cluster(path: str, objects: list[Manifest], findings: list[Finding]) -> Cluster:
    findings += _duplicates(objects)
    if findings:
        raise GpuflowError(findings)
    if not objects:
        raise fail("GF401", f"{path} holds no manifests", where=Where(path), hint="is the file empty?")
    records = [item for item in objects if item.kind == RECORD and item.group == "gpuflow"]
    real = tuple(item for item in objects if item.kind != RECORD or item.group != "gpuflow")
    return _with_records(Cluster(path, real), records)


def _collect(document: Any, file: str, objects: list[Manifest], findings: list[Finding]) -> None:
    """Take the objects out of a document; each that cannot be taken is a finding of its own."""
    for part in _parts(document, file):
        if len(findings) >= MOST_FAULTS:
            text = f"{MOST_FAULTS:,} objects and more are no manifests; the rest of the file was not looked at"
            findings.append(Finding("GF402", text, Where(file), "is it a cluster's manifests?"))
            return
        if isinstance(part, Finding):
            findings.append(part)
            continue
        try:
            objects.append(manifest_of(part, file))
        except GpuflowError as refusal:
            findings += refusal.findings


def _parts(document: Any, file: str) -> Iterator[Mapping[str, Any] | Finding]:
    """The document itself, or the items of a list."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if not (isinstance(kind, str) and kind.endswith("List") and "items" in document):
        yield document
        return
    items = document["items"]
    if items is None:
        return
    if not isinstance(items, list):
        yield Finding("GF402", f"the items of the {kind} are not a list", place(document, Where(file), ("items",)))
        return
    for item in items:
        # Items of a typed list (PodList) do not repeat their kind.
        if isinstance(item, dict) and kind != "List":
            for key, value in (("kind", kind.removesuffix("List")), ("apiVersion", document.get("apiVersion"))):
                item = item if key in item else with_entry(item, key, value)
        if isinstance(item, dict) and "items" not in item:
            yield item
        else:
            yield from _parts(item, file)


def manifest_of(document: Any, file: str) -> Manifest:
    """One object; `GpuflowError` says what keeps it from being one."""
    where = _place_of(file, getattr(document, "spot", START))
    if not isinstance(document, dict):
        raise fail("GF402", "a manifest is a mapping with apiVersion, kind and metadata", where=where)
    _require_rendered(document, file, where)
    for key in ("apiVersion", "kind"):
        value = document.get(key)
        if not isinstance(value, str) or not value:
            what = "the manifest has no" if value in (None, "") else f"{value!r} is not text: the manifest needs a"
            raise fail("GF402", f"{what} {key}", where=place(document, where, (key,)), hint="is the file complete?")
    kind, version = document["kind"], document["apiVersion"]
    if version.startswith("gpuflow/") and kind != RECORD:
        message = f"this is a gpuflow {kind}, not a manifest of the cluster"
        raise fail("GF402", message, where=where, hint="name a folder of manifests")
    slipped = kind_fault(kind, version)
    if slipped is not None:
        raise fail("GF405", slipped.message, where=place(document, where, ("kind",)), hint=slipped.hint)
    name, namespace = _object_identity(document, kind, where)
    return Manifest(kind, version.rpartition("/")[0], name, namespace, document, where)


def _require_rendered(document: Mapping[str, Any], file: str, where: Where) -> None:
    tool = Path(file).stem.lower() if "kind" not in document else ""
    if str(document.get("apiVersion")).startswith("kustomize.config.k8s.io/"):
        tool = "kustomization"
    if tool in RENDER_HINTS:
        what, command = RENDER_HINTS[tool]
        raise must_be_rendered(what, where, command)


def _object_identity(document: Mapping[str, Any], kind: str, where: Where) -> tuple[str, str | None]:
    """Name and namespace. What Kubernetes will name itself (`generateName`), and what is no object, has no name."""
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        at = place(document, where, ("metadata",))
        raise fail("GF402", f"metadata of the {kind} is not a mapping", where=at, hint="give it at least a name")
    metadata = metadata or {}
    group = document["apiVersion"].rpartition("/")[0]
    for key in ("name", "namespace", "generateName"):
        value = metadata.get(key)
        if value is None or value == "":
            continue
        if not isinstance(value, str):
            at = place(document, where, ("metadata", key))
            raise fail("GF402", f"metadata.{key} of the {kind} is not text: {value!r}", where=at, hint="quote it")
        faults = name_faults(kind, group, key, value)
        if faults:
            at = place(document, where, ("metadata", key))
            shown = value if len(value) <= 80 else f"{value[:80]}…"
            message = f"metadata.{key} of the {kind} cannot be {shown!r}: {'; '.join(faults)}"
            raise fail("GF138", message, where=at, hint="compare with kubectl get; is the file a template?")
    needs_name = (kind, group) in KNOWN and group != KUEUE_CONFIG
    if needs_name and not metadata.get("name") and not metadata.get("generateName"):
        at = place(document, where, ("metadata",))
        raise fail("GF402", f"the {kind} has no metadata.name", where=at, hint="is the file complete?")
    return metadata.get("name") or "", metadata.get("namespace") or None


def _duplicates(objects: list[Manifest]) -> Iterator[Finding]:
    seen: dict[tuple[str, str, str | None, str], Manifest] = {}
    for item in objects:
        is_settings = item.kind == "Configuration" and item.group == KUEUE_CONFIG
        if not item.name and not is_settings:
            continue
        first = seen.setdefault((item.kind, item.group, item.namespace, item.name), item)
        if first is not item:
            hint = f"the first stands in {first.where}; keep one"
            yield Finding("GF404", f"the {item.kind} {item.name} stands twice".replace("  ", " "), item.where, hint)


def _with_records(cluster: Cluster, records: list[Manifest]) -> Cluster:
    """The cluster with what its snapshot says of itself: written by `gpuflow snapshot`, or by hand."""
    for record in records:
        body = record.body
        listed, assumed, labels = (body.get(key) for key in ("listed", "assumed", "labels"))
        namespace, homes, unread = body.get("namespace"), body.get("namespaces"), body.get("unread") or {}
        texts = all(isinstance(each, list | None) for each in (listed, assumed, labels, homes))
        if not texts or not isinstance(namespace, str | None) or not isinstance(unread, Mapping):
            hint = "gpuflow snapshot writes it; by hand it needs no more than listed: [Kind, …]"
            raise fail("GF402", "the record of the snapshot cannot be understood", where=record.where, hint=hint)
        for field in ("listed", "assumed"):
            _require_kinds(record, field)
        cluster = replace(
            cluster,
            listed=cluster.listed.union(map(str, listed or ())),
            assumed=cluster.assumed.union(map(str, assumed or ())),
            unread={**cluster.unread, **{str(kind): str(reason) for kind, reason in unread.items()}},
            namespaces=tuple(map(str, homes)) if homes else (namespace,) if namespace else cluster.namespaces,
            # Snapshots of older versions show all labels, and do not say so.
            labels=frozenset(map(str, labels)) if isinstance(labels, list) else cluster.labels,
        )
    return cluster


def _require_kinds(record: Manifest, field: str) -> None:
    """Refuse an unknown kind in a list of kinds; it is misspelled."""
    for index, kind in enumerate(record.body.get(field) or ()):
        if str(kind) not in LISTABLE:
            where = record.at(field, index)
            raise fail(
                "GF405", f"{field}: there is no kind {kind}", where=where, hint=did_you_mean(str(kind), LISTABLE)
            )


@lru_cache(maxsize=16)
def _place_of(file: str, spot: yaml_tree.Position) -> Where:
    """Where an object begins: all of a large JSON file do so at its first line."""
    return Where(file, spot.line, spot.column)
