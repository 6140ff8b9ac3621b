"""Only finished checkpoints are taken: renamed ones, marked ones, and those the API vouches for.

Tests gpuflow/runtime/checkpoints/completeness.py and gpuflow/runtime/state/checkpoint_dir.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuflow.runtime.base import files
from gpuflow.runtime.checkpoints.completeness import Watch
from gpuflow.runtime.state.checkpoint_dir import MARKER, Directory
from tests.runtime.harness import clock_of_files_ticks, run, shell


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    made = Directory(str(tmp_path))
    made.prepare()
    return made


def names(directory: Directory) -> list[str]:
    return [entry.name for entry in directory.finished_entries()]


def test_a_file_written_in_place_is_never_finished(directory: Directory, tmp_path: Path) -> None:
    watch = Watch(str(tmp_path))
    (tmp_path / "half").write_text("…")
    directory.look(watch.wait(0.05))
    directory.look(watch.wait(0.05))
    assert names(directory) == []
    watch.close()


def test_a_renamed_file_is_finished_at_once(directory: Directory, tmp_path: Path) -> None:
    watch = Watch(str(tmp_path))
    (tmp_path / ".tmp").write_text("whole")
    os.rename(tmp_path / ".tmp", tmp_path / "one")
    directory.look(watch.wait(1.0))
    assert names(directory) == ["one"]
    watch.close()


def test_a_rename_from_another_directory_counts_too(directory: Directory, tmp_path: Path) -> None:
    watch = Watch(str(tmp_path))
    (tmp_path / ".work").mkdir()
    (tmp_path / ".work" / "x").write_text("whole")
    os.rename(tmp_path / ".work" / "x", tmp_path / "two")
    directory.look(watch.wait(1.0))
    assert names(directory) == ["two"]
    watch.close()


def test_without_inotify_a_dotted_name_seen_before_proves_the_rename(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / ".tmp").write_text("whole")
    directory.look()
    os.rename(tmp_path / ".tmp", tmp_path / "one")
    directory.look()
    assert names(directory) == ["one"]


def test_a_directory_is_finished_when_it_holds_the_marker(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    directory.look()
    assert names(directory) == []
    (tmp_path / "checkpoint-5" / MARKER).touch()
    directory.look()
    assert names(directory) == ["checkpoint-5"]


def test_a_name_that_is_written_again_in_place_is_no_longer_finished(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "last").write_text("whole")
    directory.record("last")
    (tmp_path / "last").write_text("hal")
    assert names(directory) == []


def test_a_name_that_is_replaced_by_rename_is_a_new_checkpoint(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "last").write_text("one")
    directory.record("last", stored="000001")
    (tmp_path / ".new").write_text("two!")
    os.replace(tmp_path / ".new", tmp_path / "last")
    directory.look(["last"])
    (entry,) = directory.finished_entries()
    assert entry.stored is None


def test_the_order_is_that_of_finishing_whatever_the_clock_says(directory: Directory, tmp_path: Path) -> None:
    for index, name in enumerate(["c", "a", "b"]):
        (tmp_path / name).write_text(name)
        os.utime(tmp_path / name, (10_000 - index, 10_000 - index))
        directory.record(name)
    assert names(directory) == ["c", "a", "b"]


def test_links_and_removed_entries_are_no_checkpoints(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "real").write_text("x")
    (tmp_path / "latest").symlink_to("real")
    directory.look(["latest", "real"])
    assert names(directory) == ["real"]
    (tmp_path / "real").unlink()
    assert names(directory) == []


def test_what_another_run_left_is_passed_over_until_it_is_written_anew(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "checkpoint-5").mkdir()
    (tmp_path / "checkpoint-5" / MARKER).touch()
    directory.look()
    directory.disown()
    directory.look()
    assert names(directory) == []
    os.utime(tmp_path / "checkpoint-5" / MARKER, (1, 1))
    directory.look()
    assert names(directory) == ["checkpoint-5"]


def test_when_no_one_tells_of_renames_the_times_of_a_file_do(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "in-place").write_text("…")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("whole")
    clock_of_files_ticks(tmp_path)
    os.rename(tmp_path / "other" / "x", tmp_path / "one")
    directory.look(deaf=True)
    assert names(directory) == ["one"]


def test_the_inode_of_a_dotted_file_that_is_gone_makes_no_checkpoint_of_the_next_to_get_it(
    directory: Directory, tmp_path: Path
) -> None:
    hits = 0
    for index in range(30):
        (tmp_path / ".tmp").write_text("whole")
        directory.look()
        os.rename(tmp_path / ".tmp", tmp_path / "state")
        directory.look(["state"])
        inode = (tmp_path / "state").stat().st_ino
        (tmp_path / "state").unlink()
        (tmp_path / f"metrics-{index}.csv").write_text("in place")
        hits += (tmp_path / f"metrics-{index}.csv").stat().st_ino == inode
        directory.look()
        directory.look()
    if not hits:
        pytest.skip("this file system does not give inodes away again at once")
    assert names(directory) == []


def test_a_dotted_file_that_is_removed_between_two_looks_makes_no_checkpoint_either(
    directory: Directory, tmp_path: Path
) -> None:
    (tmp_path / ".tmp").write_text("whole")
    if not files.birth_time(str(tmp_path / ".tmp")):
        pytest.skip("this file system knows no time of birth")
    for index in range(30):
        (tmp_path / ".tmp").write_text("whole")
        directory.look()
        (tmp_path / ".tmp").unlink()
        clock_of_files_ticks(tmp_path)
        (tmp_path / f"log-{index}").write_text("in place")
        directory.look()
    assert names(directory) == []


def test_a_directory_that_is_saved_again_under_its_name_is_a_new_checkpoint_whatever_its_inode(
    directory: Directory, tmp_path: Path
) -> None:
    watch = Watch(str(tmp_path))
    orders = []
    for step in range(4):
        if step:
            (tmp_path / "last" / "x").unlink()
            (tmp_path / "last").rmdir()
        (tmp_path / ".last").mkdir()
        (tmp_path / ".last" / "x").write_text(str(step))
        os.rename(tmp_path / ".last", tmp_path / "last")
        directory.look(watch.wait(1.0))
        (entry,) = directory.finished_entries()
        assert entry.stored is None
        orders.append(entry.order)
        directory.record("last", stored=f"copy-{step}")
    assert orders == sorted(set(orders))
    watch.close()


def test_what_is_moved_away_and_back_is_a_new_checkpoint_for_it_may_have_been_written_meanwhile(
    directory: Directory, tmp_path: Path
) -> None:
    (tmp_path / "last").mkdir()
    (tmp_path / "last" / "x").write_text("1")
    directory.look(["last"])
    directory.record("last", stored="copy")
    os.rename(tmp_path / "last", tmp_path / ".away")
    (tmp_path / ".away" / "x").write_text("2")
    os.rename(tmp_path / ".away", tmp_path / "last")
    directory.look(["last"])
    (entry,) = directory.finished_entries()
    assert entry.stored is None


def test_a_rename_that_a_look_saw_itself_is_not_told_a_second_time(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / ".tmp").write_text("whole")
    directory.look()
    os.rename(tmp_path / ".tmp", tmp_path / "one")
    directory.look()
    directory.record("one", stored="copy")
    directory.look(["one"])
    (entry,) = directory.finished_entries()
    assert entry.stored == "copy"


def test_a_directory_made_anew_in_place_under_a_finished_name_is_not_finished(
    directory: Directory, tmp_path: Path
) -> None:
    hits = 0
    for index in range(30):
        name = f"last-{index}"
        (tmp_path / name).mkdir()
        directory.record(name)
        assert names(directory) == [name]
        inode = (tmp_path / name).stat().st_ino
        (tmp_path / name).rmdir()
        clock_of_files_ticks(tmp_path)
        (tmp_path / name).mkdir()
        hits += (tmp_path / name).stat().st_ino == inode
        (tmp_path / name / "half").write_text("…")
        assert names(directory) == []
    if not hits:
        pytest.skip("this file system does not give inodes away again at once")


def test_without_births_a_directory_that_changed_is_no_checkpoint_and_that_is_said(
    directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "birth_time", lambda path: 0)
    (tmp_path / "last").mkdir()
    directory.record("last")
    clock_of_files_ticks(tmp_path)
    (tmp_path / "last" / "late").write_text("…")
    assert names(directory) == []
    (remark,) = directory.remarks
    assert "last was changed after it was finished" in remark


def test_a_file_put_into_a_finished_directory_later_does_not_undo_it(directory: Directory, tmp_path: Path) -> None:
    (tmp_path / "last").mkdir()
    if not files.birth_time(str(tmp_path / "last")):
        pytest.skip("this file system knows no time of birth")
    directory.record("last")
    clock_of_files_ticks(tmp_path)
    (tmp_path / "last" / "metrics").write_text("…")
    assert names(directory) == ["last"]


def test_when_no_one_tells_of_renames_what_lay_there_at_the_start_is_not_taken(
    directory: Directory, tmp_path: Path
) -> None:
    (tmp_path / ".x").write_text("of another run")
    clock_of_files_ticks(tmp_path)
    os.rename(tmp_path / ".x", tmp_path / "theirs")
    directory.remember()
    directory.look(deaf=True)
    assert names(directory) == []
    (tmp_path / ".x").write_text("ours")
    clock_of_files_ticks(tmp_path)
    os.rename(tmp_path / ".x", tmp_path / "theirs")
    directory.look(deaf=True)
    assert names(directory) == ["theirs"]


def test_a_finished_checkpoint_is_known_also_while_the_disk_is_too_full_to_write_it_down(
    directory: Directory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "one").write_text("whole")
    real = os.replace

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    directory.look(["one"])
    assert names(directory) == ["one"]
    assert any("No space left on device" in remark for remark in directory.remarks)
    records = Path(directory.own_folder) / "finished"
    assert os.listdir(records) == []
    monkeypatch.setattr(os, "replace", real)
    directory.look()
    assert os.listdir(records) == ["one.json"]
    again = Directory(str(tmp_path))
    assert names(again) == ["one"]


def test_a_watched_directory_that_is_made_anew_is_noticed_and_can_be_watched_again(tmp_path: Path) -> None:
    place = tmp_path / "c"
    place.mkdir()
    watch = Watch(str(place))
    assert not watch.is_gone()
    for _ in range(3):
        place.rmdir()
        assert watch.is_gone()
        assert not watch.renew()
        place.mkdir()
        watch.wait(0.0)
        assert watch.is_gone()
        assert watch.renew()
        watch.wait(0.0)
        assert not watch.is_gone()
    place.rmdir()
    place.mkdir()
    watch.wait(0.0)
    assert watch.is_gone()
    assert watch.renew()
    (place / ".x").write_text("whole")
    os.rename(place / ".x", place / "one")
    assert watch.wait(1.0) == ["one"]
    watch.close()


def test_an_empty_folder_is_no_checkpoint_and_holds_nothing_up(tmp_path: Path) -> None:
    code = 'cd "$GPUFLOW_CHECKPOINT_DIR"; mkdir .a .b; echo 1 >.a/x; mv .a good; mv .b empty; sleep 0.5; exit 4'
    for store in ((), ("--store", tmp_path / "s")):
        options = ("--checkpoint-dir", tmp_path / f"c{len(store)}", *store, "--run-id", "r", "--every", "0s")
        done = run(*options, "--grace", "10m", "--storage-timeout", "10m", *shell(code))
        assert done.returncode == 4
        again = run(*options, *shell('basename "$GPUFLOW_RESUME_FROM"'))
        assert again.stdout == "good\n"
        assert "empty is an empty folder" in done.stderr + again.stderr
