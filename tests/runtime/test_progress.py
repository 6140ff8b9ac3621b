"""How far a program is: what it writes, what the supervisor makes of it, and that neither harms the other.

Tests gpuflow/runtime/base/progress.py and gpuflow/runtime/supervise/progress_watch.py.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime import bundle
from gpuflow.runtime.base import progress
from gpuflow.runtime.base.attempt_folder import AttemptFolder
from gpuflow.runtime.base.progress import Progress, parse
from gpuflow.runtime.supervise import progress_watch
from gpuflow.runtime.supervise.progress_watch import ProgressWatch
from tests.runtime import harness
from tests.runtime.harness import environment, eventually, python, run, shell, start

# -- one line


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("120/1000", Progress(120, 1000)),
        ("0/1", Progress(0, 1)),
        (" 120/1000  loss=0.31 lr=1e-4 \r", Progress(120, 1000, "loss=0.31 lr=1e-4")),
        ("7/7 \x1b[31mred\x00", Progress(7, 7, "\\x1b[31mred\\x00")),
        ("120", None),
        ("120/", None),
        ("120/0", None),
        ("-1/10", None),
        ("11/10", None),
        ("1.5/10", None),
        ("nan/10", None),
        ("\x00\x00", None),
        ("1/10loss=3", None),
        ("²/10", None),
        (f"1/{'9' * 19}", None),
    ],
)
def test_a_line_is_step_and_total_in_whole_numbers_and_anything_else_is_none(line: str, found: Any) -> None:
    assert parse(line) == found


def test_words_of_any_length_are_cut_so_that_the_file_for_engines_can_be_read_back(tmp_path: Path) -> None:
    found = parse(f"1/{'9' * 18} {'𝄞' * 5000}")
    assert found is not None and len(found.words) == 200
    (tmp_path / "file").write_bytes(progress.pack(found))
    assert progress.read(str(tmp_path / "file")) == found


@pytest.mark.parametrize(
    "text",
    ["", "[", "[1]", '["a", 2, "", null]', '[1.0, 2, "", 1]', "[" * 4000, "x" * 5000, "null", "{}"],
)
def test_a_file_that_is_not_ours_says_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "file").write_text(text)
    assert progress.read(str(tmp_path / "file")) is None
    assert progress.read(str(tmp_path / "none")) is None


@pytest.mark.parametrize("left", ["null", "[]", "-1", "Infinity", "9" * 3000])
def test_an_end_that_cannot_be_is_not_expected(tmp_path: Path, left: str) -> None:
    (tmp_path / "file").write_text(f'[1, 2, "a", {left}]\n1/2\n')
    assert str(progress.read(str(tmp_path / "file"))) == "1 of 2, a"


# -- what the supervisor makes of it


class Scene:
    """A watch whose thread sleeps, and what it says."""

    def __init__(self, folder: Path, say: list[str], file: Path | None = None) -> None:
        self.path, self.said, self.file = folder / "progress", say, file
        self.watch = ProgressWatch(AttemptFolder(str(folder)), None if file is None else str(file))
        self.began = self.watch._began

    def at(self, seconds: float, text: str | None = None, *, last: bool = False) -> list[str]:
        """What it says at a look, after the program has replaced its file."""
        if text is not None:
            self.path.with_suffix(".part").write_text(text)
            self.path.with_suffix(".part").rename(self.path)
        self.said.clear()
        self.watch.look(self.began + seconds, last=last)
        return list(self.said)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Scene]:
    said: list[str] = []
    monkeypatch.setattr(progress_watch, "LOOK", 3600.0)
    monkeypatch.setattr(progress_watch, "say", said.append)
    (tmp_path / "attempt").mkdir()
    return lambda file=None: Scene(tmp_path / "attempt", said, file)


def test_lines_of_the_log_are_ten_seconds_apart_at_first_and_five_minutes_in_the_end(scene: Any) -> None:
    shown = scene()
    assert shown.at(1, "10/1000\n") == []
    assert shown.at(11, "110/1000 loss=0.5\n") == ["progress 110 of 1000, about 89 s left, loss=0.5"]
    assert shown.at(20, "200/1000\n") == []
    assert shown.at(21) == ["progress 200 of 1000, about 80 s left"]
    assert shown.at(40) == []
    times = [at for at in range(50, 40_000, 10) if shown.at(at, f"{at}/50000\n")]
    assert times[0] == 50 and min(later - each for each, later in itertools.pairwise(times)) >= 10
    assert {later - each for each, later in itertools.pairwise(times[-5:])} == {300}
    assert len(times) < 250


def test_the_end_is_expected_by_what_this_attempt_did_and_not_by_what_it_resumed_from(scene: Any) -> None:
    shown = scene()
    shown.at(100, "900/1000\n")
    assert shown.at(110, "910/1000\n") == ["progress 910 of 1000, about 90 s left"]
    assert shown.at(130, "10/20\n") == ["progress 10 of 20"]
    assert shown.at(150, "15/20\n") == ["progress 15 of 20, about 20 s left"]


def test_the_last_word_is_said_once_the_command_has_ended_however_soon_that_is(scene: Any) -> None:
    shown = scene()
    assert shown.at(0.1, "1/9\n") == []
    assert shown.at(0.2, "3/9\n", last=True) == ["progress 3 of 9"]
    assert shown.at(0.3, last=True) == []


def test_of_a_file_that_grows_the_last_whole_line_counts_and_only_its_end_is_read(
    scene: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = scene(tmp_path / "engine")
    counts: list[int] = []
    real = os.pread
    monkeypatch.setattr(os, "pread", lambda handle, count, at: counts.append(count) or real(handle, count, at))
    with open(shown.path, "wb") as file:
        file.truncate(1 << 40)
        file.seek(0, 2)
        file.write(b"\n8/9 a\n9/")
    assert shown.at(20) == ["progress 8 of 9, a"]
    assert counts == [progress.TAIL]
    assert (tmp_path / "engine").read_text().splitlines()[-1] == "8/9"


@pytest.mark.parametrize("kind", ["link", "link to nothing", "pipe", "folder", "junk", "zeros", "no end"])
def test_what_is_no_progress_is_left_out_with_one_remark(scene: Any, tmp_path: Path, kind: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text("3/4 secret\n")
    shown = scene(tmp_path / "engine")
    make: dict[str, Callable[[], object]] = {
        "link": lambda: shown.path.symlink_to(secret),
        "link to nothing": lambda: shown.path.symlink_to(tmp_path / "nothing"),
        "pipe": lambda: os.mkfifo(shown.path),
        "folder": shown.path.mkdir,
        "junk": lambda: shown.path.write_text("half done\n"),
        "zeros": lambda: shown.path.write_bytes(bytes(100_000)),
        "no end": lambda: shown.path.write_text("1/2" * 10_000),
    }
    make[kind]()
    said = [*shown.at(20), *shown.at(40), *shown.at(60)]
    assert len(said) == 1 and said[0].startswith("$GPUFLOW_PROGRESS "), said
    assert "secret" not in said[0] and len(said[0]) < 400
    assert not (tmp_path / "engine").exists()


def test_a_line_that_is_wrong_does_not_take_back_what_was_said_before(scene: Any) -> None:
    shown = scene()
    shown.at(1, "5/9\n")
    assert shown.at(20, "soon done\n")[1:] == ["progress 5 of 9"]
    assert shown.at(40, "7/9\n") == ["progress 7 of 9, about 39 s left"]


def test_an_engine_whose_file_cannot_be_written_is_said_once_and_the_log_goes_on(scene: Any, tmp_path: Path) -> None:
    shown = scene(tmp_path / "missing" / "progress")
    assert shown.at(20, "1/9\n")[0].startswith("progress cannot be written to ")
    assert shown.at(40, "2/9\n") == ["progress 2 of 9, about 2.33 min left"]


# -- real supervisors


def engine_file(path: Path) -> str:
    """The last line of the file, as Argo's executor reads it."""
    return path.read_text().strip().splitlines()[-1] if path.exists() else ""


def test_a_program_of_any_language_tells_argo_and_the_log(tmp_path: Path) -> None:
    argo = tmp_path / "argo" / "progress"
    argo.parent.mkdir()
    code = 'for i in 1 2 3; do echo "$i/3 loss=0.$i" >> "$GPUFLOW_PROGRESS"; done'
    done = run(*shell(code), environ={"ARGO_PROGRESS_FILE": str(argo)})
    assert (done.returncode, done.stderr) == (0, "gpuflow-run: progress 3 of 3, loss=0.3\n")
    assert engine_file(argo) == "3/3"


def test_the_file_is_the_attempts_own_and_gone_with_it(tmp_path: Path) -> None:
    code = 'echo "$GPUFLOW_PROGRESS" > "$0"; test ! -e "$GPUFLOW_PROGRESS"; echo 1/2 > "$GPUFLOW_PROGRESS"'
    paths = []
    for name in ("a", "b"):
        given = ("--checkpoint-dir", tmp_path / "c", "--run-id", name, "--own-folder")
        assert run(*given, "--", "sh", "-c", code, tmp_path / name).returncode == 0
        paths.append(Path((tmp_path / name).read_text().strip()))
    assert run("--", "sh", "-c", code, tmp_path / "c1", environ={"GPUFLOW_PROGRESS": "/nowhere"}).returncode == 0
    alone = Path((tmp_path / "c1").read_text().strip())
    assert len({*paths, alone}) == 3 and not alone.parent.exists()
    assert all(path.is_relative_to(tmp_path / "c") for path in paths)


def test_python_programs_write_seldom_and_leave_their_last_step(tmp_path: Path) -> None:
    code = """
import gpuflow.runtime.base.files as files, sys
from gpuflow.runtime import progress
writes, real = [], files.write
files.write = lambda *given: (writes.append(given), real(*given))
for step in range(100_000):
    progress(step, 1_000_000, loss=1 / (step + 1), note="a b", count=step)
print(len(writes))
"""
    done = run(*python(code))
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 50
    assert done.stderr.startswith("gpuflow-run: progress 99999 of 1000000, loss=")
    assert "note=a_b count=" in done.stderr


def test_whatever_is_told_nothing_is_raised_in_the_program(tmp_path: Path) -> None:
    code = """
from gpuflow.runtime import progress
class Bad:
    def __float__(self): raise ZeroDivisionError
    def __str__(self): raise ZeroDivisionError
for given in [(1, None), (None, 3), ("a", "b"), (float("nan"), 2), (3, 2), (-1, 2), (Bad(), 2)]:
    progress(*given)
progress(1, 2, step=Bad())
progress(2, 2, total=object, path="\\ud800 x" * 1000)
"""
    for environ in ({}, {"TMPDIR": str(tmp_path)}):
        done = run(*python(code), environ=environ)
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("gpuflow-run: progress 2 of 2, total=")
    alone = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=False)
    assert (alone.returncode, alone.stdout, alone.stderr) == (0, "", "")


def test_a_full_disk_takes_the_progress_and_not_the_training() -> None:
    code = """
import errno, os
from gpuflow.runtime.base import files
from gpuflow.runtime import progress
def refuse(path, data): raise OSError(errno.ENOSPC, "no space left")
files.write = refuse
progress(1, 3)
progress(3, 3)
print("done")
"""
    done = run(*python(code))
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


def test_an_interrupted_program_is_known_to_have_come_so_far(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    code = """
import signal, sys, time
from gpuflow.runtime import checkpointing, progress
with checkpointing() as ckpt:
    for step in range(1, 1_000_000):
        time.sleep(0.001)
        progress(step, 1_000_000)
        if ckpt.interrupted:
            print(step, flush=True)
            sys.exit(1)
"""
    process = start("--progress-file", file, *python(code), cwd=tmp_path)
    eventually(lambda: int(engine_file(file).partition("/")[0] or 0) > 1)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 75, err
    assert f"gpuflow-run: progress {out.strip()} of 1000000\n" in err
    assert engine_file(file) == f"{out.strip()}/1000000"


def test_a_supervisor_that_is_killed_leaves_the_last_look(tmp_path: Path) -> None:
    file = tmp_path / "progress"
    process = start("--progress-file", file, *shell('echo 4/9 > "$GPUFLOW_PROGRESS"; exec sleep 60'))
    eventually(lambda: engine_file(file) == "4/9")
    process.kill()
    process.communicate(timeout=60)
    assert progress.read(str(file)) == Progress(4, 9)


def test_the_mounted_supervisor_tells_progress_and_gives_the_function_to_scripts(tmp_path: Path) -> None:
    program = harness.mount(tmp_path / "mount")
    code = "from gpuflow_runtime import progress\nprogress(5, 5, loss=0.25)"
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": str(program.parent)}
    words = [sys.executable, "-S", str(program), "--", sys.executable, "-S", "-c", code]
    done = subprocess.run(words, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "gpuflow-run: progress 5 of 5, loss=0.25\n")
    assert json.dumps("import Checkpointing, checkpointing, progress")[1:-1] in bundle.IMPORTABLE
