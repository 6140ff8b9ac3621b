"""A guide that is run: its files are written, its commands run in order, and what they print stands in it.

    ```yaml site.yaml        a file with this content
    ```console               commands after `$ `, each with what it prints; a line `...` stands for any lines
    ```console kubectl       the same, where kubectl is at hand

Every other block is only read.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@dataclass
class Shell:
    """Runs one command after the other; the working directory and `$?` go from one to the next."""

    folder: Path
    env: dict[str, str]
    status: int = field(default=0, init=False)

    def run(self, command: str) -> str:
        """Run one command; what it prints on both streams."""
        place = Path(self.env["HOME"]) / "place"
        script = f"(exit {self.status})\n{command}\nstatus=$?; pwd > '{place}'; exit $status"
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-c", script],
            cwd=self.folder,
            env=self.env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        self.status, self.folder = done.returncode, Path(place.read_text().strip())
        return done.stdout


def told_again(guide: str, shell: Shell, kinds: set[str | None]) -> str:
    """The guide with what its commands print now; what still matches is left as it is written."""

    def again(block: re.Match[str]) -> str:
        language, label, body = block.groups()
        if language == "console":
            if label not in kinds:
                return block[0]
            head = block[0].split("\n", 1)[0]
            return f"{head}\n{''.join(_commands(body, shell))}```"
        if label is not None:
            path = shell.folder / label
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
        return block[0]

    return _BLOCK.sub(again, guide)


def _commands(body: str, shell: Shell) -> Iterator[str]:
    for command, expected in _COMMAND.findall(body):
        printed = steady("".join(f"{line.rstrip()}\n" for line in shell.run(command).rstrip().splitlines()))
        yield f"$ {command}\n{expected if matches(printed, expected) else printed}"


def steady(printed: str) -> str:
    """Without the digest of the supervisor, which changes with every line of it."""
    named = re.sub(r"gpuflow-runtime-[0-9a-f]{8}\b", "gpuflow-runtime-1a2b3c4d", printed)
    return re.sub(r"sha256:[0-9a-f]{64}\b", "sha256:1a2b3c4d…", named)


def matches(printed: str, expected: str) -> bool:
    """Whether this was expected: line by line, where `...` stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line == "...\n" else re.escape(line) for line in expected.splitlines(keepends=True)
    )
    return re.fullmatch(pattern, printed) is not None
