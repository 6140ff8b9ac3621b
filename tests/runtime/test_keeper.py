"""The keeper: what it uploads is one whole checkpoint; what it cannot keep it says; what is needed stays.

Tests gpuflow/runtime/checkpoints/keeper.py, gpuflow/runtime/checkpoints/restore.py and
gpuflow/runtime/checkpoints/transfer.py.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.base.records import Corrupt, File
from gpuflow.runtime.checkpoints import keeper as keeping
from gpuflow.runtime.checkpoints import transfer
from gpuflow.runtime.checkpoints.completeness import Watch
from gpuflow.runtime.checkpoints.keeper import Keeper
from gpuflow.runtime.state import directory_owner
from gpuflow.runtime.state.checkpoint_dir import MARKER
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.storage_timeout import Limit
from gpuflow.runtime.stores.store import StorageError, Store
from tests.runtime.harness import clock_of_files_ticks, eventually, run, shell
from tests.runtime.test_faults import Machine


class Hooked(Folder):
    """A directory that does something before each upload, and counts what is sent, read and deleted."""

    def __init__(self, root: Path) -> None:
        super().__init__(str(root), lasting=False)
        self.streams = 1
        self.before: Callable[[str], None] = lambda key: None
        self.after_chunk: Callable[[str], None] = lambda key: None
        self.sent: list[str] = []
        self.fetched: list[str] = []
        self.deleted: list[list[str]] = []

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        self.before(key)
        self.sent.append(key)
        super().put(key, self._slowly(key, chunks), size)

    def put_all(self, items: Iterable[tuple[str, Iterable[bytes], int]]) -> None:
        Store.put_all(self, items)

    def chunks(self, key: str) -> Iterator[bytes]:
        self.fetched.append(key)
        for data in super().chunks(key):
            self.after_chunk(key)
            yield data

    def delete(self, keys: Iterable[str]) -> None:
        self.deleted.append(list(keys))
        super().delete(self.deleted[-1])

    def _slowly(self, key: str, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for data in chunks:
            yield data
            self.after_chunk(key)

    def files(self) -> list[str]:
        return [key.rpartition("/")[2] for key in self.sent if not key.endswith(".json")]


@pytest.fixture
def store(tmp_path: Path) -> Hooked:
    return Hooked(tmp_path / "store")


def machine(tmp_path: Path, store: Hooked, node: str = "a", keep: int = 2, **options: object) -> Machine:
    made = Machine(tmp_path / node, store, keep=keep)
    for name, value in options.items():
        setattr(made.options, name, value)
    made.begin()
    return made


def keeper(made: Machine) -> Keeper:
    assert made.keeper is not None
    return made.keeper


def marked(made: Machine, name: str, **files: str) -> Path:
    folder = Path(made.directory.path) / name
    folder.mkdir(exist_ok=True)
    for file, text in files.items():
        (folder / file).write_text(text)
    (folder / MARKER).touch()
    made.directory.look()
    return folder


def restored(tmp_path: Path, store: Hooked, node: str = "next") -> Path | None:
    store.before = store.after_chunk = lambda key: None
    path = Machine(tmp_path / node, store).begin().path
    return None if path is None else Path(path)


# -- one whole checkpoint


def test_a_marked_directory_that_is_written_again_while_it_is_uploaded_is_never_half_of_each(
    tmp_path: Path, store: Hooked
) -> None:
    made = machine(tmp_path, store)
    folder = marked(made, "last", a_model="save 1", b_optimizer="save 1")

    def rewrite(key: str) -> None:
        if key.endswith("a_model"):
            (folder / MARKER).unlink()
            (folder / "b_optimizer").write_text("save 2, ha")

    store.after_chunk = rewrite
    made.keep()
    assert restored(tmp_path, store) is None


def test_what_was_read_whole_before_it_was_written_again_is_still_kept(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store)
    folder = marked(made, "last", a_model="save 1", b_optimizer="save 1")

    def rewrite(key: str) -> None:
        if key.endswith("b_optimizer"):
            (folder / "a_model").write_text("save 2, ha")

    store.before = rewrite
    made.keep()
    path = restored(tmp_path, store)
    assert path is not None
    assert {file.name: file.read_text() for file in path.iterdir()} == {
        "a_model": "save 1",
        "b_optimizer": "save 1",
        MARKER: "",
    }


def test_a_directory_that_loses_its_marker_while_it_is_linked_is_not_taken(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(tmp_path, store)
    folder = marked(made, "last", a="save 1", b="save 1")
    real = os.link

    def link(source: str, target: str, **named: Any) -> None:
        real(source, target, **named)
        if source.endswith("/a"):
            (folder / MARKER).unlink()
            (folder / "b").write_text("save 2")
            (folder / MARKER).touch()

    monkeypatch.setattr(os, "link", link)
    made.keep()
    assert store.sent == []


@pytest.mark.parametrize("left", [(), ("b",)])
def test_a_directory_that_the_program_is_removing_is_not_taken_for_whole(
    tmp_path: Path, store: Hooked, left: tuple[str, ...]
) -> None:
    made = machine(tmp_path, store)
    folder = Path(made.directory.path) / ".one"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text("save 1")
    os.rename(folder, folder.with_name("one"))
    made.directory.look(["one"])
    for name in {"a", "b"} - set(left):
        (folder.with_name("one") / name).unlink()  # the removal has begun, and goes on during the upload
    store.before = lambda key: shutil.rmtree(folder.with_name("one"), ignore_errors=True)
    made.keep()
    assert [name for name, _ in transfer.manifests(store, made.ledger.base)] == []


def test_a_directory_whose_removal_was_broken_off_is_neither_kept_nor_resumed_from(
    tmp_path: Path, store: Hooked
) -> None:
    made = machine(tmp_path, store)
    made.save("one", b"whole")
    made.keep()
    folder = Path(made.directory.path) / ".two"
    folder.mkdir()
    for name in ("a", "b"):
        (folder / name).write_text("save 2")
    os.rename(folder, folder.with_name("two"))
    made.directory.look(["two"])
    (folder.with_name("two") / "a").unlink()
    made.keep()
    assert len(transfer.manifests(store, made.ledger.base)) == 1
    restored = Machine(tmp_path / "a", store).begin()
    assert restored.path is not None
    assert Path(restored.path).name == "one"


def test_a_checkpoint_may_hold_files_called_manifest(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store, keep=3)
    for step in range(5):
        folder = Path(made.directory.path) / f".{step}"
        folder.mkdir()
        (folder / "manifest.json").write_text("mine")
        os.rename(folder, Path(made.directory.path) / str(step))
        made.directory.look([str(step)])
        made.keep()
    assert [name[7:13] for name, _ in transfer.manifests(store, "p/r/s")] == ["000003", "000004", "000005"]
    path = restored(tmp_path, store)
    assert path is not None
    assert (path / "manifest.json").read_text() == "mine"


@pytest.mark.parametrize("where", ["here", "named"])
def test_a_link_out_of_the_checkpoint_to_a_file_becomes_that_file_and_one_inside_stays_a_link(
    tmp_path: Path, store: Hooked, where: str
) -> None:
    made = machine(tmp_path, store)
    base = (Path(made.directory.path) if where == "here" else tmp_path / "hub") / "blobs" / "weights"
    base.parent.mkdir(parents=True)
    base.write_text("weights")
    made.directory.follow = [str(tmp_path / "hub")] if where == "named" else []
    folder = Path(made.directory.path) / "last"
    folder.mkdir()
    (folder / "base").symlink_to(base)
    (folder / "alias").symlink_to("base")
    marked(made, "last", own="x")
    made.keep()
    base.unlink()
    path = restored(tmp_path, store)
    assert path is not None
    assert not (path / "base").is_symlink()
    assert (path / "alias").is_symlink()
    assert (path / "alias").read_text() == "weights"


@pytest.mark.parametrize("target", ["/usr", "/nowhere/at/all", "../../..", "/etc/passwd", "../../../etc"])
def test_a_link_to_what_cannot_be_carried_is_refused_once_with_its_name(
    tmp_path: Path, store: Hooked, target: str
) -> None:
    made = machine(tmp_path, store)
    (Path(made.directory.path) / "last").mkdir()
    (Path(made.directory.path) / "last" / "data").symlink_to(target)
    marked(made, "last", own="x")
    for _ in range(3):
        made.keep()
    assert len([sentence for sentence in made.said if "last cannot be kept" in sentence and "data" in sentence]) == 1
    assert store.sent == []


def test_a_name_that_is_not_utf8_is_refused_once_and_the_one_before_is_kept(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store)
    made.save("good", b"x")
    folder = Path(made.directory.path) / "odd"
    folder.mkdir()
    with open(os.path.join(os.fsencode(folder), b"w\xe4ights"), "w") as file:
        file.write("x")
    marked(made, "odd")
    for _ in range(4):
        made.keep()
    assert len([sentence for sentence in made.said if "not UTF-8" in sentence]) == 1
    path = restored(tmp_path, store)
    assert path is not None
    assert path.name == "good"


def test_a_surprise_while_uploading_is_followed_by_a_pause(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(tmp_path, store)

    def surprise(*_: object) -> None:
        raise RuntimeError("from a driver")

    monkeypatch.setattr(transfer, "commit", surprise)
    made.save("one", b"1")
    with pytest.raises(RuntimeError):
        made.keep()
    assert keeper(made)._next_upload > time.monotonic() + 0.5


def test_a_file_that_grows_in_a_marked_directory_is_told_and_tried_with_pauses(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store)
    folder = marked(made, "last", log="a")

    def grow(key: str) -> None:
        with (folder / "log").open("a") as file:
            file.write("more")

    store.before = grow
    began = time.monotonic()
    made.keep()
    assert any("last is called finished, but changes" in sentence for sentence in made.said)
    assert keeper(made)._next_upload >= began + keeping.FIRST_WAIT
    made.keep()
    assert keeper(made)._next_upload >= began + 2 * keeping.FIRST_WAIT


# -- failures


@pytest.mark.parametrize("alone", ["by size", "by number"])
def test_a_failed_upload_goes_on_where_it_failed(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch, alone: str
) -> None:
    if alone == "by size":
        monkeypatch.setattr(transfer, "LARGE", 0)
    else:
        monkeypatch.setattr(Hooked, "batch", 1)
    made = machine(tmp_path, store)
    marked(made, "last", a="1", b="2", c="3")
    broken = [True]

    def fail(key: str) -> None:
        if key.endswith("/c") and broken:
            broken.pop()
            raise StorageError("503")

    store.before = fail
    made.keep()
    made.keep()
    assert sorted(store.files()) == [MARKER, "a", "b", "c"]
    path = restored(tmp_path, store)
    assert path is not None
    assert (path / "c").read_text() == "3"


def test_an_upload_that_goes_on_does_not_mix_in_a_newer_save(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store)
    folder = marked(made, "last", a="1", b="1")
    broken = [True]

    def fail(key: str) -> None:
        if key.endswith("/b") and broken:
            broken.pop()
            raise StorageError("503")

    store.before = fail
    made.keep()
    (folder / MARKER).unlink()
    clock_of_files_ticks(tmp_path)
    marked(made, "last", a="2", b="2")
    made.keep()
    path = restored(tmp_path, store)
    assert path is not None
    assert ((path / "a").read_text(), (path / "b").read_text()) == ("2", "2")
    assert len(list((tmp_path / "store").rglob("a"))) == 1


def test_a_commit_whose_answer_was_lost_is_not_removed_again(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(tmp_path, store)
    real = transfer.commit

    def lose_the_answer(*arguments: object) -> None:
        real(*arguments)  # type: ignore[arg-type]  # handed on
        raise StorageError("the answer was lost")

    monkeypatch.setattr(transfer, "commit", lose_the_answer)
    made.save("one", b"1")
    made.keep()
    made.save("two", b"2")
    store.before = lambda key: (_ for _ in ()).throw(StorageError("down"))
    made.keep()
    path = restored(tmp_path, store)
    assert path is not None
    assert path.name == "one"


def test_many_files_travel_at_once(tmp_path: Path, store: Hooked) -> None:
    store.streams = 4
    made = machine(tmp_path, store)
    threads: set[str] = set()
    together = threading.Barrier(2, timeout=120)

    def meet(key: str) -> None:
        threads.add(threading.current_thread().name)
        if key.endswith((".0", ".1")):
            together.wait()

    store.before = meet
    marked(made, "last", **{f"f.{index}": str(index) for index in range(20)})
    made.keep()
    path = restored(tmp_path, store)
    assert path is not None
    assert {file.name: file.read_text() for file in path.glob("f.*")} == {f"f.{n}": str(n) for n in range(20)}
    assert len(threads) > 1


# -- time


def test_the_last_upload_may_take_as_long_as_it_moves(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store, storage_timeout=2.0)
    marked(made, "last", **{f"f{index}": "x" for index in range(8)})
    store.after_chunk = lambda key: time.sleep(0.5)
    keeper(made).start()
    keeper(made).finish()
    eventually(lambda: not keeper(made).is_busy)
    assert keeper(made).kept is not None
    assert restored(tmp_path, store) is not None


def test_what_was_not_kept_at_the_end_is_said(tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "_STUCK", 60.0)  # a thread that gets no core is late, and stands still nowhere
    made = machine(tmp_path, store, storage_timeout=0.3)
    is_waited_for = []

    def say(sentence: str) -> None:
        is_waited_for.append(keeper(made).is_busy)
        made.said.append(sentence)

    def down(key: str) -> None:
        raise StorageError("503")

    store.before = down
    keeper(made).say = say
    made.save("one", b"1")
    keeper(made).start()
    keeper(made).finish()
    eventually(lambda: not keeper(made).is_busy)
    assert any(sentence.startswith("one was not kept: could not keep one") for sentence in made.said), made.said
    assert all(is_waited_for)


def test_an_upload_that_stands_still_in_the_driver_does_not_hold_up_the_end(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "_STUCK", 0.1)
    made = machine(tmp_path, store, storage_timeout=0.2)
    stuck = threading.Event()
    store.before = lambda key: stuck.wait(120) and None
    made.save("one", b"1")
    keeper(made).start()
    keeper(made).finish()
    eventually(lambda: not keeper(made).is_busy)
    assert any("stands still" in sentence for sentence in made.said)
    stuck.set()


def test_with_notice_the_last_upload_is_not_throttled(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store, bandwidth=1000)
    made.save("one", b"x" * 400_000)
    keeper(made).hurry(time.monotonic() + 600)
    began = time.monotonic()
    made.keep()
    assert keeper(made).kept is not None
    assert time.monotonic() - began < 200, "throttled it takes 400 s"


def test_notice_lifts_the_throttle_of_an_upload_under_way(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store, bandwidth=1000)
    made.save("one", b"x" * 400_000)
    threading.Timer(0.3, lambda: keeper(made).hurry(time.monotonic() + 600)).start()
    began = time.monotonic()
    made.keep()
    assert keeper(made).kept is not None
    assert time.monotonic() - began < 200, "throttled it takes 400 s"


def test_with_notice_nothing_is_pruned_before_the_upload(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeping, "BATCH", 5)
    made = machine(tmp_path, store, keep=1)
    marked(made, "first", **{f"f{index}": "x" for index in range(40)})
    made.keep()
    made.save("second", b"2")
    entry = keeper(made)._newest_unsaved()
    assert entry is not None
    keeper(made)._keep(entry, store)
    real = Hooked.delete

    def told_meanwhile(self: Hooked, keys: Iterable[str]) -> None:
        real(self, keys)
        keeper(made).hurry(time.monotonic() + 60)

    monkeypatch.setattr(Hooked, "delete", told_meanwhile)
    store.deleted.clear()
    keeper(made)._prune(store)
    assert [len(keys) for keys in store.deleted] == [5]
    keeper(made)._prune(store)
    assert len(store.deleted) == 1
    assert not any("manifest.json" in key and "000001-000001" in key for key, _ in store.names("p"))


def test_a_restore_goes_on_for_as_long_as_something_comes_and_fetches_nothing_twice(
    tmp_path: Path, store: Hooked
) -> None:
    made = machine(tmp_path, store)
    marked(made, "last", **{f"f{index}": "x" for index in range(6)})
    made.keep()
    next_one = Machine(tmp_path / "next", store)
    next_one.options.storage_timeout = 2.0
    failed: set[str] = set()

    def slow_and_unsure(key: str) -> None:
        time.sleep(0.4)
        if key not in failed:
            failed.add(key)
            raise StorageError("reset by peer")

    store.after_chunk = slow_and_unsure
    began = time.monotonic()
    path = next_one.begin(2.0).path
    assert path is not None
    assert time.monotonic() - began > 2.0
    fetched = [key.rpartition("/")[2] for key in store.fetched]
    assert sorted(fetched) == sorted([MARKER] + [f"f{index}" for index in range(6)] * 2)


def test_a_restore_gives_signs_of_life(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store)
    made.save("one", b"1")
    made.keep()
    other = Machine(tmp_path / "next", store)
    beats: list[float | None] = []
    store.after_chunk = lambda key: beats.append(other.directory.folder.last_beat())
    assert other.begin().path is not None
    assert beats
    assert beats[0] is not None


def test_told_to_stop_a_comparison_with_the_store_ends_at_once(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (3 << 20))
    asked: list[int] = []

    def proceed() -> bool:
        asked.append(1)
        return len(asked) < 2

    files = [File(path="", size=3 << 20, sha256="0" * 64, mode=0o644)]
    with pytest.raises(transfer.TransferAbandoned):
        transfer.is_same_content(str(tmp_path / "big"), files, transfer.no_throttle(proceed))


# -- what is needed


def test_what_an_older_attempt_kept_stays_until_it_or_a_later_one_was_resumed_from(
    tmp_path: Path, store: Hooked
) -> None:
    made = machine(tmp_path, store, keep=2)
    for step in ("500", "600"):
        made.save(step, step.encode())
        made.keep()
    blind = Machine(tmp_path / "b", store, keep=1)
    blind.begin()
    blind.ledger.resumed = None  # as after a listing that came late
    for step in ("10", "20", "30"):
        blind.save(step, step.encode())
        blind.keep()
    assert [name[:13] for name, _ in transfer.manifests(store, "p/r/s")] == [
        "000001-000001",
        "000001-000002",
        "000002-000003",
    ]
    seeing = Machine(tmp_path / "c", store, keep=1)
    assert seeing.begin().name == "30"
    seeing.save("40", b"40")
    seeing.keep()
    assert [name[:13] for name, _ in transfer.manifests(store, "p/r/s")] == ["000003-000001"]


def test_resumed_from_what_lay_here_the_older_copies_in_the_store_may_go(tmp_path: Path, store: Hooked) -> None:
    made = machine(tmp_path, store, keep=1)
    made.save("one", b"1")
    made.keep()
    made.save("two", b"2")  # not uploaded: the supervisor dies
    assert made.directory.occupancy is not None
    made.directory.occupancy.leave()
    again = Machine(tmp_path / "a", store, keep=1)
    found = again.begin()
    if found.how != "here, newer than the store":
        pytest.skip("the history of this ledger is read differently")
    again.save("three", b"3")
    again.keep()
    assert [name[:13] for name, _ in transfer.manifests(store, "p/r/s")] == ["000002-000001"]


def test_a_newer_attempts_name_in_the_directory_makes_the_older_one_ask(tmp_path: Path, store: Hooked) -> None:
    old = machine(tmp_path, store)
    keeper(old)._next_question = time.monotonic() + 3600
    keeper(old)._check_owner()
    assert keeper(old).lost is None
    machine(tmp_path, store)
    keeper(old)._check_owner()
    assert keeper(old).lost == "attempt 2 has taken over from attempt 1"


def test_a_listing_that_does_not_reach_what_the_records_name_is_trouble_and_not_an_empty_store(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(tmp_path, store)
    for step in ("500", "600"):
        made.save(step, step.encode())
        made.keep()
    made.ledger.end("failed (retryable)", final=False, exit_code=1, because="", checkpoint=keeper(made).kept)
    real = Hooked.names

    def late(self: Hooked, prefix: str) -> list[tuple[str, int]]:
        return [(key, size) for key, size in real(self, prefix) if "/checkpoints/000001-000002" not in key]

    monkeypatch.setattr(Hooked, "names", late)
    with pytest.raises(StorageError, match="name the checkpoint 000001-000002"):
        Machine(tmp_path / "b", store).begin(2.0)
    monkeypatch.undo()
    assert restored(tmp_path, store, "c") == tmp_path / "c" / "600"


def test_what_was_forgotten_is_neither_resumed_from_in_the_store_nor_here(tmp_path: Path) -> None:
    options = ("--checkpoint-dir", tmp_path / "c", "--store", tmp_path / "s", "--run-id", "r", "--every", "0s")
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; echo 1 >.x; mv .x one; sleep 0.5; exit 4'
    assert run(*options, *shell(save)).returncode == 4
    assert run("forget", *options[2:6]).returncode == 0
    done = run(*options, *shell('echo "${GPUFLOW_RESUME_FROM:-nothing}"'))
    assert done.stdout == "nothing\n"


def test_the_lock_is_taken_once_the_older_attempt_that_had_it_is_gone(tmp_path: Path, store: Hooked) -> None:
    old, new = machine(tmp_path, store), machine(tmp_path, store)
    assert old.directory.occupancy is not None
    assert new.directory.occupancy is not None
    keeper(new)._check_owner()
    assert not new.directory.occupancy.held
    old.directory.occupancy.leave()
    keeper(new)._next_question = 0.0
    keeper(new)._check_owner()
    assert new.directory.occupancy.held


# -- the directory itself


def test_a_directory_that_the_program_removes_and_makes_anew_is_watched_again_and_that_is_said(
    tmp_path: Path, store: Hooked
) -> None:
    made = machine(tmp_path, store)
    keeper(made)._watch = Watch(made.directory.path)
    place = Path(made.directory.path)
    keeper(made)._turn(last=True)
    os.rename(place, tmp_path / "removed")
    keeper(made)._turn(last=True)
    assert any(sentence.endswith("until it is there again") for sentence in made.said)
    place.mkdir()
    keeper(made)._turn(last=True)
    assert any("made anew; it is watched again" in sentence for sentence in made.said)
    (place / ".x").write_text("whole")
    os.rename(place / ".x", place / "one")
    keeper(made)._turn(last=True)
    assert keeper(made).kept is not None
    assert directory_owner.read_owner(made.directory)["id"] == made.ledger.id
    assert made.directory.occupancy is not None
    assert made.directory.occupancy.held
    keeper(made)._watch.close()  # type: ignore[union-attr]  # it was put there above


def test_a_full_disk_in_the_checkpoint_directory_does_not_keep_a_checkpoint_from_the_store(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = machine(tmp_path, store)
    real = os.replace

    def full(source: str, target: str, **named: Any) -> None:
        if os.readlink(f"/proc/self/fd/{named['dst_dir_fd']}").endswith("/finished"):
            raise OSError(errno.ENOSPC, "No space left on device")
        real(source, target, **named)

    monkeypatch.setattr(os, "replace", full)
    made.save("one", b"1")
    made.keep()
    assert keeper(made).kept is not None


def test_without_inotify_the_files_of_another_run_are_not_taken_for_ours(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Watch, "hears", property(lambda self: False))
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".x").write_text("theirs")
    clock_of_files_ticks(tmp_path)
    os.rename(tmp_path / "a" / ".x", tmp_path / "a" / "theirs")
    made = machine(tmp_path, store)
    keeper(made).start()
    time.sleep(0.7)  # some looks
    assert keeper(made).kept is None
    (tmp_path / "a" / ".y").write_text("ours")
    clock_of_files_ticks(tmp_path)
    os.rename(tmp_path / "a" / ".y", tmp_path / "a" / "ours")
    eventually(lambda: keeper(made).kept)
    keeper(made).finish()
    eventually(lambda: not keeper(made).is_busy)
    entries = [
        transfer.read_manifest(store, f"{prefix}/manifest.json").entry
        for _, prefix in transfer.manifests(store, "p/r/s")
    ]
    assert entries == ["ours"]


def handles_of_inotify() -> int:
    count = 0
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # the handle of the listing itself
            count += "inotify" in os.readlink(f"/proc/self/fd/{name}")
    return count


def test_a_keeper_that_has_ended_holds_no_inotify_instance(tmp_path: Path, store: Hooked) -> None:
    """A user has 128 of them: those of attempts that ended would make later ones, and other pods, deaf."""
    before = handles_of_inotify()
    made = machine(tmp_path, store)
    keeper(made).start()
    assert handles_of_inotify() == before + 1
    keeper(made).finish()
    eventually(lambda: not keeper(made).is_busy)
    assert handles_of_inotify() == before
    keeper(made).finish()  # told again when all is over: nobody is woken
    assert not keeper(made).is_busy


class Few:
    """The C library of a user whose instances of inotify are all in use, for as long as `left` is 0."""

    def __init__(self) -> None:
        import ctypes

        self.real, self.left = ctypes.CDLL(None, use_errno=True), 0

    def inotify_init1(self, flags: int) -> int:
        return int(self.real.inotify_init1(flags)) if self.left else -1

    def __getattr__(self, name: str) -> object:
        return getattr(self.real, name)


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> Few:
    import ctypes

    few, real = Few(), ctypes.CDLL
    monkeypatch.setattr(ctypes, "CDLL", lambda *name, **more: few if more else real(*name))
    return few


def quick_save(folder: Path, name: str) -> None:
    """Written and renamed in one tick of the clock: its times say nothing."""
    part, target = folder / f".{name}", folder / name
    part.write_text("whole")
    os.rename(part, target)
    while target.stat().st_ctime_ns != target.stat().st_mtime_ns:
        target.unlink()
        part.write_text("whole")
        os.rename(part, target)


def test_inotify_that_cannot_be_had_is_asked_for_again_and_renames_are_heard_then(
    tmp_path: Path, store: Hooked, few: Few
) -> None:
    made = machine(tmp_path, store)
    keeper(made)._watch = watch = Watch(made.directory.path)
    assert not watch.hears
    keeper(made)._turn(last=True)
    few.left = 1
    keeper(made)._turn(last=True)
    assert watch.hears
    quick_save(Path(made.directory.path), "one")
    keeper(made)._turn(last=True)
    assert keeper(made).kept is not None
    watch.close()


def test_a_quick_save_that_nobody_heard_of_is_named_and_not_lost_in_silence(
    tmp_path: Path, store: Hooked, few: Few
) -> None:
    made = machine(tmp_path, store)
    keeper(made).start()
    assert any("fs.inotify.max_user_instances" in sentence for sentence in made.said)
    quick_save(Path(made.directory.path), "last")
    keeper(made).finish()
    eventually(lambda: not keeper(made).is_busy)
    assert keeper(made).kept is not None or any(
        sentence.startswith("not kept, since without inotify nothing shows") and ": last;" in sentence
        for sentence in made.said
    ), made.said


def test_without_inotify_another_name_that_was_seen_before_proves_the_rename(
    tmp_path: Path, store: Hooked, few: Few
) -> None:
    made = machine(tmp_path, store)
    keeper(made)._watch = watch = Watch(made.directory.path)
    place = Path(made.directory.path)
    (place / "model.tmp").write_text("half")
    keeper(made)._turn(last=True)
    assert keeper(made).kept is None
    os.rename(place / "model.tmp", place / "model")
    keeper(made)._turn(last=True)
    assert [entry.name for entry in made.directory.finished_entries()] == ["model"]
    watch.close()


def test_a_rename_while_the_directory_is_looked_at_is_kept_at_the_next_look(
    tmp_path: Path, store: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the events were read and before the listing, and while it is read; then the program ends."""
    made = machine(tmp_path, store)
    place, real, left = Path(made.directory.path), os.scandir, ["before", "during"]

    def scandir(path: str) -> object:
        if str(path) == str(place) and left:
            name = left.pop()
            if name == "before":
                quick_save(place, name)
            listing = real(path)
            if name == "during":
                quick_save(place, name)
                keeper(made).finish()
            return listing
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    keeper(made).start()
    eventually(lambda: not keeper(made).is_busy)
    assert not left or [entry.name for entry in made.directory.finished_entries()] == ["during"]
    newest = made.directory.finished_entries()[-1]
    assert newest.stored == keeper(made).kept


def test_a_save_while_the_one_before_is_on_its_way_is_kept_when_the_program_ends_meanwhile(
    tmp_path: Path, store: Hooked
) -> None:
    """It waits for no regular turn: that may be an hour away, and the grace is shorter."""
    made = machine(tmp_path, store, every=3600.0)
    began, go_on = threading.Event(), threading.Event()

    def slow(key: str) -> None:
        began.set()
        go_on.wait(60)

    store.before = slow
    made.save("one", b"1")
    keeper(made).start()
    assert began.wait(60)
    keeper(made).hurry(time.monotonic() + 600)
    made.save("two", b"2")
    keeper(made).finish(time.monotonic() + 600)
    go_on.set()
    eventually(lambda: not keeper(made).is_busy)
    path = restored(tmp_path, store)
    assert path is not None
    assert path.name == "two"


@pytest.mark.parametrize("way", ["removed", "renamed away"])
def test_saves_into_a_directory_that_was_made_anew_are_heard_once_it_is_back(
    way: str, tmp_path: Path, store: Hooked
) -> None:
    """Its coming back wakes the keeper: it does not sleep through saves until its next look."""
    made = machine(tmp_path, store)
    place = Path(made.directory.path)
    keeper(made).start()
    for index in range(3):
        if way == "removed":
            shutil.rmtree(place)
        else:
            os.rename(place, tmp_path / f"away-{index}")
        eventually(lambda index=index: sum("until it is there again" in each for each in made.said) == index + 1)
        place.mkdir()
        eventually(lambda index=index: sum("it is watched again" in each for each in made.said) == index + 1)
        quick_save(place, f"save-{index}")
        eventually(lambda index=index: f"save-{index}" in entries_in(store))
    keeper(made).finish()
    eventually(lambda: not keeper(made).is_busy)


def entries_in(store: Hooked) -> list[str]:
    """The checkpoints that are there, but for those that are pruned while it looks."""
    found = []
    for _, prefix in transfer.manifests(store, "p/r/s"):
        with contextlib.suppress(Corrupt):
            found.append(transfer.read_manifest(store, f"{prefix}/manifest.json").entry)
    return found


# -- without a store


def storeless(tmp_path: Path) -> Machine:
    made = Machine(tmp_path / "a", Folder(str(tmp_path / "book")))
    made.begin()
    made.keeper = Keeper(made.options, made.directory, made.ledger, None, made.said.append, lambda: None)
    return made


def settle(made: Machine) -> None:
    entry = keeper(made)._newest_unsaved()
    assert entry is not None
    keeper(made)._settle_local(entry)
    assert keeper(made)._newest_unsaved() is None


def test_without_a_store_a_checkpoint_that_a_crash_tore_is_passed_over_for_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuflow.runtime.checkpoints import restore

    made = storeless(tmp_path)
    for name in ("one", "two"):
        made.save(name, name.encode() * 100)
        settle(made)
    status = (tmp_path / "a" / "two").stat()
    with (tmp_path / "a" / "two").open("r+b") as file:
        file.write(b"\0" * 10)
    os.utime(tmp_path / "a" / "two", ns=(status.st_atime_ns, status.st_mtime_ns))

    def begin() -> restore.RestoreResult:
        return restore.Restore(
            made.directory, made.ledger, made.ledger.history(), None, Limit(10.0), lambda: True, made.said.append
        ).newest()

    assert begin().name == "two"  # the same boot: what was written is what is read
    monkeypatch.setattr(restore, "boot_id", lambda: "after the crash")
    assert begin().name == "one"
    assert any("two is not what it was" in sentence for sentence in made.said)
    monkeypatch.undo()
    assert begin().name == "one"  # and it stays so


def test_without_a_store_one_that_was_never_forced_to_disk_is_trusted_only_when_there_is_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuflow.runtime.checkpoints import restore

    made = storeless(tmp_path)
    made.save("one", b"1")
    monkeypatch.setattr(restore, "boot_id", lambda: "after the crash")

    def begin() -> restore.RestoreResult:
        return restore.Restore(
            made.directory, made.ledger, made.ledger.history(), None, Limit(10.0), lambda: True, made.said.append
        ).newest()

    found = begin()
    assert (found.name, found.how) == ("one", "here, not verified")
    settle(made)
    made.save("two", b"2")
    assert begin().name == "one"
