"""The sentences of the API server's refusals.

A 422 is a list of clauses `field: what is wrong`, a 403 is one sentence. Kubernetes prints several clauses of
one refusal in the random order of Go maps; here they are deduplicated and sorted.

Mirrors k8s.io/apimachinery/pkg/util/validation/field.Error.ErrorBody, Kubernetes v1.36.3.

Which names Kubernetes accepts, and its words for those it does not.

Every function gives the messages for one name, none when the name is good. Names repeat, so answers are kept.

Mirrors k8s.io/apimachinery/pkg/util/validation.IsDNS1123Label and its neighbors, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Protocol, TypeVar

from gpuflow.kubernetes.resources import is_hugepages

INVALID: Final = "Invalid value"
REQUIRED: Final = "Required value"
SHORT_ESCAPES: Final = {
    '"': '\\"',
    "\\": "\\\\",
    "\a": r"\a",
    "\b": r"\b",
    "\f": r"\f",
    "\n": r"\n",
    "\r": r"\r",
    "\t": r"\t",
    "\v": r"\v",
}


class Sentence(Protocol):
    """A reason that can be read out."""

    def sentence(self) -> str: ...


@dataclass(frozen=True, slots=True)
class FieldError:
    """One fault of a pod's manifest. Mirrors k8s.io/apimachinery/pkg/util/validation/field.Error."""

    kind: str
    field: str
    value: str | None = None
    """As it is printed: text in quotes, numbers without."""
    detail: str = ""

    def sentence(self) -> str:
        return ": ".join(filter(None, (self.field, self.kind, self.value, self.detail)))


@dataclass(frozen=True, slots=True)
class LimitRequired(FieldError):
    """A resource that cannot be overcommitted has a request and no limit."""


@dataclass(frozen=True, slots=True)
class RequestAboveLimit(FieldError):
    """A request is above the limit of the same resource."""

    resource: str = ""


def invalid(field: str, value: str, detail: str) -> FieldError:
    return FieldError(INVALID, field, quote_as_go(value), detail)


def invalid_number(field: str, value: int, detail: str) -> FieldError:
    return FieldError(INVALID, field, str(value), detail)


def invalid_list(field: str, values: Iterable[str], detail: str) -> FieldError:
    return FieldError(INVALID, field, f"[{','.join(map(quote_as_go, values))}]", detail)


def too_long(field: str, most: int) -> FieldError:
    return FieldError("Too long", field, None, f"may not be more than {most} bytes")


def required(field: str, detail: str = "") -> FieldError:
    return FieldError(REQUIRED, field, None, detail)


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError("Forbidden", field, None, detail)


def duplicate(field: str, value: str) -> FieldError:
    return FieldError("Duplicate value", field, quote_as_go(value))


def not_found(field: str, value: str, detail: str = "") -> FieldError:
    return FieldError("Not found", field, quote_as_go(value), detail)


def unsupported(field: str, value: str, choices: Iterable[str]) -> FieldError:
    listed = ", ".join(quote_as_go(choice) for choice in choices)
    return FieldError("Unsupported value", field, quote_as_go(value), f"supported values: {listed}")


def quote_as_go(text: str) -> str:
    """The text in double quotes, escaped as Go's `%q` does."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escape, text))}"'


def _escape(character: str) -> str:
    if character in SHORT_ESCAPES:
        return SHORT_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


Reason = TypeVar("Reason", bound=Sentence)


def sort_reasons(reasons: Iterable[Reason]) -> tuple[Reason, ...]:
    """Each sentence once, sorted."""
    by_sentence = {reason.sentence(): reason for reason in reasons}
    return tuple(by_sentence[sentence] for sentence in sorted(by_sentence))


def sentences(reasons: Iterable[Sentence]) -> tuple[str, ...]:
    return tuple(reason.sentence() for reason in reasons)


def join_clauses(clauses: tuple[str, ...]) -> str:
    return clauses[0] if len(clauses) == 1 else f"[{', '.join(clauses)}]"


LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
SUBDOMAIN: Final = rf"{LABEL}(\.{LABEL})*"
_LABEL, _SUBDOMAIN = re.compile(LABEL), re.compile(SUBDOMAIN)
LABEL_KEY: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

ALPHANUMERIC_ENDS: Final = "and must start and end with an alphanumeric character"
LABEL_RULE: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
    f"{ALPHANUMERIC_ENDS} (e.g. 'my-name',  or '123-abc', regex used for validation is '{LABEL}')"
)
SUBDOMAIN_RULE: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
    f"{ALPHANUMERIC_ENDS} (e.g. 'example.com', regex used for validation is '{SUBDOMAIN}')"
)
KEY_RULE: Final = (
    f"must consist of alphanumeric characters, '-', '_' or '.', {ALPHANUMERIC_ENDS} "
    f"(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '{LABEL_KEY}')"
)
VALUE_RULE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
    f"{ALPHANUMERIC_ENDS} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({LABEL_KEY})?')"
)

CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
COUNTED_RESOURCES: Final = frozenset(
    {
        "pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
        "persistentvolumeclaims", "services.nodeports", "services.loadbalancers",
    }
)  # fmt: skip
STANDARD_RESOURCES: Final = (
    CONTAINER_RESOURCES
    | COUNTED_RESOURCES
    | {f"requests.{name}" for name in CONTAINER_RESOURCES}
    | {f"limits.{name}" for name in CONTAINER_RESOURCES}
    | {"storage", "requests.storage"}
)


@lru_cache(maxsize=4096)
def dns_label_faults(name: str) -> tuple[str, ...]:
    faults = ["must be no more than 63 characters"] if _bytes(name) > 63 else []
    if not _LABEL.fullmatch(name):
        faults.append("must not contain dots" if _SUBDOMAIN.fullmatch(name) else LABEL_RULE)
    return tuple(faults)


@lru_cache(maxsize=4096)
def dns_subdomain_faults(name: str, unit: str = "characters") -> tuple[str, ...]:
    faults = [f"must be no more than 253 {unit}"] if _bytes(name) > 253 else []
    if not _SUBDOMAIN.fullmatch(name):
        faults.append(SUBDOMAIN_RULE)
    return tuple(faults)


@lru_cache(maxsize=4096)
def label_value_faults(value: str) -> tuple[str, ...]:
    faults = ["must be no more than 63 bytes"] if _bytes(value) > 63 else []
    if value and not re.fullmatch(LABEL_KEY, value):
        faults.append(VALUE_RULE)
    return tuple(faults)


@lru_cache(maxsize=4096)
def qualified_name_faults(name: str) -> tuple[str, ...]:
    """Label keys, annotation keys and resource names: `name` or `example.com/name`."""
    prefix, slash, rest = name.rpartition("/")
    if "/" in prefix:
        return (
            f"a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    faults = []
    if slash and not prefix:
        faults.append("prefix part must be non-empty")
    elif slash:
        faults.extend(f"prefix part {fault}" for fault in dns_subdomain_faults(prefix, "bytes"))
    if not rest:
        faults.append("name part must be non-empty")
    elif _bytes(rest) > 63:
        faults.append("name part must be no more than 63 bytes")
    if not re.fullmatch(LABEL_KEY, rest):
        faults.append(f"name part {KEY_RULE}")
    return tuple(faults)


def is_native(resource: str) -> bool:
    """Kubernetes' own resources; anything else with a slash belongs to a vendor."""
    return "/" not in resource or "kubernetes.io/" in resource


@lru_cache(maxsize=4096)
def is_extended(resource: str) -> bool:
    """A vendor's resource that a container may ask for, such as `nvidia.com/gpu`."""
    if is_native(resource) or resource.startswith("requests."):
        return False
    return not qualified_name_faults(f"requests.{resource}")


@lru_cache(maxsize=4096)
def is_counted(resource: str) -> bool:
    """Whether only whole numbers of it exist."""
    return resource in COUNTED_RESOURCES or is_extended(resource)


@lru_cache(maxsize=4096)
def container_resource_faults(resource: str) -> tuple[str, ...]:
    faults = resource_faults(resource)
    if "/" not in resource:
        if resource not in CONTAINER_RESOURCES and not is_hugepages(resource):
            return (*faults, "must be a standard resource for containers")
    elif not is_native(resource) and not is_extended(resource):
        return (*faults, "doesn't follow extended resource name standard")
    return faults


def resource_faults(resource: str) -> tuple[str, ...]:
    faults = qualified_name_faults(resource)
    if faults or "/" in resource or resource in STANDARD_RESOURCES:
        return faults
    if is_hugepages(resource) or resource.startswith("requests.hugepages-"):
        return ()
    return ("must be a standard resource type or fully qualified",)


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))
