"""Who is told to stop, with real processes of every shape; and that none of them outlives the attempt.

Tests gpuflow/runtime/base/child.py and gpuflow/runtime/base/container.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuflow.runtime.base import container
from gpuflow.runtime.base.attempt_folder import process_began
from gpuflow.runtime.base.container import Process
from tests.runtime.harness import ROOT, eventually, python, run, shell, start
from tests.runtime.stage import Stage


def stopped(process: subprocess.Popen[str], stage: Stage) -> str:
    """Tell the supervisor to stop: it ends with 75, nobody is left. Its own words."""
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 75, errors
    assert stage.alive() == []
    return errors


WORKERS = [{"name": f"worker{n}", "kind": "handles"} for n in range(2)]


def test_a_plain_program_is_told(stage: Stage) -> None:
    process = stage.start("main", "--grace", "10m", "--", *stage.words({"name": "main", "kind": "deaf"}))
    assert "the command ended with 143" in stopped(process, stage)


@pytest.mark.parametrize("kind", ["listens", "handles"])
def test_a_program_that_hears_is_told_and_its_workers_are_not(kind: str, stage: Stage) -> None:
    main = {"name": "main", "kind": kind, "save": 0.5, "children": WORKERS}
    stopped(stage.start("main worker0 worker1", "--", *stage.words(main)), stage)
    assert stage.what("main") == ["told", "saved"]
    assert stage.what("worker0") == stage.what("worker1") == []


def test_multiprocessing_workers_are_not_told(stage: Stage) -> None:
    code = (
        "import multiprocessing, os, signal, sys, time\n"
        "from gpuflow.runtime.base.attempt_folder import AttemptFolder\n"
        "def work(pipe):\n"
        "    signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
        "    while True: pipe.send(pipe.recv() + 1)\n"
        "told = []\n"
        "signal.signal(signal.SIGTERM, lambda *a: told.append(1))\n"
        "AttemptFolder(os.path.dirname(os.environ['GPUFLOW_STOP'])).listen()\n"
        "ours, theirs = multiprocessing.get_context('fork').Pipe()\n"
        "worker = multiprocessing.get_context('fork').Process(target=work, args=(theirs,), daemon=True)\n"
        "worker.start()\n"
        "theirs.close()\n"
        "ours.send(0)\n"
        "print('up', ours.recv(), flush=True)\n"
        "while not told: time.sleep(0.01)\n"
        "time.sleep(0.3)\n"
        "ours.send(1)\n"
        "print('batch', ours.recv(), flush=True)\n"
    )
    process = start(*python(code), environ=stage.environ)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=120)[0] == "batch 2\n"
    assert process.returncode == 75
    assert stage.alive() == []


def test_where_nobody_hears_everybody_is_told(stage: Stage) -> None:
    other = {"name": "other", "kind": "deaf", "session": True}
    main = {"name": "main", "kind": "deaf", "children": [other]}
    stopped(stage.start("main other", "--grace", "10m", "--", *stage.words(main)), stage)


def test_a_shell_and_what_it_runs_are_told(stage: Stage) -> None:
    main = stage.line({"name": "main", "kind": "listens", "save": 0.3, "children": WORKERS})
    process = stage.start("main worker0 worker1", *shell(f"{main}; echo next command"))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=120)[0] == ""
    assert (process.returncode, stage.alive()) == (75, [])
    assert stage.what("main") == ["told", "saved"]
    assert stage.what("worker0") == []


def test_a_shell_that_has_become_the_program_is_the_program(stage: Stage) -> None:
    main = stage.line({"name": "main", "kind": "handles", "children": WORKERS})
    stopped(stage.start("main worker0 worker1", *shell(f"exec {main}")), stage)
    assert stage.what("main") == ["told", "saved"]
    assert stage.what("worker0") == []


def test_a_script_with_a_pipe_keeps_its_pipe_until_the_save_is_done(stage: Stage, tmp_path: Path) -> None:
    script = tmp_path / "entry.sh"
    main = stage.line({"name": "main", "kind": "handles", "save": 0.3, "children": WORKERS})
    helper = stage.line({"name": "helper", "kind": "deaf"})
    script.write_text(f"#!/bin/bash\n{helper} &\n{main} | cat\necho next command\n")
    script.chmod(0o755)
    process = stage.start("main helper worker0 worker1", "--", str(script))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=120)[0] == ""
    assert (process.returncode, stage.alive()) == (75, [])
    assert stage.what("main") == ["told", "saved"]
    assert stage.what("worker0") == []


def test_a_script_that_traps_the_signal_does_not_keep_it_from_its_program(stage: Stage, tmp_path: Path) -> None:
    script = tmp_path / "entry.sh"
    main = stage.line({"name": "main", "kind": "handles", "save": 0.3})
    script.write_text(f"#!/bin/bash\ntrap 'echo trapped; exit 1' TERM\n{main}\necho next command\n")
    script.chmod(0o755)
    process = stage.start("main", "--", str(script))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=120)[0] == "trapped\n"
    assert (process.returncode, stage.alive()) == (75, [])
    assert stage.what("main") == ["told", "saved"]


RANKS = [{"name": f"rank{n}", "kind": "listens", "save": 1.0, "session": True} for n in range(2)]


@pytest.mark.parametrize("patience", [30, 0.2])
def test_a_launcher_is_told_after_its_listeners_have_left(patience: float, stage: Stage) -> None:
    """torchrun kills its workers half a minute after it is told, mpirun sooner: not in the middle of a save."""
    launcher = {"name": "launcher", "kind": "forwards", "patience": patience, "children": RANKS}
    stopped(stage.start("launcher rank0 rank1", "--", *stage.words(launcher)), stage)
    assert stage.what("rank0") == stage.what("rank1") == ["told", "saved"]
    assert stage.what("launcher") == []  # it ends by itself, without its ranks


def test_a_launcher_that_stays_without_its_listeners_is_told(stage: Stage) -> None:
    other = {"name": "other", "kind": "handles"}
    launcher = {"name": "launcher", "kind": "forwards", "children": [RANKS[0], other]}
    stopped(stage.start("launcher rank0 other", "--grace", "10m", "--", *stage.words(launcher)), stage)
    assert stage.what("launcher") == ["told"]
    assert stage.what("other") == ["told", "saved"]


def test_a_launcher_that_waits_for_ever_is_told_before_the_time_is_over(stage: Stage) -> None:
    stubborn = {"name": "rank", "kind": "listens", "save": 30}
    launcher = {"name": "launcher", "kind": "forwards", "patience": 0.1, "children": [stubborn]}
    process = stage.start("launcher rank", "--grace", "8s", "--", *stage.words(launcher))
    stopped(process, stage)
    assert stage.what("launcher") == ["told"]


@pytest.mark.parametrize("session", [True, False])
def test_a_launcher_without_listeners_forwards_by_itself(session: bool, stage: Stage) -> None:
    ranks = [{"name": f"rank{n}", "kind": "handles", "save": 0.3, "session": session} for n in range(2)]
    launcher = {"name": "launcher", "kind": "forwards", "children": ranks}
    stopped(stage.start("launcher rank0 rank1", "--", *stage.words(launcher)), stage)
    assert stage.what("launcher") == ["told"]
    assert stage.what("rank0") == stage.what("rank1") == ["told", "saved"]


def test_a_supervisor_inside_another_is_told_and_tells_its_own(stage: Stage) -> None:
    main = stage.words({"name": "main", "kind": "listens", "children": WORKERS})
    inner = [sys.executable, "-m", "gpuflow.runtime.supervise.main", "--grace", "20s", "--", *main]
    stopped(stage.start("main worker0 worker1", "--", *inner), stage)
    assert stage.what("main") == ["told", "saved"]
    assert stage.what("worker0") == []


def test_other_signals_go_to_those_who_hear_them(stage: Stage) -> None:
    code = (
        "import os, signal, subprocess, sys, time\n"
        "worker = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        "def hear(*a):\n    time.sleep(0.3); print('worker', worker.poll(), flush=True); os._exit(7)\n"
        "signal.signal(signal.SIGUSR1, hear)\n"
        "print('up', flush=True)\n"
        "while True: signal.pause()\n"
    )
    process = start(*python(code), environ=stage.environ)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGUSR1)
    assert process.communicate(timeout=120)[0] == "worker None\n"
    assert process.returncode == 7
    assert stage.alive() == []


# -- nobody outlives the attempt

DEAF_TO_ALL = {"name": "stray", "kind": "ignores", "session": True}


@pytest.mark.parametrize("code", [0, 3])
def test_what_a_command_leaves_behind_ends_with_it(code: int, stage: Stage) -> None:
    main = {"name": "main", "kind": "deaf", "children": [DEAF_TO_ALL], "leaves": code}
    done = run("--", *stage.words(main), environ=stage.environ)
    assert done.returncode == code
    assert stage.alive() == []
    assert "ended what the command left behind: python" in done.stderr


def test_a_daemon_of_a_double_fork_ends_with_its_command(stage: Stage) -> None:
    daemon = {"name": "daemon", "kind": "ignores", "daemon": True}
    middle = {"name": "middle", "kind": "deaf", "children": [daemon], "leaves": 0, "daemon": True}
    main = {"name": "main", "kind": "deaf", "children": [middle], "leaves": 0}
    done = run("--", *stage.words(main), environ=stage.environ)
    assert done.returncode == 0
    assert stage.alive() == []


def test_a_daemon_without_a_mark_ends_too(tmp_path: Path) -> None:
    daemon = f'setsid env -i sh -c "echo \\$\\$ >{tmp_path}/pid; exec sleep 60"'
    done = run(*shell(f"({daemon} &) ; while ! test -s {tmp_path}/pid; do sleep 0.05; done"))
    assert done.returncode == 0
    assert process_began(int((tmp_path / "pid").read_text())) is None
    assert "ended what the command left behind: sleep" in done.stderr


def test_where_orphans_cannot_be_inherited_their_mark_gives_them_away(stage: Stage) -> None:
    (stage.folder / "ctypes.py").write_text("raise ImportError('an image without it')\n")
    environ = {**stage.environ, "PYTHONPATH": f"{stage.folder}{os.pathsep}{ROOT}"}
    daemon = {"name": "daemon", "kind": "ignores", "daemon": True}
    main = {"name": "main", "kind": "deaf", "children": [daemon], "leaves": 0}
    done = run("--", *stage.words(main), environ=environ)
    assert done.returncode == 0
    assert stage.alive() == []


def test_a_process_that_becomes_another_program_just_now_is_still_known_by_its_mark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, unseen = container._read_bytes, [b"", b""]

    def read(path: str) -> bytes:
        return unseen.pop() if unseen and path.endswith("/environ") else real(path)

    monkeypatch.setattr(container, "_read_bytes", read)
    with subprocess.Popen(["sleep", "60"], env={**os.environ, container.VARIABLE: "a.b.1.2"}) as process:
        assert container.marks(process.pid) == ["a.b.1.2"]
        process.kill()


def test_a_stray_that_ignores_the_notice_ends_with_the_attempt(stage: Stage) -> None:
    main = {"name": "main", "kind": "handles", "children": [DEAF_TO_ALL]}
    stopped(stage.start("main stray", "--grace", "10m", "--", *stage.words(main)), stage)
    assert stage.what("main") == ["told", "saved"]


def test_a_command_that_cannot_be_moved_is_killed_with_all_its_strays(stage: Stage) -> None:
    main = {"name": "main", "kind": "ignores", "children": [DEAF_TO_ALL]}
    stopped(stage.start("main stray", "--grace", "1s", "--", *stage.words(main)), stage)


@pytest.mark.parametrize("directory", [True, False])
def test_workers_of_a_killed_supervisor_are_ended_before_the_next_attempt(directory: bool, stage: Stage) -> None:
    where: tuple[object, ...] = ("--run-id", "r", "--state", stage.folder / "state")
    if directory:
        where = (*where, "--checkpoint-dir", stage.folder / "c")
    ranks = [{"name": f"rank{n}", "kind": "ignores", "session": True} for n in range(2)]
    launcher = {"name": "launcher", "kind": "forwards", "children": ranks}
    first = stage.start("launcher rank0 rank1", *where, "--", *stage.words(launcher))
    first.kill()
    first.wait(120)
    os.kill(stage.pid("launcher"), signal.SIGKILL)
    eventually(lambda: len(stage.alive()) == 2)
    done = run(*where, *shell("true"))
    assert done.returncode == 0
    assert "the program of an earlier attempt is still alive (process" in done.stderr
    assert stage.alive() == []


def test_a_program_whose_supervisor_lives_is_left_alone(stage: Stage) -> None:
    where = ("--run-id", "r", "--state", stage.folder / "state")
    first = stage.start("main", *where, "--", *stage.words({"name": "main", "kind": "handles"}))
    done = run(*where, *shell("true"))
    assert done.returncode == 0
    assert "still alive" not in done.stderr
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == 75
    assert stage.what("main") == ["told", "saved"]


# -- the table itself


def test_every_role_has_its_line_in_the_reference() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "checkpoints.md").read_text()
    section = page.partition("## Who is told to stop")[2].partition("\n## ")[0]
    lines = {line.split("|")[1].strip(): line for line in section.splitlines() if line.startswith("| ")}
    for role, when in container.WHEN.items():
        assert when in lines[role], role


def test_roles_of_a_made_up_tree() -> None:
    tree = {2: 1, 3: 2, 4: 3, 5: 4, 6: 4, 7: 3, 8: 1}
    members = {pid: Process(pid, "x", parent, 2, 0) for pid, parent in tree.items()}
    found = container.roles(members, 2, {5}, lambda pid: pid in (4, 6, 8), lambda pid: pid == 2)
    assert found == {
        2: container.WRAPPER,
        3: container.WRAPPER,
        4: container.LAUNCHER,
        5: container.LISTENER,
        6: container.HELPER,
        7: container.HELPER,
        8: container.PROGRAM,
    }
    assert set(container.roles(members, 2, (), lambda pid: False, lambda pid: False).values()) == {container.ANYONE}
