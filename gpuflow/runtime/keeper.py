"""The thread that keeps checkpoints: it finds finished ones, uploads the newest, and keeps N of them in the store.

Nothing that happens here reaches the program. Storage that fails is tried again with growing waits and reported; the
last good checkpoint is removed only after newer ones were verified.
"""

from __future__ import annotations

import os
import threading
import time

from gpuflow.runtime import fingerprint, interval, transfer
from gpuflow.runtime.directory import Directory, Entry, discard
from gpuflow.runtime.ledger import Ledger, Lost
from gpuflow.runtime.store import StorageError, Store
from gpuflow.runtime.watch import Watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuflow.runtime.options import Options

_LOOK = 5.0
_LOOK_DEAF = 0.2
_ASK_OWNER = 30.0
FIRST_WAIT = 1.0
LONGEST_WAIT = 60.0
"""Waits after storage failed: this, twice this, up to that."""


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
        self._finishing = False
        self._wait = FIRST_WAIT
        self._next_upload = self._next_question = 0.0
        self._watch: Watch | None = None
        self._thread = threading.Thread(target=self._run, name="keeper", daemon=True)

    @property
    def every(self) -> float:
        """The interval now in force."""
        seen = self.ledger.counts.seconds + time.monotonic() - self.ledger.began
        between = interval.mean_time_between(self.options.mtbf, seen, self.ledger.counts.interruptions)
        stall = self.stall_seconds if self.stall_seconds is not None else self.upload_seconds
        return interval.choose(self.options.every, stall, between)

    def start(self) -> None:
        """Before the program starts, so that no rename is missed."""
        self.publish()
        self._watch = Watch(self.directory.path)
        if not self._watch.hears:
            self.say("inotify cannot be had here; quick saves may be found late, or only by their marker")
        self._thread.start()

    def hurry(self, deadline: float) -> None:
        """There is notice: upload what is finished at once, and nothing after `deadline`."""
        self._deadline = deadline
        self._next_upload = 0.0
        self._wake()

    def finish(self, deadline: float) -> None:
        """The program has ended: upload the newest checkpoint if it is not there yet, then end."""
        self._deadline = deadline
        self._next_upload = 0.0
        self._finishing = True
        self._wake()

    @property
    def busy(self) -> bool:
        return self._thread.is_alive()

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
            if self.lost is not None or (last and (self._newest() is None or self._over())):
                return

    def _wake(self) -> None:
        if self._watch is not None:
            self._watch.wake()

    def _turn(self, last: bool) -> None:
        assert self._watch is not None
        pause = _LOOK if self._watch.hears else _LOOK_DEAF
        until = min(time.monotonic() + pause, self._next_upload) if self._newest() else time.monotonic() + pause
        renamed = self._watch.wait(0.0 if last and self._next_upload == 0.0 else until - time.monotonic())
        self.directory.look(renamed, deaf=not self._watch.hears)
        entry = self._newest()
        if entry is not None and time.monotonic() >= self._next_upload and self.store is not None:
            self._keep(entry, self.store)
        if time.monotonic() >= self._next_question:
            self._next_question = time.monotonic() + _ASK_OWNER
            self._ask_owner()

    def _newest(self) -> Entry | None:
        """The newest finished checkpoint, unless it is in the store already."""
        if self.store is None:
            return None
        entries = self.directory.finished()
        return entries[-1] if entries and entries[-1].stored is None else None

    def _over(self) -> bool:
        return self._deadline is not None and time.monotonic() >= self._deadline

    def _keep(self, entry: Entry, store: Store) -> None:
        self._number += 1
        began = time.monotonic()
        name = f"{self.ledger.number:06d}-{self._number:06d}-{self.ledger.id[:8]}"
        prefix = self.ledger.key("checkpoints", name)
        copy = self.directory.temporary(f"upload-{name}")
        try:
            self._upload(entry, store, name, prefix, copy)
            took = time.monotonic() - began
            self.kept, self.trouble, self._wait = name, None, FIRST_WAIT
            self.upload_seconds = interval.blended(self.upload_seconds, took)
            if entry.stall_seconds is not None:
                self.stall_seconds = interval.blended(self.stall_seconds, entry.stall_seconds)
            self.publish()
            self._next_upload = began + self.every
            self._prune(store, name)
        except transfer.Vanished:
            self._next_upload = 0.0
            self._sweep(store, prefix)
        except transfer.Abandoned:
            self._next_upload = time.monotonic() + 1.0
        except Lost as loss:
            self._give_up(str(loss))
            self._sweep(store, prefix)
        except (StorageError, OSError) as refusal:
            self._complain(f"could not keep {entry.name}, training goes on: {refusal}")
            self._next_upload = time.monotonic() + self._wait
            self._wait = min(2 * self._wait, LONGEST_WAIT)
            self._sweep(store, prefix)
        finally:
            discard(copy)

    def _upload(self, entry: Entry, store: Store, name: str, prefix: str, copy: str) -> None:
        source = transfer.snapshot(entry.path, copy)
        throttle = transfer.Throttle(self.options.bandwidth, self._proceed)
        files = transfer.upload(store, prefix, source, throttle)
        is_directory = os.path.isdir(source)
        if not is_directory:
            status = os.lstat(source)
            if [status.st_ino, status.st_mtime_ns, status.st_size] != [
                entry.key[f] for f in ("inode", "changed", "size")
            ]:
                raise transfer.Vanished(entry.name)
        manifest = {
            "contract": 1,
            "checkpoint": name,
            "entry": entry.name,
            "kind": "directory" if is_directory else "file",
            "attempt": self.ledger.number,
            "id": self.ledger.id,
            "seconds": round(time.monotonic() - self.ledger.began, 3),
            "files": files,
        }
        self.ledger.assert_owner()
        transfer.commit(store, prefix, manifest)
        if any(
            other.name == entry.name and fingerprint.same(other.key, entry.key) for other in self.directory.finished()
        ):
            self.directory.record(entry.name, stored=name)

    def _proceed(self) -> bool:
        return self.lost is None and not self._over()

    def _prune(self, store: Store, newest: str) -> None:
        """Keep N. A manifest goes before its files; uploads that never got one go too."""
        try:
            found = transfer.manifests(store, self.ledger.base)
            names = [name for name, _ in found if name not in self.ledger.damaged]
            spared = set(names[-self.options.keep :])
            top = self.ledger.key("checkpoints")
            doomed = [key for key, _ in store.names(top) if key[len(top) + 1 :].partition("/")[0] not in spared]
            doomed = [key for key in doomed if key[len(top) + 1 :].partition("/")[0] < newest]
            store.delete(sorted(doomed, key=lambda key: not key.endswith("/manifest.json")))
        except StorageError as refusal:
            self.trouble = str(refusal)

    def _sweep(self, store: Store, prefix: str) -> None:
        """Free what a failed upload used, if storage lets us; the next prune finds what stays."""
        try:
            store.delete([key for key, _ in store.names(prefix)])
        except StorageError as refusal:
            self.trouble = self.trouble or str(refusal)

    def _ask_owner(self) -> None:
        try:
            self.ledger.assert_owner()
        except Lost as loss:
            self._give_up(str(loss))
        except StorageError as refusal:
            self.trouble = str(refusal)

    def _give_up(self, why: str) -> None:
        self.lost = why
        self._tell_lost()

    def _complain(self, sentence: str) -> None:
        if sentence != self.trouble:
            self.say(sentence)
        self.trouble = sentence
