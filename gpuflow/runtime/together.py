"""One checkpoint written by many processes: each its own files, into the folder that it shares with some of the others.

All processes of a pod share a directory; pods may each have their own, or share one. In each directory one process, the
one with the lowest rank there, makes the folder and renames it when every process has written: until then its name has
a dot. Every stage is agreed on, so that all of them finish a checkpoint or none does.
"""

from __future__ import annotations

import os
from typing import Any

from gpuflow.runtime import disk, elastic
from gpuflow.runtime.directory import discard
from gpuflow.runtime.files import Shared

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuflow.runtime.saving import Checkpointing

_UNFINISHED = ".part"


class Together:
    """The processes of one training that write checkpoints together. Making one is a collective, and so is `write`."""

    def __init__(self, ckpt: Checkpointing, group: Any) -> None:
        self._path, self._marker, self._group = ckpt.directory.path, ckpt.directory.marker, group
        self.token = ""
        """What this save is called, the same on every rank: it goes into the marker file."""
        self.leads = self._is_first_here()
        if self.leads:
            self._sweep()
        self._all_or_none(lambda: None)

    def agree_on(self, name: str) -> str:
        """Rank 0's name for the next checkpoint, on every rank, and a token that no other save has."""
        given: list[Any] = [name, os.urandom(8).hex()]
        distributed = elastic._distributed()
        if distributed is not None and self._group is not None:
            distributed.broadcast_object_list(given, src=0, group=self._group)
        self.token = f"{given[0]} {given[1]}"
        return str(given[0])

    def write(self, write: Callable[[str], object], path: str, *, sync: bool) -> None:
        """Let every process write its files into one folder per directory, then give it its name."""
        folder, name = os.path.split(path)
        temporary = os.path.join(folder, f".{name}{_UNFINISHED}")
        try:
            self._all_or_none(lambda: self._make(temporary) if self.leads else None)
            self._all_or_none(lambda: write(temporary))
            self._all_or_none(lambda: self._finish(temporary, path, sync) if self.leads else None)
        finally:
            if self.leads:
                discard(temporary)

    def _make(self, temporary: str) -> None:
        discard(temporary)
        os.makedirs(temporary)

    def _finish(self, temporary: str, path: str, sync: bool) -> None:
        folder, name = os.path.split(temporary)
        Shared(folder).write(f"{name}/{self._marker}", f"{self.token}\n".encode("ascii"))
        if sync:
            disk.sync(temporary)
        discard(path)
        os.replace(temporary, path)
        if sync:
            disk.sync_one(os.path.dirname(path))

    def _all_or_none(self, action: Callable[[], object]) -> None:
        """Do it; raises on every rank when it failed on one, and everywhere the disk's refusal if that was it."""
        failure: Exception | None = None
        try:
            action()
        except Exception as error:
            failure = error
        refused = failure.errno if isinstance(failure, OSError) and disk.refused(failure) else 0
        failed, code = self._largest([failure is not None and not refused, refused or 0])
        if failure is not None and not (refused and failed):
            raise failure
        if failed:
            raise elastic.SaveFailed("a checkpoint failed on another rank; its own message says why") from failure
        if code:
            raise OSError(int(code), f"{os.strerror(int(code))}, on another rank")

    def _largest(self, values: list[Any]) -> list[float]:
        distributed = elastic._distributed()
        if distributed is None or self._group is None:
            return [float(value) for value in values]
        return elastic._largest(distributed, values, self._group)

    def _is_first_here(self) -> bool:
        """Whether no process of a lower rank sees this directory: each leaves a file, and looks for those of others."""
        distributed = elastic._distributed()
        if distributed is None or self._group is None:
            return True
        rank = distributed.get_rank()
        given: list[Any] = [os.urandom(8).hex()]
        distributed.broadcast_object_list(given, src=0, group=self._group)
        prefix = f".gpuflow-here-{given[0]}-"
        own = os.path.join(self._path, f"{prefix}{rank}")
        try:
            self._all_or_none(lambda: open(own, "x", encoding="ascii").close())
            here: list[int] = []

            def look() -> None:
                here.extend(int(name[len(prefix) :]) for name in os.listdir(self._path) if name.startswith(prefix))

            self._all_or_none(look)
            return min(here) == int(rank)
        finally:
            self._all_or_none(lambda: discard(own))

    def _sweep(self) -> None:
        """What a killed program left half-written."""
        from gpuflow.runtime.saving import PREFIX

        for name in os.listdir(self._path):
            if name.startswith(f".{PREFIX}") and name.endswith(_UNFINISHED):
                discard(os.path.join(self._path, name))
