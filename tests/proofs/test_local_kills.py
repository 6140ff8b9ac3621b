"""Small parts of the proof of killed local runs: what is drawn, what it sees, and two pipelines hurt until done."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.local.attempt import kill_all
from gpuflow.spec.loading import loads
from proofs.local_kills.__main__ import is_hit, prove, summary
from proofs.local_kills.drawing import KINDS, PROGRAM, draw
from proofs.local_kills.judging import checkpoints_in, differences, faults_at_end, faults_of_turn, found_in
from proofs.local_kills.striking import Scene, Turn

SPEC = {"ticks": 1, "save": 0, "on_term": "die", "fails": "", "helper": False, "outputs": {"v": "int"}}
COMMAND = [sys.executable, "-I", "-S", str(PROGRAM), "a"]
CHECKPOINT = {"path": "/ckpt", "store": "s3://models/a", "grace": "2s"}
ONE = {
    "apiVersion": "gpuflow/v1",
    "kind": "Pipeline",
    "name": "kills",
    "defaults": {"image": "registry.example.com/kills:1"},
    "steps": {
        "a": {
            "command": [*COMMAND, json.dumps({**SPEC, "save": 1})],
            "outputs": {"v": "int"},
            "checkpoint": CHECKPOINT,
        }
    },
}


def test_what_is_drawn_is_a_pipeline_and_has_every_kind() -> None:
    names = set[str]()
    for number in range(60):
        document, approve = draw(5, number)
        pipeline = loads(yaml.safe_dump(document, sort_keys=False), "x.yaml")
        assert all(pipeline.steps[name].approval for name in approve)
        names |= {name.rstrip("0123456789") for name in document["steps"]}
    assert names == {kind.partition("_")[0] for kind in KINDS}


@pytest.fixture
def scene(tmp_path: Path) -> Any:
    yield Scene(tmp_path / "scene", ONE, [])
    kill_all(str(tmp_path))


def test_what_must_never_be_is_seen(scene: Scene) -> None:
    turn = scene.turn(None, 0.0)
    path = scene.run_folder()
    assert turn.code == 0 and path is not None, turn.lines
    found, faults = found_in(path), list[str]()
    kept = checkpoints_in(path, faults)
    assert list(found) == ["a"] and len(kept) == 1
    assert faults_of_turn(scene, turn, found, "succeeded") + faults_at_end(scene) + faults == []

    assert "FALSE SUCCESS" in faults_of_turn(scene, turn, found, "failed")[0]
    other = {"a": ["succeeded", {"v": "12345"}]}
    assert "succeeded with" in faults_of_turn(scene, turn, other, "succeeded")[0]
    assert differences("the end", other, found)
    assert "ended with 3" in faults_of_turn(scene, Turn(3, {}, ""), found, "succeeded")[0]
    assert "Traceback" in faults_of_turn(scene, Turn(1, {}, "Traceback"), found, "succeeded")[0]
    (scene.folder / "journal").write_text("")
    assert "never came to its end" in faults_of_turn(scene, turn, found, "succeeded")[0]
    (state,) = path.glob("checkpoints/**/state")
    state.write_text(state.read_text().replace('"step": 1', '"step": 9'))
    checkpoints_in(path, faults)
    assert "of no state of its work" in faults[0]
    with (path / "journal.jsonl").open("a") as journal:
        journal.write('{"time": "", "event": "started", "step": "a", "attempt": 2, "pid": 1, "began": 1}\n')
    assert faults_at_end(scene) == ["a was started again after it had succeeded"]


def test_a_program_says_when_another_one_runs(tmp_path: Path) -> None:
    environ = {**os.environ, "KILLS_PLACE": str(tmp_path), "GPUFLOW_LOCAL": "/x/runs/r/a/1"}
    environ["GPUFLOW_OUTPUTS"] = str(tmp_path)
    words = [*COMMAND, json.dumps(SPEC)]
    subprocess.run(words, env=environ, check=True)
    assert not (tmp_path / "twice").exists()
    (lock,) = (tmp_path / "locks").iterdir()
    with lock.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        subprocess.run(words, env=environ, check=True)
    assert (tmp_path / "twice").read_text() == "a /x/runs/r/a/1 began while another one ran\n"
    assert (tmp_path / "journal").read_text().splitlines()[-1] == "done a None"


def test_pipelines_that_are_hurt_end_as_undisturbed(tmp_path: Path) -> None:
    rows = prove(2, 7, 1, tmp_path / "rows.jsonl")
    assert [row["faults"] for row in rows] == [[], []]
    assert "0 false successes, 0 twice at once, 0 corrupt, 0 wrong in all" in summary(rows)
    assert prove(2, 7, 1, tmp_path / "rows.jsonl") == rows, "what is known is not tried again"
    assert any(is_hit(row) for row in rows)
