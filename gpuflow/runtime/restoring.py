"""The newest complete checkpoint, at its place in the directory before the program starts."""

from __future__ import annotations

import json
import os
import time

from gpuflow.runtime import transfer
from gpuflow.runtime.directory import Directory, discard
from gpuflow.runtime.ledger import History, Ledger
from gpuflow.runtime.records import Corrupt
from gpuflow.runtime.store import Limit, Store, persist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_TRIES = 3


class Restored:
    """Where to resume from, and how long it took to get it there."""

    def __init__(self, path: str | None, name: str | None, how: str, seconds: float = 0.0) -> None:
        self.path, self.name, self.how, self.seconds = path, name, how, seconds


def restore(
    directory: Directory,
    ledger: Ledger,
    history: History,
    store: Store | None,
    until: Limit,
    proceed: Callable[[], bool],
    say: Callable[[str], None],
) -> Restored:
    """Find the newest checkpoint here or in the store, and bring it here if need be.

    What lies in the directory is believed only when the attempt that left it was the last one of this run, on this
    machine, since it was booted; otherwise only the store is believed. Without a store there is only the directory.
    """
    began = time.monotonic()
    _sweep(directory)
    owner = _owner(directory)
    same_run = owner.get("run") == ledger.base
    trusted = same_run and owner.get("id") == history.last_id and owner.get("boot") == _boot()
    if not (trusted or (store is None and same_run)):
        directory.disown()
    directory.look()
    here = directory.finished()
    write_owner(directory, ledger)
    if store is None:
        return Restored(here[-1].path, here[-1].name, "here") if here else Restored(None, None, "nothing")
    if here and here[-1].stored is None and trusted:
        return Restored(here[-1].path, here[-1].name, "here, newer than the store")
    found = persist(lambda: transfer.manifests(store, ledger.base), until, lambda: not proceed())
    assert isinstance(found, list)
    for name, prefix in reversed(found):
        manifest = _manifest(store, prefix, until, proceed, say)
        if manifest is None:
            continue
        local = os.path.join(directory.path, manifest["entry"])
        if transfer.same(local, manifest):
            directory.record(manifest["entry"], stored=name)
            return Restored(local, manifest["entry"], "here, as in the store", time.monotonic() - began)
        path = _bring(directory, store, name, prefix, manifest, until, proceed, say)
        if path is not None:
            return Restored(path, manifest["entry"], "from the store", time.monotonic() - began)
        ledger.damaged.add(name)
    if found:
        say(f"none of {len(found)} checkpoints in the store is intact; starting from nothing")
    return Restored(None, None, "nothing")


def write_owner(directory: Directory, ledger: Ledger, child: int | None = None) -> None:
    """Who works in the directory now."""
    facts = {"run": ledger.base, "attempt": ledger.number, "id": ledger.id, "boot": _boot()}
    if child is not None:
        facts["child"], facts["child_began"] = child, process_began(child)
    path = os.path.join(directory.hidden, "owner.json")
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(facts, file)
    os.replace(f"{path}.part", path)


def orphan(directory: Directory) -> int | None:
    """The process group of an earlier attempt's program that outlived its supervisor, when it is surely that one."""
    owner = _owner(directory)
    child = owner.get("child")
    if owner.get("boot") == _boot() and isinstance(child, int):
        began = process_began(child)
        if began is not None and began == owner.get("child_began"):
            return child
    return None


def process_began(pid: int) -> int | None:
    """When a process began, in clock ticks since boot: with its id, that names it for good. None for a dead one."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _bring(
    directory: Directory,
    store: Store,
    name: str,
    prefix: str,
    manifest: dict[str, Any],
    until: Limit,
    proceed: Callable[[], bool],
    say: Callable[[str], None],
) -> str | None:
    """A checkpoint from the store at its place, or None when it is not intact there."""
    temporary = os.path.join(directory.hidden, f"restore-{name}")
    for attempt in range(_TRIES):
        try:

            def fetch() -> None:
                discard(temporary)
                transfer.download(store, prefix, manifest, temporary, proceed)

            persist(fetch, until, lambda: not proceed())
            return directory.place(temporary, manifest["entry"], stored=name)
        except Corrupt as damage:
            say(f"{damage}; {'reading it again' if attempt + 1 < _TRIES else 'taking an older one'}")
        finally:
            discard(temporary)
    return None


def _manifest(
    store: Store, prefix: str, until: Limit, proceed: Callable[[], bool], say: Callable[[str], None]
) -> dict[str, Any] | None:
    try:
        found = persist(lambda: transfer.read_manifest(store, f"{prefix}/manifest.json"), until, lambda: not proceed())
        assert isinstance(found, dict)
        return found
    except Corrupt as damage:
        say(f"{damage}; taking an older one")
        return None


def _sweep(directory: Directory) -> None:
    """Remove what an attempt that was killed left half done."""
    for name in sorted(os.listdir(directory.hidden)):
        if name.startswith(("restore-", "upload-", "replaced-")):
            discard(os.path.join(directory.hidden, name))


def _owner(directory: Directory) -> dict[str, Any]:
    try:
        with open(os.path.join(directory.hidden, "owner.json"), encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _boot() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "unknown"
