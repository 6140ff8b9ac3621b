"""DeviceClasses, ResourceSlices and ResourceClaims, read from their manifests with the API server's defaults."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, Final, NamedTuple

from gpuflow.checker.dra.cel import CelError, View
from gpuflow.checker.dra.cel.values import parse_semver
from gpuflow.checker.dra.eligibility import read_node_selector, read_taints
from gpuflow.kubernetes.admission.pod import read_flag, read_integer, read_object, read_text
from gpuflow.kubernetes.labels import Taint, Toleration, read_tolerations
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_quantity, read_resource_list, read_texts
from gpuflow.quantity import Quantity

Body = Mapping[str, Any]
Counters = Mapping[str, Quantity]
Attribute = tuple[str, bool | int | str]
"""The type of a value (`string`, `int`, `bool`, `version`) and the value."""

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
PYTHON_TYPES: Final[Mapping[str, type[bool | int | str]]] = {"int": int, "bool": bool, "string": str, "version": str}
TYPES: Final = tuple(PYTHON_TYPES)


class DeviceId(NamedTuple):
    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Policy(NamedTuple):
    """Which amounts of a capacity may be asked for."""

    default: Quantity | None
    values: tuple[Quantity, ...]
    least: Quantity | None
    most: Quantity | None
    step: Quantity | None
    has_range: bool


class Capacity(NamedTuple):
    value: Quantity
    policy: Policy | None


class Device:
    def __init__(self, driver: str, pool: str, body: Body, where: str) -> None:
        self.name = read_text(body, "name", where) or ""
        self.id = DeviceId(driver, pool, self.name)
        self.attributes = {
            name: _read_attribute(value, f"{where}.attributes[{name}]")
            for name, value in read_map(body.get("attributes"), f"{where}.attributes").items()
        }
        self.capacity = {
            name: _read_capacity(value, f"{where}.capacity[{name}]")
            for name, value in read_map(body.get("capacity"), f"{where}.capacity").items()
        }
        self.consumes = tuple(
            (read_text(each, "counterSet", where) or "", _read_counters(each, f"{where}.consumesCounters[{index}]"))
            for index, each in enumerate(read_maps(body.get("consumesCounters"), f"{where}.consumesCounters"))
        )
        self.nodes = read_node_selector(body, where)
        self.taints: tuple[Taint, ...] = read_taints(body, where)
        self.has_binding_conditions = bool(read_texts(body.get("bindingConditions"), f"{where}.bindingConditions"))
        self.allows_multiple = read_flag(body, "allowMultipleAllocations", where) is True

    @cached_property
    def view(self) -> View:
        """What selectors see; `CelError` where an attribute has a value that the scheduler cannot read."""
        attributes: dict[str, dict[str, Any]] = {}
        for name, attribute in self.attributes.items():
            domain, own = _qualified_name(name, self.id.driver)
            attributes.setdefault(domain, {})[own] = _value(name, attribute)
        capacity: dict[str, dict[str, Quantity]] = {}
        for name, amount in self.capacity.items():
            domain, own = _qualified_name(name, self.id.driver)
            capacity.setdefault(domain, {})[own] = amount.value
        return View(self.id.driver, self.allows_multiple, attributes, capacity)

    def attribute(self, name: str) -> Attribute | None:
        """An attribute by its full name; one without a domain is of the driver's."""
        if name in self.attributes:
            return self.attributes[name]
        domain, slash, own = name.partition("/")
        return self.attributes.get(own) if slash and domain == self.id.driver else None


class Slice:
    def __init__(self, manifest: object) -> None:
        body = read_object(manifest, "ResourceSlice")
        spec = read_map(body.get("spec"), "spec")
        pool = read_map(spec.get("pool"), "spec.pool")
        self.name = read_text(read_map(body.get("metadata"), "metadata"), "name", "metadata") or ""
        self.driver = read_text(spec, "driver", "spec") or ""
        self.pool = read_text(pool, "name", "spec.pool") or ""
        self.generation = read_integer(pool, "generation", "spec.pool") or 0
        self.count = read_integer(pool, "resourceSliceCount", "spec.pool") or 0
        self.nodes = read_node_selector(spec, "spec")
        self.is_per_device = read_flag(spec, "perDeviceNodeSelection", "spec") is True
        self.counters = tuple(
            (read_text(each, "name", "spec") or "", _read_counters(each, f"spec.sharedCounters[{index}]"))
            for index, each in enumerate(read_maps(spec.get("sharedCounters"), "spec.sharedCounters"))
        )
        self.devices = tuple(
            Device(self.driver, self.pool, each, f"spec.devices[{index}]")
            for index, each in enumerate(read_maps(spec.get("devices"), "spec.devices"))
        )


class DeviceClass(NamedTuple):
    name: str
    selectors: tuple[str, ...]
    extended_resource: str | None
    created: str

    @property
    def implicit_resource(self) -> str:
        """The extended resource by which each class can be asked for."""
        return f"deviceclass.resource.kubernetes.io/{self.name}"


class Request(NamedTuple):
    """A request, or one of the alternatives of a request (`parent` names it)."""

    name: str
    parent: str | None
    device_class: str
    selectors: tuple[str, ...]
    mode: str
    devices: int
    """How many, where the mode says an exact number."""
    has_admin_access: bool
    tolerations: tuple[Toleration, ...]
    capacity: Mapping[str, Quantity] | None

    @property
    def full_name(self) -> str:
        return self.name if self.parent is None else f"{self.parent}/{self.name}"


class Constraint(NamedTuple):
    requests: frozenset[str]
    attribute: str
    is_distinct: bool
    """Whether the values must differ; else they must be the same."""


class Claim(NamedTuple):
    """What a ResourceClaim asks for: for each request its alternatives, of which there is often one."""

    name: str
    requests: tuple[tuple[Request, ...], ...]
    constraints: tuple[Constraint, ...]

    @property
    def admin_requests(self) -> frozenset[str]:
        """The requests for administrators, who use devices beside those that hold them."""
        return frozenset(each.full_name for some in self.requests for each in some if each.has_admin_access)


def read_device_class(manifest: object) -> DeviceClass:
    body = read_object(manifest, "DeviceClass")
    spec, metadata = read_map(body.get("spec"), "spec"), read_map(body.get("metadata"), "metadata")
    return DeviceClass(
        read_text(metadata, "name", "metadata") or "",
        _read_selectors(spec, "spec"),
        read_text(spec, "extendedResourceName", "spec"),
        str(metadata.get("creationTimestamp") or ""),
    )


def read_claim(name: str, spec: object, where: str = "spec") -> Claim:
    """A claim from its spec, or from that of a template."""
    devices = read_map(read_map(spec, where).get("devices"), f"{where}.devices")
    return Claim(
        name,
        tuple(
            _read_request(each, f"{where}.devices.requests[{index}]")
            for index, each in enumerate(read_maps(devices.get("requests"), f"{where}.devices.requests"))
        ),
        tuple(
            _read_constraint(each, f"{where}.devices.constraints[{index}]")
            for index, each in enumerate(read_maps(devices.get("constraints"), f"{where}.devices.constraints"))
        ),
    )


def _read_request(body: Body, where: str) -> tuple[Request, ...]:
    name = read_text(body, "name", where) or ""
    alternatives = read_maps(body.get("firstAvailable"), f"{where}.firstAvailable")
    if not alternatives:
        return (_read_alternative(name, None, read_map(body.get("exactly"), f"{where}.exactly"), f"{where}.exactly"),)
    return tuple(
        _read_alternative(read_text(each, "name", where) or "", name, each, f"{where}.firstAvailable[{index}]")
        for index, each in enumerate(alternatives)
    )


def _read_alternative(name: str, parent: str | None, body: Body, where: str) -> Request:
    mode = read_text(body, "allocationMode", where) or EXACT_COUNT
    capacity = body.get("capacity")
    if capacity is not None:
        capacity = read_map(capacity, f"{where}.capacity").get("requests")
    return Request(
        name,
        parent,
        read_text(body, "deviceClassName", where) or "",
        _read_selectors(body, where),
        mode,
        (read_integer(body, "count", where) or 1) if mode == EXACT_COUNT else 0,
        parent is None and read_flag(body, "adminAccess", where) is True,
        read_tolerations(body.get("tolerations"), f"{where}.tolerations"),
        None if capacity is None else read_resource_list(capacity, f"{where}.capacity.requests"),
    )


def _read_constraint(body: Body, where: str) -> Constraint:
    same, distinct = read_text(body, "matchAttribute", where), read_text(body, "distinctAttribute", where)
    if same is None and distinct is None:
        raise BadField(where, "an empty constraint")
    return Constraint(
        frozenset(read_texts(body.get("requests"), f"{where}.requests")), same or distinct or "", same is None
    )


def _read_selectors(body: Body, where: str) -> tuple[str, ...]:
    return tuple(
        read_text(read_map(each.get("cel"), f"{where}.selectors[{index}].cel"), "expression", where) or ""
        for index, each in enumerate(read_maps(body.get("selectors"), f"{where}.selectors"))
    )


def _read_attribute(value: object, where: str) -> Attribute:
    body = read_map(value, where)
    kind = next((kind for kind in TYPES if body.get(kind) is not None), "")
    given = body.get(kind, "")
    python = PYTHON_TYPES.get(kind, str)
    if not isinstance(given, python) or (python is int and isinstance(given, bool)):
        raise BadField(f"{where}.{kind}", f"{given!r} is not of type {kind}")
    # A number from YAML remembers its spelling; CEL compares types, so only the plain value goes on from here.
    return kind, python(given)


def _value(name: str, attribute: Attribute) -> Any:
    kind, value = attribute
    if kind == "version":
        try:
            return parse_semver(str(value))
        except ValueError as error:
            raise CelError(f"attribute {name}: {error}") from None
    if not kind:
        raise CelError(f"attribute {name}: unsupported attribute value")
    return value


def _qualified_name(name: str, driver: str) -> tuple[str, str]:
    domain, slash, own = name.partition("/")
    return (domain, own) if slash else (driver, name)


def _read_capacity(value: object, where: str) -> Capacity:
    body = read_map(value, where)
    policy = None
    if body.get("requestPolicy") is not None:
        policy = _read_policy(read_map(body["requestPolicy"], f"{where}.requestPolicy"), f"{where}.requestPolicy")
    return Capacity(_quantity(body, "value", where) or Quantity.zero, policy)


def _read_policy(body: Body, where: str) -> Policy:
    bounds = read_map(body.get("validRange"), f"{where}.validRange")
    values = body.get("validValues") or []
    least, most, step = (_quantity(bounds, field, f"{where}.validRange") for field in ("min", "max", "step"))
    return Policy(
        _quantity(body, "default", where),
        tuple(_quantity({"value": each}, "value", f"{where}.validValues") or Quantity.zero for each in values),
        least,
        most,
        step,
        body.get("validRange") is not None,
    )


def _quantity(body: Body, field: str, where: str) -> Quantity | None:
    if body.get(field) is None:
        return None
    try:
        return read_quantity(body[field])
    except ValueError as error:
        raise BadField(f"{where}.{field}", str(error)) from None


def _read_counters(body: Body, where: str) -> dict[str, Quantity]:
    found = read_map(body.get("counters"), f"{where}.counters")
    return {
        name: _quantity(read_map(value, where), "value", f"{where}.counters[{name}]") or Quantity.zero
        for name, value in found.items()
    }
