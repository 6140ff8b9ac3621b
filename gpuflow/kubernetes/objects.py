"""Nodes, pods, quotas and limit ranges as their manifests have them.

Objects of Kubernetes decoded by their types.

A class lists the fields of a kind with what each holds. `decode` makes it of a manifest: msgspec does it where the
manifest is as Kubernetes writes it; anything else goes through `_reader`, which knows what the API server forgives
(null for a field that is not there, an empty word for the default) and refuses the rest with the path of the value.
Both give the same object; only `_reader` decides what is refused, and in which words.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, cached_property, lru_cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from msgspec import Struct, ValidationError, convert, field
from msgspec.structs import fields

from gpuflow.kubernetes.labels import Labels, Requirement, read_labels
from gpuflow.kubernetes.resources import (
    BadField,
    aggregate,
    combine_limits,
    combine_requests,
    read_map,
    read_maps,
    read_quantity,
    read_resource_list,
)
from gpuflow.quantity import Quantity

T = TypeVar("T")


class Object(Struct, rename="camel", frozen=True, gc=False):
    """Fields in Python's spelling. A field that is not listed is not looked at."""


class Closed(Object, frozen=True):
    """One whose every word decides: a field that is not listed is GF407."""


class At(NamedTuple):
    """How a path is written where it is not `.field` and `[0]`: of a field, and of the items of a list.

    A field may use `{here}` (the path of its object), `{list}` (of the list in which that stands), `{owner}` (of the
    object that has the list) and `{index}`; items `{index}` and `{name}`.
    """

    field: str = ""
    item: str = "[{index}]"


class Amounts(dict[str, Quantity]):
    """A map of amounts. Equal ones are read once and shared: nobody changes them, and caches find them by identity."""

    __hash__ = object.__hash__  # type: ignore[assignment]

    @cached_property
    def negative(self) -> str | None:
        """The first that is less than nothing."""
        return next((name for name, amount in self.items() if amount.nano < 0), None)


class Entries(dict[str, T]):
    """A map whose values have a reader of their own, noted beside it: msgspec would take other ones than the reader."""


class NotNegative(NamedTuple):
    """That an amount is zero or more. Its class looks too: msgspec cannot."""

    because: str


class Place(NamedTuple):
    """Where a value stands: its path, and for an item of a list the path of the list and its number there."""

    path: str
    list: str = ""
    number: int = 0


Loose = Any
"""A value that no reader looks at, or only when another field says so: it is never refused."""
Tree = Annotated[Any, "any"]
"""The same, and a snapshot keeps all of it."""
LabelMap = Annotated[dict[str, str], read_labels]
AnyMap = Annotated[dict[Any, Any], read_map]
Reader = Callable[[Any, Place], Any]


def decode(wanted: type[T], body: object, where: str) -> T:
    """The manifest, or a part of it, as its type. `BadField` names what cannot be read."""
    if isinstance(body, dict):  # another Mapping would be asked for attributes
        try:
            return convert(body, wanted, dec_hook=_hook)
        except (ValidationError, ValueError, RecursionError):  # the first is none of the second before msgspec 0.21
            pass  # what exactly, and whether at all, says the reader
    return read_as(wanted, body, where)  # type: ignore[no-any-return]  # what was asked for


def read_as(wanted: Any, value: object, where: str) -> Any:
    """One value that is read only when another field says so; the field itself is `Loose`."""
    return _reader(wanted)(value, Place(where))


def _hook(wanted: type, value: object) -> Any:
    """The types that msgspec does not know."""
    if wanted is Quantity:
        return read_quantity(value)
    if wanted is not Amounts:  # Entries
        raise ValueError("the reader reads it")
    if type(value) is dict and {*map(type, value.values())} <= {str}:  # True would be found for 1
        return _read_amounts(tuple(value.items()))
    return Amounts(read_resource_list(value))


@lru_cache(maxsize=65536)
def _read_amounts(entries: tuple[tuple[str, str], ...]) -> Amounts:
    return Amounts(read_resource_list(dict(entries)))


@cache
def _reader(wanted: Any, *notes: Any) -> Reader:
    """What reads a value of a type. Absent and null are the same: the default."""
    origin, args = get_origin(wanted), get_args(wanted)
    if origin is Annotated:
        return _reader(args[0], *args[1:], *notes)
    if origin in (Union, UnionType):  # `X | None`
        inner = _reader(next(each for each in args if each is not NoneType), *notes)
        return lambda value, where: None if value is None else inner(value, where)
    if origin is Literal:
        return _choice(args)
    if origin in (tuple, frozenset):
        return _list_reader(origin, args[0], _note(notes, At, At()))
    if origin in (dict, Entries):
        read_entries = next(each for each in notes if callable(each))
        return lambda value, where: read_entries(value, where.path)
    if wanted is Amounts:
        return lambda value, where: Amounts(read_resource_list(value, where.path))
    if _is_struct(wanted):
        return _struct(wanted)
    if wanted is Quantity:
        return _quantity(_note(notes, NotNegative, None))
    return _scalar(wanted, _MUST[wanted]) if wanted in _MUST else lambda value, where: value


def _is_struct(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, Struct)


def _note(notes: tuple[Any, ...], kind: type[Any], default: Any) -> Any:
    return next((each for each in notes if isinstance(each, kind)), default)


_MUST = {str: "must be a string", int: "must be a whole number", bool: "must be true or false"}


def _scalar(python: type, must: str) -> Reader:
    def read(value: Any, where: Place) -> Any:
        if not isinstance(value, python) or (python is int and isinstance(value, bool)):
            raise BadField(where.path, f"{must}, not {value!r}")
        return value

    return read


def _quantity(least: NotNegative | None) -> Reader:
    def read(value: Any, where: Place) -> Quantity:
        try:
            found = read_quantity(value)
        except ValueError as error:
            raise BadField(where.path, f"{value!r}: {error}") from None
        if least is not None and found.nano < 0:
            raise BadField(where.path, f"{found} is negative; {least.because}")
        return found

    return read


def _choice(words: tuple[str, ...]) -> Reader:
    read_text = _scalar(str, _MUST[str])

    def read(value: Any, where: Place) -> Any:
        if read_text(value, where) not in words:
            raise BadField(where.path, f"{value!r} is not one of {', '.join(word for word in words if word)}")
        return value

    return read


def _list_reader(make: Callable[[Any], Any], inner: Any, at: At) -> Reader:
    read, of_maps = _reader(inner), _is_struct(inner)

    def items(value: Any, where: Place) -> Any:
        if not isinstance(value, list | tuple):
            raise BadField(where.path, f"must be a list, not {value!r}")
        held = read_maps(value, where.path) if of_maps else value  # all are maps before the first is read
        return make([read(item, Place(where.path + _item(at, n, item), where.path, n)) for n, item in enumerate(held)])

    return items


def _item(at: At, index: int, item: Any) -> str:
    return at.item.format(index=index, name=(item.get("name") or "") if isinstance(item, Mapping) else "")


def _struct(wanted: type[Struct]) -> Reader:
    hints = get_type_hints(wanted, include_extras=True)
    parts = []
    for each in fields(wanted):
        hint = hints[each.name]
        notes = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        spelled, is_choice = _note(notes, At, At()).field, get_origin(hint) is Literal
        parts.append((each.name, each.encode_name, spelled, is_choice, _reader(hint)))

    def read(value: Any, where: Place) -> Any:
        body, given = read_map(value, where.path), {}
        for name, key, spelled, is_choice, reader in parts:
            part = body.get(key)
            if part is None or (is_choice and part == ""):
                continue
            path = f"{where.path}.{key}" if where.path else key
            if spelled:
                owner = where.list.rpartition(".")[0]
                path = spelled.format(here=where.path, list=where.list, owner=owner, index=where.number)
            given[name] = reader(part, Place(path))
        return wanted(**given)

    return read


NO_AMOUNTS = Amounts()
NAME_FIELD = "metadata.name"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


class NodeSelectorTerm(Object, frozen=True):
    """One alternative of a node affinity: all of its expressions and fields must hold."""

    expressions: tuple[Requirement, ...] = field(default=(), name="matchExpressions")
    fields: tuple[Requirement, ...] = field(default=(), name="matchFields")

    @property
    def is_possible(self) -> bool:
        """Whether any node can match: an empty term, or one that cannot be read, matches none."""
        readable = all(each.fault is None for each in self.expressions) and all(
            each.operator in ("In", "NotIn") and len(each.values) == 1 for each in self.fields
        )
        return readable and bool(self.expressions or self.fields)

    def matches(self, name: str, labels: Labels) -> bool:
        return all(each.matches(labels) for each in self.expressions) and all(
            ((name if each.key == NAME_FIELD else "") == each.values[0]) == (each.operator == "In")
            for each in self.fields
        )

    @property
    def node_names(self) -> frozenset[str] | None:
        """The nodes that it allows by name; `None` when it names none and so leaves all open."""
        lists = [frozenset(each.values) for each in self.fields if (each.key, each.operator) == (NAME_FIELD, "In")]
        return frozenset.intersection(*lists) if lists else None


class NodeSelector(Object, frozen=True):
    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()

    def matches(self, name: str, labels: Labels) -> bool:
        return any(term.is_possible and term.matches(name, labels) for term in self.node_selector_terms)


class NodeMetadata(Object, frozen=True):
    name: str = ""
    labels: LabelMap = {}
    annotations: AnyMap = {}


class NodeTaint(Object, frozen=True):
    effect: str = ""
    key: Loose = None
    value: Loose = None


class NodeSpec(Object, frozen=True):
    taints: tuple[NodeTaint, ...] = ()
    unschedulable: bool | None = None


class NodeStatus(Object, frozen=True):
    allocatable: Amounts | None = None
    capacity: Loose = None
    declared_features: frozenset[str] = frozenset()


class Node(Object, frozen=True):
    metadata: NodeMetadata = NodeMetadata()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


class Resources(Object, frozen=True):
    requests: Amounts = NO_AMOUNTS
    limits: Amounts = NO_AMOUNTS


class Container(Object, frozen=True):
    name: str = ""
    restart_policy: str = ""
    resources: Resources = Resources()
    ports: Loose = None

    @property
    def is_sidecar(self) -> bool:
        return self.restart_policy == "Always"


class ContainerPort(Object, frozen=True):
    host_port: int = 0
    container_port: Loose = None
    host_ip: str = field(default="", name="hostIP")
    protocol: str = ""


class PodAffinityTerm(Object, frozen=True):
    topology_key: str = ""
    label_selector: Loose = None
    match_label_keys: Loose = None
    mismatch_label_keys: Loose = None
    namespaces: Loose = None
    namespace_selector: Loose = None


class PodAffinity(Object, frozen=True):
    required: tuple[PodAffinityTerm, ...] = field(default=(), name=REQUIRED)


class Affinity(Object, frozen=True):
    pod_affinity: PodAffinity = PodAffinity()
    pod_anti_affinity: PodAffinity = PodAffinity()


class PodContainers(Object, frozen=True):
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    overhead: Amounts = NO_AMOUNTS


class PodTemplate(PodContainers, frozen=True):
    """The resources of a pod; `resources` are those of the pod as a whole."""

    resources: Resources | None = None
    runtime_class_name: str = ""

    def requests(self) -> dict[str, Quantity]:
        total = aggregate(
            (each.resources.requests for each in self.containers),
            ((each.resources.requests, each.is_sidecar) for each in self.init_containers),
        )
        return combine_requests(total, self.resources.requests if self.resources else {}, self.overhead)

    def limits(self) -> dict[str, Quantity]:
        total = aggregate(
            (each.resources.limits for each in self.containers),
            ((each.resources.limits, each.is_sidecar) for each in self.init_containers),
        )
        return combine_limits(total, self.resources.limits if self.resources else {}, self.overhead)


class PodParts(PodContainers, frozen=True):
    """What is read of every pod, even of one that is over."""

    affinity: Affinity = Affinity()


class BoundPodSpec(PodParts, frozen=True):
    node_name: str = ""
    host_network: bool | None = None
    resources: Resources | None = None
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    runtime_class_name: str = ""
    active_deadline_seconds: int | None = None
    volumes: Loose = None


class OwnerReference(Object, frozen=True):
    kind: Loose = None


class PodMetadata(Object, frozen=True):
    name: str = ""
    generate_name: str = ""
    namespace: str = ""
    labels: LabelMap = {}
    annotations: AnyMap = {}
    deletion_timestamp: Loose = None
    owner_references: tuple[OwnerReference, ...] = ()


class PodStatus(Object, frozen=True):
    phase: str = ""
    container_statuses: Loose = None
    init_container_statuses: Loose = None
    resources: Loose = None


class BoundPod(Object, frozen=True):
    metadata: PodMetadata = PodMetadata()
    spec: BoundPodSpec = BoundPodSpec()
    status: PodStatus = PodStatus()


class ScopeRequirement(Closed, frozen=True):
    scope_name: Loose = None
    operator: Loose = None
    values: Annotated[frozenset[str], At("{list} values")] = frozenset()


class ScopeSelector(Closed, frozen=True):
    match_expressions: Annotated[tuple[ScopeRequirement, ...], At("{here}")] = ()


class ResourceQuotaSpec(Closed, frozen=True):
    hard: Amounts = NO_AMOUNTS
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector = ScopeSelector()


class ResourceQuotaStatus(Closed, frozen=True):
    hard: Amounts = NO_AMOUNTS
    used: Amounts = NO_AMOUNTS


class LimitRangeItem(Closed, frozen=True):
    type: str = ""
    max: Amounts = NO_AMOUNTS
    min: Amounts = NO_AMOUNTS
    default: Amounts = NO_AMOUNTS
    default_request: Amounts = NO_AMOUNTS
    max_limit_request_ratio: Amounts = NO_AMOUNTS


class LimitRangeSpec(Closed, frozen=True):
    limits: tuple[LimitRangeItem, ...] = ()
