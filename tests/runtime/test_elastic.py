"""Two real ranks (gloo, on the CPU): one decision for all, saves counted once, nobody hangs.

Tests gpuflow/runtime/elastic.py.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.harness import ROOT, environment, eventually, run, start

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed here (locks/frameworks.txt)")
EVERY = 1.0


def train(ranks: int, way: str, folder: Path, *words: str, limit: float = 240) -> tuple[list[dict[str, Any]], str]:
    """Start this many ranks and wait; what each left behind, and their messages. A hang fails the test."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    processes = []
    for rank in range(ranks):
        extra = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": port}
        extra |= {"MASTER_ADDR": "127.0.0.1", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.runtime.ranks", way, str(folder), *words]
        with (folder / f"log-{rank}").open("w") as log:
            processes.append(subprocess.Popen(command, env=environment(extra), cwd=ROOT, stdout=log, stderr=log))
    try:
        codes = [process.wait(limit) for process in processes]
    except subprocess.TimeoutExpired:
        pytest.fail(f"{way} with {ranks} ranks hangs: " + _logs(folder, ranks)[-1500:])
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert codes == [0] * ranks, _logs(folder, ranks)[-3000:]
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(ranks)], _logs(folder, ranks)


def _logs(folder: Path, ranks: int) -> str:
    return "".join((folder / f"log-{rank}").read_text() for rank in range(ranks))


def saves_counted_once(results: list[dict[str, Any]]) -> None:
    """As often as one rank alone would: once per interval and once at the end, by rank 0 only."""
    assert 1 <= results[0]["saves"] <= results[0]["seconds"] / EVERY + 1
    assert [result["saves"] for result in results[1:]] == [0] * (len(results) - 1)
    assert len({result["step"] for result in results}) == 1


def test_two_ranks_save_once_per_interval_and_a_notice_to_one_stops_both(tmp_path: Path) -> None:
    results, _ = train(2, "agree", tmp_path, f"every={EVERY}", "told=1@50")
    saves_counted_once(results)
    assert results[0]["step"] == 50
    assert results[0]["last"] == {"step": 50}


def test_after_a_resume_each_rank_draws_its_own_numbers_as_if_undisturbed(tmp_path: Path) -> None:
    whole, _ = train(2, "agree", tmp_path / "whole", "steps=12")
    train(2, "agree", tmp_path / "cut", "steps=12", "told=0@7")
    resumed, _ = train(2, "agree", tmp_path / "cut", "steps=12")
    assert [result["from"] for result in resumed] == [7, 7]
    assert [result["own"] for result in resumed] == [0, 1]
    for before, after in zip(whole, resumed, strict=True):
        assert {step: before["draws"][step] for step in after["draws"]} == after["draws"]
        assert before["weights"] == after["weights"]
    assert resumed[0]["draws"]["8"] != resumed[1]["draws"]["8"]
    one, said = train(1, "agree", tmp_path / "cut", "steps=13", "told=0@13")
    assert one[0]["from"] == 7
    assert "saved by 2 ranks and read by 1: rank by rank as far as both go" in said


def test_an_error_of_a_save_ends_every_rank_instead_of_leaving_the_others_waiting(tmp_path: Path) -> None:
    results, said = train(2, "agree", tmp_path, "every=0.2", "broken=1", "group=1")
    assert [result["error"] for result in results] == ["ZeroDivisionError", "SaveFailed"]
    assert "failed: ZeroDivisionError" in said


def test_lightning_with_two_ranks_saves_once_per_interval_and_stops_together(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning", reason="Lightning is not installed here")
    results, _ = train(2, "lightning", tmp_path, f"every={EVERY}", "told=1@50")
    saves_counted_once(results)
    assert 50 <= results[0]["step"] < 60


def test_lightning_with_two_ranks_goes_on_when_the_disk_is_full(tmp_path: Path) -> None:
    pytest.importorskip("pytorch_lightning", reason="Lightning is not installed here")
    results, said = train(2, "lightning", tmp_path, "every=0.5", "full=1", "steps=40", "told=0@35")
    assert results[0]["saves"] == 1
    assert "No space left on device; the program goes on" in said


def test_the_hugging_face_trainer_with_two_ranks_saves_once_per_interval_and_marks_after_all(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed here")
    results, _ = train(2, "huggingface", tmp_path, f"every={EVERY}", "told=1@50")
    saves_counted_once(results)
    assert results[0]["step"] == 50
    assert not results[1]["early"], "marked as finished before rank 1 had written"
    kept = sorted(name for name in os.listdir(tmp_path / "c") if not name.startswith("."))
    assert len(kept) == min(2, results[0]["saves"])
    assert "checkpoint-50" in kept


def test_torchrun_under_the_supervisor_saves_on_notice_and_goes_on_in_the_next_attempt(tmp_path: Path) -> None:
    def words(steps: int) -> list[object]:
        launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
        ranks = ["-m", "tests.runtime.ranks", "agree", tmp_path, f"steps={steps}", "every=1"]
        options = ["--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--grace", "20s"]
        return [*options, "--", *launch, *ranks]

    extra = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    process = start(*words(100_000), environ=extra)
    try:
        eventually(lambda: list((tmp_path / "s").rglob("manifest.json")), 90)
        process.terminate()
        _, said = process.communicate(timeout=120)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 75, said
    stopped = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert stopped[0]["step"] == stopped[1]["step"] == stopped[0]["last"]["step"]
    done = run(*words(stopped[0]["step"] + 1), environ=extra)
    assert done.returncode == 0, done.stderr[-2000:]
    resumed = [json.loads((tmp_path / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert [result["from"] for result in resumed] == [stopped[0]["step"]] * 2
