"""A cluster from files: single manifests, multi-document files, `kubectl get -o yaml` lists, whole directories."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuflow.cluster.model import Cluster, Manifest
from gpuflow.errors import Finding, GpuflowError, Where, fail
from gpuflow.spec import yaml_tree
from gpuflow.spec.loading import read_bytes

SUFFIXES = (".yaml", ".yml", ".json")


def read_cluster(path: str) -> Cluster:
    """The cluster in a file or a directory. Raises `GpuflowError` with every file that is not a manifest."""
    root = Path(path)
    files = sorted(file for file in root.rglob("*") if file.suffix in SUFFIXES) if root.is_dir() else [root]
    if not files:
        raise fail(
            "GF401",
            f"{path} holds no manifests",
            where=Where(path),
            hint="put .yaml or .json files there, or name another folder",
        )
    objects: list[Manifest] = []
    findings: list[Finding] = []
    for file in files:
        try:
            objects += _manifests(file)
        except GpuflowError as refusal:
            findings += refusal.findings
    seen: dict[tuple[str, str | None, str], Manifest] = {}
    for item in objects:
        first = seen.setdefault((item.kind, item.namespace, item.name), item)
        if first is not item and item.name:
            hint = f"the first stands in {first.where}; keep one"
            findings.append(Finding("GF404", f"the {item.kind} {item.name} stands twice", item.where, hint))
    if findings:
        raise GpuflowError(findings)
    return Cluster(path, tuple(objects))


def _manifests(file: Path) -> Iterator[Manifest]:
    text = yaml_tree.decode(read_bytes(file), str(file))
    for document in yaml_tree.parse_all(text, str(file)):
        if document is not None:
            yield from _objects(document, str(file))


def _objects(document: Any, file: str) -> Iterator[Manifest]:
    where = Where(file, *_spot(document))
    if not isinstance(document, yaml_tree.Map):
        raise fail("GF402", "a manifest is a mapping with apiVersion, kind and metadata", where=where)
    kind, version = document.get("kind"), document.get("apiVersion")
    if not isinstance(kind, str) or not isinstance(version, str):
        raise fail("GF402", "the manifest has no kind or no apiVersion", where=where, hint="is the file complete?")
    if version.startswith("gpuflow/"):
        raise fail(
            "GF402",
            f"this is a gpuflow {kind}, not a manifest of the cluster",
            where=where,
            hint="name a folder of manifests",
        )
    if kind.endswith("List") and "items" in document:
        items = document["items"]
        if not isinstance(items, yaml_tree.Seq):
            raise fail("GF402", f"the items of the {kind} are not a list", where=where)
        for item in items:
            if isinstance(item, yaml_tree.Map):
                # Items of a typed list (PodList) do not repeat their kind.
                item.setdefault("kind", kind.removesuffix("List"))
                item.setdefault("apiVersion", version)
            yield from _objects(item, file)
        return
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, yaml_tree.Map) else None
    if not isinstance(name, str) and kind != "Configuration":
        raise fail("GF402", f"the {kind} has no metadata.name", where=where, hint="is the file complete?")
    namespace = metadata.get("namespace") if isinstance(metadata, yaml_tree.Map) else None
    group = version.rpartition("/")[0]
    yield Manifest(kind, group, name or "", namespace if isinstance(namespace, str) else None, document, where)


def _spot(document: Any) -> tuple[int, int]:
    spot = getattr(document, "spot", yaml_tree.Spot(1, 1))
    return spot.line, spot.column
