"""Storage that does not answer: how long it is waited for, and that a notice is heard meanwhile."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.runtime.stores import storage_timeout
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.fsspec_store import Remote
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import StorageError
from proofs import silent_stores
from tests.runtime.scripted_server import Peer, scripted


@pytest.fixture
def never() -> Iterator[threading.Event]:
    """What a call waits for that does not answer."""
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture(autouse=True)
def _no_driver_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """These calls know no store, and are not given the time to open one."""
    monkeypatch.setattr(storage_timeout, "_OPENING", 0.0)


def test_a_call_that_does_not_answer_is_given_up_and_not_tried_again(never: threading.Event) -> None:
    tries: list[int] = []

    def hang() -> None:
        tries.append(1)
        never.wait()

    with pytest.raises(storage_timeout.StorageSilent, match="nothing moved"):
        persist(hang, Limit(0.5))
    assert len(tries) == 1


def test_the_limit_names_the_error_of_the_tries_before(never: threading.Event) -> None:
    tries: list[int] = []

    def refuse_then_hang() -> None:
        tries.append(1)
        if len(tries) < 3:
            raise StorageError("the certificate is not known")
        never.wait()

    with pytest.raises(storage_timeout.StorageSilent, match="given up; the last error was: the certificate is not"):
        persist(refuse_then_hang, Limit(5))
    assert len(tries) == 3


def test_the_limit_names_an_error_of_the_driver_whose_other_calls_hang(never: threading.Event) -> None:
    class Driver:
        protocol = "gs"

        def cat_file(self, path: str, **_: object) -> bytes:
            if path.endswith("refused"):
                raise OSError("the certificate is not known")
            never.wait()
            return b""

        info = cat_file

    store = Remote("gs://bucket", Driver())

    def read_both() -> None:
        with contextlib.suppress(StorageError):
            store.read("refused")
        store.read("silent")

    with pytest.raises(storage_timeout.StorageSilent, match=r"/silent: nothing moved .* was: OSError: the certificate"):
        persist(read_both, Limit(1))


def test_tries_that_fail_one_after_the_other_are_not_said_to_be_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_timeout, "_SAID_EVERY", 3.0)
    said: list[str] = []

    def refuse() -> None:
        time.sleep(0.3)
        raise StorageError("the certificate is not known")

    with pytest.raises(StorageError):
        persist(refuse, Limit(7), say=said.append)
    assert set(said) == {"storage fails, and is tried again: the certificate is not known"}


def test_a_notice_is_heard_while_a_call_does_not_answer(never: threading.Event) -> None:
    told = threading.Event()

    def hang() -> None:
        told.set()
        never.wait()

    with pytest.raises(StorageError, match="given up"):
        persist(hang, Limit(3600), told.is_set)


def test_what_it_waits_for_is_said_now_and_then_with_its_place(
    never: threading.Event, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_timeout, "_SAID_EVERY", 0.4)
    store, said = Folder(str(tmp_path)), list[str]()
    monkeypatch.setattr(store._shared, "read", lambda *_: never.wait())
    monkeypatch.setattr(store, "url", lambda key: f"{tmp_path}/{key}")
    with pytest.raises(storage_timeout.StorageSilent, match=f"{tmp_path}/record: nothing moved"):
        persist(lambda: store.read("record"), Limit(2), say=said.append)
    assert said
    assert all(line.startswith(f"storage does not answer: {tmp_path}/record: nothing has moved") for line in said)


def test_what_was_given_up_begins_no_other_call(never: threading.Event, tmp_path: Path) -> None:
    ended = threading.Event()
    seen: list[str] = []

    def hang_then_write() -> None:
        try:
            never.wait()
            Folder(str(tmp_path)).write("late", b"x")
        except StorageError as refusal:
            seen.append(str(refusal))
        finally:
            ended.set()

    with pytest.raises(storage_timeout.StorageSilent):
        persist(hang_then_write, Limit(0.5))
    never.set()
    assert ended.wait(120)
    assert seen == ["it was given up"]
    assert not os.listdir(tmp_path)


def _read_all(port: int) -> int:
    count = 0
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while True:
            data = connection.recv(65536)
            if not data:
                return count
            count += len(data)


def test_bytes_on_any_connection_are_progress_however_long_it_takes() -> None:
    def slowly(peer: Peer) -> None:
        for _ in range(15):
            peer.send(bytes(8192))
            time.sleep(0.3)

    with scripted(slowly) as server:
        # No part of the runtime sees these bytes but the kernel.
        assert persist(lambda: _read_all(server.port), Limit(2.5)) == 15 * 8192


def test_a_few_bytes_a_second_are_none() -> None:
    over = threading.Event()

    def drip(peer: Peer) -> None:
        while not over.wait(0.1):
            peer.send(b"x")

    with scripted(drip) as server:
        with pytest.raises(storage_timeout.StorageSilent):
            persist(lambda: _read_all(server.port), Limit(1.5))
        over.set()


def test_a_disk_that_takes_long_is_not_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, late = Folder(str(tmp_path)), threading.Event()
    threading.Timer(1.5, late.set).start()
    monkeypatch.setattr(store, "_part", lambda *_, **__: late.wait() and "")
    monkeypatch.setattr("gpuflow.runtime.stores.folder_store._replace", lambda *_: None)
    monkeypatch.setattr(store, "_sync", lambda *_: None)
    persist(lambda: store.put("a", [b"x"], 1), Limit(0.5))
    assert late.is_set()


# -- gpuflow-run itself


def _cases(*names: str) -> list[silent_stores.Case]:
    known = {case.name: case for case in silent_stores.cases()}
    return [known[name] for name in names]


@pytest.mark.parametrize(
    "case",
    _cases(
        "folder | read | silent | no signal",
        "folder | read | silent | SIGTERM",
        "folder | put | silent | SIGTERM",
    ),
    ids=lambda case: case.name,
)
def test_a_mount_that_hangs(case: silent_stores.Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_stores, "SLACK", silent_stores.HANG)
    row = silent_stores.run_case(case, 0)
    assert row.ok, row


@pytest.mark.s3
@pytest.mark.parametrize(
    "case",
    _cases(
        "s3 | state: list | silent | no signal",
        "s3 | input: get | drips | no signal",
        "s3 | output: part | deaf | SIGTERM",
        "s3 | checkpoint: put | half | SIGTERM",
        "s3 by its driver | output: put | silent | SIGTERM",
        "another driver | write | silent | SIGTERM",
    ),
    ids=lambda case: case.name,
)
def test_a_server_that_does_not_answer(case: silent_stores.Case, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(silent_stores, "SLACK", silent_stores.HANG)
    row = silent_stores.run_case(case, int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2]))
    assert row.ok, row
