"""Why the attempt before ended, where it could not say so itself: from the engine, else from its memory.

An attempt that is killed with its whole container leaves no end. The engine has seen the pod, and tells the next
attempt what it saw with `--last`, one JSON object. Every field may be missing, empty or `null`:

| field | says |
|---|---|
| `attempt` | the engine's number of the attempt it speaks of, as that one got it with `--engine-attempt` |
| `by` | `argo`, `airflow` or `kubeflow` |
| `phase`, `reason`, `message` | of the pod's `status`; or phase and message of Argo's node |
| `exit_code`, `container_reason` | of the main container: 137, `OOMKilled` |
| `conditions` | the pod's true conditions as `Type/Reason` |
| `deleted` | whether the pod is gone or being deleted |

What the table in `evidence` makes of it is written as a judgment beside the claim before anything is counted. It is
never said of an attempt whose own end is there, except that "told to stop" was for a deadline or a disk limit.

Where nobody tells, an attempt whose last sign of life had nearly all of its memory used is *suspected* to be out of
memory: a failure, until somebody knows better.
"""

from __future__ import annotations

import json

from gpuflow.runtime import history as histories
from gpuflow.runtime.book import Book
from gpuflow.runtime.evidence import Evidence, from_argo, judge
from gpuflow.runtime.outcomes import INTERRUPTED, NEVER_STARTED, OUT_OF_MEMORY, RETRYABLE, SUCCEEDED
from gpuflow.runtime.records import Claim, Corrupt, End, Judgment, UnknownFormat, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuflow.runtime.history import History

SUSPECTED = "suspected"
"""The cause of a judgment that no engine stands behind."""
SUSPICIOUS = 0.95
"""The share of the memory limit from which a lost attempt is suspected."""
UNKNOWN = "it was lost, and nobody says why"
_LONGEST = 2000
_MOST_CONDITIONS = 20


class Last:
    """What the engine says of one attempt."""

    def __init__(self, attempt: int | None, by: str, evidence: Evidence) -> None:
        self.attempt, self.by, self.evidence = attempt, by, evidence

    def plain(self) -> dict[str, Any]:
        """What was judged, without what was not said."""
        fields = {"attempt": self.attempt, **self.evidence._asdict()}
        fields.pop("said")
        fields.pop("supervised")
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items() if value}


def read(text: str | None, say: Callable[[str], None]) -> Last | None:
    """`--last`; None when there is nothing in it, which is said unless it was empty."""
    if text is None or not text.strip():
        return None
    try:
        value = json.loads(text)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise ValueError("it is not an object")
        number = _number(value.get("attempt"), "attempt")
        code = _number(value.get("exit_code"), "exit_code")
    except (ValueError, RecursionError) as refusal:
        say(f"--last cannot be read, and is left out: {str(refusal)[:200]}")
        return None
    if number is not None and number < 0:
        return None  # there was none before
    # Argo says 0 where it knows no exit code. A 0 that is true has a success marker, and we would not be here.
    seen = from_argo(_text(value.get("phase")), _text(value.get("message")), code or None, supervised=True)
    conditions = value.get("conditions")
    conditions = conditions if isinstance(conditions, list) else []
    seen = seen._replace(
        reason=_text(value.get("reason")),
        container_reason=_text(value.get("container_reason")) or seen.container_reason,
        conditions=tuple(filter(None, map(_text, conditions[:_MOST_CONDITIONS]))),
        deleted=value.get("deleted") in (True, "true", "True"),
        said=None,
    )
    return Last(number, _text(value.get("by")) or "the engine", seen)


def settle(book: Book, history: History, last: Last | None) -> bool:
    """Write down what is known of the attempts before. Whether the book must be read again."""
    newest = history.previous
    if newest is None:
        return False
    wrote = False
    if last is not None:
        found = _spoken_of(book, newest.attempt, newest.id, last)
        if found is None:
            book.say_once(f"{last.by} tells of its attempt {last.attempt}, which took no number here: it costs nothing")
        else:
            wrote = _believe(book, *found, last)
    return (_suspect(book, newest.attempt, newest.id) if newest.assumed and not wrote else False) or wrote


def _spoken_of(book: Book, number: int, owner: str, last: Last) -> tuple[int, str] | None:
    """Which attempt the engine speaks of: the newest, or the one before it as long as that is only assumed."""
    claim = _claim(book, number)
    if claim is None or None in (claim.engine_attempt, last.attempt) or claim.engine_attempt == last.attempt:
        return number, owner
    before = claim.previous
    if before is not None and before.assumed:
        older = _claim(book, before.attempt)
        if older is not None and older.engine_attempt == last.attempt:
            return before.attempt, before.id
    return None


def _believe(book: Book, number: int, owner: str, last: Last) -> bool:
    """The engine's word on an attempt, where that attempt has none, or not all. Whether it was written."""
    verdict = judge(last.evidence)
    if verdict is None or verdict.outcome in (SUCCEEDED, NEVER_STARTED):
        return False  # it did start, and it left no success: this says nothing about its end
    outcome, because = verdict
    if outcome == RETRYABLE and last.evidence.exit_code in (None, 137):
        # That it failed, or was killed, is no cause. It was not the command alone: the supervisor would have told.
        if _suspect(book, number, owner):
            return True
        outcome, because = INTERRUPTED, UNKNOWN
    try:
        end = book.read(End, book.end_key(number, owner))
    except Corrupt:
        if book.keys is None:
            return False  # counted as a failure
        end = None
    if end is not None and not (histories.was_told(end) and outcome in histories.WHY_TOLD):
        return False
    key = book.judged_key(number, owner)
    there = _judgment(book, key)
    judged = Judgment(outcome=outcome, cause=because, evidence=last.plain(), by=last.by)
    if there is not None and there.cause != SUSPECTED:
        return there == judged  # written by us, and only the answer was lost
    book.store.write(key, book.pack(judged, key))
    how = "was told to stop" if end is not None else "left no end"
    book.say(f"attempt {number} {how}; {last.by} says why: {outcome}: {because}")
    return True


def _suspect(book: Book, number: int, owner: str) -> bool:
    """Whether a lost attempt is suspected. Written only where nobody has said anything."""
    try:
        seen = book.read(Usage, book.memory_key(number, owner))
    except (Corrupt, UnknownFormat):
        return False
    if seen is None or seen.share < SUSPICIOUS:
        return False
    there = _judgment(book, book.judged_key(number, owner))
    if there is not None:
        return bool(there.cause == SUSPECTED)
    try:
        if book.read(End, book.end_key(number, owner)) is not None:
            return False
    except Corrupt:
        if book.keys is None:
            return False
    evidence = {"used": seen.used, "limit": seen.limit, "time": seen.time[:64]}
    judged = Judgment(outcome=OUT_OF_MEMORY, cause=SUSPECTED, evidence=evidence, by="gpuflow-run")
    key = book.judged_key(number, owner)
    # Created, not written: the word of an engine that comes at the same time stays.
    if not book.create(key, book.pack(judged, key)):
        return False
    book.say(
        f"attempt {number} left no end, and used {seen.share:.0%} of its memory limit when it was last seen: "
        "suspected out of memory, which counts as a failure"
    )
    return True


def _claim(book: Book, number: int) -> Claim | None:
    try:
        return book.read_claim(number)
    except Corrupt:
        return None


def _judgment(book: Book, key: str) -> Judgment | None:
    try:
        found = book.read(Judgment, key)
    except Corrupt:
        return None
    assert found is None or isinstance(found, Judgment)
    return found


def _text(value: Any) -> str | None:
    """A text that says something. Argo spells what it does not have as nothing, or as null."""
    if not isinstance(value, str) or value.strip() in ("", "null", "<nil>", "None"):
        return None
    return value.encode("utf-8", "replace").decode()[:_LONGEST]


def _number(value: Any, name: str) -> int | None:
    """A number, also as text; None where there is none. What is something else is no missing number."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is no number: {str(value)[:80]}")
    text = _text(value)
    if text is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} is no number: {text[:80]!r}") from None
