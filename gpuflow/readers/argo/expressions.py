"""The two small languages of Argo's fields, as far as they are constants: `when` (govaluate) and `{{=…}}` (expr).

Only what certainly means the same in Argo is evaluated; everything else is `NotConstant`, and its answer unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)"""
    r"""|(?P<sign>==|!=|<=|>=|&&|\|\||\?\?|[-+*/%<>!()?:,\[\].{}])|(?P<word>[A-Za-z_][\w-]*))""",
    re.S,
)
MAX_LENGTH: Final = 4_000
"""Characters of an expression; a longer one is not worked out."""
DEEPEST: Final = 50
_WORD_OPERATORS: Final = ("startsWith", "endsWith", "contains", "in")


class NotConstant(Exception):
    """The expression cannot be worked out here."""


def when_holds(text: str) -> bool:
    """A condition of a step whose tags are all replaced. Raises `NotConstant`."""
    # govaluate reads a bare word as a variable, and Argo makes a text of it; words may hold dashes.
    found = _Parser(text, {}, words_are_texts=True).evaluate()
    if not isinstance(found, bool):
        raise NotConstant
    return found


def evaluate(text: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression; `variables` by their whole name, such as `inputs.parameters.n`."""
    return _Parser(text, variables, words_are_texts=False).evaluate()


def depends_holds(text: str, results: Mapping[str, bool]) -> bool:
    """The logic of `depends`, with the results of tasks by `task.Result`; one that is not named is false."""
    return bool(_Parser(text, results, words_are_texts=False, missing=False).evaluate())


class _Parser:
    """Precedence climbing; every level is a method that reads as much as it binds."""

    def __init__(
        self, text: str, variables: Mapping[str, Any], *, words_are_texts: bool, missing: Any = NotConstant
    ) -> None:
        if len(text) > MAX_LENGTH:
            raise NotConstant
        self.variables, self.words_are_texts, self.missing = variables, words_are_texts, missing
        self.tokens: list[tuple[str, str]] = []
        self.depth = 0
        at, text = 0, text.rstrip()
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise NotConstant
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self.at = 0

    def evaluate(self) -> Any:
        if not self.tokens:
            raise NotConstant
        try:
            found = self._choice()
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, KeyError, IndexError):
            raise NotConstant from None
        if self.at != len(self.tokens):
            raise NotConstant
        return found

    def _peek(self) -> str:
        kind, word = self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")
        return word if kind in ("sign", "word") else f"<{kind}>"

    def _take(self, *signs: str) -> str | None:
        if self._peek() in signs:
            self.at += 1
            return self.tokens[self.at - 1][1]
        return None

    def _need(self, sign: str) -> None:
        if self._take(sign) is None:
            raise NotConstant

    def _choice(self) -> Any:
        self.depth += 1
        if self.depth > DEEPEST:
            raise NotConstant
        asked = self._disjunction()
        if self._take("?"):
            first = self._choice()
            self._need(":")
            second = self._choice()
            if not isinstance(asked, bool):
                raise NotConstant
            asked = first if asked else second
        self.depth -= 1
        return asked

    def _disjunction(self) -> Any:
        found = self._conjunction()
        while self._take("||", "or" if not self.words_are_texts else "||"):
            other = self._conjunction()
            found = _require_bool(found) or _require_bool(other)
        return found

    def _conjunction(self) -> Any:
        found = self._compare()
        while self._take("&&", "and" if not self.words_are_texts else "&&"):
            other = self._compare()
            found = _require_bool(found) and _require_bool(other)
        return found

    def _compare(self) -> Any:
        found = self._sum()
        words = () if self.words_are_texts else _WORD_OPERATORS
        while sign := self._take("==", "!=", "<=", ">=", "<", ">", *words):
            found = _comparison(sign, found, self._sum())
        return found

    def _sum(self) -> Any:
        found = self._product()
        while sign := self._take("+", "-"):
            other = self._product()
            if sign == "+" and isinstance(found, str) and isinstance(other, str):
                found = found + other
            else:
                found = _number(found) + _number(other) if sign == "+" else _number(found) - _number(other)
        return found

    def _product(self) -> Any:
        found = self._unary()
        while sign := self._take("*", "/", "%"):
            first, second = _number(found), _number(self._unary())
            if sign == "*":
                found = first * second
            elif sign == "%" and isinstance(first, int) and isinstance(second, int) and first >= 0 and second > 0:
                found = first % second
            elif sign == "/" and second and first % second == 0:
                found = first // second
            else:
                raise NotConstant
        return found

    def _unary(self) -> Any:
        if self._take("!", "not" if not self.words_are_texts else "!"):
            return not _require_bool(self._unary())
        if self._take("-"):
            return -_number(self._unary())
        if self._take("("):
            found = self._choice()
            self._need(")")
            return self._index(found)
        if self._take("["):
            return self._index(self._items("]"))
        if self.at >= len(self.tokens):
            raise NotConstant
        kind, word = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return float(word) if "." in word else int(word)
        if kind == "text":
            return _unquote(word)
        if kind != "word":
            raise NotConstant
        return self._identifier(word)

    def _index(self, value: Any) -> Any:
        while not self.words_are_texts and self._take("["):
            index = self._choice()
            self._need("]")
            if isinstance(index, bool) or not isinstance(value, list) or not isinstance(index, int) or index < 0:
                raise NotConstant
            value = value[index]
        return value

    def _items(self, end: str) -> list[Any]:
        found: list[Any] = []
        while not self._take(end):
            found.append(self._choice())
            if not self._take(","):
                self._need(end)
                break
        return found

    def _identifier(self, word: str) -> Any:
        if word in ("true", "false"):
            return word == "true"
        if self.words_are_texts:
            if word == "in" or self._peek() in (".", "("):
                raise NotConstant
            return word
        name = word
        while True:
            if self._take("."):
                kind, part = self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")
                self.at += 1
                if kind != "word":
                    raise NotConstant
                name += f".{part}"
            elif self._take("["):
                part = self._choice()
                self._need("]")
                name += f".{part}"
            else:
                break
        if self._take("("):
            given, function = self._items(")"), _FUNCTIONS.get(name)
            if function is None:
                raise NotConstant
            return self._index(function(*given))
        if name in self.variables:
            return self.variables[name]
        if self.missing is NotConstant:
            raise NotConstant
        return self.missing


def _require_bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise NotConstant
    return value


def _number(value: Any) -> Any:
    if not _is_number(value) or abs(value) > 2**62:
        raise NotConstant
    return value


def _comparison(sign: str, first: Any, second: Any) -> bool:
    if sign in ("==", "!="):
        # A text and a number are never equal, in either language.
        alike = type(first) is type(second) or (_is_number(first) and _is_number(second))
        return (alike and first == second) == (sign == "==")
    if sign in _WORD_OPERATORS:
        return _word_comparison(sign, first, second)
    both_numbers = _is_number(first) and _is_number(second)
    if not both_numbers and not (isinstance(first, str) and isinstance(second, str)):
        raise NotConstant
    results: dict[str, bool] = {"<": first < second, ">": first > second, "<=": first <= second, ">=": first >= second}
    return results[sign]


def _word_comparison(word: str, first: Any, second: Any) -> bool:
    if word == "in" and isinstance(second, list):
        return any(_comparison("==", first, each) for each in second)
    if not isinstance(first, str) or not isinstance(second, str) or word == "in":
        raise NotConstant
    return {"startsWith": first.startswith, "endsWith": first.endswith, "contains": first.__contains__}[word](second)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _unquote(word: str) -> str:
    inner = word[1:-1]
    if word[0] == "`" or "\\" not in inner:
        return inner
    return re.sub(r"\\(.)", _unescape, inner, flags=re.S)


def _unescape(match: re.Match[str]) -> str:
    if match[1] not in "\\'\"n":
        raise NotConstant
    return "\n" if match[1] == "n" else match[1]


def _as_int(value: Any) -> int:
    text = str(value)
    if isinstance(value, bool) or len(text) > 18:
        raise NotConstant
    return int(text)


def _as_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int):
        raise NotConstant
    return str(value)


def _as_float(value: Any) -> float:
    if isinstance(value, bool) or len(str(value)) > 18:
        raise NotConstant
    return float(value)


def _from_json(value: Any) -> Any:
    if not isinstance(value, str):
        raise NotConstant
    try:
        return json.loads(value)
    except RecursionError:
        raise NotConstant from None


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "asInt": _as_int,
    "int": _as_int,
    "asFloat": _as_float,
    "float": _as_float,
    "string": _as_text,
    "fromJSON": _from_json,
    "fromJson": _from_json,
    "toJson": lambda value: json.dumps(value, ensure_ascii=False, separators=(",", ":")),
    "len": len,
    "min": lambda *given: min(_number(each) for each in given),
    "max": lambda *given: max(_number(each) for each in given),
    "sprig.replace": lambda old, new, text: text.replace(old, new) if old else text,
}
"""What Argo's expressions call; few are ever constant."""
