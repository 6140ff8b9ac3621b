"""YAML as a tree that remembers where everything stands.

Built from parser events, because the ordinary loaders forget positions, accept duplicate keys, follow alias bombs and
recurse without limit. Scalars follow the YAML 1.2 core schema: only `true` and `false` are booleans, so `on`, `no` and
`y` stay text. Numbers keep their spelling, so `[--lr, 1e-3]` reaches a container as `1e-3`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any, NoReturn

import msgspec
import yaml

from gpuflow.core import printable
from gpuflow.core.errors import Finding, GpuflowError, Where

MAX_BYTES = 32 * 1024 * 1024
MAX_VALUES = 800_000
"""Keys and values of one file, both ends of each mapping and list included: they take a third of a gigabyte."""
MAX_DEPTH = 100
MAX_ALIASED_NODES = 200_000
"""How many nodes may come from following aliases: a "billion laughs" document passes any such bound at once."""

Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_KEYWORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBERS_BEGIN = frozenset("0123456789+-.")
_CORE = "tag:yaml.org,2002:"


class Position(msgspec.Struct, frozen=True, gc=False):
    """A 1-based line and column. A document has one for each key and value, so the garbage collector skips them."""

    line: int
    column: int


class Int(int):
    """A whole number that remembers how it was spelled."""

    text: str


class Float(float):
    """A number that remembers how it was spelled."""

    text: str


class Map(dict[str, Any]):
    """A mapping with the place of each key and each value."""

    __slots__ = ("file", "file_at", "key_at", "spot", "value_at")

    def __init__(self, spot: Position) -> None:
        self.spot = spot
        self.file: str | None = None  # set on the root of a document: an included sub-pipeline is another file
        self.file_at: dict[str, str] = {}  # keys that came from yet another file, as a site's from what it extends
        self.key_at: dict[str, Position] = {}
        self.value_at: dict[str, Position] = {}


class Seq(list[Any]):
    """A sequence with the place of each item."""

    __slots__ = ("item_at", "spot")

    def __init__(self, spot: Position) -> None:
        self.spot = spot
        self.item_at: list[Position] = []


@dataclass(slots=True)
class _Open:
    """A collection that is being filled."""

    value: Any
    """A Map or a Seq."""
    anchor: str | None
    is_map: bool
    key: str | None = None
    key_spot: Position | None = None
    merging: bool = False
    """The key is a plain `<<`; in quotes it is a key like any other."""
    merges: list[Map] | None = None


def parse(text: str | bytes, file: str) -> Any:
    """The single document in `text`. Raises `GpuflowError` with a code and a position for anything that is not one."""
    if isinstance(text, bytes):
        text = decode(text, file)
    elif len(text) > MAX_BYTES:
        refuse_size(len(text), file)
    documents = parse_all(text, file, most=1)
    return documents[0] if documents else None


def parse_all(
    text: str, file: str, most: int | None = None, read: Callable[[yaml.ScalarEvent], Any] | None = None
) -> list[Any]:
    """All documents of a stream. `read` says what a scalar is, for whoever needs more than its value."""
    builder = _Builder(file, read, most)
    text = _without_surrogates(text)
    try:
        _feed(builder, text)
    except yaml.MarkedYAMLError as problem:
        raise GpuflowError(_syntax_finding(problem, file)) from None
    except yaml.reader.ReaderError as problem:
        character = getattr(problem, "character", None)
        shown = f"#x{character:04x}" if isinstance(character, int) else repr(character)
        offset = getattr(problem, "position", 0) or 0
        where = Where(file, text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset))
        message = f"the character {shown} is not allowed in YAML"
        raise GpuflowError(Finding("GF103", message, where, "remove it")) from None
    return builder.documents


def _feed(builder: _Builder, text: str) -> None:
    """Hand the parser's events to the builder, by one call for each where `yaml.parse` and a generator make three."""
    loader = Loader(text)
    next_event, scalar, value, takes = loader.get_event, yaml.ScalarEvent, builder.value, builder.takes()
    try:
        for event in islice(iter(next_event, None), MAX_VALUES):
            if type(event) is scalar:  # most are
                value(event)
                continue
            take = takes.get(type(event))
            if take is not None:
                take(event)
        if (event := next_event()) is not None:
            hint = "split it; write a cluster's manifests as JSON, or let gpuflow snapshot write what a check needs"
            builder.refuse("GF102", f"the file has more than {MAX_VALUES:,} keys and values", _position_of(event), hint)
    finally:
        loader.dispose()


_SURROGATES = re.compile(r"(?<!\\)((?:\\\\)*)\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


def _without_surrogates(text: str) -> str:
    """JSON writes an emoji as two escapes, which YAML does not read; in a JSON text they become the one it does."""
    if "\\u" not in text or not _SURROGATES.search(text):
        return text
    try:
        json.loads(text)
    except ValueError:
        return text  # only JSON has no quotes in which the escapes would be plain text

    def join_pair(pair: re.Match[str]) -> str:
        high, low = int(pair[2], 16), int(pair[3], 16)
        return f"{pair[1]}\\U{0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00):08x}"

    return _SURROGATES.sub(join_pair, text)


def decode(raw: bytes, file: str) -> str:
    """Bytes as UTF-8 text, or GF102/GF103."""
    if len(raw) > MAX_BYTES:
        refuse_size(len(raw), file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = raw.count(b"\n", 0, problem.start) + 1
        column = problem.start - (raw.rfind(b"\n", 0, problem.start) + 1) + 1
        text = f"the file is not UTF-8: byte 0x{raw[problem.start]:02x} at offset {problem.start}"
        raise GpuflowError(Finding("GF103", text, Where(file, line, column), "save the file as UTF-8")) from None


def require_plain_name(file: str, where: Where | None = None) -> None:
    """GF129: no honest file has a line break in its name, and names stand in logs, reports and compiled files."""
    at = printable.control_at(file)
    if at is not None:
        message = f"character {at + 1} of the file's path is the control character {printable.line(file[at])}"
        raise GpuflowError(Finding("GF129", message, where or Where(file), "rename the file or folder"))


def refuse_size(size: int, file: str) -> NoReturn:
    """GF102: the file is too large to be written by hand, and reading it would take minutes."""
    text = f"the file has {size:,} bytes; documents over {MAX_BYTES:,} bytes are refused"
    hint = "split it into sub-pipelines, or use for_each instead of one step per item"
    raise GpuflowError(Finding("GF102", text, Where(file, 1, 1), hint))


def _syntax_finding(problem: yaml.MarkedYAMLError, file: str) -> Finding:
    mark = problem.problem_mark or problem.context_mark
    where = Where(file, mark.line + 1, mark.column + 1) if mark else Where(file, 1, 1)
    words = " ".join(part for part in (problem.context, problem.problem) if part)
    if "\\t" in words or ("character that cannot start any token" in words and _tab_at(mark)):
        return Finding("GF104", "a tab is used for indentation, which YAML forbids", where, "indent with spaces")
    return Finding("GF101", f"not valid YAML: {words}", where, "fix the syntax at this place")


def _tab_at(mark: Any) -> bool:
    """The C parser does not name the character; look at it where the mark keeps the text."""
    buffer, pointer = getattr(mark, "buffer", None), getattr(mark, "pointer", None)
    return buffer is None or (isinstance(pointer, int) and buffer[pointer : pointer + 1] == "\t")


class _Builder:
    """Turns parser events into documents."""

    def __init__(
        self, file: str, read: Callable[[yaml.ScalarEvent], Any] | None = None, most: int | None = None
    ) -> None:
        self.file = file
        self._read = read
        self._most = most
        self.documents: list[Any] = []
        self.document_spot = Position(1, 1)
        self._stack: list[_Open] = []
        self._top: _Open | None = None
        """The last of them."""
        self._anchors: dict[str, Any] = {}
        self._sizes: dict[str, tuple[int, int]] = {}
        self._aliased = 0
        self._plain = False

    def takes(self) -> dict[type[yaml.Event], Callable[[Any], None]]:
        """What is done with each event but a scalar. Not kept: a builder that held its own methods would outlive its
        use, and so would all that it has built, until the collector finds it."""
        return {
            yaml.MappingStartEvent: lambda event: self._open(Map(_position_of(event)), event),
            yaml.SequenceStartEvent: lambda event: self._open(Seq(_position_of(event)), event),
            yaml.MappingEndEvent: self._close,
            yaml.SequenceEndEvent: self._close,
            yaml.AliasEvent: lambda event: self._put(self._alias(event), _position_of(event)),
            yaml.DocumentStartEvent: self._begin,
        }

    def refuse(self, code: str, message: str, spot: Position, hint: str | None = None) -> NoReturn:
        raise GpuflowError(Finding(code, message, Where(self.file, spot.line, spot.column), hint))

    def _begin(self, event: yaml.DocumentStartEvent) -> None:
        self.document_spot = _position_of(event)
        self._anchors.clear()
        self._sizes.clear()

    def value(self, event: Any) -> None:
        """A scalar. There are more of them than of all else, so that the usual case makes no calls."""
        value, is_plain = event.value, event.implicit[0]
        if event.tag is not None or self._read is not None:
            value = self._scalar(event)
        elif is_plain and (value in _KEYWORDS or value[0] in _NUMBERS_BEGIN):  # as `value_of` says
            value = parse_plain(value)
        mark = event.start_mark
        spot = Position(mark.line + 1, mark.column + 1)
        if event.anchor is not None:
            self._name(event.anchor, value)
        self._plain, top = is_plain, self._top
        if top is None or not top.is_map or top.merging:
            self._put(value, spot)
        elif top.key is not None:  # as `_entry` says
            entries, key, top.key = top.value, top.key, None
            entries.key_at[key] = top.key_spot
            entries.value_at[key] = spot
            entries[key] = value
        elif type(value) is str and value != "<<" and value not in top.value.key_at:  # as `_key` says
            top.key, top.key_spot = value, spot
        else:
            self._key(top, value, spot)

    def _open(self, value: Map | Seq, event: Any) -> None:
        top, is_map = self._top, type(value) is Map
        if len(self._stack) >= MAX_DEPTH:
            self.refuse("GF105", f"nested deeper than {MAX_DEPTH} levels", value.spot, "flatten the document")
        if event.tag is not None and event.tag not in ("!", _CORE + ("map" if is_map else "seq")):
            self.refuse("GF106", f"the tag {event.tag} is not supported", value.spot, "remove the tag")
        if top is not None and top.is_map and top.key is None:
            self.refuse("GF107", "a key must be plain text", value.spot, "write the key as a word")
        self._top = _Open(value, event.anchor, is_map)
        self._stack.append(self._top)

    def _close(self, _: yaml.Event) -> None:
        done = self._stack.pop()
        self._top = self._stack[-1] if self._stack else None
        for merged in done.merges or ():
            for key, item in merged.items():
                if key not in done.value:
                    done.value[key] = item
                    done.value.key_at[key] = merged.key_at[key]
                    done.value.value_at[key] = merged.value_at[key]
        if done.anchor is not None:
            self._name(done.anchor, done.value)
        self._put(done.value, done.value.spot)

    def _name(self, anchor: str, value: Any) -> None:
        self._anchors[anchor] = value
        self._sizes.pop(anchor, None)  # an anchor may be defined again, as something larger

    def _put(self, value: Any, spot: Position) -> None:
        """A value in its place: a document, an item, a key, or what stands behind one."""
        top = self._top
        if top is None:
            self._document(value)
        elif not top.is_map:
            top.value.append(value)
            top.value.item_at.append(spot)
        elif top.key is None:
            self._key(top, value, spot)
        else:
            self._entry(top, value, spot)

    def _document(self, value: Any) -> None:
        if isinstance(value, Map):
            value.file = self.file
        self.documents.append(value)
        if self._most is not None and len(self.documents) > self._most:
            self.refuse("GF108", "the file holds more than one document", self.document_spot, "keep one per file")

    def _key(self, top: _Open, value: Any, spot: Position) -> None:
        if not isinstance(value, str):
            if isinstance(value, Map | Seq):
                self.refuse("GF107", "a key must be plain text", spot, "write the key as a word")
            value = getattr(value, "text", None) or ("null" if value is None else str(value).lower())
        top.merging = value == "<<" and self._plain
        if value in top.value.key_at and not top.merging:
            text = f'the key "{value}" stands twice in this mapping, first on line {top.value.key_at[value].line}'
            self.refuse("GF109", text, spot, "keep one of the two")
        top.key, top.key_spot = value, spot

    def _entry(self, top: _Open, value: Any, spot: Position) -> None:
        key, top.key = top.key, None
        if top.merging:
            top.merging = False
            merged = value if isinstance(value, Seq) else [value]
            if not all(isinstance(part, Map) for part in merged):
                self.refuse("GF107", "`<<` merges mappings only", spot, "give it an alias of a mapping")
            top.merges = [*(top.merges or ()), *merged]
            return
        entries = top.value
        entries.key_at[key] = top.key_spot
        entries.value_at[key] = spot
        entries[key] = value

    def _alias(self, event: yaml.AliasEvent) -> Any:
        name = event.anchor
        if name not in self._anchors:
            why, hint = f"the alias *{name} is not defined before this line", "define it with an anchor first"
            if any(opened.anchor == name for opened in self._stack):
                why = f"the alias *{name} contains itself"
                hint = f"a value cannot be a part of itself: write out what is meant in place of *{name}"
            self.refuse("GF110", why, _position_of(event), hint)
        value = self._anchors[name]
        if name not in self._sizes:
            self._sizes[name] = self._count(value)
        size, depth = self._sizes[name]
        if len(self._stack) + depth > MAX_DEPTH:
            self.refuse("GF105", f"nested deeper than {MAX_DEPTH} levels", _position_of(event), "flatten the document")
        self._aliased += size
        if self._aliased > MAX_ALIASED_NODES:
            text = f"aliases expand to more than {MAX_ALIASED_NODES:,} nodes"
            self.refuse("GF111", text, _position_of(event), "write the values out, or use defaults")
        return value

    def _count(self, value: Any) -> tuple[int, int]:
        """How many nodes `value` stands for, shared parts counted each time, and how deep they nest."""
        total, depth, waiting = 0, 0, [value]
        while waiting and total <= MAX_ALIASED_NODES and depth <= MAX_DEPTH:
            level, waiting = waiting, []
            total += len(level)
            depth += any(isinstance(item, dict | list) for item in level)
            for item in level:
                waiting += item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        return total, depth

    def _scalar(self, event: yaml.ScalarEvent) -> Any:
        if event.tag is not None and event.tag not in SCALAR_TAGS:
            self.refuse("GF106", f"the tag {event.tag} is not supported", _position_of(event), "remove the tag")
        return (self._read or value_of)(event)


SCALAR_TAGS = ("!", *(_CORE + name for name in ("str", "int", "float", "bool", "null")))


def value_of(event: yaml.ScalarEvent) -> Any:
    """What a scalar is in YAML 1.2, by its tag and its quotes."""
    if event.tag is None:
        return parse_plain(event.value) if event.implicit[0] else event.value
    return event.value if event.tag in ("!", _CORE + "str") else parse_plain(event.value)


def parse_plain(text: str) -> Any:
    """What an unquoted scalar means in the YAML 1.2 core schema."""
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    # Spelled-out numbers beyond what any field holds stay text, so that a huge literal cannot stall the reader.
    return _number(text) if text[0] in _NUMBERS_BEGIN and len(text) <= 300 else text


@lru_cache(maxsize=4096)
def _number(text: str) -> Int | Float | str:
    """The number that `text` spells, else the text: a document has few different ones, many times each."""
    if _INT.fullmatch(text):
        number = Int(int(text, 0) if text[:2] in ("0o", "0x") else int(text))
        number.text = text
        return number
    if _FLOAT.fullmatch(text):
        decimal = Float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        decimal.text = text
        return decimal
    return text


def _position_of(event: Any) -> Position:
    mark = event.start_mark
    return Position(mark.line + 1, mark.column + 1)


def where_of(tree: Any, path: tuple[str | int, ...], *, key: bool = False) -> Where:
    """Where the value at `path` stands (or its key); the nearest place above it when the path leads nowhere."""
    spot, file = getattr(tree, "spot", Position(1, 1)), getattr(tree, "file", None)
    for depth, part in enumerate(path):
        if isinstance(tree, Map) and isinstance(part, str) and part in tree:
            last = depth == len(path) - 1
            spot = tree.key_at[part] if key and last else tree.value_at[part]
            file = tree.file_at.get(part, file)
            tree = tree[part]
        elif isinstance(tree, Seq) and isinstance(part, int) and 0 <= part < len(tree):
            spot = tree.item_at[part]
            tree = tree[part]
        else:
            break
        if getattr(tree, "file", None):
            file, spot = tree.file, tree.spot
    return Where(file, spot.line, spot.column)
