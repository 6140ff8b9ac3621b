"""Told to stop while we wait for an object of the cluster: for the commands that create one."""

from __future__ import annotations

import signal

from gpuflow.runtime import signals

_STOPS = (signal.SIGTERM, signal.SIGINT)


class Stopped(BaseException):
    """We were told to stop. Raised wherever the main thread stands, so that nothing is waited for."""


def listen() -> None:
    """From now on a stop signal raises `Stopped`, once; also one that came while we were loading."""
    for number in _STOPS:
        signal.signal(number, _stop)
    signals.release()


def _stop(*_: object) -> None:
    for number in _STOPS:
        signal.signal(number, signal.SIG_IGN)
    raise Stopped
