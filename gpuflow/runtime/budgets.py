"""The retry budgets: failures and interruptions apart, or one for both."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.history import Counts
    from gpuflow.runtime.options import Options

BUDGETS = ("failures", "interruptions", "retries")


def spent(options: Options, used: Counts, before: Counts | None = None) -> str | None:
    """Why no further attempt may run, or None. With `before`, only a budget that has been used since then ends it."""
    for budget in BUDGETS:
        most, now = getattr(options, budget), _of(used, budget)
        if most is not None and now > most and (before is None or now > _of(before, budget)):
            if before is not None:
                return f"the budget of {most} {budget} is spent"
            ended = "failures and interruptions" if budget == "retries" else budget
            return f"{now} {ended} so far; the budget of {most}{' retries' if budget == 'retries' else ''} is spent"
    return None


def could_be_a_failure(options: Options, before: Counts) -> bool:
    """Whether one interruption too many may turn out to be a failure that is still allowed.

    Who is told to stop cannot know why: perhaps for a disk limit. The engine tells the next attempt, and that one ends
    the step before its command runs if it was an interruption.
    """
    return options.engine_attempt is not None and options.failures is not None and before.failures < options.failures


def are_counted(options: Options) -> bool:
    """Whether the supervisor is the one who ends a step that fails too often."""
    return options.failures is not None or options.retries is not None


def _of(counts: Counts, budget: str) -> int:
    if budget == "retries":
        return counts.failures + counts.interruptions
    return int(getattr(counts, budget))
