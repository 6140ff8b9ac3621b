"""Going on with a run: after every kind of end, with the same bits; and what is decided when its source was changed.

Tests gpuflow/local/resume.py, gpuflow/local/record.py and gpuflow/local/events.py.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.local import run
from gpuflow.local.record import RunFolder, runs_in
from tests.local.programs import (
    TRAIN,
    TRAINING,
    VALUE,
    call,
    finish,
    kill,
    marked,
    outputs,
    run_steps,
    start,
    states,
    wait_for,
    write,
)

HOLD = Path("hold")


@pytest.fixture
def training(here: Path) -> str:
    """A pipeline whose training waits in its middle, until it is told to stop or `hold` is gone."""
    (here / "train.py").write_text(TRAIN)
    HOLD.touch()
    return str(write(here, TRAINING))


def only_run() -> RunFolder:
    (found,) = runs_in(Path(".gpuflow"))
    return found.read()


def supervisor() -> int:
    ((pid, _),) = only_run().steps["train"].supervisors
    return pid


def reached() -> bool:
    """Whether the training waits in its middle, and what was saved before is kept."""
    return Path("reached").exists() and any(Path(".gpuflow").glob("runs/*/checkpoints/**/manifest.json"))


@pytest.mark.parametrize("killed", ["run", "supervisor", "program", "run and supervisor", "all"])
def test_whoever_is_killed_the_result_is_the_same(training: str, here: Path, killed: str) -> None:
    process = start(training)
    wait_for(reached, "the middle of the training")
    inner = supervisor()
    programs = [pid for pid in marked(here) if pid != inner]
    victims = {"run": [process.pid], "supervisor": [inner], "program": programs}
    for who in ["run", "supervisor", "program"] if killed == "all" else killed.split(" and "):
        kill(*victims[who])
    if killed in ("supervisor", "program"):
        HOLD.unlink()
        code, said, lines = finish(process)
        if killed == "program":  # killed by nobody whom its supervisor knows: a failure, and there is no budget for it
            assert (code, said["state"]) == (1, "failed"), lines
            code, said, lines = call(training, "--resume")
    else:
        process.communicate()
        assert process.returncode == -signal.SIGKILL
        assert bool(marked(here)) == (killed != "all")
        # What still runs is told to stop, and has stopped before anything is started: `hold` is there.
        again = start(training, "--resume")
        wait_for(lambda: only_run().steps["train"].attempts == 2, "the next attempt")
        HOLD.unlink()
        code, said, lines = finish(again)
    assert (code, said["state"]) == (0, "succeeded"), lines
    assert said["steps"][0]["outputs"] == {"value": VALUE} and said["steps"][0]["attempts"] == 2
    assert Path("last").read_text() == f"{VALUE}\n"
    log = (only_run().attempt("train", 2) / "log").read_text()
    assert "from 16" in log or "from 8" in log
    assert marked(here) == []


def test_an_attempt_that_ended_while_nobody_looked_is_not_done_again(training: str) -> None:
    process = start(training)
    wait_for(reached, "the middle of the training")
    kill(process.pid)
    process.communicate()
    HOLD.unlink()
    end = only_run().attempt("train", 1) / "end"
    wait_for(lambda: end.read_text(), "the end of the training")
    wait_for(lambda: not marked(Path.cwd()), "the end of its supervisor")
    code, said, _ = call(training, "--resume")
    assert code == 0 and [each["attempts"] for each in said["steps"]] == [1, 1]
    assert said["steps"][0]["outputs"] == {"value": VALUE}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_keeps_what_was_done_and_goes_on_from_there(training: str, number: signal.Signals) -> None:
    process = start(training)
    wait_for(reached, "the middle of the training")
    process.send_signal(number)
    code, said, lines = finish(process)
    assert code == 75 and said["state"] == "interrupted"
    assert [each["state"] for each in said["steps"]] == ["interrupted", "not run"]
    assert f"--resume {said['run']}" in lines and "Traceback" not in lines
    HOLD.unlink()
    code, again, _ = call(training, "--resume", said["run"])
    assert code == 0 and again["run"] == said["run"] and again["steps"][0]["outputs"] == {"value": VALUE}
    assert "from 16" in (only_run().attempt("train", 2) / "log").read_text()


def test_told_twice_it_ends_at_once(here: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); open('deaf', 'w'); time.sleep(60)"
    text = f'steps:\n  a: {{command: [python3, -c, "{deaf}"], termination_grace: 50s}}\n'
    process = start(str(write(here, text)))
    wait_for(Path("deaf").exists, "the program")
    process.send_signal(signal.SIGINT)
    wait_for(lambda: any(here.glob(".gpuflow/runs/*/lock")), "the run")
    time.sleep(0.2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, said, _ = finish(process)
    assert code == 75 and said["state"] == "interrupted"
    assert marked(here) == []


def test_a_wait_between_attempts_is_ended_by_a_signal(here: Path) -> None:
    process = start(str(write(here, "steps:\n  a: {command: ['false'], retry: {failures: 1, backoff: 1h}}\n")))
    wait_for(lambda: any("ended" in each.read_text() for each in here.glob(".gpuflow/runs/*/journal.jsonl")), "its end")
    process.send_signal(signal.SIGTERM)
    code, said, _ = finish(process)
    assert code == 75 and said["steps"][0]["state"] == "interrupted"


def test_two_runs_at_once_do_not_meet(training: str) -> None:
    HOLD.unlink()
    processes = [start(training) for _ in range(2)]
    found = [finish(process) for process in processes]
    assert [code for code, _, _ in found] == [0, 0]
    assert all(said["steps"][0]["outputs"] == {"value": VALUE} for _, said, _ in found)
    assert len({said["run"] for _, said, _ in found}) == 2


def test_one_run_has_one_process(training: str) -> None:
    process = start(training)
    wait_for(reached, "the middle of the training")
    code, _, lines = call(training, "--resume")
    assert code == 2 and "GF924" in lines and str(process.pid) in lines
    HOLD.unlink()
    assert finish(process)[0] == 0


def test_a_failed_run_goes_on_where_it_failed(here: Path) -> None:
    text = "steps:\n  a: {command: [sh, -c, 'echo x >> a']}\n"
    text += "  b: {needs: [a], command: [test, -e, ok], retry: {failures: 1}}\n"
    text += "exit:\n  bye: {command: [sh, -c, 'echo x >> bye']}\n"
    assert run_steps(text).state == "failed"
    Path("ok").touch()
    result = run(here / "toy.yaml", resume="")
    assert result.state == "succeeded"
    assert {each.name: each.attempts for each in result.steps} == {"a": 1, "b": 3, "bye": 2}
    assert (Path("a").read_text(), Path("bye").read_text()) == ("x\n", "x\nx\n")
    with pytest.raises(GpuflowError, match="GF926"):
        run(here / "toy.yaml", resume="")


def test_a_fan_out_keeps_the_copies_that_are_done(here: Path) -> None:
    text = "steps:\n  a:\n    for_each: {n: [1, 2, 3]}\n    outputs: {v: int}\n"
    script = "echo $0 >> began; test $0 != 2 || test -e ok && echo $0 > $GPUFLOW_OUTPUTS/v"
    text += f"    command: [sh, -c, '{script}', {{item: n}}]\n"
    assert run_steps(text).state == "failed"
    Path("ok").touch()
    result = run(here / "toy.yaml", resume="")
    assert outputs(result) == {"a": {"v": [1, 2, 3]}}
    assert sorted(Path("began").read_text().split()) == ["1", "2", "2", "3"]


def test_what_is_inside_a_sub_pipeline_is_shown_again(here: Path) -> None:
    text = "steps:\n  a:\n    for_each: {n: [1, 2]}\n    params: {n: {item: n}}\n    pipeline:\n"
    text += (
        "      {apiVersion: gpuflow/v1, kind: Pipeline, name: inner, params: {n: {type: int}}, defaults: {image: x},\n"
    )
    text += "       outputs: {v: {output: b.v}}, steps: {b: {outputs: {v: int}, command: "
    text += "[sh, -c, 'echo x >> began; echo $0 > $GPUFLOW_OUTPUTS/v', {param: n}]}}}\n"
    text += "  c: {command: [test, {output: a.v}, '=', '[1,2]', -a, -e, ok]}\n"
    first = run_steps(text)
    Path("ok").touch()
    again = run(here / "toy.yaml", resume="")
    assert again.state == "succeeded" and count("began") == 2
    assert outputs(first) == outputs(again) == {"a": {"v": [1, 2]}, "a@0.b": {"v": 1}, "a@1.b": {"v": 2}}
    result = run(here / "toy.yaml", only="c")
    assert result.state == "succeeded" and count("began") == 2 and outputs(result) == {"a": {"v": [1, 2]}}


CHAIN = """steps:
  a: {command: [sh, -c, 'echo x >> a; echo 1 > $GPUFLOW_OUTPUTS/v'], outputs: {v: int}}
  b: {command: [sh, -c, 'echo x >> b; echo $(($0 + 1)) > $GPUFLOW_OUTPUTS/v', {output: a.v}], outputs: {v: int}}
  c: {command: [sh, -c, 'echo $0 >> c; test -e ok', {output: b.v}]}
"""


def count(name: str) -> int:
    return len(Path(name).read_text().split())


def test_steps_are_done_anew_with_what_follows_from_them(here: Path) -> None:
    Path("ok").touch()
    run_steps(CHAIN)
    result = run(here / "toy.yaml", again=["b"])
    assert result.state == "succeeded" and len(runs_in(Path(".gpuflow"))) == 1
    assert (count("a"), count("b"), count("c")) == (1, 2, 2)


def test_one_step_takes_what_it_needs_from_a_finished_run(here: Path) -> None:
    Path("ok").touch()
    first = run_steps(CHAIN)
    result = run(here / "toy.yaml", only="c")
    assert result.run != first.run and states(result) == {"a": "succeeded", "b": "succeeded", "c": "succeeded"}
    assert (count("a"), count("b"), count("c")) == (1, 1, 2)
    with pytest.raises(GpuflowError, match="GF926"):
        run(write(here, CHAIN.replace("steps:", "parallel: 2\nsteps:"), "other.yaml"), only="c", folder="elsewhere")


def test_a_step_alone_needs_what_the_other_run_has_not(here: Path) -> None:
    run_steps(CHAIN, until="a")
    with pytest.raises(GpuflowError, match='GF929 step "c" needs b'):
        run(here / "toy.yaml", only="c")


def test_until_a_step(here: Path) -> None:
    result = run_steps(CHAIN + "exit: {bye: {command: ['false']}}\n", until="b")
    assert result.state == "succeeded" and states(result) == {"a": "succeeded", "b": "succeeded", "c": "not run"}


def test_a_changed_source_is_said_and_decided(here: Path) -> None:
    assert run_steps(CHAIN).state == "failed"
    Path("ok").touch()
    file = write(here, CHAIN.replace("test -e ok", "test -e ./ok") + "  d: {command: ['true']}\n")
    with pytest.raises(GpuflowError, match=r"GF925 .*: c, d") as refused:
        run(file, resume="")
    assert "--edited" in str(refused.value)
    result = run(file, resume="", edited=True)
    assert result.state == "succeeded" and (count("a"), count("b")) == (1, 1)

    file = write(here, CHAIN.replace("$0 + 1", "$0 + 2"))
    with pytest.raises(GpuflowError, match=r"GF925 .*b succeeded with the old one") as refused:
        run(file, again=["c"], edited=True)
    assert "--again b" in str(refused.value)
    result = run(file, again=["b"], edited=True)
    assert outputs(result) == {"a": {"v": 1}, "b": {"v": 3}} and Path("c").read_text().split()[-1] == "3"


def test_a_spelling_is_no_change(here: Path) -> None:
    run_steps(CHAIN)
    Path("ok").touch()
    file = write(here, "# a comment\n" + CHAIN)
    assert run(file, resume="").state == "succeeded"


def test_a_run_keeps_its_parameters(here: Path) -> None:
    text = "params: {p: {type: int, default: 1}}\nsteps:\n"
    text += "  a: {command: [sh, -c, 'test -e ok && test $0 = 5', {param: p}]}\n"
    assert run_steps(text, params={"p": 5}).state == "failed"
    Path("ok").touch()
    with pytest.raises(GpuflowError, match="GF930"):
        run(here / "toy.yaml", resume="", params={"p": 6})
    assert run(here / "toy.yaml", resume="").state == "succeeded"


def test_a_parameter_that_is_new_gets_its_value(here: Path) -> None:
    text = "steps:\n  a: {command: [test, -e, ok]}\n"
    assert run_steps(text).state == "failed"
    Path("ok").touch()
    said = "[sh, -c, 'echo $0 > said', {param: p}]"
    file = write(here, f"params: {{p: {{type: int}}}}\nsteps:\n  a: {{command: {said}}}\n")
    with pytest.raises(GpuflowError, match="GF931"):
        run(file, resume="", edited=True)
    with pytest.raises(GpuflowError, match="GF925"):  # nothing was taken over
        run(file, resume="", params={"p": 7})
    assert run(file, resume="", edited=True, params={"p": 7}).state == "succeeded"
    assert Path("said").read_text() == "7\n" and only_run().facts().params == {"p": 7}


def test_copies_and_inner_steps_that_succeeded_with_the_old_source_are_not_kept_in_silence(here: Path) -> None:
    text = "steps:\n  a:\n    for_each: {n: [1, 2, 3]}\n    outputs: {v: int}\n"
    text += "    command: [sh, -c, 'test $0 != 3 || test -e ok && echo $0 > $GPUFLOW_OUTPUTS/v', {item: n}]\n"
    text += "  t:\n    pipeline:\n      {apiVersion: gpuflow/v1, kind: Pipeline, name: inner, defaults: {image: x},\n"
    text += "       steps: {x: {command: ['true']}, y: {needs: [x], command: [test, -e, ok]}}}\n"
    assert run_steps(text).state == "failed"
    Path("ok").touch()
    for old, new, again in (("[1, 2, 3]", "[7, 8, 9]", "a"), ("['true']", "[test, 1]", "t")):
        file = write(here, text.replace(old, new))
        with pytest.raises(GpuflowError, match=f"--again {again}"):
            run(file, resume="", edited=True)
    result = run(write(here, text.replace("[1, 2, 3]", "[7, 8, 9]")), again=["a"])
    assert result.state == "succeeded" and outputs(result)["a"] == {"v": [7, 8, 9]}


def test_a_step_alone_has_the_parameters_and_the_source_of_the_other_run(here: Path) -> None:
    text = "params: {p: {type: int, default: 1}}\nsteps:\n"
    text += "  a: {command: [sh, -c, 'echo $0 > $GPUFLOW_OUTPUTS/v', {param: p}], outputs: {v: int}}\n"
    text += "  b: {command: [sh, -c, 'echo $0 $1 > b', {param: p}, {output: a.v}]}\n"
    assert run_steps(text, params={"p": 5}).state == "succeeded"
    assert run(here / "toy.yaml", only="b").state == "succeeded" and Path("b").read_text() == "5 5\n"
    with pytest.raises(GpuflowError, match="GF930"):
        run(here / "toy.yaml", only="b", params={"p": 6})
    file = write(here, text.replace("echo $0 >", "echo $(($0 + 1)) >"))
    with pytest.raises(GpuflowError, match=r'GF925 .*what "b" needs has changed since .*: a'):
        run(file, only="b")
    assert run(file, only="b", edited=True).state == "succeeded" and Path("b").read_text() == "5 5\n"


def test_a_step_alone_does_not_find_an_empty_claim(here: Path) -> None:
    text = "steps:\n  a: {command: [sh, -c, 'echo 1 > /data/v'], volumes: {/data: {claim: c}}}\n"
    text += "  b: {needs: [a], command: [sh, -c, 'cat /data/v'], volumes: {/data: {claim: c}}}\n"
    first = run_steps(text)
    assert first.state == "succeeded"
    with pytest.raises(GpuflowError, match="GF929") as refused:
        run(here / "toy.yaml", only="b")
    assert f"--resume {first.run} --again b" in str(refused.value)
    assert run(here / "toy.yaml", resume=first.run, again=["b"]).state == "succeeded"


def test_runs_of_one_moment_are_in_their_order(here: Path) -> None:
    ids = [run_steps("steps:\n  a: {command: ['true']}\n").run for _ in range(4)]
    assert [each.id for each in runs_in(Path(".gpuflow"))] == ids[::-1]


def test_another_folder_keeps_its_files_in_git(here: Path) -> None:
    run_steps("steps:\n  a: {command: ['true']}\n", folder=".")
    assert not Path(".gitignore").exists() and Path("runs", ".gitignore").read_text() == "*\n"


def test_a_folder_by_another_name_is_the_same_run(training: str, here: Path) -> None:
    process = start(training)
    wait_for(reached, "the training")
    before = supervisor()
    kill(process.pid)
    process.communicate()
    (here / "link").symlink_to(here / ".gpuflow")
    process = start(training, "--resume", "--folder", "link")
    wait_for(lambda: before not in marked(here), "the end of what was left")
    HOLD.unlink()
    code, document, lines = finish(process)
    assert (code, document["state"]) == (0, "succeeded") and "ending what still runs" in lines


def test_exit_steps_run_again_after_what_was_done_again(here: Path) -> None:
    text = "steps:\n  a: {command: [test, -e, ok]}\nexit:\n  bye: {command: [sh, -c, 'echo x >> bye']}\n"
    text += "  slow: {command: [sh, -c, 'touch slow; test -e ok || sleep 60']}\n"
    process = start(str(write(here, text)))
    wait_for(lambda: Path("slow").exists() and only_run().step("bye").state == "succeeded", "the exit steps")
    process.send_signal(signal.SIGTERM)
    assert finish(process)[0] == 75
    Path("ok").touch()
    assert run(here / "toy.yaml", resume="").state == "succeeded" and count("bye") == 2


def test_a_torn_line_of_the_journal_says_nothing(here: Path) -> None:
    run_steps(CHAIN)
    found = only_run()
    journal = found.path / "journal.jsonl"
    torn = journal.read_bytes()
    last = json.loads(torn.splitlines()[-1])
    assert last["event"] == "closed"
    journal.write_bytes(torn[: -len(torn.splitlines()[-1]) // 2])
    assert only_run().state == "interrupted"
    Path("ok").touch()
    assert run(here / "toy.yaml", resume="").state == "succeeded"
    assert only_run().state == "succeeded" and count("a") == 1


def test_whatever_is_cut_off_the_journal_the_run_goes_on(here: Path) -> None:
    """Each beginning of a journal is one that a machine may have left when it went down."""
    Path("ok").touch()
    first = run_steps(CHAIN)
    whole = (first.folder / "journal.jsonl").read_bytes()
    ends = [at for at, letter in enumerate(whole) if letter == ord("\n")][:-1]
    for at in ends[::3]:
        (first.folder / "journal.jsonl").write_bytes(whole[: at - 5])
        assert run(here / "toy.yaml", resume=first.run).state == "succeeded"
    assert outputs(first)["b"] == {"v": 2} and os.listdir(".gpuflow/runs") == [first.run]
