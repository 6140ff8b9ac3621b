"""What a person sees of gpuflow-run: exit codes, variables, signals, budgets, outputs, last words.

Tests gpuflow/runtime/base/termination_message.py, gpuflow/runtime/supervise/main.py and
gpuflow/runtime/supervise/supervisor.py.
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

from gpuflow.runtime.base import options as table
from gpuflow.runtime.base import termination_message
from gpuflow.runtime.base.records import KeptOutput, text_digest
from gpuflow.runtime.state.attempts import History
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.supervise.supervisor import Attempt
from gpuflow.runtime.supervise.supervisor import run as supervise
from tests.runtime.harness import environment, eventually, python, run, shell, start, words

PAUSE = "print('up', flush=True)\nsignal.pause()"


@pytest.fixture
def state(tmp_path: Path) -> tuple[str, ...]:
    return ("--state", str(tmp_path / "state"), "--run-id", "r", "--outputs-dir", str(tmp_path / "out"))


def marker(tmp_path: Path) -> Path:
    return tmp_path / "state" / "default" / "r" / "default" / "success.json"


# -- exit codes


@pytest.mark.parametrize("code", [0, 1, 3, 64, 127, 255])
def test_the_commands_own_exit_code_is_passed_through(code: int) -> None:
    assert run(*shell(f"exit {code}")).returncode == code


@pytest.mark.parametrize("code", [75, 78, 79])
def test_a_command_cannot_pose_as_the_supervisor(code: int, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    done = run("--termination-log", log, *shell(f"exit {code}"))
    facts = termination_message.parse(log.read_text())
    assert done.returncode == 1
    assert facts is not None
    assert (facts["exit_code"], facts["own_exit_code"]) == (1, code)


def test_a_command_killed_by_a_signal_ends_as_a_shell_would_say() -> None:
    assert run(*shell("kill -9 $$")).returncode == 137


def test_a_command_that_ends_as_after_a_notice_that_nobody_gave_is_not_said_to_have_been_told() -> None:
    done = run(*shell("exit 143"))
    assert done.returncode == 143
    assert "interrupted: exit code 143: so ends a program after SIGTERM, though its supervisor did not" in done.stderr


def test_a_command_that_does_not_exist_is_final_and_named() -> None:
    done = run("--", "no-such-program-anywhere")
    assert done.returncode == 79
    assert "no-such-program-anywhere: No such file or directory" in done.stderr


def test_no_command_is_a_bad_configuration() -> None:
    done = run("--keep", "2")
    assert done.returncode == 78
    assert "there is no command" in done.stderr


def test_an_unknown_option_is_a_bad_configuration_that_names_it() -> None:
    done = run("--chekpoint-dir", "/x", "--", "true")
    assert done.returncode == 78
    assert "--chekpoint-dir" in done.stderr


def test_a_store_without_a_run_is_refused(tmp_path: Path) -> None:
    done = run("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--", "true")
    assert done.returncode == 78
    assert "--run-id" in done.stderr


def test_storage_that_is_not_there_at_the_start_is_78(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    done = run("--state", tmp_path / "file" / "x", "--run-id", "r", "--storage-timeout", "300ms", "--", "true")
    assert done.returncode == 78
    assert "storage cannot be used" in done.stderr


# -- streams and processes


def test_output_passes_unchanged_byte_for_byte() -> None:
    code = "import sys; sys.stdout.buffer.write(bytes(range(256)) * 999); sys.stderr.buffer.write(b'\\xff\\x00e')"
    done = subprocess.run(words(*python(code)), env=environment(), capture_output=True, timeout=120)
    assert done.stdout == bytes(range(256)) * 999
    assert done.stderr == b"\xff\x00e"


def test_output_and_errors_to_one_place_keep_their_order(tmp_path: Path) -> None:
    code = "import sys\nfor i in range(200):\n print('o', i, flush=True); print('e', i, file=sys.stderr, flush=True)"
    with (tmp_path / "both").open("wb") as both:
        subprocess.run(words(*python(code)), env=environment(), stdout=both, stderr=subprocess.STDOUT, timeout=60)
    lines = (tmp_path / "both").read_text().split("\n")[:-1]
    assert lines == [f"{kind} {i}" for i in range(200) for kind in "oe"]


def test_user_text_reaches_the_command_as_it_is() -> None:
    weird = ["$HOME", "a b", "{{x}}", "'\"", "--", "--keep", "ä\n", ""]
    done = run("--", sys.executable, "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *weird)
    assert json.loads(done.stdout) == weird


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare")
def test_as_process_one_it_reaps_orphans_and_obeys_term(tmp_path: Path) -> None:
    code = (
        "import os, time\n"
        "for _ in range(5):\n"
        "    middle = os.fork()\n"
        "    if middle == 0:\n"
        "        os.fork()\n"
        "        os._exit(0)\n"
        "    os.waitpid(middle, 0)\n"
        "zombies = ['?']\n"
        "while zombies:\n"
        "    time.sleep(0.1)\n"
        "    zombies = [p for p in os.listdir('/proc') if p.isdigit() and ' Z 1 ' in open(f'/proc/{p}/stat').read()]\n"
        "print('parent', os.getppid(), 'zombies', len(zombies), flush=True)\n"
        "time.sleep(60)\n"
    )
    inside = words("--grace", "5s", *python(code))
    process = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child", *inside],
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "parent 1 zombies 0\n"
    first = next(int(p) for p in os.listdir("/proc") if p.isdigit() and _parent(int(p)) == process.pid)
    os.kill(first, signal.SIGTERM)
    assert process.wait(120) == 75


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1


def test_other_signals_are_passed_on() -> None:
    code = "import signal, sys\nsignal.signal(signal.SIGUSR1, lambda *a: sys.exit(7))\n" + PAUSE
    process = start(*python(code))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    assert process.wait(120) == 7


# -- interruption


@pytest.mark.parametrize("reaction", ["sys.exit(0)", "sys.exit(3)", "os._exit(143)"])
def test_told_to_stop_is_interrupted_whatever_the_command_then_says(
    reaction: str, tmp_path: Path, state: tuple[str, ...]
) -> None:
    code = f"import signal, sys, os\nsignal.signal(signal.SIGTERM, lambda *a: {reaction})\n{PAUSE}"
    process = start(*state, "--grace", "5s", *python(code))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 75
    assert not marker(tmp_path).exists()


def test_a_command_that_ignores_term_is_killed_inside_the_grace() -> None:
    process = start(
        "--grace",
        "1s",
        *python("import signal, time\nsignal.signal(15, signal.SIG_IGN)\nprint('up', flush=True)\ntime.sleep(60)"),
    )
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 75


def test_a_program_behind_a_shell_hears_term_and_may_finish_saving(tmp_path: Path) -> None:
    code = (
        "import signal, sys, time, pathlib\n"
        "def stop(*a):\n    time.sleep(0.5); pathlib.Path('saved').touch(); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('up', flush=True)\ntime.sleep(60)"
    )
    (tmp_path / "t.py").write_text(code)
    process = start("--grace", "30s", *shell(f"{sys.executable} t.py; echo never"), cwd=tmp_path)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 75
    assert (tmp_path / "saved").exists()


def test_a_last_checkpoint_saved_on_term_reaches_the_store(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys, time\n"
        "d = os.environ['GPUFLOW_CHECKPOINT_DIR']\n"
        "def stop(*a):\n"
        "    open(d + '/.last', 'w').write('last words'); os.rename(d + '/.last', d + '/last'); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('up', flush=True)\ntime.sleep(60)"
    )
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--grace", "10s")
    process = start(*options, *python(code))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 75, said
    if "inotify cannot be had" in said:
        pytest.skip("other programs of this user hold all instances of inotify: a quick save cannot be heard of")
    shutil.rmtree(tmp_path / "c")
    done = run(*options, *shell('cat "$GPUFLOW_RESUME_FROM"'))
    assert (done.returncode, done.stdout) == (0, "last words"), said + done.stderr


# -- variables


def test_the_container_sees_the_documented_variables(tmp_path: Path) -> None:
    show = python(
        "import os, json; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('GPUFLOW_')}))"
    )
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--timeout", "1h")
    seen = json.loads(run(*options, "--grace", "20s", "--outputs-dir", tmp_path / "o", *show).stdout)
    assert seen["GPUFLOW_CHECKPOINT_DIR"] == str(tmp_path / "c")
    assert seen["GPUFLOW_OUTPUTS"] == str(tmp_path / "o")
    assert (seen["GPUFLOW_ATTEMPT"], seen["GPUFLOW_INTERRUPTIONS"]) == ("1", "0")
    assert "GPUFLOW_RESUME_FROM" not in seen
    assert 0 < float(seen["GPUFLOW_GRACE"]) < 20
    assert int(seen["GPUFLOW_DEADLINE"]) > 3600


def test_options_come_from_variables_and_the_command_line_wins(tmp_path: Path) -> None:
    environ = {"GPUFLOW_RUN_CHECKPOINT_DIR": str(tmp_path / "v"), "GPUFLOW_RUN_STEP": "s", "GPUFLOW_RUN_RUN_ID": "r"}
    show = shell('echo "$GPUFLOW_CHECKPOINT_DIR"')
    assert run(*show, environ=environ).stdout == f"{tmp_path / 'v'}\n"
    assert run("--checkpoint-dir", tmp_path / "w", *show, environ=environ).stdout == f"{tmp_path / 'w'}\n"


def test_resume_env_names_the_checkpoint_too(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--resume-env", "FROM")
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; echo x >.x; mv .x one; exit 4'
    assert run(*options, *shell(save)).returncode == 4
    done = run(*options, *shell('test "$FROM" = "$GPUFLOW_RESUME_FROM" && cat "$FROM"'))
    assert (done.returncode, done.stdout) == (0, "x\n")


def test_a_stale_resume_variable_of_the_image_is_not_passed_on(tmp_path: Path) -> None:
    done = run(
        "--checkpoint-dir",
        tmp_path / "c",
        *shell('echo "[$GPUFLOW_RESUME_FROM]"'),
        environ={"GPUFLOW_RESUME_FROM": "/x"},
    )
    assert done.stdout == "[]\n"


# -- budgets


def test_failures_are_counted_in_the_store_and_the_last_one_is_final(state: tuple[str, ...]) -> None:
    codes = [run(*state, "--failures", "2", *shell("exit 5")).returncode for _ in range(4)]
    assert codes == [5, 5, 79, 79]


def test_final_stays_final_without_running_the_command_again(state: tuple[str, ...], tmp_path: Path) -> None:
    run(*state, "--failures", "0", *shell("exit 5"))
    done = run(*state, "--failures", "0", *shell(f"touch {tmp_path}/ran"))
    assert done.returncode == 79
    assert not (tmp_path / "ran").exists()
    assert "forget" in done.stderr


def test_after_final_renew_starts_with_fresh_budgets(state: tuple[str, ...]) -> None:
    options = (*state, "--failures", "1", "--after-final", "renew")
    assert [run(*options, *shell("exit 5")).returncode for _ in range(4)] == [5, 79, 5, 79]


def test_interruptions_never_cost_failures(state: tuple[str, ...]) -> None:
    options = (*state, "--failures", "1", "--interruptions", "5", "--grace", "3s")
    for _ in range(3):
        process = start(*options, *shell("echo up; sleep 60"))
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 75
    assert run(*options, *shell('echo "$GPUFLOW_INTERRUPTIONS $GPUFLOW_ATTEMPT"; exit 5')).stdout == "3 4\n"
    assert run(*options, *shell("exit 5")).returncode == 79


def test_an_attempt_that_left_no_word_costs_an_interruption(state: tuple[str, ...]) -> None:
    options = (*state, "--interruptions", "1")
    for _ in range(2):
        process = start(*options, *shell("echo up; sleep 60"))
        assert process.stdout is not None
        process.stdout.readline()
        process.kill()
        process.wait(120)
    done = run(*options, *shell("echo ran"))
    assert (done.returncode, done.stdout) == (79, "")
    assert "2 interruptions so far; the budget of 1 is spent" in done.stderr


def test_the_interruption_that_spends_the_budget_is_final(state: tuple[str, ...]) -> None:
    process = start(*state, "--interruptions", "0", *shell("echo up; sleep 60"))
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 79


def test_exit_codes_the_step_calls_final_are_79_at_once(state: tuple[str, ...]) -> None:
    assert run(*state, "--final-exit-codes", "2,3", "--failures", "9", *shell("exit 3")).returncode == 79


def test_exit_codes_that_are_not_listed_as_retryable_are_79(state: tuple[str, ...]) -> None:
    assert run(*state, "--retryable-exit-codes", "9", *shell("exit 9")).returncode == 9
    assert run(*state, "--retryable-exit-codes", "9", *shell("exit 8")).returncode == 79


def test_budgets_without_a_place_to_count_them_are_refused() -> None:
    done = run("--failures", "2", "--", "true")
    assert done.returncode == 78
    assert "--state" in done.stderr


def test_two_fan_out_items_count_apart(state: tuple[str, ...]) -> None:
    options = (*state, "--failures", "0")
    assert run(*options, "--item", "a/b", *shell("exit 5")).returncode == 79
    assert run(*options, "--item", "a", *shell("exit 0")).returncode == 0
    assert run(*options, *shell("exit 0")).returncode == 0


def test_forget_gives_a_run_its_budgets_back(state: tuple[str, ...]) -> None:
    assert run(*state, "--failures", "0", *shell("exit 5")).returncode == 79
    assert run("forget", *state).returncode == 0
    assert run(*state, "--failures", "0", *shell("exit 0")).returncode == 0


# -- success


def test_zero_means_that_a_whole_marker_was_written(tmp_path: Path, state: tuple[str, ...]) -> None:
    assert run(*state, "--output", "loss:float", *shell('echo 0.25 >"$GPUFLOW_OUTPUTS/loss"')).returncode == 0
    written = json.loads(marker(tmp_path).read_text())
    assert written["attempt"] == 1
    assert written["outputs"]["loss"]["value"] == "0.25"
    assert {"time", "hash", "id"} <= set(written)


def test_a_step_that_has_succeeded_gives_its_outputs_again_and_does_not_run(
    tmp_path: Path, state: tuple[str, ...]
) -> None:
    run(*state, "--output", "n:int", *shell('echo 7 >"$GPUFLOW_OUTPUTS/n"'))
    shutil.rmtree(tmp_path / "out")
    done = run(*state, "--output", "n:int", *shell(f"touch {tmp_path}/ran"))
    assert done.returncode == 0
    assert (tmp_path / "out" / "n").read_text() == "7"
    assert not (tmp_path / "ran").exists()


def test_after_success_again_starts_from_nothing(tmp_path: Path) -> None:
    options = (
        "--checkpoint-dir",
        tmp_path / "c",
        "--store",
        tmp_path / "s",
        "--run-id",
        "r",
        "--after-success",
        "again",
    )
    save = 'echo "[$GPUFLOW_RESUME_FROM]"; cd "$GPUFLOW_CHECKPOINT_DIR"; echo x >.x; mv .x one'
    assert [run(*options, *shell(save)).stdout for _ in range(2)] == ["[]\n", "[]\n"]


def test_a_broken_marker_is_no_success(tmp_path: Path, state: tuple[str, ...]) -> None:
    run(*state, *shell("true"))
    marker(tmp_path).write_text(marker(tmp_path).read_text().replace('"attempt":1', '"attempt":2'))
    assert run(*state, *shell("echo ran")).stdout == "ran\n"


def test_a_missing_output_is_a_failure_and_no_marker(tmp_path: Path, state: tuple[str, ...]) -> None:
    done = run(*state, "--output", "loss", *shell("true"))
    assert done.returncode == 1
    assert 'the output "loss" was not written' in done.stderr
    assert not marker(tmp_path).exists()


def test_an_output_of_the_wrong_type_is_a_failure(state: tuple[str, ...]) -> None:
    done = run(*state, "--output", "n:int", *shell('echo many >"$GPUFLOW_OUTPUTS/n"'))
    assert done.returncode == 1
    assert "is not of type int" in done.stderr


# -- outputs where engines look


def test_argo_and_kubeflow_find_text_without_the_last_newline(tmp_path: Path, state: tuple[str, ...]) -> None:
    write = shell(f'printf "a\\n\\n" >"$GPUFLOW_OUTPUTS/x"; echo 3 >{tmp_path}/elsewhere')
    options = ("--engine", "kubeflow", "--output", "x", "--output", f"n:int={tmp_path}/elsewhere")
    assert run(*state, *options, "--deliver", f"n={tmp_path}/kfp/n/data", *write).returncode == 0
    assert (tmp_path / "out" / "x").read_text() == "a\n"
    assert (tmp_path / "out" / "n").read_text() == "3"
    assert (tmp_path / "kfp" / "n" / "data").read_text() == "3"


def test_artifacts_are_kept_at_their_uri(tmp_path: Path, state: tuple[str, ...]) -> None:
    write = shell('mkdir "$GPUFLOW_OUTPUTS/m"; echo w >"$GPUFLOW_OUTPUTS/m/w"; echo f >"$GPUFLOW_OUTPUTS/f"')
    options = ("--output", "m:directory", "--artifact", f"m={tmp_path}/kept", "--output", "f:file")
    done = run(*state, *options, "--artifact", f"f={tmp_path}/one", *write)
    assert done.returncode == 0, done.stderr
    folder, file = (Path((tmp_path / "out" / f"{name}.uri").read_text()) for name in "mf")
    assert re.fullmatch(rf"{tmp_path}/kept/000001-[0-9a-f]{{8}}/files", str(folder))
    assert (folder / "w").read_text() == "w\n"
    assert re.fullmatch(rf"{tmp_path}/one/000001-[0-9a-f]{{8}}/files/f", str(file))
    assert file.read_text() == "f\n"


# -- last words


def test_the_last_words_are_a_sentence_and_facts(tmp_path: Path, state: tuple[str, ...]) -> None:
    log = tmp_path / "log"
    log.touch()
    run(*state, "--termination-log", log, "--failures", "3", *shell("exit 9"))
    assert log.read_text().startswith("gpuflow-run: attempt 1 failed (retryable): exit code 9")
    facts = termination_message.parse(log.read_text())
    assert facts is not None
    assert (facts["outcome"], facts["failures"], facts["interruptions"]) == ("failed (retryable)", 1, 0)


CUDA = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB."
NCCL = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2356, remote process exited"
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("words", "code", "because"),
    [(CUDA, 1, "the GPU is out of memory"), (NCCL, 1, "NCCL communication failed"), (XID, 75, "the GPU failed")],
)
def test_a_failure_is_explained_from_its_last_words(
    words: str, code: int, because: str, state: tuple[str, ...]
) -> None:
    done = run(*state, *shell(f'echo "{words}" >&2; exit 1'))
    assert done.returncode == code
    assert because in done.stderr


def test_a_missing_module_is_final_where_the_supervisor_counts(state: tuple[str, ...]) -> None:
    assert run(*python("import no_such_module_anywhere")).returncode == 1
    done = run(*state, "--failures", "5", *python("import no_such_module_anywhere"))
    assert done.returncode == 79
    assert "No module named 'no_such_module_anywhere'" in done.stderr


# -- ownership


def test_an_older_attempt_that_is_still_alive_stops_and_is_not_green(tmp_path: Path) -> None:
    common = ("--store", tmp_path / "s", "--run-id", "r", "--every", "0s", "--grace", "5s")
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; i=0; while true; do i=$((i+1)); echo $i >.x; mv .x c$i; sleep 0.1; done'
    old = start("--checkpoint-dir", tmp_path / "a", *common, *shell(save))
    eventually(lambda: list((tmp_path / "s").rglob("manifest.json")))
    new = run("--checkpoint-dir", tmp_path / "b", *common, *shell("sleep 1"))
    assert old.wait(120) == 75
    assert old.stderr is not None
    assert "attempt 2 has taken over from attempt 1" in old.stderr.read()
    assert new.returncode == 0


def test_a_program_that_fails_after_another_attempt_took_over_costs_no_failure(tmp_path: Path) -> None:
    common = ("--state", tmp_path / "s", "--run-id", "r", "--failures", "0")
    old = start(*common, *shell(f'echo up; while [ ! -e "{tmp_path}/go" ]; do sleep 0.05; done; exit 3'))
    assert old.stdout is not None and old.stdout.readline() == "up\n"
    new = start(*common, *shell("echo up; sleep 60"))
    assert new.stdout is not None and new.stdout.readline() == "up\n"
    (tmp_path / "go").touch()
    assert old.wait(120) == 75
    assert old.stderr is not None
    assert "attempt 2 has taken over from attempt 1; the command had ended with 3" in old.stderr.read()
    new.terminate()
    assert new.wait(120) == 75
    assert run(*common, *shell("true")).returncode == 0, "the budget of failures is not spent"


def test_the_program_of_a_dead_supervisor_is_ended_before_another_starts(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r")
    first = start(*options, *python("import os, time; print(os.getpid(), flush=True); time.sleep(60)"))
    assert first.stdout is not None
    pid = int(first.stdout.readline())
    eventually(lambda: '"child"' in (tmp_path / "c" / ".gpuflow" / "owner.json").read_text())
    first.kill()
    first.wait(120)
    done = run(*options, *shell("true"))
    assert done.returncode == 0
    assert f"still alive (process {pid})" in done.stderr
    eventually(lambda: _state(pid) in ("", "Z"))


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


# -- what an earlier attempt left


def test_an_output_that_an_earlier_attempt_left_is_no_output_of_this_one(
    state: tuple[str, ...], tmp_path: Path
) -> None:
    options = (*state, "--output", "x", "--output", f"y={tmp_path}/y")
    write = f'echo old >"$GPUFLOW_OUTPUTS/x"; echo old >{tmp_path}/y'
    assert run(*options, *shell(f"{write}; exit 4")).returncode == 4
    done = run(*options, *shell(f"echo new >{tmp_path}/y"))
    assert done.returncode == 1
    assert 'the output "x" was not written' in done.stderr
    done = run(*options, *shell('echo new >"$GPUFLOW_OUTPUTS/x"'))
    assert done.returncode == 1
    assert 'the output "y" was not written' in done.stderr
    assert "as it was before the command started" in done.stderr
    assert run(*options, *shell(write)).returncode == 0


def test_an_end_that_storage_takes_late_is_still_counted_as_what_it_was(tmp_path: Path, state: tuple[str, ...]) -> None:
    away = f"mv {tmp_path}/state {tmp_path}/away; echo x >{tmp_path}/state; exit 5"
    process = start(*state, "--storage-timeout", "60s", *shell(away))
    eventually(lambda: (tmp_path / "state").is_file())
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(6.5)
    (tmp_path / "state").unlink()
    os.rename(tmp_path / "away", tmp_path / "state")
    assert process.wait(120) == 5
    assert run(*state, "--failures", "1", *shell("exit 5")).returncode == 79


def test_a_book_whose_listing_fails_starts_nothing(tmp_path: Path, state: tuple[str, ...]) -> None:
    """A mount that hangs on to its name but cannot be read: nothing is known, so nothing is started or removed."""
    assert run(*state, "--failures", "5", *shell("exit 5")).returncode == 5
    listing = (
        "import os, sys\n"
        "from gpuflow.runtime.supervise.main import main\n"
        "def stale(path='.'):\n    raise OSError(116, 'Stale file handle')\n"
        "os.scandir = stale\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = [sys.executable, "-c", listing, *state, "--storage-timeout", "500ms", "--", "echo", "ran"]
    done = subprocess.run(words, env=environment(), capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (78, "")
    assert "Stale file handle" in done.stderr


@pytest.mark.parametrize("how", ["succeeds", "is final"])
def test_what_another_attempt_does_between_look_and_claim_is_found(
    how: str, tmp_path: Path, state: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = table.parse([*state, "--output", "x", "--", "touch", str(tmp_path / "ran")], {})
    other = Ledger(open_store(str(tmp_path / "state")), "default/r/default")
    assert other.claim(other.history())
    real = Ledger.claim

    def claim(self: Ledger, history: History, **named: bool) -> bool:
        monkeypatch.setattr(Ledger, "claim", real)
        if how == "succeeds":
            other.succeed({"x": KeptOutput(type="string", value="first", sha256=text_digest("first"))})
        else:
            other.end("failed (final)", final=True, exit_code=79, because="it was the data")
        return real(self, history, **named)

    monkeypatch.setattr(Ledger, "claim", claim)
    code = Attempt(options, {}).run()
    assert not (tmp_path / "ran").exists()
    if how == "succeeds":
        assert (code, (tmp_path / "out" / "x").read_text()) == (0, "first")
    else:
        assert code == 79
        assert run(*state, *shell("echo ran")).returncode == 79


def test_a_fault_of_the_supervisor_itself_is_never_the_commands_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def broken(_: Attempt) -> int:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Attempt, "run", broken)
    log = tmp_path / "log"
    options = table.parse(["--termination-log", str(log), "--", "true"], {})
    assert supervise(options, {}) == 78
    assert "a bug in gpuflow-run: RuntimeError: can't start new thread" in capsys.readouterr().err
