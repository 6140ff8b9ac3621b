"""Conditions of tasks: the part of CEL that kfp writes, with inputs that may not be known.

`inputs.parameter_values['x'] == 'heads'`, `int(inputs.parameter_values['n']) > 5`, `!(…) && (…)`. A condition that asks
for more, or that Kubeflow could not evaluate, is not decided here.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from gpuflow.formats.kfp import as_driver_reads
from gpuflow.readers.kfp.values import KnownValue, NotJson, OpenValue, Value, Values, parse_json
from gpuflow.spec.expression import COMPARISONS

MOST_WORDS = 500
MOST_DEPTH = 40
_LEXEME = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d*(?:[eE][-+]?\d+)?|\d+)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<name>[A-Za-z_]\w*)|(?P<sign>==|!=|<=|>=|&&|\|\||[-<>!()\[\].,]))"""
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
    reading = _Parser(as_driver_reads(text), inputs)
    try:
        found = reading.evaluate()
    except (_Undecided, ValueError, OverflowError, TypeError, KeyError, IndexError):
        found = UNKNOWN
        reading.asked += [value for name, value in inputs.items() if name in text]
    by_item = any(isinstance(value, OpenValue) and value.by_item for value in reading.asked)
    return Condition(found if isinstance(found, bool) else None, by_item)


class _Parser:
    """One condition, read and evaluated from left to right."""

    def __init__(self, text: str, inputs: Values) -> None:
        self.inputs = inputs
        self.asked: list[Value] = []
        self.words: list[tuple[str, str]] = []
        self.at = self.depth = 0
        self.text = text

    def evaluate(self) -> Any:
        start = 0
        text = self.text.rstrip()
        while start < len(text):
            found = _LEXEME.match(text, start)
            if found is None or len(self.words) >= MOST_WORDS:
                raise _Undecided
            self.words.append((str(found.lastgroup), found[str(found.lastgroup)]))
            start = found.end()
        value = self._disjunction()
        if self.at != len(self.words):
            raise _Undecided
        return value

    def _peek(self) -> str:
        return self.words[self.at][1] if self.at < len(self.words) and self.words[self.at][0] != "text" else ""

    def _take(self, sign: str) -> None:
        if self._peek() != sign:
            raise _Undecided
        self.at += 1

    def _disjunction(self) -> Any:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise _Undecided
        found = self._conjunction()
        while self._peek() == "||":
            self.at += 1
            found = _combine(found, self._conjunction(), decided_by=True)
        self.depth -= 1
        return found

    def _conjunction(self) -> Any:
        found = self._comparison()
        while self._peek() == "&&":
            self.at += 1
            found = _combine(found, self._comparison(), decided_by=False)
        return found

    def _comparison(self) -> Any:
        left = self._unary()
        sign = self._peek()
        if sign not in COMPARISONS:
            return left
        self.at += 1
        right = self._unary()
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        if _kind(left) != _kind(right):
            raise _Undecided  # Kubeflow's driver fails, or says that they differ
        return COMPARISONS[sign](left, right)

    def _unary(self) -> Any:
        sign = self._peek()
        if sign == "!":
            self.at += 1
            value = self._nested_unary()
            if value is not UNKNOWN and not isinstance(value, bool):
                raise _Undecided
            return UNKNOWN if value is UNKNOWN else not value
        if sign == "-":
            self.at += 1
            value = self._nested_unary()
            return UNKNOWN if value is UNKNOWN else -value
        if sign == "(":
            self.at += 1
            value = self._disjunction()
            self._take(")")
            return value
        if self.at >= len(self.words):
            raise _Undecided
        kind, word = self.words[self.at]
        self.at += 1
        if kind == "number":
            return float(word) if "." in word else int(word)
        if kind == "text":
            return _require_unquoted(word)
        if kind != "name":
            raise _Undecided
        if word == "inputs":
            return self._input()
        return self._call(word) if self._peek() == "(" else _CONSTANTS[word]

    def _nested_unary(self) -> Any:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise _Undecided
        value = self._unary()
        self.depth -= 1
        return value

    def _input(self) -> Any:
        for word in (".", "parameter_values", "["):
            self._take(word)
        kind, name = self.words[self.at]
        if kind != "text":
            raise _Undecided
        self.at += 1
        self._take("]")
        value = self.inputs[_require_unquoted(name)]
        self.asked.append(value)
        if isinstance(value, KnownValue) and not value.is_default:
            number = isinstance(value.value, int | float) and not isinstance(value.value, bool)
            return float(value.value) if number else value.value
        return UNKNOWN

    def _call(self, name: str) -> Any:
        self._take("(")
        value = self._disjunction()
        self._take(")")
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
