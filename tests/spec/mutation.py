"""Broken documents, made from valid ones by small changes. Seeded: the same documents on every machine."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from typing import Any

from gpuflow.core import yaml_tree
from gpuflow.core.emit import emit
from tests.conftest import ROOT

EXAMPLES = ROOT / "docs" / "examples"
SOURCES = ("nightly.yaml", "finetune.yaml", "finetune-eval.yaml", "gang.yaml", "daily.yaml")
Place = tuple[Any, Any]
"""A collection, and the key or index in it."""
STRANGE = (
    None,
    True,
    -1,
    0,
    3.7,
    10**30,
    "",
    "x" * 5000,
    "\u202e",
    "a: b",
    [],
    [[]],
    {},
    {"a": {"b": 1}},
    "${{x}}",
    float("nan"),
)


def places(value: Any) -> Iterator[Place]:
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


def keys_of(document: Any, dice: random.Random) -> tuple[dict[str, Any], str]:
    return dice.choice([(owner, key) for owner, key in places(document) if isinstance(owner, dict)])


def delete_key(document: Any, dice: random.Random) -> None:
    owner, key = keys_of(document, dice)
    del owner[key]


def misspell_key(document: Any, dice: random.Random) -> None:
    owner, key = keys_of(document, dice)
    at = dice.randrange(len(key))
    renamed = {name if name != key else key[:at] + "q" + key[at + 1 :]: value for name, value in owner.items()}
    owner.clear()
    owner.update(renamed)


def unknown_key(document: Any, dice: random.Random) -> None:
    owner, key = keys_of(document, dice)
    owner[f"{key}_2"] = dice.choice(STRANGE)


def other_type(document: Any, dice: random.Random) -> None:
    owner, key = dice.choice(list(places(document)))
    owner[key] = copy.deepcopy(dice.choice(STRANGE))


def wrapped_value(document: Any, dice: random.Random) -> None:
    owner, key = dice.choice(list(places(document)))
    owner[key] = [owner[key]] if dice.random() < 0.5 else {"value": owner[key]}


def moved_value(document: Any, dice: random.Random) -> None:
    (owner, key), (other, name) = dice.sample(list(places(document)), 2)
    owner[key] = copy.deepcopy(other[name])


def broken_word(document: Any, dice: random.Random) -> None:
    words = [(owner, key) for owner, key in places(document) if isinstance(owner[key], str) and owner[key]]
    owner, key = dice.choice(words)
    at = dice.randrange(len(owner[key]))
    owner[key] = owner[key][:at] + dice.choice("Q_ \0.$é~") + owner[key][at + 1 :]


def dangling_reference(document: Any, dice: random.Random) -> None:
    name = dice.choice(list(document["steps"]))
    step, kind = document["steps"][name], dice.randrange(5)
    if kind == 0:
        step["needs"] = ["nowhere"]
    elif kind == 1:
        step["when"] = dice.choice(["steps.nowhere.x > 1", "params.nowhere", "item.nowhere == 1"])
    elif kind == 2:
        step["env"] = {"A": dice.choice([{"param": "nowhere"}, {"output": "nowhere.x"}, {"item": "nowhere"}])}
    elif kind == 3:
        step["volumes"] = {"/x": {"new_claim": "nowhere"}}
    else:
        step["gpu"] = "a100-9000gb"


def cycle(document: Any, dice: random.Random) -> None:
    first, *rest = document["steps"]
    document["steps"][first]["needs"] = [dice.choice([first, *rest])]


def deep(document: Any, dice: random.Random) -> None:
    owner, key = dice.choice(list(places(document)))
    for _ in range(dice.randrange(60, 150)):
        owner[key] = [owner[key]] if dice.random() < 0.5 else {"deeper": owner[key]}


TREES: tuple[Callable[[Any, random.Random], None], ...] = (
    delete_key, misspell_key, unknown_key, other_type, wrapped_value, moved_value, broken_word, dangling_reference,
    cycle, deep,
)  # fmt: skip


def truncated(text: bytes, dice: random.Random) -> bytes:
    return text[: dice.randrange(len(text))]


def without_a_character(text: bytes, dice: random.Random) -> bytes:
    at = dice.choice([i for i, letter in enumerate(text) if letter in b":[]{},\"'|-"])
    return text[:at] + text[at + 1 :]


def other_byte(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text))
    return text[:at] + bytes([dice.randrange(256)]) + text[at + 1 :]


def strange_byte(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text))
    return (
        text[:at]
        + dice.choice([b"\0", b"\xff\xfe", b"\x01", b"\t", b"\xed\xa0\x80", b"\x1b[31m", b"\xef\xbb\xbf"])
        + text[at:]
    )


def lines_of(text: bytes, dice: random.Random) -> tuple[list[bytes], int]:
    lines = text.splitlines(keepends=True)
    return lines, dice.randrange(len(lines))


def tab_indented(text: bytes, dice: random.Random) -> bytes:
    lines, at = lines_of(text, dice)
    lines[at] = b"\t" + lines[at].lstrip()
    return b"".join(lines)


def line_twice(text: bytes, dice: random.Random) -> bytes:
    lines, at = lines_of(text, dice)
    return b"".join([*lines[: at + 1], lines[at], *lines[at + 1 :]])


def line_indented(text: bytes, dice: random.Random) -> bytes:
    lines, at = lines_of(text, dice)
    lines[at] = b" " * dice.randrange(1, 4) + lines[at]
    return b"".join(lines)


def without_a_line(text: bytes, dice: random.Random) -> bytes:
    lines, at = lines_of(text, dice)
    return b"".join([*lines[:at], *lines[at + 1 :]])


def appended(text: bytes, dice: random.Random) -> bytes:
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x,x]\n" + b"".join(
        b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 10)) for i in range(7)
    )
    ends = (
        bomb,
        b"x: *nowhere\n",
        b"---\nkind: Pipeline\n",
        b"x: !!python/name:os.system\n",
        b"? [a]\n: b\n",
        b"<<: 5\n",
        b"}{\n",
    )
    return text + dice.choice(ends)


TEXTS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    truncated, without_a_character, other_byte, strange_byte, tab_indented, line_twice, line_indented, without_a_line,
    appended,
)  # fmt: skip


def mutants(kind: Callable[..., Any], count: int) -> Iterator[bytes]:
    """Documents with one change of this kind, made from each of the examples in turn."""
    for seed in range(count):
        dice = random.Random(f"{kind.__name__}-{seed}")
        raw = (EXAMPLES / SOURCES[seed % len(SOURCES)]).read_bytes()
        if kind in TEXTS:
            yield kind(raw, dice)
            continue
        document = yaml_tree.parse(raw, "valid.yaml")
        kind(document, dice)
        yield emit(document).encode("utf-8")
