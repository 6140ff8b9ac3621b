"""The directory a program saves to: which entries in it are finished checkpoints, and whose.

An entry is finished when it appeared by rename, when it is a directory that holds the marker file, or when the Python
API says so. Names with a leading dot are in progress. What is known is written down with the entry's fingerprint, so
that a restarted supervisor knows it too, and a later half-written file of the same name is not mistaken for it.
Records count upwards; no clock orders them.

    .gpuflow/owner.json, .gpuflow/lock             who works here now
    .gpuflow/<identity>/finished/<name>.json       what this run, step and item has finished
    .gpuflow/<identity>/<attempt id>/              stop, interval, heartbeat and temporary files of one attempt

So two runs or items never read each other's files, and neither do two attempts of one run.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat

from gpuflow.runtime.base import files, record_fields
from gpuflow.runtime.base.attempt_folder import UNSUPERVISED, AttemptFolder
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.base.record_fields import Record, field

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Protocol

    class Occupancy(Protocol):
        """An attempt's hold on a directory; `directory_owner` has it."""

        held: bool
        said: dict[str, Any]

        def renew(self) -> bool: ...
        def write_again(self) -> None: ...
        def leave(self) -> None: ...


HIDDEN_FOLDER = ".gpuflow"
MARKER = ".gpuflow-complete"


def _fingerprint(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError("not a fingerprint")
    return {fact: record_fields.integer(number) for fact, number in value.items()}


class Entry(Record):
    """A finished checkpoint in the directory. `stored` names its copy in the store. Without a store: `settled` when it
    was forced to disk, `total` what its files hash to together."""

    name = path = ""
    order: int = field(record_fields.integer)
    key: dict[str, int] = field(_fingerprint)
    stored: str | None = field(record_fields.or_none(record_fields.text), None)
    total: str | None = field(record_fields.or_none(record_fields.text), None)
    settled: bool = field(lambda value: value is True, False)
    stall_seconds: float | None = field(record_fields.or_none(record_fields.number), None)
    by: Any = field(record_fields.anything, None)
    entries: int | None = field(record_fields.or_none(record_fields.integer), None)
    """How many files and folders it had when it was finished."""

    @property
    def by_api(self) -> bool:
        return bool(self.by == "api")


class Directory:
    """A checkpoint directory as one attempt of one identity sees it. Until `enter` there is no supervisor."""

    def __init__(self, path: str, marker: str = MARKER, own: str = "") -> None:
        """`own`: a folder in it that is this identity's."""
        self.shared, self.marker = SharedFolder(os.path.abspath(path), own), marker
        self.path = self.shared.root
        self.follow: Sequence[str] = ()
        """Folders outside that links in a checkpoint may lead to."""
        self.hidden = os.path.join(self.path, HIDDEN_FOLDER)
        self.is_own = bool(own)
        """Whether it is a folder that only this run, step and item work in."""
        self.occupancy: Occupancy | None = None
        self.remarks: list[str] = []
        """What someone should be told: the keeper says it."""
        self._remarked: set[str] = set()
        self.uid: int | None = None
        """Whose our own files are here, once that is known: what another user wrote about us is not believed."""
        self._names: dict[int, tuple[int, str]] = {}
        """By its inode: when each entry was born, and its name at the look before."""
        self._scanned: dict[str, dict[str, int]] = {}
        self._there: dict[str, dict[str, int]] = {}
        self._unwritten: dict[str, dict[str, Any]] = {}
        self.enter(UNSUPERVISED, "")

    @classmethod
    def of_program(cls, path: str, stop: str | None, marker: str = MARKER) -> Directory:
        """The directory as the program sees it; `$GPUFLOW_STOP`, set by the supervisor, names the attempt's folder."""
        directory = cls(path, marker)
        folder, attempt = os.path.split(os.path.dirname(os.path.abspath(stop))) if stop else ("", "")
        if os.path.dirname(folder) == directory.hidden:
            directory.enter(os.path.basename(folder), attempt)
        return directory

    def enter(self, identity: str, attempt: str) -> None:
        """From now on work for this attempt of this identity."""
        self.identity, self.attempt = identity, attempt
        self.own_folder = os.path.join(self.hidden, identity)
        self.attempt_folder = os.path.join(self.own_folder, attempt) if attempt else self.own_folder
        self.folder = AttemptFolder(self.attempt_folder, self.shared)
        self._records = os.path.join(self.own_folder, "finished")

    def prepare(self) -> None:
        self.shared.make(self._records)
        self.folder.prepare()

    def temporary(self, name: str) -> str:
        """A place for a file of this attempt that no one else looks at."""
        return os.path.join(self.attempt_folder, name)

    def finished_entries(self) -> list[Entry]:
        """Finished checkpoints, oldest first. Records whose entry is gone or was replaced are dropped."""
        entries = []
        for name in self._recorded_names():
            record = self._read_record(name)
            key = self.key(name)
            if record is None or key is None or not files.is_same_fingerprint(record.get("key"), key):
                if key is None:
                    self._forget(name)
                elif record is not None:
                    self._remark_change(name, record, key)
                continue
            if record.get("foreign"):
                continue
            entry = _entry(record)
            assert entry is not None  # it was read
            entry.name, entry.path = name, os.path.join(self.path, name)
            entries.append(entry)
        return sorted(entries, key=lambda entry: (entry.order, entry.name))

    def record(self, name: str, *, fresh: bool = False, **facts: Any) -> None:
        """Write down that an entry is finished, or add facts to what is written; it keeps its place in the order.

        With `fresh` it is a new checkpoint whatever was known. What cannot be written now, because the disk is full,
        is known all the same and written at the next look.
        """
        key = self.key(name)
        if key is None:
            return
        if (old := self._read_record(name)) is None or not files.is_same_fingerprint(old.get("key"), key):
            old = {"key": key, "order": self._next_order(), "entries": self._entries(name)}
        elif fresh:
            kept = {fact: value for fact, value in old.items() if fact not in ("stored", "total", "settled", "foreign")}
            old = {**kept, "order": self._next_order(), "entries": self._entries(name)}
        elif not facts:
            return
        self._write(name, {**old, **facts})

    def flaw(self, entry: Entry) -> str | None:
        """Why it is no whole checkpoint: a program may have been killed while it removed it."""
        count = self._entries(entry.name)
        if entry.entries and count < entry.entries:
            return f"files of {entry.name} were removed after it was finished"
        return f"{entry.name} is an empty folder" if not count and self.shared.is_folder(entry.name) else None

    def look(self, renamed: Iterable[str] = (), *, deaf: bool = False) -> None:
        """Find newly finished entries: those renamed, marked, or seen under another name by the look before. When no
        one tells of renames (`deaf`), a file's own times do: writing sets both, renaming only the second."""
        for name, record in list(self._unwritten.items()):
            self._write(name, record)
        told = {name for name in renamed if not name.startswith(".")}
        for name in sorted(told):
            # The look before may have seen this rename itself; then it is no second one.
            self.record(name, fresh=not files.is_same_fingerprint(self._scanned.get(name), self.key(name)))
        try:
            with os.scandir(self.path) as listing:
                found = list(listing)
        except OSError:
            return
        names: dict[int, tuple[int, str]] = {}
        scanned: dict[str, dict[str, int]] = {}
        there = {item.name for item in found}
        for item in found:
            try:
                names[item.inode()] = (files.birth_time(item.path), item.name)
                if item.name.startswith("."):
                    continue
                if item.name not in told and self._name_changed(item, there):
                    self.record(item.name, fresh=True)
                    scanned[item.name] = self.key(item.name) or {}
                elif self._is_marked(item.name) or (deaf and self._was_renamed(item)):
                    self.record(item.name)
            except OSError:
                continue
        # Only what is there now: numbers of files that are gone are given to others.
        self._names, self._scanned = names, scanned

    def remember(self) -> None:
        """Remember the present files: they were not renamed after this call, whatever their times are."""
        with contextlib.suppress(OSError):
            for name in os.listdir(self.path):
                key = self.key(name)
                if key is not None:
                    self._there[name] = key

    def disown(self, *, others: bool = False) -> None:
        """Believe nothing that lies here: forget what was written down, and pass over what is marked finished. With
        `others`, only what this identity did not write down itself."""
        mine = {entry.name for entry in self.finished_entries()} if others else set()
        for name in self._recorded_names():
            if name not in mine:
                self._forget(name)
        for name in sorted(os.listdir(self.path)):
            if not name.startswith(".") and name not in mine and self._is_marked(name):
                self.record(name, foreign=True)

    def adopt_version_1(self) -> None:
        """Records as gpuflow 0.1 wrote them, of this same run: without a store they are all there is to resume from."""
        old = os.path.join(self.hidden, "finished")
        for file in self.shared.names(old) if self.shared.is_folder(old) else []:
            record = load(self.shared, os.path.join(old, file)) or {}
            key = self.key(file[:-5]) or {}
            facts = ("inode", "marked") if "marked" in key else ("inode", "changed", "size")
            if key and record.get("key") == [key[fact] for fact in facts] and isinstance(record.get("order"), int):
                self._write(file[:-5], {**record, "key": key})
        self.shared.discard(old)

    def place(self, temporary: str, name: str, **facts: Any) -> str:
        """Move a restored checkpoint to its name, replacing what was there."""
        target = os.path.join(self.path, name)
        if self.shared.has(name):
            aside = self.temporary(f"replaced-{os.urandom(4).hex()}")
            self.shared.rename(name, aside)
            self.shared.discard(aside)
        self.shared.rename(temporary, name)
        self.record(name, **facts)
        return target

    def set_aside(self, name: str) -> bool:
        """Give an entry of someone else's a dotted name, if there is one: it is not ours to remove."""
        if not self.shared.has(name):
            return False
        self.shared.rename(name, f".{name}.set-aside-{os.urandom(4).hex()}")
        return True

    def key(self, name: str) -> dict[str, int] | None:
        """What tells this entry from another of the same name; None for what cannot be a checkpoint."""
        return files.fingerprint_of(os.path.join(self.path, name), self.marker)

    def _recorded_names(self) -> list[str]:
        try:
            written = [name[:-5] for name in self.shared.names(self._records) if name.endswith(".json")]
        except OSError:
            written = []
        return sorted({*written, *self._unwritten})

    def _record_path(self, name: str) -> str:
        return os.path.join(self._records, f"{name}.json")

    def _read_record(self, name: str) -> dict[str, Any] | None:
        record = self._unwritten.get(name) or load(self.shared, self._record_path(name)) or {}
        return record if _entry(record) is not None else None

    def _write(self, name: str, record: dict[str, Any]) -> None:
        try:
            dump(self.shared, self._record_path(name), record)
            self._unwritten.pop(name, None)
        except OSError as refusal:
            self._unwritten[name] = record
            # Without the path: that of a part file is another one each time.
            self.remark(f"cannot write down that {name!r} is finished, it is known in memory only: {refusal.strerror}")

    def _forget(self, name: str) -> None:
        self._unwritten.pop(name, None)
        with contextlib.suppress(OSError):
            self.shared.unlink(self._record_path(name))

    def _next_order(self) -> int:
        return 1 + max(((self._read_record(name) or {}).get("order", 0) for name in self._recorded_names()), default=0)

    def _entries(self, name: str) -> int:
        """How many files and folders an entry has; of what cannot be listed, those that could."""
        count = 0
        with contextlib.suppress(OSError):
            for _ in self.shared.walk(name):
                count += 1
        return count

    def _remark_change(self, name: str, record: dict[str, Any], key: dict[str, int]) -> None:
        renamed = record["key"].get("marked") == 0 and key.get("marked") == 0
        if renamed and not record.get("foreign"):
            self.remark(f"{name} was changed after it was finished and is no checkpoint any more: rename it last")

    def remark(self, sentence: str) -> None:
        if sentence not in self._remarked:
            self._remarked.add(sentence)
            self.remarks.append(sentence)

    def _is_marked(self, name: str) -> bool:
        return self.shared.has(f"{name}/{self.marker}")

    def _name_changed(self, item: os.DirEntry[str], there: set[str]) -> bool:
        """Whether the look before saw it under a dotted name, or under one that is gone: then it was renamed."""
        born, name = self._names.get(item.inode(), (-1, ""))
        if born != files.birth_time(item.path) or name == item.name:
            return False
        # Without births, the number of a file that is gone may be another's by now.
        return name.startswith(".") or (born > 0 and name not in there)

    def _was_renamed(self, item: os.DirEntry[str]) -> bool:
        status = item.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode) or status.st_ctime_ns <= status.st_mtime_ns:
            return False
        return not files.is_same_fingerprint(self._there.get(item.name), self.key(item.name))

    def unsure_names(self) -> list[str]:
        """Files that came since `remember` and of which nothing shows whether they were renamed or written in place.
        That is so when the last write and the rename have one time, which on Linux is a tick of some milliseconds."""
        known, names = {entry.name for entry in self.finished_entries()}, []
        with contextlib.suppress(OSError):
            for name in sorted(os.listdir(self.path)):
                key = None if name.startswith(".") or name in known else self.key(name)
                if key and "size" in key and not files.is_same_fingerprint(self._there.get(name), key):
                    names.append(name)
        return names


def _entry(record: dict[str, Any]) -> Entry | None:
    """What was written down about an entry, when it is whole: others may write here too."""
    try:
        return Entry(**record_fields.known_fields(Entry, record))
    except ValueError:
        return None


def dump(shared: SharedFolder, path: str, value: dict[str, Any]) -> None:
    """Write a small file whole or not at all; nothing stays behind when that fails."""
    shared.write(path, json.dumps(value, sort_keys=True).encode("ascii"))


def load(shared: SharedFolder, path: str) -> dict[str, Any] | None:
    """A small file, or None when it is not there or not whole."""
    try:
        value = json.loads(shared.read(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
