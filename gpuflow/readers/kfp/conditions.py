"""Conditions of tasks: the part of CEL that kfp writes, with inputs that may not be known.

`inputs.parameter_values['x'] == 'heads'`, `int(inputs.parameter_values['n']) > 5`, `!(…) && (…)`. A condition that asks
for more, or that Kubeflow could not evaluate, is not decided here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gpuflow.core.operator_parser import Parser, Token
from gpuflow.formats.kfp import as_driver_reads
from gpuflow.readers.kfp.values import KnownValue, NotJson, OpenValue, Value, Values, parse_json
from gpuflow.spec.expression import COMPARISONS

MOST_WORDS = 500
MOST_DEPTH = 40
_BINDING = {"||": 0, "&&": 1, **dict.fromkeys(COMPARISONS, 2)}
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d*(?:[eE][-+]?\d+)?|\d+)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<sign>==|!=|<=|>=|&&|\|\||[-<>!()\[\].,])|(?P<space>\Z))"""
)
_ESCAPE = re.compile(r"\\([\\'\"`?abfnrtv]|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|[xX][0-9a-fA-F]{2})")
_ESCAPED_TEXT = re.compile(rf"(?:[^\\]|{_ESCAPE.pattern})*", re.DOTALL)
_MEANINGS = dict(zip("\\'\"`?abfnrtv", "\\'\"`?\a\b\f\n\r\t\v", strict=True))
_CONSTANTS = {"true": True, "false": False, "null": None}


class _Undecided(Exception):
    """What this part of CEL cannot say."""


UNKNOWN: Any = object()
"""Stands for a value that is not known."""


@dataclass(frozen=True)
class Condition:
    """A condition with the inputs of its task."""

    holds: bool | None
    """None: only the run will tell."""
    by_item: bool
    """Each item of a loop has its own answer."""


def condition_of(text: str, inputs: Values) -> Condition:
    """Whether a task with this condition runs. A default that a run may change decides nothing."""
    reading = _Parser(inputs)
    try:
        found = reading.parse(as_driver_reads(text))
    except (_Undecided, ValueError, OverflowError, TypeError, KeyError, IndexError):
        found = UNKNOWN
        reading.asked += [value for name, value in inputs.items() if name in text]
    by_item = any(isinstance(value, OpenValue) and value.by_item for value in reading.asked)
    return Condition(found if isinstance(found, bool) else None, by_item)


class _Parser(Parser[Any]):
    """One condition, read and evaluated from left to right."""

    TOKEN, BINDING, DEEPEST = _TOKEN, _BINDING, MOST_DEPTH

    def __init__(self, inputs: Values) -> None:
        super().__init__()
        self.inputs = inputs
        self.asked: list[Value] = []

    def refusal(self, token: Token) -> _Undecided:
        return _Undecided()

    def scan(self, text: str) -> Iterator[Token]:
        for count, token in enumerate(super().scan(text)):
            if count == MOST_WORDS:
                raise _Undecided
            yield token

    def may_chain(self, sign: Token, left: Any) -> bool:
        return sign.text not in COMPARISONS

    def join(self, sign: Token, left: Any, right: Any, begin: int) -> Any:
        if sign.text in ("||", "&&"):
            return _combine(left, right, decided_by=sign.text == "||")
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        if _kind(left) != _kind(right):
            raise _Undecided  # Kubeflow's driver fails, or says that they differ
        return COMPARISONS[sign.text](left, right)

    def operand(self, least: int) -> Any:
        if self.take("!"):
            value = self.deeper(lambda: self.operand(least))
            if value is not UNKNOWN and not isinstance(value, bool):
                raise _Undecided
            return UNKNOWN if value is UNKNOWN else not value
        if self.take("-"):
            value = self.deeper(lambda: self.operand(least))
            return UNKNOWN if value is UNKNOWN else -value
        if self.take("("):
            value = self.inner()
            self.need(")")
            return value
        kind, word, _ = self.advance()
        if kind == "number":
            return float(word) if "." in word else int(word)
        if kind == "text":
            return _require_unquoted(word)
        if kind != "word":
            raise _Undecided
        if word == "inputs":
            return self._input()
        return self._call(word) if self.take("(") else _CONSTANTS[word]

    def _input(self) -> Any:
        for word in (".", "parameter_values", "["):
            self.need(word)
        kind, name, _ = self.advance()
        if kind != "text":
            raise _Undecided
        self.need("]")
        value = self.inputs[_require_unquoted(name)]
        self.asked.append(value)
        if isinstance(value, KnownValue) and not value.is_default:
            number = isinstance(value.value, int | float) and not isinstance(value.value, bool)
            return float(value.value) if number else value.value
        return UNKNOWN

    def _call(self, name: str) -> Any:
        value = self.inner()
        self.need(")")
        if value is UNKNOWN:
            return UNKNOWN
        if name == "int":
            return _integer(value)
        if name == "double":
            return float(value)
        if name == "bool" and value in ("true", "false", True, False):
            return value in ("true", True)
        if name == "string" and isinstance(value, str):
            return value
        if name == "parseJson" and isinstance(value, str) and parse_json(value) is not NotJson:
            return parse_json(value)
        raise _Undecided


def _combine(left: Any, right: Any, *, decided_by: bool) -> Any:
    """`||` is decided by one true, `&&` by one false."""
    if any(each is not UNKNOWN and not isinstance(each, bool) for each in (left, right)):
        raise _Undecided
    if left is decided_by or right is decided_by:
        return decided_by
    return UNKNOWN if UNKNOWN in (left, right) else not decided_by


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _integer(value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[-+]?\d{1,19}", value):
            raise _Undecided
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _Undecided
    return int(value)


def _require_unquoted(word: str) -> str:
    found = unquote(word)
    if found is None:
        raise _Undecided
    return found


def unquote(word: str) -> str | None:
    """The text of a literal of CEL; None where it has an escape that CEL does not know."""
    inner = word[1:-1]
    if "\\" not in inner:
        return inner
    if not _ESCAPED_TEXT.fullmatch(inner):
        return None
    return _ESCAPE.sub(lambda found: _MEANINGS.get(found[1]) or chr(int(found[1].lstrip("uUxX"), 16)), inner)
