"""Conditions: a small typed language with its own parser. Nothing in it is evaluated as code.

    steps.evaluate.accuracy > 0.9 and params.deploy
    params.region in ['eu', 'us'] and not (item.fold == 0)

Numbers, strings, `true`, `false`; references spelled out (`steps.STEP.OUTPUT`, `params.NAME`, `item.NAME`);
`== != < <= > >=`, `in` and `not in` a list, `and`, `or`, `not`, parentheses. Types are checked when a pipeline is
loaded: only bool decides, only numbers are ordered, only equal types are compared.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from gpuflow.core.operator_parser import Parser, Token
from gpuflow.spec.params import a
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef

Operand = ParamRef | OutputRef | ItemRef
MAX_LENGTH = 4096
MAX_DEPTH = 50


class ExpressionError(ValueError):
    """What is wrong with a condition, and where in its text (0-based)."""

    def __init__(self, message: str, offset: int, hint: str | None = None, code: str = "GF161") -> None:
        super().__init__(message)
        self.message, self.offset, self.hint, self.code = message, offset, hint, code


# Where a part stands in the text is not part of what it says, so conditions that are spaced differently are equal.
@dataclass(frozen=True, slots=True)
class Literal:
    value: str | int | float | bool
    offset: int = field(default=0, compare=False)
    is_bool: bool = field(init=False, repr=False)
    """Asked when literals are compared: to Python, 1 is true."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_bool", isinstance(self.value, bool))


@dataclass(frozen=True, slots=True)
class Reference:
    ref: Operand
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Compare:
    operator: str
    left: Expression
    right: Expression
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Member:
    """`value in [..]`, or `not in` when negated."""

    value: Expression
    options: tuple[Literal, ...]
    negated: bool
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Logic:
    """`and` / `or` over two or more."""

    operator: str
    terms: tuple[Expression, ...]
    offset: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Not:
    term: Expression
    offset: int = field(default=0, compare=False)


Expression = Literal | Reference | Compare | Member | Logic | Not

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<number>[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)(?![\w.])
    | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<word>[A-Za-z_][\w-]*(?:\.[A-Za-z_0-9][\w-]*)*)
    | (?P<sign>==|!=|<=|>=|<|>|\(|\)|\[|\]|,)
    | (?P<bad>\S)
    | (?P<space>\Z)
    )""",
    re.VERBOSE,
)
COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_OPPOSITE = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_LOOKALIKES = {"&&": "and", "||": "or", "=": "==", "!": "not"}
_NEGATION, _COMPARISON = 2, 3


def parse(text: str) -> Expression:
    """The expression in `text`, or `ExpressionError`."""
    if len(text) > MAX_LENGTH:
        raise ExpressionError(f"the condition is longer than {MAX_LENGTH} characters", 0)
    tree: Expression = _Parser().parse(text)
    return tree


class _Parser(Parser[Any]):
    TOKEN, DEEPEST = _TOKEN, MAX_DEPTH + 1
    BINDING = {"or": 0, "and": 1, **dict.fromkeys((*COMPARISONS, "in", "not"), _COMPARISON)}

    def scan(self, text: str) -> Iterator[Token]:
        for token in super().scan(text):
            if token.kind == "bad":
                raise _stray(text, token.offset)
            yield token

    def refusal(self, token: Token) -> ExpressionError:
        return ExpressionError(
            f'"{token.text}" is not expected here', token.offset, "join two conditions with and / or"
        )

    def too_deep(self) -> ExpressionError:
        return ExpressionError(f"nested deeper than {MAX_DEPTH} levels", self.next.offset)

    def operator(self) -> Token | None:
        sign = super().operator()
        return None if sign and sign.text == "not" and self.tokens[self.at + 1].text != "in" else sign

    def may_chain(self, sign: Token, left: Expression) -> bool:
        if isinstance(left, Compare) and sign.text in COMPARISONS:
            raise ExpressionError("comparisons cannot be chained", sign.offset, "write a < b and b < c")
        return isinstance(left, Logic)

    def right(self, sign: Token, level: int) -> Any:
        self.at += sign.text == "not"
        return self._options() if sign.text in ("in", "not") else super().right(sign, level)

    def join(self, sign: Token, left: Any, right: Any, begin: int) -> Expression:
        if isinstance(right, tuple):
            return Member(left, right, sign.text == "not", sign.offset)
        if sign.text in COMPARISONS:
            return Compare(sign.text, left, right, sign.offset)
        return (
            Logic(sign.text, (*left.terms, right), left.offset) if begin < 0 else Logic(sign.text, (left, right), begin)
        )

    def _options(self) -> tuple[Literal, ...]:
        offset = self.next.offset
        if not self.take("["):
            raise ExpressionError("`in` takes a list", offset, "for example: params.region in ['eu', 'us']")
        options: list[Literal] = []
        self.depth += 1
        while not self.take("]"):
            if options and not self.take(","):
                raise ExpressionError("a comma or ] is missing", self.next.offset)
            option = self.operand(_COMPARISON)
            if not isinstance(option, Literal):
                raise ExpressionError("a list holds numbers, strings, true and false only", self.next.offset)
            options.append(option)
        self.depth -= 1
        if not options:
            raise ExpressionError("the list is empty", offset)
        return tuple(options)

    def operand(self, least: int) -> Expression:
        kind, word, offset = self.advance()
        if kind == "word" and word == "not" and least <= _NEGATION:
            return Not(self.deeper(lambda: self.expression(_NEGATION)), offset)
        if kind == "number":
            return Literal(_number(word, offset), offset)
        if kind == "text":
            return Literal(re.sub(r"\\(.)", r"\1", word[1:-1], flags=re.DOTALL), offset)
        if kind == "sign" and word == "(":
            inner: Expression = self.inner()
            if not self.take(")"):
                raise ExpressionError("a closing ) is missing", self.next.offset)
            return inner
        if kind == "word" and word in ("true", "false"):
            return Literal(word == "true", offset)
        if kind == "word" and word not in ("and", "or", "not", "in"):
            return Reference(_reference(word, offset), offset)
        if kind == "end":
            raise ExpressionError("the condition ends too early", offset)
        raise ExpressionError(f'"{word}" is not expected here', offset)


def _stray(text: str, offset: int) -> ExpressionError:
    word, pair = text[offset], text[offset : offset + 2]
    if word in "'\"":
        return ExpressionError("a quote is not closed", offset)
    shown = pair if pair in _LOOKALIKES else word
    meant = _LOOKALIKES.get(shown)
    return ExpressionError(f'"{shown}" is not part of the language', offset, f"write {meant}" if meant else None)


def _number(word: str, offset: int) -> int | float:
    number = float(word) if any(c in word for c in ".eE") else int(word)
    if number in (math.inf, -math.inf):
        raise ExpressionError(f"{word} is larger than any number", offset)
    return number


def _reference(word: str, offset: int) -> Operand:
    root, *rest = word.split(".")
    if root == "steps" and len(rest) == 2:
        return OutputRef(rest[0], rest[1])
    if root == "params" and len(rest) == 1:
        return ParamRef(rest[0])
    if root == "item" and len(rest) == 1:
        return ItemRef(rest[0])
    if root == "run":
        text = f'"{word}": a condition cannot ask for facts of the run'
        raise ExpressionError(text, offset, "let a step that is given {run: …} write an output, and ask for that")
    text = f'"{word}" does not name a value'
    raise ExpressionError(text, offset, "spell it out: steps.STEP.OUTPUT, params.NAME or item.NAME; quote text")


def _parts(tree: Expression) -> tuple[Expression, ...]:
    """What an expression is made of, left to right."""
    if isinstance(tree, Compare):
        return tree.left, tree.right
    if isinstance(tree, Logic):
        return tree.terms
    return (tree.value,) if isinstance(tree, Member) else (tree.term,) if isinstance(tree, Not) else ()


def references(tree: Expression) -> Iterator[Reference]:
    """All references, left to right."""
    if isinstance(tree, Reference):
        yield tree
    for part in _parts(tree):
        yield from references(part)


def compared_texts(tree: Expression | None) -> Iterator[tuple[Reference, str]]:
    """Every reference that is compared with a text, with that text."""
    if isinstance(tree, Compare):
        for one, other in ((tree.left, tree.right), (tree.right, tree.left)):
            if isinstance(one, Reference) and isinstance(other, Literal) and isinstance(other.value, str):
                yield one, other.value
    elif isinstance(tree, Member) and isinstance(tree.value, Reference):
        yield from ((tree.value, each.value) for each in tree.options if isinstance(each.value, str))
    elif tree is not None:
        for part in _parts(tree):
            yield from compared_texts(part)


def asks_item(tree: Expression | None) -> bool:
    """Whether a condition is about the item of a fan-out, so that every copy has its own answer."""
    return tree is not None and any(isinstance(found.ref, ItemRef) for found in references(tree))


def exclude(one: Expression, other: Expression) -> bool:
    """Whether two conditions never both hold: one has a term that denies what the other has."""
    pairs = (_terms(one), _terms(other))
    return any(_denies(term, terms) for first, terms in (pairs, pairs[::-1]) for term in first)


def _terms(tree: Expression) -> tuple[Expression, ...]:
    """What must hold, all of it: `a and b`, and `not (a or b)`."""
    if isinstance(tree, Logic) and tree.operator == "and":
        return tuple(each for term in tree.terms for each in _terms(term))
    if isinstance(tree, Not) and isinstance(tree.term, Logic) and tree.term.operator == "or":
        return tuple(each for term in tree.term.terms for each in _terms(Not(term)))
    return (tree.term.term,) if isinstance(tree, Not) and isinstance(tree.term, Not) else (tree,)


def _denies(term: Expression, terms: tuple[Expression, ...]) -> bool:
    if Not(term) in terms:
        return True
    if isinstance(term, Not):
        return all(each in terms for each in _terms(term.term))
    if isinstance(term, Logic):
        return all(_denies(each, terms) for each in term.terms)
    if isinstance(term, Compare) and Compare(_OPPOSITE[term.operator], term.left, term.right) in terms:
        return True
    operand, values, negated = _values(term)
    others = (_values(each) for each in terms if operand is not None and not negated)
    return any(there == operand and (values <= out if outside else not values & out) for there, out, outside in others)


def _values(term: Expression) -> tuple[Expression | None, frozenset[object], bool]:
    """What is compared with literals, with which, and whether it must be none of them."""
    if isinstance(term, Member):
        return term.value, frozenset(term.options), term.negated
    if isinstance(term, Compare) and term.operator in ("==", "!=") and isinstance(term.right, Literal):
        return term.left, frozenset((term.right,)), term.operator == "!="
    return None, frozenset(), False


def infer(tree: Expression, type_of: Callable[[Reference], str]) -> str:
    """The expression's type; raises `ExpressionError` where types do not go together."""
    if isinstance(tree, Literal):
        return _literal_type(tree.value)
    if isinstance(tree, Reference):
        return type_of(tree)
    if isinstance(tree, Not):
        _want_bool(tree.term, type_of, "not")
    elif isinstance(tree, Logic):
        for term in tree.terms:
            _want_bool(term, type_of, tree.operator)
    elif isinstance(tree, Member):
        kind = infer(tree.value, type_of)
        for option in tree.options:
            _require_comparable(kind, _literal_type(option.value), "in", option.offset)
    else:
        left, right = infer(tree.left, type_of), infer(tree.right, type_of)
        _require_comparable(left, right, tree.operator, tree.offset)
    return "bool"


def _want_bool(term: Expression, type_of: Callable[[Reference], str], operator: str) -> None:
    kind = infer(term, type_of)
    if kind != "bool":
        text = f'"{operator}" needs true or false, but {render(term)} is {a(kind)}'
        hint = f"compare it, for example {render(term)} {'> 0' if kind in _NUMBERS else '!= ' + repr('')}"
        raise ExpressionError(text, term.offset, hint, "GF162")


_NUMBERS = ("int", "float")


def _require_comparable(left: str, right: str, operator: str, offset: int) -> None:
    if "json" in (left, right):
        raise ExpressionError(
            f'json cannot be used with "{operator}"', offset, "declare the value as string, int, float or bool", "GF162"
        )
    if (left in _NUMBERS) != (right in _NUMBERS) or (left not in _NUMBERS and left != right):
        raise ExpressionError(
            f'"{operator}" compares {a(left)} with {a(right)}', offset, "compare values of one type", "GF162"
        )
    if operator in ("<", "<=", ">", ">=") and left not in _NUMBERS:
        raise ExpressionError(f'"{operator}" orders numbers only, not {a(left)}', offset, "use == or !=", "GF162")


def _literal_type(value: object) -> str:
    if isinstance(value, bool):
        return "bool"
    return {int: "int", float: "float"}.get(type(value), "string")


def evaluate(tree: Expression, value_of: Callable[[Operand], Any]) -> Any:
    """The value of a checked expression, given the values of its references."""
    if isinstance(tree, Literal):
        return tree.value
    if isinstance(tree, Reference):
        return value_of(tree.ref)
    if isinstance(tree, Not):
        return not evaluate(tree.term, value_of)
    if isinstance(tree, Logic):
        results = (evaluate(term, value_of) for term in tree.terms)
        return all(results) if tree.operator == "and" else any(results)
    if isinstance(tree, Member):
        found = evaluate(tree.value, value_of) in [option.value for option in tree.options]
        return found != tree.negated
    return COMPARISONS[tree.operator](evaluate(tree.left, value_of), evaluate(tree.right, value_of))


def render(tree: Expression) -> str:
    """Canonical text: single quotes, one space, the fewest parentheses that keep the meaning."""
    if isinstance(tree, Literal):
        return _literal(tree.value)
    if isinstance(tree, Reference):
        ref = tree.ref
        if isinstance(ref, OutputRef):
            return f"steps.{ref.step}.{ref.name}"
        return f"params.{ref.name}" if isinstance(ref, ParamRef) else f"item.{ref.name}"
    if isinstance(tree, Not):
        return f"not {_render_operand(tree.term, (Literal, Reference, Not))}"
    if isinstance(tree, Member):
        word = "not in" if tree.negated else "in"
        options = ", ".join(_literal(each.value) for each in tree.options)
        return f"{_render_operand(tree.value, (Literal, Reference))} {word} [{options}]"
    if isinstance(tree, Compare):
        simple = (Literal, Reference)
        return f"{_render_operand(tree.left, simple)} {tree.operator} {_render_operand(tree.right, simple)}"
    bare: tuple[type, ...] = (Literal, Reference, Compare, Member, Not)
    return f" {tree.operator} ".join(_render_operand(term, bare) for term in tree.terms)


def _render_operand(tree: Expression, bare: tuple[type, ...]) -> str:
    return render(tree) if isinstance(tree, bare) else f"({render(tree)})"


def _literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return json.dumps(value)
