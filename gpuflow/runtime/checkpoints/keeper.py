"""The thread that keeps checkpoints: it finds finished ones, uploads the newest, and keeps N of them in the store.

Nothing that happens here reaches the program. Storage that fails is tried again with growing waits and reported; the
last good checkpoint is removed only after newer ones were verified. Without a store the newest checkpoint is forced to
disk and hashed where it is.

The last checkpoint is uploaded also when the program has ended well: it is often the trained model itself, and people
look for it in the store. It delays the end only while it makes progress.

`prune` removes all but the newest N, and never one that might still be needed. What an older attempt kept is needed
until this attempt has resumed from it or from a later one, or has seen that it is damaged: a listing that was late or
short must not make this attempt remove what it did not see.
"""

from __future__ import annotations

import os
import threading
import time

from gpuflow.runtime.base import files
from gpuflow.runtime.base.files import close_after, open_same
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.record_fields import attempt_of
from gpuflow.runtime.base.records import Corrupt, File, Manifest, checkpoint_name
from gpuflow.runtime.checkpoints import completeness, interval, transfer
from gpuflow.runtime.checkpoints.completeness import Watch
from gpuflow.runtime.state.checkpoint_dir import Directory, Entry
from gpuflow.runtime.state.directory_owner import read_owner
from gpuflow.runtime.state.ledger import Ledger, OwnershipLost
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.storage_timeout import Limit
from gpuflow.runtime.stores.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuflow.runtime.base.options import Options

BATCH = 100
"""Keys that are deleted between two questions whether to go on."""


def prune(store: Store, ledger: Ledger, keep: int, newest: str, proceed: Callable[[], bool]) -> bool:
    """Keep N. A manifest goes before its files; uploads that never got one go too. False when told to stop before."""
    top = ledger.key("checkpoints")
    whole = [name for name, _ in transfer.manifests(store, ledger.base, ledger.since) if name not in ledger.damaged]
    spared = set(whole[-keep:]) if ledger.keys is None else _newest_signed(store, ledger, whole, keep)
    doomed = []
    for key, _ in store.names(top):
        name = key[len(top) + 1 :].partition("/")[0]
        if name not in spared and name < newest and may_go(name, ledger):
            doomed.append(key)
    unsigned = _not_signed(store, ledger, [key for key in doomed if _is_manifest(key, top)])
    doomed = [key for key in doomed if key[len(top) + 1 :].partition("/")[0] not in unsigned]
    doomed.sort(key=lambda key: not _is_manifest(key, top))
    for at in range(0, len(doomed), BATCH):
        if not proceed():
            return False
        store.delete(doomed[at : at + BATCH])
    return True


def _newest_signed(store: Store, ledger: Ledger, whole: list[str], keep: int) -> set[str]:
    """The newest N that are signed: a manifest that anybody wrote must not take the place of one of ours."""
    found: set[str] = set()
    for name in reversed(whole):
        if len(found) == keep:
            break
        try:
            transfer.read_manifest(store, ledger.key("checkpoints", name, "manifest.json"), ledger.keys)
            found.add(name)
        except Corrupt:
            continue
    return found


def _not_signed(store: Store, ledger: Ledger, manifests: list[str]) -> set[str]:
    """With keys, what none of ours has signed is not ours to remove: who has the wrong key must not destroy a run. What
    was forgotten goes all the same."""
    if ledger.keys is None:
        return set()
    found = []
    for key in manifests:
        name = key.split("/")[-2]
        if name in ledger.unsigned or (attempt_of(name) or 0) < ledger.since:
            continue
        try:
            transfer.read_manifest(store, key, ledger.keys)
        except Corrupt:
            found.append(name)
    ledger.unsigned.update(found)
    if found:
        more = f" and {len(found) - 1} more are" if len(found) > 1 else " is"
        ledger.say(f"the checkpoint {found[-1]}{more} not signed with our key: left in the store, and not removed")
    return ledger.unsigned


def may_go(name: str, ledger: Ledger) -> bool:
    """Whether a checkpoint that is not among the newest may be removed."""
    if (attempt := attempt_of(name)) is None:
        return False
    if attempt >= ledger.number or attempt < ledger.since:
        return True
    return name in ledger.damaged or (ledger.resumed is not None and name <= ledger.resumed)


def _is_manifest(key: str, top: str) -> bool:
    return key[len(top) + 1 :].partition("/")[2] == "manifest.json"


_LOOK = 5.0
_LOOK_DEAF = 0.2
_ASK_OWNER = 30.0
_STUCK = 5.0
_SETTLED = 2.0
"""A directory that is gone so soon after its snapshot may have been half removed already when that was taken."""
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Waits after storage failed: this, twice this, up to that."""


class PendingUpload:
    """A checkpoint on its way to the store, from the first try to the last."""

    def __init__(self, entry: Entry, name: str, copy: str, upload: transfer.Upload) -> None:
        self.entry, self.name, self.copy, self.upload = entry, name, copy, upload
        self.seconds = 0.0
        self.taken = time.monotonic()
        self.committing = False
        """Whether its manifest may be in the store, also when no answer came."""

    def is_of(self, entry: Entry) -> bool:
        """The same entry: not replaced by rename since, and not written again."""
        mine = self.entry
        return (mine.name, mine.order) == (entry.name, entry.order) and files.is_same_fingerprint(mine.key, entry.key)


class Keeper:
    """Watches a checkpoint directory for one attempt. Without a store it only writes down what is finished."""

    def __init__(
        self,
        options: Options,
        directory: Directory,
        ledger: Ledger,
        store: Store | None,
        say: Callable[[str], None],
        lost: Callable[[], None],
    ) -> None:
        self.options, self.directory, self.ledger, self.store = options, directory, ledger, store
        self.say, self._tell_lost = say, lost
        self.lost: str | None = None
        self.kept: str | None = None
        self.trouble: str | None = None
        self.stall_seconds: float | None = None
        self.upload_seconds: float | None = None
        self._number = 0
        self._deadline: float | None = None
        self._limit, self._tries = Limit(options.storage_timeout), Limit(options.storage_timeout)
        self._in_vain = False
        """Whether one try after the other came no further, for as long as storage may fail."""
        self._told = self._finishing = False
        self._wait = FIRST_WAIT
        self._rest = (0.0, 0.0)
        """Since when to wait after storage failed, and for how long."""
        self._next_regular = self._next_question = 0.0
        self._pending: PendingUpload | None = None
        self._unpruned: str | None = None
        self._refused: dict[str, dict[str, int]] = {}
        self._look_hard = self._removed = self._newer = self._said_stuck = False
        self._unheard = False
        """Whether renames may have been missed."""
        self._watch: Watch | None = None
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    @property
    def every(self) -> float:
        """The interval now in force."""
        seen = self.ledger.counts.seconds + time.monotonic() - self.ledger.began
        between = interval.mean_time_between(self.options.mtbf, seen, self.ledger.counts.interruptions)
        stall = self.stall_seconds if self.stall_seconds is not None else self.upload_seconds
        return interval.choose_interval(self.options.every, stall, between)

    def start(self) -> None:
        """Before the program starts, so that no rename is missed."""
        self.publish()
        self.directory.remember()
        self._watch = Watch(self.directory.path)
        if not self._watch.hears:
            self.say(
                "inotify cannot be had here now (other programs of this user may hold all that "
                "fs.inotify.max_user_instances allows); until it can, saves are found late, and a file that is renamed "
                "at once after it was written may not be found"
            )
        self._thread.start()

    def hurry(self, deadline: float) -> None:
        """On a stop notice: upload what is finished at once, as fast as possible, and nothing after `deadline`."""
        self._told = True
        self._deadline = deadline
        self._rest, self._wait = (0.0, 0.0), FIRST_WAIT
        self._wake()

    def finish(self, deadline: float | None = None) -> None:
        """The program has ended: upload the newest checkpoint if it is not there yet, then end. Without a deadline
        there is time for as long as something arrives in the store."""
        self._deadline = deadline
        self._limit.progress()
        self._tries.progress()
        self._in_vain = False
        self._rest, self._wait = (0.0, 0.0), FIRST_WAIT
        self._finishing = True
        self._wake()

    @property
    def is_busy(self) -> bool:
        """Whether there is an upload to wait for. One that stands still inside the store's driver is not."""
        if not self._thread.is_alive():
            return False
        if not self._is_over(_STUCK):
            return True
        if not self._said_stuck:
            self._said_stuck = True
            self.say("the last upload stands still inside the store's driver; it is abandoned")
        return False

    def publish(self) -> None:
        """Tell the program's side the interval."""
        try:
            self.directory.folder.write_interval(self.every)
        except OSError as refusal:
            self.trouble = str(refusal)

    def _run(self) -> None:
        while True:
            last = self._finishing
            try:
                self._turn(last)
            except Exception as surprise:
                # Whatever it is, training goes on.
                self._complain(f"{type(surprise).__name__}: {surprise}")
                time.sleep(0.2)
            if self._is_finished(last):
                break
        if self._unheard and self.lost is None:
            self._report_unsure()
        with self._closing:
            # A user has few of them, and an attempt that is repeated here needs one of its own.
            watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _report_unsure(self) -> None:
        if names := self.directory.unsure_names():
            which = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            self.say(
                f"not kept, since without inotify nothing shows whether it was renamed or is half written: {which}; a "
                "directory with the marker, and what the Python API saves, is found all the same"
            )

    @property
    def _next_upload(self) -> float:
        """When to try next. Computed each time, because a stop notice or the program's end may have come since."""
        most = 1.0 if self._told else 5.0 if self._finishing else LONGEST_WAIT
        since, wait = self._rest
        again = since + min(wait, most)
        return again if self._told or self._finishing else max(again, self._next_regular)

    def _is_finished(self, last: bool) -> bool:
        """Whether the keeper is finished; if so, report what could not be stored."""
        waiting = None if self.lost is not None or not last else self._newest_unsaved()
        if self.lost is None and not (last and (waiting is None or self._is_over())):
            return False
        if waiting is not None and self.store is not None:
            why = self.trouble or "there was no time left"
            self._say_not_kept(waiting, why)
        if self._pending is not None:
            self.directory.shared.discard(self._pending.copy)
        return True

    def _say_not_kept(self, entry: Entry, why: str) -> None:
        then = f"the newest one in the store is {self.kept}" if self.kept else "nothing of this attempt is there"
        self.say(f"{entry.name} was not kept: {why}; {then}")

    def _wake(self) -> None:
        with self._closing:
            if self._watch is not None:
                self._watch.wake()

    def _turn(self, last: bool) -> None:
        self._look(0.0 if last and time.monotonic() >= self._next_upload else None)
        if (entry := self._newest_unsaved()) is not None and time.monotonic() >= self._next_upload:
            if self.store is not None:
                self._keep(entry, self.store)
            else:
                self._settle_local(entry)
        if self.store is not None:
            self._prune(self.store)
        self._check_owner()

    def _look(self, seconds: float | None = None) -> None:
        """See what the program has finished; waits for something, so long or until it is time for the next upload."""
        assert self._watch is not None
        if seconds is None:
            pause = _LOOK if self._watch.hears and not self._removed else _LOOK_DEAF
            until = (
                min(time.monotonic() + pause, self._next_upload) if self._newest_unsaved() else time.monotonic() + pause
            )
            seconds = until - time.monotonic()
        renamed = self._watch.wait(seconds)
        self._follow_directory(self._watch)
        deaf = self._look_hard or self._watch.missed or not self._watch.hears
        self._unheard = self._unheard or deaf
        self.directory.look(renamed, deaf=deaf)
        self._look_hard = self._watch.missed = False
        while self.directory.remarks:
            self.say(self.directory.remarks.pop(0))

    def _check_owner(self) -> None:
        """Whether this attempt still owns the run; asked at once when a newer one has written its name here."""
        there = read_owner(self.directory)
        number = there.get("attempt") if there.get("identity") == self.directory.identity else None
        newer = isinstance(number, int) and number > self.ledger.number
        if time.monotonic() >= self._next_question or (newer and not self._newer):
            self._next_question = time.monotonic() + (1.0 if newer else _ASK_OWNER)
            self._ask_owner()
            if self.directory.occupancy is not None and not self.directory.occupancy.held and self.lost is None:
                self.directory.occupancy.renew()  # the older attempt that had the lock may be gone
        self._newer = newer

    def _follow_directory(self, watch: Watch) -> None:
        """Watch the directory again when the program has removed and recreated it."""
        if not watch.is_gone():
            return
        if not os.path.isdir(self.directory.path):
            if not self._removed:
                self.say(f"{self.directory.path} was removed; no checkpoint can be kept until it is there again")
            self._removed = True
            watch.renew()
            return
        watch.renew()
        self.directory.prepare()
        self._removed, self._look_hard = False, True
        if self.directory.occupancy is not None:
            self.directory.occupancy.renew()
            self.directory.occupancy.write_again()
        self.publish()
        self.say(
            f"{self.directory.path} was removed and made anew; it is watched again. What was renamed into it before "
            "now is found by its times or its marker only"
        )

    def _newest_unsaved(self) -> Entry | None:
        """The newest finished checkpoint, unless it is safe already."""
        for entry in reversed(self.directory.finished_entries()):
            if files.is_same_fingerprint(self._refused.get(entry.name), entry.key):
                continue
            if entry.settled if self.store is None else entry.stored is not None:
                return None
            if self._is_whole(entry):
                return entry
        return None

    def _is_whole(self, entry: Entry) -> bool:
        """Whether all of it is finished. A gang's may have parts from other ranks."""
        return True

    def _is_over(self, since: float = 0.0) -> bool:
        """Whether the deadline passed at least `since` seconds ago."""
        if self._deadline is not None:
            return time.monotonic() >= self._deadline + since
        # A thread that has given up says why, and ends by itself.
        in_vain = self._in_vain and not since
        return self._finishing and (in_vain or time.monotonic() >= self._limit.until + since)

    def _keep(self, entry: Entry, store: Store) -> None:
        """One try to bring the newest checkpoint to the store."""
        began = time.monotonic()
        self._tries.begin()
        try:
            pending = self._take_snapshot(entry, store)
            self._send(pending, store)
        except (local_files.CheckpointRefused, BadOption) as refusal:
            self._refused[entry.name] = entry.key
            self._complain(f"{entry.name} cannot be kept in the store: {refusal}")
            self._drop(store)
        except local_files.CheckpointVanished:
            self._drop(store)
            self._rest = (0.0, 0.0)
            if files.is_same_fingerprint(self.directory.key(entry.name), entry.key):
                self._complain(f"{entry.name} is called finished, but changes while it is read; it is tried again")
                self._back_off()
        except transfer.TransferAbandoned:
            self._rest = (time.monotonic(), 1.0)
        except OwnershipLost as loss:
            self._give_up(str(loss))
            self._drop(store)
        except (StorageError, OSError) as refusal:
            self._complain(f"could not keep {entry.name}, training goes on: {refusal}")
            self._tries.has_gained(self._pending.upload.arrived_files if self._pending is not None else 0)
            self._in_vain = self._tries.is_over()
            self._back_off()
        except Exception:
            self._back_off()
            raise
        else:
            took = pending.seconds + time.monotonic() - began
            self.kept, self.trouble, self._wait = pending.name, None, FIRST_WAIT
            self.upload_seconds = interval.blend(self.upload_seconds, took)
            if entry.stall_seconds is not None:
                self.stall_seconds = interval.blend(self.stall_seconds, entry.stall_seconds)
            self.publish()
            self._next_regular = began + self.every
            self._unpruned = pending.name
            self.directory.shared.discard(pending.copy)
            self._pending = None
        if self._pending is not None:
            self._pending.seconds += time.monotonic() - began

    def _take_snapshot(self, entry: Entry, store: Store) -> PendingUpload:
        """The snapshot of an entry: that of the try before, when it is of this same checkpoint."""
        if self._pending is not None:
            if self._pending.is_of(entry):
                return self._pending
            self._drop(store)
        self._refuse_flawed(entry)
        self._number += 1
        self._tries.renew()
        self._pending = self._link(entry, checkpoint_name(self.ledger.number, self._number, self.ledger.id))
        return self._pending

    def _refuse_flawed(self, entry: Entry) -> None:
        if (flaw := self.directory.flaw(entry)) is not None:
            raise local_files.CheckpointRefused(flaw)

    def _link(self, entry: Entry, name: str) -> PendingUpload:
        """A new snapshot, to be uploaded as the checkpoint of this name."""
        directory = self.directory
        copy = directory.temporary(f"upload-{name}")
        try:
            items = local_files.take_snapshot(
                entry.path, directory.shared, copy, lambda: self._is_unchanged(entry), directory.follow
            )
        except BaseException:
            directory.shared.discard(copy)
            raise
        return PendingUpload(entry, name, copy, transfer.Upload(self.ledger.key("checkpoints", name), items))

    def _upload(self, pending: PendingUpload, store: Store) -> list[File]:
        """Send all files of a snapshot that are not there yet."""
        throttle = transfer.Throttle(self._bandwidth, self._proceed, self._add_progress)
        files = pending.upload.send(store, throttle)
        if time.monotonic() - pending.taken < _SETTLED and not self._snapshot_lasts(pending):
            # The program removes it, and may have begun to before the snapshot: then that is not the whole of it.
            raise local_files.CheckpointVanished(pending.entry.name)
        return files

    def _manifest(self, pending: PendingUpload, files: list[File], owner: str, shards: int | None = None) -> Manifest:
        return Manifest(
            checkpoint=pending.name,
            entry=pending.entry.name,
            kind="file" if files and files[0].path == "" else "directory",
            attempt=self.ledger.number,
            id=owner,
            seconds=round(time.monotonic() - self.ledger.began, 3),
            files=files,
            shards=shards,
        )

    def _send(self, pending: PendingUpload, store: Store) -> None:
        entry, upload = pending.entry, pending.upload
        files = self._all_files(pending, self._upload(pending, store), store)
        self._refuse_a_part(upload, files)
        manifest = self._manifest(pending, files, self.ledger.id, self.shards)
        self.ledger.assert_owner()
        pending.committing = True
        transfer.commit(store, upload.prefix, manifest, self.ledger.keys)
        self._add_progress()
        if self._is_unchanged(entry):
            self.directory.record(entry.name, stored=pending.name)

    @property
    def shards(self) -> int | None:
        """How many ranks have a part in a checkpoint; None where it is whole by itself."""
        return None

    def _all_files(self, pending: PendingUpload, files: list[File], store: Store) -> list[File]:
        """The files of the checkpoint. A gang's may have parts from other ranks."""
        return files

    def _refuse_a_part(self, upload: transfer.Upload, files: list[File]) -> None:
        """What only looks like a checkpoint is worse than none: it would be resumed from."""
        indexes = {item.relative: item.path for item in upload.items if item.relative.endswith(completeness.METADATA)}
        missing = completeness.lacking_file(indexes, (file.path for file in files)) if indexes else None
        if missing is not None:
            others = self.options.gang is not None and self.shards is None
            hint = "; other ranks may have it: keep the parts of all with --sharded" if others else ""
            raise local_files.CheckpointRefused(f"it is a part of a checkpoint and lacks {missing}{hint}")

    def _settle_local(self, entry: Entry) -> None:
        """Without a store: force a checkpoint to disk, and write down what its files hash to. Once the program has
        ended only the first is done: there may be no time, and the disk is what counts."""
        try:
            items = local_files.list_items(entry.path, self.directory.follow)
            for item in items:
                if item.is_file:
                    with close_after(open_same(item.path, item.facts)) as handle:
                        os.fsync(handle)
            total = None
            if not (self._told or self._finishing):
                total = transfer.content_hash(
                    items, transfer.Throttle(self._bandwidth, self._may_prune, self._add_progress)
                )
            if self._is_unchanged(entry):
                self.directory.record(entry.name, total=total, settled=True)
            self._wait = FIRST_WAIT
        except local_files.CheckpointRefused as refusal:
            self._refused[entry.name] = entry.key
            self._complain(f"{entry.name} is not forced to disk: {refusal}")
        except transfer.TransferAbandoned:
            self._rest = (0.0, 0.0)
        except (local_files.CheckpointVanished, OSError) as refusal:
            self._back_off()
            if self._finishing:
                self._refused[entry.name] = entry.key
                self._complain(f"{entry.name} could not be forced to disk: {refusal}")

    def _snapshot_lasts(self, pending: PendingUpload) -> bool:
        return local_files.snapshot_lasts(pending.entry.path, pending.upload.items, self.directory.follow)

    def _is_unchanged(self, entry: Entry) -> bool:
        return files.is_same_fingerprint(self.directory.key(entry.name), entry.key)

    def _bandwidth(self) -> int | None:
        most: int | None = self.options.bandwidth
        return None if self._told else most

    def _add_progress(self, count: int | None = None) -> None:
        self._limit.progress()
        self._tries.progress(count)

    def _proceed(self) -> bool:
        return self.lost is None and not self._is_over()

    def _may_prune(self) -> bool:
        return self.lost is None and not self._told and not self._is_over()

    def _back_off(self) -> None:
        self._rest = (time.monotonic(), self._wait)
        self._wait = min(2 * self._wait, LONGEST_WAIT)

    def _prune(self, store: Store) -> None:
        """Remove what is no longer needed, after the upload; with notice there is no time for it."""
        if self._unpruned is None or self._told:
            return
        try:
            if prune(store, self.ledger, self.options.keep, self._unpruned, self._may_prune):
                self._unpruned = None
        except (StorageError, BadOption) as refusal:
            self.trouble = str(refusal)
            self._unpruned = None  # the next upload asks for it again

    def _drop(self, store: Store) -> None:
        """Forget an upload that will not be finished, and free what it used; the next prune finds what stays."""
        pending, self._pending = self._pending, None
        if pending is None:
            return
        self.directory.shared.discard(pending.copy)
        if self._told or pending.committing:
            return
        try:
            store.delete([key for key, _ in store.names(pending.upload.prefix)])
        except (StorageError, BadOption) as refusal:
            self.trouble = self.trouble or str(refusal)

    def _ask_owner(self) -> None:
        try:
            self.ledger.assert_owner()
        except OwnershipLost as loss:
            self._give_up(str(loss))
        except (StorageError, BadOption) as refusal:
            self.trouble = str(refusal)

    def _give_up(self, why: str) -> None:
        self.lost = why
        self._tell_lost()

    def _complain(self, sentence: str) -> None:
        if sentence != self.trouble:
            self.say(sentence)
        self.trouble = sentence
