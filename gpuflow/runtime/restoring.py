"""The newest complete checkpoint, at its place in the directory before the program starts."""

from __future__ import annotations

import os
import time

from gpuflow.runtime import transfer
from gpuflow.runtime.attempt_folder import process_began
from gpuflow.runtime.directory import Directory, discard
from gpuflow.runtime.ledger import History, Ledger
from gpuflow.runtime.owner import boot, orphan, owner, write_owner
from gpuflow.runtime.store import Store, persist

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["Restored", "orphan", "process_began", "restore", "write_owner"]
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
    until: float,
    proceed: Callable[[], bool],
    say: Callable[[str], None],
) -> Restored:
    """Find the newest checkpoint here or in the store, and bring it here if need be.

    What lies in the directory is believed only when the attempt that left it was the last one of this run, on this
    machine, since it was booted; otherwise only the store is believed. Without a store there is only the directory.
    """
    began = time.monotonic()
    before = owner(directory)
    same_run = before.get("run") == ledger.base
    trusted = same_run and before.get("id") == history.last_id and before.get("boot") == boot()
    if same_run and "identity" not in before:
        directory.adopt_version_1()
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


def _bring(
    directory: Directory,
    store: Store,
    name: str,
    prefix: str,
    manifest: dict[str, Any],
    until: float,
    proceed: Callable[[], bool],
    say: Callable[[str], None],
) -> str | None:
    """A checkpoint from the store at its place, or None when it is not intact there."""
    temporary = directory.temporary(f"restore-{name}")
    for attempt in range(_TRIES):
        try:

            def fetch() -> None:
                discard(temporary)
                transfer.download(store, prefix, manifest, temporary, proceed)

            persist(fetch, until, lambda: not proceed())
            return directory.place(temporary, manifest["entry"], stored=name)
        except transfer.Corrupt as damage:
            say(f"{damage}; {'reading it again' if attempt + 1 < _TRIES else 'taking an older one'}")
        finally:
            discard(temporary)
    return None


def _manifest(
    store: Store, prefix: str, until: float, proceed: Callable[[], bool], say: Callable[[str], None]
) -> dict[str, Any] | None:
    try:
        found = persist(lambda: transfer.read_manifest(store, f"{prefix}/manifest.json"), until, lambda: not proceed())
        assert isinstance(found, dict)
        return found
    except transfer.Corrupt as damage:
        say(f"{damage}; taking an older one")
        return None
