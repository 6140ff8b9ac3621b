"""Steps that wait for what others have, and logs that are read while they are written.

Tests gpuflow/local/walk.py, gpuflow/cli/logs.py and gpuflow/local/console.py.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpuflow.local import Console
from tests.conftest import ROOT
from tests.local.programs import GPUFLOW, finish, outputs, run_steps, start, wait_for, write
from tests.local.test_machine import A100, smi

__all__ = ["smi"]


def test_two_steps_for_one_gpu_run_one_after_the_other(here: Path, smi: Any) -> None:
    smi(A100)
    lines: list[str] = []
    text = "steps:\n  a:\n    for_each: {n: [1, 2]}\n    gpu: a100-80gb\n    outputs: {v: string}\n"
    script = "mkdir busy && sleep 0.1 && rmdir busy && echo $CUDA_VISIBLE_DEVICES > $GPUFLOW_OUTPUTS/v"
    text += f"    command: [sh, -c, '{script}']\n"
    text += "  b: {command: [sh, -c, 'echo \"$CUDA_VISIBLE_DEVICES\" > $GPUFLOW_OUTPUTS/v'], outputs: {v: string}}\n"
    result = run_steps(text, console=Console(lines.append), jobs=4)
    assert result.state == "succeeded"
    assert outputs(result) == {"a": {"v": ["GPU-5a1f", "GPU-5a1f"]}, "b": {"v": ""}}
    assert any("a@1 waits for 1 GPU" in line for line in lines)


def test_a_log_is_followed_until_the_step_has_ended(here: Path) -> None:
    text = "steps:\n  a: {script: 'echo one; while test ! -e go; do sleep 0.05; done; echo two'}\n"
    process = start(str(write(here, text)))
    wait_for(lambda: any("one" in log.read_text() for log in here.glob(".gpuflow/runs/*/steps/a/1/log")), "a line")
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    follower = subprocess.Popen([*GPUFLOW, "logs", "-f", "a"], env=environ, text=True, stdout=subprocess.PIPE)
    assert follower.stdout is not None and follower.stdout.readline() == "one\n"
    Path("go").touch()
    assert follower.communicate(timeout=120)[0] == "two\n"
    assert follower.returncode == 0 and finish(process)[0] == 0


@pytest.mark.parametrize("closed", ["the reader", "the terminal"])
def test_a_run_goes_on_where_nobody_reads_its_lines(here: Path, closed: str) -> None:
    text = (
        "steps:\n  a: {script: 'while test ! -e go; do sleep 0.05; done'}\n  b: {needs: [a], command: [touch, done]}\n"
    )
    process = start(str(write(here, text)))
    assert process.stderr is not None
    process.stderr.readline()
    if closed == "the reader":
        process.stderr.close()
        process.stderr = None
        Path("go").touch()
        assert process.wait(120) == 0 and Path("done").exists()
    else:
        wait_for(lambda: list(here.glob(".gpuflow/runs/*/steps/a/1/log")), "the program")
        process.send_signal(1)
        assert finish(process)[0] == 75
