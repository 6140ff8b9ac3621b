"""Whose directory it is: one living run, step and item; two attempts of one run; what the dead have left."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from gpuflow.runtime.base.attempt_folder import identity_of
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.state import directory_owner
from gpuflow.runtime.state.checkpoint_dir import MARKER, Directory
from gpuflow.runtime.state.directory_owner import AttemptLock, Occupancy, remove_if_dead
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores.folder_store import Folder
from tests.runtime.harness import environment, eventually, python, run, shell, start, words

STEPS = """
import time
from gpuflow.runtime import checkpointing
with checkpointing(every=0.2) as ckpt:
    for step in range(40):
        time.sleep(0.05)
        if ckpt.due():
            ckpt.save(lambda path: open(path, "w").write(str(step)))
        if ckpt.interrupted:
            break
    else:
        print("all", flush=True)
"""


def occupy(
    folder: Path, run_id: str, said: list[str] | None = None, *, arbitrated: bool = True, own: str = ""
) -> Occupancy:
    """A supervisor's hold on a directory; each has a book of its own, so every one is attempt 1."""
    ledger = Ledger(Folder(str(folder.parent / f"book-{os.urandom(4).hex()}")), f"p/{run_id}/s")
    ledger.claim(ledger.history())
    occupancy = Occupancy(
        Directory(str(folder), own=own), ledger, (said if said is not None else []).append, arbitrated=arbitrated
    )
    occupancy.enter()
    directory_owner.write_owner(occupancy.directory, ledger)
    return occupancy


def test_a_directory_that_a_living_stranger_uses_is_refused_with_both_names(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s")
    first = start(*options, "--run-id", "one", *shell("echo up; sleep 60"))
    assert first.stdout is not None
    assert first.stdout.readline() == "up\n"
    second = run(*options, "--run-id", "two", "--interruptions", "0", *shell("echo never"))
    assert (second.returncode, second.stdout) == (78, "")
    assert "in use by default/one/default, which is alive; default/two/default cannot work there" in second.stderr
    assert "--own-folder" in second.stderr
    assert first.poll() is None
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == 75
    third = run(*options, "--run-id", "two", "--interruptions", "0", *shell("echo now"))
    assert third.stdout == "now\n", "to be refused costs no interruption"


def test_without_a_run_id_no_second_supervisor_works_in_the_directory(tmp_path: Path) -> None:
    first = start("--checkpoint-dir", tmp_path / "c", *shell("echo up; sleep 60"))
    assert first.stdout is not None
    assert first.stdout.readline() == "up\n"
    assert run("--checkpoint-dir", tmp_path / "c", *shell("echo never")).returncode == 78
    first.send_signal(signal.SIGTERM)
    assert first.wait(120) == 75


def test_two_items_on_one_volume_do_not_end_each_other(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "volume", "--own-folder", "--store", tmp_path / "s", "--run-id", "r")
    ended = start(*options, "--item", "a", *python(STEPS.replace("range(40)", "range(100_000)")))
    other = start(*options, "--item", "b", *python(STEPS))
    own = [tmp_path / "volume" / identity_of(f"default/r/default/items/{item}") for item in "ab"]
    eventually(lambda: all(list(folder.glob("checkpoint-*")) for folder in own))
    ended.send_signal(signal.SIGTERM)
    assert ended.wait(120) == 75
    assert other.wait(120) == 0
    assert other.stdout is not None
    assert other.stdout.read() == "all\n"


def test_an_older_attempt_of_the_same_run_is_no_stranger_and_keeps_its_own_folder(tmp_path: Path) -> None:
    said: list[str] = []
    old, new = occupy(tmp_path / "c", "r"), occupy(tmp_path / "c", "r", said)
    assert (old.held, new.held) == (True, False)
    assert any("older attempt of this run" in sentence for sentence in said)
    assert old.directory.identity == new.directory.identity
    assert old.directory.folder.stop != new.directory.folder.stop
    old.directory.folder.write_stop(1.0)
    assert new.directory.folder.read_stop() is None
    old.leave()
    assert new.renew()


def test_the_program_finds_the_folder_of_its_own_attempt(tmp_path: Path) -> None:
    supervisor = occupy(tmp_path / "c", "r").directory
    program = Directory.of_program(supervisor.path, supervisor.folder.stop)
    assert (program.identity, program.attempt) == (supervisor.identity, supervisor.attempt)
    alone = Directory.of_program(str(tmp_path / "c"), None)
    assert alone.attempt_folder == str(tmp_path / "c" / ".gpuflow" / "desk")


def test_what_the_dead_left_half_done_is_removed_and_their_checkpoints_stay(tmp_path: Path) -> None:
    stranger = occupy(tmp_path / "c", "other")
    (tmp_path / "c" / "theirs").write_text("a checkpoint")
    stranger.directory.record("theirs")
    stranger.leave()
    dead = occupy(tmp_path / "c", "r")
    (Path(dead.directory.attempt_folder) / "restore-x").write_text("half")
    dead.leave()
    occupancy = occupy(tmp_path / "c", "r")
    assert occupancy.held
    assert not os.path.exists(dead.directory.attempt_folder)
    assert not os.path.exists(stranger.directory.attempt_folder)
    assert (tmp_path / "c" / "theirs").read_text() == "a checkpoint"
    assert occupancy.directory.finished_entries() == []


def test_of_three_attempts_the_last_removes_nothing_of_the_second_that_lives_and_never_had_the_lock(
    tmp_path: Path,
) -> None:
    first, second = occupy(tmp_path / "c", "r"), occupy(tmp_path / "c", "r")
    resume = Path(second.directory.temporary("resume"))
    resume.write_text("hard links to the checkpoint that its program resumes from")
    first.leave()
    third = occupy(tmp_path / "c", "r")
    assert (second.held, third.held) == (False, True)
    assert resume.exists()
    assert not os.path.exists(first.directory.attempt_folder)
    second.leave()
    third.leave()
    assert occupy(tmp_path / "c", "r").held
    assert not os.path.exists(second.directory.attempt_folder), "once it is dead, what it left is removed"


def test_an_attempt_whose_folder_is_removed_while_it_comes_makes_it_again_and_is_alive(tmp_path: Path) -> None:
    folder, shared = tmp_path / "attempt", SharedFolder(str(tmp_path))
    alive = AttemptLock()
    assert alive.hold(shared, "attempt")
    remove_if_dead(shared, "attempt")
    assert folder.is_dir(), "it lives"
    alive.leave()
    remove_if_dead(shared, "attempt")
    assert not folder.exists()
    assert alive.hold(shared, "attempt")
    (folder / "alive").unlink()  # the directory was made anew
    assert alive.hold(shared, "attempt")
    remove_if_dead(shared, "attempt")
    assert folder.is_dir()


def test_who_is_refused_leaves_nothing_in_the_strangers_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_owner, "_PATIENCE", 0.1)
    occupy(tmp_path / "c", "one")
    before = sorted(tmp_path.glob("c/.gpuflow/*/*"))
    with pytest.raises(BadOption):
        occupy(tmp_path / "c", "two")
    assert sorted(tmp_path.glob("c/.gpuflow/*/*")) == before


def test_nothing_of_another_run_is_removed_on_another_machines_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stranger = occupy(tmp_path / "c", "other")
    stranger.leave()
    monkeypatch.setattr(directory_owner, "boot_id", lambda: "another")
    assert occupy(tmp_path / "c", "r").held
    assert os.path.exists(stranger.directory.attempt_folder)


def test_without_locks_only_a_folder_of_the_runs_own_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unsupported(handle: int, how: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(fcntl, "flock", unsupported)
    with pytest.raises(BadOption, match=r"without locks \(not supported\).* --own-folder"):
        occupy(tmp_path / "c", "r")
    first, second = (occupy(tmp_path / "c", "r", own="r") for _ in range(2))
    assert (first.held, second.held, second.renew()) == (False, False, False)


def test_an_attempt_that_was_followed_by_another_does_not_write_its_name_any_more(tmp_path: Path) -> None:
    book = Folder(str(tmp_path / "book"))
    ledgers = []
    for _ in range(2):
        ledgers.append(Ledger(book, "p/r/s"))
        ledgers[-1].claim(ledgers[-1].history())
    old, new = (Occupancy(Directory(str(tmp_path / "c")), ledger, print) for ledger in ledgers)
    old.enter()
    new.enter()
    directory_owner.write_owner(new.directory, ledgers[1])
    directory_owner.write_owner(old.directory, ledgers[0], os.getpid())
    assert directory_owner.read_owner(new.directory)["id"] == ledgers[1].id


def test_checkpoints_written_down_by_an_earlier_version_are_resumed_from(tmp_path: Path) -> None:
    folder = tmp_path / "c"
    (folder / ".gpuflow" / "finished").mkdir(parents=True)
    (folder / "one").write_text("whole")
    (folder / "two").mkdir()
    (folder / "two" / MARKER).touch()
    (folder / "torn").write_text("…")
    (one, two) = (folder / "one").stat(), (folder / "two").stat()
    keys = {
        "two": [two.st_ino, (folder / "two" / MARKER).stat().st_mtime_ns],
        "one": [one.st_ino, one.st_mtime_ns, one.st_size],
        "torn": [1, 2, 3],
    }
    for order, (name, key) in enumerate(keys.items()):
        (folder / ".gpuflow" / "finished" / f"{name}.json").write_text(json.dumps({"key": key, "order": order}))
    (folder / ".gpuflow" / "owner.json").write_text(json.dumps({"run": "default/r/default", "boot": "x", "id": "y"}))
    done = run("--checkpoint-dir", folder, "--run-id", "r", *shell('basename "$GPUFLOW_RESUME_FROM"'))
    assert done.stdout == "one\n"


def test_an_entry_of_another_run_in_the_way_of_a_restore_is_set_aside_and_not_removed(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--every", "0s")
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; echo %s >.x; mv .x last; sleep 0.5; exit 4'
    assert run(*options, "--run-id", "a", *shell(save % "a")).returncode == 4
    assert run(*options, "--run-id", "b", *shell(save % "b")).returncode == 4
    again = run(*options, "--run-id", "a", *shell('cat "$GPUFLOW_RESUME_FROM"'))
    assert again.stdout == "a\n"
    assert [path.read_text() for path in (tmp_path / "c").glob(".last.set-aside-*")] == ["b\n"]
    assert "of another run stood in the way" in again.stderr


SAVE_ONE = 'cd "$GPUFLOW_CHECKPOINT_DIR"; echo %s >.x; mv .x %s; sleep 0.5; exit 4'
RESUMED = 'cat "$GPUFLOW_RESUME_FROM" || echo nothing'


@pytest.mark.parametrize("between", ["another run", "a torn owner"])
def test_without_a_store_what_a_run_wrote_down_is_resumed_whoever_was_here_since(between: str, tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--every", "0s")
    assert run(*options, "--run-id", "a", *shell(SAVE_ONE % ("a", "last-a"))).returncode == 4
    if between == "another run":
        saved = f"mkdir .y; touch .y/{MARKER}; mv .y marked; {SAVE_ONE % ('b', 'last-b')}"
        other = run(*options, "--run-id", "b", *shell(f'{RESUMED}; cd "$GPUFLOW_CHECKPOINT_DIR"; {saved}'))
        assert (other.returncode, other.stdout) == (4, "nothing\n")
    else:
        (tmp_path / "c" / ".gpuflow" / "owner.json").write_text("")
    assert run(*options, "--run-id", "a", *shell(RESUMED)).stdout == "a\n"


def test_without_a_store_what_another_run_wrote_over_is_not_resumed(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--every", "0s")
    assert run(*options, "--run-id", "a", *shell(SAVE_ONE % ("a", "last"))).returncode == 4
    assert run(*options, "--run-id", "b", *shell(SAVE_ONE % ("b", "last"))).returncode == 4
    assert run(*options, "--run-id", "a", *shell(RESUMED)).stdout == "nothing\n"


def test_a_run_that_was_forgotten_is_not_resumed_from_its_directory(tmp_path: Path) -> None:
    state = ("--state", tmp_path / "t", "--run-id", "r")
    options = (*state, "--checkpoint-dir", tmp_path / "c", "--every", "0s")
    assert run(*options, *shell(SAVE_ONE % ("old", "old"))).returncode == 4
    assert run("forget", *state).returncode == 0
    assert run(*options, *shell(f"{RESUMED}; {SAVE_ONE % ('new', 'new')}")).stdout == "nothing\n"
    assert run(*options, *shell(RESUMED)).stdout == "new\n"


@pytest.mark.parametrize("own", [(), ("--own-folder",)])
def test_a_run_that_is_kept_in_its_directory_can_be_forgotten(own: tuple[str, ...], tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--run-id", "r", *own)
    assert run(*options, "--final-exit-codes", "4", "--every", "0s", *shell(SAVE_ONE % ("x", "x"))).returncode == 79
    final = run(*options, *shell("true"))
    assert final.returncode == 79
    assert "gpuflow-run forget" in final.stderr
    assert run("forget", *options).returncode == 0
    assert run(*options, *shell(RESUMED)).stdout == "nothing\n"


def test_forgetting_removes_the_checkpoints_where_the_book_is_elsewhere(tmp_path: Path) -> None:
    kept = ("--store", tmp_path / "s", "--state", tmp_path / "t", "--run-id", "r")
    saved = run(*kept, "--checkpoint-dir", tmp_path / "c", "--every", "0s", *shell(SAVE_ONE % ("x", "x")))
    assert saved.returncode == 4
    assert list((tmp_path / "s").rglob("manifest.json"))
    assert run("forget", *kept).returncode == 0
    assert not list((tmp_path / "s").rglob("checkpoints"))


@pytest.mark.skipif(
    os.geteuid() != 0 or os.system("unshare --pid --fork --mount-proc true 2>/dev/null") != 0,
    reason="a container's own process numbers need root",
)
def test_an_attempt_that_lost_ends_its_own_program_and_not_that_of_the_newer_one(tmp_path: Path) -> None:
    """Two attempts of one run, as in two containers with one volume: neither sees the other's processes."""
    options = ["--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--grace", "5s"]
    alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]

    def attempt(steps: int) -> subprocess.Popen[str]:
        command = python(STEPS.replace("range(40)", f"range({steps})"))
        return subprocess.Popen(
            [*alone, *words(*options, *command)],
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    old = attempt(100_000)
    eventually(lambda: list((tmp_path / "c").glob("checkpoint-*")))
    new = attempt(150)
    out, said = new.communicate(timeout=120)
    assert (new.returncode, out) == (0, "all\n")
    assert "an older attempt of this run still works in" in said
    out, said = old.communicate(timeout=120)
    assert (old.returncode, out) == (75, "")
    assert "attempt 2 has taken over from attempt 1; ending the command" in said


@pytest.mark.parametrize("folder", [False, True])
def test_what_an_older_attempts_program_removes_a_newer_one_can_still_resume_from(tmp_path: Path, folder: bool) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--every", "0s")
    save = "mkdir .x; echo 7 >.x/step" if folder else "echo 7 >.x"
    old = start(
        *options,
        *shell(
            f'cd "$GPUFLOW_CHECKPOINT_DIR"; {save}; mv .x c1; '
            f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; rm -r c1; touch {tmp_path}/gone; sleep 60"
        ),
    )
    eventually(lambda: list((tmp_path / "s").rglob("manifest.json")))
    read = '"$GPUFLOW_RESUME_FROM"/step' if folder else '"$GPUFLOW_RESUME_FROM"'
    new = run(
        *options,
        *shell(f"touch {tmp_path}/go; until [ -e {tmp_path}/gone ]; do sleep 0.05; done; cat {read}"),
    )
    old.send_signal(signal.SIGTERM)
    assert (new.returncode, new.stdout) == (0, "7\n"), new.stderr
    assert old.wait(60) == 75
