"""The program under supervision: so many steps, a checkpoint after each, an output at the end.

It keeps to the documented pattern: told to stop, it saves and leaves with 0. It checks what it resumes from as only
the explorer can: every save ever made is known.
"""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

from proofs.supervisor.world import Mover, Point

if TYPE_CHECKING:
    from proofs.supervisor.process import Process

STEP_SECONDS = 20.0
FAILS = ("program", "the program ends with 1")
CARELESS = ("program", "the program ends with 0 and writes no output")
DEAF = ("program", "the program goes on though it is told to stop")


class Save:
    """One checkpoint that a program wrote: by whom, in which run, how far, and where its history began."""

    def __init__(self, token: str, identity: str, step: int, attempt: str, root: str) -> None:
        self.token, self.identity, self.step, self.attempt, self.root = token, identity, step, attempt, root


class Program(Mover):
    """A fake process. `told` is set by a signal; the stop file is looked for at each step."""

    def __init__(self, process: Process, environ: dict[str, str], steps: int) -> None:
        super().__init__(process.world, process, f"{process.name}.program")
        self.environ, self.steps, self.pid = environ, steps, 100_000 + process.world.number()
        self.directory = environ["GPUFLOW_CHECKPOINT_DIR"]
        self.code: int | None = None
        self.told = self.deaf = self.finished = False
        self.output: str | None = None
        self.resumed: Save | None = None
        self.saved: Save | None = None
        """The last one."""
        self.step = 0
        self.root = process.attempt_id
        self._began = self._load()
        self._rest()

    def _load(self) -> bool:
        path = self.environ.get("GPUFLOW_RESUME_FROM")
        if not path:
            return True
        problem, save = read(self.world, path)
        if problem or save is None:
            self.world.violated(f"{self.name} was given a checkpoint that is not whole: {problem}")
        elif save.identity != self.process.identity:
            self.world.violated(f"{self.name} was given a checkpoint of {save.identity}: step {save.step}")
        else:
            self.resumed, self.step, self.root = save, save.step, save.root
        return True

    def _rest(self) -> None:
        """The next action, and when."""
        world = self.world
        wake = world.now + STEP_SECONDS
        self.point = Point(
            "step" if self.step < self.steps else "end",
            variants=(FAILS,) if self.step < self.steps else (FAILS, CARELESS),
            changes=True,
            hears=True,
            ready=lambda: self.told and not self.deaf,
            wake_at=wake if self.step < self.steps else world.now,
        )

    def act(self, variant: str) -> None:
        if variant == DEAF[1]:
            self.deaf = True
            self._rest()
        elif variant == FAILS[1]:
            if self.step >= self.steps:
                self._write_output()
            self._exit(1)
        elif self._asked_to_stop():
            if self.point.label != "stop":
                self.point = Point("stop", variants=(FAILS, DEAF), changes=True, hears=True)
                return
            # `if interrupted: break`, and then what stands after the loop: an output of unfinished work.
            self._save()
            self._write_output()
            self._note()
            self._exit(0)
        elif self.step >= self.steps:
            self.finished = True
            if variant != CARELESS[1]:
                self._write_output()
            self._exit(0)
        else:
            self.step += 1
            self._save()
            self._rest()

    def signal(self, number: int) -> None:
        if self.over:
            return
        if number == signal.SIGKILL:
            self._exit(137)
        elif number == signal.SIGTERM:
            self.told = True

    def _asked_to_stop(self) -> bool:
        return not self.deaf and (self.told or os.path.exists(self.stop_file))

    @property
    def stop_file(self) -> str:
        return self.environ.get("GPUFLOW_STOP") or os.path.join(self.directory, ".gpuflow", "stop")

    def _note(self) -> None:
        """What the Python API leaves when the program leaves early."""
        if "GPUFLOW_STOP" in self.environ:
            folder = os.path.dirname(self.stop_file)
            if os.path.isdir(folder):
                with open(os.path.join(folder, "stopped"), "w", encoding="ascii"):
                    pass

    def _write_output(self) -> None:
        self.output = f"{self.process.attempt_id}"
        for name in ("result", "model"):
            with open(os.path.join(self.environ["GPUFLOW_OUTPUTS"], name), "w", encoding="utf-8") as file:
                file.write(self.output)

    def _save(self) -> None:
        """A file and a directory in turn, under a dotted name first."""
        if self.step == 0:
            return
        token = f"save-{self.world.number()}"
        save = Save(token, self.process.identity, self.step, self.process.attempt_id, self.root)
        self.process.scene.saves[token] = self.saved = save
        body = json.dumps({"token": token}).encode()
        name = f"step-{self.step:03d}"
        part, target = os.path.join(self.directory, f".{name}.{self.pid}"), os.path.join(self.directory, name)
        if os.path.lexists(target):
            name = f"{name}-{token}"
            target = os.path.join(self.directory, name)
        if self.step % 2:
            with open(part, "wb") as file:
                file.write(body)
        else:
            os.makedirs(part)
            for half in ("a", "b"):
                with open(os.path.join(part, half), "wb") as file:
                    file.write(body)
        os.rename(part, target)
        self.process.scene.renamed(self.directory, name)

    def _exit(self, code: int) -> None:
        self.code, self.over = code, True
        self.world.tell(f"{self.name}: ended with {code}")


def token_of(files: dict[str, bytes]) -> str | None:
    """The save that these files hold, or None when they are not of one piece."""
    if set(files) not in ({""}, {"a", "b"}):
        return None
    bodies = set(files.values())
    try:
        return str(json.loads(bodies.pop())["token"]) if len(bodies) == 1 else None
    except (ValueError, KeyError, TypeError):
        return None


def read(world: Any, path: str) -> tuple[str, Save | None]:
    files = {}
    try:
        if os.path.isdir(path):
            for name in os.listdir(path):
                with open(os.path.join(path, name), "rb") as file:
                    files[name] = file.read()
        else:
            with open(path, "rb") as file:
                files[""] = file.read()
    except OSError as refusal:
        return str(refusal), None
    token = token_of(files)
    save = world.scene.saves.get(token)
    return ("" if save else f"{path} holds {sorted(files)}"), save
