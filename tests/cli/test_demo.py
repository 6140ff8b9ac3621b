"""`gpuflow demo`: it trains for real, is killed for real, and leaves nothing behind, also where it is ended itself.

Tests gpuflow/cli/demo.py and gpuflow/demo/moons.py; tests/cli/test_check.py has what it says of three engines.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuflow.cli import demo
from gpuflow.demo import moons
from gpuflow.engines import ENGINES
from tests.cli.commands import DEMO, Gpuflow
from tests.conftest import ROOT
from tests.local.programs import marked, wait_for


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


@pytest.mark.slow
def test_it_is_killed_in_the_middle_and_ends_with_the_same_bits(
    gpuflow: Gpuflow, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = gpuflow("demo", "-o", "out")
    assert (answer.code, answer.err) == (0, "")
    text = answer.out.split("\ncompile ")[0]
    kill = re.search(r"^kill -9  in the middle of the training: (.*)$", text, re.MULTILINE)
    assert kill is not None and len(kill[1].split(", ")) >= 3  # gpuflow run, its supervisor, the training
    assert text.count("train started\n") == 1 and "train started (attempt 2)" in text
    assert "attempt 1: begins at epoch 0 of 600" in text
    assert re.search(r"attempt 2: begins at epoch [1-9]\d* of 600", text)
    assert "evaluate  succeeded, 3 of 3" in text
    assert text.endswith("\ndone: all 7 outputs have the same bits as those of a run that was not killed\n")
    assert list(temporary.iterdir()) == [] and str(temporary) not in answer.out
    assert max(map(len, answer.out.splitlines())) < 120
    for name in demo.PROGRAM:
        assert Path("out", name).read_bytes() == (DEMO / name).read_bytes()
    assert Path("out/airflow/moons.py").is_file()


@pytest.mark.slow
def test_what_has_other_bits_is_told_with_an_exit_code(
    gpuflow: Gpuflow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that does not keep all of its state in its checkpoint."""
    data = tmp_path / "data"
    shutil.copytree(DEMO, data)
    careless = (DEMO / "moons.py").read_text().replace("network = json.loads(Path(ckpt", "_ = json.loads(Path(ckpt")
    (data / "moons.py").write_text(careless)
    assert careless != (DEMO / "moons.py").read_text()
    monkeypatch.setattr(demo, "DATA", data)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    answer = gpuflow("demo")
    assert answer.code == 1 and "done: " not in answer.out
    assert re.search("^not as in a run that was not killed: .*train.model", answer.out, re.MULTILINE)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_demo_that_is_ended_leaves_nothing_behind(temporary: Path, number: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuflow", "demo"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # whoever runs the tests may ignore it
    )
    wait_for(lambda: any(temporary.glob("*/.gpuflow/runs/*/steps/train/1/log")), "the training")
    (folder,) = temporary.glob("gpuflow-demo-*")
    assert marked(folder)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == (130 if number == signal.SIGINT else 128 + number)
    assert err == "" and "Traceback" not in out
    assert list(temporary.iterdir()) == [] and marked(folder) == []


def test_without_linux_the_run_is_left_out_with_a_sentence(gpuflow: Gpuflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.platform", "darwin")
    answer = gpuflow("demo")
    assert answer.code == 0
    assert answer.out.startswith("Nothing is run: gpuflow run needs Linux, and this is darwin.")
    assert "kill -9" not in answer.out and answer.out.count("\ncompile ") == len(ENGINES)


def test_the_training_learns_and_is_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUFLOW_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("GPUFLOW_OUTPUTS", str(tmp_path))
    moons.main("prepare")
    points = json.loads((tmp_path / "data").read_text())
    assert len(points) == 200 and sum(moon for _, _, moon in points) == 100
    losses = []
    for epochs in (1, 20, 20):
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        moons.main("train", str(tmp_path / "data"), str(epochs))
        losses.append((tmp_path / "loss").read_text())
    assert losses[1] == losses[2] and float(losses[1]) < float(losses[0])
    moons.main("evaluate", str(tmp_path / "model"), "1")
    assert float((tmp_path / "accuracy").read_text()) > 0.8
    moons.main("report", "[0.5, 1.0]")
    assert (tmp_path / "accuracy").read_text() == "0.7500"
