"""One attempt and the run's records: it becomes the newest, stays it or has lost, says how it ended, marks success.

The newest attempt owns the run; every commit asks first, and an older one that is still alive stops. No clock decides
anything: two machines need not agree on time.
"""

from __future__ import annotations

import os
import time

from gpuflow.runtime.base import records
from gpuflow.runtime.base.records import Claim, Corrupt, End, Success
from gpuflow.runtime.state import attempts
from gpuflow.runtime.state.attempts import Counts, History, RunRecords, attempt_of, utc_now
from gpuflow.runtime.stores.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuflow.runtime.base.signing import Keys

_MOST_RECORDS = 20
_BECAUSE = 10_000
"""Most characters of a reason in the records."""


class OwnershipLost(Exception):
    """Another attempt owns the run."""


class TooLarge(Exception):
    """The outputs do not fit into a success marker that can be read again."""


class Ledger(RunRecords):
    """The records of one identity in one store, and this attempt's place among them."""

    def __init__(
        self,
        store: Store,
        base: str,
        checkpoints: Store | None = None,
        say: Callable[[str], None] = lambda _: None,
        keys: Keys | None = None,
    ) -> None:
        super().__init__(store, base, checkpoints, say, keys)
        self.number, self.id = 0, ""
        self.engine_attempt: int | None = None
        """The engine's own number of this attempt: by that it speaks of it to the next one."""
        self.since = 0
        """Attempts before this one do not exist any more: nor do their checkpoints."""
        self.counts = Counts()
        self.began = time.monotonic()
        self.damaged: set[str] = set()
        """Checkpoints that could not be restored: they do not count among the N that are kept."""
        self.unsigned: set[str] = set()
        """With keys: checkpoints in the store that none of them has signed. They are left alone."""
        self.resumed: str | None = None
        """The checkpoint this attempt resumed from, by its name in the store: older ones are no longer needed."""

    # -- reading

    def success(self) -> Success | None:
        """The success marker, when there is one that was written whole and was not forgotten since."""
        numbers = self.numbers()
        newest = attempts.newest_claim(self, numbers)[0] if numbers else None
        return self.marker(newest.since if newest is not None else 0)

    def history(self) -> History:
        """What the attempts so far add up to."""
        return attempts.read_history(self)

    def assert_owner(self) -> None:
        """Raise OwnershipLost unless this is the newest attempt, and no other one has succeeded."""
        self._assert_newest()
        done = self.marker(self.since)
        if done is not None and done.id != self.id:
            raise OwnershipLost(f"attempt {done.attempt} has succeeded already")

    def _assert_newest(self) -> None:
        if newest := self.newer_than(self.number):
            raise OwnershipLost(f"attempt {newest} has taken over from attempt {self.number}")
        try:
            record = self.read(Claim, self.attempt_key(self.number))
        except Corrupt as damage:
            raise StorageError(str(damage)) from damage
        if record is None:
            # An empty store is storage in trouble, such as a mount that went away; no one has taken over.
            raise StorageError(f"{self.attempt_key(self.number)} is gone from the store")
        if record.id != self.id:
            raise OwnershipLost(f"another attempt {self.number} has taken over")

    def earlier_artifacts(self) -> list[str]:
        """The names under which earlier attempts of this run may have left artifacts."""
        found = []
        for number in self.numbers():
            if self.since <= number < self.number and (claim := self.whole_claim(number)) is not None:
                found.append(records.artifact_name(number, claim.id))
        return found

    # -- writing

    def claim(self, history: History, *, fresh: bool = False, renew: bool = False) -> bool:
        """Become the newest attempt; False when another one took the number: read the records again. `fresh` forgets
        all attempts before, `renew` only what they have cost."""
        self.probe()
        number, self.id = self.may_take(history.next), self.id or os.urandom(8).hex()
        claim = self._claim_after(history, number, fresh=fresh, renew=renew)
        if not self.create(self.attempt_key(number), self.pack(claim, self.attempt_key(number))):
            there = self.whole_claim(number)
            # With our id an answer was lost on the way, not the request.
            if there is None or there.id != self.id:
                return False
            claim = there
        self.seen = max(self.seen, number)
        if self.newer_than(number):
            # The listing before was late, and the number had been used and removed: it is worth nothing.
            return False
        self.number, self.since = number, claim.since
        self.counts = Counts(claim.failures, claim.interruptions, claim.seconds)
        self.began = time.monotonic()
        return True

    def _claim_after(self, history: History, number: int, *, fresh: bool, renew: bool) -> Claim:
        zero = fresh or renew
        counts = history.counts
        return Claim(
            attempt=number,
            id=self.id,
            host=os.uname().nodename,
            time=utc_now(),
            since=number if fresh else history.since,
            failures=0 if zero else counts.failures,
            interruptions=0 if zero else counts.interruptions,
            seconds=0.0 if fresh else counts.seconds,
            checkpoint=None if fresh else history.kept,
            previous=None if zero else history.previous,
            engine_attempt=self.engine_attempt,
        )

    def look_again(self, history: History) -> History:
        """After the claim: what the attempt before has said meanwhile counts, and may have been final."""
        looked = attempts.read_history_again(self, history)
        if looked is not history:
            self.counts = Counts(looked.counts.failures, looked.counts.interruptions, looked.counts.seconds)
        return looked

    def tidy(self) -> None:
        """Forget records that nothing reads any more, and what killed uploads left."""
        old = self.number - _MOST_RECORDS
        if any(number < self.since for number in self.numbers()):
            attempts.remove_before(self, self.since)
        keys = [key for key, _ in self.store.names(self.key("attempts"))]
        self.store.delete([key for key in keys if (attempt_of(key) or self.number) < old])
        self.store.delete([key for key, _ in self.store.names(self.key("probe"))])
        try:
            for place in self.places():
                for part in ("checkpoints", "artifacts"):
                    place.clear_uploads(self.key(part))
        except StorageError as refusal:
            self.say(f"what killed uploads left could not be removed (in a bucket, a lifecycle rule can): {refusal}")

    def end(self, outcome: str, *, because: str, **facts: Any) -> None:
        """Write how the attempt ended; `facts` are the other fields of an `End`."""
        seconds = round(time.monotonic() - self.began, 3)
        end = End(outcome=outcome, because=because[:_BECAUSE], seconds=seconds, time=utc_now(), **facts)
        key = self.end_key(self.number, self.id)
        self.store.write(key, self.pack(end, key))

    def succeed(self, outputs: Mapping[str, Any]) -> Success:
        """Write the success marker: the last thing a successful attempt does. The first one stays, and is returned."""
        if (there := self.marker(self.since)) is not None and there.id == self.id:
            return there
        self._assert_newest()
        if there is not None:
            return there
        marker = Success(attempt=self.number, id=self.id, time=utc_now(), outputs=dict(outputs))
        key = self.success_key(self.since)
        data = self.pack(marker, key)
        if len(data) > records.LARGE:
            raise TooLarge(
                f"its outputs take {len(data)} bytes in the success marker, and the most is {records.LARGE}; make "
                "large values outputs of type file, and put many files into an archive"
            )
        if not self.create(key, data):
            if (there := self.marker(self.since)) is None:
                # Half-written, or not signed: no one's success.
                self._assert_newest()
                self.store.write(key, data)
                there = self.marker(self.since)
            if there is not None:
                return there
        return marker
