"""Why a program failed here, and why the attempt before ended where it could not say so itself.

`diagnose` goes by the program's exit code, its last output and the memory controller.

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

import errno
import json
import re

from gpuflow.runtime.base.outcomes import (
    FINAL,
    INTERRUPTED,
    NEVER_STARTED,
    OUT_OF_MEMORY,
    RETRYABLE,
    SUCCEEDED,
    SUPERVISOR_EXIT_CODES,
    Ending,
)
from gpuflow.runtime.base.records import Corrupt, End, Judgment, UnknownFormat, Usage
from gpuflow.runtime.state import attempts
from gpuflow.runtime.state.attempts import RunRecords
from gpuflow.runtime.supervise.evidence import Evidence, Verdict, from_argo, judge

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from gpuflow.runtime.state.attempts import History

_HARDWARE_XIDS = "46|48|61|62|63|64|69|74|79|92|94|95|109|119|120|140|143"
OUTPUT_ROWS = (
    # A fault of the machine is nobody's failure: it costs an interruption, and the next node may be sound.
    (INTERRUPTED, "the GPU failed", rf"NVRM: Xid \(PCI:[^)]*\): ({_HARDWARE_XIDS})\b"),
    (INTERRUPTED, "the GPU failed", r"uncorrectable ECC error|GPU has fallen off the bus|cudaErrorECCUncorrectable"),
    (INTERRUPTED, "the GPU failed", r"GPU is lost|hardware stack error|uncorrectable NVLink error"),
    (RETRYABLE, "the GPU is out of memory", r"CUDA out of memory|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation"),
    (RETRYABLE, "the GPU is out of memory", r"torch\.(cuda\.)?OutOfMemoryError|RESOURCE_EXHAUSTED: Out of memory"),
    (RETRYABLE, "NCCL communication failed", r"Watchdog caught collective operation timeout|DistBackendError"),
    (RETRYABLE, "NCCL communication failed", r"nccl(System|Internal|Remote|UnhandledCuda)Error|NCCL error"),
    (RETRYABLE, "a driver library is missing on the node", r"(ImportError|OSError): lib(cuda|nvidia)[\w.-]*\.so"),
)
"""Found anywhere in the last words, tried from the top."""
IMPORT_ERROR = re.compile(r"^(ModuleNotFoundError|ImportError): .*$", re.MULTILINE)
_NOT_RUN = re.compile(
    r"(command not found|: not found|No such file or directory|Permission denied|Exec format error|cannot execute)\s*$"
)
"""A shell's words for a command that it could not run."""


def diagnose(
    code: int,
    last_words: str,
    oom_kills: int,
    final_exit_codes: Iterable[int] = (),
    retryable_exit_codes: Iterable[int] | None = None,
) -> Verdict:
    """The verdict on a command that failed without a stop request."""
    verdict = judge(
        # A code of the supervisor's own says nothing where the program ends with it.
        Evidence(
            exit_code=1 if code in SUPERVISOR_EXIT_CODES else code,
            container_reason="OOMKilled" if oom_kills and code == 137 else None,
        ),
        final_exit_codes=final_exit_codes,
        retryable_exit_codes=retryable_exit_codes,
    )
    assert verdict is not None
    if verdict.outcome == OUT_OF_MEMORY:
        return verdict
    if oom_kills and verdict.outcome == RETRYABLE:
        return Verdict(OUT_OF_MEMORY, "a process of it was killed for memory")
    if verdict.outcome == FINAL:
        return verdict
    if code == 143 and verdict.outcome == INTERRUPTED:
        # The table's words are of a pod that was told. Here the supervisor would know.
        verdict = Verdict(INTERRUPTED, "so ends a program after SIGTERM, though its supervisor did not tell it to stop")
    for outcome, because, pattern in OUTPUT_ROWS:
        if re.search(pattern, last_words):
            return Verdict(outcome, because)
    ending = last_words.rstrip().rpartition("\n")[2]
    if code == 1 and IMPORT_ERROR.match(ending):
        return Verdict(FINAL, f"the image lacks something: {ending}")
    if code in (126, 127) and _NOT_RUN.search(ending):
        return Verdict(FINAL, f"the command cannot be run: {ending}")
    return verdict


_TEMPORARY_ERRORS = frozenset(
    {errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE, errno.EIO, errno.ESTALE, errno.ETXTBSY, errno.ETIMEDOUT}
)
"""Why a command cannot be started just now: the machine is short of something, or its disk does not answer."""


def cannot_start(command: str, refusal: OSError) -> Ending:
    """The ending of a command that the kernel would not start: a shell's exit code, and final unless it may pass."""
    import shutil

    missing = refusal.errno == errno.ENOENT
    why = refusal.strerror or str(refusal)
    if missing and shutil.which(command) is not None:
        why += "; the file is there, so its interpreter (the first line of a script) or its loader is what is missing"
    outcome = RETRYABLE if refusal.errno in _TEMPORARY_ERRORS else FINAL
    return Ending(outcome, f"the command cannot be started: {command}: {why}", 127 if missing else 126)


SUSPECTED_CAUSE = "suspected"
"""The cause of a judgment that no engine stands behind."""
SUSPICIOUS_SHARE = 0.95
"""The share of the memory limit from which a lost attempt is suspected."""
UNKNOWN = "it was lost, and nobody says why"
_LONGEST = 2000
_MOST_CONDITIONS = 20


class LastAttempt:
    """What the engine says of one attempt."""

    def __init__(self, attempt: int | None, by: str, evidence: Evidence) -> None:
        self.attempt, self.by, self.evidence = attempt, by, evidence

    def plain(self) -> dict[str, Any]:
        """What was judged, without what was not said."""
        fields = {"attempt": self.attempt, **self.evidence._asdict()}
        fields.pop("said")
        fields.pop("supervised")
        return {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items() if value}


def read_last(text: str | None, say: Callable[[str], None]) -> LastAttempt | None:
    """`--last`; None when there is nothing in it, which is said unless it was empty."""
    if text is None or not text.strip():
        return None
    try:
        if (value := json.loads(text)) is None:
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
    return LastAttempt(number, _text(value.get("by")) or "the engine", seen)


def settle_last(run: RunRecords, history: History, last: LastAttempt | None) -> bool:
    """Write down what is known of the attempts before. Whether the records must be read again."""
    if (newest := history.previous) is None:
        return False
    wrote = False
    if last is not None:
        if (found := _attempt_meant(run, newest.attempt, newest.id, last)) is None:
            run.say_once(f"{last.by} tells of its attempt {last.attempt}, which took no number here: it costs nothing")
        else:
            wrote = _record_engine_word(run, *found, last)
    return (_record_suspicion(run, newest.attempt, newest.id) if newest.assumed and not wrote else False) or wrote


def _attempt_meant(run: RunRecords, number: int, owner: str, last: LastAttempt) -> tuple[int, str] | None:
    """Which attempt the engine speaks of: the newest, or the one before it as long as that is only assumed."""
    claim = run.whole_claim(number)
    if claim is None or None in (claim.engine_attempt, last.attempt) or claim.engine_attempt == last.attempt:
        return number, owner
    if (before := claim.previous) is not None and before.assumed:
        older = run.whole_claim(before.attempt)
        if older is not None and older.engine_attempt == last.attempt:
            return before.attempt, before.id
    return None


def _record_engine_word(run: RunRecords, number: int, owner: str, last: LastAttempt) -> bool:
    """The engine's word on an attempt, where that attempt has none, or not all. Whether it was written."""
    if (verdict := judge(last.evidence)) is None or verdict.outcome in (SUCCEEDED, NEVER_STARTED):
        return False  # it did start, and it left no success: this says nothing about its end
    outcome, because = verdict
    if outcome == RETRYABLE and last.evidence.exit_code in (None, 137):
        # That it failed, or was killed, is no cause. It was not the command alone: the supervisor would have told.
        if _record_suspicion(run, number, owner):
            return True
        outcome, because = INTERRUPTED, UNKNOWN
    try:
        end = run.read(End, run.end_key(number, owner))
    except Corrupt:
        if run.keys is None:
            return False  # counted as a failure
        end = None
    if end is not None and not (attempts.was_told_to_stop(end) and outcome in attempts.WHY_TOLD):
        return False
    key = run.judged_key(number, owner)
    there = _judgment(run, key)
    judged = Judgment(outcome=outcome, cause=because, evidence=last.plain(), by=last.by)
    if there is not None and there.cause != SUSPECTED_CAUSE:
        return there == judged  # written by us, and only the answer was lost
    run.store.write(key, run.pack(judged, key))
    how = "was told to stop" if end is not None else "left no end"
    run.say(f"attempt {number} {how}; {last.by} says why: {outcome}: {because}")
    return True


def _record_suspicion(run: RunRecords, number: int, owner: str) -> bool:
    """Judge a lost attempt as out of memory when its last usage suggests it; whether that judgment stands."""
    try:
        seen = run.read(Usage, run.memory_key(number, owner))
    except (Corrupt, UnknownFormat):
        return False
    if seen is None or seen.share < SUSPICIOUS_SHARE:
        return False
    if (there := _judgment(run, run.judged_key(number, owner))) is not None:
        return bool(there.cause == SUSPECTED_CAUSE)
    try:
        if run.read(End, run.end_key(number, owner)) is not None:
            return False
    except Corrupt:
        if run.keys is None:
            return False
    evidence = {"used": seen.used, "limit": seen.limit, "time": seen.time[:64]}
    judged = Judgment(outcome=OUT_OF_MEMORY, cause=SUSPECTED_CAUSE, evidence=evidence, by="gpuflow-run")
    key = run.judged_key(number, owner)
    # Created, not written: the word of an engine that comes at the same time stays.
    if not run.create(key, run.pack(judged, key)):
        return False
    run.say(
        f"attempt {number} left no end, and used {seen.share:.0%} of its memory limit when it was last seen: "
        "suspected out of memory, which counts as a failure"
    )
    return True


def _judgment(run: RunRecords, key: str) -> Judgment | None:
    try:
        found = run.read(Judgment, key)
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
    if (text := _text(value)) is None:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} is no number: {text[:80]!r}") from None
