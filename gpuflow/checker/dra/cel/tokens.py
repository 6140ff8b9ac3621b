"""A selector cut into words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from gpuflow.checker.dra.cel.values import Unsupported

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
            yield Token("text", text, re.sub(r"\\(.)", _escaped, text[1:-1]))
        elif kind == "number":
            if int(text) > MAX_INT64:
                raise Unsupported(f"the number {text}")
            yield Token("number", text, int(text))
        elif kind != "space":
            yield Token(kind, text, text)


def _escaped(found: re.Match[str]) -> str:
    if found[1] not in ESCAPES:
        raise Unsupported(f"the escape {found[0]}")
    return ESCAPES[found[1]]
