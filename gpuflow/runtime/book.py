"""The book of one run in a store: where its records lie, how they are read, and how one of many gets to write one.

`attempts/000007.json` is written by `create`, so that a number belongs to one attempt. What the records add up to is
read in `history`; who owns the run is decided in `ledger`.

With keys only what is signed counts. Whoever else writes to the store can take a name, and the next number is then
beyond it, but can neither take the run over, nor end it, nor say that it is done.
"""

from __future__ import annotations

import os
import time

from gpuflow.runtime import records
from gpuflow.runtime.records import Claim, Corrupt, Success, UnknownFormat
from gpuflow.runtime.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuflow.runtime.signing import Keys

SETTLE = 1.0
"""In a store that cannot create conditionally: how long to wait before looking who wrote last."""


class Book:
    """The records of one identity. `checkpoints` is the store of the checkpoints where that is another."""

    def __init__(
        self,
        store: Store,
        base: str,
        checkpoints: Store | None = None,
        say: Callable[[str], None] = lambda _: None,
        keys: Keys | None = None,
    ) -> None:
        self.store, self.base, self.keys = store, base, keys
        self.checkpoints = checkpoints if checkpoints is not None else store
        self.say = say
        self.artifacts: Store | None = None
        """Where artifacts are kept when that is a place of their own."""
        self.seen = 0
        """The highest number that was seen, with keys the highest that is signed: it must stay."""
        self.id = ""
        """This attempt's own, once it has one."""
        self._said: set[str] = set()

    # -- where things lie

    def key(self, *parts: str) -> str:
        return "/".join((self.base, *parts))

    def attempt_key(self, number: int) -> str:
        return self.key("attempts", f"{number:06d}.json")

    def end_key(self, number: int, owner: str) -> str:
        return self.key("attempts", f"{number:06d}-{owner}.end.json")

    def judged_key(self, number: int, owner: str) -> str:
        return self.key("attempts", f"{number:06d}-{owner}.judged.json")

    def memory_key(self, number: int, owner: str) -> str:
        return self.key("attempts", f"{number:06d}-{owner}.memory.json")

    def success_key(self, since: int) -> str:
        """One marker for each time the run is begun anew: who removes an old one late never removes the next one."""
        return self.key(f"success-{since:06d}.json" if since else "success.json")

    def places(self) -> list[Store]:
        places = [self.store] if self.checkpoints is self.store else [self.checkpoints, self.store]
        return places if self.artifacts is None else [*places, self.artifacts]

    # -- reading

    def numbers(self) -> list[int]:
        """The numbers taken so far. One that was seen once must stay: a listing without it is not to be believed."""
        names = [key.rpartition("/")[2] for key, _ in self.store.names(self.key("attempts"))]
        found = {name: _number(name) for name in names if name.endswith(".json")}
        numbers = sorted(number for number in found.values() if number is not None)
        for name, number in found.items():
            if number is None and name[:-5].isdigit():
                self.say_once(f"{self.key('attempts', name)[:300]} names no attempt; it is passed over")
        newest = numbers[-1] if numbers else 0
        if newest < self.seen:
            raise self._gone()
        if self.keys is None:
            self.seen = newest
        return numbers

    def saw(self, number: int) -> None:
        """The newest claim that could be read. With keys that, and not what is listed, must not go back."""
        if self.keys is None:
            return
        if number < self.seen:
            raise self._gone()
        self.seen = number

    def _gone(self) -> StorageError:
        return StorageError(f"{self.attempt_key(self.seen)} is gone from the store, or its listing is not whole")

    def newer_than(self, number: int) -> int:
        """The newest attempt after this one, or 0. With keys, a claim that is not signed is no attempt."""
        for other in reversed(self.numbers()):
            if other <= number:
                return 0
            if self.keys is None or self._is_signed(other):
                return other
        return 0

    def _is_signed(self, number: int) -> bool:
        try:
            return self.read_claim(number) is not None
        except Corrupt:
            return False
        except UnknownFormat:
            return True  # by a newer gpuflow-run that has our key

    def owners(self) -> dict[int, list[str]]:
        """The ids of those who left an end, by number."""
        found: dict[int, list[str]] = {}
        for key, _ in self.store.names(self.key("attempts")):
            number, _, owner = key.rpartition("/")[2].partition("-")
            taken = _number(f"{number}.json")
            if taken is not None and owner.endswith(".end.json") and records.is_id(owner[: -len(".end.json")]):
                found.setdefault(taken, []).append(owner[: -len(".end.json")])
        return found

    def read(self, kind: type[records.Record], key: str, store: Store | None = None) -> Any:
        """A record, or None when there is none."""
        try:
            data = (store or self.store).read(key)
        except FileNotFoundError:
            return None
        record = records.unpack(kind, data, key, self.keys)
        if self.keys is None and record.signed:
            self.say_once(
                "the records of this run are signed, and there is no --key-file: signatures are not checked, and what "
                "is written now is not believed by attempts that have the key"
            )
        return record

    def read_claim(self, number: int) -> Claim | None:
        claim = self.read(Claim, self.attempt_key(number))
        if claim is not None and claim.attempt != number:
            raise Corrupt(f"{self.attempt_key(number)} is of another attempt")
        assert claim is None or isinstance(claim, Claim)
        return claim

    def marker(self, since: int) -> Success | None:
        """The success marker of the run since it was last begun anew, when it is whole."""
        try:
            marker = self.read(Success, self.success_key(since))
        except Corrupt as damage:
            self.say_once(f"{damage}; the run does not count as done by it")
            return None
        assert marker is None or isinstance(marker, Success)
        if marker is None or marker.attempt < since:
            return None
        return marker if marker.id == self.id or self._was_attempted(marker, since) else None

    def _was_attempted(self, marker: Success, since: int) -> bool:
        """Whether the attempt that a marker names was ever there: success without one is made up."""
        try:
            claim = self.read_claim(marker.attempt)
        except Corrupt:
            claim = None
        if claim is not None and claim.id == marker.id and not claim.forget:
            return True
        self.say_once(
            f"{self.success_key(since)} is of attempt {marker.attempt} {marker.id}, "
            f"of which {self.attempt_key(marker.attempt)} knows nothing; it is not believed"
        )
        return False

    def may_take(self, number: int) -> int:
        """This number. No run comes so far as the last one: a claim of that was made up."""
        if number > records.LAST:
            raise StorageError(
                f"{self.attempt_key(number - 1)} leaves no number for another attempt, and no run has had so many; "
                "remove that object, or use another --run-id"
            )
        return number

    def say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self.say(sentence)

    # -- writing

    def probe(self) -> bool:
        """Whether `create` keeps its promise here: of two that create one object, one succeeds. Asked, not assumed."""
        if self.store.conditional is None and not self.store.probe(self.key("probe", os.urandom(8).hex())):
            self.say(
                "this store is not known to create an object only where there is none: two attempts that start at "
                "the same moment may both believe to be the newest for a while; the one that was overwritten stops"
            )
        return bool(self.store.conditional)

    def pack(self, record: records.Record, place: str) -> bytes:
        """The bytes of a record, for its place in the store."""
        return records.pack(record, place, self.keys)

    def create(self, key: str, data: bytes) -> bool:
        """Of many, one. Where the store cannot say who was first, the last writer is, and each looks who that was."""
        if self.store.conditional is not False:
            return self.store.create(key, data)
        try:
            self.store.read(key)
            return False
        except Corrupt:
            return False
        except FileNotFoundError:
            if not self.store.create(key, data):
                return False
        time.sleep(SETTLE)
        try:
            return self.store.read(key) == data
        except Corrupt:
            return False
        except FileNotFoundError:
            raise StorageError(f"{key} is not there after it was written") from None


def attempt_of(key: str) -> int | None:
    """The attempt that a record below `attempts/` belongs to."""
    return records.attempt_of(key.rpartition("/")[2])


def _number(name: str) -> int | None:
    """The number of a claim by its file name, spelled as we spell it: no other name is one of ours."""
    number = records.attempt_of(name)
    return number if number and name == f"{number:06d}.json" else None


def now() -> str:
    """Wall-clock time for people to read; nothing is decided by it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
