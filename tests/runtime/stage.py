"""One attempt of actors (`actors.py`), what they wrote down, and who of them is alive."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

from gpuflow.runtime.base import container
from tests.runtime.harness import eventually, start

ACTORS = Path(__file__).parent / "actors.py"


class Stage:
    """One attempt of actors, what they wrote down, and who of them is alive."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, folder / "log"
        self.log.touch()
        self.token = uuid.uuid4().hex
        self.environ = {"ACTORS_LOG": str(self.log), "ACTORS_TOKEN": self.token}

    def words(self, actor: dict[str, Any]) -> list[str]:
        return [sys.executable, str(ACTORS), json.dumps(actor)]

    def line(self, actor: dict[str, Any]) -> str:
        """For a shell: the actor's part stands in a file, so that nothing needs quotes."""
        path = self.folder / f"{actor['name']}.json"
        path.write_text(json.dumps(actor))
        return f'{sys.executable} {ACTORS} "$(cat {path})"'

    def start(self, names: str, *words: object) -> subprocess.Popen[str]:
        """gpuflow-run, once all these actors are up."""
        process = start(*words, environ=self.environ)
        eventually(lambda: {line.split()[0] for line in self.lines() if " up" in line} >= set(names.split()))
        return process

    def lines(self) -> list[str]:
        return self.log.read_text().splitlines()

    def what(self, name: str) -> list[str]:
        """What an actor wrote down after it was up."""
        return [line.partition(" ")[2] for line in self.lines() if line.startswith(f"{name} ") and " up" not in line]

    def pid(self, name: str) -> int:
        return next(int(line.split()[2]) for line in self.lines() if line.startswith(f"{name} up"))

    def alive(self) -> list[int]:
        token = f"ACTORS_TOKEN={self.token}".encode()
        found = []
        for pid, process in container.all_processes().items():
            try:
                if token in Path(f"/proc/{pid}/environ").read_bytes() and process.lives:
                    found.append(pid)
            except OSError:
                continue
        return found
