"""The sentences of the API server's refusals.

A 422 is a list of clauses `field: what is wrong`, a 403 is one sentence. Kubernetes prints several clauses of
one refusal in the random order of Go maps; here they are deduplicated and sorted.

Mirrors k8s.io/apimachinery/pkg/util/validation/field.Error.ErrorBody, Kubernetes v1.36.3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar

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
