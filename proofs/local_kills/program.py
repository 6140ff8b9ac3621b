"""`python -I -S program.py NAME SPEC WORD… [-- PATH…]`: the program of every step, whose results follow from its input.

It holds a lock while it runs, and says in `$KILLS_PLACE/twice` when another one of its kind does. It writes into
`$KILLS_PLACE/journal` when it begins, where it resumes from, and when it is done. Its state is a chain of hashes, so a
checkpoint that is not its own, or of another step, is seen when it resumes.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

PLACE = Path(os.environ.get("KILLS_PLACE", "."))
TICK = 0.025
LONG = 600


def digest(*words: str) -> str:
    return hashlib.sha256("\0".join(words).encode()).hexdigest()


def state_after(seed: str, steps: int) -> str:
    """The state of the work after so many steps."""
    for step in range(steps):
        seed = digest(seed, str(step))
    return seed


def hash_tree(path: Path) -> str:
    """The names and bytes below a path."""
    files = [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())
    return digest(*(f"{each.relative_to(path)} {hashlib.sha256(each.read_bytes()).hexdigest()}" for each in files))


def tell(file: str, *words: object) -> None:
    """One line, whole whoever else writes."""
    handle = os.open(PLACE / file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.write(handle, (" ".join(map(str, words)) + "\n").encode())
    os.close(handle)


def key() -> str:
    """The key of this step or copy in its run; of a rank above 0 with its number."""
    words = os.environ["GPUFLOW_LOCAL"].partition("/runs/")[2].split("/")[1:]
    rank = os.environ.get("GPUFLOW_RANK")
    if rank is None:
        return "/".join(words[:-1])
    return "/".join(words[:-2]) + (f"#{rank}" if rank != "0" else "")


def take_lock(name: str) -> int:
    """Hold what only one program of this name and these words may hold; what it starts holds it too."""
    (PLACE / "locks").mkdir(exist_ok=True)
    handle = os.open(PLACE / "locks" / name, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        tell("twice", key(), os.environ["GPUFLOW_LOCAL"], "began while another one ran")
    return handle


class Work:
    """So many steps, saved now and then."""

    def __init__(self, seed: str, spec: dict[str, Any]) -> None:
        self.seed, self.spec, self.step, self.state, self.is_told = seed, spec, 0, seed, False
        self.folder = os.environ.get("GPUFLOW_CHECKPOINT_DIR") if spec["save"] else None

    def resume(self) -> None:
        where = os.environ.get("GPUFLOW_RESUME_FROM")
        if self.folder is None or where is None:
            return
        said = json.loads(Path(where, "state").read_text())
        self.step, self.state = said["step"], said["state"]
        tell("journal", "from", key(), self.step)
        if said["seed"] != self.seed or self.state != state_after(self.seed, self.step):
            tell("corrupt", key(), f"resumed from {said}, and its seed is {self.seed}")

    def save(self) -> None:
        if self.folder is None:
            return
        part = Path(self.folder, f".part-{self.step}-{os.getpid()}")
        part.mkdir()
        said = {"seed": self.seed, "step": self.step, "of": self.spec["ticks"], "state": self.state}
        (part / "state").write_text(json.dumps(said))
        try:
            part.rename(Path(self.folder, f"step-{self.step:04}"))
        except OSError:  # an earlier attempt has saved this step here
            (part / "state").unlink()
            part.rmdir()

    def run(self) -> None:
        while self.step < self.spec["ticks"]:
            time.sleep(TICK)
            self.state = digest(self.state, str(self.step))
            self.step += 1
            if self.spec["save"] and self.step % self.spec["save"] == 0:
                self.save()
            if self.is_told:
                if self.spec["on_term"] == "save":
                    self.save()
                sys.exit(0 if self.spec["on_term"] == "zero" else 3)
        self.save()


def write_outputs(outputs: dict[str, str], state: str) -> None:
    folder, number = Path(os.environ["GPUFLOW_OUTPUTS"]), int(state[:12], 16)
    for name, kind in outputs.items():
        here = folder / name
        if kind == "file":
            here.write_text(state * (1 + number % 50))
        elif kind == "directory":
            (here / "inner").mkdir(parents=True, exist_ok=True)
            (here / "inner" / "state").write_text(state)
            (here / "number").write_text(str(number))
        else:
            text = {
                "int": str(number % 1000),
                "float": str(number % 1000 / 8),
                "bool": "true" if number % 2 else "false",
                "string": f"{state[:8]} $x 'y'",
                "json": json.dumps(sorted({number % 3, 3 + number % 5, 9})[: number % 4]),
            }
            here.write_text(text[kind])


def main(name: str, spec_text: str, *words: str) -> None:
    spec = json.loads(spec_text)
    given, paths = words, tuple[str, ...]()
    if "--" in words:
        at = words.index("--")
        given, paths = words[:at], words[at + 1 :]
    identity = digest(name, *given)[:16]
    work = Work(digest(name, *given, *(hash_tree(Path(path)) for path in paths)), spec)
    if spec["on_term"] == "ignore":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    elif spec["on_term"] != "die":
        signal.signal(signal.SIGTERM, lambda *_: setattr(work, "is_told", True))
    lock = take_lock(f"{name}-{identity}-{os.environ.get('GPUFLOW_RANK', '')}")
    tell("journal", "begin", key(), os.environ.get("GPUFLOW_ATTEMPT"), os.getpid())
    helper = None
    if spec["helper"]:  # a process in a session of its own, which must not outlive the attempt
        helper = subprocess.Popen(["sleep", str(LONG)], pass_fds=[lock], start_new_session=True)
    failed = PLACE / f"failed-{name}-{identity}"
    if spec["fails"] == "always" or (spec["fails"] == "once" and not failed.exists()):
        time.sleep(TICK)
        failed.touch()
        if helper is not None:
            helper.kill()
            helper.wait()
        sys.exit(7)
    work.resume()
    work.run()
    if helper is not None:
        helper.kill()
        helper.wait()
    write_outputs(spec["outputs"], work.state)
    tell("journal", "done", key(), os.environ.get("GPUFLOW_ATTEMPT"))


if __name__ == "__main__":
    main(*sys.argv[1:])
