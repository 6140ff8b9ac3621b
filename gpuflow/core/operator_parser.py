"""One parser of expressions, by how tightly operators bind; each language brings a table and reads its own operands.

Five languages: conditions of a pipeline (`spec.expression`), Argo's `when` and `{{=…}}` (`readers.argo.expressions`),
the CEL of Kubeflow's conditions (`readers.kfp.conditions`) and that of device selectors (`checker.dra.cel.parser`).
What an operand and two joined operands become is the language's matter: a tree, a value, a function of a device.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import ClassVar, Generic, NamedTuple, TypeVar

Part = TypeVar("Part")


class Token(NamedTuple):
    kind: str
    """The group of `Parser.TOKEN` that it is: a `sign` or a `word` may be an operator; `end` is behind the last one."""
    text: str
    offset: int


class Parser(Generic[Part]):
    """A text is parsed once; a language is a subclass."""

    TOKEN: ClassVar[re.Pattern[str]]
    """One named group for each kind of token; what the group `space` takes is left out."""
    BINDING: ClassVar[Mapping[str, int]]
    """How tightly each operator between two operands binds, from 0; operators of one level are taken from the left."""
    DEEPEST: ClassVar[int]

    def __init__(self) -> None:
        self.tokens: list[Token] = []
        self.at, self.depth, self.stuck = 0, 0, -1

    # What a language brings

    def refusal(self, token: Token) -> Exception:
        """For text that is no token (`kind` is empty) and for a token that does not belong there."""
        raise NotImplementedError

    def too_deep(self) -> Exception:
        return self.refusal(self.next)

    def operand(self, least: int) -> Part:
        """What stands between operators, with the signs before it and behind it."""
        raise NotImplementedError

    def join(self, sign: Token, left: Part, right: Part, begin: int) -> Part:
        """Two operands as one. `begin`: the offset of the first, or -1 where `left` was joined on this level."""
        raise NotImplementedError

    def right(self, sign: Token, level: int) -> Part:
        return self.expression(level + 1)

    def may_chain(self, sign: Token, left: Part) -> bool:
        """Whether an operator may follow one of its own level; one that may not belongs to nothing."""
        return True

    def choice(self, found: Part) -> Part:
        """What follows a whole expression: `? … : …`, where a language has it."""
        return found

    # The same for all

    def parse(self, text: str) -> Part:
        self.tokens = [*self.scan(text), Token("end", "", len(text))]
        found = self.inner()
        if self.next.kind != "end":
            raise self.refusal(self.next)
        return found

    def scan(self, text: str) -> Iterator[Token]:
        at = 0
        while at < len(text):
            match = self.TOKEN.match(text, at)
            if match is None or match.lastgroup is None:
                raise self.refusal(Token("", text[at:], at))
            kind = match.lastgroup
            if kind != "space":
                yield Token(kind, match[kind], match.start(kind))
            at = match.end()

    def inner(self) -> Part:
        """A whole expression, one level deeper."""
        return self.deeper(lambda: self.choice(self.expression()))

    def deeper(self, read: Callable[[], Part]) -> Part:
        self.depth += 1
        if self.depth > self.DEEPEST:
            raise self.too_deep()
        found = read()
        self.depth -= 1
        return found

    def expression(self, least: int = 0) -> Part:
        begin, found, last = self.next.offset, self.operand(least), -1
        while (sign := self.operator()) is not None and (level := self.BINDING[sign.text]) >= least:
            if level == last and not self.may_chain(sign, found):
                self.stuck = self.at  # nobody around takes it either
                break
            self.at += 1
            found = self.join(sign, found, self.right(sign, level), -1 if level == last else begin)
            last = level
        return found

    def operator(self) -> Token | None:
        token = self.tokens[self.at]
        is_operator = token.kind in ("sign", "word") and token.text in self.BINDING and self.at != self.stuck
        return token if is_operator else None

    @property
    def next(self) -> Token:
        return self.tokens[self.at]

    def advance(self) -> Token:
        """The next token, used up; the end stays where it is."""
        token = self.tokens[self.at]
        self.at += token.kind != "end"
        return token

    def take(self, *texts: str) -> bool:
        """Whether one of these signs or words comes next; it is then used up."""
        token = self.tokens[self.at]
        if token.kind in ("sign", "word") and token.text in texts:
            self.at += 1
            return True
        return False

    def need(self, text: str) -> None:
        if not self.take(text):
            raise self.refusal(self.next)

    def items(self, end: str) -> list[Part]:
        """Whole expressions with commas between and perhaps behind them, up to `end`."""
        found: list[Part] = []
        while not self.take(end):
            found.append(self.inner())
            if not self.take(","):
                self.need(end)
                break
        return found
