"""The two small languages of Argo's fields, as far as they are constants: `when` (govaluate) and `{{=…}}` (expr).

Only what certainly means the same in Argo is evaluated; everything else is `NotConstant`, and its answer unknown.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from gpuflow.core.operator_parser import Parser, Token

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<number>\d+(?:\.\d+)?(?![\w.]))|(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`)"""
    r"""|(?P<sign>==|!=|<=|>=|&&|\|\||\?\?|[-+*/%<>!()?:,\[\].{}])|(?P<word>[A-Za-z_][\w-]*)|(?P<space>\Z))""",
    re.S,
)
MAX_LENGTH: Final = 4_000
"""Characters of an expression; a longer one is not worked out."""
DEEPEST: Final = 50
_WORD_OPERATORS: Final = ("startsWith", "endsWith", "contains", "in")
_LEVELS: Final = (("||",), ("&&",), ("==", "!=", "<=", ">=", "<", ">"), ("+", "-"), ("*", "/", "%"))
_WHEN: Final = {sign: level for level, signs in enumerate(_LEVELS) for sign in signs}
_EXPR: Final = {**_WHEN, "or": 0, "and": 1, **dict.fromkeys(_WORD_OPERATORS, 2)}


class NotConstant(Exception):
    """The expression cannot be worked out here."""


_COMPARISON = re.compile(
    r"""\s*(?P<tag>(['"]?)\{\{(?!\s*item\b)[\w.\s-]+\}\}\2)\s*(?P<sign>[!=]=)\s*(?P<text>(['"]?)[\w.-]+\5)\s*"""
)
_LITERAL = re.compile(r"(?P<number>\d+(?:\.\d+)?)|(?P<word>[A-Za-z_][\w-]*)|['\"](?P<text>(?!\d{4}-).*)['\"]")


def when_holds(text: str) -> bool:
    """A condition of a step whose tags are all replaced. Raises `NotConstant`."""
    found = _When({}).evaluate(text)
    if not isinstance(found, bool):
        raise NotConstant
    return found


class Comparison(NamedTuple):
    """`{{tag}} == text`, or `!=`, each with its quotes."""

    tag: str
    text: str
    is_equal: bool


def comparison_of(when: str) -> Comparison | None:
    """What a condition compares with a text; None where it is more than that, or each item of a loop has its own."""
    found = _COMPARISON.fullmatch(when)
    return None if found is None else Comparison(found["tag"], found["text"], found["sign"] == "==")


def never_both(one: Comparison, other: Comparison) -> bool:
    """Whether two steps beside each other ask for different values of the same thing."""
    if one.tag != other.tag or not (one.is_equal or other.is_equal):
        return False
    mine, theirs = _literal(one.text), _literal(other.text)
    if one.is_equal is not other.is_equal:
        return one.text == other.text or (mine is not None and mine == theirs)
    return mine is not None and theirs is not None and mine != theirs


def _literal(text: str) -> tuple[str, str | float] | None:
    """The kind of what is compared with, and its value; None where it may mean something else. A bare word is a text,
    `0x10` is 16, and a date in quotes is a time."""
    found = _LITERAL.fullmatch(text)
    if found is None:
        return None
    if found["number"]:
        return "number", float(found["number"])
    if found["word"] in ("true", "false"):
        return "truth", found["word"]
    return "text", found["word"] or found["text"]


def evaluate(text: str, variables: Mapping[str, Any]) -> Any:
    """The value of an expression; `variables` by their whole name, such as `inputs.parameters.n`."""
    return _Expr(variables).evaluate(text)


def depends_holds(text: str, results: Mapping[str, bool]) -> bool:
    """The logic of `depends`, with the results of tasks by `task.Result`; one that is not named is false."""
    return bool(_Expr(results, missing=False).evaluate(text))


class _Expr(Parser[Any]):
    """expr: `{{=…}}` and the logic of `depends`."""

    TOKEN, BINDING, DEEPEST = _TOKEN, _EXPR, DEEPEST
    NOT: tuple[str, ...] = ("!", "not")

    def __init__(self, variables: Mapping[str, Any], missing: Any = NotConstant) -> None:
        super().__init__()
        self.variables, self.missing = variables, missing

    def evaluate(self, text: str) -> Any:
        if len(text) > MAX_LENGTH:
            raise NotConstant
        try:
            return self.parse(text)
        except (TypeError, ValueError, ZeroDivisionError, OverflowError, KeyError, IndexError):
            raise NotConstant from None

    def refusal(self, token: Token) -> NotConstant:
        return NotConstant()

    def choice(self, found: Any) -> Any:
        if not self.take("?"):
            return found
        first = self.inner()
        self.need(":")
        second = self.inner()
        return first if _require_bool(found) else second

    def join(self, sign: Token, left: Any, right: Any, begin: int) -> Any:
        level = _EXPR[sign.text]
        if level == 0:
            return _require_bool(left) or _require_bool(right)
        if level == 1:
            return _require_bool(left) and _require_bool(right)
        return (_comparison if level == 2 else _arithmetic)(sign.text, left, right)

    def operand(self, least: int) -> Any:
        if self.take(*self.NOT):
            return not _require_bool(self.deeper(lambda: self.operand(least)))
        if self.take("-"):
            return -_number(self.deeper(lambda: self.operand(least)))
        if self.take("("):
            found = self.inner()
            self.need(")")
            return self.index(found)
        if self.take("["):
            return self.index(self.items("]"))
        kind, word, _ = self.advance()
        if kind == "number":
            return float(word) if "." in word else int(word)
        if kind == "text":
            return _unquote(word)
        if kind != "word":
            raise NotConstant
        return word == "true" if word in ("true", "false") else self.value_of(word)

    def index(self, value: Any) -> Any:
        while self.take("["):
            index = self.inner()
            self.need("]")
            if isinstance(index, bool) or not isinstance(value, list) or not isinstance(index, int) or index < 0:
                raise NotConstant
            value = value[index]
        return value

    def value_of(self, name: str) -> Any:
        """A variable, or what a function gives."""
        while True:
            if self.take("."):
                kind, part, _ = self.advance()
                if kind != "word":
                    raise NotConstant
            elif self.take("["):
                part = self.inner()
                self.need("]")
            else:
                break
            name += f".{part}"
        if self.take("("):
            given, function = self.items(")"), _FUNCTIONS.get(name)
            if function is None:
                raise NotConstant
            return self.index(function(*given))
        found = self.variables.get(name, self.missing)
        if found is NotConstant:
            raise NotConstant
        return found


class _When(_Expr):
    """govaluate: a bare word is a variable, of which Argo makes a text; words may hold dashes."""

    BINDING, NOT = _WHEN, ("!",)

    def index(self, value: Any) -> Any:
        return value

    def value_of(self, name: str) -> str:
        if name == "in" or self.take(".", "("):
            raise NotConstant
        return name


def _arithmetic(sign: str, left: Any, right: Any) -> Any:
    if sign == "+" and isinstance(left, str) and isinstance(right, str):
        return left + right
    first, second = _number(left), _number(right)
    if sign in ("+", "-"):
        return first + second if sign == "+" else first - second
    if sign == "*":
        return first * second
    if sign == "%" and isinstance(first, int) and isinstance(second, int) and first >= 0 and second > 0:
        return first % second
    if sign == "/" and second and first % second == 0:
        return first // second
    raise NotConstant


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
