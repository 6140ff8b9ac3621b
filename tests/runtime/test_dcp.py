"""A training that is sharded over real processes (FSDP, gloo, on the CPU): saved in parts, resumed bit for bit.

`python -m proofs gangs` kills it more often: SHARD_KILLS and SHARD_SEED.
"""

from __future__ import annotations

import json
import os
import pickle
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from proofs.shards import Killing, undisturbed
from tests.runtime.harness import ROOT, environment

torch: Any = pytest.importorskip("torch", reason="PyTorch is not installed here (locks/frameworks.txt)")
KILLS = int(os.environ.get("SHARD_KILLS", "2"))


def start(ranks: int, folder: Path, *words: str, own: bool = False, **more: str) -> list[subprocess.Popen[bytes]]:
    """So many processes; with `own`, each has a checkpoint directory that no other sees."""
    folder.mkdir(exist_ok=True)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    found = []
    for rank in range(ranks):
        extra = {"RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_PORT": port, "MASTER_ADDR": "127.0.0.1"}
        extra |= {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", **more}
        extra |= {"GPUFLOW_CHECKPOINT_DIR": str(folder / f"c{rank}")} if own else {}
        command = [sys.executable, "-m", "tests.runtime.shard_training", str(folder), *words]
        with (folder / f"log-{rank}").open("w") as log:
            found.append(subprocess.Popen(command, env=environment(extra), cwd=ROOT, stdout=log, stderr=log))
    return found


def results(processes: list[subprocess.Popen[bytes]], folder: Path, codes: int = 0) -> list[dict[str, Any]]:
    try:
        found = [process.wait(300) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert set(found) == {codes}, said(folder)[-3000:]
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(len(processes))]


def said(folder: Path) -> str:
    return "".join(path.read_text() for path in sorted(folder.glob("log-*")))


def newest(folder: Path) -> Path:
    return sorted(folder.glob("checkpoint-*"))[-1]


def test_four_ranks_stop_at_one_step_and_two_load_the_same_state(tmp_path: Path) -> None:
    whole = results(start(4, tmp_path / "whole", "steps=14", "every=100"), tmp_path / "whole")
    processes = start(4, tmp_path / "cut", "steps=100000", "every=4", "pause=0.05", "digests=1")
    while not (tmp_path / "cut" / "c" / "checkpoint-00000001").exists():
        assert processes[0].poll() is None, said(tmp_path / "cut")
        time.sleep(0.05)
    processes[2].send_signal(signal.SIGTERM)
    cut = results(processes, tmp_path / "cut")
    step = cut[0]["step"]
    assert [each["step"] for each in cut] == [step] * 4, "all stop at the same step, though one alone was told"
    two = results(start(2, tmp_path / "cut", f"steps={step}"), tmp_path / "cut")
    assert [each["from"] for each in two] == [step] * 2
    assert two[0]["loaded"] == two[1]["loaded"] == cut[0]["digest"], "the same state, sharded over two"
    assert "saved by 4 ranks and read by 2: the weights are the same" in said(tmp_path / "cut")
    if step < 14:
        again = results(start(4, tmp_path / "cut", "steps=14", "every=100"), tmp_path / "cut")
        assert [each["digest"] for each in again] == [each["digest"] for each in whole], "bit for bit"


def test_each_directory_gets_the_shards_of_its_own_ranks_and_one_has_the_index(tmp_path: Path) -> None:
    results(start(2, tmp_path, "steps=3", own=True), tmp_path)
    first, second = (newest(tmp_path / f"c{rank}") for rank in range(2))
    assert first.name == second.name
    names = [{path.name for path in folder.iterdir()} for folder in (first, second)]
    assert names[0] == {".metadata", "__0_0.distcp", "rank-00000.pt", ".gpuflow-complete"}
    assert names[1] == {"__1_0.distcp", "rank-00001.pt", ".gpuflow-complete"}
    marker = ".gpuflow-complete"
    assert (first / marker).read_text() == (second / marker).read_text() != ""
    assert not list(tmp_path.glob("c*/.checkpoint*")) and not list(tmp_path.glob("c*/.gpuflow-here*"))


def test_a_disk_that_refuses_one_rank_is_no_checkpoint_on_any_and_training_goes_on(tmp_path: Path) -> None:
    """Rank 1 cannot write more than its checkpoint is large."""
    told = results(start(2, tmp_path, "steps=6", "due=1", own=True, FULL_DISK="1"), tmp_path)
    assert [each["step"] for each in told] == [6, 6]
    assert said(tmp_path).count("could not be written: [Errno 28]") >= 2, said(tmp_path)
    assert not list(tmp_path.glob("c*/checkpoint-*"))


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch " + str(Path(os.environ.get("EVIL", "/tmp")) / "evil"),)


def test_an_index_that_would_run_code_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVIL", str(tmp_path))
    from gpuflow.runtime import checkpointing, dcp

    monkeypatch.chdir(tmp_path)
    model = torch.nn.Linear(2, 2)
    with checkpointing(str(tmp_path / "c")) as ckpt:
        saver = dcp.Saver(ckpt, model, torch.optim.AdamW(model.parameters()))
        saver.save(step=1)
        ckpt.wait()
        index = newest(tmp_path / "c") / ".metadata"
        kept = index.read_bytes()
        index.write_bytes(pickle.dumps(Evil()))
        with pytest.raises(Exception, match="is not plain data"):
            saver.restore()
        assert not (tmp_path / "evil").exists()
        index.write_bytes(kept.replace(b"__0_0.distcp", b"../_0.distcp"))
        with pytest.raises(Exception, match="names a file outside of the checkpoint"):
            saver.restore()
        index.write_bytes(kept)
        assert saver.restore() == {"step": 1}


def test_what_was_not_saved_by_it_is_refused_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuflow.runtime import checkpointing, dcp

    (tmp_path / "c" / "x").mkdir(parents=True)
    monkeypatch.setenv("GPUFLOW_RESUME_FROM", str(tmp_path / "c" / "x"))
    with checkpointing(str(tmp_path / "c")) as ckpt, pytest.raises(ValueError, match=r"has no \.metadata"):
        dcp.Saver(ckpt, torch.nn.Linear(2, 2)).restore()


def test_four_supervised_ranks_killed_at_random_end_bit_for_bit_as_undisturbed(tmp_path: Path) -> None:
    killing = Killing(tmp_path, "fsdp", KILLS, os.environ.get("SHARD_SEED", "7"))
    assert killing.run() == undisturbed(killing)
    print(dict(killing.killed), dict(killing.codes), killing.resumed)
    assert killing.killed.total() == KILLS
