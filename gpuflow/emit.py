"""Plain data as YAML, always the same bytes, and read the same way by YAML 1.1 and 1.2 readers.

PyYAML's own emitters leave `y`, `1e3` and `0o7` bare, fold long lines, and change with what other libraries patch into
them; artefacts that are committed and diffed need none of that. Block style, no anchors, no folding; text that spans
lines becomes a literal block where that is exact, everything doubtful is double-quoted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLAIN = re.compile(
    r"(?:--?(?=[A-Za-z]))?[A-Za-z_/](?:[A-Za-z0-9_./@+=,-]|:(?=[^\s])|[ ](?=[^\s#]))*"
    r"|[0-9]+(?:[KMGTPE]i|[mkMGTP]|g\.[0-9]+gb)|(?:[0-9]+[dhms])+"  # amounts, MIG profiles, durations
)
LONGEST_KEY = 1000
"""YAML reads `key: value` only up to 1,024 characters; longer keys are written `? key`."""
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null", "inf", "nan"}
_UNSAFE = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")
_LITERAL_UNSAFE = re.compile("[^\n\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")


def emit(data: Any) -> str:
    """One document, ending with a newline."""
    if _is_leaf(data):
        return _scalar(data, "") + "\n"
    return "\n".join(_lines(data, "")) + "\n"


def emit_all(documents: list[Any]) -> str:
    """Several documents, separated by `---`."""
    return "---\n".join(emit(document) for document in documents)


def _is_leaf(value: Any) -> bool:
    return not (isinstance(value, Mapping | list | tuple) and value)


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            name = _text(str(key))
            if len(name) <= LONGEST_KEY:
                yield from _entry(f"{indent}{name}:", item, indent)
            else:
                yield f"{indent}? {name}"
                yield from _entry(f"{indent}:", item, indent)
    else:
        for item in value:
            if _is_leaf(item):
                yield f"{indent}- {_scalar(item, indent)}"
                continue
            inner = list(_lines(item, indent + "  "))
            yield f"{indent}- {inner[0][len(indent) + 2 :]}"
            yield from inner[1:]


def _entry(head: str, item: Any, indent: str) -> Iterator[str]:
    if _is_leaf(item):
        yield f"{head} {_scalar(item, indent)}"
    else:
        yield head
        # Sequences stand at the key's own column, as kubectl and most hand-written manifests have them.
        yield from _lines(item, indent if isinstance(item, list | tuple) else indent + "  ")


def _scalar(value: Any, indent: str) -> str:
    if isinstance(value, str):
        return _literal(value, indent) or _text(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, list | tuple):
        return "[]"
    raise TypeError(f"{type(value).__name__} cannot be written as YAML")


def _float(value: float) -> str:
    if not math.isfinite(value):
        return {math.inf: ".inf", -math.inf: "-.inf"}.get(value, ".nan")
    text = repr(float(value))
    # YAML 1.1 reads 2e-05 as text: it wants a dot.
    return text.replace("e", ".0e") if "e" in text and "." not in text else text


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    quoted = json.dumps(text, ensure_ascii=False)
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", quoted)


def _literal(text: str, indent: str) -> str | None:
    """A `|` block when it holds exactly this text, else None."""
    if "\n" not in text or text[0] in " \n" or _LITERAL_UNSAFE.search(text) or not text.strip("\n"):
        return None
    body = text.rstrip("\n")
    newlines = len(text) - len(body)
    chomp = {0: "|-", 1: "|"}.get(newlines, "|+")
    lines = body.split("\n") + [""] * max(newlines - 1, 0)
    return chomp + "\n" + "\n".join(f"{indent}  {line}" if line else "" for line in lines)
