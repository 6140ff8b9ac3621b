"""The keepers of a gang whose checkpoints have a part from each rank (`--sharded`): rank 0's, and every other rank's.

Rank 0 chooses what is kept and writes the manifest; a member finds what its program has finished, says so, and stores
its own files when it is asked to. `hub` has the order of things.
"""

from __future__ import annotations

import time

from gpuflow.runtime.base import files
from gpuflow.runtime.base.records import File
from gpuflow.runtime.checkpoints import transfer
from gpuflow.runtime.checkpoints.keeper import Keeper, PendingUpload
from gpuflow.runtime.gangs.ranks import hub, protocol
from gpuflow.runtime.state.checkpoint_dir import Entry
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuflow.runtime.gangs.ranks.hub import Parts
    from gpuflow.runtime.gangs.ranks.protocol import Message
    from gpuflow.runtime.gangs.ranks.spoke import Spoke

_POLL = 0.05
_SAY_MOVING = 1.0
REUSED_MESSAGE = (
    "was written again under its name: with parts from several ranks the new one cannot be told from the old one; give "
    "each checkpoint a name of its own, or write its step into the marker file"
)


class _Names:
    """Names that were used twice for different checkpoints, where nothing else tells them apart."""

    def __init__(self) -> None:
        self._first: dict[str, dict[str, int]] = {}
        self._reused: set[str] = set()

    def tell_apart(self, entry: Entry, token: str, say: Callable[[str], None]) -> bool:
        """Whether the name is of one checkpoint only; that it is not is said once."""
        same = token or files.is_same_fingerprint(self._first.setdefault(entry.name, entry.key), entry.key)
        if not same and entry.name not in self._reused:
            self._reused.add(entry.name)
            say(f"{entry.name} {REUSED_MESSAGE}")
        return entry.name not in self._reused


class GatheringKeeper(Keeper):
    """Rank 0's: a checkpoint is what every rank has finished."""

    parts: Parts

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._names = _Names()

    def start(self) -> None:
        self.parts.wake = self._wake
        super().start()

    def _newest_unsaved(self) -> Entry | None:
        if self.parts.lost_members():
            return None  # nothing becomes whole any more: nobody waits for it
        return super()._newest_unsaved()

    def _is_whole(self, entry: Entry) -> bool:
        token = hub.token_of(self.directory, entry.name)
        return self._names.tell_apart(entry, token, self.say) and not self.parts.members_without(entry.name, token)

    def _is_finished(self, last: bool) -> bool:
        if last and self.lost is None and not self._is_over() and self.parts.may_finish_more():
            # Another rank's program still runs: what it finishes may make a checkpoint whole.
            self._limit.progress()
            time.sleep(_POLL)
            return False
        if ended := super()._is_finished(last):
            self._report_incomplete()
            self.parts.close()
        return ended

    def _report_incomplete(self) -> None:
        """The newest entry that some rank lacks; what could not be stored is said by others."""
        newest = next(reversed(self.directory.finished_entries()), None)
        if (
            newest is None
            or newest.stored is not None
            or files.is_same_fingerprint(self._refused.get(newest.name), newest.key)
        ):
            return
        lacking = self.parts.members_without(newest.name, hub.token_of(self.directory, newest.name))
        lost = self.parts.lost_members()
        if lacking or lost:
            ranks = ", ".join(map(str, lacking or lost))
            why = "did not finish its part" if lacking else "is lost"
            self._say_not_kept(newest, f"rank {ranks} {why}")

    def _send(self, pending: PendingUpload, store: Store) -> None:
        token = hub.token_of(self.directory, pending.entry.name)
        self.parts.ask(pending.entry.name, token, pending.name)
        super()._send(pending, store)
        self.parts.announce(pending.name, kept=True)

    def _all_files(self, pending: PendingUpload, files: list[File], store: Store) -> list[File]:
        if files and files[0].path == "":
            raise local_files.CheckpointRefused("it is a file; a checkpoint of many ranks is a directory")
        found = self._wait_for_parts(pending)
        parts = {
            rank: hub.read_list(store, self.ledger, rank, pending.name, pending.entry.name, digest)
            for rank, digest in found.items()
        }
        whole = hub.merge_lists({0: files, **parts})
        hub.check_all_listed(store, pending.upload.prefix, whole)
        self._add_progress()
        return whole

    def _wait_for_parts(self, pending: PendingUpload) -> dict[int, str]:
        """Wait until every member has stored its part."""
        while True:
            if (found := self.parts.answers(pending.name)) is not None:
                return found
            if not self._proceed() or self.parts.lost_members():
                raise transfer.TransferAbandoned()
            quiet = time.monotonic() - self.parts.moved
            if quiet > self.options.storage_timeout:
                raise StorageError("the other ranks do not get on with their parts")
            if quiet < 1.0:
                self._limit.progress()
            time.sleep(_POLL)

    def _drop(self, store: Store) -> None:
        if self._pending is not None:
            self.parts.announce(self._pending.name, kept=False)
        super()._drop(store)

    @property
    def shards(self) -> int | None:
        return 1 + len(self.parts.ranks)


class PartKeeper(Keeper):
    """A member's: it stores its own part of what rank 0 keeps."""

    spoke: Spoke
    attempt_id: str
    """Rank 0's: the attempt is one."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._names = _Names()
        self._told_of: dict[str, tuple[dict[str, int], str]] = {}
        self._order = 0
        self._said_last = False
        self._say_moving_at = 0.0

    def start(self) -> None:
        # What an earlier attempt left here is no part of anything.
        for entry in self.directory.finished_entries():
            self._told_of[entry.name] = (entry.key, hub.token_of(self.directory, entry.name))
        self.spoke.wake_keeper = self._wake
        super().start()

    def _newest_unsaved(self) -> Entry | None:
        return None  # rank 0 chooses

    def _turn(self, last: bool) -> None:
        assert self._watch is not None and self.store is not None
        self._look(0.0 if last or self._order != self._asked_order() else None)
        self._tell_finished()
        if last and not self._said_last:
            self._said_last = True
            self.spoke.say("last")
        self._settle_done(self.store)
        if (message := self.spoke.keep) is not None and self._order != self._asked_order():
            self._order = self._asked_order()
            self._keep_part(message, self.store)
        elif last:
            time.sleep(_POLL)

    def _asked_order(self) -> int:
        return 0 if self.spoke.keep is None else protocol.number(self.spoke.keep, "order") or 0

    def _tell_finished(self) -> None:
        for entry in self.directory.finished_entries():
            token = hub.token_of(self.directory, entry.name)
            known = self._told_of.get(entry.name)
            if known is not None and files.is_same_fingerprint(known[0], entry.key) and known[1] == token:
                continue
            self._told_of[entry.name] = (entry.key, token)
            if self._names.tell_apart(entry, token, self.say):
                self.spoke.say("finished", entry=entry.name, token=token)

    def _settle_done(self, store: Store) -> None:
        """Handle rank 0's message on our part: stored in a checkpoint, or given up."""
        message, pending = self.spoke.done, self._pending
        if message is None or pending is None or protocol.text(message, "checkpoint") != pending.name:
            return
        if message.get("kept") is True:
            self.kept = pending.name
            if self._is_unchanged(pending.entry):
                self.directory.record(pending.entry.name, stored=pending.name)
        self.directory.shared.discard(pending.copy)
        self._pending = None

    def _keep_part(self, message: Message, store: Store) -> None:
        """Store our part, and say so, or why not."""
        checkpoint = protocol.text(message, "checkpoint")
        try:
            digest = self._store_part(message, checkpoint, store)
        except transfer.TransferAbandoned:
            return
        except local_files.CheckpointVanished as loss:
            self._refuse(checkpoint, "gone", f"its part is gone or was written again: {loss}")
        except local_files.CheckpointRefused as refusal:
            self._refuse(checkpoint, "refused", str(refusal))
        except (StorageError, OSError) as refusal:
            self._complain(f"could not keep our part of {protocol.text(message, 'entry')}, training goes on: {refusal}")
            self._refuse(checkpoint, "storage", str(refusal))
        else:
            self.trouble = None
            self.spoke.say("part", checkpoint=checkpoint, digest=digest, order=self._order)

    def _refuse(self, checkpoint: str, kind: str, because: str) -> None:
        self.spoke.say("nopart", checkpoint=checkpoint, kind=kind, because=because, order=self._order)

    def _store_part(self, message: Message, checkpoint: str, store: Store) -> str:
        pending = self._part(message, checkpoint)
        part = self._manifest(pending, self._upload(pending, store), self.attempt_id)
        return hub.write_list(store, self.ledger, self.spoke.place.rank, part)

    def _part(self, message: Message, checkpoint: str) -> PendingUpload:
        """The snapshot of our part: that of the try before, when it is of this same checkpoint."""
        name, token = protocol.text(message, "entry"), protocol.text(message, "token")
        entry = next((each for each in self.directory.finished_entries() if each.name == name), None)
        if self._pending is not None:
            if self._pending.name == checkpoint and (entry is None or self._pending.is_of(entry)):
                return self._pending
            self.directory.shared.discard(self._pending.copy)
            self._pending = None
        if entry is None or hub.token_of(self.directory, name) != token:
            raise local_files.CheckpointVanished(name)
        self._refuse_flawed(entry)
        self._pending = self._link(entry, checkpoint)
        return self._pending

    def _add_progress(self, count: int | None = None) -> None:
        super()._add_progress(count)
        if time.monotonic() >= self._say_moving_at:
            self._say_moving_at = time.monotonic() + _SAY_MOVING
            self.spoke.say("moving")

    def _proceed(self) -> bool:
        # A newer order makes this one void.
        return super()._proceed() and self._order == self._asked_order() and self.spoke.verdict is None

    def _is_finished(self, last: bool) -> bool:
        """The program has ended, and rank 0 asks for no more parts."""
        over = last and self._said_last and (self.spoke.enough or self.spoke.verdict is not None or self._is_over())
        if over and self._pending is not None:
            self.directory.shared.discard(self._pending.copy)
        return over

    def _is_over(self, since: float = 0.0) -> bool:
        # Without a deadline it is rank 0 that says when there is no more to keep.
        return self._deadline is not None and super()._is_over(since)
