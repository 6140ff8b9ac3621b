"""The signals the supervisor holds back. They are blocked, not caught: nothing is lost, also as process 1.

Loaded before anything else: what comes while the rest is loading waits, and is heard before the command would run.
"""

from __future__ import annotations

# The builtin behind `signal`, which takes milliseconds to load: long enough to lose a SIGTERM.
import _signal  # type: ignore[import-not-found]  # has no stubs of its own

STOPS = (_signal.SIGTERM, _signal.SIGINT)
WAKE: int = _signal.SIGRTMIN + 6
"""Ends the main thread's wait, from another thread."""
FORWARDED_SIGNALS = (
    _signal.SIGHUP,
    _signal.SIGQUIT,
    _signal.SIGUSR1,
    _signal.SIGUSR2,
    _signal.SIGALRM,
    _signal.SIGWINCH,
    _signal.SIGCONT,
)
BLOCKED_SIGNALS = frozenset({*STOPS, *FORWARDED_SIGNALS, _signal.SIGCHLD, WAKE})


def hold() -> None:
    """Before any thread starts: threads inherit the mask."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, BLOCKED_SIGNALS)


def release() -> None:
    """For the small commands, which Ctrl-C should end."""
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, BLOCKED_SIGNALS)


def stop_is_pending() -> bool:
    """Whether a stop signal is pending."""
    return any(number in _signal.sigpending() for number in STOPS)
