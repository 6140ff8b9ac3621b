"""What the attempts so far add up to: which budget each has cost, how the last one ended, what it left.

Each claim carries the sums so far, so that reading the book opens a few objects and not hundreds. An attempt that left
no word was lost: that is an interruption, until somebody who knows better has written a judgment, or it turns out to be
something else. Budgets never go back.
"""

from __future__ import annotations

from gpuflow.runtime import records
from gpuflow.runtime.outcomes import DISK_LIMIT, FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, TIMED_OUT
from gpuflow.runtime.records import Claim, Corrupt, End, Judgment, Previous
from gpuflow.runtime.store import StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

    from gpuflow.runtime.book import Book

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
TOLD = "told to stop"
"""The cause in the end of an attempt that got a stop signal."""
WHY_TOLD = (TIMED_OUT, DISK_LIMIT)
"""Why Kubernetes tells a pod to stop for what is the pod's own fault."""


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
        previous: Previous | None = None,
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


def read(book: Book) -> History:
    """What the attempts so far add up to."""
    numbers = book.numbers()
    if not numbers:
        return History(0, Counts(), None, None)
    claim, unreadable = newest_claim(book, numbers)
    counts, kept, since, end = Counts(), None, 0, None
    previous: Previous | None = None
    if claim is not None:
        since, kept = claim.since, claim.checkpoint
        counts = Counts(claim.failures, claim.interruptions, claim.seconds)
        known = claim.previous
        if known is not None and known.assumed:
            late = outcome_of(book, known.attempt, known.id)
            if late is not None and late[0] != known.outcome:
                counts = counts.after(known.outcome, -1).after(late[0])
        if not claim.forget:
            counts, end, previous, seen = _add(book, counts, claim.attempt, claim.id)
            kept = max(kept or "", seen or "") or None
    counted = _counted(book, unreadable)
    for number, owner in counted:
        counts, end, previous, seen = _add(book, counts, number, owner)
        kept = max(kept or "", seen or "") or None
    last, taken = numbers[-1], []
    if book.keys is not None:
        # Also one whose claim was spoiled: the next number is beyond what is counted before it.
        last = max([claim.attempt if claim is not None else 0, *(number for number, _ in counted)])
        taken = unreadable
    last_id = claim.id if claim is not None and claim.attempt == last else None
    final = end if end is not None and end.final else None
    return History(last, counts, final, last_id, since=since, kept=kept, previous=previous, taken=taken)


def _counted(book: Book, unreadable: list[int]) -> list[tuple[int, str]]:
    """Which of the numbers whose claim cannot be read are counted, and as whose.

    A number that was taken costs what it may have cost. With keys anybody may have taken it: it costs nothing, unless
    an end that is signed says that there was such an attempt.
    """
    counted, strange = [], []
    ends = book.owners() if unreadable else {}
    for number in unreadable:
        owners = sorted(ends.get(number, []))
        if book.keys is not None:
            owners = [owner for owner in owners if outcome_of(book, number, owner) is not None]
            if not owners:
                strange.append(number)
                continue
        book.say(f"{book.attempt_key(number)} cannot be read; it is counted from what lies beside it")
        counted.append((number, owners[-1] if owners else "unreadable"))
    if strange:
        more = f" and {len(strange) - 1} more are" if len(strange) > 1 else " is"
        book.say(f"{book.attempt_key(strange[-1])}{more} not signed with our key: no attempt of this run")
    return counted


def read_again(book: Book, history: History) -> History:
    """After the claim: what the attempt before has said meanwhile counts, and may have been final."""
    known = history.previous
    if known is None or not known.assumed or history.fresh:
        return history
    late = outcome_of(book, known.attempt, known.id)
    if late is None:
        return history
    outcome, end = late
    counts = history.counts.after(known.outcome, -1).after(outcome)
    final = end if end is not None and end.final else None
    return History(history.last, counts, final, history.last_id, since=history.since, kept=history.kept, previous=known)


def newest_claim(book: Book, numbers: list[int]) -> tuple[Claim | None, list[int]]:
    """The newest claim that can be read, and the numbers after it that cannot, oldest first.

    Budgets never go back: where no record tells what was used up, the book is refused.
    """
    unreadable: list[int] = []
    for number in reversed(numbers):
        try:
            claim = book.read_claim(number)
        except Corrupt:
            claim = None
        if claim is not None:
            book.saw(claim.attempt)
            return claim, unreadable[::-1]
        unreadable.append(number)
    book.saw(0)
    if numbers[0] > 1 and book.keys is None:
        raise StorageError(
            f"{book.attempt_key(numbers[-1])} cannot be read, and no older one is there to tell what was used up; "
            "gpuflow-run forget starts the run from nothing"
        )
    return None, unreadable[::-1]


def outcome_of(book: Book, number: int, owner: str) -> tuple[str, End | None] | None:
    """How an attempt ended by its own word, or by what was found out later; None when nobody knows.

    Its own word wins, but for one thing that it cannot know: why it was told to stop.
    """
    try:
        end = book.read(End, book.end_key(number, owner))
    except Corrupt as damage:
        if book.keys is None:
            book.say(f"{damage}; it is counted as a failure")
            return RETRYABLE, None
        # Anybody may have written it; who removes an end achieves the same.
        book.say(f"{damage}; it is not believed")
        end = None
    if end is not None and not was_told(end):
        return end.outcome, end
    try:
        later = book.read(Judgment, book.judged_key(number, owner))
    except Corrupt as damage:
        book.say(f"{damage}; it is not believed")
        later = None
    if later is not None and (end is None or later.outcome in WHY_TOLD):
        return later.outcome, end
    return None if end is None else (end.outcome, end)


def was_told(end: End) -> bool:
    """Whether an attempt says that it was told to stop: by whom and why, only an engine can say."""
    return bool(end.outcome == INTERRUPTED and end.cause == TOLD)


def _add(book: Book, counts: Counts, number: int, owner: str) -> tuple[Counts, End | None, Previous, str | None]:
    """The counts with one more attempt, how that one ended, and its newest checkpoint that is known."""
    found = outcome_of(book, number, owner)
    outcome, end = found if found is not None else (INTERRUPTED, None)
    grown = counts.after(outcome)
    if end is not None:
        grown.seconds = min(_LONGEST, grown.seconds + end.seconds)
        # What it says of other attempts' checkpoints is not its to say.
        seen = end.checkpoint if records.attempt_of(end.checkpoint or "") == number else None
    else:
        lived, seen = _last_seen(book, number)
        grown.seconds = min(_LONGEST, grown.seconds + lived)
    return grown, end, Previous(attempt=number, id=owner, outcome=outcome, assumed=end is None), seen


def _last_seen(book: Book, number: int) -> tuple[float, str | None]:
    """How long a lost attempt is known to have lived: until its last checkpoint, which is named."""
    lived, newest = 0.0, None
    top = book.key("checkpoints")
    for key, _ in book.checkpoints.names(top):
        name, _, rest = key[len(top) + 1 :].partition("/")
        if rest != "manifest.json" or records.attempt_of(name) != number:
            continue
        try:
            manifest = book.read(records.Manifest, key, book.checkpoints)
        except Corrupt:
            if book.keys is None:
                newest = max(newest or "", name)
            continue
        newest = max(newest or "", name)
        lived = max(lived, manifest.seconds if manifest is not None else 0.0)
    return lived, newest
