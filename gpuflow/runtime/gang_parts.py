"""Checkpoints with a part from each rank, as rank 0 sees them: who has finished, who has stored, and the one list.

    every program finishes an entry of the same name ── every member says `finished`
    rank 0 says `keep` ── all upload their own files under one name ── each writes its list, and says `part`
    rank 0 puts the lists together, sees that every file is there, and writes the manifest: now the checkpoint exists

Whoever is lost on the way leaves files without a manifest: no checkpoint. The next one prunes them.
"""

from __future__ import annotations

import hashlib
import time

from gpuflow.runtime import gang_words as words
from gpuflow.runtime import records
from gpuflow.runtime.records import Corrupt, File, Manifest
from gpuflow.runtime.snapshot import Refused, Vanished
from gpuflow.runtime.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gpuflow.runtime.directory import Directory
    from gpuflow.runtime.gang_hub import Hub
    from gpuflow.runtime.gang_words import Message
    from gpuflow.runtime.ledger import Ledger

FROM_MEMBERS = ("finished", "part", "nopart", "moving", "last")
"""What members say of their parts. `gang_words` has the table."""
_REMEMBERED = 64
"""Entries that are remembered of one rank: programs keep only a few."""
_TOKEN = 4096


class Parts:
    """What rank 0 knows of the members' parts. The star's thread fills it, the keeper's thread reads it."""

    def __init__(self, hub: Hub, ranks: Iterable[int]) -> None:
        self._hub, self.ranks = hub, sorted(ranks)
        self._finished: dict[int, dict[str, str]] = {rank: {} for rank in self.ranks}
        self._stored: dict[int, tuple[str, str]] = {}
        self._refused: dict[int, Message] = {}
        self._over: set[int] = set()
        self._order = 0
        self.moved = time.monotonic()
        """When anything was last heard of a part."""
        self.wake: Callable[[], None] = lambda: None

    # -- the star's thread

    def hear(self, rank: int, message: Message) -> None:
        """A member's word; the hub's lock is held."""
        what = message["say"]
        self.moved = time.monotonic()
        if rank not in self._finished:
            return
        if what == "finished":
            known = self._finished[rank]
            name = words.text(message, "entry")
            known.pop(name, None)
            known[name] = words.text(message, "token")
            for old in list(known)[:-_REMEMBERED]:
                del known[old]
        elif what == "part" and words.number(message, "order") == self._order:
            self._stored[rank] = (words.text(message, "checkpoint"), words.text(message, "digest"))
        elif what == "nopart" and words.number(message, "order") == self._order:
            self._refused[rank] = message
        elif what == "last":
            self._over.add(rank)
        if what != "moving":
            self.wake()

    # -- the keeper's thread

    def all_have(self, entry: str, token: str) -> bool:
        """Whether every member has finished this entry, of the same save."""
        return not self.without(entry, token)

    def without(self, entry: str, token: str) -> list[int]:
        """The members that have not finished it."""
        with self._hub.lock:
            return [rank for rank in self.ranks if self._finished[rank].get(entry) != token]

    def may_finish_more(self) -> bool:
        """Whether a member that is alive may still finish an entry."""
        with self._hub.lock:
            return any(rank in self._hub.members and rank not in self._over for rank in self.ranks)

    def ask(self, entry: str, token: str, checkpoint: str) -> None:
        """Tell every member to store its part under this name."""
        with self._hub.lock:
            self._order += 1
            self._stored.clear()
            self._refused.clear()
            self.moved = time.monotonic()
            self._hub.tell("keep", entry=entry, token=token, checkpoint=checkpoint, order=self._order)

    def done(self, checkpoint: str, *, kept: bool) -> None:
        """Tell them that it exists, or that it never will."""
        self._hub.tell("done", checkpoint=checkpoint, kept=kept)

    def close(self) -> None:
        """Tell them that no part is asked for any more."""
        self._hub.tell("enough")

    def lost(self) -> list[int]:
        with self._hub.lock:
            return [rank for rank in self.ranks if rank not in self._hub.members]

    def answers(self, checkpoint: str) -> dict[int, str] | None:
        """What each member's list hashes to, once all have stored theirs. Raises what a member could not do."""
        with self._hub.lock:
            for rank, message in sorted(self._refused.items()):
                because = f"rank {rank}: {words.text(message, 'because', 'it did not say why')}"
                kind = words.text(message, "kind")
                raise {"refused": Refused, "gone": Vanished}.get(kind, StorageError)(because)
            found = {rank: digest for rank, (name, digest) in self._stored.items() if name == checkpoint}
        return found if len(found) == len(self.ranks) else None


def token_of(directory: Directory, entry: str) -> str:
    """What tells one save from another under the same name: a hash of its marker's text, empty where there is none."""
    try:
        text = directory.shared.read(f"{entry}/{directory.marker}", _TOKEN)
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(text).hexdigest()[:16] if text.strip() else ""


def list_key(ledger: Ledger, checkpoint: str, rank: int) -> str:
    """Where the list of one rank's files lies."""
    return ledger.key("checkpoints", checkpoint, "shards", f"{rank:06d}.json")


def write_list(store: Store, ledger: Ledger, rank: int, part: Manifest) -> str:
    """Store the list of one rank's files, and read it back; what its bytes hash to."""
    key = list_key(ledger, part.checkpoint, rank)
    data = records.pack(part, key, ledger.keys)
    if len(data) > records.LARGE:
        raise Refused(f"its {len(part.files)} files are too many to name in one list; put them into archives")
    store.write(key, data)
    try:
        same = store.read(key) == data
    except FileNotFoundError:
        same = False
    if not same:
        raise StorageError(f"{key} does not read back as it was written")
    return hashlib.sha256(data).hexdigest()


def read_list(store: Store, ledger: Ledger, rank: int, checkpoint: str, entry: str, digest: str) -> list[File]:
    """The files of one rank's part, exactly as that rank said it had stored them."""
    key = list_key(ledger, checkpoint, rank)
    try:
        data = store.read(key)
    except FileNotFoundError:
        raise StorageError(
            f"the list of rank {rank} is not in the store as rank 0 sees it ({key}); is --store the same place for all?"
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise StorageError(f"{key} is not what rank {rank} has stored")
    try:
        part: Manifest = records.unpack(Manifest, data, key, ledger.keys)
    except Corrupt as damage:
        raise StorageError(str(damage)) from None
    if (part.checkpoint, part.entry, part.attempt) != (checkpoint, entry, ledger.number):
        raise StorageError(f"{key} is of another checkpoint")
    if part.kind != "directory":
        raise Refused(f"{entry} is a file on rank {rank}; a checkpoint of many ranks is a directory")
    return part.files


def merged(parts: Mapping[int, list[File]]) -> list[File]:
    """The files of all ranks as those of one folder. What two ranks have both must be the same."""
    found: dict[str, tuple[int, File]] = {}
    for rank in sorted(parts):
        for file in parts[rank]:
            first, known = found.setdefault(file.path, (rank, file))
            if (known.sha256, known.link, known.directory) != (file.sha256, file.link, file.directory):
                raise Refused(
                    f"{file.path} is not the same on rank {first} and on rank {rank}; let one rank write it, or give "
                    "each rank's file a name of its own"
                )
    return [found[path][1] for path in sorted(found)]


def see_all(store: Store, prefix: str, files: Iterable[File]) -> None:
    """StorageError unless the store lists every file with its size."""
    there = dict(store.names(prefix))
    for file in files:
        key = f"{prefix}/files/{file.path}"
        if file.sha256 is not None and there.get(key) != file.size:
            raise StorageError(f"{key} has {there.get(key)} bytes in the store, not {file.size}")
