"""The eight outcomes of an attempt, the supervisor's exit codes, and the exit code that an ending gets.

The table that finds an outcome in what Kubernetes says is in `evidence`: a command starts without it.
"""

from __future__ import annotations

SUCCEEDED = "succeeded"
RETRYABLE = "failed (retryable)"
FINAL = "failed (final)"
INTERRUPTED = "interrupted"
OUT_OF_MEMORY = "out of memory"
TIMED_OUT = "timed out"
DISK_LIMIT = "disk limit"
NEVER_STARTED = "never started"
OUTCOMES = (SUCCEEDED, RETRYABLE, FINAL, INTERRUPTED, OUT_OF_MEMORY, TIMED_OUT, DISK_LIMIT, NEVER_STARTED)
"""Records in stores hold these words: one that was ever written stays in the table."""

EXIT_INTERRUPTED = 75
EXIT_RUNTIME = 78
EXIT_FINAL = 79
SUPERVISOR_EXIT_CODES = {
    EXIT_INTERRUPTED: "interrupted: start it again, it costs an interruption",
    EXIT_RUNTIME: "the runtime itself could not work: bad configuration, or no storage at the start",
    EXIT_FINAL: "final: do not start it again",
}
"""Exit codes that belong to gpuflow's supervisor. A command that ends with one of them is reported as 1."""
EXIT_TIMED_OUT = 124
"""After `--timeout`, whatever the command's own code was. A command may also end with it by itself."""


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
