"""`gpuflow logs`: what is as large as a disk is read piece by piece, and what programs write is no order to a terminal.

Tests gpuflow/cli/logs.py; tests/local follows logs of runs that go on.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuflow.cli.logs import MOST
from gpuflow.local.record import create
from tests.cli.commands import Gpuflow
from tests.conftest import ROOT


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of the one attempt of `a`, in the only run of the current folder."""
    monkeypatch.chdir(tmp_path)
    facts = {"pipeline": "toy", "digest": "", "source": None, "params": {}, "site": "nvidia", "cwd": str(tmp_path)}
    run = create(Path(".gpuflow"), facts, "")
    run.write("started", step="a", attempt=1, pid=1, began=1)
    run.write("ended", step="a", attempt=1, state="succeeded")
    run.close()
    folder = run.attempt("a", 1)
    folder.mkdir(parents=True)
    return folder / "log"


def test_a_large_log_needs_little_memory(log: Path) -> None:
    with open(log, "w", encoding="utf-8") as file:
        for number in range(44_000):
            file.write(f"{number:09} {'x' * 990}\n")
        file.write("ä" * 4_000_000)  # one line without an end
    size = log.stat().st_size
    assert size > 50_000_000
    code = (
        "import tracemalloc; from gpuflow.cli.main import main\n"
        "import sys; main(['runs']); tracemalloc.start(); main(['logs', 'a'])\n"
        "print(tracemalloc.get_traced_memory()[1], file=sys.stderr)"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open("shown", "wb") as shown:
        done = subprocess.run(
            [sys.executable, "-c", code], env=environ, stdout=shown, stderr=subprocess.PIPE, check=True
        )
    assert int(done.stderr) < 5_000_000
    with open("shown", "rb") as shown_again, open(log, "rb") as file_again:
        shown_again.readline(), shown_again.readline()  # gpuflow runs
        while piece := file_again.read(1 << 20):
            assert shown_again.read(len(piece)) == piece
        assert shown_again.read() == b""


@pytest.mark.parametrize("color", ["NO_COLOR", "FORCE_COLOR"])
def test_what_a_program_wrote_is_no_order(
    gpuflow: Gpuflow, log: Path, monkeypatch: pytest.MonkeyPatch, color: str
) -> None:
    monkeypatch.setenv(color, "1")
    log.write_bytes(
        b"\x1b[31mred\x1b[0m \x1b]0;title\x07\n::error::x\n50 %\r100 %\n\xe2\x80\xaeright to left\n\xff\xe2\x82"
    )
    answer = gpuflow("logs", "a")
    assert answer.out.splitlines() == [
        r"\x1b[31mred\x1b[0m \x1b]0;title\x07",
        r"\x3a:error::x",
        r"50 %\r100 %",
        r"\u202eright to left",
        "��",
    ]


def test_a_character_is_not_cut_where_a_piece_ends(gpuflow: Gpuflow, log: Path) -> None:
    text = f"x{'ä€' * MOST}\nend\n"
    log.write_text(text, encoding="utf-8")
    assert gpuflow("logs", "a").out == text
