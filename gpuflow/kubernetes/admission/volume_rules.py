"""Validation of the sources of volumes.

Mirrors validateVolumeSource in k8s.io/kubernetes/pkg/apis/core/validation, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from gpuflow.kubernetes.admission.clauses import (
    FieldError,
    forbidden,
    invalid,
    invalid_number,
    required,
    too_long,
    unsupported,
)
from gpuflow.kubernetes.admission.names import dns_subdomain_faults, label_value_faults, qualified_name_faults
from gpuflow.kubernetes.admission.pod import Body, read_integer, read_text
from gpuflow.kubernetes.pod_fields import fields_of
from gpuflow.quantity import Quantity
from gpuflow.resources import read_map, read_maps, read_resource_list

HOST_PATHS: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
FIRST: Final = ("emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs")
"""The order in which Kubernetes looks at the sources, as far as it matters which comes first."""
MODE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
PROJECTIONS: Final = (
    "secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle", "podCertificate",
)  # fmt: skip
ACCESS_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
VOLUME_MODES: Final = ("Block", "Filesystem")
FILE_FACTS: Final = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid",
)  # fmt: skip
ENV_FACTS: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName",
    "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
KNOWN_FACTS: Final = frozenset({
    *FILE_FACTS, *ENV_FACTS, "spec.restartPolicy", "spec.schedulerName", "status.phase",
})  # fmt: skip
SUBSCRIPT: Final = re.compile(r"metadata\.(labels|annotations)\['[^']*'\]")
AMOUNTS: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip
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
    elif kind == "downwardAPI":
        yield from _mode(source, "defaultMode", place)
        for item in read_maps(source.get("items"), f"{place}.items"):
            yield from _fact(item, place)
    elif kind == "projected":
        yield from _mode(source, "defaultMode", place)
        yield from _projected(source, place)
    elif kind == "ephemeral" and source.get("volumeClaimTemplate") is None:
        yield required(f"{place}.volumeClaimTemplate")
    elif kind == "ephemeral":
        template = f"{place}.volumeClaimTemplate"
        yield from _claim_template(read_map(source["volumeClaimTemplate"], template), template)
    elif kind == "csi":
        yield from _csi(source, place)


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
    yield from _not_reserved(path, f"{place}.path")
    yield from _mode(item, "mode", place)


def _mode(source: Body, key: str, place: str) -> Iterator[FieldError]:
    mode = read_integer(source, key, place)
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid_number(f"{place}.{key}", mode, MODE)


def inside_faults(path: str, field: str) -> Iterator[FieldError]:
    """What is wrong with a path that must lead somewhere below the mount."""
    if path.startswith("/"):
        yield invalid(field, path, "must be a relative path")
    yield from _backsteps(path, field)


def _not_reserved(path: str, field: str) -> Iterator[FieldError]:
    yield from inside_faults(path, field)
    if path.startswith("..") and not path.startswith("../"):
        yield invalid(field, path, "must not start with '..'")


def _backsteps(path: str, field: str) -> Iterator[FieldError]:
    if ".." in path.split("/"):
        yield invalid(field, path, "must not contain '..'")


def _projected(source: Body, place: str) -> Iterator[FieldError]:
    """Each source is of one kind, and no two of them write the same file. Tokens are not compared with the others."""
    paths: set[str] = set()
    for index, given in enumerate(read_maps(source.get("sources"), f"{place}.sources")):
        where = f"{place}.sources[{index}]"
        if sum(given.get(kind) is not None for kind in PROJECTIONS) > 1:
            yield forbidden(where, "may not specify more than 1 volume type per source")
        for kind in ("secret", "configMap"):
            if given.get(kind) is not None:
                yield from _projected_keys(read_map(given[kind], f"{where}.{kind}"), f"{where}.{kind}", place, paths)
        if given.get("downwardAPI") is not None:
            facts = read_map(given["downwardAPI"], f"{where}.downwardAPI")
            for item in read_maps(facts.get("items"), f"{where}.downwardAPI.items"):
                yield from _fact(item, f"{where}.downwardAPI")
                path = read_text(item, "path", f"{where}.downwardAPI") or ""
                yield from _taken(path, path, place, paths)
        if given.get("serviceAccountToken") is not None:
            field = f"{where}.serviceAccountToken"
            yield from _token(read_map(given["serviceAccountToken"], field), field, place)


def _projected_keys(source: Body, where: str, place: str, paths: set[str]) -> Iterator[FieldError]:
    name = read_text(source, "name", where) or ""
    if not name:
        yield required(f"{where}.name")
    for number, item in enumerate(read_maps(source.get("items"), f"{where}.items")):
        yield from _item(item, f"{where}.items[{number}]")
        yield from _taken(read_text(item, "path", where) or "", name, place, paths)


def _taken(path: str, shown: str, place: str, paths: set[str]) -> Iterator[FieldError]:
    if path and path in paths:
        yield invalid(place, shown, "conflicting duplicate paths")
    paths.add(path)


def _token(token: Body, where: str, place: str) -> Iterator[FieldError]:
    seconds = read_integer(token, "expirationSeconds", where)
    if seconds is not None and seconds < 600:
        yield invalid_number(f"{where}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds is not None and seconds > 1 << 32:
        detail = "may not specify a duration larger than 2^32 seconds"
        yield invalid_number(f"{where}.expirationSeconds", seconds, detail)
    path = read_text(token, "path", where) or ""
    if not path:
        yield required(f"{place}.path")
    yield from _not_reserved(path, f"{place}.path")


def _fact(item: Body, where: str) -> Iterator[FieldError]:
    """A fact about the pod as a file."""
    path = read_text(item, "path", where) or ""
    if not path:
        yield required(f"{where}.path")
    yield from _not_reserved(path, f"{where}.path")
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        yield from field_ref_faults(read_map(field, f"{where}.fieldRef"), f"{where}.fieldRef", FILE_FACTS)
        if resource is not None:
            yield invalid(where, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
    elif resource is not None:
        place = f"{where}.resourceFieldRef"
        yield from resource_ref_faults(read_map(resource, place), place, in_volume=True)
    else:
        yield required(where, "one of fieldRef and resourceFieldRef is required")
    yield from _mode(item, "mode", where)


def field_ref_faults(ref: Body, where: str, facts: tuple[str, ...]) -> Iterator[FieldError]:
    """A field of the pod, as a file or as a variable. `facts`: those that may be asked for there."""
    path = read_text(ref, "fieldPath", where) or ""
    if not path:
        yield required(f"{where}.fieldPath")
    elif SUBSCRIPT.fullmatch(path) or path in facts:
        return
    elif path in KNOWN_FACTS:
        yield unsupported(f"{where}.fieldPath", path, facts)
    else:
        yield invalid(f"{where}.fieldPath", path, f"error converting fieldPath: field label not supported: {path}")


def resource_ref_faults(ref: Body, where: str, *, in_volume: bool = False) -> Iterator[FieldError]:
    """An amount of a container, as a file or as a variable."""
    resource = read_text(ref, "resource", where) or ""
    if in_volume and not read_text(ref, "containerName", where):
        yield required(f"{where}.containerName")
    elif not resource:
        yield required(f"{where}.resource")
    elif resource not in AMOUNTS and not resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        yield unsupported(f"{where}.resource", resource, AMOUNTS)


def _csi(source: Body, place: str) -> Iterator[FieldError]:
    driver = read_text(source, "driver", place) or ""
    if len(driver) > 63:
        yield too_long(f"{place}.driver", 63)
    if driver:
        for fault in dns_subdomain_faults(driver.lower()):
            yield invalid(f"{place}.driver", driver, fault)
    if source.get("nodePublishSecretRef") is not None:
        where = f"{place}.nodePublishSecretRef"
        if not read_text(read_map(source["nodePublishSecretRef"], where), "name", where):
            yield required(f"{where}.name")


def _claim_template(template: Body, place: str) -> Iterator[FieldError]:
    """The claim of an ephemeral volume."""
    metadata = read_map(template.get("metadata"), f"{place}.metadata")
    for key in metadata:
        if key not in ("labels", "annotations", "creationTimestamp") and metadata[key] is not None:
            yield forbidden(f"{place}.metadata.{key}", "cannot be set")
    for key, value in read_map(metadata.get("labels"), f"{place}.metadata.labels").items():
        for fault in qualified_name_faults(key):
            yield invalid(f"{place}.metadata.labels", key, fault)
        for fault in label_value_faults(str(value)):
            yield invalid(f"{place}.metadata.labels", str(value), fault)
    where = f"{place}.spec"
    spec = read_map(template.get("spec"), where)
    modes = spec.get("accessModes") or []
    if not modes:
        yield required(f"{where}.accessModes", "at least 1 access mode is required")
    for mode in modes:
        if mode not in ACCESS_MODES:
            yield unsupported(f"{where}.accessModes", str(mode), ACCESS_MODES)
    if "ReadWriteOncePod" in modes and any(mode in ACCESS_MODES[:3] for mode in modes):
        yield forbidden(f"{where}.accessModes", "may not use ReadWriteOncePod with other access modes")
    yield from _storage(read_map(spec.get("resources"), f"{where}.resources"), f"{where}.resources")
    name = read_text(spec, "storageClassName", where)
    for fault in dns_subdomain_faults(name) if name else ():
        yield invalid(f"{where}.storageClassName", name or "", fault)
    volume_mode = read_text(spec, "volumeMode", where)
    if volume_mode is not None and volume_mode not in VOLUME_MODES:
        yield unsupported(f"{where}.volumeMode", volume_mode, VOLUME_MODES)


def _storage(resources: Body, place: str) -> Iterator[FieldError]:
    asked = read_resource_list(resources.get("requests"), f"{place}.requests")
    if "storage" not in asked:
        yield required(f"{place}[storage]")
    elif asked["storage"] <= Quantity("0"):
        yield invalid(f"{place}[storage]", str(asked["storage"]), "must be greater than zero")
