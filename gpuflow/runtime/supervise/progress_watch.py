"""What a program says of its progress, handed on: to the log, and to a file for whoever started the supervisor.

Nothing of the supervisor depends on it. A thread looks at the program's file once a second; lines of the log come
seldom, and one more at the program's end.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from gpuflow.runtime.base import files, progress
from gpuflow.runtime.base.child import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.base.attempt_folder import AttemptFolder
    from gpuflow.runtime.base.progress import Progress

LOOK = 1.0


class ProgressWatch:
    """The progress of one run of the command, from now on: read in its attempt's folder, written to `file`."""

    def __init__(self, folder: AttemptFolder | None, file: str | None) -> None:
        self._path, self._file, self._began = "" if folder is None else folder.progress, file, time.monotonic()
        self._say_at = self._began + progress.pause(0.0)
        self._seen: tuple[int, ...] = ()
        self._first: tuple[float, Progress] | None = None  # what the rate is counted from
        self._last: Progress | None = None
        self._said: Progress | None = None
        self._has_remarked = False
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
        with contextlib.suppress(RuntimeError):  # there is no thread to be had
            self._thread.start()

    def end(self) -> None:
        """The command has ended: one last look, for which nobody waits long."""
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(LOOK / 2)

    def _run(self) -> None:
        while not self._over.wait(LOOK):
            self.look(time.monotonic())
        self.look(time.monotonic(), last=True)

    def look(self, moment: float, *, last: bool = False) -> None:
        """See what is new, and hand it on if it is time to."""
        if (found := self._read()) is not None and (self._last is None or found[:3] != self._last[:3]):
            self._last = self._with_end(found, moment)
            try:
                if self._file is not None:
                    files.write(self._file, progress.pack(self._last))
            except OSError as refusal:
                self._remark(f"progress cannot be written to {self._file}: {refusal.strerror}")
                self._file = None
        if self._last is not None and self._last != self._said and (last or moment >= self._say_at):
            self._said, self._say_at = self._last, moment + progress.pause(moment - self._began)
            say(f"progress {self._last._replace(left=None) if last else self._last}")

    def _read(self) -> Progress | None:
        """What the program says, if that is new and can be read."""
        try:
            with files.close_after(files.open_regular(self._path)) as handle:
                status = os.fstat(handle)
                seen = (status.st_ino, status.st_size, status.st_mtime_ns)
                data = b"" if seen == self._seen else os.pread(handle, progress.TAIL, max(0, seen[1] - progress.TAIL))
        except OSError as refusal:
            if not isinstance(refusal, FileNotFoundError):
                self._remark(f"${progress.VARIABLE} cannot be read: {refusal.strerror}")
            return None
        self._seen, whole = seen, data[: data.rfind(b"\n") + 1] or data  # the only line of a file needs no end
        line = whole.decode("utf-8", "replace").rstrip("\n").rpartition("\n")[2]
        if (found := progress.parse(line)) is None and line:
            self._remark(f"${progress.VARIABLE} is left out where it is no line like 120/1000: {line[:80]}")
        return found

    def _with_end(self, found: Progress, moment: float) -> Progress:
        """With the expected end: by the rate since the first one, or since the program began to count anew."""
        if self._first is None or found.total != self._first[1].total or found.step <= self._first[1].step:
            self._first = moment, found
            return found
        since, first = self._first
        return found._replace(left=round((moment - since) / (found.step - first.step) * (found.total - found.step)))

    def _remark(self, sentence: str) -> None:
        if not self._has_remarked:
            self._has_remarked = True
            say(sentence)
