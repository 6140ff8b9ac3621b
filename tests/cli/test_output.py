"""Where output goes: links, pipes, closed and full streams, other encodings. Nothing is lost, nothing is destroyed."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from gpuflow.cli.output import write_files
from tests.cli.commands import NIGHTLY, Gpuflow

PYTHON = [sys.executable, "-m", "gpuflow.cli.main"]
SNOWMAN = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps: {a: {image: i, command: [echo, ☃]}}\n"


def shell(line: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """`gpuflow …` in a shell, for redirections that only a shell can make."""
    words = line.replace("gpuflow", " ".join(PYTHON), 1)
    return subprocess.run(["bash", "-c", words], capture_output=True, env={**os.environ, **environment}, check=False)


def test_a_link_is_followed_and_stays_a_link(gpuflow: Gpuflow, tmp_path: Path) -> None:
    link, file = tmp_path / "link.py", tmp_path / "file.py"
    link.symlink_to(file)
    assert gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", link).code == 0
    assert (link.is_symlink(), file.read_text().startswith("# Made by gpuflow ")) == (True, True)


def test_a_pipe_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received: list[str] = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_text()), daemon=True)
    reader.start()
    write_files({pipe: "text\n"})
    reader.join(10)
    assert (received, pipe.is_fifo()) == (["text\n"], True)


def test_a_minus_is_standard_output(gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    answer = gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", "-")
    assert answer == gpuflow("compile", NIGHTLY, "--target", "airflow")
    assert list(tmp_path.iterdir()) == []


def test_a_file_where_a_folder_should_be_is_named(gpuflow: Gpuflow, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    answer = gpuflow("compile", NIGHTLY, "--target", "airflow", "-o", tmp_path / "file" / "n.py")
    assert f"{tmp_path / 'file'} is a file, not a folder" in answer.err


@pytest.mark.slow
def test_the_locale_does_not_change_the_bytes(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(SNOWMAN, encoding="utf-8")
    line = f"gpuflow show {tmp_path / 'p.yaml'} --format yaml"
    plain = shell(line)
    ascii_only = shell(line, LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    assert (plain.returncode, "☃" in plain.stdout.decode("utf-8")) == (0, True)
    assert (ascii_only.returncode, ascii_only.stdout, ascii_only.stderr) == (0, plain.stdout, plain.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the machine has no /dev/full")
def test_a_full_disk_is_the_surroundings_fault_and_not_gpuflows() -> None:
    done = shell(f"gpuflow show {NIGHTLY} > /dev/full")
    assert (done.returncode, b"GF906" in done.stderr, b"GF999" in done.stderr) == (3, True, False)


@pytest.mark.parametrize(("words", "code"), [(f"show {NIGHTLY} >&-", 0), ("show nowhere.yaml 2>&-", 2)])
def test_a_closed_stream_does_not_change_the_exit_code(words: str, code: int) -> None:
    done = shell(f"gpuflow {words}")
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False)


def test_what_a_python_pipeline_prints_does_not_get_among_the_output(gpuflow: Gpuflow, tmp_path: Path) -> None:
    file = tmp_path / "p.py"
    file.write_text(
        'from gpuflow import Pipeline\nprint("noise")\nwith Pipeline("p") as p:\n    p.step("a", ["x"], image="i")\n'
    )
    answer = gpuflow("show", file, "--format", "json")
    assert (answer.code, answer.data["name"], answer.err) == (0, "p", "noise\n")


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="the machine has no /dev/shm")
def test_a_file_in_shared_memory_is_replaced_like_any_other() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        file = Path(folder, "out.yaml")
        for text in ("one\n", "two\n"):
            write_files({file: text})
        assert file.read_text() == "two\n"
