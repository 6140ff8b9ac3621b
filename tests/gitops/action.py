"""Runs action.yml as GitHub's runner does, as far as it goes here: step by step, in bash, with inputs as variables.

What it knows of the expression language is what the action uses: `inputs.x`, `steps.x.outputs.y`, `github.action_path`,
`github.token`, `runner.temp`, and conditions of `!cancelled()`, `==`, `!=` and `&&`. Anything else is an error, so that
the action cannot quietly use more. Of other actions it knows how actions/cache keeps a folder.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import ROOT

ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
INSTALLING = 4
"""So many steps install gpuflow."""
_EXPRESSION = re.compile(r"\$\{\{\s*(.*?)\s*\}\}")


@dataclass(frozen=True)
class Ended:
    """How a run of the action ended: its exit status, its log, the summary page and its outputs."""

    status: int
    log: str
    summary: str
    outputs: dict[str, str]


def run(
    folder: Path,
    temp: Path,
    path: Path,
    given: dict[str, str],
    *,
    installed: bool,
    more: dict[str, str] | None = None,
    kept: Path | None = None,
) -> Ended:
    """Run the action for a repository in `folder`; without what installs gpuflow when it is `installed` in `temp`.

    `more`: variables that the job has besides. `kept`: where GitHub keeps what is cached from run to run.
    """
    unknown = given.keys() - ACTION["inputs"].keys()
    assert not unknown, f"the action has no input {', '.join(sorted(unknown))}"
    values = {"github.action_path": str(path), "github.token": "ghs_token", "runner.temp": str(temp)}
    for name, entry in ACTION["inputs"].items():
        values[f"inputs.{name}"] = given.get(name, _filled(entry.get("default", ""), values))
    files = {name: temp / name.lower() for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY")}
    files["GITHUB_STEP_SUMMARY"].write_text("")
    surroundings = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("GITHUB_", "GPUFLOW_"))},
        **{name: str(file) for name, file in files.items()},
        "RUNNER_TEMP": str(temp),
        **(more or {}),
    }
    status, log = 0, ""
    for step in ACTION["runs"]["steps"][INSTALLING if installed else 0 :]:
        condition = step.get("if", "")
        if not _holds(condition, values) or (status and "!cancelled()" not in condition):
            continue
        files["GITHUB_OUTPUT"].write_text("")
        if "uses" in step:
            _cache(step, values, kept, files["GITHUB_OUTPUT"])
        else:
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
        for line in files["GITHUB_OUTPUT"].read_text().splitlines():
            name, value = line.split("=", 1)
            values[f"steps.{step['id']}.outputs.{name}"] = value
    outputs = {name: _filled(entry["value"], values) for name, entry in ACTION["outputs"].items()}
    told = {name: value for name, value in outputs.items() if value}
    return Ended(status, log, files["GITHUB_STEP_SUMMARY"].read_text(), told)


def _cache(step: dict[str, Any], values: dict[str, str], kept: Path | None, outputs: Path) -> None:
    """What actions/cache/restore and actions/cache/save do, with a folder for GitHub's store."""
    given = {name: _filled(text, values) for name, text in step["with"].items()}
    folder, key = Path(given["path"]), given["key"]
    assert re.fullmatch(r"[\w.-]+", key) and set(given) == {"path", "key"}
    action = step["uses"].partition("@")[0]
    if kept is None:
        return
    if action == "actions/cache/restore" and (kept / key).is_dir():
        shutil.copytree(kept / key, folder, dirs_exist_ok=True)
        outputs.write_text("cache-hit=true\n")
    elif action == "actions/cache/save" and not (kept / key).exists():
        shutil.copytree(folder, kept / key)


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
    """Text with its expressions filled in; an output that no step has written is empty, as it is for the runner."""
    return _EXPRESSION.sub(lambda found: _value(found[1], values), text)


def _value(name: str, values: dict[str, str]) -> str:
    return values.get(name, "") if re.fullmatch(r"steps\.\w+\.outputs\.[\w-]+", name) else values[name]


def _holds(condition: str, values: dict[str, str]) -> bool:
    found = _EXPRESSION.fullmatch(condition)
    for part in found[1].split(" && ") if found else ():
        if part == "!cancelled()":
            continue
        compared = re.fullmatch(r"(\S+) (==|!=) '([^']*)'", part)
        assert compared, f"the runner of these tests does not know {part}"
        if (_value(compared[1], values) == compared[3]) != (compared[2] == "=="):
            return False
    return True
