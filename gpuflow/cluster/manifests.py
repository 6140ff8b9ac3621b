"""A cluster from files: single manifests, multi-document files, `kubectl get -o yaml` lists, whole directories."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuflow import yaml_tree
from gpuflow.cluster.files import documents, files_in, must_be_rendered
from gpuflow.cluster.kinds import HARMLESS, KUEUE_CONFIG, NATIVE, slip
from gpuflow.cluster.model import Cluster, Manifest
from gpuflow.cluster.names import name_faults
from gpuflow.cluster.places import place, with_entry
from gpuflow.cluster.sources import SOURCES
from gpuflow.errors import Finding, GpuflowError, Where, did_you_mean, fail

RECORD = "Snapshot"
"""The kind of the document in which `gpuflow snapshot` says what it could list, and what it could not."""
LISTABLE = frozenset({*(source.kind for source in SOURCES), *(kind for kind, _ in NATIVE)})
"""The kinds that a record can speak of."""
RENDERED = {
    "kustomization": ("the file is a kustomization", "kubectl kustomize FOLDER > cluster.yaml"),
    "chart": ("the file describes a Helm chart", "helm template CHART > cluster.yaml"),
}
"""Files that are no manifests because a tool makes manifests of them, by the name that the tool gives them."""


MOST_FAULTS = 1_000
"""So many objects that are no manifests are told, and then no more is read of a file."""


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
    findings += _twins(objects)
    if findings:
        raise GpuflowError(findings)
    if not objects:
        raise fail("GF401", f"{path} holds no manifests", where=Where(path), hint="is the file empty?")
    records = [item for item in objects if item.kind == RECORD and item.group == "gpuflow"]
    real = tuple(item for item in objects if item not in records)
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
            objects.append(_manifest(part, file))
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
        yield from _parts(item, file)


def _manifest(document: Any, file: str) -> Manifest:
    where = Where(file, *_spot(document))
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
    slipped = slip(kind, version)
    if slipped is not None:
        raise fail("GF405", slipped.message, where=place(document, where, ("kind",)), hint=slipped.hint)
    name, namespace = _identity(document, kind, where)
    return Manifest(kind, version.rpartition("/")[0], name, namespace, document, where)


def _require_rendered(document: Mapping[str, Any], file: str, where: Where) -> None:
    tool = Path(file).stem.lower() if "kind" not in document else ""
    if str(document.get("apiVersion")).startswith("kustomize.config.k8s.io/"):
        tool = "kustomization"
    if tool in RENDERED:
        what, command = RENDERED[tool]
        raise must_be_rendered(what, where, command)


def _identity(document: Mapping[str, Any], kind: str, where: Where) -> tuple[str, str | None]:
    """Name and namespace. What Kubernetes will name itself (`generateName`), and what is no object, has no name."""
    metadata = document.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        at = place(document, where, ("metadata",))
        raise fail("GF402", f"metadata of the {kind} is not a mapping", where=at, hint="give it at least a name")
    metadata = metadata or {}
    group = str(document.get("apiVersion")).rpartition("/")[0]
    for key in ("name", "namespace", "generateName"):
        value = metadata.get(key)
        if value is not None and not isinstance(value, str):
            at = place(document, where, ("metadata", key))
            raise fail("GF402", f"metadata.{key} of the {kind} is not text: {value!r}", where=at, hint="quote it")
        faults = name_faults(kind, group, key, value or "")
        if faults:
            at = place(document, where, ("metadata", key))
            message = f"metadata.{key} of the {kind} cannot be {_shortened(str(value))!r}: {'; '.join(faults)}"
            raise fail("GF138", message, where=at, hint="compare with kubectl get; is the file a template?")
    needs_name = (kind, group) in NATIVE | HARMLESS and group != KUEUE_CONFIG
    if needs_name and not metadata.get("name") and not metadata.get("generateName"):
        at = place(document, where, ("metadata",))
        raise fail("GF402", f"the {kind} has no metadata.name", where=at, hint="is the file complete?")
    return metadata.get("name") or "", metadata.get("namespace") or None


def _shortened(name: str) -> str:
    return name if len(name) <= 80 else f"{name[:80]}…"


def _twins(objects: list[Manifest]) -> Iterator[Finding]:
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
        namespace, unread = body.get("namespace"), body.get("unread") or {}
        texts = all(isinstance(each, list | None) for each in (listed, assumed, labels))
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
            namespace=namespace or cluster.namespace,
            # Snapshots of older versions show all labels, and do not say so.
            labels=frozenset(map(str, labels)) if isinstance(labels, list) else cluster.labels,
        )
    return cluster


def _require_kinds(record: Manifest, field: str) -> None:
    """A kind that nobody knows, in a list of kinds, says nothing: it is misspelled."""
    for index, kind in enumerate(record.body.get(field) or ()):
        if str(kind) not in LISTABLE:
            where = record.at(field, index)
            raise fail(
                "GF405", f"{field}: there is no kind {kind}", where=where, hint=did_you_mean(str(kind), LISTABLE)
            )


def _spot(document: Any) -> tuple[int, int]:
    spot = getattr(document, "spot", yaml_tree.Spot(1, 1))
    return spot.line, spot.column
