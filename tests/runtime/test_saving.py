"""The program's side: saves are whole or not there, the interval and the stop are heard, the probe sees life."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuflow.runtime import checkpointing, probe
from gpuflow.runtime.directory import Directory
from tests.runtime.harness import python, run, start


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("GPUFLOW_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)


def write(text: str) -> Callable[[str], int]:
    return lambda path: Path(path).write_text(text)


def test_without_a_supervisor_a_script_saves_and_resumes_on_a_desk() -> None:
    with checkpointing("c") as ckpt:
        assert ckpt.resume_from is None
        ckpt.save(write("one"))
        ckpt.save(write("two"))
    with checkpointing("c") as ckpt:
        assert ckpt.resume_from is not None
        assert Path(ckpt.resume_from).read_text() == "two"


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    def broken(path: str) -> None:
        Path(path).write_text("half")
        raise OSError("the disk is full")

    with checkpointing("c") as ckpt:
        first = ckpt.save(write("one"))
        with pytest.raises(OSError, match="the disk is full"):
            ckpt.save(broken)
        assert ckpt.resume_from == first
    assert [name for name in os.listdir("c") if not name.startswith(".gpuflow")] == [os.path.basename(first)]


def test_only_the_newest_few_stay_here() -> None:
    with checkpointing("c", keep=2) as ckpt:
        for index in range(5):
            ckpt.save(write(str(index)))
    assert [entry.name for entry in Directory("c").finished()] == ["checkpoint-00000004", "checkpoint-00000005"]


def test_a_directory_can_be_saved_and_saved_again_under_its_name() -> None:
    def folder(path: str) -> None:
        os.mkdir(path)
        Path(path, "w").write_text("w")

    with checkpointing("c") as ckpt:
        ckpt.save(folder, "last")
        path = ckpt.save(folder, "last")
        assert Path(path, "w").read_text() == "w"


def test_a_save_in_the_background_is_finished_when_waited_for_and_its_error_is_not_lost() -> None:
    with checkpointing("c") as ckpt:
        ckpt.save_in_background(write("one"))
        ckpt.wait()
        assert ckpt.resume_from is not None
        ckpt.save_in_background(lambda path: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ckpt.wait()


def test_due_follows_the_interval() -> None:
    with checkpointing("c", every=3600) as rarely, checkpointing("d", every=0) as always:
        assert (rarely.due(), always.due()) == (False, True)


def test_told_to_stop_there_is_one_last_save_and_the_old_handler_comes_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with checkpointing("c", every=3600) as ckpt:
        os.kill(os.getpid(), signal.SIGTERM)
        assert ckpt.interrupted
        assert ckpt.due()
        ckpt.save(write("last"))
        assert not ckpt.due()
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_save_that_would_not_fit_the_grace_is_not_asked_for() -> None:
    with checkpointing("c", every=3600) as ckpt:
        ckpt.save_seconds = 1e6
        os.kill(os.getpid(), signal.SIGTERM)
        assert ckpt.interrupted
        assert not ckpt.due()


LOOP = """
import time
from pathlib import Path
from gpuflow.runtime import checkpointing
with checkpointing() as ckpt:
    step = int(Path(ckpt.resume_from).read_text()) if ckpt.resume_from else 0
    print("from", step, flush=True)
    while step < {steps}:
        step += 1
        time.sleep(0.01)
        if ckpt.due():
            ckpt.save(lambda path: Path(path).write_text(str(step)))
        if ckpt.interrupted:
            raise SystemExit(0)
"""


def test_a_script_told_to_stop_resumes_where_it_stopped(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--grace", "10s")
    process = start(*options, *python(LOOP.format(steps=10**6)))
    assert process.stdout is not None
    assert process.stdout.readline() == "from 0\n"
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 75
    done = run("--checkpoint-dir", tmp_path / "other", *options[2:], *python(LOOP.format(steps=1)))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[1]) > 5


def test_the_probe_sees_starts_signs_of_life_and_their_absence(tmp_path: Path) -> None:
    assert run("probe", "--checkpoint-dir", tmp_path / "none").returncode == 1
    assert run("--checkpoint-dir", tmp_path / "c", "--run-id", "r", "--", "true").returncode == 0
    healthy = run("probe", environ={"GPUFLOW_RUN_CHECKPOINT_DIR": str(tmp_path / "c")})
    assert healthy.returncode == 0
    assert "the last" in healthy.stdout
    assert run("probe", "--ready", "--checkpoint-dir", tmp_path / "c").returncode == 0
    late, moment = time.time() + 3600, time.monotonic() + 3600
    assert probe.judge(str(tmp_path / "c"), None, ready=False, now=late, moment=moment)[0] is False
    assert probe.judge(str(tmp_path / "c"), 7200, ready=False, now=late, moment=moment)[0] is True
    # A wall clock that was set an hour ahead makes nothing sick.
    assert probe.judge(str(tmp_path / "c"), None, ready=False, now=late, moment=time.monotonic())[0] is True
    assert run("probe", "--max-age", "never", "--checkpoint-dir", tmp_path / "c").returncode == 78
