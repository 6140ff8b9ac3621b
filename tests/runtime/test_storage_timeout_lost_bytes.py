"""A store that takes bytes and does not keep them: tried again for as long as it may fail, and no longer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from gpuflow.runtime.artifacts.artifact_files import Artifact
from gpuflow.runtime.artifacts.input_options import parse as parse_inputs
from gpuflow.runtime.artifacts.inputs import Inputs
from gpuflow.runtime.base.options import parse
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import StorageError
from tests.runtime.harness import run, shell
from tests.runtime.test_inputs import keep
from tests.runtime.test_store import Clock


class Refusing(Folder):
    """Reads each file to its end, and refuses what is not among the first `taken` of each try."""

    def __init__(self, root: str, taken: int = 0) -> None:
        super().__init__(root, lasting=False)
        self.taken, self.tries = taken, 0

    def put_all(self, items: Iterable[tuple[str, Iterable[bytes], int]]) -> None:
        self.tries += 1
        for number, (key, chunks, size) in enumerate(items):
            data = list(chunks)
            if number >= self.taken:
                raise StorageError("403: AccessDenied")
            self.put(key, data, size)


def kept_in(store: Folder, tmp_path: Path, files: int, limit: Limit, said: list[str]) -> object:
    ledger = Ledger(Folder(str(tmp_path / "book")), "p/r/s")
    ledger.claim(ledger.history())
    (tmp_path / "m").mkdir()
    for number in range(files):
        (tmp_path / "m" / str(number)).write_bytes(bytes(1000))
    artifact = Artifact(ledger, store, "one", str(tmp_path / "m"), limit.progress)
    return persist(artifact.keep, limit, settled=lambda: artifact.settled, say=said.append)


def test_an_upload_that_is_refused_each_time_is_given_up_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, said = Clock(monkeypatch), list[str]()
    with pytest.raises(StorageError, match="403: AccessDenied"):
        kept_in(Refusing(str(tmp_path / "kept")), tmp_path, 3, Limit(60), said)
    assert 1050 < clock.now <= 1061
    # Once in ten seconds, so that whoever looks knows what it waits for.
    assert 3 <= len(said) <= 6
    assert said[0] == "storage fails, and is tried again: 403: AccessDenied"


def test_an_upload_of_which_more_arrives_with_each_try_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    store = Refusing(str(tmp_path / "kept"), taken=1)
    put = store.put

    def slow(key: str, chunks: Iterable[bytes], size: int) -> None:
        clock.sleep(5)
        put(key, chunks, size)

    monkeypatch.setattr(store, "put", slow)
    # One file of each try arrives: all of them take far longer than storage may fail.
    assert kept_in(store, tmp_path, 20, Limit(12), []) is not None
    assert store.tries == 20
    assert clock.now > 1100


def test_one_large_file_that_comes_less_far_has_a_few_tries_more(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, limit, reached = Clock(monkeypatch), Limit(60), iter([50, 20, 30, 40, 10, 10])
    tries = 0

    def send() -> None:
        nonlocal tries
        tries += 1
        for _ in range(next(reached)):
            clock.sleep(10)
            limit.progress(1 << 20)
        raise StorageError("broke off")

    with pytest.raises(StorageError):
        persist(send, limit)
    assert tries == 4


def test_a_smaller_transfer_after_a_larger_one_has_progress_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, limit = Clock(monkeypatch), Limit(60)

    def sends(pieces: int, fails: int) -> None:
        tries = 0

        def send() -> None:
            nonlocal tries
            tries += 1
            # Each try comes a little further than the one before.
            for _ in range(pieces + tries):
                clock.sleep(10)
                limit.progress(1)
            if tries <= fails:
                raise StorageError("broke off")

        persist(send, limit)

    sends(100, fails=0)
    sends(10, fails=6)


class Cut(Folder):
    """Breaks off in the middle of one file, each time."""

    def chunks(self, key: str) -> Iterator[bytes]:
        data = b"".join(super().chunks(key))
        if key.endswith("/cut"):
            yield data[: len(data) // 2]
            raise StorageError("the connection was closed")
        yield data


def test_a_download_that_breaks_off_each_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "cut").write_bytes(b"x" * 5000)
    uri = keep(tmp_path / "made", Folder(str(tmp_path / "root")))
    (tmp_path / "in" / ".gpuflow-input").mkdir(parents=True)
    clock = Clock(monkeypatch)
    words = ["--input", f"{tmp_path}/in={uri}"]
    bringing = Inputs(parse_inputs(parse(words, {})), None, 30, Cut, lambda _: None, lambda: True)
    with pytest.raises(StorageError, match="the connection was closed"):
        bringing.bring()
    assert clock.now < 1040


# -- before the command has worked in vain


@pytest.mark.parametrize("option", ["--artifact", "--artifacts"])
def test_a_place_that_cannot_be_written_is_known_before_the_command_starts(option: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    where = f"{tmp_path}/file/below"
    words = ("--state", tmp_path / "state", "--run-id", "r", "--output", "m:directory", "--storage-timeout", "5s")
    done = run(*words, option, f"m={where}" if option == "--artifact" else where, *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert f'the output "m" cannot be kept at {where}' in done.stderr


def test_a_place_that_no_store_speaks_is_known_before_the_command_starts(tmp_path: Path) -> None:
    words = ("--state", tmp_path / "state", "--run-id", "r", "--output", "m:directory", "--storage-timeout", "5s")
    done = run(*words, "--artifact", "m=https://example.org/x", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert "https://" in done.stderr


def test_what_was_written_to_try_a_place_is_gone(tmp_path: Path) -> None:
    words = (
        "--state",
        tmp_path / "state",
        "--run-id",
        "r",
        "--output",
        "m:directory",
        "--artifacts",
        tmp_path / "root",
    )
    look = f'find {tmp_path}/root -type f; mkdir "$GPUFLOW_OUTPUTS/m"'
    done = run(*words, *shell(look))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert [path.name for path in (tmp_path / "root").rglob("*") if path.is_file()] == ["manifest.json"]
