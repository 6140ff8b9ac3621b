"""What the command reads, at its paths before it starts: fetched, checked, placed. All of it or a refusal.

Nothing here is the command's failure: storage that fails for as long as it may, an artifact that was never finished,
bytes that do not match and a path where somebody's data lies are exit code 78, and cost no budget.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from functools import partial

from gpuflow.runtime.artifacts import input_files
from gpuflow.runtime.artifacts.artifact_files import EXACT, compare, hash_shared_file
from gpuflow.runtime.artifacts.input_files import Place
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.records import Corrupt, UnknownFormat
from gpuflow.runtime.checkpoints.transfer import TransferAbandoned
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import Progress, in_parallel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from gpuflow.runtime.artifacts.input_files import Source
    from gpuflow.runtime.artifacts.input_options import Input
    from gpuflow.runtime.base.signing import Keys
    from gpuflow.runtime.stores.store import Store

_TRIES = 2
"""How often bytes that do not match are read before that is believed."""
_MANIFESTS = 8
"""Manifests that are read at a time."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PLACED_SOURCES: dict[tuple[str, str], Source] = {}
"""What this process has placed, for attempts that follow in it: the same bytes again, though a listing may change."""


class Inputs:
    """All inputs of a step on their way. `proceed` says whether to go on; `beat` shows that something moves."""

    def __init__(
        self,
        inputs: Sequence[Input],
        keys: Keys | None,
        seconds: float,
        open_place: Callable[[str], Store],
        say: Callable[[str], None],
        proceed: Callable[[], bool],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.inputs, self.keys, self.seconds = inputs, keys, seconds
        self.say, self.proceed, self.beat = say, proceed, beat
        self.stores = input_files.Stores(open_place)
        self.limit = Limit(seconds)
        self.later = False
        """Whether attempts of this run came before this one."""
        self._lock = threading.Lock()
        self._next_beat = 0.0

    def bring(self) -> None:
        """Place all inputs. BadOption or StorageError on failure; TransferAbandoned on a stop request."""
        parts = [(each, place, uri) for each in self.inputs for place, uri in each.parts]
        found: dict[str, Source] = {}

        def look(part: tuple[Input, str, str]) -> None:
            each, place, uri = part
            found[place] = _PLACED_SOURCES.get((place, uri)) or self._source(each, uri)

        for _, _, uri in parts:
            self._persist(partial(self.stores.find, uri))
        in_parallel(look, parts, _MANIFESTS)
        for each in self.inputs:
            if each.fan_in:
                self._make_folder(each)
        for each, place, uri in parts:
            self._place(each, place, found[place])
            _PLACED_SOURCES[place, uri] = found[place]

    def _source(self, each: Input, uri: str) -> Source:
        """What a URI stands for, once its storage says so."""
        for attempt in range(_TRIES):
            try:
                source: Source = self._persist(
                    lambda: input_files.read_source(self.stores, uri, each.kind, self.keys, self.say)
                )
                break
            except Corrupt as damage:
                self._read_again(each.path, damage, attempt)
        if each.digest is not None and source.ours and each.digest not in source.sums():
            raise BadOption(
                f"the input {each.path} is sha256:{source.digest()}, and should be sha256:{each.digest}: {uri}"
            )
        source.sum = None if source.ours else each.digest
        return source

    def _make_folder(self, each: Input) -> None:
        """Of a fan-in: the numbers stand in it, and nothing else."""
        if os.path.islink(each.path):
            raise BadOption(f"the input {each.path} cannot be placed: it is a link; remove it, or use another path")
        try:
            os.makedirs(each.path, exist_ok=True)
            names = set(os.listdir(each.path))
        except FileExistsError:
            raise BadOption(f"the input {each.path} cannot be placed: it is no directory") from None
        except OSError as refusal:
            raise BadOption(f"the input {each.path} cannot be placed: {refusal}") from None
        own = {os.path.basename(place) for place, _ in each.parts}
        own |= {f".{name}{input_files.HIDDEN}" for name in own}
        beyond = sorted(names - own - ({"lost+found"} if os.path.ismount(each.path) else set()))
        if beyond and not any((place, uri) in _PLACED_SOURCES for place, uri in each.parts):
            raise BadOption(
                f"the input {each.path} cannot be placed: {beyond[0][:200]!r} is in the way, and is not mixed with it; "
                "use an empty path, or remove what is there"
            )

    def _place(self, each: Input, path: str, source: Source) -> None:
        place = Place(path, source, self._add_progress)
        place.own, place.later = (path, source.uri) in _PLACED_SOURCES, self.later
        try:
            if self._is_linked(place) or place.is_filled():
                left = f"; {place.left[0][:200]!r} beside it stays, from an attempt before" if place.left else ""
                self.say(f"the input {path} is there already, as {source.uri} has it{left}")
                return
            if self._link(place):
                return
            told = Progress(self.say, f"the input {path}")
            self._fill(place, told)
            self.say(told.summary())
        except local_files.NoRoom as refusal:
            raise BadOption(f"the input {path} cannot be placed: {refusal}; give it a larger volume") from None
        except OSError as refusal:
            hint = "; give it a larger volume" if refusal.errno in _FULL else ""
            raise BadOption(f"the input {path} cannot be placed: {refusal}{hint}") from None

    # -- without a copy

    def _is_linked(self, place: Place) -> bool:
        """Whether an attempt before has made it a link to where it lies, which still has it."""
        target = place.source.local()
        return (
            target is not None
            and os.path.islink(place.path)
            and os.readlink(place.path) == target
            and self._is_whole_there(place, target)
        )

    def _link(self, place: Place) -> bool:
        """Link an input that is on a local disk instead of copying it, where a link is possible."""
        if (target := place.source.local()) is None or os.path.lexists(place.hidden):
            return False
        if not input_files.can_be_a_link(place.path):
            self.say(f"the input {place.path} is a mount, or there is something: {target} is copied, not linked")
            return False
        if not self._is_whole_there(place, target):
            # A store keeps files only: what else there is, and how they may be used, its manifest knows.
            self.say(f"the input {place.path} is copied: {target} has not all of its links, empty folders and modes")
            return False
        if not input_files.link(place.path, target):
            return False
        self.say(f"the input {place.path} is a link to {target}, without a copy; to change it would change that")
        return True

    def _is_whole_there(self, place: Place, target: str) -> bool:
        source = place.source
        if not source.ours and source.sum is None:
            return True
        if source.kind == "file":
            mode = source.files[0].mode
            if mode is not None and os.path.isfile(target) and os.stat(target).st_mode & 0o777 != mode & 0o777:
                return False
            shared = SharedFolder(os.path.dirname(target))
            return hash_shared_file(shared, target, self._add_progress) == (
                source.files[0].sha256 if source.ours else source.sum
            )
        if not os.path.isdir(target):
            return False  # a store keeps no empty folder
        there = compare(SharedFolder(target), "", source.files, self._add_progress, learn=not source.ours, modes=EXACT)
        if there.is_whole(source.files) and source.adds_up():
            return True
        source.forget_hashes()
        return False

    # -- by a copy

    def _fill(self, place: Place, told: Progress) -> None:
        source = place.source
        for attempt in range(_TRIES):
            try:
                place.fill(lambda *where: self._fetch(source, told, *where), self._wait)
                return
            except Corrupt as damage:
                self._read_again(place.path, damage, attempt)

    def _fetch(self, source: Source, told: Progress, shared: SharedFolder, into: str, arrived: set[str]) -> None:
        missing = [file for file in source.files if file.sha256 is not None and file.path not in arrived]
        told.begin(source.size, source.count, source.size - sum(file.size or 0 for file in missing))

        def report_bytes(count: int) -> None:
            self._add_progress(count)
            told.add(count)

        place = (source.store, source.prefix, source.files, shared, into, source.key, report_bytes)
        self._persist(
            lambda: local_files.bring_files(*place, single=source.kind == "file", arrived=arrived), lambda: len(arrived)
        )

    # -- storage that fails for a while, and notices

    def _read_again(self, path: str, damage: Exception, attempt: int) -> None:
        if attempt + 1 == _TRIES:
            raise BadOption(f"the input {path} cannot be used: {damage}") from damage
        self.say(f"{damage}; reading it again")

    def _persist(self, action: Callable[[], Any], settled: Callable[[], int] = lambda: 0) -> Any:
        limit = self.limit = Limit(self.seconds)
        try:
            return persist(action, limit, lambda: not self.proceed(), settled=settled, say=self.say)
        except UnknownFormat as refusal:
            raise BadOption(str(refusal)) from None

    def _add_progress(self, count: int) -> None:
        if not self.proceed():
            raise TransferAbandoned()
        self.limit.progress(count)
        with self._lock:
            now = time.monotonic()
            if now < self._next_beat:
                return
            self._next_beat = now + 1.0
        self.beat()

    def _wait(self) -> None:
        """Wait for another process that is fetching the same input."""
        self.limit.progress()
        self._add_progress(0)
