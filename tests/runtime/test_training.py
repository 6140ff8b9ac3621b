"""The program's side: saves are whole or not there, the interval and the stop are heard, the probe sees life.

Tests gpuflow/runtime/checkpoints/training.py and gpuflow/runtime/supervise/probe.py.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuflow.runtime import checkpointing
from gpuflow.runtime.base.attempt_folder import AttemptFolder
from gpuflow.runtime.checkpoints import training
from gpuflow.runtime.state.checkpoint_dir import Directory
from gpuflow.runtime.supervise import probe
from tests.runtime.harness import environment, eventually, python, run, start


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
        assert first is not None
        with pytest.raises(OSError, match="the disk is full"):
            ckpt.save(broken)
        assert ckpt.resume_from == first
    assert [name for name in os.listdir("c") if not name.startswith(".gpuflow")] == [os.path.basename(first)]


def test_what_a_killed_program_left_half_written_is_cleared_at_a_desk() -> None:
    code = "import os; from gpuflow.runtime import checkpointing\nckpt = checkpointing('c')\n"
    code += "ckpt.save(lambda path: (open(path, 'w').write('half'), os.kill(os.getpid(), 9)))"
    done = subprocess.run([sys.executable, "-c", code], env=environment())
    assert done.returncode == -signal.SIGKILL
    (left,) = Path("c").rglob("*.part")
    with checkpointing("c") as ckpt:
        assert ckpt.resume_from is None
        assert not left.exists()
        ckpt.save(lambda path: (Path(path).write_text("one"), checkpointing("c")))
        assert ckpt.resume_from is not None


def test_names_with_digits_that_are_no_numbers_are_other_peoples_files() -> None:
    with checkpointing("c") as ckpt:
        folder = Path(ckpt.directory.attempt_folder)
        (folder / "x.².part").write_text("")
        (Path("c") / ".x").write_text("")
        os.rename(Path("c") / ".x", Path("c") / f"{training.PREFIX}²")
        ckpt.directory.record(f"{training.PREFIX}²")
        ckpt._sweep()
        assert ckpt._next_name() == f"{training.PREFIX}00000001"


def test_only_the_newest_few_stay_here() -> None:
    with checkpointing("c", keep=2) as ckpt:
        for index in range(5):
            ckpt.save(write(str(index)))
    assert [entry.name for entry in Directory("c").finished_entries()] == ["checkpoint-00000004", "checkpoint-00000005"]


def test_a_directory_can_be_saved_and_saved_again_under_its_name() -> None:
    def folder(path: str) -> None:
        os.mkdir(path)
        Path(path, "w").write_text("w")

    with checkpointing("c") as ckpt:
        ckpt.save(folder, "last")
        path = ckpt.save(folder, "last")
        assert path is not None
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


def no_room(path: str) -> None:
    Path(path).write_text("half")
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_error_in_the_background_is_heard_at_the_next_question(capsys: pytest.CaptureFixture[str]) -> None:
    with checkpointing("c", every=3600) as ckpt:
        ckpt.save_in_background(lambda path: 1 / 0)
        while ckpt._failure is None:
            time.sleep(0.01)
        with pytest.raises(ZeroDivisionError):
            ckpt.due()
        assert not ckpt.due()
    assert "checkpoint checkpoint-00000001 failed: ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("background", [False, True])
def test_a_regular_checkpoint_that_the_disk_refuses_is_said_and_tried_again(
    background: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "_FIRST_PAUSE", 0.3)
    with checkpointing("c", every=0) as ckpt:
        save = ckpt.save_in_background if background else ckpt.save
        assert ckpt.due()
        assert save(no_room) is None
        ckpt.wait()
        assert not ckpt.due()
        assert (
            "could not be written: [Errno 28] No space left on device; the program goes on" in capsys.readouterr().err
        )
        eventually(ckpt.due)
        save(write("one"))
        ckpt.wait()
        assert ckpt.resume_from is not None
    assert sorted(os.listdir("c")) == [".gpuflow", "checkpoint-00000001"]


@pytest.mark.parametrize("background", [False, True])
def test_a_save_that_nobody_asked_for_is_not_lost_in_silence(background: bool) -> None:
    """It may be the result: a program that goes on and ends with 0 would be called done."""

    def script() -> None:
        with checkpointing("c", every=3600) as ckpt:
            assert not ckpt.due()
            (ckpt.save_in_background if background else ckpt.save)(no_room)

    with pytest.raises(OSError, match="No space left"):
        script()


def test_a_last_save_that_the_disk_refused_may_be_tried_again() -> None:
    with checkpointing("c", every=3600) as ckpt:
        os.kill(os.getpid(), signal.SIGTERM)
        assert ckpt.due()
        ckpt.save_in_background(no_room)
        ckpt.wait()
        assert ckpt.due()
        ckpt.save(write("last"))
        assert not ckpt.due()


def test_a_save_begun_before_the_notice_is_not_the_last_one() -> None:
    go = threading.Event()
    with checkpointing("c", every=3600) as ckpt:
        ckpt.save_in_background(lambda path: (go.wait(120), Path(path).write_text("old")))
        os.kill(os.getpid(), signal.SIGTERM)
        go.set()
        ckpt.wait()
        assert ckpt.due()


def test_while_a_save_is_being_written_none_is_due_but_the_last() -> None:
    go = threading.Event()
    with checkpointing("c", every=0) as ckpt:
        ckpt.save_in_background(lambda path: (go.wait(120), Path(path).write_text("one")))
        assert not ckpt.due()
        os.kill(os.getpid(), signal.SIGTERM)
        assert ckpt.due()
        ckpt.save_seconds = 20.0
        assert not ckpt.due(), "two of 20 s do not fit a grace of 30 s"
        go.set()


def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of what is synced from now on."""
    names: list[str] = []
    real = os.fsync

    def fsync(handle: int) -> None:
        names.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        real(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    return names


@pytest.mark.parametrize("wanted", ["1", "0"])
def test_what_is_called_finished_is_on_disk_before(monkeypatch: pytest.MonkeyPatch, wanted: str) -> None:
    monkeypatch.setenv("GPUFLOW_SYNC", wanted)
    names = synced(monkeypatch)
    with checkpointing("c") as ckpt:
        folder = Path("c", "checkpoint-7")
        (folder / "deep").mkdir(parents=True)
        (folder / "deep" / "weights").write_text("w")
        ckpt.finish(str(folder))
        in_place = [name for name in names if not name.endswith(".part")]
        del names[:]
        ckpt.save(write("one"), "other")
        renamed = [name for name in names if not name.endswith(".json")]
    if wanted == "0":
        assert (in_place, renamed) == ([], [])
        return
    assert in_place.index("weights") < in_place.index(".gpuflow-complete") < len(in_place) - 1
    assert in_place[-1] == "c"
    assert renamed[-1] == "c"
    assert len(renamed) == 2


def test_a_disk_that_cannot_sync_for_good_has_not_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    def fsync(handle: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    with checkpointing("c", every=3600) as ckpt:
        folder = Path("c", "checkpoint-7")
        folder.mkdir()
        with monkeypatch.context() as broken:
            broken.setattr(os, "fsync", fsync)
            with pytest.raises(OSError, match="the disk is broken"):
                ckpt.save(write("one"))
            with pytest.raises(OSError, match="the disk is broken"):
                ckpt.finish(str(folder))
        assert ckpt.resume_from is None
    assert os.listdir(folder) == []


def test_finishing_prunes_too_but_not_what_is_protected() -> None:
    with checkpointing("c", keep=2) as ckpt:
        for step in (1, 2, 3, 4, 5):
            folder = Path("c", f"checkpoint-{step}")
            folder.mkdir()
            ckpt.finish(str(folder), protect=["c/checkpoint-2"])
    assert sorted(name for name in os.listdir("c") if name != ".gpuflow") == [f"checkpoint-{n}" for n in (2, 4, 5)]


def test_a_directory_elsewhere_cannot_be_finished(tmp_path: Path) -> None:
    (tmp_path / "elsewhere" / "checkpoint-1").mkdir(parents=True)
    with checkpointing("c") as ckpt, pytest.raises(ValueError, match="does not lie in the checkpoint directory"):
        ckpt.finish(str(tmp_path / "elsewhere" / "checkpoint-1"))


def test_at_least_one_checkpoint_is_kept() -> None:
    with pytest.raises(ValueError, match="keep=0: at least one"):
        checkpointing("c", keep=0)


@pytest.fixture
def attempt(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AttemptFolder:
    """The folder in which a supervisor and this program leave each other word."""
    folder = AttemptFolder(str(tmp_path / "c" / ".gpuflow" / "0123456789abcdef" / "fedcba9876543210"))
    folder.prepare()
    monkeypatch.setenv("GPUFLOW_STOP", folder.stop)
    monkeypatch.setenv("GPUFLOW_CHECKPOINT_DIR", str(tmp_path / "c"))
    monkeypatch.setattr(training, "_POLL", 0.0)
    return folder


def test_a_process_that_listens_says_so_for_as_long_as_it_does(attempt: AttemptFolder) -> None:
    with checkpointing():
        assert attempt.listening_pids() == {os.getpid()}
    assert attempt.listening_pids() == set()


def test_the_notice_and_its_deadline_are_those_of_the_own_attempt(attempt: AttemptFolder, tmp_path: Path) -> None:
    other = AttemptFolder(str(tmp_path / "c" / ".gpuflow" / "0123456789abcdef" / "1111111111111111"))
    other.prepare()
    with checkpointing(every=3600) as ckpt:
        other.write_stop(time.monotonic() + 5)
        Path("c", ".gpuflow", "stop").write_text("5")
        assert not ckpt.interrupted
        attempt.write_stop(time.monotonic() + 100)
        left = ckpt.time_left()
        assert left is not None
        assert 40 < left < 100.1
        ckpt.save_seconds = 200.0
        assert not ckpt.due(), "a save of 200 s does not fit the 100 s left, whatever the grace was said to be"
        ckpt.save_seconds = 1.0
        assert ckpt.due()
        assert not attempt.has_stopped(), "asking for a save is not leaving"
        assert ckpt.interrupted
        assert attempt.has_stopped()
    assert not other.has_stopped()


def test_a_signal_that_comes_with_a_notice_has_the_deadline_of_the_notice(attempt: AttemptFolder) -> None:
    with checkpointing(every=3600) as ckpt:
        attempt.write_stop(time.monotonic() + 100)
        os.kill(os.getpid(), signal.SIGTERM)
        left = ckpt.time_left()
    assert left is not None
    assert 40 < left < 100.1


def test_the_interval_of_the_supervisor_is_followed_unless_the_program_has_its_own(attempt: AttemptFolder) -> None:
    attempt.write_interval(0.0)
    with checkpointing() as follows, checkpointing(every=3600) as fixed:
        assert (follows.due(), fixed.due()) == (True, False)
        assert attempt.last_beat() is not None


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
        print(step, flush=True)
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
    assert [process.stdout.readline() for _ in range(10)]  # some steps
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 75
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
