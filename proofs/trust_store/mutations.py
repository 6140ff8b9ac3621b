"""How an object of a store is changed: a grammar over JSON, over bytes, and over what lies in its place."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from gpuflow.runtime.base import records

HOSTILE = (
    "",
    ".",
    "..",
    "/",
    "~",
    ".gpuflow",
    "a/b",
    "../x",
    "../../../sentinel/x",
    "@SENTINEL",
    "@SENTINEL/x",
    "/etc/passwd",
    "a\0b",
    "\0",
    "\ud800",
    "\udcff",
    "\u202egnp",
    "a\nb",
    "\x1b[2J",
    "x" * 256,
    "x" * 5000,
    "ä" * 200,
    "a/" * 600 + "a",
    "W",
    "e\u0301",
    "-rf",
    "$(id)",
    "%s%n",
    "000009-000001-ffffffff",
    "999999999-000001-ffffffff",
    "00000²",
    "unreadable",
)
"""`@SENTINEL` stands for a folder that must not be touched."""
ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    -1,
    0,
    1,
    7,
    2**31,
    2**63 - 1,
    2**63,
    10**18,
    10**30,
    -(10**30),
    1.5,
    -0.0,
    1e14,
    1e308,
    float("inf"),
    float("nan"),
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"path": "x"},
    "succeeded",
    "failed (final)",
    "directory",
    "file",
    0o104755,
)
SHA = "0" * 64


class Mutation:
    """What was done to an object, and whether the hash was made right again."""

    def __init__(self, what: str, data: bytes, *, sealed: bool) -> None:
        self.what, self.data, self.sealed = what, data, sealed


def mutate(chance: random.Random, data: bytes, others: list[bytes], sentinel: Path) -> Mutation:
    """One change of an object's bytes."""
    how = chance.choice(_WEIGHTED)
    if how in _RAW:
        return Mutation(how.__name__, how(chance, data, others), sealed=False)
    value = json.loads(data)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        how(chance, value)
    sealed = chance.random() < 0.75
    value = _placed(value, str(sentinel))
    if sealed and "hash" in value:
        value["hash"] = _digest(value)
    try:
        encoded = records.encode(value)
    except RecursionError:
        encoded = data
    if how is deep:
        depth = chance.choice((50, 900, 3000, 100_000))
        shape = chance.choice(((b"[", b"]"), (b'{"a":', b"}")))
        nested = shape[0] * depth + b"1" + shape[1] * depth
        encoded = encoded.replace(b'"@DEEP"', nested)
    if how is long_number:
        encoded = encoded.replace(b'"@LONG"', b"9" * chance.choice((19, 25, 5000, 300_000)))
    return Mutation(how.__name__, encoded, sealed=sealed)


def _digest(value: dict[str, Any]) -> str:
    try:
        return records.digest(value)
    except RecursionError:
        return SHA


def _placed(value: Any, sentinel: str) -> Any:
    if isinstance(value, dict):
        return {name.replace("@SENTINEL", sentinel): _placed(item, sentinel) for name, item in value.items()}
    if isinstance(value, list):
        return [_placed(item, sentinel) for item in value]
    return value.replace("@SENTINEL", sentinel) if isinstance(value, str) else value


def _spots(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a value: what holds it, and under which name or number."""
    found = []
    rest = [value]
    while rest:
        inner = rest.pop()
        for name in list(inner) if isinstance(inner, dict) else range(len(inner)):
            found.append((inner, name))
            if isinstance(inner[name], (dict, list)):
                rest.append(inner[name])
    return found


# -- on JSON


def type_swap(chance: random.Random, value: Any) -> None:
    holder, name = chance.choice(_spots(value))
    holder[name] = deepcopy(chance.choice(ODD))  # the next change may be in it


def deletion(chance: random.Random, value: Any) -> None:
    spots = _spots(value)
    if spots:
        holder, name = chance.choice(spots)
        del holder[name]


def duplication(chance: random.Random, value: Any) -> None:
    lists = [holder for holder, _ in _spots(value) if isinstance(holder, list) and holder]
    if lists:
        chosen = chance.choice(lists)
        chosen.extend([json.loads(json.dumps(chance.choice(chosen)))] * chance.choice((1, 2, 500)))
    else:
        value["extra"] = dict(value)


def renaming(chance: random.Random, value: Any) -> None:
    """A field under another name, or a new output."""
    holders = [
        value,
        *(holder[name] for holder, name in _spots(value) if isinstance(holder[name], dict) and holder[name]),
    ]
    holder = chance.choice(holders)
    if holder:
        holder[chance.choice(HOSTILE)] = holder.pop(chance.choice(list(holder)))


def hostile_string(chance: random.Random, value: Any) -> None:
    texts = [(holder, name) for holder, name in _spots(value) if isinstance(holder[name], str)]
    if texts:
        holder, name = chance.choice(texts)
        holder[name] = chance.choice(HOSTILE)


def hostile_everywhere(chance: random.Random, value: Any) -> None:
    word = chance.choice(HOSTILE)
    for holder, name in _spots(value):
        if isinstance(holder[name], str) and name not in ("outcome", "type", "kind", "hash"):
            holder[name] = word


def deep(chance: random.Random, value: Any) -> None:
    holder, name = chance.choice(_spots(value))
    holder[name] = "@DEEP"


def long_number(chance: random.Random, value: Any) -> None:
    holder, name = chance.choice(_spots(value))
    holder[name] = "@LONG"


def count(chance: random.Random, value: Any) -> None:
    """Numbers that decide something, at their edges."""
    name = chance.choice(("attempt", "since", "failures", "interruptions", "seconds", "exit_code", "format"))
    value[name] = chance.choice((0, 1, 2, 3, 4, 5, 8, 9, 10, 99, 10**6, 999_999_999, 10**9, 10**18, 2**63 - 1, 1e14))


def hostile_files(chance: random.Random, value: Any) -> None:
    """Files and links that would lead out, in a manifest or in an artifact of a marker."""
    lists = [value["files"]] if isinstance(value.get("files"), list) else []
    for output in (value.get("outputs") or {}).values() if isinstance(value.get("outputs"), dict) else ():
        if isinstance(output, dict) and isinstance(output.get("files"), list):
            lists.append(output["files"])
    if not lists:
        type_swap(chance, value)
        return
    files = chance.choice(lists)
    plain = next((file for file in files if isinstance(file, dict) and "sha256" in file), {"size": 1, "sha256": SHA})
    copy = {**plain}
    more: list[list[dict[str, Any]]] = [
        [{"path": "a", "link": "@SENTINEL"}, {**copy, "path": "a/evil"}],
        [{"path": "a", "link": "@SENTINEL"}],
        [{"path": "a", "link": "@SENTINEL/file"}],
        [{"path": "a", "link": "../../../../../sentinel"}],
        [{"path": "a", "link": "."}, {"path": "b", "link": "a/a/../.."}],
        [{"path": "a", "link": "b"}, {"path": "b", "link": "a"}],
        [{"path": "a", "link": "b/c"}, {"path": "b", "link": ".."}],
        [{"path": "A", "link": "@SENTINEL"}, {**copy, "path": "a/evil"}],
        [{**copy, "path": "a/../../evil"}],
        [{**copy, "path": "@SENTINEL/evil"}],
        [{**copy, "path": "../evil"}],
        [{**copy, "mode": 0o6777}],
        [{**copy, "path": "d/e", "directory": True}],
        [{"path": "a/" * 300 + "a", "directory": True}],
        [{**copy, "path": "b" * 300}],
        [{"path": f"n{number}", "directory": True} for number in range(5000)],
    ]
    files.extend(chance.choice(more))
    if chance.random() < 0.3 and isinstance(files[0], dict):
        files[0]["size"] = chance.choice((0, 1, 10**15, 2**62))
    if chance.random() < 0.3:
        chance.shuffle(files)


# -- on bytes


def truncation(chance: random.Random, data: bytes, _: list[bytes]) -> bytes:
    return data[: chance.randrange(len(data))]


def bit_flips(chance: random.Random, data: bytes, _: list[bytes]) -> bytes:
    changed = bytearray(data)
    for _number in range(chance.choice((1, 1, 2, 8))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def garbage(chance: random.Random, data: bytes, _: list[bytes]) -> bytes:
    text = data.decode()
    some: list[bytes] = [
        b"",
        b"\n",
        b"null",
        b"[]",
        b"{}",
        b"1",
        b'"x"',
        b"\0" * 100,
        b"\xff\xfe" + text.encode("utf-16-le"),
        b"\xef\xbb\xbf" + data,
        bytes(chance.randrange(256) for _ in range(200)),
        data + data,
        b"[" * 100_000,
        b"9" * 100_000,
        data * 50,
        b" " * (2 << 20),
    ]
    return chance.choice(some)


def another_object(chance: random.Random, data: bytes, others: list[bytes]) -> bytes:
    return chance.choice(others or [data])


def twice(chance: random.Random, data: bytes, _: list[bytes]) -> bytes:
    """A field twice in one object."""
    name = chance.choice(list(json.loads(data)))
    return data.rstrip()[:-1] + f",{json.dumps(name)}:{json.dumps(chance.choice(HOSTILE))}}}".encode()


_RAW: tuple[Any, ...] = (truncation, bit_flips, garbage, another_object, twice)
_WEIGHTED: tuple[Any, ...] = (
    *(type_swap, deletion, hostile_string, hostile_files, count) * 3,
    *(duplication, renaming, hostile_everywhere, deep, long_number),
    *_RAW,
)


# -- on what lies in the place of an object


def link(path: Path, sentinel: Path) -> None:
    path.unlink()
    path.symlink_to(sentinel / "file")


def pipe(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def folder(path: Path, _: Path) -> None:
    path.unlink()
    path.mkdir()


def huge(path: Path, _: Path) -> None:
    os.truncate(path, 10 << 30)


KINDS: tuple[Callable[[Path, Path], None], ...] = (link, pipe, folder, huge)

EXTRA = (
    "attempts/00000².json",
    "attempts/٣٣٣٣٣٣.json",
    "attempts/000000.json",
    "attempts/1000000000000000000.json",
    "attempts/0000000000000000000000000001.json",
    "attempts/00000x.json",
    "attempts/000002-a b.end.json",
    "attempts/.json",
    "attempts/000003-\u202e.end.json",
    "attempts/" + "9" * 240 + ".json",
    "checkpoints/zzz/manifest.json",
    "checkpoints/" + "9" * 200 + "/manifest.json",
    "checkpoints/000099/manifest.json",
    "checkpoints/manifest.json",
    "success.json",
    "success-000001.json",
    "success-².json",
    "probe/x",
    "artifacts/x/y/z/manifest.json",
)
"""Objects that nobody wrote, beside those that are there."""
