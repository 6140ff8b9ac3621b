"""The parser that every language of conditions stands on, with a toy language."""

from __future__ import annotations

import re
from typing import ClassVar

import pytest

from gpuflow.core.operator_parser import Parser, Token


class Refused(Exception):
    """With the offset of what was refused."""


class Toy(Parser[str]):
    """Numbers, `+ * ==`, brackets and lists; an answer shows how operands were joined."""

    TOKEN = re.compile(r"(?P<space>\s+)|(?P<number>\d+)|(?P<word>[a-z]+)|(?P<sign>==|[-+*()\[\],])")
    BINDING: ClassVar = {"==": 0, "+": 1, "plus": 1, "*": 2}
    DEEPEST = 5

    def refusal(self, token: Token) -> Exception:
        return Refused(token.offset, token.text)

    def may_chain(self, sign: Token, left: str) -> bool:
        return sign.text != "=="

    def join(self, sign: Token, left: str, right: str, begin: int) -> str:
        return f"({left}{sign.text}{right})"

    def operand(self, least: int) -> str:
        if self.take("("):
            inner = self.inner()
            self.need(")")
            return inner
        if self.take("["):
            return f"[{' '.join(self.items(']'))}]"
        token = self.advance()
        if token.kind != "number":
            raise self.refusal(token)
        return token.text


@pytest.mark.parametrize(
    ("text", "joined"),
    [
        ("1", "1"),
        (" 1+2 + 3 ", "((1+2)+3)"),
        ("1 + 2 * 3", "(1+(2*3))"),
        ("1 * 2 + 3", "((1*2)+3)"),
        ("1 * (2 + 3)", "(1*(2+3))"),
        ("1 plus 2 + 3 == 4 * 5", "(((1plus2)+3)==(4*5))"),
        ("1 == (2 == 3)", "(1==(2==3))"),
        ("[]", "[]"),
        ("[1, 2 + 3]", "[1 (2+3)]"),
        ("[1, [2,],]", "[1 [2]]"),
        ("((((1))))", "1"),
    ],
)
def test_tighter_operators_join_first_and_equal_ones_from_the_left(text: str, joined: str) -> None:
    assert Toy().parse(text) == joined


@pytest.mark.parametrize(
    ("text", "offset", "word"),
    [
        ("1 == 2 == 3", 7, "=="),
        ("1 == 2 + 3 == 4", 11, "=="),
        ("1 + (2 == 3 == 4)", 12, "=="),
        ("1 2", 2, "2"),
        ("1 +", 3, ""),
        ("", 0, ""),
        ("(1", 2, ""),
        ("[1 2]", 3, "2"),
        ("[,]", 1, ","),
        ("1 + a", 4, "a"),
        ("1 - 2", 2, "-"),
        ("1 + ?2", 4, "?2"),
        ("(((((1)))))", 5, "1"),
        ("[[[[[1]]]]]", 5, "1"),
    ],
)
def test_what_does_not_belong_is_refused_where_it_stands(text: str, offset: int, word: str) -> None:
    with pytest.raises(Refused) as refusal:
        Toy().parse(text)
    assert refusal.value.args == (offset, word)


class Tight(Toy):
    """The operator that cannot be chained binds tighter than others: nothing further out takes it either."""

    BINDING: ClassVar = {"+": 0, "==": 1}


def test_an_operator_that_cannot_be_chained_is_not_taken_further_out() -> None:
    assert Tight().parse("1 + 2 == 3 + 4") == "((1+(2==3))+4)"
    with pytest.raises(Refused) as refusal:
        Tight().parse("1 + 2 == 3 == 4")
    assert refusal.value.args == (11, "==")
