"""Gangs on this machine: real ranks, killed and told to stop; and how the end of an attempt is judged.

Tests gpuflow/local/gangs.py.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.local import Console, attempt, gangs
from gpuflow.local.attempt import End
from gpuflow.local.machine import Wanted, wanted_of
from gpuflow.local.preflight import Setting, refusals
from gpuflow.local.record import RunFolder, runs_in
from gpuflow.plan import planned_step
from gpuflow.runtime.base import outcomes
from gpuflow.runtime.gangs.attempt_verdict import judge
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from tests.cli.commands import Gpuflow
from tests.conftest import ROOT
from tests.local.programs import call, finish, kill, marked, outputs, run_steps, start, states, wait_for, write
from tests.local.test_machine import A100, a100, l4, room, smi

__all__ = ["smi"]
QUICK = "beat=0.5,lost=6,settle=6,linger=0.2"
TOYS = ROOT / "tests" / "runtime"


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Supervisors that wait no longer for each other than a test has time."""
    monkeypatch.setenv("GPUFLOW_GANG_TIMES", QUICK)


def only_run() -> RunFolder:
    (found,) = runs_in(Path(".gpuflow"))
    return found.read()


# -- who a rank is

TELL = """
import json, os, sys
name, rank = sys.argv[1], os.environ["GPUFLOW_RANK"]
said = {key: value for key, value in os.environ.items() if key.startswith(("PET_", "GPUFLOW_", "OWN"))}
with open(f"{name}-{rank}.json", "w") as file:
    json.dump(said, file)
with open(os.path.join(os.environ["GPUFLOW_OUTPUTS"], "who"), "w") as file:
    file.write(f"{name}-{rank}")
print("I am", rank)
if len(sys.argv) > 2:  # it ends when the other gang is there too
    while not os.path.exists(f"{sys.argv[2]}-0.json"):
        pass
"""
ALL = """steps:
  tune:
    for_each: {n: [0, 1]}
    params: {n: {item: n}}
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: inner
      params: {n: {type: int}}
      defaults: {image: registry.example.com/toy:1}
      outputs: {who: {output: train.who}}
      steps:
        other: {command: [sh, -c, 'echo $((1 - $0)) > $GPUFLOW_OUTPUTS/n', {param: n}], outputs: {n: int}}
        train:
          gang: {workers: 2, rendezvous: {framework: torchrun, port: 29555, processes_per_worker: 3}}
          cpu: 100m
          command: [python3, tell.py, {text: 'train$(n)'}, {text: 'train$(o)'}]
          outputs: {who: string}
  led:
    needs: [tune]
    gang: {workers: 2, leader: {command: [python3, tell.py, leader], env: {OWN: led, OWN_ONLY: null}}}
    env: {OWN: worked, OWN_ONLY: x}
    command: [python3, tell.py, worker]
    outputs: {who: string}
    checkpoint: {path: /checkpoints, store: s3://models/toy}
"""


def said_by(name: str) -> dict[str, str]:
    found: dict[str, str] = json.loads(Path(f"{name}.json").read_text())
    return found


def test_ranks_are_told_who_they_are_and_gangs_that_run_together_do_not_meet(here: Path) -> None:
    (here / "tell.py").write_text(TELL)
    text = ALL.replace("{text: 'train$(n)'}", "{join: [train, {param: n}]}")
    result = run_steps(text.replace("{text: 'train$(o)'}", "{join: [train, {output: other.n}]}"), jobs=8)
    assert result.state == "succeeded", result.steps
    assert outputs(result)["tune"] == {"who": ["train0-0", "train1-0"]} and outputs(result)["led"]["who"] == "leader-0"
    ports = set()
    for copy, rank in itertools.product((0, 1), (0, 1)):
        said = said_by(f"train{copy}-{rank}")
        ports.add((copy, said["PET_MASTER_PORT"]))
        expected = {"GPUFLOW_RANK": rank, "GPUFLOW_WORLD_SIZE": 2, "GPUFLOW_LEADER": "127.0.0.1", "PET_NNODES": 2}
        expected |= {"PET_NODE_RANK": rank, "PET_MASTER_ADDR": "127.0.0.1", "PET_NPROC_PER_NODE": 3}
        assert expected.items() <= {key: json.loads(f'"{said[key]}"') if key in ("GPUFLOW_LEADER", "PET_MASTER_ADDR")
                                    else int(said[key]) for key in expected}.items()  # fmt: skip
    assert len(ports) == 2 and len({port for _, port in ports}) == 2
    ranks = [said_by("leader-0"), said_by("worker-1"), said_by("worker-2")]
    assert [(each["GPUFLOW_RANK"], each["OWN"], each.get("OWN_ONLY")) for each in ranks] == [
        ("0", "led", None),
        ("1", "worked", "x"),
        ("2", "worked", "x"),
    ]
    assert len({each["GPUFLOW_CHECKPOINT_DIR"] for each in ranks}) == 3
    assert not any("PET_NNODES" in each or "GPUFLOW_GANG_SECRET" in each for each in ranks)


def test_the_logs_of_a_gang_are_told_apart(capsys: pytest.CaptureFixture[str], here: Path) -> None:
    (here / "tell.py").write_text(TELL)
    gpuflow = Gpuflow(capsys)
    file = write(here, "steps:\n  a: {gang: 2, cpu: 100m, command: [python3, tell.py, a]}\n")
    answer = gpuflow("run", file, "--format", "json")
    assert answer.code == 0 and answer.data["steps"] == [
        {"name": "a", "state": "succeeded", "attempts": 1, "outputs": {}}
    ]
    both = gpuflow("logs", "a").out
    assert both.index("== a, attempt 1, rank 0") < both.index("I am 0") < both.index("rank 1\n") < both.index("I am 1")
    assert "I am 1" in gpuflow("logs", "a", "--rank", "1").out and "I am 1" not in gpuflow("logs", "a", "--rank", 0).out
    refused = gpuflow("logs", "a", "--rank", "2")
    assert refused.code == 2 and "GF927 run" in refused.err and "at rank 2" in refused.err


def test_mpirun_starts_its_processes_on_the_ranks(here: Path) -> None:
    daemon = "echo daemon of $GPUFLOW_RANK; echo x >> $HERE/daemon-$GPUFLOW_RANK"
    text = f"""steps:
  a:
    gang: {{workers: 3, rendezvous: {{framework: mpi}}}}
    cpu: 100m
    env: {{HERE: {here}, TOY_DAEMON: '{daemon}'}}
    command: [{sys.executable}, {TOYS / "mpirun_toy.py"}]
"""
    result = run_steps(text)
    assert result.state == "succeeded", result.steps
    assert sorted(each.name for each in here.glob("daemon-*")) == ["daemon-0", "daemon-1", "daemon-2"]
    assert "daemon of 2" in (only_run().attempt("a", 1) / "rank-0" / "log").read_text()


# -- one reason, one budget

FAILS = """steps:
  a:
    gang: 3
    cpu: 100m
    retry: {failures: 1}
    script: |
      echo rank $GPUFLOW_RANK attempt $GPUFLOW_ATTEMPT
      test $GPUFLOW_ATTEMPT = 1 || exit 0
      test $GPUFLOW_RANK = 1 && exit 3
      exec sleep 60
  b: {needs: [a], gang: 2, cpu: 100m, retry: {failures: 5, final_exit_codes: [9]},
      script: 'exit $((9 * $GPUFLOW_RANK))'}
"""


def test_a_rank_that_fails_ends_the_attempt_and_costs_one_failure(here: Path) -> None:
    lines: list[str] = []
    result = run_steps(FAILS, console=Console(lines.append))
    assert states(result) == {"a": "succeeded", "b": "failed"}
    assert [each.attempts for each in result.steps] == [2, 1]
    told = "\n".join(lines)
    assert "a failed after" in told and "rank 1: " in told and "a is tried again now" in told
    assert "| rank 1 attempt 1" in told and "| rank 2" not in told
    assert result.steps[1].because.startswith("rank 1: ")
    assert marked(here) == []


# -- going on

TRAINING = f"""steps:
  train:
    gang: {{workers: 3, rendezvous: {{framework: torchrun}}}}
    cpu: 100m
    checkpoint: {{path: /checkpoints, store: s3://models/toy, every: 1s, grace: 8s, sharded: true}}
    retry: {{interruptions: 2}}
    env: {{TOY_STEPS: 60, TOY_EVERY: 2, HERE: HERE_, TOY_CORRUPT: HERE_/corrupt}}
    command: [sh, slow.sh, {sys.executable}, {TOYS / "shard_toy.py"}]
    outputs: {{digest: string}}
"""
SLOW = 'export TOY_PORT=$PET_MASTER_PORT TOY_PAUSE=0.01\ntest $GPUFLOW_ATTEMPT = 1 && TOY_PAUSE=1\nexec "$@"\n'
"""The first attempt takes a minute, which no test waits for."""


@pytest.fixture
def training(here: Path) -> str:
    (here / "slow.sh").write_text(SLOW)
    return str(write(here, TRAINING.replace("HERE_", str(here))))


def digest_undisturbed(size: int = 3, steps: int = 60) -> str:
    """What the training comes to, by its own arithmetic."""

    def after(mine: str, everyone: list[str]) -> str:
        return hashlib.sha256((mine + "".join(everyone)).encode()).hexdigest()

    digests = [f"start {rank}" for rank in range(size)]
    for _ in range(steps):
        digests = [after(each, digests) for each in digests]
    return after("", digests)


def is_kept() -> bool:
    """Whether a checkpoint with the parts of all ranks is in the store."""
    return any(Path(".gpuflow").glob("runs/*/checkpoints/**/manifest.json"))


def supervisors() -> list[int]:
    return [pid for pid, _ in only_run().steps["train"].supervisors]


def programs_of(rank: int) -> list[int]:
    """The processes of a rank but its supervisor."""
    found = []
    for pid in set(marked(Path.cwd())) - set(supervisors()):
        if f"/train/1/{rank}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
            found.append(pid)
    return found


@pytest.mark.parametrize(
    "killed", ["the run", "a supervisor", "the supervisor of rank 0", "everything", "the run is told to stop"]
)
def test_whoever_is_killed_the_result_is_the_same(here: Path, training: str, killed: str) -> None:
    process = start(training)
    wait_for(is_kept, "a checkpoint of all ranks")
    if killed in ("a supervisor", "the supervisor of rank 0"):
        kill(supervisors()[0 if killed.endswith("0") else 1])
        code, said, lines = finish(process)
        assert f"rank {0 if killed.endswith('0') else 1}: its supervisor was killed by signal 9" in lines
    else:
        everything = [process.pid, *marked(here)]
        if killed == "the run is told to stop":
            process.send_signal(signal.SIGTERM)
            code, said, lines = finish(process)
            assert (code, said["state"]) == (75, "interrupted") and marked(here) == [], lines
        else:
            kill(*(everything if killed == "everything" else [process.pid]))
            process.communicate()
        code, said, lines = call(training, "--resume")
        assert ("ending what still runs of run" in lines) == (killed == "the run"), lines
    assert (code, said["state"]) == (0, "succeeded"), lines
    assert said["steps"] == [
        {"name": "train", "state": "succeeded", "attempts": 2, "outputs": {"digest": digest_undisturbed()}}
    ], lines
    second = [(only_run().attempt("train", 2) / f"rank-{rank}" / "log").read_text() for rank in range(3)]
    assert all("resume" in each for each in second), second
    assert not Path("corrupt").exists() and marked(here) == []


COPIES = f"""steps:
  train:
    for_each: {{n: [1, 2]}}
    gang: {{workers: 2, rendezvous: {{framework: torchrun}}}}
    cpu: 100m
    retry: {{interruptions: 1}}
    checkpoint: {{path: /checkpoints, store: s3://models/toy, every: 1s, grace: 5s}}
    env: {{TOY_STEPS: 100, TOY_CORRUPT: HERE_/corrupt}}
    command: [sh, slow.sh, {sys.executable}, {TOYS / "gang_toy.py"}]
    outputs: {{digest: string}}
"""


def test_a_copy_that_is_interrupted_comes_to_what_the_other_comes_to(here: Path) -> None:
    (here / "slow.sh").write_text(SLOW.replace("TOY_PAUSE=1", "TOY_PAUSE=0.1"))
    process = start(str(write(here, COPIES.replace("HERE_", str(here)))))
    wait_for(is_kept, "a checkpoint")
    kill(only_run().steps["train@1"].supervisors[1][0])
    code, said, lines = finish(process)
    assert code == 0 and "train@1 interrupted after" in lines and "train@0 interrupted" not in lines, lines
    first, second = said["steps"][0]["outputs"]["digest"]
    assert first == second and not Path("corrupt").exists()


def test_a_program_that_is_killed_is_one_failure_and_the_others_do_not_outlive_it(here: Path, training: str) -> None:
    process = start(training)
    wait_for(lambda: all((here / f"up-{rank}").exists() for rank in range(3)), "all ranks")
    kill(*programs_of(2))
    code, said, lines = finish(process)
    assert (code, said["state"], said["steps"][0]["attempts"]) == (1, "failed", 1), lines
    assert marked(here) == []


def test_what_has_ended_while_nobody_looked_is_not_done_again(here: Path) -> None:
    text = "steps:\n  a: {gang: 2, cpu: 100m, script: 'while test ! -e go; do sleep 0.05; done; echo x >> done'}\n"
    process = start(str(write(here, text)))
    wait_for(lambda: len(marked(here)) >= 4, "the programs")
    kill(process.pid)
    process.communicate()
    Path("go").touch()
    wait_for(lambda: not marked(here), "the end of the gang")
    code, said, _ = call("toy.yaml", "--resume")
    assert code == 0 and said["steps"][0]["attempts"] == 1 and Path("done").read_text() == "x\nx\n"


# -- what there is for all ranks

WANTED = Wanted(gpus=1, model="a100-80gb")


def test_all_ranks_or_none() -> None:
    given = room(a100(0), a100(1), a100(2), cpu="4")
    first = given.take_all([WANTED, WANTED])
    assert first is not None and len({each.gpus[0].uuid for each in first}) == 2
    assert given.take_all([WANTED, WANTED]) is None and given.take(WANTED) is not None
    for share in first:
        given.give_back(share)
    assert given.take_all([WANTED, WANTED]) is not None


def test_a_gpu_that_only_one_rank_can_use_is_left_to_it() -> None:
    leader, worker = Wanted(gpus=1), Wanted(gpus=1, model="a100-80gb")
    for ranks in ([leader, worker], [worker, leader]):
        shares = room(a100(0), l4(1)).take_all(ranks)
        assert shares is not None
        models = {wanted.model: share.gpus[0].models for wanted, share in zip(ranks, shares, strict=True)}
        assert models["a100-80gb"] == ("a100-80gb",)


def test_ranks_that_ask_for_no_cpu_run_on_fewer_cpus() -> None:
    shares = room(cpu="2").take_all([Wanted()] * 16)
    assert shares is not None and sum(share.cpu.milli for share in shares) == 2000


def test_what_all_ranks_can_never_have_is_one_sentence() -> None:
    asked = Step("s", image="i", command=["x"], gang=3, gpu="a100-80gb", memory="20Gi", cpu=4)
    assert room(a100(0), a100(1)).missing(*gangs.wanted_by(asked)) == (
        "its 3 ranks together ask for 12 CPU, 60Gi of memory, 3 x a100-80gb, and this machine has 8 CPU, 32.0Gi of "
        "memory, 2 x a100-80gb"
    )
    shares = room(a100(0), a100(1), pretend=True).take_all(gangs.wanted_by(asked))
    assert shares is not None and all(share.is_pretended for share in shares)
    assert "its 3 ranks run at the same time, and no more than 2" in (room(jobs=2).missing(*[Wanted()] * 3) or "")
    led = Step("s", image="i", command=["x"], gang={"workers": 2, "leader": {"gpu": None}}, gpu="a100-80gb")
    assert [each.gpus for each in gangs.wanted_by(led)] == [0, 1, 1] and wanted_of(led).gpus == 1


def test_too_few_resources_are_said_before_anything_starts(here: Path, smi: Any) -> None:
    smi(A100)
    text = "steps:\n  a: {gang: 2, gpu: a100-80gb, cpu: 100m, command: [sh, -c, 'echo $CUDA_VISIBLE_DEVICES > gpu']}\n"
    with pytest.raises(GpuflowError, match=r"GF920.*its 2 ranks together ask for 2 x a100-80gb"):
        run_steps(text)
    with pytest.raises(GpuflowError, match=r"GF920.*no more than 1 programs"):
        run_steps(text, jobs=1, pretend_gpus=True)
    assert not Path(".gpuflow").exists()


def test_each_rank_has_gpus_of_its_own_and_two_gangs_wait_for_each_other(here: Path, smi: Any) -> None:
    smi(A100, A100.replace("0, GPU-5a1f", "1, GPU-6b2e"))
    script = "mkdir busy-$GPUFLOW_RANK && echo $CUDA_VISIBLE_DEVICES > gpu-$GPUFLOW_RANK && rmdir busy-$GPUFLOW_RANK"
    text = f"steps:\n  a: {{for_each: {{n: [1, 2]}}, gang: 2, gpu: a100-80gb, cpu: 100m, script: '{script}'}}\n"
    lines: list[str] = []
    assert run_steps(text, console=Console(lines.append)).state == "succeeded", lines
    assert {Path(f"gpu-{rank}").read_text() for rank in (0, 1)} == {"GPU-5a1f\n", "GPU-6b2e\n"}
    assert any("a@1 waits for 2 GPUs" in line for line in lines)


def test_a_gang_is_not_run_in_containers_yet(here: Path) -> None:
    pipeline = Pipeline("p", steps={"a": {"image": "i", "command": ["true"], "gang": 2}})
    planned = planned_step(pipeline, "a", Site.load("nvidia"))
    setting = Setting({}, here, containers=attempt.Containers.__new__(attempt.Containers))
    found = refusals([planned], type("", (), {"by_name": {}, "pipeline": pipeline})(), room(), setting)
    assert [each.code for each in found] == ["GF923"] and "one network" in found[0].message


def test_the_limit_of_open_files_bounds_how_many_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 4096))
    given = room(jobs=500)
    assert 10 < given.jobs < 85
    assert given.told == (
        f"--jobs 500: {given.jobs} programs run at the same time at most, because this process may have 256 files open "
        "(ulimit -n)",
    )
    assert room(jobs=4).told == () and room(jobs=4).jobs == 4
    assert room().missing(*[Wanted()] * 200) is not None


def test_many_jobs_do_not_run_out_of_files(here: Path) -> None:
    text = "steps:\n  a: {for_each: {n: {range: 40}}, cpu: 10m, command: ['true']}\n"
    file = write(here, text.replace("{range: 40}", str(list(range(40)))))
    words = [sys.executable, "-m", "gpuflow", "run", str(file), "--jobs", "300"]
    limited = ["sh", "-c", 'ulimit -n 48; exec "$@"', "sh", *words]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(limited, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "files open (ulimit -n)" in done.stdout


# -- ports


def test_two_attempts_never_have_one_port() -> None:
    first, second = gangs.Ports(29500), gangs.Ports(29500)
    assert abs(first.first - second.first) > 1
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        third = gangs.Ports(port)
        assert third.first not in (port, port - 1)
    free = first.first
    for each in (first, second, third):
        each.close()
    again = gangs.Ports(free)
    assert again.first == free
    again.close()


# -- how an attempt ended, as the launcher judges it

CODES = (0, 1, 7, 75, 78, 79, 124, 143, -9)
WORDS = {75: outcomes.INTERRUPTED, 124: outcomes.TIMED_OUT, 79: outcomes.FINAL, 143: outcomes.INTERRUPTED}


def verdict_of(codes: tuple[int, ...]) -> str:
    """What the launcher says of pods that have ended with these codes; one that is killed is gone without a word."""
    pods, gone = [], set()
    for rank, code in enumerate(codes):
        name = f"rank-{rank}"
        ended = {"terminated": {"exitCode": code, "finishedAt": f"2026-11-19T10:00:0{rank}Z"}}
        status: dict[str, Any] = {"phase": "Succeeded" if code == 0 else "Failed"}
        status["containerStatuses"] = [{"name": "main", "state": ended}]
        if code < 0:
            gone.add(name)
            status = {"phase": "Running"}
        pods.append({"metadata": {"name": name, "uid": name}, "status": status})
    kind = "Completed" if not any(codes) else "Failed"
    state = {"conditions": [{"type": kind, "status": "True", "reason": "FailedJobs"}]}
    said = judge({"metadata": {"name": "a"}, "status": state}, [], pods, gone=gone, final_exit_codes=(7,))
    assert said is not None
    return said.outcome


@pytest.mark.parametrize("codes", list(itertools.product(CODES, repeat=2)), ids=str)
def test_the_end_is_the_one_that_the_launcher_finds(codes: tuple[int, ...], tmp_path: Path) -> None:
    pipeline = Pipeline(
        "p",
        steps={"a": {"image": "i", "command": ["x"], "gang": 2, "retry": {"failures": 9, "final_exit_codes": [7]}}},
    )
    planned = planned_step(pipeline, "a", Site.load("nvidia"))
    for rank, code in enumerate(codes):
        folder = gangs.rank_folder(tmp_path, rank)
        folder.mkdir()
        facts = {"gpuflow": 1, "outcome": WORDS.get(code, "failed (retryable)"), "because": f"rank {rank}: so"}
        (folder / "end").write_text("" if code < 0 else json.dumps({**facts, "exit_code": code}))
    end = gangs.end_of(planned, tmp_path, tmp_path, dict(enumerate(codes)))
    again = attempt.is_tried_again(planned, end, attempt.Spent(failures=1))
    expected = verdict_of(codes)
    if expected == outcomes.FINAL:
        assert not again
    else:
        state = {outcomes.SUCCEEDED: "succeeded", outcomes.INTERRUPTED: "interrupted"}.get(expected, "failed")
        assert end.state == state and (end.outcome == outcomes.TIMED_OUT) == (expected == outcomes.TIMED_OUT)
        assert again or state != "failed"


def test_what_a_rank_says_that_was_ended_for_another_is_no_reason() -> None:
    planned = planned_step(
        Pipeline("p", steps={"a": {"image": "i", "command": ["x"], "gang": 2}}), "a", Site.load("nvidia")
    )
    stopped = End("interrupted", 75, "rank 0 was told to stop", outcomes.INTERRUPTED)
    refused = End("failed", 78, "gpuflow-run cannot work")
    assert gangs.agree(planned, {0: stopped, 1: refused}, {0}).code == 78
    assert gangs.agree(planned, {0: stopped, 1: refused}, set()).code == 75
