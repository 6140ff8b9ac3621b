"""The program under its supervisor: its own notice, the grace it was told, each way it can fail to start or end.

Tests gpuflow/runtime/base/child.py and gpuflow/runtime/base/signals.py.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuflow.runtime import bundle
from tests.runtime.harness import again, environment, eventually, mount, python, run, shell, start, words
from tests.runtime.stage import Stage

FOLDER = "import os; from gpuflow.runtime.base.attempt_folder import AttemptFolder\n" + (
    "folder = AttemptFolder(os.path.dirname(os.environ['GPUFLOW_STOP']))\n"
)
OBEYS = FOLDER + (
    "import time\n"
    "print('up', flush=True)\n"
    "until = time.monotonic() + %s\n"
    "while time.monotonic() < until and folder.read_stop() is None: time.sleep(0.01)\n"
    "print('stopped' if folder.read_stop() else 'done', flush=True)\n"
)


def book(tmp_path: Path, kind: str) -> list[dict[str, object]]:
    """The records of a state kept below tmp_path."""
    found = sorted(tmp_path.rglob(f"attempts/*{kind}.json"))
    return [json.loads(path.read_text()) for path in found]


# -- whose notice it is


def test_a_notice_for_an_older_attempt_is_not_seen_by_a_newer_one_in_the_same_directory(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--state", tmp_path / "s", "--run-id", "r", "--grace", "5s")
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + OBEYS
    older = start(*options, *python(ignoring % 60))
    assert older.stdout is not None
    older.stdout.readline()
    newer = start(*options, *python(OBEYS % 2))
    assert newer.stdout is not None
    newer.stdout.readline()
    older.send_signal(signal.SIGTERM)
    assert older.communicate(timeout=120)[0] == "stopped\n"
    assert older.returncode == 75
    assert newer.communicate(timeout=120)[0] == "done\n"
    assert newer.returncode == 0


def test_a_notice_of_an_earlier_attempt_is_not_obeyed(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--grace", "5s")
    first = start(*options, *python(OBEYS % 60))
    assert first.stdout is not None
    first.stdout.readline()
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == 75
    done = run(*options, *python(OBEYS % 0.3))
    assert (done.returncode, done.stdout) == (0, "up\ndone\n")


def test_a_program_that_says_it_stopped_early_is_no_success(tmp_path: Path) -> None:
    options = ("--state", tmp_path / "s", "--run-id", "r")
    done = run(*options, *python(FOLDER + "folder.say_stopped()"))
    assert done.returncode == 75
    assert "told to stop, but not by its supervisor; it left early with 0" in done.stderr
    assert not list(tmp_path.rglob("success.json"))
    assert run(*options, *shell("true")).returncode == 0


def test_the_folder_of_an_attempt_without_a_directory_is_gone_afterwards(tmp_path: Path) -> None:
    environ = {"TMPDIR": str(tmp_path)}
    done = run(*shell('dirname "$GPUFLOW_STOP"; test -d "$(dirname "$GPUFLOW_STOP")/listeners"'), environ=environ)
    assert done.returncode == 0
    assert done.stdout.startswith(str(tmp_path))
    assert run("--", "no-such-program-anywhere", environ=environ).returncode == 79
    assert list(tmp_path.iterdir()) == []


# -- the grace


@pytest.mark.parametrize("store", [True, False])
def test_the_grace_a_program_is_told_is_the_grace_it_gets(store: bool, tmp_path: Path) -> None:
    code = (
        "import os, signal, time\n"
        "told = []\n"
        "signal.signal(signal.SIGTERM, lambda *a: told.append(time.monotonic()))\n"
        "print('up', flush=True)\n"
        "while not told: time.sleep(0.001)\n"
        "grace = float(os.environ['GPUFLOW_GRACE'])\n"
        "print(float(open(os.environ['GPUFLOW_STOP']).read()) - told[0] - grace, grace, flush=True)\n"
        "while True:\n"
        "    time.sleep(0.02); print(time.monotonic() - told[0] - grace, flush=True)\n"
    )

    def told(folder: Path) -> None:
        where = ("--checkpoint-dir", folder / "c", "--run-id", "r", *(("--store", folder / "s") if store else ()))
        process = start(*where, "--grace", "3s", *python(code))
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        output, _ = process.communicate(timeout=120)
        assert process.returncode == 75
        first, *rest = output.split("\n")[:-1]
        apart, grace = map(float, first.split())
        assert abs(apart) < 0.3
        assert 1 < grace < 3
        assert -0.25 < float(rest[-1]) < 0.6

    again(tmp_path, told)


def test_a_slow_upload_takes_nothing_from_the_grace_that_was_told(tmp_path: Path) -> None:
    """One second of upload has been measured; a save that fits GPUFLOW_GRACE still gets done."""
    code = (
        "import os, signal, sys, time\n"
        "d = os.environ['GPUFLOW_CHECKPOINT_DIR']\n"
        "def save(name):\n"
        "    open(d + '/.x', 'wb').write(b'x' * 600_000); os.rename(d + '/.x', d + '/' + name)\n"
        "def stop(*a):\n"
        "    time.sleep(float(os.environ['GPUFLOW_GRACE']) - 0.3); print('saved', flush=True); sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, stop)\n"
        "save('one')\n"
        "print('up', flush=True)\n"
        "time.sleep(60)\n"
    )

    def told(folder: Path) -> None:
        options = ("--checkpoint-dir", folder / "c", "--store", folder / "s", "--run-id", "r")
        process = start(*options, "--bandwidth", "300k", "--every", "0s", "--grace", "4s", *python(code))
        assert process.stdout is not None
        process.stdout.readline()
        eventually(lambda: list((folder / "s").rglob("manifest.json")))
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=120)[0] == "saved\n"
        assert process.returncode == 75

    again(tmp_path, told)


def test_a_notice_during_the_last_upload_gives_one_grace_and_not_two(tmp_path: Path) -> None:
    """The upload takes all of it, and storage is gone when the success should be written."""
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; head -c 900000 /dev/zero >.x; mv .x one'

    def told_late(folder: Path) -> None:
        where = ("--checkpoint-dir", folder / "c", "--store", folder / "s", "--state", folder / "b", "--run-id", "r")
        process = start(*where, "--bandwidth", "50k", "--grace", "3s", *shell(f"{save}; touch {folder}/done"))
        eventually(lambda: (folder / "done").exists() and list((folder / "s").rglob("checkpoints/*/*")))
        time.sleep(0.5)
        told = time.monotonic()
        process.send_signal(signal.SIGTERM)
        os.rename(folder / "b", folder / "away")
        (folder / "b").write_text("not a directory")
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 75, errors
        assert "told to stop after the command had ended with 0" in errors
        assert time.monotonic() - told < 5

    again(tmp_path, told_late)


# -- a command that cannot be started


@pytest.mark.parametrize(
    ("content", "mode", "why", "code"),
    [
        (b"\x7fELF not for this machine", 0o755, "Exec format error", 126),
        (b"#!/bin/sh\n", 0o644, "Permission denied", 126),
        (b"#!/no/such/interpreter\n", 0o755, "its interpreter (the first line of a script)", 127),
        (None, 0, "No such file or directory", 127),
    ],
)
def test_a_command_that_cannot_be_started_is_final_with_a_shells_code(
    content: bytes | None, mode: int, why: str, code: int, tmp_path: Path
) -> None:
    program, log = tmp_path / "program", tmp_path / "log"
    log.touch()
    if content is not None:
        program.write_bytes(content)
        program.chmod(mode)
    if mode == 0o644 and os.geteuid() == 0:
        program = tmp_path  # root may run anything but a directory
    where = ("--state", tmp_path / "s", "--run-id", "r", "--checkpoint-dir", tmp_path / "c")
    done = run(*where, "--termination-log", log, "--", program)
    assert done.returncode == 79
    assert why in done.stderr
    assert json.loads(log.read_text().splitlines()[-1])["own_exit_code"] == code
    (end,) = book(tmp_path / "s", ".end")
    assert end["final"] is True


def test_a_machine_that_is_short_of_something_is_not_final(tmp_path: Path) -> None:
    code = (
        "import errno, os, sys\nfrom gpuflow.runtime.supervise.main import main\n"
        "def refuse(*a, **k): raise OSError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "os.posix_spawnp = refuse\n"
        f"sys.exit(main(['--state', {str(tmp_path)!r}, '--run-id', 'r', '--', 'true']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 126
    (end,) = book(tmp_path, ".end")
    assert end["final"] is False


# -- what goes wrong after the start


def test_nothing_that_fails_after_the_start_leaves_the_program_alive(tmp_path: Path, stage: Stage) -> None:
    program = stage.words(
        {"name": "main", "kind": "ignores", "children": [{"name": "other", "kind": "ignores", "session": True}]}
    )
    code = (
        "import sys\nfrom gpuflow.runtime.supervise import running\nfrom gpuflow.runtime.supervise.main import main\n"
        "import time, pathlib\n"
        "def fail(self, child):\n"
        f"    while pathlib.Path({str(stage.log)!r}).read_text().count(' up') < 2: time.sleep(0.01)\n"
        "    raise OSError('injected')\n"
        "running.CommandRun._supervise = fail\n"
        f"sys.exit(main(['--checkpoint-dir', {str(tmp_path / 'c')!r}, '--run-id', 'r', '--', *{program!r}]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(stage.environ), capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 78, done.stderr
    assert "injected" in done.stderr
    assert {line.split()[0] for line in stage.lines()} == {"main", "other"}
    assert stage.alive() == []


def test_a_command_that_even_sigkill_does_not_end_costs_no_cpu_and_leaves_a_record(
    tmp_path: Path, stage: Stage
) -> None:
    """As one that waits in the kernel for a disk: here the signal is not sent."""
    program = stage.words({"name": "main", "kind": "ignores"})
    code = (
        "import sys\nfrom gpuflow.runtime.base import container\nfrom gpuflow.runtime.supervise.main import main\n"
        "container.signal_process = lambda process, number: None\n"
        f"options = ['--state', {str(tmp_path / 's')!r}, '--run-id', 'r', '--grace', '2s']\n"
        f"sys.exit(main([*options, '--', *{program!r}]))\n"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(stage.environ), stderr=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: stage.lines())
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 75, errors
    assert "did not end in time, not even by SIGKILL" in errors
    assert "cannot be ended, not even by SIGKILL" in errors
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before < 1.5
    (end,) = book(tmp_path / "s", ".end")
    assert end["outcome"] == "interrupted"


# -- the first moments

EARLY = """\
import os, signal, sys
def hook(event, arguments):
    if event == "import" and arguments[0] == "gpuflow.runtime.base.options" and not os.environ.pop("SENT", None):
        os.environ["SENT"] = "1"
        os.kill(os.getpid(), signal.SIGTERM)
sys.addaudithook(hook)
"""
PID_1 = pytest.param(
    True,
    marks=pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs root and unshare"),
)


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("process_1", [False, PID_1])
def test_a_notice_while_the_supervisor_still_loads_is_heard(process_1: bool, packed: bool, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(EARLY)
    command = words()
    if packed:
        command = [sys.executable, str(mount(tmp_path / "mount"))]
    environ = environment()
    environ["PYTHONPATH"] = str(tmp_path) if packed else f"{tmp_path}{os.pathsep}{environ['PYTHONPATH']}"
    before = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"] if process_1 else []
    ran = tmp_path / "ran"
    done = subprocess.run(
        [*before, *command, "--state", str(tmp_path / "s"), "--run-id", "r", "--", "touch", str(ran)],
        env=environ,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 75, done.stderr
    assert not ran.exists()
    assert book(tmp_path / "s", ".end")[0]["outcome"] == "interrupted"


def test_the_packed_file_holds_signals_before_its_first_other_word() -> None:
    lines = [line for line in bundle.files()[bundle.FILE].splitlines() if line and not line.startswith("#")]
    assert "pthread_sigmask" in "".join(lines[:4])


def test_small_commands_hold_nothing_back() -> None:
    code = "import signal; from gpuflow.runtime.supervise.main import main; main(['--version']); " + (
        "print(signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.stdout.splitlines()[-1] == "set()"


# -- variables


def test_options_by_variable_are_not_inherited(tmp_path: Path) -> None:
    environ = {
        "GPUFLOW_RUN_STATE": str(tmp_path / "s"),
        "GPUFLOW_RUN_RUN_ID": "r",
        "GPUFLOW_RUN_GRACE": "7s",
        "GPUFLOW_RANK": "3",
        "GPUFLOW_EVERY": "1",
        "GPUFLOW_CHECKPOINT_DIR": "/of/another",
        "GPUFLOW_STOP": "/of/another/stop",
    }
    show = python("import os, json; print(json.dumps(dict(os.environ)))")
    seen = json.loads(run(*show, environ=environ).stdout)
    assert [name for name in seen if name.startswith("GPUFLOW_RUN_")] == []
    assert seen["GPUFLOW_RANK"] == "3"
    assert not {"GPUFLOW_EVERY", "GPUFLOW_CHECKPOINT_DIR"} & set(seen)
    assert seen["GPUFLOW_STOP"] != environ["GPUFLOW_STOP"]


def test_a_supervisor_inside_another_has_a_run_of_its_own(tmp_path: Path) -> None:
    environ = {"GPUFLOW_RUN_STATE": str(tmp_path / "outer"), "GPUFLOW_RUN_RUN_ID": "outer"}
    done = run("--", *words(*shell('echo "$GPUFLOW_ATTEMPT"')), environ=environ)
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert len(book(tmp_path / "outer", "000001")) == 1
    assert not list((tmp_path / "outer").rglob("000002*"))


# -- what another start in the same place must not inherit


def test_success_without_a_book_is_not_inherited_through_the_folder_of_the_outputs(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    assert run("--outputs-dir", outputs, *shell("exit 0")).returncode == 0
    second = run("--outputs-dir", outputs, *shell("exit 5"))
    assert second.returncode == 5, second.stderr
    assert os.listdir(outputs) == []


# -- odd surroundings


@pytest.mark.parametrize("closed", ["2>&-", ">&-", ">&- 2>&- <&-"])
def test_closed_standard_files_change_neither_the_exit_code_nor_the_files_of_the_supervisor(
    closed: str, tmp_path: Path
) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r")
    line = words(*options, *shell("echo out; echo err >&2; exit 3"))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *line], env=environment(), timeout=60, **quiet)  # type: ignore[call-overload]  # the same options for all
    assert done.returncode == 3
    written = [path.read_bytes().split(b"\n") for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"out" in lines or b"err" in lines for lines in written)


def test_a_name_that_is_no_utf_8_does_not_change_the_exit_code(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    options = ("--termination-log", log, "--state", tmp_path / "s", "--run-id", "r")
    done = run(*options, "--", "/\udcff")
    assert done.returncode == 79, done.stderr
    assert "/\udcff" in json.loads(log.read_text().splitlines()[-1])["because"]


def test_where_no_thread_can_be_had_no_program_is_started(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom gpuflow.runtime.base import child\nfrom gpuflow.runtime.supervise.main import main\n"
        'def refuse(self): raise RuntimeError("can\'t start new thread")\n'
        "child.Pump.start = refuse\n"
        f"sys.exit(main(['--state', {str(tmp_path)!r}, '--run-id', 'r', '--', 'touch', {str(tmp_path / 'ran')!r}]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 126, done.stderr
    assert "can't start new thread" in done.stderr
    (end,) = book(tmp_path, ".end")
    assert end["final"] is False
    time.sleep(0.2)
    assert not (tmp_path / "ran").exists()
