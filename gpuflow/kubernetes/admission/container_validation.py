"""Validation of containers and volumes: requests and limits, variables, hooks, ports, devices, sources of volumes.

Mirrors ValidateEnv, ValidateEnvFrom, validateHandler, validateContainerPorts, ValidateVolumeDevices,
validateVolumeSource and the part of ValidatePodCreate that checks resources in
k8s.io/kubernetes/pkg/apis/core/validation, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from gpuflow.kubernetes.admission.field_errors import (
    INVALID,
    REQUIRED,
    FieldError,
    LimitRequired,
    RequestAboveLimit,
    container_resource_faults,
    dns_subdomain_faults,
    duplicate,
    forbidden,
    invalid,
    invalid_number,
    is_counted,
    is_native,
    label_value_faults,
    not_found,
    qualified_name_faults,
    quote_as_go,
    required,
    resource_faults,
    too_long,
    unsupported,
)
from gpuflow.kubernetes.admission.pod import Body, Pod, read_integer, read_text
from gpuflow.kubernetes.pod_fields import fields_of
from gpuflow.kubernetes.resources import (
    HUGEPAGES,
    ResourceList,
    is_hugepages,
    is_pod_level,
    read_map,
    read_maps,
    read_resource_list,
)
from gpuflow.quantity import NANO, Quantity


class ResourceRule(NamedTuple):
    """What holds for one resource name, wherever it stands."""

    faults: tuple[str, ...]
    supported: bool
    counted: bool
    overcommit: bool
    """Whether a limit may be above the request."""
    hugepages: bool
    page: int | None
    plain: bool
    """Whether every whole amount of it is good."""


NO_OVERCOMMIT: Final = "Limit must be set for non overcommitable resources"
BASIC: Final = frozenset({"cpu", "memory"})
"""Allowed everywhere, in any amount that is not negative."""


@lru_cache(maxsize=4096)
def container_rule(name: str) -> ResourceRule:
    return _resource_rule(name, container_resource_faults(name), True)


@lru_cache(maxsize=4096)
def pod_level_rule(name: str) -> ResourceRule:
    faults = resource_faults(name)
    return _resource_rule(name, faults, bool(faults) or is_pod_level(name))


def _resource_rule(name: str, faults: tuple[str, ...], supported: bool) -> ResourceRule:
    hugepages = is_hugepages(name)
    page = _page_size(name) if hugepages else None
    plain = not faults and supported and not hugepages
    overcommit = is_native(name) and not hugepages
    return ResourceRule(faults, supported, is_counted(name), overcommit, hugepages, page, plain)


def _page_size(name: str) -> int | None:
    try:
        page = Quantity(name.removeprefix(HUGEPAGES))
    except ValueError:
        return None
    return page.value if page.nano > 0 and page.milli % 1000 == 0 else None


def requirement_faults(
    requests: ResourceList, limits: ResourceList, field: str, rule_of: Callable[[str], ResourceRule] = container_rule
) -> Iterator[FieldError]:
    """The faults of one pair of requests and limits at `field`."""
    hugepages = False
    for name, quantity in limits.items():
        if name in BASIC and quantity.nano >= 0:
            continue
        rule = rule_of(name)
        hugepages = hugepages or rule.hugepages
        if not rule.plain or quantity.nano < 0 or quantity.nano % NANO:
            yield from _entry_faults(name, quantity, rule, f"{field}.limits[{name}]")
    for name, quantity in requests.items():
        limit = limits.get(name)
        if name in BASIC and quantity.nano >= 0 and (limit is None or quantity.nano <= limit.nano):
            continue
        rule = rule_of(name)
        hugepages = hugepages or rule.hugepages
        if not rule.plain or quantity.nano < 0 or quantity.nano % NANO:
            yield from _entry_faults(name, quantity, rule, f"{field}.requests[{name}]")
        if limit is None:
            if not rule.overcommit:
                yield LimitRequired(REQUIRED, f"{field}.limits", None, NO_OVERCOMMIT)
        elif not rule.overcommit:
            if quantity != limit:
                detail = f"must be equal to {name} limit of {limit.text}"
                yield invalid(f"{field}.requests", quantity.text, detail)
        elif quantity > limit:
            detail = f"must be less than or equal to {name} limit of {limit.text}"
            yield RequestAboveLimit(INVALID, f"{field}.requests", quote_as_go(quantity.text), detail, name)
    if hugepages and BASIC.isdisjoint(limits) and BASIC.isdisjoint(requests):
        yield forbidden(field, "HugePages require cpu or memory")


def _entry_faults(name: str, quantity: Quantity, rule: ResourceRule, field: str) -> Iterator[FieldError]:
    for fault in rule.faults:
        yield invalid(field, name, fault)
    if not rule.supported:
        yield unsupported(field, name, ("cpu", HUGEPAGES, "memory"))
    if quantity.nano < 0:
        yield invalid(field, quantity.text, "must be greater than or equal to 0")
    if rule.counted and quantity.nano % NANO:
        yield invalid(field, quantity.text, "must be an integer")
    if rule.hugepages and (rule.page is None or quantity.value % rule.page):
        yield invalid(field, quantity.text, f"{quantity.text} is not positive integer multiple of {name}")


def pod_level_faults(pod: Pod) -> Iterator[FieldError]:
    """Pod-level resources must make sense by themselves and leave room for the containers."""
    if pod.level is None:
        return
    requests, limits = pod.level
    yield from requirement_faults(requests, limits, "spec.resources", pod_level_rule)
    for name, total in pod.container_requests.items():
        if name in requests and total > requests[name]:
            detail = f"must be greater than or equal to aggregate container requests of {total.text}"
            yield invalid(f"spec.resources.requests[{name}]", requests[name].text, detail)
    for name, total in pod.container_limits.items():
        if is_hugepages(name) and name in limits and total > limits[name]:
            detail = f"must be greater than or equal to aggregate container limits of {total.text}"
            yield invalid(f"spec.resources.limits[{name}]", limits[name].text, detail)
    for index, container in enumerate(pod.containers):
        for name, limit in container.limits.items():
            if name in limits and limit > limits[name]:
                field = f"spec.resources.containers[{index}][{name}].limits"
                yield invalid(field, limit.text, f"must be less than or equal to pod limits of {limits[name].text}")


HOST_PATHS: Final = (
    "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
)  # fmt: skip
FIRST_SOURCES: Final = ("emptyDir", "hostPath", "gitRepo", "gcePersistentDisk", "awsElasticBlockStore", "secret", "nfs")
"""The order in which Kubernetes looks at the sources, as far as it matters which comes first."""
MODE_RULE: Final = "must be a number between 0 and 0777 (octal), both inclusive"
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
RESOURCE_REFS: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage",
    "requests.memory",
)  # fmt: skip
REQUIRED_OF_SOURCE: Final = {"nfs": ("server", "path"), "persistentVolumeClaim": ("claimName",), "csi": ("driver",)}


def name_faults(field: str, name: str, faults_of: Callable[[str], Iterable[str]]) -> Iterator[FieldError]:
    return (invalid(field, name, fault) for fault in faults_of(name))


def missing_faults(holder: Body, place: str, *keys: str) -> Iterator[FieldError]:
    return (required(f"{place}.{key}") for key in keys if not read_text(holder, key, place))


def source_faults(volume: Body, field: str) -> Iterator[FieldError]:
    """What is wrong with where a volume comes from; one that names no source is an empty directory."""
    kinds = [kind for kind in (*FIRST_SOURCES, *fields_of("Volume")) if kind != "name" and volume.get(kind) is not None]
    kinds = list(dict.fromkeys(kinds))
    for other in kinds[1:]:
        yield forbidden(f"{field}.{other}", "may not specify more than 1 volume type")
    if kinds:
        place = f"{field}.{kinds[0]}"
        yield from _faults_of_source(kinds[0], read_map(volume[kinds[0]], place), place)


def _faults_of_source(kind: str, source: Body, place: str) -> Iterator[FieldError]:
    yield from missing_faults(source, place, *REQUIRED_OF_SOURCE.get(kind, ()))
    if kind == "hostPath":
        yield from _host_path(source, place)
    elif kind == "nfs" and not (read_text(source, "path", place) or "").startswith("/"):
        yield invalid(f"{place}.path", read_text(source, "path", place) or "", "must be an absolute path")
    elif kind in ("configMap", "secret"):
        yield from missing_faults(source, place, "name" if kind == "configMap" else "secretName")
        yield from _mode_faults(source, "defaultMode", place)
        for index, item in enumerate(read_maps(source.get("items"), f"{place}.items")):
            yield from _item_faults(item, f"{place}.items[{index}]")
    elif kind == "downwardAPI":
        yield from _mode_faults(source, "defaultMode", place)
        for item in read_maps(source.get("items"), f"{place}.items"):
            yield from _fact(item, place)
    elif kind == "projected":
        yield from _mode_faults(source, "defaultMode", place)
        yield from _projected_faults(source, place)
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


def _item_faults(item: Body, place: str) -> Iterator[FieldError]:
    path = read_text(item, "path", place) or ""
    yield from missing_faults(item, place, "key", "path")
    yield from _reserved_path_faults(path, f"{place}.path")
    yield from _mode_faults(item, "mode", place)


def _mode_faults(source: Body, key: str, place: str) -> Iterator[FieldError]:
    mode = read_integer(source, key, place)
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid_number(f"{place}.{key}", mode, MODE_RULE)


def inside_faults(path: str, field: str) -> Iterator[FieldError]:
    """What is wrong with a path that must lead somewhere below the mount."""
    if path.startswith("/"):
        yield invalid(field, path, "must be a relative path")
    yield from _backsteps(path, field)


def _reserved_path_faults(path: str, field: str) -> Iterator[FieldError]:
    yield from inside_faults(path, field)
    if path.startswith("..") and not path.startswith("../"):
        yield invalid(field, path, "must not start with '..'")


def _backsteps(path: str, field: str) -> Iterator[FieldError]:
    if ".." in path.split("/"):
        yield invalid(field, path, "must not contain '..'")


def _projected_faults(source: Body, place: str) -> Iterator[FieldError]:
    """Each source is of one kind, and no two of them write the same file. Tokens are not compared with the others."""
    paths: set[str] = set()
    for index, given in enumerate(read_maps(source.get("sources"), f"{place}.sources")):
        where = f"{place}.sources[{index}]"
        if sum(given.get(kind) is not None for kind in fields_of("VolumeProjection")) > 1:
            yield forbidden(where, "may not specify more than 1 volume type per source")
        for kind in ("secret", "configMap"):
            if given.get(kind) is not None:
                yield from _projected_keys(read_map(given[kind], f"{where}.{kind}"), f"{where}.{kind}", place, paths)
        if given.get("downwardAPI") is not None:
            facts = read_map(given["downwardAPI"], f"{where}.downwardAPI")
            for item in read_maps(facts.get("items"), f"{where}.downwardAPI.items"):
                yield from _fact(item, f"{where}.downwardAPI")
                path = read_text(item, "path", f"{where}.downwardAPI") or ""
                yield from _duplicate_path_faults(path, path, place, paths)
        if given.get("serviceAccountToken") is not None:
            field = f"{where}.serviceAccountToken"
            yield from _token(read_map(given["serviceAccountToken"], field), field, place)


def _projected_keys(source: Body, where: str, place: str, paths: set[str]) -> Iterator[FieldError]:
    name = read_text(source, "name", where) or ""
    if not name:
        yield required(f"{where}.name")
    for number, item in enumerate(read_maps(source.get("items"), f"{where}.items")):
        yield from _item_faults(item, f"{where}.items[{number}]")
        yield from _duplicate_path_faults(read_text(item, "path", where) or "", name, place, paths)


def _duplicate_path_faults(path: str, shown: str, place: str, paths: set[str]) -> Iterator[FieldError]:
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
    yield from _reserved_path_faults(path, f"{place}.path")


def _fact(item: Body, where: str) -> Iterator[FieldError]:
    """A fact about the pod as a file."""
    path = read_text(item, "path", where) or ""
    if not path:
        yield required(f"{where}.path")
    yield from _reserved_path_faults(path, f"{where}.path")
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
    yield from _mode_faults(item, "mode", where)


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
    elif resource not in RESOURCE_REFS and not resource.startswith(("limits.hugepages-", "requests.hugepages-")):
        yield unsupported(f"{where}.resource", resource, RESOURCE_REFS)


def _csi(source: Body, place: str) -> Iterator[FieldError]:
    driver = read_text(source, "driver", place) or ""
    if len(driver) > 63:
        yield too_long(f"{place}.driver", 63)
    if driver:
        for fault in dns_subdomain_faults(driver.lower()):
            yield invalid(f"{place}.driver", driver, fault)
    if source.get("nodePublishSecretRef") is not None:
        where = f"{place}.nodePublishSecretRef"
        yield from missing_faults(read_map(source["nodePublishSecretRef"], where), where, "name")


def _claim_template(template: Body, place: str) -> Iterator[FieldError]:
    """The claim of an ephemeral volume."""
    metadata = read_map(template.get("metadata"), f"{place}.metadata")
    for key in metadata:
        if key not in ("labels", "annotations", "creationTimestamp") and metadata[key] is not None:
            yield forbidden(f"{place}.metadata.{key}", "cannot be set")
    for key, value in read_map(metadata.get("labels"), f"{place}.metadata.labels").items():
        yield from name_faults(f"{place}.metadata.labels", key, qualified_name_faults)
        yield from name_faults(f"{place}.metadata.labels", str(value), label_value_faults)
    yield from claim_faults(template, f"{place}.spec")


def claim_faults(claim: Body, where: str) -> Iterator[FieldError]:
    """The spec of a claim. Mirrors ValidatePersistentVolumeClaimSpec, without its sources of data."""
    spec = read_map(claim.get("spec"), where)
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
    if name:
        yield from name_faults(f"{where}.storageClassName", name, dns_subdomain_faults)
    volume_mode = read_text(spec, "volumeMode", where)
    if volume_mode is not None and volume_mode not in VOLUME_MODES:
        yield unsupported(f"{where}.volumeMode", volume_mode, VOLUME_MODES)


def _storage(resources: Body, place: str) -> Iterator[FieldError]:
    asked = read_resource_list(resources.get("requests"), f"{place}.requests")
    if "storage" not in asked:
        yield required(f"{place}[storage]")
    elif asked["storage"] <= Quantity("0"):
        yield invalid(f"{place}[storage]", str(asked["storage"]), "must be greater than zero")


DEFAULT_GRACE: Final = 30
PORT_RULE: Final = "must be between 1 and 65535, inclusive"
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
VARIABLE_RULE: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)
VARIABLE_SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
DEVICE_RULE: Final = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


def variable_faults(listed: object, where: str) -> Iterator[FieldError]:
    """What is wrong with single variables."""
    for index, variable in enumerate(read_maps(listed, where)):
        field = f"{where}[{index}]"
        name = read_text(variable, "name", field)
        if not name:
            yield required(f"{field}.name")
        elif not _is_variable(name):
            yield invalid(f"{field}.name", name, VARIABLE_RULE)
        if variable.get("valueFrom") is not None:
            source = read_map(variable["valueFrom"], f"{field}.valueFrom")
            yield from _value_from(source, bool(variable.get("value")), f"{field}.valueFrom")


def _is_variable(name: str) -> bool:
    return name.isascii() and name.isprintable() and "=" not in name


def _value_from(source: Body, has_value: bool, where: str) -> Iterator[FieldError]:
    given = [kind for kind in VARIABLE_SOURCES if source.get(kind) is not None]
    for kind in given:
        place = f"{where}.{kind}"
        ref = read_map(source[kind], place)
        if kind == "fieldRef":
            yield from field_ref_faults(ref, place, ENV_FACTS)
        elif kind == "resourceFieldRef":
            yield from resource_ref_faults(ref, place)
        elif kind in ("configMapKeyRef", "secretKeyRef"):
            yield from missing_faults(ref, place, "name", "key")
    if not given:
        *most, last = (f"`{kind}`" for kind in VARIABLE_SOURCES)
        yield invalid(where, "", f"must specify one of: {', '.join(most)} or {last}")
    elif has_value:
        yield invalid(where, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield invalid(where, "", "may not have more than one field specified at a time")


def whole_source_faults(listed: object, where: str) -> Iterator[FieldError]:
    """What is wrong with `envFrom`."""
    for index, source in enumerate(read_maps(listed, where)):
        field = f"{where}[{index}]"
        prefix = read_text(source, "prefix", field)
        if prefix and not _is_variable(prefix):
            yield invalid(f"{field}.prefix", prefix, VARIABLE_RULE)
        given = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in given:
            yield from missing_faults(read_map(source[kind], f"{field}.{kind}"), f"{field}.{kind}", "name")
        if not given:
            yield invalid(where, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(where, "", "may not have more than one field specified at a time")


def hook_faults(container: Any, place: str, spec: Body) -> Iterator[FieldError]:
    """A hook does one thing, and sleeps no longer than the pod has time to end."""
    lifecycle = read_map(container.get("lifecycle"), f"{place}.lifecycle")
    grace = read_integer(spec, "terminationGracePeriodSeconds", "spec")
    grace = DEFAULT_GRACE if grace is None else grace
    for name in ("postStart", "preStop"):
        if lifecycle.get(name) is None:
            continue
        where = f"{place}.lifecycle.{name}"
        hook = read_map(lifecycle[name], where)
        given = [kind for kind in fields_of("LifecycleHandler") if hook.get(kind) is not None]
        yield from (forbidden(f"{where}.{kind}", "may not specify more than 1 handler type") for kind in given[1:])
        if not given:
            yield required(where, "must specify a handler type")
        else:
            yield from _hook_action_faults(
                given[0], read_map(hook[given[0]], f"{where}.{given[0]}"), f"{where}.{given[0]}", grace
            )


def _hook_action_faults(kind: str, action: Body, where: str, grace: int) -> Iterator[FieldError]:
    if kind == "exec" and not action.get("command"):
        yield required(f"{where}.command")
    elif kind in ("httpGet", "tcpSocket") and not isinstance(action.get("port"), str):
        port = read_integer(action, "port", where) or 0
        if not 1 <= port <= 65535:
            yield invalid_number(f"{where}.port", port, PORT_RULE)
    elif kind == "sleep":
        seconds = read_integer(action, "seconds", where)
        if seconds is not None and not 0 <= seconds <= grace:
            detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield invalid_number(where, seconds, detail)


def port_faults(listed: object, where: str) -> Iterator[FieldError]:
    """What is wrong with the ports of one container."""
    names: set[str] = set()
    for index, port in enumerate(read_maps(listed, where)):
        field = f"{where}[{index}]"
        name = read_text(port, "name", field)
        if name:
            faults = [*_port_name(name)]
            yield from (invalid(f"{field}.name", name, fault) for fault in faults)
            if not faults and name in names:
                yield duplicate(f"{field}.name", name)
            names.add(name)
        number = read_integer(port, "containerPort", field)
        if not number:
            yield required(f"{field}.containerPort")
        for key in ("containerPort", "hostPort"):
            number = read_integer(port, key, field)
            if number and not 1 <= number <= 65535:
                yield invalid_number(f"{field}.{key}", number, PORT_RULE)
        protocol = read_text(port, "protocol", field)
        if protocol and protocol not in PROTOCOLS:
            yield unsupported(f"{field}.protocol", protocol, PROTOCOLS)


def _port_name(name: str) -> Iterator[str]:
    if len(name) > 15:
        yield "must be no more than 15 characters"
    if not re.fullmatch("[-a-z0-9]+", name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"


def device_faults(listed: object, where: str, volumes: Mapping[str, Body]) -> Iterator[FieldError]:
    """Devices of a container are claims of the pod. `volumes`: its volumes by name."""
    for index, device in enumerate(read_maps(listed, where)):
        field = f"{where}[{index}]"
        name = read_text(device, "name", field) or ""
        if not name:
            yield required(f"{field}.name")
        if name not in volumes:
            yield not_found(f"{field}.name", name)
        elif not {"persistentVolumeClaim", "ephemeral"} & volumes[name].keys():
            yield invalid(f"{field}.name", name, DEVICE_RULE)
        yield from missing_faults(device, field, "devicePath")
