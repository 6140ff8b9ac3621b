"""The sentences of the API server's refusals.

A 422 is a list of clauses `field: what is wrong`, a 403 is one sentence. Kubernetes prints several clauses of
one refusal in the random order of Go maps; here they are deduplicated and sorted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

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


def invalid(field: str, value: str, detail: str) -> str:
    return f"{field}: Invalid value: {quoted(value)}: {detail}"


def invalid_number(field: str, value: int, detail: str) -> str:
    return f"{field}: Invalid value: {value}: {detail}"


def required(field: str, detail: str = "") -> str:
    return f"{field}: Required value: {detail}" if detail else f"{field}: Required value"


def forbidden(field: str, detail: str) -> str:
    return f"{field}: Forbidden: {detail}"


def duplicate(field: str, value: str) -> str:
    return f"{field}: Duplicate value: {quoted(value)}"


def not_found(field: str, value: str, detail: str = "") -> str:
    return f"{field}: Not found: {quoted(value)}" + (f": {detail}" if detail else "")


def unsupported(field: str, value: str, choices: Iterable[str]) -> str:
    listed = ", ".join(quoted(choice) for choice in choices)
    return f"{field}: Unsupported value: {quoted(value)}: supported values: {listed}"


def quoted(text: str) -> str:
    """The text in double quotes, escaped as Go's `%q` does."""
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in SHORT_ESCAPES:
        return SHORT_ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def ordered(clauses: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(clauses)))


def join_clauses(clauses: tuple[str, ...]) -> str:
    return clauses[0] if len(clauses) == 1 else f"[{', '.join(clauses)}]"
