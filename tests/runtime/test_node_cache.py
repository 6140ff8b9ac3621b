"""The node's cache: fetched once for all pods of a node, bounded, checked, never in the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.runtime import digesting, file_lock, inputs, node_cache, sources
from gpuflow.runtime.folder_store import Folder
from gpuflow.runtime.input_options import parse as parse_inputs
from gpuflow.runtime.inputs import Inputs
from gpuflow.runtime.options import parse
from gpuflow.runtime.store import open_store
from tests.runtime.harness import environment, eventually
from tests.runtime.test_inputs import keep
from tests.runtime.trees import Tree, make, read


class Counting(Folder):
    """A store far away: it cannot be linked to, and says what was fetched from it."""

    def __init__(self, root: Path, seconds: float = 0.0) -> None:
        super().__init__(str(root), lasting=False)
        self.fetched: list[str] = []
        self.seconds = seconds

    def url(self, key: str) -> str:
        return f"far://away/{key}"

    def chunks(self, key: str) -> Iterator[bytes]:
        self.fetched.append(key)
        time.sleep(self.seconds)
        yield from super().chunks(key)

    def clone(self, key: str, handle: int) -> bool:
        return False


@pytest.fixture
def far(tmp_path: Path) -> Counting:
    return Counting(tmp_path / "far")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    yield
    inputs._PLACED.clear()


def tree(letter: str, size: int = 1000) -> Tree:
    return {
        "w": ("file", letter.encode() * size, 0o755),
        "d/none": ("file", b"", 0o600),
        "e": ("folder", None, 0),
        "l": ("link", "d", 0),
    }


def bring(far: Counting, path: Path, uri: str, cache: Path, size: int = 1 << 20, *words: str) -> list[str]:
    said: list[str] = []
    parsed = parse_inputs(parse(["--input", f"{path}={uri}", *words], {}))
    bringing = Inputs(parsed, None, 1, lambda _: far, said.append, lambda: True)
    bringing.use_cache(str(cache), size)
    bringing.bring()
    return said


def entries(cache: Path) -> list[str]:
    return sorted(entry.name for entry in cache.iterdir() if not entry.name.startswith("."))


def test_what_one_pod_has_fetched_the_next_one_copies(tmp_path: Path, far: Counting) -> None:
    made = make(tree("a"), tmp_path / "made")
    one, two = keep(made, far), keep(made, far, run="p/other/train")
    bring(far, tmp_path / "in1", one, tmp_path / "cache")
    before = list(far.fetched)
    said = bring(far, tmp_path / "in2", two, tmp_path / "cache")
    assert far.fetched == before
    assert any("comes from the node's cache" in line for line in said)
    assert read(tmp_path / "in1") == read(tmp_path / "in2") == read(made)
    assert len(entries(tmp_path / "cache")) == 1


def test_a_program_that_changes_its_copy_does_not_change_the_cache(tmp_path: Path, far: Counting) -> None:
    uri = keep(make(tree("a"), tmp_path / "made"), far)
    bring(far, tmp_path / "in1", uri, tmp_path / "cache")
    with (tmp_path / "in1" / "w").open("r+b") as file:
        file.write(b"evil")
    before = list(far.fetched)
    bring(far, tmp_path / "in2", uri, tmp_path / "cache")
    assert read(tmp_path / "in2") == read(tmp_path / "made")
    assert far.fetched == before


@pytest.mark.parametrize("spoil", ["bytes", "gone", "pipe", "link"])
def test_a_spoiled_entry_is_fetched_again_and_replaced(spoil: str, tmp_path: Path, far: Counting) -> None:
    uri = keep(make(tree("a"), tmp_path / "made"), far)
    cache = tmp_path / "cache"
    bring(far, tmp_path / "in1", uri, cache)
    (entry,) = entries(cache)
    file = cache / entry / "content" / "w"
    file.unlink()
    if spoil == "bytes":
        file.write_bytes(b"evil" * 250)
    elif spoil == "pipe":
        os.mkfifo(file)
    elif spoil == "link":
        file.symlink_to("/etc/passwd")
    said = bring(far, tmp_path / "in2", uri, cache)
    assert read(tmp_path / "in2") == read(tmp_path / "made")
    assert any("it is fetched again" in line for line in said)
    assert entries(cache) == []
    bring(far, tmp_path / "in3", uri, cache)
    count = len(far.fetched)
    bring(far, tmp_path / "in4", uri, cache)
    assert (entries(cache), len(far.fetched)) == ([entry], count)


def test_two_pods_fetch_once(tmp_path: Path) -> None:
    far = Counting(tmp_path / "far", seconds=0.3)
    uri = keep(make(tree("a"), tmp_path / "made"), far)
    said: list[list[str]] = []
    threads = [
        threading.Thread(target=lambda n=n: said.append(bring(far, tmp_path / f"in{n}", uri, tmp_path / "cache")))
        for n in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(said) == 4
    assert len(far.fetched) == 2  # each of its two files
    for number in range(4):
        assert read(tmp_path / f"in{number}") == read(tmp_path / "made")


def test_the_oldest_that_nobody_uses_goes_when_there_is_no_room(tmp_path: Path, far: Counting) -> None:
    cache = tmp_path / "cache"
    uris = {letter: keep(make(tree(letter), tmp_path / f"made-{letter}"), far) for letter in "abcd"}
    names = {}
    for age, letter in enumerate("abc"):
        before = set(entries(cache)) if cache.exists() else set()
        bring(far, tmp_path / f"in-{letter}", uris[letter], cache, 3500)
        (names[letter],) = set(entries(cache)) - before
        os.utime(cache / names[letter] / "entry.json", (1000 + age, 1000 + age))
    bring(far, tmp_path / "in-a2", uris["a"], cache, 3500)  # used again: now the youngest
    with file_lock.held(str(cache / ".locks" / names["b"]), None, shared=True):  # somebody copies from it
        bring(far, tmp_path / "in-d", uris["d"], cache, 3500)
    left = set(entries(cache))
    assert {names["a"], names["b"]} < left
    assert names["c"] not in left
    assert len(left) == 3
    assert read(tmp_path / "in-d") == read(tmp_path / "made-d")


def test_what_is_larger_than_the_cache_or_finds_no_room_is_fetched_without_it(tmp_path: Path, far: Counting) -> None:
    cache = tmp_path / "cache"
    uris = [keep(make(tree(letter), tmp_path / f"made-{letter}"), far) for letter in "ab"]
    said = bring(far, tmp_path / "in0", uris[0], cache, 500)
    assert any("more than the whole cache" in line for line in said)
    bring(far, tmp_path / "in1", uris[0], cache, 1500)
    (name,) = entries(cache)
    with file_lock.held(str(cache / ".locks" / name), None, shared=True):
        said = bring(far, tmp_path / "in2", uris[1], cache, 1500)
    assert any("all else in it is in use" in line for line in said)
    assert read(tmp_path / "in2") == read(tmp_path / "made-b")
    assert entries(cache) == [name]


def test_a_cache_that_cannot_be_used_is_no_reason_to_fail(tmp_path: Path, far: Counting) -> None:
    (tmp_path / "cache").write_text("a file")
    uri = keep(make(tree("a"), tmp_path / "made"), far)
    said = bring(far, tmp_path / "in", uri, tmp_path / "cache")
    assert any("cannot be used" in line for line in said)
    assert read(tmp_path / "in") == read(tmp_path / "made")


def test_what_a_killed_fetch_left_is_taken_up_or_removed(tmp_path: Path, far: Counting) -> None:
    cache = tmp_path / "cache"
    uri = keep(make(tree("a"), tmp_path / "made"), far)
    bring(far, tmp_path / "in1", uri, cache)
    (name,) = entries(cache)
    os.rename(cache / name, cache / f".new-{name}")  # as if it had been killed before the rename
    (cache / f".new-{name}" / "content" / "w").write_bytes(b"half")
    for dead in (f".new-{'0' * 64}", ".gone-1234"):
        (cache / dead / "content").mkdir(parents=True)
    far.fetched.clear()
    bring(far, tmp_path / "in2", uri, cache)
    assert [key.rpartition("/")[2] for key in far.fetched] == ["w"]  # the other one was whole
    assert read(tmp_path / "in2") == read(tmp_path / "made")
    assert sorted(entry.name for entry in cache.iterdir()) == [".locks", name]


def test_who_is_killed_while_it_fetches_lets_the_next_one_go_on(tmp_path: Path) -> None:
    lock = tmp_path / "cache" / ".locks" / "x"
    code = (
        "import sys, time\nfrom gpuflow.runtime import file_lock\n"
        f"with file_lock.held({str(lock)!r}, None):\n    print('held', flush=True)\n    time.sleep(60)\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, env=environment())
    assert holder.stdout is not None
    holder.stdout.readline()
    with pytest.raises(file_lock.Busy), file_lock.held(str(lock), None):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    eventually(lambda: _can_be_held(lock))


def _can_be_held(lock: Path) -> bool:
    try:
        with file_lock.held(str(lock), None):
            return True
    except file_lock.Busy:
        return False


def test_data_from_outside_is_cached_by_the_digest_that_was_given(tmp_path: Path, far: Counting) -> None:
    far.write("data/a", b"1")
    far.write("data/d/b", b"2")

    digest = digesting.digest(str(tmp_path / "far" / "data"))
    cache = tmp_path / "cache"

    def fetch(number: int, digest: str | None) -> list[str]:
        path = tmp_path / f"in{number}"
        words = () if digest is None else ("--input-digest", f"{path}=sha256:{digest}")
        return bring(far, path, "far://away/data", cache, 1 << 20, *words)

    fetch(1, digest)
    before = len(far.fetched)
    fetch(2, digest)
    assert len(far.fetched) == before
    assert read(tmp_path / "in2") == read(tmp_path / "far" / "data")
    fetch(3, None)
    assert len(far.fetched) == before + 2  # without a digest nobody knows what it should be
    (entry,) = entries(cache)
    (cache / entry / "content" / "a").write_bytes(b"9")
    said = fetch(4, digest)
    assert any("fetched again" in line for line in said)
    assert read(tmp_path / "in4") == read(tmp_path / "far" / "data")


def test_the_name_of_an_entry_is_its_content_alone(tmp_path: Path, far: Counting) -> None:
    from gpuflow.runtime.records import File
    from gpuflow.runtime.sources import Source

    def name(path: str, mode: int, kind: str, letter: str = "0") -> str:
        file = File(path=path, size=1, sha256=letter * 64, mode=mode)
        return node_cache.name_of(Source("far://away/x", far, "x", kind, [file], ours=True))

    assert name("a", 0o644, "directory") == name("a", 0o755, "directory")
    assert name("a", 0o644, "file") == name("b", 0o644, "file")
    assert (
        len({name("a", 0, "directory"), name("b", 0, "directory"), name("a", 0, "file"), name("a", 0, "file", "1")})
        == 4
    )


def test_a_lock_that_nobody_lets_go_of_is_no_reason_to_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_cache, "PATIENCE", 0.3)
    said: list[str] = []
    cache = node_cache.NodeCache(str(tmp_path / "cache"), 1 << 30, said.append, lambda: None)
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "f").write_bytes(b"1")
    source = sources.read(sources.Stores(open_store), str(tmp_path / "data"), "directory", None, said.append)
    source.sum = digesting.digest(str(tmp_path / "data"))
    for name in ("room", node_cache.name_of(source)):
        with (
            file_lock.held(str(tmp_path / "cache" / ".locks" / name), None),
            cache.holding(source, lambda into, arrived: None, lambda count: None) as entry,
        ):
            assert entry is None
        assert "is fetched without it" in said[-1]


def test_a_cache_that_cannot_be_made_is_done_without(tmp_path: Path) -> None:
    said: list[str] = []
    (tmp_path / "f").write_bytes(b"1")
    source = sources.read(sources.Stores(open_store), str(tmp_path / "f"), "file", None, said.append)
    source.sum = digesting.digest(str(tmp_path / "f"))
    cache = node_cache.NodeCache("/proc/self/cache", 1 << 30, said.append, lambda: None)
    with cache.holding(source, lambda into, arrived: None, lambda count: None) as entry:
        assert entry is None
    assert "is fetched without it" in said[-1]
