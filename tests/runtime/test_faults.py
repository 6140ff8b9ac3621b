"""Storage that fails in every way: training goes on, what is restored is whole, the last good one is never lost.

Tests gpuflow/runtime/checkpoints/keeper.py and gpuflow/runtime/checkpoints/restore.py.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.runtime.base.options import parse
from gpuflow.runtime.checkpoints import keeper as keeping
from gpuflow.runtime.checkpoints import restore, transfer
from gpuflow.runtime.checkpoints.keeper import Keeper
from gpuflow.runtime.state.checkpoint_dir import Directory
from gpuflow.runtime.state.directory_owner import Occupancy
from gpuflow.runtime.state.ledger import Ledger, OwnershipLost
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.storage_timeout import Limit
from gpuflow.runtime.stores.store import StorageError, Store
from tests.runtime.harness import eventually, run, shell, start


class Faulty(Store):
    """A directory behind a bad network: errors before and after the deed, cut uploads, mixed listings."""

    def __init__(self, root: Path, chance: random.Random, rate: float) -> None:
        self.inner, self.chance, self.rate = Folder(str(root)), chance, rate

    def _trouble(self, when: str) -> None:
        if self.chance.random() < self.rate:
            raise StorageError(f"500 {when}")

    def read(self, key: str) -> bytes:
        self._trouble("before")
        return self.inner.read(key)

    def write(self, key: str, data: bytes) -> None:
        self._trouble("before")
        self.inner.write(key, data)
        self._trouble("after: the answer was lost")

    def create(self, key: str, data: bytes) -> bool:
        self._trouble("before")
        made = self.inner.create(key, data)
        self._trouble("after: the answer was lost")
        return made

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        self._trouble("before")
        whole = b"".join(chunks)
        cut = self.chance.random() < self.rate
        self.inner.put(key, [whole[: len(whole) // 2] if cut else whole], size)
        self._trouble("after")

    def chunks(self, key: str) -> Iterator[bytes]:
        for data in self.inner.chunks(key):
            self._trouble("in the middle")
            cut = self.chance.random() < self.rate / 20
            yield data[:-1] if cut else data

    def names(self, prefix: str) -> list[tuple[str, int]]:
        self._trouble("listing")
        found = self.inner.names(prefix)
        self.chance.shuffle(found)
        return found

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._trouble("deleting")
            self.inner.delete([key])


class Machine:
    """A checkpoint directory, a ledger and a keeper of one attempt, without a process."""

    def __init__(self, folder: Path, store: Store, *, keep: int = 2) -> None:
        self.store = store
        self.directory = Directory(str(folder))
        self.ledger = Ledger(store, "p/r/s")
        self.options = parse(["--every", "0s", "--keep", str(keep)], {})
        self.said: list[str] = []
        self.keeper: Keeper | None = None

    def begin(self, patience: float = 60.0) -> restore.RestoreResult:
        history = patiently(self.ledger.history)
        patiently(lambda: self.ledger.claim(history))
        Occupancy(self.directory, self.ledger, self.said.append).enter()
        self.keeper = Keeper(self.options, self.directory, self.ledger, self.store, self.said.append, lambda: None)
        return restore.Restore(
            self.directory, self.ledger, history, self.store, Limit(patience), lambda: True, self.said.append
        ).newest()

    def save(self, name: str, content: bytes) -> None:
        path = Path(self.directory.path)
        (path / f".{name}").write_bytes(content)
        os.rename(path / f".{name}", path / name)
        self.directory.look([name])

    def keep(self) -> None:
        """One try to keep the newest."""
        assert self.keeper is not None
        entry = self.keeper._newest_unsaved()
        if entry is not None:
            self.keeper._keep(entry, self.store)
            self.keeper._prune(self.store)


def manifests_below(store: Path) -> set[str]:
    """Folders with a manifest, while others make and remove folders there."""
    return {folder for folder, _, files in os.walk(store) if "manifest.json" in files}


def patiently(action: Callable[[], Any]) -> Any:
    for _ in range(200):
        try:
            return action()
        except StorageError:
            continue
    raise AssertionError("storage never worked")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "FIRST_WAIT", 0.001)
    monkeypatch.setattr(keeping, "LONGEST_WAIT", 0.002)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), rate=st.sampled_from([0.0, 0.1, 0.3]), keep=st.integers(1, 3))
def test_under_faults_every_restore_is_one_of_the_saved_states_and_never_older_than_a_kept_one(
    seed: int, rate: float, keep: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    root = tmp_path_factory.mktemp("faults")
    store = Faulty(root / "store", chance, rate)
    saved: dict[str, bytes] = {}
    kept = -1
    for attempt in range(4):
        machine = Machine(root / f"node-{attempt}", store, keep=keep)
        restored = machine.begin()
        if restored.path is not None:
            name = os.path.basename(restored.path)
            assert Path(restored.path).read_bytes() == saved[name]
            assert int(name) >= kept
        else:
            assert kept == -1
        for _ in range(chance.randrange(5)):
            name = f"{len(saved):04d}"
            saved[name] = name.encode() * chance.randrange(1, 5000)
            machine.save(name, saved[name])
            machine.keep()
            assert machine.keeper is not None
            entries = machine.directory.finished_entries()
            if entries[-1].stored is not None:
                kept = int(name)
    shutil.rmtree(root)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path: Path) -> None:
    store = Folder(str(tmp_path / "store"))
    machine = Machine(tmp_path / "a", store)
    machine.begin()
    for name in ("one", "two"):
        machine.save(name, name.encode() * 1000)
        machine.keep()
    newest = sorted((tmp_path / "store").rglob("file"))[-1]
    newest.write_bytes(newest.read_bytes()[:-1] + b"!")
    other = Machine(tmp_path / "b", store)
    restored = other.begin()
    assert restored.name == "one"
    assert any("do not match its manifest" in sentence for sentence in other.said)
    other.save("three", b"3")
    other.keep()
    assert Machine(tmp_path / "c", store).begin().name == "three"
    kept = [
        transfer.read_manifest(store, f"{prefix}/manifest.json") for _, prefix in transfer.manifests(store, "p/r/s")
    ]
    assert [manifest.entry for manifest in kept] == ["one", "three"]


def test_a_damaged_manifest_does_not_exist(tmp_path: Path) -> None:
    store = Folder(str(tmp_path / "store"))
    machine = Machine(tmp_path / "a", store)
    machine.begin()
    machine.save("one", b"x")
    machine.keep()
    (manifest,) = (tmp_path / "store").rglob("manifest.json")
    manifest.write_bytes(manifest.read_bytes()[:40])
    assert Machine(tmp_path / "b", store).begin().path is None


def test_the_last_checkpoint_stays_when_the_disk_is_full(tmp_path: Path) -> None:
    store = Folder(str(tmp_path / "store"))
    machine = Machine(tmp_path / "a", store, keep=1)
    machine.begin()
    machine.save("one", b"1" * 1000)
    machine.keep()

    def full(key: str, chunks: Iterable[bytes]) -> None:
        raise StorageError("[Errno 28] No space left on device")

    store._put = full  # type: ignore[method-assign]  # a fault put in by hand
    machine.save("two", b"2" * 1000)
    machine.keep()
    del store._put  # type: ignore[method-assign]  # a fault put in by hand
    assert any("No space left on device" in sentence for sentence in machine.said)
    assert Machine(tmp_path / "b", store).begin().name == "one"


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_really_full_disk_does_not_end_training(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=256k tmpfs {small}") != 0:
        pytest.skip("this machine does not allow mounts")
    try:
        save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; head -c %d /dev/urandom >.x; mv .x %s; sleep 0.5'
        options = ("--checkpoint-dir", tmp_path / "c", "--store", small, "--run-id", "r", "--every", "0s")
        done = run(
            *options, "--storage-timeout", "3s", *shell(f"{save % (100_000, 'a')}; {save % (900_000, 'b')}; exit 4")
        )
        assert done.returncode == 4
        assert "No space left on device" in done.stderr
        again = run("--checkpoint-dir", tmp_path / "d", *options[2:], *shell('basename "$GPUFLOW_RESUME_FROM"; exit 4'))
        assert again.stdout == "a\n"
    finally:
        os.system(f"umount {small}")


def test_storage_that_goes_away_while_training_runs_is_caught_up_with(tmp_path: Path) -> None:
    store, away = tmp_path / "store", tmp_path / "away"
    options = ("--checkpoint-dir", tmp_path / "c", "--store", store, "--run-id", "r", "--every", "0s")
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; i=0; while true; do i=$((i+1)); echo $i >.x; mv .x c$i; sleep 0.05; done'
    process = start(*options, "--grace", "8s", *shell(save))
    eventually(lambda: manifests_below(store))
    os.rename(store, away)
    store.write_text("not a directory")
    assert process.stderr is not None
    assert "training goes on" in process.stderr.readline()
    assert process.poll() is None
    store.unlink()
    os.rename(away, store)
    before = manifests_below(store)
    eventually(lambda: manifests_below(store) - before)
    process.send_signal(signal.SIGTERM)
    assert process.wait(120) == 75


def test_a_failing_programs_last_checkpoint_is_uploaded_however_long_that_takes(tmp_path: Path) -> None:
    options = ("--store", tmp_path / "store", "--run-id", "r", "--bandwidth", "100k", "--storage-timeout", "3s")
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; head -c 600000 /dev/zero >.x; mv .x one; exit 4'
    assert run("--checkpoint-dir", tmp_path / "c", *options, *shell(save)).returncode == 4
    again = run("--checkpoint-dir", tmp_path / "d", *options, *shell('basename "$GPUFLOW_RESUME_FROM"'))
    assert again.stdout == "one\n"


def test_clocks_that_disagree_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Folder(str(tmp_path / "store"))
    for index, skew in enumerate([0.0, -1e9, 5e8, -2e8]):
        monkeypatch.setattr(time, "time", lambda skew=skew: 1.7e9 + skew)
        monkeypatch.setattr(time, "gmtime", lambda *_, skew=skew: time.struct_time((2026 + int(skew / 4e7), *[1] * 8)))
        machine = Machine(tmp_path / f"node-{index}", store)
        restored = machine.begin()
        assert restored.name == (f"state-{index - 1}" if index else None)
        machine.save(f"state-{index}", str(index).encode())
        os.utime(Path(machine.directory.path) / f"state-{index}", (1.7e9 + skew, 1.7e9 + skew))
        machine.directory.look([f"state-{index}"])
        machine.keep()


def test_two_attempts_alive_at_once_never_touch_each_other(tmp_path: Path) -> None:
    store = Folder(str(tmp_path / "store"))
    old = Machine(tmp_path / "a", store, keep=1)
    old.begin()
    old.save("one", b"old")
    old.keep()
    new = Machine(tmp_path / "b", store, keep=1)
    assert new.begin().name == "one"
    new.save("two", b"new")
    new.keep()
    old.save("three", b"late")
    old.keep()
    assert old.keeper is not None
    assert old.keeper.lost == "attempt 2 has taken over from attempt 1"
    with pytest.raises(OwnershipLost):
        old.ledger.succeed({})
    third = Machine(tmp_path / "c", store)
    assert third.begin().name == "two"
    assert not (tmp_path / "store" / "p" / "r" / "s" / "success.json").exists()


def test_a_store_that_suddenly_looks_empty_is_trouble_and_not_a_rival(tmp_path: Path) -> None:
    store = Folder(str(tmp_path / "store"))
    machine = Machine(tmp_path / "a", store)
    machine.begin()
    os.rename(tmp_path / "store", tmp_path / "away")
    machine.save("one", b"1")
    machine.keep()
    assert machine.keeper is not None
    assert machine.keeper.lost is None
    assert any("is gone from the store" in sentence for sentence in machine.said)


def test_a_checkpoint_removed_while_it_is_uploaded_is_still_kept(tmp_path: Path) -> None:
    store = Folder(str(tmp_path / "store"))
    machine = Machine(tmp_path / "a", store)
    machine.begin()
    real = store.put

    def remove_first(key: str, chunks: Iterable[bytes], size: int) -> None:
        (tmp_path / "a" / "one").unlink(missing_ok=True)
        real(key, chunks, size)

    store.put = remove_first  # type: ignore[method-assign]  # a fault put in by hand
    machine.save("one", b"whole" * 1000)
    machine.keep()
    del store.put  # type: ignore[method-assign]  # a fault put in by hand
    restored = Machine(tmp_path / "b", store).begin()
    assert restored.path is not None
    assert Path(restored.path).read_bytes() == b"whole" * 1000


def test_only_the_newest_few_are_kept_and_failed_uploads_leave_nothing(tmp_path: Path) -> None:
    store = Folder(str(tmp_path / "store"))
    machine = Machine(tmp_path / "a", store, keep=2)
    machine.begin()
    litter = tmp_path / "store" / "p" / "r" / "s" / "checkpoints" / "000000-000001-dead"
    litter.mkdir(parents=True)
    (litter / "file").write_bytes(b"half")
    for index in range(5):
        machine.save(f"state-{index}", b"x" * index)
        machine.keep()
    assert len(list((tmp_path / "store").rglob("manifest.json"))) == 2
    assert litter.exists()  # an older attempt's, and nothing later was resumed from
    other = Machine(tmp_path / "b", store, keep=2)
    assert other.begin().name == "state-4"
    other.save("state-5", b"x")
    other.keep()
    assert len(list((tmp_path / "store").rglob("manifest.json"))) == 2
    assert len(list((tmp_path / "store").rglob("file"))) == 2
