"""A file of another tool, written back equal in content: every document, every field, known here or not.

Each engine reads YAML with its own rules: `on` is text to one and true to the next. So what some reader may take for a
number, a boolean, null or a date stands as it stood, bare or in quotes; only what is text to all of them may change
its quotes. Keys keep their order. Comments, anchors and the layout are not content: they go.
"""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from gpuflow.core import printable, yaml_tree
from gpuflow.core.emit import RawScalar, emit_all
from gpuflow.core.errors import Where, fail

MAX_BYTES = 2 * yaml_tree.MAX_BYTES
"""So much may be written: aliases can make a small file stand for a very large one."""

_DOUBTFUL = re.compile(
    r"(?=.*[0-9A-Za-z])[-+.]?[.0-9][0-9A-Za-z_.:+ -]*"  # numbers in any base or with colons, dates
    r"|[-+]?\.(?:inf|nan)|~|=|<<|null|true|false|yes|no|on|off|y|n",
    re.IGNORECASE,
)
"""What stands bare and is more than text to a reader of YAML 1.1 or 1.2."""
_BLOCK_PLAIN = re.compile(r"(?!.*(?:: |:$| $))", re.DOTALL)
"""What can stand bare in a block: between brackets a little more can."""


def normalize(text: str, file: str) -> str:
    """The documents of `text`, written by the emitter. The same content in the same order gives the same bytes."""
    documents = yaml_tree.parse_all(text, file, read=_read_scalar)
    _refuse_bombs(documents, file)
    return emit_all(documents)


def _read_scalar(event: yaml.ScalarEvent) -> str:
    """A scalar as text to be quoted where needed, or as it was spelled."""
    text: str = event.value
    if event.tag is not None:
        if event.tag.endswith(("!", ":str")):
            return text
        return RawScalar(
            f"!!{event.tag.rpartition(':')[2]} {printable.escape_literal(json.dumps(text, ensure_ascii=False))}"
        )
    if not event.implicit[0]:
        return text
    if not text:
        return RawScalar("null")
    return RawScalar(text) if _DOUBTFUL.fullmatch(text) and _BLOCK_PLAIN.match(text) else text


def _refuse_bombs(documents: list[Any], file: str) -> None:
    size = 0
    waiting: list[tuple[Any, int]] = [(document, 0) for document in documents]
    while waiting:
        value, indent = waiting.pop()
        if isinstance(value, dict):
            size += sum(map(len, value)) + len(value) * indent
            waiting += [(item, indent + 2) for item in value.values()]
        elif isinstance(value, list):
            size += len(value) * indent
            waiting += [(item, indent + 2) for item in value]
        else:
            size += len(value) + value.count("\n") * indent
        if size > MAX_BYTES:
            text = f"aliases make it more than {MAX_BYTES:,} characters, too many to write"
            raise fail("GF785", text, where=Where(file, 1, 1), hint="write the values out where they are needed")
