"""How far programs are, in a run on this machine: lines while it goes on, the tree, the JSON; nothing in the journal.

Tests gpuflow/local/walk.py, gpuflow/local/console.py and gpuflow/local/runner.py.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from gpuflow.local import Console
from gpuflow.runtime.base import progress
from tests.local.programs import call, finish, run_steps, start, wait_for, write

STOPS = """
import sys, time
from gpuflow.runtime import checkpointing, progress
with checkpointing() as ckpt:
    for step in range(1, 1_000_000):
        time.sleep(0.001)
        progress(step, 1_000_000, loss=0.5)
        if ckpt.interrupted:
            print(step, flush=True)
            sys.exit(1)
"""


def engine_files(here: Path, step: str) -> list[Path]:
    return sorted(here.glob(f".gpuflow/runs/*/steps/{step}/**/progress"))


def test_an_interrupted_run_says_how_far_it_came_in_lines_tree_and_json(here: Path) -> None:
    (here / "train.py").write_text(STOPS)
    text = "steps:\n  train: {command: [python3, train.py], checkpoint: {path: /c, store: s3://a/b, grace: 5s}}\n"
    process = start(str(write(here, text)))
    wait_for(lambda: engine_files(here, "train"), "progress")
    process.send_signal(signal.SIGINT)
    code, said, lines = finish(process)
    (log,) = here.glob(".gpuflow/runs/*/steps/train/1/log")
    step = int(log.read_text().split("\n")[0])
    assert code == 75
    assert f"train interrupted at {step} of 1000000 after " in lines
    assert f"  ! train  interrupted at {step} of 1000000\n" in lines
    (train,) = said["steps"]
    assert train["progress"] == {"step": step, "total": 1_000_000, "metrics": {"loss": "0.5"}}
    (journal,) = here.glob(".gpuflow/runs/*/journal.jsonl")
    assert "1000000" not in journal.read_text() and len(journal.read_text().splitlines()) == 4


def test_a_supervisor_that_is_killed_has_left_how_far_its_program_was(here: Path) -> None:
    text = "steps:\n  a: {script: 'echo 3/9 x=1 > $GPUFLOW_PROGRESS; sleep 1.5; kill -9 $PPID; sleep 9'}\n"
    code, said, lines = call(str(write(here, text)))
    assert code == 1 and "a interrupted at 3 of 9 after " in lines
    assert said["steps"][0]["progress"] == {"step": 3, "total": 9, "metrics": {"x": "1"}}


def test_lines_come_while_a_program_runs_and_only_what_is_new(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "pause", lambda running: 0.02)
    lines: list[str] = []
    script = "echo 1/4 > $GPUFLOW_PROGRESS; sleep 1.3; echo 2/4 loss=0.3 >> $GPUFLOW_PROGRESS; sleep 1.3"
    result = run_steps(f"steps:\n  a: {{script: '{script}'}}\n", console=Console(lines.append))
    told = [line.split(" ", 1)[1] for line in lines if " a: " in line]
    assert told[0] == "a: 1 of 4" and len(told) == 2
    assert told[1].startswith("a: 2 of 4, about ") and told[1].endswith(" left, loss=0.3")
    assert result.steps[0].progress == {"step": 2, "total": 4, "metrics": {"loss": "0.3"}}


def test_rank_0_speaks_for_a_gang_and_copies_of_a_step_speak_in_lines(here: Path) -> None:
    lines: list[str] = []
    tell = "echo $0/9 > $GPUFLOW_PROGRESS; exit 1"
    text = f"""steps:
  gang:
    gang: {{workers: 2}}
    command: [sh, -c, 'echo $((GPUFLOW_RANK + 4))/9 > $GPUFLOW_PROGRESS; exit 1']
  many: {{for_each: {{n: [1, 2]}}, command: [sh, -c, '{tell}', {{item: n}}]}}
"""
    result = run_steps(text, console=Console(lines.append), jobs=4)
    gang, many = result.steps
    assert gang.progress is not None and gang.progress["step"] == 4
    assert many.progress is None
    shown = "\n".join(lines)
    assert "gang failed at 4 of 9 after " in shown and "  x gang  failed at 4 of 9" in shown
    assert "many@0 failed at 1 of 9 after " in shown and "many@1 failed at 2 of 9 after " in shown


def test_hostile_words_are_escaped_and_a_file_that_the_program_forges_is_not_believed_blindly(here: Path) -> None:
    lines: list[str] = []
    script = "printf '1/2 \\\\033[31mred\\\\n' > $GPUFLOW_PROGRESS; sleep 1.3; exit 1"
    forge = "sleep 1.3; for f in $(find .gpuflow -path '*steps/b/1'); do echo '[[[[' > $f/progress; done; exit 1"
    text = f'steps:\n  a: {{script: "{script}"}}\n  b: {{script: "{forge}"}}\n'
    result = run_steps(text, console=Console(lines.append))
    assert [each.state for each in result.steps] == ["failed", "failed"]
    a, b = result.steps
    assert a.progress is not None and b.progress is None
    assert not any("\x1b" in line for line in lines)
