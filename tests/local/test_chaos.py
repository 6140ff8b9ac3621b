"""Runs and supervisors are killed and told to stop at any moment, until the run gets through: the result is the same.

Tests gpuflow/local/resume.py and gpuflow/local/walk.py.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.local.programs import finish, marked, start, wait_for, write

PIPELINE = """steps:
  list: {command: [sh, -c, 'sleep 0.1; echo "[1,2,3]" > $GPUFLOW_OUTPUTS/l'], outputs: {l: json}, retry: &r {interruptions: 30}}
  tune:
    for_each: {n: {output: list.l}}
    params: {n: {item: n}}
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: inner
      params: {n: {type: int}}
      defaults: {image: registry.example.com/toy:1, retry: *r}
      outputs: {s: {output: join.s}}
      steps:
        times:
          for_each: {k: [1, 2]}
          command: [sh, -c, 'sleep 0.2; echo $(($0 * $1)) > $GPUFLOW_OUTPUTS/v', {param: n}, {item: k}]
          outputs: {v: int}
        join:
          script: {run: 'echo $(($(echo "$L" | tr -d "[]" | tr , +))) > $GPUFLOW_OUTPUTS/s'}
          env: {L: {output: times.v}}
          outputs: {s: int}
        never: {when: params.n > 5, command: ['false']}
  files:
    for_each: {n: [1, 2]}
    command: [sh, -c, 'sleep 0.1; mkdir $GPUFLOW_OUTPUTS/d; echo $0 > $GPUFLOW_OUTPUTS/d/x', {item: n}]
    outputs: {d: directory}
    retry: *r
  pair:
    gang: 2
    cpu: 10m
    command: [sh, -c, 'sleep 0.2; echo $((40 + GPUFLOW_WORLD_SIZE - GPUFLOW_RANK)) > $GPUFLOW_OUTPUTS/v']
    outputs: {v: int}
    retry: *r
  last:
    inputs: {/in/d: {output: files.d}}
    command: [sh, -c, 'cat /in/d/0/x /in/d/1/x | tr -d "\\n" > $GPUFLOW_OUTPUTS/v; echo "$0" >> $GPUFLOW_OUTPUTS/v', {output: tune.s}]
    outputs: {v: string}
    retry: *r
"""  # noqa: E501  # a pipeline
HARMLESS = (0, 75, 130, -signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
"""How a run ends that nothing is wrong with: it got through, was told to stop, or was ended before it could listen."""


def kill_a_supervisor(here: Path, chance: random.Random) -> None:
    """A program that is killed has failed; one whose supervisor is killed was interrupted."""
    found = []
    for pid in marked(here):
        with contextlib.suppress(OSError):
            if b"supervise.main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                found.append(pid)
    if found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(chance.choice(found), signal.SIGKILL)


@pytest.mark.parametrize("seed", range(int(os.environ.get("GPUFLOW_CHAOS", "4"))))
def test_whatever_is_killed_the_run_gets_through(here: Path, seed: int) -> None:
    chance, file = random.Random(seed), str(write(here, PIPELINE))
    for turn in range(30):
        # By its name: one that was killed right after its end is finished.
        runs = [path.parent.name for path in here.glob(".gpuflow/runs/*/run.json")]
        process = start(file, *(["--resume", *runs] if runs else []))
        until = time.monotonic() + chance.uniform(0.5, 2.5) if turn < 6 else None
        while until is not None and time.monotonic() < until and process.poll() is None:
            time.sleep(chance.uniform(0.05, 0.4))
            if chance.random() < 0.3:
                kill_a_supervisor(here, chance)
        if until is not None and process.poll() is None:
            process.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        code, said, lines = finish(process)
        assert code in HARMLESS, lines
        if code == 0:
            break
    assert said["state"] == "succeeded", lines
    found = {each["name"]: each["outputs"] for each in said["steps"]}
    assert found["tune"] == {"s": [3, 6, 9]} and found["last"] == {"v": "12[3,6,9]"}
    assert found["pair"] == {"v": 42}
    wait_for(lambda: not marked(here), "the end of all programs")
