"""Validation of the sources of volumes, and of hooks that sleep.

Mirrors validateVolumeSource and validateSleepAction in k8s.io/kubernetes/pkg/apis/core/validation, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from gpuflow.kubernetes.admission.clauses import FieldError, forbidden, invalid, invalid_number, required, unsupported
from gpuflow.kubernetes.admission.pod import Body, read_integer, read_text
from gpuflow.kubernetes.pod_fields import fields_of
from gpuflow.resources import read_map, read_maps

DEFAULT_GRACE: Final = 30
HOST_PATHS: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
FIRST: Final = ("emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs")
"""The order in which Kubernetes looks at the sources, as far as it matters which comes first."""
MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
NEEDED: Final = {"nfs": ("server", "path"), "persistentVolumeClaim": ("claimName",), "csi": ("driver",)}


def source_faults(volume: Body, field: str) -> Iterator[FieldError]:
    """What is wrong with where a volume comes from; one that names no source is an empty directory."""
    kinds = [kind for kind in (*FIRST, *fields_of("Volume")) if kind != "name" and volume.get(kind) is not None]
    kinds = list(dict.fromkeys(kinds))
    for other in kinds[1:]:
        yield forbidden(f"{field}.{other}", "may not specify more than 1 volume type")
    if kinds:
        place = f"{field}.{kinds[0]}"
        yield from _faults(kinds[0], read_map(volume[kinds[0]], place), place)


def _faults(kind: str, source: Body, place: str) -> Iterator[FieldError]:
    for key in NEEDED.get(kind, ()):
        if not read_text(source, key, place):
            yield required(f"{place}.{key}")
    if kind == "hostPath":
        yield from _host_path(source, place)
    elif kind == "nfs" and not (read_text(source, "path", place) or "").startswith("/"):
        yield invalid(f"{place}.path", read_text(source, "path", place) or "", "must be an absolute path")
    elif kind in ("configMap", "secret"):
        name = "name" if kind == "configMap" else "secretName"
        if not read_text(source, name, place):
            yield required(f"{place}.{name}")
        yield from _mode(source, "defaultMode", place)
        for index, item in enumerate(read_maps(source.get("items"), f"{place}.items")):
            yield from _item(item, f"{place}.items[{index}]")
    elif kind == "projected":
        yield from _mode(source, "defaultMode", place)
    elif kind == "ephemeral" and source.get("volumeClaimTemplate") is None:
        yield required(f"{place}.volumeClaimTemplate")


def _host_path(source: Body, place: str) -> Iterator[FieldError]:
    path, kind = read_text(source, "path", place), read_text(source, "type", place)
    if not path:
        yield required(f"{place}.path")
        return
    yield from _backsteps(path, f"{place}.path")
    if kind is not None and kind not in HOST_PATHS:
        yield unsupported(f"{place}.type", kind, HOST_PATHS)


def _item(item: Body, place: str) -> Iterator[FieldError]:
    path = read_text(item, "path", place) or ""
    if not read_text(item, "key", place):
        yield required(f"{place}.key")
    if not path:
        yield required(f"{place}.path")
    if path.startswith("/"):
        yield invalid(f"{place}.path", path, "must be a relative path")
    yield from _backsteps(path, f"{place}.path")
    if path.startswith("..") and not path.startswith("../"):
        yield invalid(f"{place}.path", path, "must not start with '..'")
    yield from _mode(item, "mode", place)


def _mode(source: Body, key: str, place: str) -> Iterator[FieldError]:
    mode = read_integer(source, key, place)
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid_number(f"{place}.{key}", mode, MODE)


def _backsteps(path: str, field: str) -> Iterator[FieldError]:
    if ".." in path.split("/"):
        yield invalid(field, path, "must not contain '..'")


def sleep_faults(container: Any, place: str, spec: Body) -> Iterator[FieldError]:
    """A hook may not sleep longer than the pod has time to end."""
    lifecycle = read_map(container.get("lifecycle"), f"{place}.lifecycle")
    grace = read_integer(spec, "terminationGracePeriodSeconds", "spec")
    grace = DEFAULT_GRACE if grace is None else grace
    for name in ("postStart", "preStop"):
        hook = read_map(lifecycle.get(name), f"{place}.lifecycle.{name}")
        where = f"{place}.lifecycle.{name}.sleep"
        seconds = read_integer(read_map(hook.get("sleep"), where), "seconds", where)
        if seconds is not None and not 0 <= seconds <= grace:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield invalid_number(where, seconds, detail)
