"""DeviceClasses, ResourceSlices and ResourceClaims, read from their manifests with the API server's defaults.

A DeviceTaintRule taints devices too; its gate is off by default.

Mirrors NodeMatches and taintPreventsAllocation in
k8s.io/dynamic-resource-allocation/structured/internal/incubating, and
k8s.io/dynamic-resource-allocation/resourceclaim.ToleratesTaint, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Annotated, Any, Final, NamedTuple, TypeVar

from msgspec import field
from msgspec.structs import force_setattr

from gpuflow.checker.dra.cel.parser import CelError, View, parse_semver
from gpuflow.kubernetes.admission.pod import read_flag, read_integer, read_object, read_text
from gpuflow.kubernetes.labels import BLOCKING_EFFECTS, Labels, Taint, Toleration, read_tolerations
from gpuflow.kubernetes.objects import At, Entries, Loose, NodeSelector, Object, read_as
from gpuflow.kubernetes.resources import BadField, read_map, read_maps, read_quantity, read_resource_list, read_texts
from gpuflow.quantity import Quantity

Body = Mapping[str, Any]
Attribute = tuple[str, bool | int | str]
"""The type of a value (`string`, `int`, `bool`, `version`) and the value."""

EXACT_COUNT: Final = "ExactCount"
ALL: Final = "All"
TYPES: Final[Mapping[str, type[bool | int | str]]] = {"int": int, "bool": bool, "string": str, "version": str}


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


Read = TypeVar("Read")


def _by_name(read: Callable[[object, str], Read]) -> Callable[[object, str], Entries[Read]]:
    """What reads a map by what reads its values."""
    return lambda value, where: Entries(
        {name: read(each, f"{where}[{name}]") for name, each in read_map(value, where).items()}
    )


def _read_attribute(value: object, where: str) -> Attribute:
    body = read_map(value, where)
    kind = next((kind for kind in TYPES if body.get(kind) is not None), "")
    given = body.get(kind, "")
    python = TYPES.get(kind, str)
    if not isinstance(given, python) or (python is int and isinstance(given, bool)):
        raise BadField(f"{where}.{kind}", f"{given!r} is not of type {kind}")
    # A number from YAML remembers its spelling; CEL compares types, so only the plain value goes on from here.
    return kind, python(given)


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


def _read_counters(value: object, where: str) -> Entries[Quantity]:
    owner = where.removesuffix(".counters")
    return _by_name(lambda each, path: _quantity(read_map(each, owner), "value", path) or Quantity.zero)(value, where)


class CounterSet(Object, frozen=True):
    """Counters that the devices of a pool share."""

    name: Annotated[str, At("{owner}.name")] = ""
    counters: Annotated[Entries[Quantity], _read_counters] = field(default_factory=Entries)


class CounterUse(Object, frozen=True):
    """What a device takes of such a set."""

    name: Annotated[str, At("{owner}.counterSet")] = field(default="", name="counterSet")
    counters: Annotated[Entries[Quantity], _read_counters] = field(default_factory=Entries)


class Reach(Object, frozen=True):
    """The nodes for which a slice or a device is there: one by name, all nodes, or those with certain labels."""

    node_name: str = ""
    all_nodes: bool = False
    node_selector: NodeSelector | None = None

    @property
    def is_set(self) -> bool:
        return bool(self.node_name) or self.all_nodes or self.node_selector is not None

    def matches(self, name: str, labels: Labels) -> bool:
        if self.node_name:
            return name == self.node_name
        return self.all_nodes or (self.node_selector is not None and self.node_selector.matches(name, labels))


class Device(Reach, frozen=True, dict=True, gc=True):
    name: str = ""
    attributes: Annotated[Entries[Attribute], _by_name(_read_attribute)] = field(default_factory=Entries)
    capacity: Annotated[Entries[Capacity], _by_name(_read_capacity)] = field(default_factory=Entries)
    consumes: tuple[CounterUse, ...] = field(default=(), name="consumesCounters")
    taints: tuple[Taint, ...] = ()
    binding_conditions: tuple[str, ...] = ()
    allow_multiple_allocations: bool = False
    id: Loose = DeviceId("", "", "")
    """A `DeviceId`: the slice says it, never the manifest."""

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
        return View(self.id.driver, self.allow_multiple_allocations, attributes, capacity)

    def attribute(self, name: str) -> Attribute | None:
        """An attribute by its full name; one without a domain is of the driver's."""
        if name in self.attributes:
            return self.attributes[name]
        domain, slash, own = name.partition("/")
        return self.attributes.get(own) if slash and domain == self.id.driver else None

    def is_tainted_for(self, request: Request) -> bool:
        """Whether a taint keeps the request from the device."""
        return any(
            taint.effect in BLOCKING_EFFECTS
            and not any(
                each.tolerates(taint.key, taint.value, taint.effect, comparing=False) for each in request.tolerations
            )
            for taint in self.taints
        )


class SlicePool(Object, frozen=True):
    name: str = ""
    generation: int = 0
    resource_slice_count: int = 0


class SliceSpec(Reach, frozen=True):
    driver: str = ""
    pool: SlicePool = SlicePool()
    per_device_node_selection: bool = False
    shared_counters: tuple[CounterSet, ...] = ()
    devices: tuple[Device, ...] = ()

    def __post_init__(self) -> None:
        for each in self.devices:
            force_setattr(each, "id", DeviceId(self.driver, self.pool.name, each.name))


class SliceMetadata(Object, frozen=True):
    name: str = ""


class Slice(Object, frozen=True):
    metadata: SliceMetadata = SliceMetadata()
    spec: SliceSpec = SliceSpec()

    @property
    def pool_id(self) -> tuple[str, str]:
        return self.spec.driver, self.spec.pool.name


def read_slice(manifest: object) -> Slice:
    return read_as(Slice, read_object(manifest, "ResourceSlice"), "")  # type: ignore[no-any-return]  # what was asked for


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
    def base_name(self) -> str:
        return self.name if self.parent is None else self.parent

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
