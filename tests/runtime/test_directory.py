"""Only finished checkpoints are taken: renamed ones, marked ones, and those the API vouches for."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gpuflow.runtime.directory import MARKER, Directory
from gpuflow.runtime.watch import Watch


@pytest.fixture
def directory(tmp_path: Path) -> Directory:
    made = Directory(str(tmp_path))
    made.prepare()
    return made


def names(directory: Directory) -> list[str]:
    return [entry.name for entry in directory.finished()]


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
    (entry,) = directory.finished()
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
    time.sleep(0.02)
    os.rename(tmp_path / "other" / "x", tmp_path / "one")
    directory.look(deaf=True)
    assert names(directory) == ["one"]
