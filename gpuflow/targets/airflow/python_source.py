"""Python source as data: calls, conditions and literals, written the way a formatter would, always the same bytes.

`HOMES` names the module from which a DAG file imports each name that it may use.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.core import printable

WIDTH = 120
_STEP = "    "


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """`name(args, key=value)`."""

    name: str
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Import:
    """An object that the user names by its import path; with arguments, a call of it."""

    module: str
    attribute: str
    arguments: Mapping[str, Any] | None = None

    def expression(self, name: str) -> Name | Call:
        """As the file writes it, where it is imported under this name."""
        return Name(name) if self.arguments is None else Call(name, (), self.arguments)


@dataclass(frozen=True, slots=True)
class Method:
    """`target.name(args, key=value)`."""

    target: Any
    name: str
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Infix:
    """`left sign right`, for arithmetic and conditions."""

    sign: str
    left: Any
    right: Any


@dataclass(frozen=True, slots=True)
class Invert:
    """`~term`."""

    term: Any


@dataclass(frozen=True, slots=True)
class MergedDict:
    """`{**name, key: value}`."""

    name: Name
    own: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExtendedList:
    """`[*name, item]`."""

    name: Name
    rest: list[Any]


@dataclass(frozen=True, slots=True)
class WithComment:
    """A value with the reason for it, which the file has as a comment."""

    value: Any
    because: str


def source_text(node: Any, indent: str = "", used: int = 0) -> str:
    """The source of a node that starts at `indent` and already has `used` characters before it on its line."""
    flat = _flat(node)
    if flat is not None and len(indent) + used + len(flat) <= WIDTH:
        return flat
    return _multi_line(node, indent)


def string_literal(text: str) -> str:
    """A string literal: in double quotes unless single ones need fewer escapes, as formatters have it.

    Invisible and direction-changing characters are escaped: what a reviewer sees is what runs.
    """
    plain = json.dumps(text, ensure_ascii=False)
    if text.count('"') > text.count("'"):
        inner = plain[1:-1].replace('\\"', '"').replace("'", "\\'")
        plain = f"'{inner}'"
    return printable.escape_literal(plain)


def _flat(node: Any) -> str | None:
    """On one line."""
    if isinstance(node, str):
        return string_literal(node)
    if isinstance(node, Name):
        return node.text
    if isinstance(node, Infix):
        left, right = _operand(node.left), _operand(node.right)
        return None if left is None or right is None else f"{left} {node.sign} {right}"
    if isinstance(node, Invert):
        term = _operand(node.term)
        return None if term is None else f"~{term}"
    if isinstance(node, WithComment):
        return None  # a comment ends its line
    if (bracketed := _brackets_of(node)) is None:
        return repr(node)
    start, words, end = bracketed
    head = _flat(node.target) if isinstance(node, Method) else ""
    inside = [(before, _flat(value)) for before, value in words]
    if head is None or any(text is None for _, text in inside):
        return None
    end = f",{end}" if isinstance(node, tuple) and len(node) == 1 else end
    return f"{head}{start}{', '.join(f'{before}{text}' for before, text in inside)}{end}"


def _brackets_of(node: Any) -> tuple[str, list[tuple[str, Any]], str] | None:
    """How a node with parts begins, the parts, each with what stands before it, and how it ends."""
    if isinstance(node, Call | Method):
        words = [("", value) for value in node.args] + [(f"{key}=", value) for key, value in node.named.items()]
        return f"{node.name}(" if isinstance(node, Call) else f".{node.name}(", words, ")"
    if isinstance(node, MergedDict):
        return "{", [("**", node.name), *_entries(node.own)], "}"
    if isinstance(node, Mapping):
        return "{", _entries(node), "}"
    if isinstance(node, ExtendedList):
        return "[", [("*", node.name), *(("", value) for value in node.rest)], "]"
    if isinstance(node, list | tuple):
        start, end = "[]" if isinstance(node, list) else "()"
        return start, [("", value) for value in node], end
    return None


def _entries(node: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(f"{string_literal(str(key))}: ", value) for key, value in node.items()]


def _operand(node: Any) -> str | None:
    text = _flat(node)
    return f"({text})" if isinstance(node, Infix) and text is not None else text


def _pieces(text: str, room: int) -> list[str]:
    """A long text as literals of at most about `room` characters: one per line of it, cut at spaces where needed."""
    pieces: list[str] = []
    for line in text.splitlines(keepends=True):
        piece = ""
        for word in re.findall(r"\S*\s*", line):
            if piece and len(string_literal(piece + word)) > room:
                pieces.append(piece)
                piece = ""
            piece += word
        pieces.append(piece)
    return [piece for piece in pieces if piece]


def _multi_line(node: Any, indent: str) -> str:
    inner = indent + _STEP
    if isinstance(node, str):
        pieces = _pieces(node, WIDTH - len(inner))
        body = "\n".join(f"{inner}{string_literal(piece)}" for piece in pieces)
        return f"(\n{body}\n{indent})" if len(pieces) > 1 else string_literal(node)
    bracketed = _brackets_of(node)
    if bracketed is None or isinstance(node, MergedDict):
        return _flat(node) or string_literal(str(node))
    start, words, end = bracketed
    head = source_text(node.target, indent) if isinstance(node, Method) else ""
    if "\n" in head:
        flat = _flat(Call(f".{node.name}", node.args, node.named))
        if flat is not None and len(head.rpartition("\n")[2]) + len(flat) <= WIDTH:
            return head + flat
    return f"{head}{start}{_value_lines(words, indent) if words else ''}{end}"


def _value_lines(words: list[tuple[str, Any]], indent: str) -> str:
    """One line or more for each value, with what stands before it; a reason beside it where there is room."""
    inner = indent + _STEP
    lines = ""
    for head, node in words:
        value, because = (node.value, node.because) if isinstance(node, WithComment) else (node, "")
        line = f"{inner}{head}{source_text(value, inner, len(head) + 1)},"
        if because and len(f"{line}  # {because}") <= WIDTH and "\n" not in line:
            line = f"{line}  # {because}"
        elif because:
            line = "".join(f"{inner}{each}\n" for each in comment_lines(because, WIDTH - len(inner))) + line
        lines += f"{line}\n"
    return f"\n{lines}{indent}"


def comment_lines(text: str, width: int = WIDTH) -> list[str]:
    """A reason as lines of a comment."""
    return textwrap.wrap(text, width, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)


def walk(tree: Any) -> Iterator[Any]:
    """A tree and all its parts, in order."""
    yield tree
    parts: Any = ()
    if isinstance(tree, dict):
        parts = tree.values()
    elif isinstance(tree, list | tuple):
        parts = tree
    elif isinstance(tree, Call):
        parts = (*tree.args, *tree.named.values())
    elif isinstance(tree, Method):
        parts = (tree.target, *tree.args, *tree.named.values())
    elif isinstance(tree, Infix):
        parts = (tree.left, tree.right)
    elif isinstance(tree, Invert):
        parts = (tree.term,)
    for part in parts:
        yield from walk(part)


def names_in(tree: Any) -> set[str]:
    """Every name that is called or mentioned."""
    parts = list(walk(tree))
    called = {part.name.partition(".")[0] for part in parts if isinstance(part, Call)}
    return called | {part.text for part in parts if isinstance(part, Name)}


def with_parts(tree: Any, made_of: Callable[[Any], Any]) -> Any:
    """A map, a list or a call with another part for each of its own; anything else as it is."""
    if isinstance(tree, dict):
        return {key: made_of(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [made_of(value) for value in tree]
    if not isinstance(tree, Call | Method):
        return tree
    target = {"target": made_of(tree.target)} if isinstance(tree, Method) else {}
    args, named = tuple(map(made_of, tree.args)), {key: made_of(value) for key, value in tree.named.items()}
    return replace(tree, args=args, named=named, **target)


def with_names(tree: Any, names: Mapping[tuple[str, str], str]) -> Any:
    """The tree with the names under which the file imports objects."""
    if isinstance(tree, Import):
        return tree.expression(names[tree.module, tree.attribute])
    return with_parts(tree, lambda part: with_names(part, names))


_BY_MODULE = {
    "datetime": ("datetime", "timedelta"),
    "zoneinfo": ("ZoneInfo",),
    "airflow.providers.cncf.kubernetes.operators.pod": ("KubernetesPodOperator",),
    "airflow.providers.pagerduty.notifications.pagerduty": ("PagerdutyNotifier",),
    "airflow.providers.slack.notifications.slack": ("SlackNotifier",),
    "airflow.providers.slack.notifications.slack_webhook": ("SlackWebhookNotifier",),
    "airflow.providers.smtp.notifications.smtp": ("SmtpNotifier",),
    "airflow.providers.standard.operators.empty": ("EmptyOperator",),
    "airflow.providers.standard.operators.hitl": ("ApprovalOperator",),
    "airflow.sdk": (
        "DAG", "Asset", "AssetAny", "AssetOrTimeSchedule", "CronTriggerTimetable", "Param", "TaskGroup", "literal",
    ),
    "gpuflow.airflow": (
        "Approve", "DeleteClaim", "GpuGangOperator", "GpuPodOperator", "LOST_WORKERS", "ListItems", "MakeClaim", "Mark",
        "Pod", "at_most", "attempt", "began", "claim", "combinations", "dag_run_id", "deadline", "interval_start",
        "item", "join", "logical_date", "mail_alert", "output", "pagerduty_alert", "param", "run_began", "run_id",
        "slack_alert", "webhook_alert",
    ),
}  # fmt: skip
HOMES = {name: module for module, names in _BY_MODULE.items() for name in names}
