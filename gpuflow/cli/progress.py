"""One line on a terminal that says what takes long, while it does."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import TextIO

from gpuflow.core.printable import line

DELAY = 1.0
"""Seconds until anything is shown: what is quick leaves no trace."""
EVERY = 0.5
ERASE = "\r\x1b[K"


@contextmanager
def progress(what: str, stream: TextIO | None = None) -> Iterator[None]:
    """Say `what` and how long it has taken, on standard error, until the block ends; then the line is erased.

    Only where a person watches: nothing is written to a pipe, to a file or in CI.
    """
    out = stream or sys.stderr
    if not out.isatty() or os.environ.get("TERM") == "dumb" or os.environ.get("CI"):
        yield
        return
    ended = Event()
    watcher = Thread(target=_show, args=(line(what), out, ended), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def _show(what: str, out: TextIO, ended: Event) -> None:
    start = monotonic()
    if ended.wait(DELAY):
        return
    while True:
        out.write(f"{ERASE}{what}: {monotonic() - start:.0f} s")
        out.flush()
        if ended.wait(EVERY):
            break
    out.write(ERASE)
    out.flush()
