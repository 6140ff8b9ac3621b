"""The store in a directory keeps its three promises; identities never meet.

Tests gpuflow/runtime/stores/folder_store.py, gpuflow/runtime/stores/open.py and gpuflow/runtime/stores/store.py.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime.base import attempt_folder
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.stores import folder_store as storing
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.fsspec_store import NoDriver
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import StorageError
from gpuflow.runtime.supervise.supervisor import open_place
from tests.runtime.racing import one_of_many_creates


def test_of_many_that_create_one_object_one_succeeds(tmp_path: Path) -> None:
    one_of_many_creates(lambda: Folder(str(tmp_path)), 16, "a/claim")


def test_a_write_that_breaks_off_leaves_the_old_object_and_no_litter(tmp_path: Path) -> None:
    store = Folder(str(tmp_path))
    store.write("k", b"old")

    def broken() -> Iterator[bytes]:
        yield b"new"
        raise OSError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        store.put("k", broken(), 3)
    assert store.read("k") == b"old"
    assert os.listdir(tmp_path) == ["k"]


def test_half_written_parts_of_a_killed_writer_are_not_listed(tmp_path: Path) -> None:
    (tmp_path / ".part-1-0123456789abcdef").write_bytes(b"half")
    assert Folder(str(tmp_path)).names("") == []


def test_deleting_the_last_object_removes_empty_folders(tmp_path: Path) -> None:
    store = Folder(str(tmp_path))
    store.write("a/b/c", b"x")
    store.delete(["a/b/c", "a/b/none"])
    assert os.listdir(tmp_path) == []


def test_a_kind_of_store_that_nobody_speaks_is_named() -> None:
    with pytest.raises(NoDriver, match="ftp://"):
        open_store("ftp://host/x")
    with pytest.raises(BadOption, match="ftp://"):
        open_place("ftp://host/x")


def test_persist_tries_again_and_gives_up_in_time() -> None:
    calls: list[int] = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise StorageError("not yet")
        return "done"

    assert persist(flaky, Limit(float("inf")), first_wait=0.001) == "done"
    with pytest.raises(StorageError):
        persist(lambda: (_ for _ in ()).throw(StorageError("never")), Limit(0))


NAMES = st.text(min_size=1, max_size=200)


@given(st.tuples(NAMES, NAMES, NAMES, st.none() | NAMES), st.tuples(NAMES, NAMES, NAMES, st.none() | NAMES))
def test_two_identities_share_a_path_only_when_they_are_equal(
    one: tuple[str, str, str, str | None], other: tuple[str, str, str, str | None]
) -> None:
    assert (attempt_folder.identity_path(*one) == attempt_folder.identity_path(*other)) == (one == other)


def test_attempts_of_a_task_share_a_path_and_turns_of_a_loop_do_not() -> None:
    def path(task: str) -> str:
        return attempt_folder.identity_path("p", "run", "train", None, task)

    first, second = "p-x7.root.train(0).executor(0)", "p-x7.root.train(0).executor(1)"
    assert path(first) == path(second) == path("p-x7.root.train.executor")
    assert path("p-x7.root.loop(0:1).train(0)") != path("p-x7.root.loop(1:2).train(0)")
    assert path(first) != attempt_folder.identity_path("p", "run", "train", None)


@given(NAMES)
def test_a_part_is_a_safe_file_name(text: str) -> None:
    part = attempt_folder.path_part(text)
    assert "/" not in part
    assert part not in ("", ".", "..")
    assert not part.startswith(".")
    assert len(part) <= 120
    assert part.isascii()


@given(NAMES, NAMES, NAMES)
def test_an_item_never_lies_inside_the_state_of_its_step(pipeline: str, run: str, step: str) -> None:
    whole = attempt_folder.identity_path(pipeline, run, step, None)
    for name in ("attempts", "checkpoints", "success.json"):
        assert not attempt_folder.identity_path(pipeline, run, step, name).startswith(f"{whole}/{name}")


# -- listings


def test_a_folder_that_cannot_be_listed_is_an_error_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Folder(str(tmp_path))
    store.write("a/b/c", b"x")
    real = os.scandir

    def broken(path: int) -> object:
        if os.readlink(f"/proc/self/fd/{path}").endswith("/b"):
            raise OSError(5, "Input/output error")
        return real(path)

    monkeypatch.setattr(os, "scandir", broken)
    with pytest.raises(StorageError, match="Input/output error"):
        store.names("a")


def test_a_prefix_that_is_not_there_is_empty(tmp_path: Path) -> None:
    store = Folder(str(tmp_path))
    store.write("file", b"x")
    assert store.names("never") == []
    assert store.names("file/below") == []


# -- without hard links


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)


@pytest.mark.usefixtures("no_links")
def test_without_hard_links_one_of_many_still_creates(tmp_path: Path) -> None:
    one_of_many_creates(lambda: Folder(str(tmp_path)), 16)


@pytest.mark.usefixtures("no_links")
def test_without_hard_links_a_write_that_fails_leaves_no_torn_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.fsync
    calls: list[int] = []

    def full(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match="No space left"):
        Folder(str(tmp_path)).create("k", b"1")
    assert os.listdir(tmp_path) == []


def test_a_link_that_fails_for_another_reason_is_trouble(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stale(*_: object, **__: object) -> None:
        raise OSError(errno.ESTALE, "Stale file handle")

    monkeypatch.setattr(os, "link", stale)
    with pytest.raises(StorageError, match="Stale"):
        Folder(str(tmp_path)).create("k", b"1")


# -- many files


def test_many_files_are_put_at_once_with_one_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(os, "fsync", flushed.append)
    at_once: list[int] = []
    most = [0]
    lock = threading.Lock()

    def chunks(index: int) -> Iterator[bytes]:
        with lock:
            at_once.append(index)
            most[0] = max(most[0], len(at_once))
        time.sleep(0.005)
        yield str(index).encode()
        with lock:
            at_once.remove(index)

    store = Folder(str(tmp_path))
    store.put_all((f"d{index % 7}/{index}", chunks(index), 3) for index in range(60))
    assert 1 < most[0] <= Folder.streams
    assert len(flushed) < 10
    assert {key: store.read(key) for key, _ in store.names("")} == {
        f"d{index % 7}/{index}": str(index).encode() for index in range(60)
    }


def test_where_the_file_system_cannot_be_flushed_each_file_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(storing, "_sync_file_system", lambda path: False)
    monkeypatch.setattr(os, "fsync", lambda handle: flushed.append(os.readlink(f"/proc/self/fd/{handle}")))
    Folder(str(tmp_path)).put_all((f"{index}", [b"x"], 1) for index in range(6))
    assert {str(tmp_path / str(index)) for index in range(6)} <= set(flushed)


def test_an_error_among_many_is_raised_and_ends_the_rest(tmp_path: Path) -> None:
    started: list[int] = []

    def items() -> Iterator[tuple[str, Iterator[bytes], int]]:
        for index in range(1000):
            started.append(index)
            yield f"{index}", broken() if index == 3 else iter([b"x"]), 1

    def broken() -> Iterator[bytes]:
        yield b"x"
        raise OSError("the disk is full")

    with pytest.raises(StorageError, match="the disk is full"):
        Folder(str(tmp_path), lasting=False).put_all(items())
    assert len(started) < 500
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".part-")]


def test_a_file_that_is_named_nearly_as_an_upload_is_a_file(tmp_path: Path) -> None:
    store = Folder(str(tmp_path))
    names = ["a/.part-0", "a/.part-1-x", "a/.part-1-0123456789abcdef0"]
    for name in names:
        store.write(name, b"1")
    store.clear_uploads("a")
    assert [key for key, _ in store.names("a")] == sorted(names)


def test_what_killed_writers_left_is_cleared_below_a_prefix_only(tmp_path: Path) -> None:
    store = Folder(str(tmp_path))
    for name in ("a/x/.part-1-0123456789abcdef", "b/.part-2-fedcba9876543210", "a/kept"):
        store.write(name, b"half")
    store.clear_uploads("a")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == [
        "a/kept",
        "b/.part-2-fedcba9876543210",
    ]


def test_manifests_are_deleted_before_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Folder(str(tmp_path))
    gone: list[str] = []
    for key in ("c/files/a", "c/files/b", "c/manifest.json"):
        store.write(key, b"x")
    monkeypatch.setattr(os, "unlink", lambda path, dir_fd: gone.append(path))
    store.delete(["c/files/a", "c/manifest.json", "c/files/b"])
    assert gone == ["manifest.json", "a", "b"]


# -- how long storage may fail


class Clock:
    """Time that passes only when someone sleeps."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time, "monotonic", lambda: self.now)
        monkeypatch.setattr(time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_transfer_that_moves_may_take_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    limit, tries = Limit(60), [0]

    def slow() -> str:
        tries[0] += 1
        for _ in range(10):
            clock.sleep(30)
            limit.progress()
        if tries[0] == 1:
            raise StorageError("connection reset after 300 s")
        return "done"

    assert persist(slow, limit) == "done"


def test_without_progress_the_limit_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def dead() -> None:
        raise StorageError("no answer")

    with pytest.raises(StorageError):
        persist(dead, Limit(60))
    assert 1050 < clock.now <= 1060


def test_a_wait_ends_soon_when_it_is_not_wanted_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    def dead() -> None:
        raise StorageError("no answer")

    with pytest.raises(StorageError):
        persist(dead, Limit(600), lambda: clock.now > 1021, longest_wait=60)
    assert clock.now < 1022
