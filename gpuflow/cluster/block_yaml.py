"""The YAML that `kubectl get -o yaml` writes, read line by line: several times faster than any YAML parser.

Only what such output holds is read: block mappings and sequences, scalars on one line, literal blocks. Anything else
(anchors, flow style, comments, folded text, two equal keys) gives None, and `yaml_tree` reads the file. An object of a
list knows its own line; a value inside it has no place of its own, as in large JSON files.
"""

from __future__ import annotations

import re
from typing import Any

from gpuflow.core.yaml_tree import MAX_DEPTH, Position, parse_plain

_UNSUPPORTED = re.compile(r"[^\n\x20-\x7e\xa1-\u2027\u2030-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
"""Characters that YAML reads as something else, or not at all: tabs, carriage returns, other line breaks, controls."""
_KEY = re.compile(r"""("[^"\\]*"|'[^']*'|[A-Za-z0-9_./$](?:[^\s#:'"{}\[\],&*?|<>=!%@`]|:(?=\S))*):(?: +|$)""")
_INNER = re.compile(r": |:$| #")
"""What ends a plain scalar, or makes it a mapping."""
_NOT_PLAIN = frozenset("\"'|>&*!%@`{}[],#?")
_LITERAL = {"|": "\n", "|-": ""}
"""What becomes of the last line break of a literal block."""
_NOTHING, _MAP, _SEQ = object(), object(), object()


class Block(dict[str, Any]):
    """A mapping that knows where it begins."""

    __slots__ = ("spot",)

    def __init__(self, spot: Position) -> None:
        super().__init__()
        self.spot = spot


class _NotBlockYaml(Exception):
    """A line that only a YAML parser can read."""


MOST_LINES = 1_500_000
"""More of them take a gigabyte of memory; 32 MiB as kubectl writes them have a million."""


def read(text: str) -> list[Any] | None:
    """The documents of the text, or None when it is not written as kubectl writes."""
    if not text.endswith("\n") or text.count("\n") > MOST_LINES or _UNSUPPORTED.search(text):
        return None
    try:
        return _Reader(text).documents()
    except _NotBlockYaml:
        return None


class _Reader:
    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.has_marks = any(mark in f"\n{text}" for mark in ("\n---", "\n...", "\n%"))
        self.known: dict[str, tuple[int, bool, str | None, Any]] = {}
        """Lines repeat: what a line says is worked out once, and equal texts are kept once."""

    def documents(self) -> list[Any]:
        """Those that say something."""
        starts = [0]
        for number, line in enumerate(self.lines if self.has_marks else ()):
            if line == "---":
                starts.append(number + 1)
            elif line.startswith(("---", "...", "%")):
                raise _NotBlockYaml
        ends = [*(start - 1 for start in starts[1:]), len(self.lines)]
        found = (self.document(first, last) for first, last in zip(starts, ends, strict=True))
        return [document for document in found if document is not None]

    def document(self, number: int, last: int) -> Any:
        lines, known = self.lines, self.known
        while number < last and not lines[number]:
            number += 1
        if number == last:
            return None
        root = Block(Position(number + 1, 1))
        stack: list[tuple[int, Any]] = [(0, root)]
        indent, top = stack[0]
        opened: str | None = None  # a key whose value begins on the next line
        while number < last:
            line = lines[number]
            said = known.get(line)
            if said is None:
                content = line.lstrip(" ")
                if not content:
                    number += 1
                    continue
                said = known[line] = (len(line) - len(content), *_split_line(content))
            depth, is_item, key, value = said
            if opened is not None:
                name, opened = opened, None
                if is_item and depth >= indent:
                    child: Any = []
                elif not is_item and depth > indent:
                    child = {}
                else:
                    child = None
                top[name] = child
                if child is not None:
                    if len(stack) >= MAX_DEPTH:
                        raise _NotBlockYaml
                    indent, top = depth, child
                    stack.append((indent, top))
            # A list may stand below its key at the same depth: a key at that depth ends it.
            while indent > depth or (not is_item and indent == depth and type(top) is list):
                stack.pop()
                if not stack:
                    raise _NotBlockYaml
                indent, top = stack[-1]
            if indent != depth or is_item != (type(top) is list):
                raise _NotBlockYaml
            number += 1
            if is_item:
                if key is None:
                    top.append({} if value is _MAP else [] if value is _SEQ else value)
                    continue
                if len(stack) >= MAX_DEPTH:
                    raise _NotBlockYaml
                child = Block(Position(number, depth + 3)) if len(stack) == 2 else {}
                top.append(child)
                indent, top = depth + 2, child
                stack.append((indent, top))
            if key is None or key in top:
                raise _NotBlockYaml
            if value is _NOTHING:
                opened = key
                top[key] = None
            elif value is _MAP:
                top[key] = {}
            elif value is _SEQ:
                top[key] = []
            elif type(value) is _Literal:
                top[key], number = self.literal(value, number, last, indent)
            else:
                top[key] = value
        return root

    def literal(self, style: _Literal, number: int, last: int, indent: int) -> tuple[str, int]:
        """The text of a literal block, and the line after it."""
        lines, found = self.lines, []
        first = lines[number] if number < last else ""
        depth = len(first) - len(first.lstrip(" "))
        if depth <= indent or len(first) == depth:
            raise _NotBlockYaml
        while number < last:
            line = lines[number]
            if line.strip(" ") and not line.startswith(" " * depth):
                if len(line) - len(line.lstrip(" ")) > indent:
                    raise _NotBlockYaml
                break
            found.append(line[depth:])
            number += 1
        return "\n".join(found).rstrip("\n") + style.last, number


class _Literal:
    """The head of a literal block."""

    def __init__(self, last: str) -> None:
        self.last = last


def _split_line(content: str) -> tuple[bool, str | None, Any]:
    """What a line says without its indentation: whether it begins an item, the key, the value."""
    is_item = content.startswith("- ")
    if is_item:
        content = content[2:]
        if content.startswith((" ", "- ")) or content in ("", "-"):
            raise _NotBlockYaml
    elif content == "-":
        raise _NotBlockYaml
    if content.endswith(" "):
        raise _NotBlockYaml
    matched = _KEY.match(content)
    if matched is None:
        if not is_item:
            raise _NotBlockYaml
        return True, None, _scalar(content, inside_item=True)
    key = matched[1]
    if key[0] in "\"'":
        key = key[1:-1]
    elif not isinstance(parse_plain(key), str):
        raise _NotBlockYaml  # a number, a boolean or null as a key
    rest = content[matched.end() :]
    return is_item, key, _NOTHING if not rest else _scalar(rest, inside_item=False)


def _scalar(text: str, *, inside_item: bool) -> Any:
    if text == "{}":
        return _MAP
    if text == "[]":
        return _SEQ
    if text in _LITERAL and not inside_item:
        return _Literal(_LITERAL[text])
    first = text[0]
    if first == "'":
        body = text[1:-1]
        if len(text) < 2 or text[-1] != "'" or "'" in body.replace("''", ""):
            raise _NotBlockYaml
        return body.replace("''", "'")
    if first == '"':
        body = text[1:-1]
        if len(text) < 2 or text[-1] != '"' or '"' in body or "\\" in body:
            raise _NotBlockYaml
        return body
    if first in _NOT_PLAIN or _INNER.search(text) or (first in "-?:" and (len(text) == 1 or text[1] == " ")):
        raise _NotBlockYaml
    return parse_plain(text)
