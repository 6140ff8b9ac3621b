"""Files that processes of our own move to S3 and back: the same bytes, whatever becomes of the processes.

Tests gpuflow/runtime/stores/transfer_pool.py and gpuflow/runtime/stores/transfer_process.py.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.runtime.base import container, records
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.base.records import File
from gpuflow.runtime.checkpoints import transfer
from gpuflow.runtime.stores import local_files, transfer_pool
from gpuflow.runtime.stores.fsspec_store import Remote
from gpuflow.runtime.stores.local_files import CheckpointChanged, Item
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.s3_client import DriverCredentials, Signer
from tests.runtime.harness import mount
from tests.runtime.scripted_server import between, scripted

COUNT = 260
"""Enough files that processes are worth it."""


@pytest.fixture(autouse=True)
def _two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(transfer_pool.VARIABLE, "2")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Many small files, an empty one, one that a worker reads while it sends it, and one that goes in parts."""
    top = tmp_path / "tree"
    for number in range(COUNT):
        folder = top / f"f{number % 7}" / "in ner"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"ü {number}%.bin").write_bytes(os.urandom(number))
    (top / "empty").write_bytes(b"")
    (top / "middle").write_bytes(os.urandom(3 << 20))
    (top / "large").write_bytes(os.urandom((17 << 20) + 3))
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    return top


def items(top: Path) -> list[Item]:
    found = sorted(path for path in top.rglob("*") if path.is_file())
    return [Item(str(path.relative_to(top)), str(path), path.stat(), None) for path in found]


def remote(s3: str, name: str) -> Remote:
    store = open_store(f"{s3}/{name}")
    assert isinstance(store, Remote)
    return store


def sent(store: Remote, top: Path) -> list[File]:
    return transfer.Upload("it", items(top)).send(store, transfer.no_throttle(lambda: True))


def fetch(store: Remote, files: list[File], into: Path, arrived: set[str] | None = None) -> None:
    kept = set() if arrived is None else arrived
    key = "files/{}".format
    local_files.bring_files(
        store,
        "it",
        files,
        SharedFolder(str(into.parent)),
        into.name,
        lambda file: key(file.path),
        lambda _: None,
        single=False,
        arrived=kept,
    )


def contents(top: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(path.relative_to(top)): (path.read_bytes(), path.stat().st_mode & 0o777)
        for path in top.rglob("*")
        if path.is_file()
    }


def workers() -> list[int]:
    """The processes that work for this one now."""
    mine = container.descendants(os.getpid(), container.all_processes())
    return [pid for pid in mine if b"transfer-worker" in Path(f"/proc/{pid}/cmdline").read_bytes()]


@contextlib.contextmanager
def killer() -> Iterator[list[int]]:
    """Kills workers as they come, each after a moment of work: a shorter one when it was done before."""
    killed: list[int] = []
    over = threading.Event()

    def work() -> None:
        moment = 0.3
        while not over.wait(0.01):
            try:
                for pid in workers():
                    time.sleep(moment)
                    os.kill(pid, signal.SIGKILL)
                    killed.append(pid)
            except OSError:
                moment /= 2

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


@pytest.mark.s3
def test_a_tree_goes_there_and_comes_back(s3: str, tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here: list[str] = []
    put = Remote.put
    monkeypatch.setattr(Remote, "put", lambda self, key, *rest: (here.append(key), put(self, key, *rest))[1])
    store = remote(s3, "workers")
    files = sent(store, tree)
    # All but the one that goes in parts went through workers.
    assert here == ["it/files/large"]
    fetched: list[str] = []
    chunks = Remote.chunks
    monkeypatch.setattr(Remote, "chunks", lambda self, key: (fetched.append(key), chunks(self, key))[1])
    fetch(store, files, tmp_path / "back")
    # Of an object without bytes no range can be read, says S3: the driver knows what to do.
    assert set(fetched) <= {"it/files/empty", "it/files/f0/in ner/ü 0%.bin"}
    assert contents(tmp_path / "back") == contents(tree)
    assert workers() == []


@pytest.mark.s3
def test_workers_that_are_killed_lose_nothing(s3: str, tree: Path, tmp_path: Path) -> None:
    with killer() as killed:
        for turn in range(20):
            store = remote(s3, f"killed{turn}")
            files = sent(store, tree)
            fetch(store, files, tmp_path / f"back{turn}")
            assert contents(tmp_path / f"back{turn}") == contents(tree)
            if killed:
                break
    assert killed
    assert workers() == []


@pytest.mark.s3
def test_what_is_damaged_in_the_store_is_said_as_ever_and_leaves_no_half_file(
    s3: str, tree: Path, tmp_path: Path
) -> None:
    store = remote(s3, "damaged")
    files = sent(store, tree)
    store.write("it/files/f1/in ner/ü 8%.bin", os.urandom(8))
    arrived: set[str] = set()
    with pytest.raises(records.Corrupt, match="do not match"):
        fetch(store, files, tmp_path / "back", arrived)
    # What was left half done is not there, and what is there is what was kept.
    whole = contents(tree)
    assert all(whole[path] == found for path, found in contents(tmp_path / "back").items())
    assert workers() == []
    store.write("it/files/f1/in ner/ü 8%.bin", whole["f1/in ner/ü 8%.bin"][0])
    fetch(store, files, tmp_path / "back", set(contents(tmp_path / "back")))
    assert contents(tmp_path / "back") == whole


@pytest.mark.s3
def test_a_file_that_is_not_the_one_that_was_meant_is_not_taken(s3: str, tree: Path) -> None:
    listed = items(tree)
    (tree / "f3" / "in ner" / "ü 3%.bin").write_bytes(b"other")
    with pytest.raises(CheckpointChanged):
        transfer.Upload("it", listed).send(remote(s3, "changed"), transfer.no_throttle(lambda: True))
    assert workers() == []


@pytest.mark.s3
def test_a_file_that_changes_while_a_worker_sends_it_is_not_taken(
    s3: str, tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first worker that is at it grows the file; whoever looks then finds another one than was meant."""
    port = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])

    def listen(head: bytes) -> None:
        if b"/files/middle" in head:
            with (tree / "middle").open("ab") as file:
                file.write(b"more")

    with scripted(between(port, listen)) as server:  # type: ignore[arg-type]  # it answers nothing itself
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
        with pytest.raises(CheckpointChanged):
            sent(remote(s3, "growing"), tree)
    assert workers() == []


@pytest.mark.s3
def test_it_stops_when_it_is_told_to(s3: str, tree: Path) -> None:
    asked: list[int] = []
    throttle = transfer.no_throttle(lambda: (asked.append(1), len(asked) < 50)[1])
    with pytest.raises(transfer.TransferAbandoned):
        transfer.Upload("it", items(tree)).send(remote(s3, "stopped"), throttle)
    assert workers() == []


@pytest.mark.s3
def test_workers_sign_with_the_credentials_of_the_moment(s3: str, tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: set[bytes] = set()

    def listen(head: bytes) -> None:
        seen.add(head.partition(b"Credential=")[2].partition(b"/")[0])

    port = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
    given: list[int] = []

    def current(self: DriverCredentials) -> Signer:
        given.append(1)
        own = self.signer
        return own if len(given) < 200 else second.setdefault(0, Signer(own.access_key + "2", "s", None, own.region))

    second: dict[int, Signer] = {}
    monkeypatch.setattr(DriverCredentials, "current", current)
    with scripted(between(port, listen)) as server:  # type: ignore[arg-type]  # it answers nothing itself
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{server.port}")
        with contextlib.suppress(Exception):  # not every server believes the second ones
            sent(remote(s3, "signed"), tree)
    assert {key + b"2" for key in seen} & seen


def test_a_worker_that_cannot_start_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Known:
        def signer(self) -> Signer:
            return Signer("a", "b", None, "c")

        def plain(self) -> dict[str, object]:
            return {}

    for words in (["/does/not/exist"], [sys.executable, "-c", "print('[7]')"], [sys.executable, "-c", "print('{')"]):
        monkeypatch.setattr(transfer_pool.container, "own_command", lambda _, words=words: words)
        orders = [transfer_pool.Order(number, ["put", "k", "p", [0, 0]], lambda _: True) for number in range(30)]
        moved = transfer_pool.Workers(Known(), "", 3).move(orders)  # type: ignore[arg-type]  # all that is asked of it
        assert sorted(moved) == list(range(30))


def test_a_worker_from_the_mount_works_and_ends_with_its_input(tmp_path: Path) -> None:
    program = mount(tmp_path / "mount")
    kind = ["PUT", "/b/", "127.0.0.1:1", {}, False]
    direct = {
        "kinds": dict.fromkeys(("put", "part", "get", "list"), kind),
        "server": ["127.0.0.1", 1, False, None, 1.0, 1.0],
    }
    first = {"direct": direct, "signer": ["a", "b", None, "c"], "threads": 1, "top": None, "most": 10}
    words = [sys.executable, "-E", "-S", str(program), "transfer-worker"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        for line in (
            first,
            ["put", 4, "key", str(program), [program.stat().st_dev, program.stat().st_ino]],
            ["get", 5, "key", "x", 1, "", 0o644],
        ):
            worker.stdin.write(json.dumps(line).encode() + b"\n")
        worker.stdin.flush()
        assert [json.loads(worker.stdout.readline()) for _ in range(2)] == [
            [4],
            [5],
        ]  # too large; no folder to write to
        worker.stdin.close()
        assert worker.wait(120) == 0


@pytest.mark.parametrize(
    ("files", "quotas"),
    [
        ({"cpu.max": "250000 100000\n"}, [(250000, 100000)]),
        ({"cpu.max": "max 100000\n"}, []),
        ({"cpu/cpu.cfs_quota_us": "50000\n", "cpu/cpu.cfs_period_us": "100000\n"}, [(50000, 100000)]),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, []),
        ({}, []),
    ],
)
def test_the_limit_of_the_container_counts(
    files: dict[str, str], quotas: list[tuple[int, int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert list(container._quotas(str(tmp_path))) == quotas
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(16))
    monkeypatch.setattr(container, "_quotas", lambda: iter(quotas))
    monkeypatch.delenv(transfer_pool.VARIABLE)
    assert container.available_cpus() == (3 if quotas == [(250000, 100000)] else 1 if quotas else 16)
    assert transfer_pool.count() == (0 if quotas else 8)
