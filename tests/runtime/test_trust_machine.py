"""Neighbors on one machine or one volume: what they plant is not followed, not waited for, and ends nobody."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuflow.runtime.base import container, files, records
from gpuflow.runtime.base.attempt_folder import AttemptFolder, identity_of, process_began
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.base.units import one_line
from gpuflow.runtime.state import directory_owner
from gpuflow.runtime.state.checkpoint_dir import Directory, dump, load
from gpuflow.runtime.state.directory_owner import Occupancy
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores.folder_store import Folder
from tests.runtime.harness import environment, run, shell

BASE = "default/r/default"


def options(tmp_path: Path) -> tuple[object, ...]:
    return ("--run-id", "r", "--checkpoint-dir", tmp_path / "c", "--termination-log", tmp_path / "log")


@pytest.fixture
def hidden(tmp_path: Path) -> Path:
    """The folder in the checkpoint directory that a neighbor may write to."""
    (tmp_path / "log").write_text("")
    (tmp_path / "c" / ".gpuflow").mkdir(parents=True)
    (tmp_path / "theirs").write_text("untouched")
    return tmp_path / "c" / ".gpuflow"


# -- temporary folders


def test_the_folder_of_the_outputs_is_private_not_to_be_guessed_and_gone_afterwards(tmp_path: Path) -> None:
    show = 'cd "$GPUFLOW_OUTPUTS"; pwd; stat -c %a .; echo 1 >x'
    places = set()
    for _ in range(2):
        done = run("--output", "x", *shell(show), environ={"TMPDIR": str(tmp_path)})
        place, mode = done.stdout.split()
        assert (done.returncode, mode) == (0, "700")
        assert len(Path(place).name) == len("gpuflow-") + 16
        places.add(place)
    assert len(places) == 2
    assert list(tmp_path.iterdir()) == []


def test_what_a_neighbor_planted_in_the_temporary_folder_is_no_success(tmp_path: Path) -> None:
    """Folders for every process number that may be next, each with a success marker, as the review did it."""
    marker = {"format": 2, "attempt": 1, "id": "ab", "time": "", "outputs": {}}
    data = records.encode({**marker, "hash": records.digest(marker)})
    last = int(Path("/proc/sys/kernel/ns_last_pid").read_text()) if Path("/proc/sys/kernel/ns_last_pid").exists() else 0
    for pid in range(last, last + 200):
        place = tmp_path / f"gpuflow-{pid}" / ".gpuflow" / "default" / "unnamed" / "default"
        place.mkdir(parents=True)
        (place / "success.json").write_bytes(data)
    assert run(*shell("echo ran"), environ={"TMPDIR": str(tmp_path)}).stdout == "ran\n"


def test_the_only_copy_of_a_file_output_stays_and_its_place_is_said(tmp_path: Path) -> None:
    done = run("--output", "m:file", *shell('echo 1 >"$GPUFLOW_OUTPUTS/m"'), environ={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0
    (place,) = tmp_path.iterdir()
    assert (place / "m").read_text() == "1\n"
    assert f'the output "m" is kept nowhere but at {place / "m"}' in done.stderr


def test_a_temporary_folder_that_nobody_has_made_yet_is_made(tmp_path: Path) -> None:
    command = shell('echo 1 > "$GPUFLOW_OUTPUTS/x"; dirname "$GPUFLOW_OUTPUTS"')
    scratch = tmp_path / "scratch" / "tmp"
    done = run("--output", "x", "--termination-log", tmp_path / "log", *command, environ={"TMPDIR": str(scratch)})
    assert (done.returncode, done.stdout) == (0, f"{scratch}\n"), done.stderr


def test_without_a_temporary_folder_a_step_without_outputs_runs(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    environ = {"TMPDIR": str(tmp_path / "file" / "no folder can be here")}
    assert run(*shell("echo ran"), environ=environ).stdout == "ran\n"
    done = run("--output", "x", *shell("echo ran"), environ=environ)
    assert (done.returncode, done.stdout) == (78, "")
    assert "give --outputs-dir" in done.stderr


# -- small files


def test_a_small_file_is_made_only_where_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even who guesses the name of the part cannot make us write through it."""
    (tmp_path / "theirs").write_text("untouched")
    monkeypatch.setattr(os, "urandom", lambda count: b"\0" * count)
    (tmp_path / f".{'0' * 16}.part").symlink_to(tmp_path / "theirs")
    for write in (
        lambda: dump(SharedFolder(str(tmp_path)), "owner.json", {"a": 1}),
        lambda: AttemptFolder(str(tmp_path)).write_interval(1.0),
        lambda: AttemptFolder(str(tmp_path)).write_stop(1.0),
    ):
        with pytest.raises(FileExistsError):
            write()
    assert (tmp_path / "theirs").read_text() == "untouched"


def test_a_sign_of_life_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("untouched")
    folder = AttemptFolder(str(tmp_path))
    (tmp_path / "heartbeat").symlink_to(tmp_path / "theirs")
    folder.beat()
    assert (tmp_path / "theirs").read_text() == "untouched"
    assert folder.last_beat() is None


def test_pipes_links_and_large_files_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_text("{}")
    (tmp_path / "link").symlink_to("file")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(files.MOST + 1)
    for name in ("pipe", "link", "large", "."):
        assert load(SharedFolder(str(tmp_path)), name) is None
    assert load(SharedFolder(str(tmp_path)), "file") == {}
    (tmp_path / "deep").write_text("[" * 100_000)
    assert load(SharedFolder(str(tmp_path)), "deep") is None
    folder = AttemptFolder(str(tmp_path))
    os.mkfifo(folder.interval)
    assert folder.read_interval() is None
    (tmp_path / "listeners").mkdir()
    (tmp_path / "listeners" / "²").write_text("1")
    assert folder.listening_pids() == set()


@pytest.mark.parametrize("name", ["owner.json", "lock"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_planted_in_the_place_of_our_files_is_refused_with_its_name(
    tmp_path: Path, hidden: Path, name: str, kind: str
) -> None:
    if kind == "link":
        (hidden / name).symlink_to(tmp_path / "theirs")
    elif kind == "pipe":
        os.mkfifo(hidden / name)
    else:
        (hidden / name).mkdir()
    done = run(*options(tmp_path), *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert f"{hidden / name} is no regular file" in (tmp_path / "log").read_text()
    assert (tmp_path / "theirs").read_text() == "untouched"


@pytest.mark.parametrize("name", ["", identity_of(BASE), f"{identity_of(BASE)}/finished"])
def test_a_link_in_the_place_of_our_folders_is_refused_and_nothing_is_written_there(
    tmp_path: Path, hidden: Path, name: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    place = hidden / name
    if not name:
        hidden.rmdir()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path / "elsewhere")
    done = run(*options(tmp_path), "--state", tmp_path / "state", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert "gpuflow-run did not make it; remove it" in done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.parametrize("name", ["", "state", "state/default", f"state/{BASE}", f"state/{BASE}/attempts"])
@pytest.mark.parametrize("forget", [False, True])
def test_a_link_in_the_place_of_the_book_is_refused_before_anything_is_written(
    tmp_path: Path, hidden: Path, name: str, forget: bool
) -> None:
    """Without a store and a state the book is in the checkpoint directory, and is opened before all else."""
    (tmp_path / "elsewhere").mkdir()
    place = hidden / name
    if not name:
        hidden.rmdir()
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(tmp_path / "elsewhere")
    words = ("forget", *options(tmp_path)) if forget else (*options(tmp_path), *shell("echo ran"))
    done = run(*words)
    assert (done.returncode, done.stdout) == (78, "")
    assert f"{place} is no folder, or a link to one" in done.stderr
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_folders_behind_planted_links_are_not_cleared(tmp_path: Path, hidden: Path) -> None:
    """What the dead left is removed; what a link of theirs leads to is not."""
    run(*options(tmp_path), *shell("exit 5"))
    victim = tmp_path / "elsewhere" / ("b" * 16)
    victim.mkdir(parents=True)
    (victim / "data").write_text("untouched")
    (hidden / ("a" * 16)).symlink_to(tmp_path / "elsewhere")
    (hidden / identity_of(BASE) / ("c" * 16)).symlink_to(victim)
    (hidden / ("d" * 16)).write_text("a file")
    assert run(*options(tmp_path), *shell("echo ran")).stdout == "ran\n"
    assert sorted(os.listdir(victim)) == ["data"]


@pytest.mark.parametrize(
    "record", [{"entries": "x"}, {"stored": 5}, {"total": []}, {"key": {"inode": "x"}}, {"stall_seconds": "long"}]
)
def test_what_others_wrote_down_about_an_entry_is_believed_only_in_its_shape(
    tmp_path: Path, record: dict[str, object]
) -> None:
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; echo 1 >.t; mv .t one; exit 5'
    assert run(*options(tmp_path), *shell(save)).returncode == 5
    (path,) = (tmp_path / "c" / ".gpuflow").glob("*/finished/one.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), **record}))
    done = run(*options(tmp_path), *shell('echo "from:$GPUFLOW_RESUME_FROM"'))
    assert (done.returncode, done.stdout) == (0, "from:\n"), done.stderr


# -- who is ended


def stranger(environ: dict[str, str] | None = None) -> subprocess.Popen[bytes]:
    code = "import time; print(flush=True); time.sleep(60)"
    made = subprocess.Popen(
        [sys.executable, "-c", code], env=environment(environ), stdout=subprocess.PIPE, start_new_session=True
    )
    assert made.stdout is not None
    made.stdout.readline()
    return made


def forge_owner(hidden: Path, pid: int, attempt_id: str = "ab") -> None:
    facts = {
        "identity": identity_of(BASE),
        "run": BASE,
        "attempt": 1,
        "id": attempt_id,
        "boot": directory_owner.boot_id(),
    }
    (hidden / "owner.json").write_text(json.dumps({**facts, "child": pid, "child_began": process_began(pid)}))


@pytest.mark.parametrize("marked", ["", "another run", "another directory"])
def test_a_forged_owner_file_ends_nobody(tmp_path: Path, hidden: Path, marked: str) -> None:
    """Not even a program of gpuflow's whose supervisor is dead, unless it is this run's, or works in this directory."""
    environ = {}
    if marked:
        attempt = "ab" if marked == "another directory" else "cd"
        environ = {container.VARIABLE: f"feedfeedfeedfeed.{attempt}.999999.1", "GPUFLOW_CHECKPOINT_DIR": str(tmp_path)}
    victim = stranger(environ)
    try:
        forge_owner(hidden, victim.pid)
        done = run(*options(tmp_path), *shell("echo ran"))
        assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr
        assert victim.poll() is None
    finally:
        victim.kill()
        victim.wait()


def test_a_program_that_outlived_its_supervisor_in_this_directory_is_ended(tmp_path: Path, hidden: Path) -> None:
    place = str(tmp_path / "c")
    left = stranger({container.VARIABLE: "feedfeedfeedfeed.ab.999999.1", "GPUFLOW_CHECKPOINT_DIR": place})
    try:
        forge_owner(hidden, left.pid)
        assert run(*options(tmp_path), *shell("echo ran")).stdout == "ran\n"
        assert left.wait(120) == -signal.SIGKILL
    finally:
        left.kill()
        left.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be another user")
def test_programs_of_other_users_are_left_alone() -> None:
    code = "import os, time; os.setuid(12345); print(flush=True); time.sleep(60)"
    environ = environment({container.VARIABLE: "feedfeedfeedfeed.ab.999999.1"})
    other = subprocess.Popen([sys.executable, "-c", code], env=environ, stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert other.stdout is not None
        other.stdout.readline()
        assert other.pid not in directory_owner.find_orphans("feedfeedfeedfeed", {"ab"})
        assert container.is_own(os.getpid())
        assert not container.is_own(other.pid)
    finally:
        other.kill()
        other.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
def test_an_owner_file_of_another_user_is_not_believed_and_that_is_said(tmp_path: Path, hidden: Path) -> None:
    forge_owner(hidden, os.getpid())
    os.chown(hidden / "owner.json", 12345, 12345)
    ledger = Ledger(Folder(str(tmp_path / "s")), BASE)
    assert ledger.claim(ledger.history())
    occupancy = Occupancy(Directory(str(tmp_path / "c")), ledger, lambda _: None)
    occupancy.enter()
    try:
        assert directory_owner.read_owner(occupancy.directory) == {}
        assert any("belongs to user 12345" in remark for remark in occupancy.directory.remarks)
        directory_owner.write_owner(occupancy.directory, ledger)
        assert directory_owner.read_owner(occupancy.directory)["id"] == ledger.id
    finally:
        occupancy.leave()
    done = run(*options(tmp_path), *shell("sleep 0.3"))
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file to another user")
@pytest.mark.parametrize("again", [False, True], ids=["first", "after forget"])
def test_a_run_whose_user_was_changed_resumes_from_its_own_checkpoints_without_a_store(
    tmp_path: Path, hidden: Path, again: bool
) -> None:
    if again:
        run(*options(tmp_path), *shell("exit 1"))
        assert run("forget", *options(tmp_path)).returncode == 0
    run(*options(tmp_path), *shell("cd $GPUFLOW_CHECKPOINT_DIR; echo week > .a; mv .a a; exit 1"))
    for path in (hidden, *hidden.rglob("*")):
        os.chown(path, 12345, 12345)
    done = run(*options(tmp_path), *shell('cat "$GPUFLOW_RESUME_FROM"'))
    assert (done.returncode, done.stdout) == (0, "week\n"), done.stderr
    assert "belongs to user 12345" in done.stderr


# -- what is said


def test_what_is_said_is_one_line_without_terminal_codes(tmp_path: Path) -> None:
    assert one_line("a\n::error::b\x1b[2J\u202ec\udcff") == "a\\n::error::b\\x1b[2J\\u202ec\\udcff"
    final = ("--state", tmp_path / "s", "--run-id", "r", "--final-exit-codes", "3")
    assert run(*final, *shell("exit 3")).returncode == 79
    (end,) = (tmp_path / "s").rglob("*.end.json")
    value = {**json.loads(end.read_bytes()), "because": "x\ngpuflow-run: attempt 1 succeeded\x1b[2J"}
    end.write_bytes(records.encode({**value, "hash": records.digest(value)}))
    (tmp_path / "log").write_text("")
    done = run(*final, "--termination-log", tmp_path / "log", *shell("echo ran"))
    assert done.returncode == 79
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr + (tmp_path / "log").read_text().splitlines()[0]
