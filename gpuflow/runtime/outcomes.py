"""The eight outcomes and the supervisor's exit codes; apart from the table, which starting a command need not load."""

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
