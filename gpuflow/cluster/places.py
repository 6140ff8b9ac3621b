"""Where in a manifest a value stands, by its path."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gpuflow import yaml_tree
from gpuflow.cluster.block_yaml import Block
from gpuflow.errors import Where

Path = tuple[str | int, ...]
_ENDS = re.compile(r"[.\[:\s,]|$")


def place(body: Mapping[str, Any], start: Where, path: Sequence[str | int], *, key: bool = False) -> Where:
    """The place of the value at `path` (or of its key), or of the nearest thing above it that is there."""
    tree: Any = body
    spot = None
    for depth, part in enumerate(path):
        spots: Any = None
        if isinstance(tree, yaml_tree.Map) and isinstance(part, str) and part in tree:
            wants_key = key and depth == len(path) - 1
            spots = (tree.key_at if wants_key else tree.value_at).get(part)
        elif isinstance(tree, yaml_tree.Seq) and isinstance(part, int) and 0 <= part < len(tree):
            spots = tree.item_at[part]
        else:
            break
        spot, tree = spots or spot, tree[part]
    return start if spot is None else Where(start.file, spot.line, spot.column)


def with_entry(tree: Mapping[str, Any], key: str, value: Any) -> Mapping[str, Any]:
    """The mapping with one entry set, everything else at its place."""
    if isinstance(tree, Block):
        same = Block(tree.spot)
        same.update(tree, **{key: value})
        return same
    if not isinstance(tree, yaml_tree.Map):
        return {**tree, key: value}
    copy = yaml_tree.Map(tree.spot)
    copy.update(tree)
    copy.file, copy.key_at, copy.value_at = tree.file, dict(tree.key_at), dict(tree.value_at)
    copy[key] = value
    copy.key_at.setdefault(key, tree.spot)
    copy.value_at.setdefault(key, tree.spot)
    return copy


def parts_of(body: Mapping[str, Any], field: str) -> Path:
    """The parts of a path such as `spec.limits[0].max[cpu]`, as far as it leads in the manifest."""
    first = _ENDS.split(field, maxsplit=1)[0]
    return (first, *_rest(body[first], field[len(first) :])) if first in body else ()


def _rest(tree: Any, text: str) -> Path:
    found: list[str | int] = []
    while text:
        if text[0] == "[":
            word, _, text = text[1:].partition("]")
            part = _indexed(tree, word)
        elif text[0] == ".":
            part = _longest(tree, text[1:])
            text = text[1 + len(str(part or "")) :]
        else:
            break
        if part is None:
            break
        found.append(part)
        tree = tree[part]
    return tuple(found)


def _indexed(tree: Any, word: str) -> str | int | None:
    """What stands in brackets: the number of an item, its name, or a key."""
    if isinstance(tree, Mapping):
        return word if word in tree else None
    if not isinstance(tree, list):
        return None
    if word.isdecimal():
        return int(word) if int(word) < len(tree) else None
    names = (index for index, item in enumerate(tree) if isinstance(item, Mapping) and item.get("name") == word)
    return next(names, None)


def _longest(tree: Any, text: str) -> str | None:
    """The longest key that the text begins with: keys may hold dots themselves."""
    keys = tree if isinstance(tree, Mapping) else ()
    fitting = [key for key in keys if isinstance(key, str) and text.startswith(key) and _ENDS.match(text, len(key))]
    return max(fitting, key=len, default=None)
