"""The records of a run's attempts in a store: where they are, what they add up to, and which retry budget is spent.

`attempts/000007.json` is written by `create`, so that a number belongs to one attempt. Who owns the run is decided in
`ledger`. With keys only what is signed counts. Whoever else writes to the store can take a name, and the next number is
then beyond it, but can neither take the run over, nor end it, nor say that it is done.

Each claim carries the sums so far, so that reading the history opens a few objects and not hundreds. An attempt that
left no end record was lost: that is an interruption, until somebody who knows better has written a judgment, or it
turns out to be something else. Budgets never go back; failures and interruptions have one each, or one for both.
"""

from __future__ import annotations

import os
import time

from gpuflow.runtime.base import record_fields, records
from gpuflow.runtime.base.outcomes import DISK_LIMIT, FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, TIMED_OUT
from gpuflow.runtime.base.record_fields import LAST, Record, is_id
from gpuflow.runtime.base.records import Claim, Corrupt, End, Judgment, PreviousAttempt, Success, UnknownFormat
from gpuflow.runtime.stores.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.base.signing import Keys

SETTLE = 1.0
"""In a store that cannot create conditionally: how long to wait before looking who wrote last."""


class RunRecords:
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
        """One marker per restart of the run, so that a late removal of an old marker never removes a new one."""
        return self.key(f"success-{since:06d}.json" if since else "success.json")

    def places(self) -> list[Store]:
        places = [self.store] if self.checkpoints is self.store else [self.checkpoints, self.store]
        return places if self.artifacts is None else [*places, self.artifacts]

    # -- reading

    def numbers(self) -> list[int]:
        """The numbers taken so far. A listing that lacks a number seen before is an error."""
        names = [key.rpartition("/")[2] for key, _ in self.store.names(self.key("attempts"))]
        found = {name: _number(name) for name in names if name.endswith(".json")}
        numbers = sorted(number for number in found.values() if number is not None)
        for name, number in found.items():
            if number is None and name[:-5].isdigit():
                self.say_once(f"{self.key('attempts', name)[:300]} names no attempt; it is passed over")
        newest = numbers[-1] if numbers else 0
        if newest < self.seen:
            raise self._missing_error()
        if self.keys is None:
            self.seen = newest
        return numbers

    def note_seen(self, number: int) -> None:
        """The newest claim that could be read. With keys that, and not what is listed, must not go back."""
        if self.keys is None:
            return
        if number < self.seen:
            raise self._missing_error()
        self.seen = number

    def _missing_error(self) -> StorageError:
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
            return self.whole_claim(number) is not None
        except UnknownFormat:
            return True  # by a newer gpuflow-run that has our key

    def owners(self) -> dict[int, list[str]]:
        """The ids of those who left an end, by number."""
        found: dict[int, list[str]] = {}
        for key, _ in self.store.names(self.key("attempts")):
            number, _, owner = key.rpartition("/")[2].partition("-")
            taken = _number(f"{number}.json")
            if taken is not None and owner.endswith(".end.json") and is_id(owner[: -len(".end.json")]):
                found.setdefault(taken, []).append(owner[: -len(".end.json")])
        return found

    def read(self, kind: type[Record], key: str, store: Store | None = None) -> Any:
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
        if (claim := self.read(Claim, self.attempt_key(number))) is not None and claim.attempt != number:
            raise Corrupt(f"{self.attempt_key(number)} is of another attempt")
        assert claim is None or isinstance(claim, Claim)
        return claim

    def whole_claim(self, number: int) -> Claim | None:
        """The same; None also for one that is not whole, or not ours."""
        try:
            return self.read_claim(number)
        except Corrupt:
            return None

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
        claim = self.whole_claim(marker.attempt)
        if claim is not None and claim.id == marker.id and not claim.forget:
            return True
        self.say_once(
            f"{self.success_key(since)} is of attempt {marker.attempt} {marker.id}, "
            f"of which {self.attempt_key(marker.attempt)} knows nothing; it is not believed"
        )
        return False

    def may_take(self, number: int) -> int:
        """This number. No run comes so far as the last one: a claim of that was made up."""
        if number > LAST:
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

    def pack(self, record: Record, place: str) -> bytes:
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
    return record_fields.attempt_of(key.rpartition("/")[2])


def _number(name: str) -> int | None:
    """The number of a claim by its file name, spelled as we spell it: no other name is one of ours."""
    number = record_fields.attempt_of(name)
    return number if number and name == f"{number:06d}.json" else None


def utc_now() -> str:
    """Wall-clock time for people to read; nothing is decided by it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


_LONGEST = 1e14
COSTS = {
    RETRYABLE: "failures",
    OUT_OF_MEMORY: "failures",
    FINAL: "failures",
    TIMED_OUT: "failures",
    DISK_LIMIT: "failures",
    INTERRUPTED: "interruptions",
}
"""Which budget an outcome is counted against."""
TOLD_TO_STOP = "told to stop"
"""The cause in the end of an attempt that got a stop signal."""
WHY_TOLD = (TIMED_OUT, DISK_LIMIT)
"""Why Kubernetes tells a pod to stop for what is the pod's own fault."""


class Counts:
    """What the attempts before this one have used up."""

    def __init__(self, failures: int = 0, interruptions: int = 0, seconds: float = 0.0) -> None:
        self.failures, self.interruptions = min(failures, LAST), min(interruptions, LAST)
        self.seconds = min(seconds, _LONGEST)

    def with_outcome(self, outcome: str, by: int = 1) -> Counts:
        """The counts once an attempt has ended so; with -1, as if it had not."""
        grown = Counts(self.failures, self.interruptions, self.seconds)
        if (budget := COSTS.get(outcome)) is not None:
            setattr(grown, budget, min(LAST, max(0, getattr(grown, budget) + by)))
        return grown


class History:
    """What is known when an attempt begins.

    `kept` names the newest checkpoint that the records know of: a listing that does not reach it is not to be believed.
    `fresh` says that nothing of before counts: neither in the store nor in the directory. `taken` are numbers after
    the last one that are in use, but not by us.
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
        previous: PreviousAttempt | None = None,
        fresh: bool = False,
        taken: Collection[int] = (),
    ) -> None:
        self.last, self.counts, self.final, self.last_id = last, counts, final, last_id
        self.since, self.kept, self.previous, self.fresh = since, kept, previous, fresh
        self.taken = frozenset(taken)

    @property
    def next(self) -> int:
        """The number to claim."""
        number = self.last + 1
        while number in self.taken:
            number += 1
        return number


def read_history(run: RunRecords) -> History:
    """What the attempts so far add up to."""
    numbers = run.numbers()
    if not numbers:
        return History(0, Counts(), None, None)
    claim, unreadable = newest_claim(run, numbers)
    counts, kept, since, end = Counts(), None, 0, None
    previous: PreviousAttempt | None = None
    if claim is not None:
        since, kept = claim.since, claim.checkpoint
        counts = Counts(claim.failures, claim.interruptions, claim.seconds)
        if (known := claim.previous) is not None and known.assumed:
            late = outcome_of(run, known.attempt, known.id)
            if late is not None and late[0] != known.outcome:
                counts = counts.with_outcome(known.outcome, -1).with_outcome(late[0])
        if not claim.forget:
            counts, end, previous, seen = _add_attempt(run, counts, claim.attempt, claim.id)
            kept = max(kept or "", seen or "") or None
    counted = _count_unread(run, unreadable)
    for number, owner in counted:
        counts, end, previous, seen = _add_attempt(run, counts, number, owner)
        kept = max(kept or "", seen or "") or None
    last, taken = numbers[-1], []
    if run.keys is not None:
        # Also one whose claim was spoiled: the next number is beyond what is counted before it.
        last = max([claim.attempt if claim is not None else 0, *(number for number, _ in counted)])
        taken = unreadable
    last_id = claim.id if claim is not None and claim.attempt == last else None
    final = end if end is not None and end.final else None
    return History(last, counts, final, last_id, since=since, kept=kept, previous=previous, taken=taken)


def _count_unread(run: RunRecords, unreadable: list[int]) -> list[tuple[int, str]]:
    """Which of the numbers whose claim cannot be read are counted, and as whose.

    A number that was taken costs what it may have cost. With keys anybody may have taken it: it costs nothing, unless
    an end that is signed says that there was such an attempt.
    """
    counted, strange = [], []
    ends = run.owners() if unreadable else {}
    for number in unreadable:
        owners = sorted(ends.get(number, []))
        if run.keys is not None:
            owners = [owner for owner in owners if outcome_of(run, number, owner) is not None]
            if not owners:
                strange.append(number)
                continue
        run.say(f"{run.attempt_key(number)} cannot be read; it is counted from what lies beside it")
        counted.append((number, owners[-1] if owners else "unreadable"))
    if strange:
        more = f" and {len(strange) - 1} more are" if len(strange) > 1 else " is"
        run.say(f"{run.attempt_key(strange[-1])}{more} not signed with our key: no attempt of this run")
    return counted


def read_history_again(run: RunRecords, history: History) -> History:
    """After the claim: what the attempt before has said meanwhile counts, and may have been final."""
    if (known := history.previous) is None or not known.assumed or history.fresh:
        return history
    if (late := outcome_of(run, known.attempt, known.id)) is None:
        return history
    outcome, end = late
    counts = history.counts.with_outcome(known.outcome, -1).with_outcome(outcome)
    final = end if end is not None and end.final else None
    return History(history.last, counts, final, history.last_id, since=history.since, kept=history.kept, previous=known)


def newest_claim(run: RunRecords, numbers: list[int]) -> tuple[Claim | None, list[int]]:
    """The newest claim that can be read, and the numbers after it that cannot, oldest first. Budgets never go back:
    where no record tells what was used up, the records are refused."""
    unreadable: list[int] = []
    for number in reversed(numbers):
        if (claim := run.whole_claim(number)) is not None:
            run.note_seen(claim.attempt)
            return claim, unreadable[::-1]
        unreadable.append(number)
    run.note_seen(0)
    if numbers[0] > 1 and run.keys is None:
        raise StorageError(
            f"{run.attempt_key(numbers[-1])} cannot be read, and no older one is there to tell what was used up; "
            "gpuflow-run forget starts the run from nothing"
        )
    return None, unreadable[::-1]


def outcome_of(run: RunRecords, number: int, owner: str) -> tuple[str, End | None] | None:
    """How an attempt ended by its own word, or by what was found out later; None when nobody knows. Its own word wins,
    but for one thing that it cannot know: why it was told to stop."""
    try:
        end = run.read(End, run.end_key(number, owner))
    except Corrupt as damage:
        if run.keys is None:
            run.say(f"{damage}; it is counted as a failure")
            return RETRYABLE, None
        # Anybody may have written it; who removes an end achieves the same.
        run.say(f"{damage}; it is not believed")
        end = None
    if end is not None and not was_told_to_stop(end):
        return end.outcome, end
    try:
        later = run.read(Judgment, run.judged_key(number, owner))
    except Corrupt as damage:
        run.say(f"{damage}; it is not believed")
        later = None
    if later is not None and (end is None or later.outcome in WHY_TOLD):
        return later.outcome, end
    return None if end is None else (end.outcome, end)


def was_told_to_stop(end: End) -> bool:
    """Whether an attempt says that it was told to stop: by whom and why, only an engine can say."""
    return bool(end.outcome == INTERRUPTED and end.cause == TOLD_TO_STOP)


def _add_attempt(
    run: RunRecords, counts: Counts, number: int, owner: str
) -> tuple[Counts, End | None, PreviousAttempt, str | None]:
    """The counts with one more attempt, how that one ended, and its newest checkpoint that is known."""
    found = outcome_of(run, number, owner)
    outcome, end = found if found is not None else (INTERRUPTED, None)
    grown = counts.with_outcome(outcome)
    if end is not None:
        grown.seconds = min(_LONGEST, grown.seconds + end.seconds)
        # What it says of other attempts' checkpoints is not its to say.
        seen = end.checkpoint if record_fields.attempt_of(end.checkpoint or "") == number else None
    else:
        lived, seen = _last_seen(run, number)
        grown.seconds = min(_LONGEST, grown.seconds + lived)
    return grown, end, PreviousAttempt(attempt=number, id=owner, outcome=outcome, assumed=end is None), seen


def _last_seen(run: RunRecords, number: int) -> tuple[float, str | None]:
    """How long a lost attempt is known to have lived: until its last checkpoint, which is named."""
    lived, newest = 0.0, None
    top = run.key("checkpoints")
    for key, _ in run.checkpoints.names(top):
        name, _, rest = key[len(top) + 1 :].partition("/")
        if rest != "manifest.json" or record_fields.attempt_of(name) != number:
            continue
        try:
            manifest = run.read(records.Manifest, key, run.checkpoints)
        except Corrupt:
            if run.keys is None:
                newest = max(newest or "", name)
            continue
        newest = max(newest or "", name)
        lived = max(lived, manifest.seconds if manifest is not None else 0.0)
    return lived, newest


BUDGETS = ("failures", "interruptions", "retries")


def spent_budget(options: Options, used: Counts, before: Counts | None = None) -> str | None:
    """Why no further attempt may run, or None. With `before`, only a budget that has been used since then ends it."""
    for budget in BUDGETS:
        most, now = getattr(options, budget), _budgets_of(used, budget)
        if most is not None and now > most and (before is None or now > _budgets_of(before, budget)):
            if before is not None:
                return f"the budget of {most} {budget} is spent"
            ended = "failures and interruptions" if budget == "retries" else budget
            return f"{now} {ended} so far; the budget of {most}{' retries' if budget == 'retries' else ''} is spent"
    return None


def may_be_failure(options: Options, before: Counts) -> bool:
    """Whether one interruption too many may turn out to be a failure that is still allowed.

    Who is told to stop cannot know why: perhaps for a disk limit. The engine tells the next attempt, and that one ends
    the step before its command runs if it was an interruption.
    """
    return options.engine_attempt is not None and options.failures is not None and before.failures < options.failures


def _budgets_of(counts: Counts, budget: str) -> int:
    if budget == "retries":
        return counts.failures + counts.interruptions
    return int(getattr(counts, budget))


def remove_before(run: RunRecords, since: int) -> None:
    """Remove what is forgotten: manifests first, the attempts last, so that an end in the middle is found again."""

    def old(key: str, part: int) -> bool:
        parts = key[len(run.base) + 1 :].split("/")
        number = record_fields.attempt_of(parts[part]) if len(parts) > part else None
        return number is not None and number < since

    for place in run.places():
        found = [key for key, _ in place.names(run.key("checkpoints")) if old(key, 1)]
        found += [key for key, _ in place.names(run.key("artifacts")) if old(key, 2)]
        place.delete(sorted(found, key=lambda key: not key.endswith("/manifest.json")))
    keys = [key for key, _ in run.store.names(run.key("attempts"))]
    gone = [key for key in keys if (attempt_of(key) or since) < since]
    run.store.delete([run.success_key(begun) for begun in sorted({0, *(attempt_of(key) or 0 for key in gone)})])
    run.store.delete(gone)
