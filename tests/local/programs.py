"""Pipelines that run here: small documents, and `gpuflow` as a process of its own where signals are sent to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuflow.local import Run, run
from tests.conftest import ROOT

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: toy\ndefaults: {image: registry.example.com/toy:1}\n"
GPUFLOW = [sys.executable, "-m", "gpuflow"]
TRAIN = """
import os, pathlib, signal, sys, time
place, resume = pathlib.Path(os.environ["GPUFLOW_CHECKPOINT_DIR"]), os.environ.get("GPUFLOW_RESUME_FROM")
step, value = map(int, pathlib.Path(resume, "state").read_text().split()) if resume else (0, 1)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
print("from", step, flush=True)

def save():
    part = place / f".part-{step}"
    part.mkdir(parents=True)
    (part / "state").write_text(f"{step} {value}")
    part.rename(place / f"step-{step:04}")

while step < 40:
    time.sleep(0.02)
    step, value = step + 1, (value * 1103515245 + step) % 2**31
    if step % 8 == 0 or stopped:
        save()
    if step == 16:
        pathlib.Path("reached").touch()
        while os.path.exists("hold") and not stopped:
            time.sleep(0.01)
    if stopped:
        sys.exit(3)
pathlib.Path(os.environ["GPUFLOW_OUTPUTS"], "value").write_text(str(value))
"""
"""Saves at every eighth step, stops when it is told to, and waits at the sixteenth while there is a file `hold`."""
VALUE = 150114733
"""What it comes to without an interruption."""
TRAINING = """steps:
  train:
    command: [python3, train.py]
    checkpoint: {path: /checkpoints, store: s3://models/toy, grace: 4s}
    retry: {interruptions: 2}
    outputs: {value: int}
  last: {command: [sh, -c, 'echo "$0" > last', {output: train.value}]}
"""


def write(folder: Path, text: str, name: str = "toy.yaml") -> Path:
    """A pipeline of these steps."""
    file = folder / name
    file.write_text(HEAD + text, encoding="utf-8")
    return file


def run_steps(text: str, **options: Any) -> Run:
    """Run these steps in the current folder."""
    return run(write(Path.cwd(), text), **options)


def states(result: Run) -> dict[str, str]:
    return {each.name: each.state for each in result.steps}


def outputs(result: Run) -> dict[str, Any]:
    return {each.name: dict(each.outputs) for each in result.steps if each.outputs}


def start(*words: str, stdin: int = subprocess.DEVNULL) -> subprocess.Popen[str]:
    """`gpuflow run …` in a process, its lines on standard error."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    return subprocess.Popen(
        [*GPUFLOW, "run", *words, "--format", "json"],
        env=environ,
        text=True,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # whoever runs the tests may ignore it
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, dict[str, Any], str]:
    """Its exit code, its JSON and its lines."""
    out, err = process.communicate(timeout=120)
    return process.returncode, json.loads(out) if out.strip() else {}, err


def call(*words: str) -> tuple[int, dict[str, Any], str]:
    """`gpuflow run …` to its end."""
    return finish(start(*words))


def wait_for(holds: Callable[[], Any], what: str) -> None:
    """Wait until something is so; a test that waits for ever says what for."""
    until = time.monotonic() + 90
    while not holds():
        assert time.monotonic() < until, f"waited for {what}"
        time.sleep(0.01)


def marked(folder: Path) -> list[int]:
    """The living processes of runs below a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "environ").read_bytes().split(b"\0")
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue
            if state not in "ZX" and any(word.startswith(f"GPUFLOW_LOCAL={folder}".encode()) for word in words):
                found.append(int(entry.name))
    return sorted(found)


def kill(*pids: int) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
