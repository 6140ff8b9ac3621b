"""`gpuflow-run probe`: is the program alive? Healthy while a recent checkpoint or sign of life exists.

Kubernetes runs it in the container with the container's environment, so the directory comes from `--checkpoint-dir`
or `GPUFLOW_RUN_CHECKPOINT_DIR`. `--ready` only asks whether the program was started.
"""

from __future__ import annotations

import os
import sys
import time

from gpuflow.runtime.base import options as table
from gpuflow.runtime.base import units
from gpuflow.runtime.base.attempt_folder import AttemptFolder, identity_of
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.state.checkpoint_dir import HIDDEN_FOLDER, load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_LEAST = 600.0


def main(words: Sequence[str], environ: Mapping[str, str]) -> int:
    """0 when healthy, 1 when not, 78 when it cannot be asked."""
    ready = "--ready" in words
    rest, age = [word for word in words if word != "--ready"], None
    try:
        for index, word in enumerate(rest):
            if word.partition("=")[0] == "--max-age":
                length = 1 if "=" in word else 2
                age = units.seconds(word.partition("=")[2] if length == 1 else "".join(rest[index + 1 : index + 2]))
                del rest[index : index + length]
                break
        options = table.parse(rest, environ)
        if not options.checkpoint_dir:
            raise table.BadOption("probe needs --checkpoint-dir")
    except (table.BadOption, ValueError) as refusal:
        print(f"gpuflow-run: {refusal}", file=sys.stderr)
        return 78
    directory = options.checkpoint_dir
    if options.own_folder:
        base = table.identity_of_options(options)
        directory = os.path.join(directory, identity_of(base))
    healthy, sentence = judge(directory, age, ready=ready, now=time.time(), moment=time.monotonic())
    print(f"gpuflow-run: {sentence}")
    return 0 if healthy else 1


def judge(directory: str, max_age: float | None, *, ready: bool, now: float, moment: float) -> tuple[bool, str]:
    """Whether the program in a directory is healthy, and why. Without an age: three intervals, at least ten minutes.
    Signs of life carry their moment on the clock that nobody sets; the times of files are compared with `now`."""
    directory = os.path.abspath(directory)
    hidden = os.path.join(directory, HIDDEN_FOLDER)
    if not os.path.exists(os.path.join(hidden, "owner.json")):
        return False, f"nothing was started in {directory} yet"
    if ready:
        return True, "started"
    shared = SharedFolder(directory)
    owner = load(shared, os.path.join(HIDDEN_FOLDER, "owner.json")) or {}
    own = os.path.join(hidden, os.path.basename(str(owner.get("identity"))))
    folder = AttemptFolder(os.path.join(own, os.path.basename(str(owner.get("id")))), shared)
    ages = [
        (now - _modified_at(os.path.join(hidden, "owner.json")), "start"),
        (now - _modified_at(os.path.join(own, "finished")), "checkpoint"),
    ]
    beat = folder.last_beat()
    # A moment that is still to come is of another boot.
    if beat is not None and beat <= moment:
        ages.append((moment - beat, "sign of life"))
    newest, what = min(ages)
    limit = max_age if max_age is not None else max(_LEAST, 3 * (folder.read_interval() or 0.0))
    age = max(0.0, newest)
    return (
        age <= limit,
        f"the last {what} is {units.format_seconds(age)} old; {units.format_seconds(limit)} are allowed",
    )


def _modified_at(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
