"""A selector as a function of a device.

The text is cut into tokens and parsed. Types are checked as far as they are known before a device is: what Kubernetes
would not compile is not judged. An attribute may be of any type.

Mirrors k8s.io/dynamic-resource-allocation/cel.CompileCELExpression and DeviceMatches, Kubernetes v1.36.3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from gpuflow.checker.dra.cel.values import (
    FUNCTIONS,
    METHODS,
    ORDER,
    CelError,
    CelPanic,
    Unsupported,
    Value,
    View,
    compare,
    in_constants,
    is_equal,
    is_same,
    no_overload,
    pattern,
)

WORD: Final = re.compile(
    r"""
    (?P<space>[ \t\n\r\f]+|//[^\n]*)
  | (?P<raw>[rR](?:"[^"\n]*"|'[^'\n]*'))
  | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<number>[0-9]+(?![0-9A-Za-z_.]))
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>==|!=|<=|>=|&&|\|\||[<>!().,?:\[\]-])
    """,
    re.VERBOSE,
)
ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'", "`": "`", "?": "?"}
MAX_INT64: Final = 2**63 - 1


class Token(NamedTuple):
    kind: str
    text: str
    value: str | int


def tokens(expression: str) -> Iterator[Token]:
    position = 0
    while position < len(expression):
        if expression.startswith(('"""', "'''"), position):
            raise Unsupported("text in three quotes")
        found = WORD.match(expression, position)
        if found is None or found.lastgroup is None:
            raise Unsupported(f"{expression[position : position + 20]!r}")
        kind, text, position = found.lastgroup, found[0], found.end()
        if kind == "raw":
            yield Token("text", text, text[2:-1])
        elif kind == "text":
            yield Token("text", text, re.sub(r"\\(.)", _unescape, text[1:-1]))
        elif kind == "number":
            if int(text) > MAX_INT64:
                raise Unsupported(f"the number {text}")
            yield Token("number", text, int(text))
        elif kind != "space":
            yield Token(kind, text, text)


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
END: Final = Token("end", "", "")
MOST_DEPTH: Final = 60


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
    parser = _Parser(list(tokens(expression)))
    node = parser.parse()
    if node.type not in ("bool", DYN):
        raise Unsupported(f"a selector that gives no bool: {expression}")
    return Selector(expression, node.run)


class _Parser:
    def __init__(self, words: list[Token]) -> None:
        self.words, self.position, self.depth = words, 0, 0
        self.bound: dict[str, str] = {}

    @property
    def next(self) -> Token:
        return self.words[self.position] if self.position < len(self.words) else END

    def take(self, *texts: str) -> bool:
        """Whether one of these signs comes next; it is then used up."""
        if self.next.kind in ("sign", "name") and self.next.text in texts:
            self.position += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise Unsupported(f"{self.next.text!r} where {text!r} is expected")

    def name(self) -> str:
        word = self.next
        if word.kind != "name":
            raise Unsupported(f"{word.text!r} where a name is expected")
        self.position += 1
        return word.text

    def parse(self) -> Node:
        node = self.expression()
        if self.next is not END:
            raise Unsupported(f"{self.next.text!r}")
        return node

    def expression(self) -> Node:
        self.depth += 1
        if self.depth > MOST_DEPTH:
            raise Unsupported("a selector that is nested so deep")
        condition = self.disjunction()
        if self.take("?"):
            yes = self.disjunction()
            self.need(":")
            condition = _conditional_node(condition, yes, self.expression())
        self.depth -= 1
        return condition

    def disjunction(self) -> Node:
        node = self.conjunction()
        while self.take("||"):
            node = _logical_node(node, self.conjunction(), absorbing=True)
        return node

    def conjunction(self) -> Node:
        node = self.relation()
        while self.take("&&"):
            node = _logical_node(node, self.relation(), absorbing=False)
        return node

    def relation(self) -> Node:
        node = self.unary()
        while self.next.text in ("==", "!=", "in", *ORDER) and self.next.kind in ("sign", "name"):
            operator = self.next.text
            self.position += 1
            node = _relation_node(operator, node, self.unary())
        return node

    def unary(self) -> Node:
        if self.take("!"):
            return _negation(self.unary_of("!"))
        if self.take("-"):
            word = self.next
            if word.kind != "number":
                raise Unsupported("arithmetic")
            self.position += 1
            return self.members(_constant("int", -int(word.value)))
        return self.members(self.primary())

    def unary_of(self, sign: str) -> Node:
        """What stands behind a sign that may be repeated."""
        if self.take(sign):
            return _negation(self.unary_of(sign))
        return self.members(self.primary())

    def primary(self) -> Node:
        word = self.next
        if self.take("("):
            node = self.expression()
            self.need(")")
            return Node(node.type, node.run, is_constant=node.is_constant)
        if self.take("["):
            return self.list()
        self.position += 1
        if word.kind == "text":
            return _constant("string", word.value)
        if word.kind == "number":
            return _constant("int", word.value)
        if word.kind != "name":
            raise Unsupported(f"{word.text!r}" if word.text else "a selector that breaks off")
        if word.text in ("true", "false"):
            return _constant("bool", word.text == "true")
        if word.text == "cel":
            return self.binding()
        if self.take("("):
            return self.presence() if word.text == "has" else self.function(word.text)
        if word.text in self.bound:
            return Node(self.bound[word.text], _variable(word.text))
        if word.text != "device":
            raise Unsupported(f"{word.text}")
        return Node("device", lambda device, scope: device)

    def list(self) -> Node:
        items: list[Node] = []
        while not self.take("]"):
            items.append(self.expression())
            if not self.take(","):
                self.need("]")
                break
        types = {each.type for each in items}
        if len(types) != 1 or not types.issubset(SCALARS):
            raise Unsupported("a list of several types, or an empty one")
        return Node(
            f"list of {types.pop()}",
            lambda device, scope: [each.run(device, scope) for each in items],
            is_constant=all(each.is_constant for each in items),
        )

    def arguments(self) -> tuple[Node, ...]:
        found: list[Node] = []
        while not self.take(")"):
            found.append(self.expression())
            if not self.take(","):
                self.need(")")
                break
        return tuple(found)

    def binding(self) -> Node:
        """`cel.bind(name, value, expression)`."""
        self.need(".")
        if self.name() != "bind":
            raise Unsupported("a function of cel other than bind")
        self.need("(")
        name = self.name()
        self.need(",")
        value = self.expression()
        self.need(",")
        before = self.bound
        self.bound = {**before, name: value.type}
        body = self.expression()
        self.bound = before
        self.need(")")
        return Node(
            body.type, lambda device, scope: body.run(device, {**scope, name: lambda: value.run(device, scope)})
        )

    def presence(self) -> Node:
        asked = self.arguments()
        if len(asked) != 1 or asked[0].key is None:
            raise Unsupported("has() of something that is no field")
        holder, name = asked[0].key
        if holder.type in INNER:
            return _constant("bool", True)  # a domain that is not there is an empty map
        if holder.type in ENTRY_TYPES:
            return Node("bool", lambda device, scope: name in holder.run(device, scope))
        raise Unsupported("has() of something that is no attribute and no capacity")

    def function(self, name: str) -> Node:
        function, given = FUNCTIONS.get(name), self.arguments()
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
                index = self.expression()
                self.need("]")
                node = _index_node(node, index)
            else:
                return node

    def method(self, node: Node, name: str) -> Node:
        method, given = METHODS.get(name), self.arguments()
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


def _index_node(holder: Node, index: Node) -> Node:
    if index.type != "string":
        raise Unsupported(f"an index of type {index.type}")
    return _lookup_node(holder, index.run, None)


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


def _logical_node(left: Node, right: Node, *, absorbing: bool) -> Node:
    """`&&` and `||`: one side may decide although the other is an error."""
    for each in (left, right):
        if each.type not in ("bool", DYN):
            raise Unsupported(f"a condition of type {each.type}")

    def decide(device: View, scope: Scope) -> bool:
        error: CelError | None = None
        for side in (left, right):
            try:
                value = side.run(device, scope)
            except CelError as fault:
                error = error or fault
                continue
            if type(value) is not bool:
                error = error or no_overload("a condition")
            elif value is absorbing:
                return absorbing
        if error is not None:
            raise error
        return not absorbing

    return Node("bool", decide)


def _negation(node: Node) -> Node:
    if node.type not in ("bool", DYN):
        raise Unsupported(f"! of a {node.type}")

    def negate(device: View, scope: Scope) -> bool:
        value = node.run(device, scope)
        if type(value) is not bool:
            raise no_overload("!")
        return not value

    return Node("bool", negate)


def _conditional_node(condition: Node, yes: Node, no: Node) -> Node:
    types = {yes.type, no.type}
    if condition.type not in ("bool", DYN) or not types.issubset(SCALARS) or len(types - {DYN}) > 1:
        raise Unsupported("a choice between different types")

    def choose(device: View, scope: Scope) -> Value:
        value = condition.run(device, scope)
        if type(value) is not bool:
            raise no_overload("?:")
        return (yes if value else no).run(device, scope)

    return Node(DYN if DYN in types else yes.type, choose)


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
