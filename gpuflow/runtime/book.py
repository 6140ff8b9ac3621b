"""The book of one run in a store: where its records lie, how they are read, and how one of many gets to write one.

`attempts/000007.json` is written by `create`, so that a number belongs to one attempt. What the records add up to is
read in `history`; who owns the run is decided in `ledger`.

With keys only what is signed counts. Whoever else writes to the store can take a name, and the next number is then
beyond it, but can neither take the run over, nor end it, nor say that it is done.
"""

from __future__ import annotations

import os
import time

from gpuflow.runtime import record_fields, records
from gpuflow.runtime.records import Claim, Corrupt, Success, UnknownFormat
from gpuflow.runtime.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuflow.runtime.signing import Keys

SETTLE = 1.0
"""In a store that cannot create conditionally: how long to wait before looking who wrote last."""
_DIGITS = 18
"""Of a number: what is longer does not fit in a claim."""


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
        self.seen = 0
        """The highest number that was seen, with keys the highest that is signed: it must stay."""
        self._said_signed = False

    # -- where things lie

    def key(self, *parts: str) -> str:
        return "/".join((self.base, *parts))

    def attempt_key(self, number: int) -> str:
        return self.key("attempts", f"{number:06d}.json")

    def end_key(self, number: int, owner: str) -> str:
        return self.key("attempts", f"{number:06d}-{owner}.end.json")

    def judged_key(self, number: int, owner: str) -> str:
        return self.key("attempts", f"{number:06d}-{owner}.judged.json")

    def success_key(self, since: int) -> str:
        """One marker for each time the run is begun anew: who removes an old one late never removes the next one."""
        return self.key(f"success-{since:06d}.json" if since else "success.json")

    def places(self) -> list[Store]:
        return [self.store] if self.checkpoints is self.store else [self.checkpoints, self.store]

    # -- reading

    def numbers(self) -> list[int]:
        """The numbers taken so far. One that was seen once must stay: a listing without it is not to be believed."""
        names = [key.rpartition("/")[2] for key, _ in self.store.names(self.key("attempts"))]
        numbers = sorted(number for name in names if (number := _number(name)) is not None)
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
            if taken is not None and owner.endswith(".end.json") and _is_id(owner[: -len(".end.json")]):
                found.setdefault(taken, []).append(owner[: -len(".end.json")])
        return found

    def read(self, kind: type[records.Record], key: str, store: Store | None = None) -> Any:
        """A record, or None when there is none."""
        try:
            data = (store or self.store).read(key)
        except FileNotFoundError:
            return None
        record = records.unpack(kind, data, key, self.keys)
        if self.keys is None and record.signed and not self._said_signed:
            self._said_signed = True
            self.say(
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
        except Corrupt:
            return None
        assert marker is None or isinstance(marker, Success)
        return marker if marker is not None and marker.attempt >= since else None

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
        except FileNotFoundError:
            if not self.store.create(key, data):
                return False
        time.sleep(SETTLE)
        try:
            return self.store.read(key) == data
        except FileNotFoundError:
            raise StorageError(f"{key} is not there after it was written") from None


def attempt_of(key: str) -> int | None:
    """The attempt that a record below `attempts/` belongs to."""
    return records.attempt_of(key.rpartition("/")[2])


def _number(name: str) -> int | None:
    """The number of a claim by its file name, spelled as we spell it: no other name is one of ours."""
    digits = name[:-5]
    if not (name.endswith(".json") and digits.isascii() and digits.isdecimal() and len(digits) <= _DIGITS):
        return None
    number = int(digits)
    return number if digits == f"{number:06d}" else None


def _is_id(text: str) -> bool:
    try:
        return bool(record_fields.word(text))
    except ValueError:
        return False


def now() -> str:
    """Wall-clock time for people to read; nothing is decided by it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
