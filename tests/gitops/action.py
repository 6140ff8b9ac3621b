"""Runs action.yml as GitHub's runner does, as far as it goes here: step by step, in bash, with inputs as variables.

What it knows of the expression language is what the action uses: `inputs.x`, `github.action_path`, `runner.temp` and
the condition `!cancelled()`. Anything else is an error, so that the action cannot quietly use more.
"""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass(frozen=True)
class Ended:
    """How a run of the action ended: its exit status, its log, the summary page and its outputs."""

    status: int
    log: str
    summary: str
    outputs: dict[str, str]


def run(
    folder: Path, temp: Path, path: Path, given: dict[str, str], *, installed: bool, more: dict[str, str] | None = None
) -> Ended:
    """Run the action for a repository in `folder`; without its first step when gpuflow is `installed` in `temp`.

    `more`: variables that the job has besides.
    """
    unknown = given.keys() - ACTION["inputs"].keys()
    assert not unknown, f"the action has no input {', '.join(sorted(unknown))}"
    inputs = {name: given.get(name, entry.get("default", "")) for name, entry in ACTION["inputs"].items()}
    values = {f"inputs.{name}": value for name, value in inputs.items()}
    values |= {"github.action_path": str(path), "runner.temp": str(temp)}
    files = {name: temp / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    for file in files.values():
        file.write_text("")
    surroundings = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "GPUFLOW_"))},
        **{name: str(file) for name, file in files.items()},
        "RUNNER_TEMP": str(temp),
        **(more or {}),
    }
    status, log = 0, ""
    for step in ACTION["runs"]["steps"][1:] if installed else ACTION["runs"]["steps"]:
        if status and step.get("if") != "${{ !cancelled() }}":
            continue
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=folder / _filled(step.get("working-directory", "."), values),
            env={**surroundings, **{name: _filled(text, values) for name, text in step.get("env", {}).items()}},
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        status, log = status or done.returncode, log + done.stdout
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return Ended(status, log, files["GITHUB_STEP_SUMMARY"].read_text(), outputs)


def commands(log: str) -> list[str]:
    """The lines that the runner takes for commands: trimmed, from `::` on, unless a token has stopped it."""
    found, token = [], None
    for line in log.splitlines():
        word = line.strip()
        if token is not None:
            token = None if word == f"::{token}::" else token
        elif word.startswith("::stop-commands::"):
            token = word.removeprefix("::stop-commands::")
        elif word.startswith("::") or "##[" in word:
            found.append(word)
    assert token is None, "the runner would take no command for the rest of the job"
    return found


def _filled(text: str, values: dict[str, str]) -> str:
    return _EXPRESSION.sub(lambda found: values[found[1]], text)
