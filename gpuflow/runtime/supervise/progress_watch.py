"""What a program says of its progress, handed on: to the log, to a file for the engine, to Kubeflow Trainer.

Nothing of the supervisor depends on it. A thread looks at the program's file once a second. Lines of the log come
seldom (`base.progress.pause`), and one more when the program has ended. Argo's executor reads the last line of
`$ARGO_PROGRESS_FILE` every three seconds and tells it to the controller once a minute, by default.

A pod of a TrainJob has `$KUBEFLOW_TRAINER_SERVER_URL` where Kubeflow Trainer was started with the feature gate
`TrainJobStatus` (KEP-2779): rank 0 then tells it what becomes the object's `status.trainerStatus`.
"""

from __future__ import annotations

import os
import threading
import time

from gpuflow.runtime.base import attempt_folder, files, progress, units
from gpuflow.runtime.base.child import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuflow.runtime.base.progress import Progress

LOOK = 1.0
TRAINER = "KUBEFLOW_TRAINER_SERVER_"
_POST_TIMEOUT = 5.0
_MOST_METRICS, _LONGEST_METRIC, _LONGEST_LEFT = 20, 64, 2**31 - 1
"""What Kubeflow Trainer takes."""


class ProgressWatch:
    """The progress of one run of the command."""

    def __init__(
        self, folder: attempt_folder.AttemptFolder | None, file: str | None, environ: Mapping[str, str]
    ) -> None:
        """`file`: where it is written for whoever started this supervisor."""
        self._folder, self._file, self._environ = folder, file or environ.get(progress.ARGO), environ
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._began = self._first_moment = time.monotonic()
        self._say_at = self._began + progress.pause(0.0)
        self._seen: tuple[int, ...] = ()
        self._first: Progress | None = None
        """What the rate is counted from."""
        self._last: Progress | None = None
        self._said: Progress | None = None
        self._remarks: set[str] = set()

    def begin(self) -> None:
        """Watch from now on."""
        if self._folder is None:
            return
        try:
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()
        except RuntimeError as refusal:
            self._thread = None
            self._remark(f"progress is not watched: {refusal}")

    def end(self) -> None:
        """The command has ended: one last look, for which nobody waits long."""
        self._over.set()
        if self._thread is not None:
            self._thread.join(LOOK / 2)

    def _run(self) -> None:
        while not self._over.wait(LOOK):
            self.look(time.monotonic())
        self.look(time.monotonic(), last=True)

    def look(self, moment: float, *, last: bool = False) -> None:
        """See what is new, and hand it on if it is time to."""
        if (found := self._read()) is not None and (self._last is None or found[:3] != self._last[:3]):
            self._last = self._with_end(found, moment)
            if self._file is not None:
                self._write(self._file, self._last)
        if (known := self._last) is not None and known != self._said and (last or moment >= self._say_at):
            self._said = known
            self._say_at = moment + progress.pause(moment - self._began)
            say(f"progress {known._replace(left=None) if last else known}")
            self._tell_trainer(known)

    def _read(self) -> Progress | None:
        """What the program says, if that is new and can be read."""
        assert self._folder is not None
        try:
            with files.close_after(self._folder.open_progress()) as handle:
                status = os.fstat(handle)
                seen = (status.st_ino, status.st_size, status.st_mtime_ns)
                data = b"" if seen == self._seen else os.pread(handle, progress.TAIL, max(0, seen[1] - progress.TAIL))
        except FileNotFoundError:
            return None
        except OSError as refusal:
            self._remark(f"${progress.VARIABLE} cannot be read: {refusal.strerror}")
            return None
        self._seen = seen
        line = progress.last_line(data)
        if (found := progress.parse(line)) is None and line:
            self._remark(f"${progress.VARIABLE} is left out where it is no line like 120/1000: {line[:80]}")
        return found

    def _with_end(self, found: Progress, moment: float) -> Progress:
        """With the expected end: by the rate since the first one, or since the program began to count anew."""
        first = self._first
        if first is None or self._last is None or found.total != first.total or found.step < self._last.step:
            self._first, self._first_moment = found, moment
            return found
        if found.step == first.step:
            return found
        took = (moment - self._first_moment) / (found.step - first.step)
        return found._replace(left=min(round(took * (found.total - found.step)), _LONGEST_LEFT))

    def _write(self, path: str, found: Progress) -> None:
        try:
            files.write(path, progress.pack(found))
        except OSError as refusal:
            self._file = None
            self._remark(f"progress is not told to the engine: {path} cannot be written: {refusal.strerror}")

    def _remark(self, sentence: str) -> None:
        """Once of each kind."""
        kind = sentence.partition(":")[0]
        if kind not in self._remarks:
            self._remarks.add(kind)
            say(sentence)

    def _tell_trainer(self, found: Progress) -> None:
        url = self._environ.get(f"{TRAINER}URL", "")
        if url.startswith("https://") and self._environ.get("GPUFLOW_RANK", "0") == "0":
            try:
                _post(url, self._environ, found)
            except Exception as failure:  # it may be down, or not want to know: the next line tries again
                self._remark(f"Kubeflow Trainer is not told of the progress: {units.one_line(str(failure))[:200]}")


def _post(url: str, environ: Mapping[str, str], found: Progress) -> None:
    import json
    import ssl
    import urllib.request

    from gpuflow.runtime.state.attempts import utc_now

    metrics = [(name[:_LONGEST_METRIC], value[:_LONGEST_METRIC]) for name, value in found.metrics.items()]
    status = {
        "progressPercentage": 100 * found.step // found.total,
        "metrics": [{"name": name, "value": value} for name, value in metrics[:_MOST_METRICS]],
        "lastUpdatedTime": utc_now(),
        **({} if found.left is None else {"estimatedRemainingSeconds": found.left}),
    }
    request = urllib.request.Request(url, json.dumps({"trainerStatus": status}).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    with open(environ[f"{TRAINER}TOKEN"], encoding="ascii") as file:  # renewed while the pod runs
        request.add_unredirected_header("Authorization", f"Bearer {file.read().strip()}")
    trust = ssl.create_default_context(cafile=environ.get(f"{TRAINER}CA_CERT"))
    with urllib.request.urlopen(request, timeout=_POST_TIMEOUT, context=trust):
        pass
