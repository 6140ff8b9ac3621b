"""The book: one owner, budgets that never go back, a success that stays, numbers that never start again.

Tests gpuflow/runtime/state/attempts.py, gpuflow/runtime/state/forget.py and gpuflow/runtime/state/ledger.py.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuflow.runtime.base import records
from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, RETRYABLE
from gpuflow.runtime.base.records import Judgment, Manifest
from gpuflow.runtime.state import attempts
from gpuflow.runtime.state.forget import forget_run
from gpuflow.runtime.state.ledger import Ledger, OwnershipLost
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.store import StorageError
from tests.runtime.harness import run, shell

BASE = "p/r/s"


@pytest.fixture
def store(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path / "store"), lasting=False)


def begin(store: Folder) -> Ledger:
    ledger = Ledger(store, BASE)
    assert ledger.claim(ledger.history())
    return ledger


def fail(ledger: Ledger, outcome: str = RETRYABLE, *, final: bool = False) -> None:
    ledger.end(outcome, final=final, exit_code=1, because="x")


def used(store: Folder) -> tuple[int, int]:
    counts = Ledger(store, BASE).history().counts
    return counts.failures, counts.interruptions


# -- two that start together


def test_of_two_that_read_the_book_together_the_second_reads_it_again(store: Folder) -> None:
    fail(begin(store))
    one, two = Ledger(store, BASE), Ledger(store, BASE)
    history = two.history()
    assert one.claim(one.history())
    assert not two.claim(history)
    fail(one, FINAL, final=True)
    again = two.history()
    assert again.final is not None
    assert (again.counts.failures, again.counts.interruptions) == (2, 0)


def test_an_end_that_is_written_between_look_and_claim_counts(store: Folder) -> None:
    one, two = begin(store), Ledger(store, BASE)
    history = two.history()
    fail(one, FINAL, final=True)
    assert two.claim(history)
    looked = two.look_again(history)
    assert looked.final is not None
    assert (two.counts.failures, two.counts.interruptions) == (1, 0)
    two.end(INTERRUPTED, final=False, exit_code=75, because="x")
    assert used(store) == (1, 1)


def test_what_is_judged_later_is_counted_instead_of_the_interruption(store: Folder) -> None:
    one = begin(store)
    assert used(store) == (0, 1)
    begin(store)
    assert used(store) == (0, 2)
    judged = Judgment(outcome="out of memory", cause="x", evidence="y", by="argo")
    store.write(f"{BASE}/attempts/000001-{one.id}.judged.json", records.pack(judged))
    assert used(store) == (1, 1)


def test_a_success_between_look_and_claim_is_found_and_given(store: Folder) -> None:
    one, two = begin(store), Ledger(store, BASE)
    history = two.history()
    one.succeed({})
    assert two.claim(history)
    with pytest.raises(OwnershipLost, match="attempt 1 has succeeded already"):
        two.assert_owner()
    assert two.succeed({}).attempt == 1


def test_an_older_attempt_cannot_succeed(store: Folder) -> None:
    one = begin(store)
    begin(store)
    with pytest.raises(OwnershipLost):
        one.succeed({})


# -- budgets never go back


@pytest.mark.parametrize("damage", [b"", b"{", b'{"attempt":3}\n', b"[]"])
def test_a_torn_claim_costs_an_interruption_and_resets_nothing(damage: bytes, store: Folder) -> None:
    fail(begin(store))
    fail(begin(store))
    store.write(f"{BASE}/attempts/000003.json", damage)
    assert used(store) == (2, 1)
    assert begin(store).number == 4


def test_a_torn_claim_whose_attempt_left_word_is_counted_by_that(store: Folder) -> None:
    fail(begin(store))
    two = begin(store)
    fail(two)
    store.write(f"{BASE}/attempts/000002.json", b"")
    assert used(store) == (2, 0)


def test_a_book_that_tells_nothing_is_refused(store: Folder) -> None:
    for _ in range(2):
        fail(begin(store))
    store.delete([f"{BASE}/attempts/000001.json"])
    store.write(f"{BASE}/attempts/000002.json", b"")
    with pytest.raises(StorageError, match="gpuflow-run forget"):
        Ledger(store, BASE).history()
    forget_run(Ledger(store, BASE))
    assert used(store) == (0, 0)


def test_an_end_that_cannot_be_read_costs_a_failure(store: Folder) -> None:
    one = begin(store)
    fail(one)
    store.write(f"{BASE}/attempts/000001-{one.id}.end.json", b"{}")
    assert used(store) == (1, 0)


def test_a_number_that_was_seen_must_stay_in_the_listing(store: Folder, tmp_path: Path) -> None:
    ledger = begin(store)
    os.rename(tmp_path / "store", tmp_path / "away")
    for question in (ledger.assert_owner, ledger.history):
        with pytest.raises(StorageError, match="is gone from the store"):
            question()


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="needs Linux")
def test_a_listing_that_fails_is_no_empty_book(store: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(begin(store))

    def stale(path: object) -> object:
        raise OSError(116, "Stale file handle")

    monkeypatch.setattr(os, "scandir", stale)
    with pytest.raises(StorageError, match="Stale file handle"):
        Ledger(store, BASE).history()


# -- forgetting


def manifest(store: Folder, ledger: Ledger, number: int = 1, inside: str = "") -> str:
    name = records.checkpoint_name(ledger.number, number, ledger.id)
    record = Manifest(
        checkpoint=name, entry="e", kind="directory", attempt=ledger.number, id=ledger.id, seconds=5.0, files=[]
    )
    store.write(f"{BASE}/checkpoints/{name}/{inside}manifest.json", records.pack(record))
    return name


def test_forgetting_takes_the_next_number_and_removes_what_was_before(store: Folder) -> None:
    one = begin(store)
    manifest(store, one)
    fail(one, FINAL, final=True)
    forget_run(Ledger(store, BASE))
    assert [key for key, _ in store.names("")] == [f"{BASE}/attempts/000002.json"]
    three = begin(store)
    assert (three.number, three.since, used(store)) == (3, 2, (0, 1))


def test_a_live_attempt_of_a_forgotten_run_has_lost(store: Folder) -> None:
    one = begin(store)
    forget_run(Ledger(store, BASE))
    with pytest.raises(OwnershipLost, match="attempt 2 has taken over"):
        one.assert_owner()


def test_a_success_of_before_a_fresh_start_does_not_exist(store: Folder) -> None:
    one = begin(store)
    one.succeed({})
    two = Ledger(store, BASE)
    assert two.claim(two.history(), fresh=True)
    assert Ledger(store, BASE).success() is None
    two.assert_owner()
    assert two.succeed({}).attempt == 2
    found = Ledger(store, BASE).success()
    assert found is not None
    assert found.attempt == 2


def test_what_a_fresh_start_left_of_before_is_removed_by_the_next_one(store: Folder) -> None:
    one = begin(store)
    old = manifest(store, one)
    one.succeed({})
    two = Ledger(store, BASE)
    two.claim(two.history(), fresh=True)
    three = begin(store)
    assert three.since == 2
    three.tidy()
    assert not any(old in key or key.endswith("success.json") for key, _ in store.names(""))
    assert [key.rpartition("/")[2] for key, _ in store.names(f"{BASE}/attempts")] == ["000002.json", "000003.json"]


# -- checkpoints in the book


def test_a_file_named_manifest_inside_a_checkpoint_is_no_manifest(store: Folder) -> None:
    one = begin(store)
    manifest(store, one, inside="files/000001-x/")
    assert Ledger(store, BASE).history().counts.seconds == 0.0
    name = manifest(store, one)
    history = Ledger(store, BASE).history()
    assert (history.counts.seconds, history.kept) == (5.0, name)


def test_the_book_remembers_the_newest_checkpoint(store: Folder) -> None:
    one = begin(store)
    one.end(RETRYABLE, final=False, exit_code=1, because="x", checkpoint="000001-000004-abcd")
    begin(store)
    begin(store)
    assert Ledger(store, BASE).history().kept == "000001-000004-abcd"


# -- stores that cannot create conditionally


class Careless(Folder):
    """Like s3fs before it knew `mode`, or a server that ignores If-None-Match: the last writer wins, all hear yes."""

    def create(self, key: str, data: bytes) -> bool:
        self.write(key, data)
        return True


def test_a_store_that_lets_everyone_create_is_found_out_and_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SETTLE", 0.0)
    store, said = Careless(str(tmp_path)), list[str]()
    one, two = Ledger(store, BASE, say=said.append), Ledger(store, BASE, say=said.append)
    early = two.history()
    assert one.claim(one.history())
    assert not two.claim(early)
    assert len(said) == 1
    assert "not known to create an object only where there is none" in said[0]
    one.succeed({})
    assert two.claim(two.history())
    assert two.succeed({}).attempt == 1
    assert store.names(f"{BASE}/probe") == []


def test_whoever_was_overwritten_in_a_careless_store_finds_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Careless(str(tmp_path))
    one, two = Ledger(store, BASE), Ledger(store, BASE)
    early = two.history()

    def meanwhile(seconds: float) -> None:
        monkeypatch.setattr(attempts.time, "sleep", lambda _: None)
        # Both saw no claim; the other one writes second.
        store.delete([f"{BASE}/attempts/000001.json"])
        assert two.claim(early)

    one.probe()
    monkeypatch.setattr(attempts.time, "sleep", meanwhile)
    assert not one.claim(one.history())
    two.assert_owner()


def test_a_store_that_keeps_its_promise_is_asked_once_and_nothing_stays(store: Folder, tmp_path: Path) -> None:
    said: list[str] = []
    ledger = Ledger(store, BASE, say=said.append)
    assert ledger.probe()
    assert store.conditional
    assert said == []
    # The folder itself stays: another attempt may be about to write there.
    assert [path.name for path in (tmp_path / "store").rglob("*")] == ["p", "r", "s"]


def test_a_mount_without_hard_links_is_not_believed_on_its_word(store: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """A FUSE mount of a bucket answers O_EXCL for its own machine only."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(attempts, "SETTLE", 0.0)
    said: list[str] = []
    one, two = Ledger(store, BASE, say=said.append), Ledger(store, BASE)
    early = two.history()
    assert one.claim(one.history())
    assert not two.claim(early)
    assert store.conditional is False
    assert len(said) == 1


# -- by the command line


def test_forget_never_starts_numbering_again(tmp_path: Path) -> None:
    state = ("--state", tmp_path / "s", "--run-id", "r")
    show = shell('echo "$GPUFLOW_ATTEMPT $GPUFLOW_INTERRUPTIONS"; exit 5')
    assert run(*state, *show).stdout == "1 0\n"
    assert run("forget", *state).returncode == 0
    assert run(*state, *show).stdout == "3 0\n"


def test_who_forgets_a_run_that_does_not_exist_yet_removes_nothing_of_one_that_begins_meanwhile(store: Folder) -> None:
    """Its listing was empty: what is there a moment later is not what was to be forgotten."""
    began = Ledger(store, "p/r/s")
    first = True

    class Beginning(Folder):
        def names(self, prefix: str) -> list[tuple[str, int]]:
            nonlocal first
            found = super().names(prefix)
            if first and prefix == "p/r/s":
                first = False
                began.claim(began.history())
                began.succeed({})
            return found

    forget_run(Ledger(Beginning(store.root), "p/r/s"))
    assert not first
    assert began.success() is not None
