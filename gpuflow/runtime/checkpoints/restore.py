"""The newest complete checkpoint, at its place in the directory before the program starts."""

from __future__ import annotations

import os
import stat
import time

from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.record_fields import attempt_of
from gpuflow.runtime.base.records import Corrupt, Manifest
from gpuflow.runtime.checkpoints import transfer
from gpuflow.runtime.state.attempts import History
from gpuflow.runtime.state.checkpoint_dir import Directory, Entry
from gpuflow.runtime.state.directory_owner import boot_id, read_last_owner, read_owner, write_owner
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.local_files import NoRoom
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_TRIES = 3
_BEAT = 1.0


class RestoreResult:
    """Where to resume from, and how long it took to get it there."""

    def __init__(self, path: str | None, name: str | None, how: str, seconds: float = 0.0) -> None:
        self.path, self.name, self.how, self.seconds = path, name, how, seconds


def hard_link_copy(directory: Directory, path: str) -> str | None:
    """Hard links to a checkpoint, which stay when its name goes; None when it went before. Without links, the path."""
    shared, target = directory.shared, os.path.join(directory.temporary("resume"), os.path.basename(path))
    shared.discard(target)
    try:
        shared.make(target if shared.is_folder(path) else os.path.dirname(target))
        for relative, _, status, link in local_files.walk_items(path):
            old, new = (os.path.join(top, relative) if relative else top for top in (path, target))
            if stat.S_ISDIR(status.st_mode):
                shared.make(new)
                continue
            with shared.open_parent(old) as (source, name), shared.open_parent(new) as (folder, other):
                if link is not None:
                    os.symlink(link, other, dir_fd=folder)
                else:
                    os.link(name, other, src_dir_fd=source, dst_dir_fd=folder, follow_symlinks=False)
        return target
    except OSError as refusal:
        shared.discard(target)
        return None if isinstance(refusal, (FileNotFoundError, NotADirectoryError)) else path


class Restore:
    """The newest checkpoint of a run, or one by its name, found here or in the store, and brought here if need be.

    What lies in the directory is believed only when the attempt that left it was the last one of this run, on this
    machine, since it was booted; otherwise only the store is believed. Without a store there is only the directory.
    Storage may fail for as long as `limit` says, counted from the last byte that came. `for_all`: others, who do not
    see this directory, resume from the same checkpoint: one that is here alone is of no use to them. `parts`: what
    lies here may be one rank's part of a checkpoint; only the store knows which of them became one.
    """

    def __init__(
        self,
        directory: Directory,
        ledger: Ledger,
        history: History,
        store: Store | None,
        limit: Limit,
        proceed: Callable[[], bool],
        say: Callable[[str], None],
        *,
        for_all: bool = False,
        parts: bool = False,
    ) -> None:
        self.directory, self.ledger, self.history, self.store = directory, ledger, history, store
        self.limit, self.proceed, self.say = limit, proceed, say
        self.for_all, self.parts = for_all, parts
        self.began = time.monotonic()
        self._next_beat = 0.0
        self.same_run = False
        self.throttle = transfer.no_throttle(proceed, self._add_progress)

    def newest(self) -> RestoreResult:
        """The newest that is whole."""
        for _ in range(_TRIES):
            self.began = time.monotonic()
            restored = self._find()
            if restored.path is None or self.directory.occupancy is None or self.directory.occupancy.held:
                return restored
            # The program of an older attempt still lives here, and removes old checkpoints as its own.
            if (apart := hard_link_copy(self.directory, restored.path)) is not None:
                return RestoreResult(apart, restored.name, restored.how, restored.seconds)
        return restored

    def by_name(self, store: Store, name: str) -> RestoreResult:
        """This one and no other: the one that rank 0 of a gang resumes from. StorageError when it is not whole."""
        self.same_run = read_owner(self.directory).get("run") == self.ledger.base
        prefix = self.ledger.key("checkpoints", name)
        if (manifest := self._manifest(store, prefix)) is None:
            raise StorageError(f"the checkpoint {prefix} cannot be read here, and rank 0 resumes from it")
        if (restored := self._obtain(store, name, prefix, manifest)) is None:
            raise StorageError(f"the checkpoint {prefix} is not intact here, and rank 0 resumes from it")
        return restored

    def _find(self) -> RestoreResult:
        directory, ledger = self.directory, self.ledger
        before = read_owner(directory) if self.store is not None else read_last_owner(directory)
        same_run, same_boot = before.get("run") == ledger.base, before.get("boot") == boot_id()
        self.same_run = same_run
        number = before.get("attempt")
        # Whoever worked here last was forgotten since: so is what lies here.
        forgotten = same_run and isinstance(number, int) and number < ledger.since
        fresh = self.history.fresh or forgotten
        trusted = same_run and before.get("id") == self.history.last_id and same_boot and not fresh and not self.parts
        if same_run and "identity" not in before:
            directory.adopt_version_1()
        if not (trusted or (self.store is None and same_run and not fresh)):
            # Without a store what this run wrote down is all there is, also when another one worked here since.
            directory.disown(others=self.store is None and not fresh and not ledger.since)
        directory.look()
        here = directory.finished_entries()
        write_owner(directory, ledger)
        self._add_progress()
        gone = {entry.name: flaw for entry in here if (flaw := directory.flaw(entry)) is not None}
        if gone:
            self.say(f"{list(gone.values())[-1]}; it is not resumed from")
        if self.store is None:
            doubt = "another run was here" if same_boot else "the machine was started anew"
            certain = same_boot and same_run
            return self._restore_local([entry for entry in here if entry.name not in gone], None if certain else doubt)
        if here and here[-1].stored is None and here[-1].name not in gone and trusted and not self.for_all:
            # Newer than anything the last attempt has stored, and so than anything in the store.
            ledger.resumed = f"{self.history.last:06d}-~"
            return self._result(here[-1].path, here[-1].name, "here, newer than the store")
        return self._restore_from_store(self.store)

    def _restore_local(self, here: list[Entry], doubt: str | None) -> RestoreResult:
        """Without a store. After the machine went down, or another run was here, the unverified may be half-written."""
        doubtful: list[Entry] = []
        for entry in reversed(here):
            if doubt is None or (entry.total is None and (entry.settled or entry.by_api)):
                break
            if entry.total is not None:
                if self._total(entry) == entry.total:
                    break
                self.say(f"{entry.name} is not what it was when it was saved; taking an older one")
                self.directory.record(entry.name, foreign=True)
            else:
                doubtful.append(entry)
        else:
            if not doubtful:
                return RestoreResult(None, None, "nothing")
            entry = doubtful.pop(0)
            self.say(f"{doubt} before {entry.name} was forced to disk; it may not be whole")
            return self._result(entry.path, entry.name, "here, not verified")
        for other in doubtful:
            self.say(f"{doubt} before {other.name} was forced to disk; taking an older one")
            self.directory.record(other.name, foreign=True)
        return self._result(entry.path, entry.name, "here")

    def _total(self, entry: Entry) -> str | None:
        try:
            return transfer.content_hash(local_files.list_items(entry.path, self.directory.follow), self.throttle)
        except (OSError, local_files.CheckpointVanished, local_files.CheckpointRefused):
            return None

    def _restore_from_store(self, store: Store) -> RestoreResult:
        found: list[tuple[str, str]] = self._persist(lambda: self._list_checkpoints(store))
        for name, prefix in reversed(found):
            if (manifest := self._manifest(store, prefix)) is None:
                self.ledger.damaged.add(name)
                continue
            if (restored := self._obtain(store, name, prefix, manifest)) is not None:
                self.directory.record(manifest.entry, stored=name)
                self.ledger.resumed = name
                return restored
            self.ledger.damaged.add(name)
        if found:
            self.say(f"none of {len(found)} checkpoints in the store is intact; starting from nothing")
        return RestoreResult(None, None, "nothing")

    def _list_checkpoints(self, store: Store) -> list[tuple[str, str]]:
        """The checkpoints in the store. A listing without the newest recorded checkpoint is an error."""
        found = transfer.manifests(store, self.ledger.base, self.ledger.since)
        known = self.history.kept
        if known is None or self.history.fresh or (attempt_of(known) or 0) < self.ledger.since:
            return found
        if not found or found[-1][0] < known:
            raise StorageError(
                f"the records name the checkpoint {known}, and the store lists "
                f"{f'none after {found[-1][0]}' if found else 'none'}; if it was removed on purpose, gpuflow-run forget"
            )
        return found

    def _obtain(self, store: Store, name: str, prefix: str, manifest: Manifest) -> RestoreResult | None:
        """A checkpoint at its place, as it lies there already or from the store; None when it is not intact there."""
        local = os.path.join(self.directory.path, manifest.entry)
        if transfer.is_same_content(local, manifest.files, self.throttle, self.directory.follow):
            return self._result(local, manifest.entry, "here, as in the store")
        path = self._bring(store, name, prefix, manifest)
        return None if path is None else self._result(path, manifest.entry, "from the store")

    def _bring(self, store: Store, name: str, prefix: str, manifest: Manifest) -> str | None:
        arrived: set[str] = set()
        temporary = self.directory.temporary(f"restore-{name}")

        def fetch() -> None:
            shared, key, passed = self.directory.shared, manifest.key, self.throttle.pass_through
            single, files = manifest.kind == "file", manifest.files
            local_files.bring_files(
                store, prefix, files, shared, temporary, key, passed, single=single, arrived=arrived
            )

        try:
            for attempt in range(_TRIES):
                try:
                    self._persist(fetch, lambda: len(arrived))
                    if not self.same_run and self.directory.set_aside(manifest.entry):
                        self.say(f"{manifest.entry} of another run stood in the way; it has a dotted name now")
                    return self.directory.place(temporary, manifest.entry, stored=name)
                except NoRoom as refusal:
                    self._refuse_unless_corrupt(store, prefix, manifest, refusal)
                    return None
                except Corrupt as damage:
                    self._tell_damage(damage, attempt)
        finally:
            self.directory.shared.discard(temporary)
        return None

    def _refuse_unless_corrupt(self, store: Store, prefix: str, manifest: Manifest, refusal: Exception) -> None:
        """What does not fit on the disk is not passed over for an older one: unless its manifest only says so."""
        there = dict(self._persist(lambda: store.names(prefix)))
        files = (file for file in manifest.files if file.sha256 is not None)
        if not all(there.get(f"{prefix}/{manifest.key(file)}") == file.size for file in files):
            self.say(f"{prefix} is not as large as its manifest says; taking an older one")
            return
        raise BadOption(
            f"the checkpoint {prefix} cannot be restored: {refusal}; give the checkpoint directory more "
            f"room, or remove that checkpoint from the store"
        )

    def _manifest(self, store: Store, prefix: str) -> Manifest | None:
        keys = self.ledger.keys
        for attempt in range(_TRIES):
            try:
                found: Manifest = self._persist(lambda: transfer.read_manifest(store, f"{prefix}/manifest.json", keys))
                return found
            except Corrupt as damage:
                self._tell_damage(damage, attempt)
        return None

    def _tell_damage(self, damage: Corrupt, attempt: int) -> None:
        self.say(f"{damage}; {'reading it again' if attempt + 1 < _TRIES else 'taking an older one'}")

    def _persist(self, action: Callable[[], Any], settled: Callable[[], int] = lambda: 0) -> Any:
        return persist(action, self.limit, lambda: not self.proceed(), settled=settled, say=self.say)

    def _result(self, path: str, name: str, how: str) -> RestoreResult:
        return RestoreResult(path, name, how, time.monotonic() - self.began)

    def _add_progress(self, count: int | None = None) -> None:
        """Note progress: reset the storage timeout and write a sign of life for the probe."""
        self.limit.progress(count)
        if time.monotonic() >= self._next_beat:
            self._next_beat = time.monotonic() + _BEAT
            self.directory.folder.beat()
