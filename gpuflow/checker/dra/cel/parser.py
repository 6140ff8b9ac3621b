"""A selector as a function of a device.

The text is cut into tokens and parsed. Types are checked as far as they are known before a device is: what Kubernetes
would not compile is not judged. An attribute may be of any type.

Mirrors k8s.io/dynamic-resource-allocation/cel.CompileCELExpression and DeviceMatches, Kubernetes v1.36.3.

The values of a selector, semantic versions among them, and what its operators and functions make of them.

A runtime error is an answer: `false && error` is false, and an error that is left over ends the allocation.

Mirrors github.com/google/cel-go/interpreter, k8s.io/apiserver/pkg/cel/library.Quantity, SemverLib and
normalizeAndParse, and github.com/blang/semver/v4.Parse and Version.Compare, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial, total_ordering
from operator import attrgetter
from typing import Any, Final, NamedTuple

from gpuflow.checker.dra.cel import patterns
from gpuflow.checker.dra.cel.patterns import Pattern
from gpuflow.core.operator_parser import Parser, Token
from gpuflow.core.work_budget import TooLarge
from gpuflow.quantity import Quantity

SEMVER_NUMBER: Final = r"(0|[1-9][0-9]*)"
SEMVER_IDENTIFIER: Final = r"(?:0|[1-9][0-9]*|[0-9]*[A-Za-z-][0-9A-Za-z-]*)"
SEMVER: Final = re.compile(
    rf"{SEMVER_NUMBER}\.{SEMVER_NUMBER}\.{SEMVER_NUMBER}(?:-({SEMVER_IDENTIFIER}(?:\.{SEMVER_IDENTIFIER})*))?(?:\+[0-9A-Za-z-]+(?:\.[0-9A-Za-z-]+)*)?",
    re.ASCII,
)
MAX_UINT64: Final = 2**64 - 1


@total_ordering
class Semver:
    """A version; what follows `+` does not count when two are compared."""

    __slots__ = ("_key", "major", "minor", "patch")

    def __init__(self, major: int, minor: int, patch: int, before: tuple[str, ...]) -> None:
        self.major, self.minor, self.patch = major, minor, patch
        # Numbers come before words, and a release after everything that leads up to it.
        words = tuple((0, int(each), "") if each.isdigit() else (1, 0, each) for each in before)
        self._key = (major, minor, patch, not before, words)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Semver) and self._key == other._key

    def __lt__(self, other: Semver) -> bool:
        return self._key < other._key

    def __hash__(self) -> int:
        return hash(self._key)


@lru_cache(maxsize=4096)
def parse_semver(text: str) -> Semver:
    """`ValueError` when the text is no version."""
    found = SEMVER.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no semantic version")
    numbers = [int(found[index]) for index in (1, 2, 3)]
    before = tuple(found[4].split(".")) if found[4] else ()
    if max(*numbers, *(int(each) for each in before if each.isdigit())) > MAX_UINT64:
        raise ValueError(f"{text!r}: a number of it is too large")
    return Semver(numbers[0], numbers[1], numbers[2], before)


def parse_short_semver(text: str) -> Semver:
    """A version that may be short, with a `v` before it or with zeros before its numbers."""
    parts = text.removeprefix("v").split(".", 2)
    parts = [_without_zeros(part) if len(part) > 1 else part for part in parts]
    if len(parts) < 3 and any(sign in parts[-1] for sign in "+-"):
        raise ValueError(f"{text!r}: a short version has no pre-release or build")
    return parse_semver(".".join([*parts, "0", "0"][: max(len(parts), 3)]))


def _without_zeros(part: str) -> str:
    bare = part.lstrip("0")
    return bare if bare[:1] in tuple("0123456789") else f"0{bare}"


Value = Any
"""bool, int, str, Quantity, Semver, or a map of these by domain and name."""


class CelError(Exception):
    """A runtime error of CEL."""


class CelPanic(Exception):
    """A crash of CEL's own code: the whole selector ends in an error, whatever stands beside it."""


class Unsupported(Exception):
    """Text that is not among what is evaluated here; it says which."""


class View(NamedTuple):
    """What a selector sees of a device."""

    driver: str
    allows_multiple: bool
    attributes: Mapping[str, Mapping[str, Value]]
    capacity: Mapping[str, Mapping[str, Quantity]]


def no_overload(name: str) -> CelError:
    return CelError(f"no such overload: {name}")


def is_same(left: Value, right: Value) -> bool:
    """Values of different types are not the same."""
    return type(left) is type(right) and bool(left == right)


def is_equal(left: Value, right: Value) -> bool:
    """As `is_same`, but a version or quantity can only be compared with its like."""
    if type(left) in (Quantity, Semver) and type(right) is not type(left):
        raise no_overload("==")
    return is_same(left, right)


def in_constants(value: Value, items: list[Value]) -> bool:
    """Whether a value is among constants, which are kept in a hash table: a version cannot be looked up there."""
    if type(value) is Semver:
        raise CelPanic("internal error: hash of unhashable type")
    return any(is_same(value, each) for each in items)


ORDER: Final[Mapping[str, Callable[[Value, Value], bool]]] = {
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}
ORDERED: Final = (int, str, bool)


def compare(operator: str, left: Value, right: Value) -> bool:
    if type(left) is not type(right) or type(left) not in ORDERED:
        raise no_overload(operator)
    return ORDER[operator](left, right)


def _compare(left: Value, right: Value) -> int:
    if type(left) is not type(right) or type(left) not in (Quantity, Semver):
        raise no_overload("compareTo")
    return int(left > right) - int(left < right)


def _only(kind: type, name: str, function: Callable[..., Value]) -> Callable[..., Value]:
    """The function for values of one type; other values have no such function."""

    def apply(*given: Value) -> Value:
        if any(type(each) is not kind for each in given):
            raise no_overload(name)
        return function(*given)

    return apply


def pattern(text: str) -> Pattern:
    try:
        return patterns.pattern(text)
    except patterns.NotEvaluated:
        raise Unsupported(f"the pattern {text!r}") from None


def _matches(text: str, expression: str) -> bool:
    if "\n" in text:
        raise Unsupported("a pattern over several lines")
    try:
        return pattern(expression).is_in(text)
    except TooLarge as reason:
        raise Unsupported(str(reason)) from None


class Method(NamedTuple):
    """A function called on a value: the types it may have, that of its argument (if any) and of its answer."""

    receivers: tuple[str, ...]
    takes: bool
    gives: str
    run: Callable[..., Value]


def _change_ascii(change: Callable[[str], str], text: str) -> str:
    return "".join(change(each) if each.isascii() else each for each in text)


AMOUNTS: Final = ("quantity", "semver")
TEXTS: Final = ("string",)
BOTH_TEXTS: Final = "a function of strings"
METHODS: Final[Mapping[str, Method]] = {
    "compareTo": Method(AMOUNTS, True, "int", _compare),
    "isGreaterThan": Method(AMOUNTS, True, "bool", lambda left, right: _compare(left, right) == 1),
    "isLessThan": Method(AMOUNTS, True, "bool", lambda left, right: _compare(left, right) == -1),
    "startsWith": Method(TEXTS, True, "bool", _only(str, BOTH_TEXTS, str.startswith)),
    "endsWith": Method(TEXTS, True, "bool", _only(str, BOTH_TEXTS, str.endswith)),
    "contains": Method(TEXTS, True, "bool", _only(str, BOTH_TEXTS, str.__contains__)),
    "matches": Method(TEXTS, True, "bool", _only(str, BOTH_TEXTS, _matches)),
    "major": Method(("semver",), False, "int", _only(Semver, "major", attrgetter("major"))),
    "minor": Method(("semver",), False, "int", _only(Semver, "minor", attrgetter("minor"))),
    "patch": Method(("semver",), False, "int", _only(Semver, "patch", attrgetter("patch"))),
    "lowerAscii": Method(TEXTS, False, "string", _only(str, "lowerAscii", partial(_change_ascii, str.lower))),
    "upperAscii": Method(TEXTS, False, "string", _only(str, "upperAscii", partial(_change_ascii, str.upper))),
}


def to_quantity(text: Value) -> Quantity:
    if type(text) is not str:
        raise no_overload("quantity")
    try:
        return Quantity(text)
    except ValueError as error:
        raise CelError(str(error)) from None


def to_semver(text: Value, tolerant: Value = False) -> Semver:
    if type(text) is not str or type(tolerant) is not bool:
        raise no_overload("semver")
    try:
        return parse_short_semver(text) if tolerant else parse_semver(text)
    except ValueError as error:
        raise CelError(str(error)) from None


def is_readable(read: Callable[..., Value]) -> Callable[..., bool]:
    """Whether a text can be read as a quantity or version; another value than a text stays an error."""

    def check(text: Value, *more: Value) -> bool:
        if type(text) is not str or any(type(each) is not bool for each in more):
            raise no_overload("is")
        try:
            read(text, *more)
        except CelError:
            return False
        return True

    return check


class Function(NamedTuple):
    """A function: the types of its arguments, the last of which may be left out where `optional`."""

    arguments: tuple[str, ...]
    optional: bool
    gives: str
    run: Callable[..., Value]


FUNCTIONS: Final[Mapping[str, Function]] = {
    "quantity": Function(("string",), False, "quantity", to_quantity),
    "isQuantity": Function(("string",), False, "bool", is_readable(to_quantity)),
    "semver": Function(("string", "bool"), True, "semver", to_semver),
    "isSemver": Function(("string", "bool"), True, "bool", is_readable(to_semver)),
}


TOKEN: Final = re.compile(
    r"""
    (?P<triple>\"{3}|\'{3})
  | (?P<space>[ \t\n\r\f]+|//[^\n]*)
  | (?P<raw>[rR](?:"[^"\n]*"|'[^'\n]*'))
  | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<number>[0-9]+(?![0-9A-Za-z_.]))
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>==|!=|<=|>=|&&|\|\||[<>!().,?:\[\]-])
    """,
    re.VERBOSE,
)
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
MAX_INT64: Final = 2**63 - 1


def _unescape(found: re.Match[str]) -> str:
    if found[1] not in ESCAPES:
        raise Unsupported(f"the escape {found[0]}")
    return ESCAPES[found[1]]


Scope = Mapping[str, Callable[[], Value]]
"""What is bound to a name, worked out when it is asked for."""
Run = Callable[[View, Scope], Value]

DYN: Final = "dyn"
DEVICE: Final = {"driver": "string", "allowMultipleAllocations": "bool", "attributes": "domains", "capacity": "amounts"}
INNER: Final = {"domains": "domain", "amounts": "amount-domain"}
"""Of which type an entry of a map by domain is."""
ENTRY_TYPES: Final = {"domain": DYN, "amount-domain": "quantity"}
"""Of which type an entry of a domain is."""
SCALARS: Final = ("string", "int", "bool", "quantity", "semver", DYN)
MOST_DEPTH: Final = 60
_BINDING: Final = {"||": 0, "&&": 1, **dict.fromkeys(("==", "!=", "in", *ORDER), 2)}


class Node(NamedTuple):
    type: str
    run: Run
    key: tuple[Node, str] | None = None
    """For a selected field: of what, and its name."""
    text: str | None = None
    """For text that stands there as it is."""
    is_constant: bool = False


class Selector(NamedTuple):
    expression: str
    run: Run

    def matches(self, device: View) -> bool:
        """`CelError` where CEL ends in an error, `Unsupported` where that cannot be told."""
        try:
            answer = self.run(device, {})
        except CelPanic as crash:
            raise CelError(str(crash)) from None
        if type(answer) is not bool:
            raise CelError("the result could not be converted to bool")
        return answer


@lru_cache(maxsize=4096)
def compile_expression(expression: str) -> Selector:
    """`Unsupported` for text that is not among what is evaluated."""
    node = _Parser().parse(expression)
    if node.type not in ("bool", DYN):
        raise Unsupported(f"a selector that gives no bool: {expression}")
    return Selector(expression, node.run)


class _Parser(Parser[Node]):
    TOKEN, BINDING, DEEPEST = TOKEN, _BINDING, MOST_DEPTH

    def __init__(self) -> None:
        super().__init__()
        self.bound: dict[str, str] = {}
        self.texts: dict[int, str] = {}
        """What the texts say, by their offsets."""

    def scan(self, text: str) -> Iterator[Token]:
        """What cannot be read is refused before anything is parsed."""
        for kind, word, offset in super().scan(text):
            if kind == "triple":
                raise Unsupported("text in three quotes")
            if kind == "number" and int(word) > MAX_INT64:
                raise Unsupported(f"the number {word}")
            if kind in ("raw", "text"):
                self.texts[offset] = word[2:-1] if kind == "raw" else re.sub(r"\\(.)", _unescape, word[1:-1])
            yield Token("text" if kind == "raw" else kind, word, offset)

    def refusal(self, token: Token) -> Unsupported:
        return Unsupported(repr(token.text if token.kind else token.text[:20]))

    def too_deep(self) -> Unsupported:
        return Unsupported("a selector that is nested so deep")

    def need(self, text: str) -> None:
        if not self.take(text):
            raise Unsupported(f"{self.next.text!r} where {text!r} is expected")

    def name(self) -> str:
        if self.next.kind != "word":
            raise Unsupported(f"{self.next.text!r} where a name is expected")
        return self.advance().text

    def choice(self, found: Node) -> Node:
        if not self.take("?"):
            return found
        yes = self.expression()
        self.need(":")
        return _conditional_node(found, yes, self.inner())

    def join(self, sign: Token, left: Node, right: Node, begin: int) -> Node:
        if sign.text in ("||", "&&"):
            return _logical_node(left, right, absorbing=sign.text == "||")
        return _relation_node(sign.text, left, right)

    def operand(self, least: int) -> Node:
        if self.take("!"):
            return _negation(self.deeper(lambda: self.operand(least) if self.next.text == "!" else self.member()))
        if self.take("-"):
            if self.next.kind != "number":
                raise Unsupported("arithmetic")
            return self.members(_constant("int", -int(self.advance().text)))
        return self.member()

    def member(self) -> Node:
        return self.members(self.primary())

    def primary(self) -> Node:
        if self.take("("):
            node = self.inner()
            self.need(")")
            return Node(node.type, node.run, is_constant=node.is_constant)
        if self.take("["):
            return _list_node(self.items("]"))
        kind, word, offset = self.advance()
        if kind == "text":
            return _constant("string", self.texts[offset])
        if kind == "number":
            return _constant("int", int(word))
        if kind != "word":
            raise Unsupported(f"{word!r}" if word else "a selector that breaks off")
        if word in ("true", "false"):
            return _constant("bool", word == "true")
        if word == "cel":
            return self.binding()
        if self.take("("):
            return self.presence() if word == "has" else self.function(word)
        if word in self.bound:
            return Node(self.bound[word], _variable(word))
        if word != "device":
            raise Unsupported(word)
        return Node("device", lambda device, scope: device)

    def binding(self) -> Node:
        """`cel.bind(name, value, expression)`."""
        self.need(".")
        if self.name() != "bind":
            raise Unsupported("a function of cel other than bind")
        self.need("(")
        name = self.name()
        self.need(",")
        value = self.inner()
        self.need(",")
        before = self.bound
        self.bound = {**before, name: value.type}
        body = self.inner()
        self.bound = before
        self.need(")")
        return Node(
            body.type, lambda device, scope: body.run(device, {**scope, name: lambda: value.run(device, scope)})
        )

    def presence(self) -> Node:
        asked = self.items(")")
        if len(asked) != 1 or asked[0].key is None:
            raise Unsupported("has() of something that is no field")
        holder, name = asked[0].key
        if holder.type in INNER:
            return _constant("bool", True)  # a domain that is not there is an empty map
        if holder.type in ENTRY_TYPES:
            return Node("bool", lambda device, scope: name in holder.run(device, scope))
        raise Unsupported("has() of something that is no attribute and no capacity")

    def function(self, name: str) -> Node:
        function, given = FUNCTIONS.get(name), self.items(")")
        if function is None:
            raise Unsupported(f"{name}()")
        least = len(function.arguments) - function.optional
        if not least <= len(given) <= len(function.arguments):
            raise Unsupported(f"{name}() with {len(given)} arguments")
        for argument, wanted in zip(given, function.arguments, strict=False):
            if argument.type not in (wanted, DYN):
                raise Unsupported(f"{name}() of a {argument.type}")
        return Node(function.gives, lambda device, scope: function.run(*(each.run(device, scope) for each in given)))

    def members(self, node: Node) -> Node:
        while True:
            if self.take("."):
                name = self.name()
                node = self.method(node, name) if self.take("(") else _field(node, name)
            elif self.take("["):
                index = self.inner()
                self.need("]")
                if index.type != "string":
                    raise Unsupported(f"an index of type {index.type}")
                node = _lookup_node(node, index.run, None)
            else:
                return node

    def method(self, node: Node, name: str) -> Node:
        method, given = METHODS.get(name), self.items(")")
        if method is None:
            raise Unsupported(f".{name}()")
        if len(given) != method.takes:
            raise Unsupported(f".{name}() with {len(given)} arguments")
        types = [each.type for each in (node, *given)]
        known = {each for each in types if each != DYN}
        if len(known) > 1 or not known.issubset(method.receivers):
            raise Unsupported(f".{name}() of {' and '.join(types)}")
        if name == "matches":
            if given[0].text is None:
                raise Unsupported("a pattern that is worked out")
            pattern(given[0].text)
        if method.takes:
            return Node(
                method.gives, lambda device, scope: method.run(node.run(device, scope), given[0].run(device, scope))
            )
        return Node(method.gives, lambda device, scope: method.run(node.run(device, scope)))


def _list_node(items: list[Node]) -> Node:
    types = {each.type for each in items}
    if len(types) != 1 or not types.issubset(SCALARS):
        raise Unsupported("a list of several types, or an empty one")
    return Node(
        f"list of {types.pop()}",
        lambda device, scope: [each.run(device, scope) for each in items],
        is_constant=all(each.is_constant for each in items),
    )


def _constant(kind: str, value: Value) -> Node:
    return Node(kind, lambda device, scope: value, text=value if kind == "string" else None, is_constant=True)


def _variable(name: str) -> Run:
    return lambda device, scope: scope[name]()


def _field(holder: Node, name: str) -> Node:
    if holder.type == "device":
        if name not in DEVICE:
            raise Unsupported(f"device.{name}")
        return Node(DEVICE[name], _DEVICE_FIELDS[name])
    return _lookup_node(holder, lambda device, scope: name, (holder, name))


_DEVICE_FIELDS: Final[Mapping[str, Run]] = {
    "driver": lambda device, scope: device.driver,
    "allowMultipleAllocations": lambda device, scope: device.allows_multiple,
    "attributes": lambda device, scope: device.attributes,
    "capacity": lambda device, scope: device.capacity,
}


def _lookup_node(holder: Node, key: Run, field: tuple[Node, str] | None) -> Node:
    """An entry of a map: a domain that is missing is empty, a name that is missing is an error."""
    if holder.type in INNER:
        return Node(
            INNER[holder.type], lambda device, scope: holder.run(device, scope).get(key(device, scope), {}), field
        )
    if holder.type not in ENTRY_TYPES:
        raise Unsupported(f"a field of a {holder.type}")

    def look_up(device: View, scope: Scope) -> Value:
        entries, name = holder.run(device, scope), key(device, scope)
        if name not in entries:
            raise CelError(f"no such key: {name}")
        return entries[name]

    return Node(ENTRY_TYPES[holder.type], look_up, field)


def _truth(node: Node, otherwise: str, operator: str) -> Callable[[View, Scope], bool]:
    """A value that must be a bool. `otherwise`: what is not evaluated when its type is known to be another."""
    if node.type not in ("bool", DYN):
        raise Unsupported(otherwise)

    def decide(device: View, scope: Scope) -> bool:
        value = node.run(device, scope)
        if type(value) is not bool:
            raise no_overload(operator)
        return value

    return decide


def _logical_node(left: Node, right: Node, *, absorbing: bool) -> Node:
    """`&&` and `||`: one side may decide although the other is an error."""
    sides = [_truth(each, f"a condition of type {each.type}", "a condition") for each in (left, right)]

    def decide(device: View, scope: Scope) -> bool:
        error: CelError | None = None
        for side in sides:
            try:
                if side(device, scope) is absorbing:
                    return absorbing
            except CelError as fault:
                error = error or fault
        if error is not None:
            raise error
        return not absorbing

    return Node("bool", decide)


def _negation(node: Node) -> Node:
    holds = _truth(node, f"! of a {node.type}", "!")
    return Node("bool", lambda device, scope: not holds(device, scope))


def _conditional_node(condition: Node, yes: Node, no: Node) -> Node:
    types = {yes.type, no.type}
    holds = _truth(condition, "a choice between different types", "?:")
    if not types.issubset(SCALARS) or len(types - {DYN}) > 1:
        raise Unsupported("a choice between different types")
    return Node(
        DYN if DYN in types else yes.type,
        lambda device, scope: (yes if holds(device, scope) else no).run(device, scope),
    )


def _relation_node(operator: str, left: Node, right: Node) -> Node:
    if operator == "in":
        return _membership_node(left, right)
    types = {left.type, right.type}
    if not types.issubset(SCALARS) or len(types - {DYN}) > 1:
        raise Unsupported(f"{operator} between {left.type} and {right.type}")
    if operator in ORDER:
        if types & {"quantity", "semver"}:
            raise Unsupported(f"{operator} of a {'quantity' if 'quantity' in types else 'semver'}")
        return Node("bool", lambda device, scope: compare(operator, left.run(device, scope), right.run(device, scope)))
    if operator == "==":
        return Node("bool", lambda device, scope: is_equal(left.run(device, scope), right.run(device, scope)))
    return Node("bool", lambda device, scope: not is_same(left.run(device, scope), right.run(device, scope)))


def _membership_node(left: Node, right: Node) -> Node:
    if right.type in INNER or right.type in ENTRY_TYPES:
        if left.type != "string":
            raise Unsupported("a name that is no text, in a map")
        return Node("bool", lambda device, scope: left.run(device, scope) in right.run(device, scope))
    items = right.type.removeprefix("list of ")
    if items == right.type or left.type not in SCALARS or len({left.type, items} - {DYN}) > 1:
        raise Unsupported(f"{left.type} in {right.type}")

    def among(device: View, scope: Scope) -> bool:
        value, members = left.run(device, scope), right.run(device, scope)
        return in_constants(value, members) if right.is_constant else any(is_same(value, each) for each in members)

    return Node("bool", among)
