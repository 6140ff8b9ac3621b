"""The store in a directory keeps its three promises; identities never meet."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime import identity
from gpuflow.runtime.options import BadOption
from gpuflow.runtime.remote import NoDriver
from gpuflow.runtime.store import Folder, StorageError, open_store, persist
from gpuflow.runtime.supervisor import _open_place


def test_of_many_that_create_one_object_one_succeeds(tmp_path: Path) -> None:
    won: list[int] = []

    def create(index: int) -> None:
        if Folder(str(tmp_path)).create("a/claim", str(index).encode()):
            won.append(index)

    threads = [threading.Thread(target=create, args=(index,)) for index in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert Folder(str(tmp_path)).read("a/claim") == str(won[0]).encode()


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
    (tmp_path / ".part-1-ab").write_bytes(b"half")
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
        _open_place("ftp://host/x")


def test_persist_tries_again_and_gives_up_in_time() -> None:
    calls: list[int] = []

    def flaky() -> str:
        calls.append(1)
        if len(calls) < 3:
            raise StorageError("not yet")
        return "done"

    assert persist(flaky, float("inf"), first_wait=0.001) == "done"
    with pytest.raises(StorageError):
        persist(lambda: (_ for _ in ()).throw(StorageError("never")), 0.0)


NAMES = st.text(min_size=1, max_size=200)


@given(st.tuples(NAMES, NAMES, NAMES, st.none() | NAMES), st.tuples(NAMES, NAMES, NAMES, st.none() | NAMES))
def test_two_identities_share_a_path_only_when_they_are_equal(
    one: tuple[str, str, str, str | None], other: tuple[str, str, str, str | None]
) -> None:
    assert (identity.path(*one) == identity.path(*other)) == (one == other)


@given(NAMES)
def test_a_part_is_a_safe_file_name(text: str) -> None:
    part = identity.part(text)
    assert "/" not in part
    assert part not in ("", ".", "..")
    assert not part.startswith(".")
    assert len(part) <= 120
    assert part.isascii()


@given(NAMES, NAMES, NAMES)
def test_an_item_never_lies_inside_the_state_of_its_step(pipeline: str, run: str, step: str) -> None:
    whole = identity.path(pipeline, run, step, None)
    for name in ("attempts", "checkpoints", "success.json"):
        assert not identity.path(pipeline, run, step, name).startswith(f"{whole}/{name}")
