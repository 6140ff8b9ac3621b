"""The attempt folder: what supervisor and program tell each other, and that rubbish is never taken for word."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from gpuflow.runtime.base.attempt_folder import AttemptFolder, identity_of, of_program


def folder(tmp_path: Path) -> AttemptFolder:
    made = AttemptFolder(str(tmp_path / "attempt"))
    made.prepare()
    return made


def test_a_notice_carries_the_programs_deadline(tmp_path: Path) -> None:
    there = folder(tmp_path)
    assert there.read_stop() is None
    there.write_stop(1234.5678)
    assert there.read_stop() == 1234.568
    Path(there.stop).write_text("soon")
    assert there.read_stop() == 0.0


def test_only_living_processes_listen_and_a_number_used_again_does_not(tmp_path: Path) -> None:
    there = folder(tmp_path)
    sleeper = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    there.listen()
    there.listen(sleeper.pid)
    (Path(there.listeners) / "1").write_text("0\n")
    (Path(there.listeners) / "rubbish").write_text("0\n")
    assert there.listening_pids() == {os.getpid(), sleeper.pid}
    sleeper.kill()
    sleeper.wait()
    assert there.listening_pids() == {os.getpid()}
    there.unlisten()
    assert there.listening_pids() == set()


def test_a_sign_of_life_is_a_moment_no_one_can_set(tmp_path: Path) -> None:
    there = folder(tmp_path)
    assert there.last_beat() is None
    before = time.monotonic()
    there.beat()
    first = there.last_beat()
    assert first is not None
    assert before - 0.001 <= first <= time.monotonic() + 0.001


def test_the_program_finds_the_folder_by_its_variable_and_its_desk_without(tmp_path: Path) -> None:
    path = str(tmp_path / identity_of("p/r/s") / "0123456789abcdef")
    assert of_program({"GPUFLOW_STOP": f"{path}/stop"}, str(tmp_path)).path == path
    assert of_program({}, str(tmp_path)).path == str(tmp_path / "desk")


def test_a_program_that_leaves_early_says_so(tmp_path: Path) -> None:
    there = folder(tmp_path)
    assert not there.has_stopped()
    there.say_stopped()
    assert there.has_stopped()
