"""How an attempt ended, and the exit code that says so."""

from __future__ import annotations

from gpuflow.runtime.outcomes import (
    EXIT_FINAL,
    EXIT_INTERRUPTED,
    EXIT_TIMED_OUT,
    INTERRUPTED,
    SUCCEEDED,
    SUPERVISOR_EXIT_CODES,
    TIMED_OUT,
)


class Ending:
    """How an attempt ended: an outcome of the evidence table, why, and the command's own exit code.

    `until` is when the grace is over, for an attempt that was told to stop: the last words must be written by then.
    `told` says that it got a stop signal: why, the engine may know.
    """

    def __init__(
        self,
        outcome: str,
        because: str,
        own_code: int | None = None,
        *,
        final: bool = False,
        by_itself: bool = False,
        until: float | None = None,
        told: bool = False,
    ) -> None:
        self.outcome, self.because, self.own_code = outcome, because, own_code
        self.final, self.by_itself, self.until = final, by_itself, until
        self.told = told


def exit_code(ending: Ending, final: bool) -> int:
    """The supervisor's exit code for an ending."""
    if ending.outcome == SUCCEEDED:
        return 0
    if final:
        return EXIT_FINAL
    if ending.outcome == TIMED_OUT:
        # Its own code after SIGTERM says nothing: 143 would read as an interruption, 2 perhaps as final.
        return EXIT_TIMED_OUT
    own = ending.own_code
    if ending.outcome == INTERRUPTED and not (ending.by_itself and own == 143):
        return EXIT_INTERRUPTED
    return 1 if own in (None, 0) or own in SUPERVISOR_EXIT_CODES else own
