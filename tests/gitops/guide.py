"""A guide that is run: its files are written, its commands run in order, and what they print stands in it.

    ```yaml site.yaml        a file with this content
    ```console               commands after `$ `, each with what it prints; a line `...` stands for any lines
    ```console argo          the same, where the page is run for that engine
    ```console timing        the same, but what is said before the end depends on how fast the machine is
    ```console kubectl       the same, where kubectl is at hand
    ```console cluster       for a cluster: only read

A command goes on after a backslash at the end of its line, and in lines that begin with `> `. Every other block is
only read.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

BLOCK = re.compile(r"^```(\w*)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\$ ((?:.*\\\n)*.*(?:\n> .*)*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)


@dataclass
class Shell:
    """Runs one command after the other; the working directory, variables and `$?` go from one to the next."""

    folder: Path
    env: dict[str, str]
    status: int = field(default=0, init=False)

    def run(self, command: str) -> str:
        """Run one command; what it prints on both streams."""
        place, kept = Path(self.env["HOME"]) / "place", Path(self.env["HOME"]) / "variables"
        before = f"[ ! -e '{kept}' ] || . '{kept}'; set -a; (exit {self.status})"
        script = f"{before}\n{command}\nstatus=$?; pwd > '{place}'; export -p > '{kept}'; exit $status"
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
            return f"{head}\n{''.join(_commands(body, shell, timing=label == 'timing'))}```"
        if label is not None:
            path = shell.folder / label
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body, encoding="utf-8")
        return block[0]

    return BLOCK.sub(again, guide)


def _commands(body: str, shell: Shell, *, timing: bool) -> Iterator[str]:
    for command, expected in COMMAND.findall(body):
        printed = shell.run(re.sub("^> ", "", command, flags=re.MULTILINE))
        printed = steady("".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines()))
        if shell.status and {"...\n", ""} & {*expected.splitlines(keepends=True), expected}:
            printed += f"(exit code {shell.status})\n"  # dots stand for what was printed, not for a failure
            timing, expected = False, ""
        same = _ends(printed) == _ends(expected) if timing else matches(printed, expected)
        yield f"$ {command}\n{expected if same else printed}"


def _ends(text: str) -> list[str]:
    """How programs ended, and their results."""
    return re.findall(r"^(?:exit \d+|done: .*)$", text, re.MULTILINE)


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
