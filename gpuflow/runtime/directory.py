"""The directory a program saves to: which entries in it are finished checkpoints.

An entry is finished when it appeared by rename, when it is a directory that holds the marker file, or when the Python
API says so. Names with a leading dot are in progress. What is known is written down in `.gpuflow/finished/<name>.json`
with the entry's inode, so that a restarted supervisor knows it too, and a later half-written file of the same name is
not mistaken for it. Records count upwards; no clock orders them.
"""

from __future__ import annotations

import contextlib
import json
import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

HIDDEN = ".gpuflow"
MARKER = ".gpuflow-complete"


class Entry:
    """A finished checkpoint in the directory. `stored` names its copy in the store."""

    def __init__(self, name: str, path: str, record: dict[str, Any]) -> None:
        self.name, self.path = name, path
        self.order: int = record["order"]
        self.key: list[int] = record["key"]
        self.stored: str | None = record.get("stored")
        self.stall_seconds: float | None = record.get("stall_seconds")
        self.by_api: bool = record.get("by") == "api"


class Directory:
    """A checkpoint directory and what is known about it."""

    def __init__(self, path: str, marker: str = MARKER) -> None:
        self.path, self.marker = os.path.abspath(path), marker
        self.hidden = os.path.join(self.path, HIDDEN)
        self._records = os.path.join(self.hidden, "finished")
        self._dotted: set[int] = set()

    def prepare(self) -> None:
        os.makedirs(self._records, exist_ok=True)

    def finished(self) -> list[Entry]:
        """Finished checkpoints, oldest first. Records whose entry is gone or was replaced are dropped."""
        entries = []
        for name in self._recorded():
            record = _load(self._record_path(name))
            key = self._key(name)
            if record is None or key is None or record.get("key") != key:
                if key is None:
                    _unlink(self._record_path(name))
                continue
            if record.get("foreign"):
                continue
            entries.append(Entry(name, os.path.join(self.path, name), record))
        return sorted(entries, key=lambda entry: (entry.order, entry.name))

    def record(self, name: str, **facts: Any) -> None:
        """Write down that an entry is finished, or add facts to what is written; it keeps its place in the order."""
        key = self._key(name)
        if key is None:
            return
        old = _load(self._record_path(name))
        if old is None or old.get("key") != key:
            orders = [(_load(self._record_path(other)) or {}).get("order", 0) for other in self._recorded()]
            old = {"key": key, "order": 1 + max(orders, default=0)}
        elif not facts:
            return
        _dump(self._record_path(name), {**old, **facts})

    def look(self, renamed: Iterable[str] = (), *, deaf: bool = False) -> None:
        """Find newly finished entries: those renamed, marked, or seen before under a dotted name.

        When no one tells of renames (`deaf`), a file's own times do: writing sets both, renaming only the second.
        """
        for name in renamed:
            if not name.startswith("."):
                self.record(name)
        dotted: set[int] = set()
        try:
            with os.scandir(self.path) as listing:
                found = list(listing)
        except OSError:
            return
        for item in found:
            try:
                if item.name.startswith("."):
                    dotted.add(item.inode())
                elif item.inode() in self._dotted or self._marked(item.name) or (deaf and _was_renamed(item)):
                    self.record(item.name)
            except OSError:
                continue
        self._dotted |= dotted

    def disown(self) -> None:
        """Believe nothing that lies here: forget what was written down, and pass over what is marked finished."""
        for name in self._recorded():
            _unlink(self._record_path(name))
        for name in sorted(os.listdir(self.path)):
            if not name.startswith(".") and self._marked(name):
                self.record(name, foreign=True)

    def place(self, temporary: str, name: str, **facts: Any) -> str:
        """Move a restored checkpoint to its name; what stood there makes way."""
        target = os.path.join(self.path, name)
        if os.path.lexists(target):
            aside = os.path.join(self.hidden, f"replaced-{os.urandom(4).hex()}")
            os.rename(target, aside)
            discard(aside)
        os.rename(temporary, target)
        self.record(name, **facts)
        return target

    def _recorded(self) -> list[str]:
        try:
            return sorted(name[:-5] for name in os.listdir(self._records) if name.endswith(".json"))
        except OSError:
            return []

    def _record_path(self, name: str) -> str:
        return os.path.join(self._records, f"{name}.json")

    def _marked(self, name: str) -> bool:
        return os.path.lexists(os.path.join(self.path, name, self.marker))

    def _key(self, name: str) -> list[int] | None:
        """What tells this entry from another of the same name; None for what cannot be a checkpoint."""
        path = os.path.join(self.path, name)
        try:
            status = os.lstat(path)
            if os.path.islink(path):
                return None
            if os.path.isdir(path):
                marker = os.path.join(path, self.marker)
                return [status.st_ino, os.lstat(marker).st_mtime_ns if os.path.lexists(marker) else 0]
            return [status.st_ino, status.st_mtime_ns, status.st_size]
        except OSError:
            return None


def _was_renamed(item: os.DirEntry[str]) -> bool:
    status = item.stat(follow_symlinks=False)
    return item.is_file(follow_symlinks=False) and status.st_ctime_ns > status.st_mtime_ns


def discard(path: str) -> None:
    """Remove a file or a tree, whatever is left of it."""
    if os.path.isdir(path) and not os.path.islink(path):
        import shutil

        shutil.rmtree(path, ignore_errors=True)
    else:
        _unlink(path)


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):
        os.unlink(path)


def _load(path: str) -> dict[str, Any] | None:
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _dump(path: str, value: dict[str, Any]) -> None:
    part = f"{path}.{os.getpid()}-{os.urandom(3).hex()}"
    with open(part, "w", encoding="utf-8") as file:
        json.dump(value, file, sort_keys=True)
    os.replace(part, path)
