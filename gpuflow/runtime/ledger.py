"""The run's book: who tried, how it ended, who owns the run now, and the success marker.

`attempts/000007.json` is written by `create`, so that a number belongs to one attempt. The newest attempt owns the
run; every commit asks first, and an older one that is still alive stops. Each record carries the sums so far, so that
opening the book reads a few objects and not hundreds. No clock decides anything: two machines need not agree on time.

Numbers never start again: who forgets a run takes the next number and says that nothing before it counts (`since`).
"""

from __future__ import annotations

import os
import time

from gpuflow.runtime import identity, records
from gpuflow.runtime.outcomes import FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE
from gpuflow.runtime.records import Claim, Corrupt, End, Judgment, Previous, Success
from gpuflow.runtime.store import StorageError, Store, open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuflow.runtime.options import Options

_REMEMBERED = 20
_LONGEST = 1e14
_BECAUSE = 10_000
"""Most characters of a reason in the book."""
COSTS = {
    RETRYABLE: "failures",
    OUT_OF_MEMORY: "failures",
    FINAL: "failures",
    "timed out": "failures",
    "disk limit": "failures",
    INTERRUPTED: "interruptions",
}
"""Which budget an outcome is counted against."""
SETTLE = 1.0
"""In a store that cannot create conditionally: how long to wait before looking who wrote last."""


class Lost(Exception):
    """Another attempt owns the run."""


class Counts:
    """What the attempts before this one have used up."""

    def __init__(self, failures: int = 0, interruptions: int = 0, seconds: float = 0.0) -> None:
        self.failures, self.interruptions = min(failures, records.LAST), min(interruptions, records.LAST)
        self.seconds = min(seconds, _LONGEST)

    def after(self, outcome: str, by: int = 1) -> Counts:
        """The counts once an attempt has ended so; with -1, as if it had not."""
        grown = Counts(self.failures, self.interruptions, self.seconds)
        budget = COSTS.get(outcome)
        if budget is not None:
            setattr(grown, budget, min(records.LAST, max(0, getattr(grown, budget) + by)))
        return grown


class History:
    """What is known when an attempt begins.

    `kept` names the newest checkpoint that the book knows of: a listing that does not reach it is not to be believed.
    `fresh` says that nothing of before counts: neither in the store nor in the directory.
    """

    def __init__(
        self,
        last: int,
        counts: Counts,
        final: End | None,
        last_id: str | None,
        *,
        since: int = 0,
        kept: str | None = None,
        previous: Previous | None = None,
        fresh: bool = False,
    ) -> None:
        self.last, self.counts, self.final, self.last_id = last, counts, final, last_id
        self.since, self.kept, self.previous, self.fresh = since, kept, previous, fresh


class Ledger:
    """The book of one identity in one store. `checkpoints` is the store of the checkpoints where that is another."""

    def __init__(
        self, store: Store, base: str, checkpoints: Store | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self.store, self.base = store, base
        self.checkpoints = checkpoints if checkpoints is not None else store
        self.say = say
        self.number, self.id = 0, ""
        self.since = 0
        """Attempts before this one do not exist any more: nor do their checkpoints."""
        self.counts = Counts()
        self.began = time.monotonic()
        self.damaged: set[str] = set()
        """Checkpoints that could not be restored: they do not count among the N that are kept."""
        self.resumed: str | None = None
        """The checkpoint this attempt resumed from, by its name in the store: older ones are no longer needed."""
        self._seen = 0
        self._said: set[str] = set()

    def key(self, *parts: str) -> str:
        return "/".join((self.base, *parts))

    # -- reading

    def success(self) -> Success | None:
        """The success marker, when there is one that was written whole and was not forgotten since."""
        numbers = self._numbers()
        newest = self._newest_claim(numbers)[0] if numbers else None
        return self._marker(newest.since if newest is not None else 0)

    def history(self) -> History:
        """What the attempts so far add up to. One that left no word was lost: that is an interruption."""
        numbers = self._numbers()
        if not numbers:
            return History(0, Counts(), None, None)
        claim, unreadable = self._newest_claim(numbers)
        counts, kept, since, end = Counts(), None, 0, None
        previous: Previous | None = None
        if claim is not None:
            since, kept = claim.since, claim.checkpoint
            counts = Counts(claim.failures, claim.interruptions, claim.seconds)
            known = claim.previous
            if known is not None and known.assumed:
                late = self._outcome(known.attempt, known.id)
                if late is not None and late[0] != known.outcome:
                    counts = counts.after(known.outcome, -1).after(late[0])
            if not claim.forget:
                counts, end, previous, seen = self._add(counts, claim.attempt, claim.id)
                kept = max(kept or "", seen or "") or None
        for number in unreadable:
            # Its number was taken and nothing else is known: it costs what it may have cost.
            self.say(f"{self._attempt(number)} cannot be read; it is counted from what lies beside it")
            owners = self._owners(number)
            counts, end, previous, seen = self._add(counts, number, owners[-1] if owners else "unreadable")
            kept = max(kept or "", seen or "") or None
        last = numbers[-1]
        last_id = claim.id if claim is not None and claim.attempt == last else None
        final = end if end is not None and end.final else None
        return History(last, counts, final, last_id, since=since, kept=kept, previous=previous)

    def assert_owner(self) -> None:
        """Raise Lost unless this is the newest attempt, and no other one has succeeded."""
        self._assert_newest()
        done = self._marker(self.since)
        if done is not None and done.id != self.id:
            raise Lost(f"attempt {done.attempt} has succeeded already")

    def _assert_newest(self) -> None:
        numbers = self._numbers()
        newest = numbers[-1] if numbers else 0
        if newest > self.number:
            raise Lost(f"attempt {newest} has taken over from attempt {self.number}")
        try:
            record = self._read(Claim, self._attempt(self.number))
        except Corrupt as damage:
            raise StorageError(str(damage)) from damage
        if record is None:
            # An empty store is storage in trouble, such as a mount that went away; no one has taken over.
            raise StorageError(f"{self._attempt(self.number)} is gone from the store")
        if record.id != self.id:
            raise Lost(f"another attempt {self.number} has taken over")

    def earlier(self) -> list[str]:
        """The names under which earlier attempts of this run may have left artifacts."""
        found = []
        for number in self._numbers():
            if self.since <= number < self.number:
                try:
                    claim = self._read_claim(number)
                except Corrupt:
                    continue
                if claim is not None:
                    found.append(records.artifact_name(number, claim.id))
        return found

    # -- writing

    def probe(self) -> bool:
        """Whether `create` keeps its promise here: of two that create one object, one succeeds. Asked, not assumed."""
        if self.store.conditional is None and not self.store.probe(self.key("probe", os.urandom(8).hex())):
            self.say(
                "this store is not known to create an object only where there is none: two attempts that start at "
                "the same moment may both believe to be the newest for a while; the one that was overwritten stops"
            )
        return bool(self.store.conditional)

    def claim(self, history: History, *, fresh: bool = False, renew: bool = False) -> bool:
        """Become the newest attempt; False when another one took the number: read the book again.

        `fresh` forgets all attempts before, `renew` only what they have cost.
        """
        self.probe()
        number, self.id = self._next(history.last), self.id or os.urandom(8).hex()
        claim = self._claim_after(history, number, fresh=fresh, renew=renew)
        if not self._create(self._attempt(number), records.pack(claim)):
            try:
                there = self._read_claim(number)
            except Corrupt:
                there = None
            # With our id an answer was lost on the way, not the request.
            if there is None or there.id != self.id:
                return False
            claim = there
        self._seen = max(self._seen, number)
        if any(other > number for other in self._numbers()):
            # The listing before was late, and the number had been used and removed: it is worth nothing.
            return False
        self.number, self.since = number, claim.since
        self.counts = Counts(claim.failures, claim.interruptions, claim.seconds)
        self.began = time.monotonic()
        return True

    def look_again(self, history: History) -> History:
        """After the claim: what the attempt before has said meanwhile counts, and may have been final."""
        known = history.previous
        if known is None or not known.assumed or history.fresh:
            return history
        late = self._outcome(known.attempt, known.id)
        if late is None:
            return history
        outcome, end = late
        counts = history.counts.after(known.outcome, -1).after(outcome)
        self.counts = Counts(counts.failures, counts.interruptions, counts.seconds)
        final = end if end is not None and end.final else None
        return History(
            history.last, counts, final, history.last_id, since=history.since, kept=history.kept, previous=known
        )

    def tidy(self) -> None:
        """Forget records that nothing reads any more, and what killed uploads left."""
        old = self.number - _REMEMBERED
        if any(number < self.since for number in self._numbers()):
            self._remove_before(self.since)
        keys = [key for key, _ in self.store.names(self.key("attempts"))]
        self.store.delete([key for key in keys if (_attempt_of(key) or self.number) < old])
        self.store.delete([key for key, _ in self.store.names(self.key("probe"))])
        try:
            for place in self._places():
                for part in ("checkpoints", "artifacts"):
                    place.clear_uploads(self.key(part))
        except StorageError as refusal:
            self.say(f"what killed uploads left could not be removed (in a bucket, a lifecycle rule can): {refusal}")

    def end(self, outcome: str, *, final: bool, exit_code: int, because: str, checkpoint: str | None = None) -> None:
        """Write how the attempt ended."""
        end = End(
            outcome=outcome,
            final=final,
            exit_code=exit_code,
            because=because[:_BECAUSE],
            seconds=round(time.monotonic() - self.began, 3),
            time=now(),
            checkpoint=checkpoint,
        )
        self.store.write(self._end(self.number, self.id), records.pack(end))

    def succeed(self, outputs: Mapping[str, Any]) -> Success:
        """Write the success marker: the last thing a successful attempt does. The first one stays, and is returned."""
        there = self._marker(self.since)
        if there is not None and there.id == self.id:
            return there
        self._assert_newest()
        if there is not None:
            return there
        marker = Success(attempt=self.number, id=self.id, time=now(), outputs=dict(outputs))
        key, data = self._success(self.since), records.pack(marker)
        if not self._create(key, data):
            there = self._marker(self.since)
            if there is None:
                # Half-written: no one's success.
                self.store.write(key, data)
                there = self._marker(self.since)
            if there is not None:
                return there
        return marker

    def forget(self) -> None:
        """The run starts from nothing next time, with full budgets; an attempt that is still alive has lost."""
        numbers = self._numbers()
        # A listing may be late: only a run of which nothing at all is there needs no word that it is forgotten. What is
        # there when that word is not written belongs to someone who began since.
        kept = [] if numbers else [key for place in self._places() for key, _ in place.names(self.base)]
        if not numbers and not kept:
            return
        made_by = (records.attempt_of(part) for key in kept for part in key[len(self.base) + 1 :].split("/")[1:3])
        numbers = numbers or sorted(number for number in made_by if number is not None)
        while True:
            self.id = os.urandom(8).hex()
            number = self._next(numbers[-1] if numbers else 0)
            claim = Claim(
                attempt=number,
                id=self.id,
                host=os.uname().nodename,
                time=now(),
                since=number,
                failures=0,
                interruptions=0,
                seconds=0.0,
                forget=True,
            )
            self.probe()
            if self._create(self._attempt(number), records.pack(claim)):
                self.number = self.since = number
                break
            numbers = self._numbers()
        self._remove_before(self.since)

    # -- parts

    def _claim_after(self, history: History, number: int, *, fresh: bool, renew: bool) -> Claim:
        zero = fresh or renew
        counts = history.counts
        return Claim(
            attempt=number,
            id=self.id,
            host=os.uname().nodename,
            time=now(),
            since=number if fresh else history.since,
            failures=0 if zero else counts.failures,
            interruptions=0 if zero else counts.interruptions,
            seconds=0.0 if fresh else counts.seconds,
            checkpoint=None if fresh else history.kept,
            previous=None if zero else history.previous,
        )

    def _add(self, counts: Counts, number: int, owner: str) -> tuple[Counts, End | None, Previous, str | None]:
        """The counts with one more attempt, how that one ended, and its newest checkpoint that is known."""
        found = self._outcome(number, owner)
        outcome, end = found if found is not None else (INTERRUPTED, None)
        grown = counts.after(outcome)
        if end is not None:
            grown.seconds = min(_LONGEST, grown.seconds + end.seconds)
            # What it says of other attempts' checkpoints is not its to say.
            seen = end.checkpoint if records.attempt_of(end.checkpoint or "") == number else None
        else:
            lived, seen = self._last_seen(number)
            grown.seconds = min(_LONGEST, grown.seconds + lived)
        return grown, end, Previous(attempt=number, id=owner, outcome=outcome, assumed=found is None), seen

    def _outcome(self, number: int, owner: str) -> tuple[str, End | None] | None:
        """How an attempt ended by its own word, or by what was found out later; None when nobody knows."""
        try:
            end = self._read(End, self._end(number, owner))
        except Corrupt as damage:
            self.say(f"{damage}; it is counted as a failure")
            return RETRYABLE, None
        if end is not None:
            assert isinstance(end, End)
            return end.outcome, end
        try:
            later = self._read(Judgment, self.key("attempts", f"{number:06d}-{owner}.judged.json"))
        except Corrupt as damage:
            self.say(f"{damage}; it is not believed")
            return None
        return None if later is None else (later.outcome, None)

    def _newest_claim(self, numbers: list[int]) -> tuple[Claim | None, list[int]]:
        """The newest claim that can be read, and the numbers after it that cannot, oldest first.

        Budgets never go back: where no record tells what was used up, the book is refused.
        """
        unreadable: list[int] = []
        for number in reversed(numbers):
            try:
                claim = self._read_claim(number)
            except Corrupt:
                claim = None
            if claim is not None:
                return claim, unreadable[::-1]
            unreadable.append(number)
        if numbers[0] > 1:
            raise StorageError(
                f"{self._attempt(numbers[-1])} cannot be read, and no older one is there to tell what was used up; "
                "gpuflow-run forget starts the run from nothing"
            )
        return None, unreadable[::-1]

    def _read_claim(self, number: int) -> Claim | None:
        claim = self._read(Claim, self._attempt(number))
        if claim is not None and claim.attempt != number:
            raise Corrupt(f"{self._attempt(number)} is of another attempt")
        assert claim is None or isinstance(claim, Claim)
        return claim

    def _marker(self, since: int) -> Success | None:
        try:
            marker = self._read(Success, self._success(since))
        except Corrupt:
            return None
        assert marker is None or isinstance(marker, Success)
        if marker is None or marker.attempt < since:
            return None
        return marker if marker.id == self.id or self._was_attempted(marker, since) else None

    def _was_attempted(self, marker: Success, since: int) -> bool:
        """Whether the attempt that a marker names was ever there: success without one is made up."""
        try:
            claim = self._read_claim(marker.attempt)
        except Corrupt:
            claim = None
        if claim is not None and claim.id == marker.id and not claim.forget:
            return True
        self._say_once(
            f"{self._success(since)} is of attempt {marker.attempt} {marker.id}, "
            f"of which {self._attempt(marker.attempt)} knows nothing; it is not believed"
        )
        return False

    def _success(self, since: int) -> str:
        """One marker for each time the run is begun anew: who removes an old one late never removes the next one."""
        return self.key(f"success-{since:06d}.json" if since else "success.json")

    def _create(self, key: str, data: bytes) -> bool:
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

    def _remove_before(self, since: int) -> None:
        """Remove what is forgotten: manifests first, the attempts last, so that an end in the middle is found again."""

        def old(key: str, part: int) -> bool:
            parts = key[len(self.base) + 1 :].split("/")
            number = records.attempt_of(parts[part]) if len(parts) > part else None
            return number is not None and number < since

        for place in self._places():
            found = [key for key, _ in place.names(self.key("checkpoints")) if old(key, 1)]
            found += [key for key, _ in place.names(self.key("artifacts")) if old(key, 2)]
            place.delete(sorted(found, key=lambda key: not key.endswith("/manifest.json")))
        keys = [key for key, _ in self.store.names(self.key("attempts"))]
        gone = [key for key in keys if (_attempt_of(key) or since) < since]
        self.store.delete([self._success(begun) for begun in sorted({0, *(_attempt_of(key) or 0 for key in gone)})])
        self.store.delete(gone)

    def _places(self) -> list[Store]:
        return [self.store] if self.checkpoints is self.store else [self.checkpoints, self.store]

    def _next(self, last: int) -> int:
        """The number after this one. No run comes so far: one that seems to has a claim that was made up."""
        if last >= records.LAST:
            raise StorageError(
                f"{self._attempt(last)} leaves no number for another attempt, and no run has had so many; remove "
                "that object, or use another --run-id"
            )
        return last + 1

    def _say_once(self, sentence: str) -> None:
        if sentence not in self._said:
            self._said.add(sentence)
            self.say(sentence)

    def _attempt(self, number: int) -> str:
        return self.key("attempts", f"{number:06d}.json")

    def _end(self, number: int, owner: str) -> str:
        return self.key("attempts", f"{number:06d}-{owner}.end.json")

    def _numbers(self) -> list[int]:
        """The numbers taken so far. One that was seen once must stay: a listing without it is not to be believed."""
        names = [key.rpartition("/")[2] for key, _ in self.store.names(self.key("attempts"))]
        found = {name: records.attempt_of(name) for name in names if name.endswith(".json")}
        numbers = sorted(number for name, number in found.items() if number and name == f"{number:06d}.json")
        for name in found:
            if name[:-5].isdigit() and name != f"{found[name] or 0:06d}.json":
                self._say_once(f"{self.key('attempts', name)[:300]} names no attempt; it is passed over")
        newest = numbers[-1] if numbers else 0
        if newest < self._seen:
            raise StorageError(f"{self._attempt(self._seen)} is gone from the store, or its listing is not whole")
        self._seen = newest
        return numbers

    def _owners(self, number: int) -> list[str]:
        """The ids of those who left an end for this number."""
        suffix = ".end.json"
        prefix = self._end(number, "")[: -len(suffix)]
        keys = [key for key, _ in self.store.names(self.key("attempts"))]
        found = [key[len(prefix) : -len(suffix)] for key in keys if key.startswith(prefix) and key.endswith(suffix)]
        return sorted(owner for owner in found if records.is_id(owner))

    def _last_seen(self, number: int) -> tuple[float, str | None]:
        """How long a lost attempt is known to have lived: until its last checkpoint, which is named."""
        lived, newest = 0.0, None
        top = self.key("checkpoints")
        for key, _ in self.checkpoints.names(top):
            name, _, rest = key[len(top) + 1 :].partition("/")
            if rest != "manifest.json" or records.attempt_of(name) != number:
                continue
            newest = max(newest or "", name)
            try:
                manifest = self._read(records.Manifest, key, self.checkpoints)
            except Corrupt:
                continue
            lived = max(lived, manifest.seconds if manifest is not None else 0.0)
        return lived, newest

    def _read(self, kind: type[records.Record], key: str, store: Store | None = None) -> Any:
        """A record, or None when there is none."""
        try:
            data = (store or self.store).read(key)
        except FileNotFoundError:
            return None
        return records.unpack(kind, data, key)


def forget(options: Options) -> int:
    """`gpuflow-run forget`: the run starts from nothing next time, with full budgets."""
    from gpuflow.runtime.options import BadOption

    where = [place for place in (options.store, options.state) if place]
    if not (where or options.checkpoint_dir) or not options.run_id:
        raise BadOption("forget needs --run-id and --store, --state or --checkpoint-dir: where the run is kept")
    base = identity.path(options.pipeline, options.run_id, options.step, options.item)
    if not where:
        from gpuflow.runtime.attempt_folder import identity_of
        from gpuflow.runtime.directory import HIDDEN

        own = identity_of(base) if options.own_folder else ""
        where = [os.path.join(options.checkpoint_dir, own, HIDDEN, "state")]
    try:
        # Checkpoints go with the attempts that made them, also where those are kept in another place.
        kept = open_store(options.store) if options.store else None
        for place in where:
            Ledger(open_store(place), base, kept).forget()
    except (StorageError, records.UnknownFormat) as refusal:
        raise BadOption(f"storage failed: {refusal}") from None
    print(f"gpuflow-run: forgot {base}")
    return 0


def _attempt_of(key: str) -> int | None:
    return records.attempt_of(key.rpartition("/")[2])


def now() -> str:
    """Wall-clock time for people to read; nothing is decided by it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
