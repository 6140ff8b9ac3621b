"""Validation of a container's variables, hooks, ports and devices.

Mirrors ValidateEnv, ValidateEnvFrom, validateHandler, validateContainerPorts and ValidateVolumeDevices in
k8s.io/kubernetes/pkg/apis/core/validation, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from gpuflow.kubernetes.admission.clauses import (
    FieldError,
    duplicate,
    forbidden,
    invalid,
    invalid_number,
    not_found,
    required,
    unsupported,
)
from gpuflow.kubernetes.admission.pod import Body, read_integer, read_text
from gpuflow.kubernetes.admission.volume_rules import ENV_FACTS, field_ref_faults, resource_ref_faults
from gpuflow.resources import read_map, read_maps

DEFAULT_GRACE: Final = 30
HANDLERS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
PORTS: Final = "must be between 1 and 65535, inclusive"
PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
VARIABLE: Final = "a valid environment variable name must consist only of printable ASCII characters other than '='"
SOURCES: Final = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
DEVICES: Final = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"


def variable_faults(listed: object, where: str) -> Iterator[FieldError]:
    """What is wrong with single variables."""
    for index, variable in enumerate(read_maps(listed, where)):
        field = f"{where}[{index}]"
        name = read_text(variable, "name", field)
        if not name:
            yield required(f"{field}.name")
        elif not _is_variable(name):
            yield invalid(f"{field}.name", name, VARIABLE)
        if variable.get("valueFrom") is not None:
            source = read_map(variable["valueFrom"], f"{field}.valueFrom")
            yield from _value_from(source, bool(variable.get("value")), f"{field}.valueFrom")


def _is_variable(name: str) -> bool:
    return name.isascii() and name.isprintable() and "=" not in name


def _value_from(source: Body, has_value: bool, where: str) -> Iterator[FieldError]:
    given = [kind for kind in SOURCES if source.get(kind) is not None]
    for kind in given:
        place = f"{where}.{kind}"
        ref = read_map(source[kind], place)
        if kind == "fieldRef":
            yield from field_ref_faults(ref, place, ENV_FACTS)
        elif kind == "resourceFieldRef":
            yield from resource_ref_faults(ref, place)
        elif kind in ("configMapKeyRef", "secretKeyRef"):
            yield from (required(f"{place}.{key}") for key in ("name", "key") if not read_text(ref, key, place))
    if not given:
        *most, last = (f"`{kind}`" for kind in SOURCES)
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
            yield invalid(f"{field}.prefix", prefix, VARIABLE)
        given = [kind for kind in ("configMapRef", "secretRef") if source.get(kind) is not None]
        for kind in given:
            if not read_text(read_map(source[kind], f"{field}.{kind}"), "name", f"{field}.{kind}"):
                yield required(f"{field}.{kind}.name")
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
        given = [kind for kind in HANDLERS if hook.get(kind) is not None]
        yield from (forbidden(f"{where}.{kind}", "may not specify more than 1 handler type") for kind in given[1:])
        if not given:
            yield required(where, "must specify a handler type")
        else:
            yield from _action(given[0], read_map(hook[given[0]], f"{where}.{given[0]}"), f"{where}.{given[0]}", grace)


def _action(kind: str, action: Body, where: str, grace: int) -> Iterator[FieldError]:
    if kind == "exec" and not action.get("command"):
        yield required(f"{where}.command")
    elif kind in ("httpGet", "tcpSocket") and not isinstance(action.get("port"), str):
        port = read_integer(action, "port", where) or 0
        if not 1 <= port <= 65535:
            yield invalid_number(f"{where}.port", port, PORTS)
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
                yield invalid_number(f"{field}.{key}", number, PORTS)
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
            yield invalid(f"{field}.name", name, DEVICES)
        if not read_text(device, "devicePath", field):
            yield required(f"{field}.devicePath")
