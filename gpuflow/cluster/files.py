"""The files that a cluster is read from: which they are, how large they may be, and their documents."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuflow import files, yaml_tree
from gpuflow.cluster import block_yaml
from gpuflow.errors import Finding, GpuflowError, Where, fail

SUFFIXES = (".yaml", ".yml", ".json")
MOST_JSON = 256 * 1024 * 1024
MOST_JSON_MEMORY = 1024 * 1024 * 1024
QUICK_JSON = 1024 * 1024
"""From this size on JSON is read without the place of every value, forty times faster."""
QUICK_YAML = 1024 * 1024
"""From this size on YAML as kubectl writes it is read with the place of every object only, five times faster."""
_TEMPLATE = re.compile(r"\{\{-?\s*[.$\w]")


def files_in(root: Path) -> tuple[list[Path], list[Finding]]:
    """Every manifest file below a folder, sorted, each once however many links lead to it; and what is closed to us.

    Hidden files and folders are passed over: they are the tools', not the cluster's.
    """
    found: dict[tuple[int, int], Path] = {}
    closed: list[Finding] = []
    seen: set[tuple[int, int]] = set()

    def refused(refusal: OSError) -> None:
        closed.append(_unreadable(refusal.filename, refusal))

    for folder, folders, names in os.walk(root, onerror=refused, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        identity = _identity(Path(folder))
        if identity in seen:
            folders[:] = []  # a link that leads back
            continue
        seen.add(identity)
        for name in tuple(folders):
            if (leaves := _leaves(Path(folder) / name, root)) is not None:
                closed.append(leaves)
                folders.remove(name)
        for name in sorted(names):
            path = Path(folder) / name
            if path.suffix.lower() in SUFFIXES and not name.startswith("."):
                try:
                    found.setdefault(_identity(path), path)
                except OSError as refusal:
                    closed.append(_unreadable(str(path), refusal))
    return sorted(found.values()), closed


def _leaves(folder: Path, root: Path) -> Finding | None:
    """What to say of a link to a folder outside the repository: what is in there was never part of it."""
    try:
        if folder.is_symlink():
            files.within(folder, folder=root)
        return None
    except files.Outside as refusal:
        return Finding("GF140", str(refusal), Where(str(folder)), "copy the manifests into the repository")


def _identity(path: Path) -> tuple[int, int]:
    status = path.stat()
    return status.st_dev, status.st_ino


def _unreadable(file: str | None, refusal: OSError) -> Finding:
    hint = "every file below the folder counts: make it readable, mend the link, or name another folder"
    return Finding("GF100", f"{file} cannot be read: {refusal.strerror}", Where(file), hint)


def documents(file: Path, *, piped: bool = False, folder: Path | None = None) -> list[Any]:
    """The documents of a file; `piped` allows one that is not an ordinary file, such as `/dev/stdin`. `folder`: the
    one that somebody named, in which it was found."""
    return documents_in(read_bytes(file, piped=piped, folder=folder), file)


def documents_in(raw: bytes, file: Path, parse: Callable[[str, str], list[Any]] | None = None) -> list[Any]:
    """The documents in the bytes of a file. `parse` reads its YAML, for whoever needs it as Kubernetes reads it."""
    if len(raw) >= QUICK_JSON and _is_json(raw):
        return [_json(raw, str(file))]
    text = yaml_tree.decode(raw, str(file))
    if parse is None and len(raw) >= QUICK_YAML and (quick := block_yaml.read(text)) is not None:
        return quick
    try:
        return (parse or yaml_tree.parse_all)(text, str(file))
    except GpuflowError:
        template = _TEMPLATE.search(text)
        if template is None or "argoproj.io/" in text:  # Argo's own variables are written like that
            raise
        line = text.count("\n", 0, template.start()) + 1
        where = Where(str(file), line, template.start() - text.rfind("\n", 0, template.start()))
        raise must_be_rendered("the file is a template", where, "helm template CHART > cluster.yaml") from None


def must_be_rendered(what: str, where: Where, command: str) -> GpuflowError:
    """GF406: the cluster will hold what a tool makes of the file, not what stands in it."""
    return fail(
        "GF406", f"{what}, not a manifest", where=where, hint=f"render it first ({command}) and name the result"
    )


def read_bytes(file: Path, *, piped: bool = False, folder: Path | None = None) -> bytes:
    """What a file of manifests holds."""
    yaml_tree.require_plain_name(str(file))
    try:
        with files.opened(file, named=piped, folder=folder) as stream:
            raw = stream.read(yaml_tree.MAX_BYTES + 1)
            if len(raw) > yaml_tree.MAX_BYTES and _is_json(raw):
                raw += stream.read(MOST_JSON + 1 - len(raw))
    except (OSError, ValueError) as refusal:
        files.refuse_outside(refusal, file)
        hint = "name a file or a folder of manifests, or `live`"
        reason = files.reason_of(refusal)
        raise fail("GF100", f"{file} cannot be read: {reason}", where=Where(str(file)), hint=hint) from None
    if len(raw) > (MOST_JSON if _is_json(raw) else yaml_tree.MAX_BYTES):
        raise _too_large(max(file.stat().st_size, len(raw)), str(file))
    return raw


def _is_json(raw: bytes) -> bool:
    return raw[:64].lstrip()[:1] == b"{"


def _too_large(size: int, file: str) -> GpuflowError:
    return fail(
        "GF102",
        f"the file has {size:,} bytes; YAML manifests are read up to {yaml_tree.MAX_BYTES:,} bytes, JSON up to "
        f"{MOST_JSON:,}",
        where=Where(file, 1, 1),
        hint="use kubectl get -o json, split it by kind, or let gpuflow snapshot write what a check needs and no more",
    )


def _memory(raw: bytes) -> int:
    """About what the values of a JSON text take, and the text itself, twice."""
    return 2 * len(raw) + 64 * raw.count(b",") + 200 * raw.count(b"{") + 56 * raw.count(b"[")


def _json(raw: bytes, file: str) -> Any:
    if (memory := _memory(raw)) > MOST_JSON_MEMORY:
        raise fail(
            "GF102",
            f"the file has {len(raw):,} bytes, and its values take about {memory >> 20:,} MiB of memory; JSON is read "
            f"up to {MOST_JSON_MEMORY >> 20:,} MiB",
            where=Where(file, 1, 1),
            hint="split it by kind, or let gpuflow snapshot write what a check needs and no more",
        )

    def pairs(entries: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(entries)
        if len(found) != len(entries):
            names = [name for name, _ in entries]
            twice = next(name for name in names if names.count(name) > 1)
            raise fail("GF109", f'the key "{twice}" stands twice in one mapping', where=Where(file), hint="keep one")
        return found

    def constant(word: str) -> Any:
        raise fail("GF101", f"not valid JSON: {word} is not a number", where=Where(file), hint="write a number")

    try:
        return json.loads(raw, object_pairs_hook=pairs, parse_constant=constant)
    except json.JSONDecodeError as problem:
        where = Where(file, problem.lineno, problem.colno)
        raise fail("GF101", f"not valid JSON: {problem.msg}", where=where, hint="fix the syntax there") from None
    except UnicodeDecodeError:
        yaml_tree.decode(raw, file)  # says where
        raise
    except RecursionError:
        raise fail("GF105", "nested far too deeply", where=Where(file, 1, 1), hint="is it a manifest?") from None
    except ValueError as problem:  # a number of thousands of digits
        raise fail("GF101", f"not valid JSON: {problem}", where=Where(file), hint="write a number") from None
