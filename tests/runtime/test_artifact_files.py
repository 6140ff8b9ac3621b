"""Files and directories that a step leaves: whole, of one attempt only, tried again, given again.

Tests gpuflow/runtime/artifacts/artifact_files.py and gpuflow/runtime/artifacts/delivery.py.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from gpuflow.runtime.artifacts import artifact_files
from gpuflow.runtime.artifacts.artifact_files import Artifact, NotKept
from gpuflow.runtime.base import records
from gpuflow.runtime.state.ledger import Ledger, OwnershipLost
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.store import Progress, StorageError
from tests.runtime.harness import eventually, run, shell, start

WRITE = 'mkdir -p "$GPUFLOW_OUTPUTS/m"; echo "$GPUFLOW_ATTEMPT" >"$GPUFLOW_OUTPUTS/m/w"'


@pytest.fixture
def state(tmp_path: Path) -> tuple[str, ...]:
    return ("--state", str(tmp_path / "state"), "--run-id", "r", "--output", "m:directory")


def marker(tmp_path: Path) -> Path:
    return tmp_path / "state" / "default" / "r" / "default" / "success.json"


def kept(tmp_path: Path) -> dict[str, str]:
    """Every file that is kept, without the attempts' ids."""
    return {
        str(path.relative_to(tmp_path / "kept")).partition("/")[0][:6] + "/" + path.name: path.read_text()
        for path in (tmp_path / "kept").rglob("*")
        if path.is_file() and path.name != "manifest.json"
    }


# -- one owner


def test_an_older_attempt_that_ends_late_changes_nothing_that_is_kept(tmp_path: Path, state: tuple[str, ...]) -> None:
    options = (*state, "--artifact", f"m={tmp_path}/kept")
    wait = f'; while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; touch "$GPUFLOW_OUTPUTS/m/only-1"'
    old = start(*options, "--outputs-dir", tmp_path / "a", *shell(f"{WRITE}; echo up{wait}"))
    assert old.stdout is not None
    old.stdout.readline()
    new = run(*options, "--outputs-dir", tmp_path / "b", *shell(WRITE))
    assert new.returncode == 0, new.stderr
    before = kept(tmp_path)
    (tmp_path / "go").touch()
    assert old.wait(120) == 75
    assert kept(tmp_path) == before == {"000002/w": "2\n"}


def test_whoever_loses_while_it_uploads_writes_no_manifest(tmp_path: Path) -> None:
    store, book = Folder(str(tmp_path / "kept")), Folder(str(tmp_path / "book"))
    ledger = Ledger(book, "p/r/s")
    ledger.claim(ledger.history())
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "w").write_text("1")

    def overtaken(_: int) -> None:
        other = Ledger(book, "p/r/s")
        if other.history().last == 1:
            other.claim(other.history())

    with pytest.raises(OwnershipLost):
        Artifact(ledger, store, "one", str(tmp_path / "m"), overtaken).keep()
    assert not list((tmp_path / "kept").rglob("manifest.json"))


def test_the_outputs_of_whoever_succeeded_first_are_delivered(tmp_path: Path) -> None:
    options = ("--state", tmp_path / "state", "--run-id", "r", "--output", "x:int", "--outputs-dir", tmp_path / "out")
    assert run(*options, *shell('echo 1 >"$GPUFLOW_OUTPUTS/x"')).returncode == 0
    os.rename(marker(tmp_path), tmp_path / "aside")
    meanwhile = f'mv {tmp_path}/aside {marker(tmp_path)}; echo 2 >"$GPUFLOW_OUTPUTS/x"'
    done = run(*options, *shell(meanwhile))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "x").read_text() == "1"


# -- whole


class Lossy(Folder):
    """Takes one file and does not keep it, once; or keeps half of it."""

    def __init__(self, root: str, lost: str, *, half: bool = False) -> None:
        super().__init__(root, lasting=False)
        self.lost, self.half, self.puts = lost, half, list[str]()

    def put_all(self, items: Iterable[tuple[str, Iterable[bytes], int]]) -> None:
        for key, chunks, size in items:
            self.puts.append(key.rpartition("/")[2])
            if key.endswith(self.lost) and self.puts.count(self.lost) == 1:
                whole = b"".join(chunks)
                if self.half:
                    self.put(key, [whole[: len(whole) // 2]], size)
                continue
            self.put(key, chunks, size)


@pytest.mark.parametrize("half", [False, True])
def test_a_file_that_did_not_arrive_is_noticed_and_only_that_one_is_sent_again(half: bool, tmp_path: Path) -> None:
    ledger = Ledger(Folder(str(tmp_path / "book")), "p/r/s")
    ledger.claim(ledger.history())
    source = tmp_path / "m"
    source.mkdir()
    for name in "abc":
        (source / name).write_text(name * 10)
    store = Lossy(str(tmp_path / "kept"), "b", half=half)
    artifact = Artifact(ledger, store, "one", str(source), lambda _: None)
    with pytest.raises(StorageError, match="did not arrive whole"):
        artifact.keep()
    assert not (tmp_path / "kept" / "one" / "manifest.json").exists()
    files = artifact.keep()
    assert [file.path for file in files] == ["a", "b", "c"]
    assert store.puts == ["a", "b", "c", "b"]
    assert store.read("one/files/b") == b"b" * 10


def test_the_marker_names_every_file_with_its_digest(tmp_path: Path, state: tuple[str, ...]) -> None:
    write = shell(f'{WRITE}; cd "$GPUFLOW_OUTPUTS/m"; mkdir empty; ln -s w to-file; mkdir d; ln -s d to-folder')
    assert run(*state, "--artifact", f"m={tmp_path}/kept", *write).returncode == 0
    output = json.loads(marker(tmp_path).read_text())["outputs"]["m"]
    (manifest,) = (tmp_path / "kept").glob("000001-*/manifest.json")
    record = records.unpack(records.Manifest, manifest.read_bytes(), "manifest.json")
    assert output["files"] == [file.plain() for file in record.files]
    assert output["uri"] == str(manifest.parent / "files")
    assert {file.path: file.link or file.size or file.directory for file in record.files} == {
        "d": True,
        "empty": True,
        "to-file": "w",
        "to-folder": "d",
        "w": 2,
    }


@pytest.mark.parametrize(
    ("made", "because"),
    [
        ("ln -s /etc outside", "a link to a folder outside"),
        ("ln -s nothing broken", "a link to nothing"),
        ("mkfifo pipe", "no file, folder or link"),
        ("touch \"$(printf 'a\\377')\"", "UTF-8"),
    ],
)
def test_what_cannot_be_kept_is_a_failure_that_names_it(
    made: str, because: str, tmp_path: Path, state: tuple[str, ...]
) -> None:
    done = run(*state, "--artifact", f"m={tmp_path}/kept", *shell(f'{WRITE}; cd "$GPUFLOW_OUTPUTS/m"; {made}'))
    assert done.returncode == 1, done.stderr
    assert 'the output "m" cannot be kept' in done.stderr
    assert because in done.stderr
    assert not marker(tmp_path).exists()


def test_a_link_out_of_the_artifact_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "up").symlink_to("..")
    with pytest.raises(NotKept):
        list(artifact_files.entries_of(str(tmp_path / "m")))


def test_what_a_lost_attempt_uploaded_goes_once_another_has_succeeded(tmp_path: Path, state: tuple[str, ...]) -> None:
    options = (*state, "--artifact", f"m={tmp_path}/kept")
    assert run(*options, *shell(WRITE)).returncode == 0
    marker(tmp_path).unlink()  # as if it had been killed before the marker was written
    other = tmp_path / "kept" / "000001-of0other" / "files"
    other.mkdir(parents=True)
    (other / "w").write_text("another run's\n")
    done = run(*options, *shell(WRITE))
    assert done.returncode == 0, done.stderr
    assert kept(tmp_path) == {"000001/w": "another run's\n", "000002/w": "2\n"}


# -- tried again


def unblock_after(seconds: float, path: Path) -> threading.Timer:
    timer = threading.Timer(seconds, path.unlink)
    timer.start()
    return timer


def test_storage_that_fails_for_a_while_after_the_command_loses_nothing(tmp_path: Path, state: tuple[str, ...]) -> None:
    (tmp_path / "kept").write_text("not a directory")
    timer = unblock_after(1.5, tmp_path / "kept")
    done = run(*state, "--artifact", f"m={tmp_path}/kept", "--storage-timeout", "30s", *shell(WRITE))
    timer.join()
    assert done.returncode == 0, done.stderr
    assert kept(tmp_path) == {"000001/w": "1\n"}


@pytest.mark.parametrize("heals", [True, False])
def test_told_to_stop_after_the_command_it_tries_until_the_grace_is_over(
    heals: bool, tmp_path: Path, state: tuple[str, ...]
) -> None:
    options = ("--artifact", f"m={tmp_path}/kept", "--grace", "60s" if heals else "4s", "--storage-timeout", "10m")
    blocked = f"rm -rf {tmp_path}/kept; echo not a directory >{tmp_path}/kept"
    process = start(*state, *options, *shell(f"echo $$; {WRITE}; {blocked}; touch {tmp_path}/ended"))
    assert process.stdout is not None and process.stderr is not None
    command = int(process.stdout.readline())
    eventually(lambda: (tmp_path / "ended").exists())
    eventually(lambda: not Path(f"/proc/{command}").exists())
    time.sleep(2)  # it knows of the end now, and tries to keep the output
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    timer = unblock_after(1.0, tmp_path / "kept") if heals else None
    code = process.wait(120)
    if timer is not None:
        timer.join()
        assert code == 0, process.stderr.read()
        assert marker(tmp_path).exists()
    else:
        assert code == 75
        assert time.monotonic() - began > 2.5, "the grace is used"
        assert "told to stop after the command had ended with 0" in process.stderr.read()


# -- given again


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_an_artifact_without_a_uri_is_given_again_from_the_store(kind: str, tmp_path: Path) -> None:
    options = ("--state", tmp_path / "state", "--run-id", "r", "--output", f"m:{kind}", "--outputs-dir", tmp_path / "o")
    write = WRITE if kind == "directory" else 'echo 1 >"$GPUFLOW_OUTPUTS/m"'
    assert run(*options, *shell(write)).returncode == 0
    shutil.rmtree(tmp_path / "o")
    done = run(*options, *shell("echo ran"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (tmp_path / "o" / "m" / ("w" if kind == "directory" else "")).read_text() == "1\n"


def test_an_artifact_that_is_damaged_in_the_store_is_not_given_again(tmp_path: Path) -> None:
    options = ("--state", tmp_path / "state", "--run-id", "r", "--output", "m:file", "--outputs-dir", tmp_path / "o")
    assert run(*options, *shell('echo 1 >"$GPUFLOW_OUTPUTS/m"')).returncode == 0
    shutil.rmtree(tmp_path / "o")
    (file,) = (tmp_path / "state").rglob("files/m")
    file.write_text("2\n")
    done = run(*options, "--storage-timeout", "5s", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert "do not match its manifest" in done.stderr
    assert not (tmp_path / "o" / "m").exists()


def test_a_file_that_may_not_be_read_is_the_outputs_fault_and_not_the_storages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "secret").write_text("x")
    ledger = Ledger(Folder(str(tmp_path / "state")), "p/r/s")
    ledger.claim(ledger.history())

    def refusing(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    # The suite may run as root, who may read everything.
    monkeypatch.setattr(artifact_files, "open_same", refusing)
    artifact = Artifact(ledger, Folder(str(tmp_path / "kept")), "a", str(tmp_path / "m"), lambda _: None)
    with pytest.raises(NotKept, match=r"m/secret may not be read"):
        artifact.keep()


def test_outputs_that_no_success_marker_can_hold_are_a_failure_that_says_so(tmp_path: Path) -> None:
    """Each value is small enough, and all together are not: a marker of that size is corrupt for whoever reads it."""
    names = "abcdefghi"
    words = [word for name in names for word in ("--output", name)]
    write = 'head -c 8388608 /dev/zero | tr "\\0" x > "$GPUFLOW_OUTPUTS"/{}'
    command = shell("; ".join(write.format(name) for name in names))
    done = run("--state", tmp_path / "state", "--run-id", "r", *words, *command)
    assert done.returncode == 1
    assert "bytes in the success marker, and the most is 67108864" in done.stderr
    assert not marker(tmp_path).exists()


def test_a_pipe_in_the_place_of_an_output_that_is_given_again_is_not_waited_for(tmp_path: Path) -> None:
    options = ("--state", tmp_path / "state", "--run-id", "r", "--output", f"m:file={tmp_path}/m")
    assert run(*options, *shell(f"echo trained > {tmp_path}/m")).returncode == 0
    (tmp_path / "m").unlink()
    os.mkfifo(tmp_path / "m")
    again = start(*options, *shell("echo ran"))
    assert again.wait(120) == 0
    assert (tmp_path / "m").read_text() == "trained\n"


@pytest.mark.parametrize("name", ["out/", ".cache", "..."])
def test_an_output_may_lie_under_a_hidden_name_or_be_spelled_with_a_slash(name: str, tmp_path: Path) -> None:
    place = f"{tmp_path}/{name}"
    options = ("--state", tmp_path / "state", "--run-id", "r", "--output", f"m:directory={place}")
    done = run(*options, *shell(f"mkdir {place}; echo 1 > {place}/w"))
    assert done.returncode == 0, done.stderr
    shutil.rmtree(place)
    assert run(*options, *shell("echo ran")).returncode == 0
    assert (tmp_path / name / "w").read_text() == "1\n"


# -- a root for all


def rooted(tmp_path: Path, *words: object) -> tuple[object, ...]:
    return ("--artifacts", tmp_path / "root", "--run-id", "r", "--output", "m:directory", *words)


def test_without_a_book_an_output_is_kept_below_the_root_too(tmp_path: Path) -> None:
    words = rooted(tmp_path, "--pipeline", "p", "--step", "train", "--item", "a/b", "--outputs-dir", tmp_path / "o")
    done = run(*words, *shell(WRITE))
    assert done.returncode == 0, done.stderr
    (manifest,) = (tmp_path / "root" / "p" / "r" / "train" / "items" / "a%2Fb" / "artifacts" / "m").glob(
        "*/manifest.json"
    )
    record = records.unpack(records.Manifest, manifest.read_bytes(), "manifest.json")
    assert record.run == "p/r/train/items/a%2Fb"
    assert (tmp_path / "o" / "m.uri").read_text() == str(manifest.parent / "files")
    assert 'the output "m" is kept: 2 bytes in 1 file' in done.stderr


def test_a_uri_of_its_own_comes_before_the_root(tmp_path: Path) -> None:
    assert run(*rooted(tmp_path, "--artifact", f"m={tmp_path}/kept"), *shell(WRITE)).returncode == 0
    assert kept(tmp_path) == {"000001/w": "1\n"}
    assert not (tmp_path / "root").exists()


def test_the_root_needs_a_run(tmp_path: Path) -> None:
    done = run("--artifacts", tmp_path / "root", "--output", "m:directory", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert "--artifacts needs --run-id" in done.stderr
    assert (
        run("--artifacts", tmp_path / "root", "--output", "m", *shell('echo 1 >"$GPUFLOW_OUTPUTS/m"')).returncode == 0
    )


@pytest.mark.parametrize("first", ["root", "store"])
def test_after_success_it_is_given_again_from_where_it_is(first: str, tmp_path: Path, state: tuple[str, ...]) -> None:
    options = (*state, "--outputs-dir", tmp_path / "o")
    root = ("--artifacts", tmp_path / "root")
    assert run(*options, *(root if first == "root" else ()), *shell(WRITE)).returncode == 0
    assert (tmp_path / "root").exists() == (first == "root")
    shutil.rmtree(tmp_path / "o")
    done = run(*options, *root, *shell("echo ran"))
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert (tmp_path / "o" / "m" / "w").read_text() == "1\n"


def test_below_the_root_only_what_this_run_left_before_goes(tmp_path: Path, state: tuple[str, ...]) -> None:
    options = (*state, "--artifacts", tmp_path / "root")
    top = tmp_path / "root" / "default" / "r" / "default" / "artifacts" / "m"
    assert run(*options, *shell(WRITE)).returncode == 0
    marker(tmp_path).unlink()
    (top / "000001-0f0f0f0f" / "files").mkdir(parents=True)
    (top / "000001-0f0f0f0f" / "files" / "w").write_text("of nobody the book knows")
    assert run(*options, *shell(WRITE)).returncode == 0
    assert sorted(name[:6] for name in os.listdir(top)) == ["000001", "000002"]
    assert (top / "000001-0f0f0f0f").exists()


def test_without_a_book_nobody_elses_attempt_is_touched(tmp_path: Path) -> None:
    assert run(*rooted(tmp_path), *shell(WRITE)).returncode == 0
    (one,) = (tmp_path / "root").rglob("files")
    (one / ".part-1-0123456789abcdef").write_text("an upload of another attempt, which may be alive")
    assert run(*rooted(tmp_path), *shell(WRITE)).returncode == 0
    assert (one / ".part-1-0123456789abcdef").exists()
    assert len(list((tmp_path / "root").rglob("manifest.json"))) == 2


def test_what_is_forgotten_goes_from_the_root(tmp_path: Path, state: tuple[str, ...]) -> None:
    options = (*state, "--artifacts", tmp_path / "root")
    assert run(*options, *shell(WRITE)).returncode == 0
    done = run("forget", *options)
    assert done.returncode == 0, done.stderr
    assert not list((tmp_path / "root").rglob("manifest.json"))


def test_progress_says_how_fast_and_how_long_still() -> None:
    said: list[str] = []
    told = Progress(said.append, "the input /in", every=0.0)
    told.begin(3_000_000_000, 3, 1_000_000_000)
    told.began -= 10
    told.add(500_000_000)
    assert said == ["the input /in: 1.5 GB of 3 GB, 150 MB/s, about 10 s left"]
    told = Progress(said.append, "x")
    told.begin(10, 1)
    told.add(10)
    assert len(said) == 1  # not more often than every ten seconds
    assert told.summary().startswith("x: 10 bytes in 1 file, in ")


@pytest.mark.parametrize(
    ("make", "link"),
    [
        ("ln -s $PWD/ckpt latest", "ckpt"),
        ("ln -s . latest", "."),
        ("ln -s ckpt/../other latest", "other"),
        ("ln -s $PWD latest", "."),
        ("ln -s ckpt latest", "ckpt"),
    ],
)
def test_a_link_to_a_folder_inside_stays_one_however_it_is_written(make: str, link: str, tmp_path: Path) -> None:
    words = ("--run-id", "r", "--output", "m:directory", "--artifacts", tmp_path / "root")
    setting = 'mkdir "$GPUFLOW_OUTPUTS/m"; cd "$GPUFLOW_OUTPUTS/m"; mkdir ckpt other; echo 1 >ckpt/w'
    done = run("--state", tmp_path / "state", *words, *shell(f"{setting}; {make}"))
    assert done.returncode == 0, done.stderr
    (manifest,) = (tmp_path / "root").rglob("manifest.json")
    files = json.loads(manifest.read_text())["files"]
    assert {file["path"]: file.get("link") for file in files}["latest"] == link
    place = tmp_path / "in"
    place.mkdir()
    uri = f"{manifest.parent}/files"
    done = run("--input", f"{place}={uri}", *shell(f"readlink {place}/latest; ls {place}/latest"))
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, link), done.stderr


def test_a_link_to_a_folder_outside_is_refused(tmp_path: Path, state: tuple[str, ...]) -> None:
    (tmp_path / "elsewhere").mkdir()
    write = shell(f'mkdir "$GPUFLOW_OUTPUTS/m"; ln -s {tmp_path}/elsewhere "$GPUFLOW_OUTPUTS/m/l"')
    done = run(*state, "--artifact", f"m={tmp_path}/kept", *write)
    assert done.returncode == 1
    assert "is a link to a folder outside of the output" in done.stderr


@pytest.mark.parametrize(
    ("write", "because"),
    [
        ('mkdir "$GPUFLOW_OUTPUTS/m/.gpuflow-input"', "rename it"),
        (
            'cd "$GPUFLOW_OUTPUTS/m"; n=$(printf %0200d 0); for i in $(seq 16); do mkdir $n; cd $n; done; echo 1 >leaf',
            "is longer than 3000 characters; put it less deep",
        ),
    ],
)
def test_what_no_step_could_read_is_not_kept(write: str, because: str, tmp_path: Path, state: tuple[str, ...]) -> None:
    done = run(*state, "--artifact", f"m={tmp_path}/kept", *shell(f'mkdir "$GPUFLOW_OUTPUTS/m"; {write}'))
    assert done.returncode == 1
    assert 'the output "m" cannot be kept: ' in done.stderr
    assert because in done.stderr
    assert not list((tmp_path / "kept").rglob("manifest.json"))


def test_holes_stay_holes_in_a_directory_that_is_the_store(tmp_path: Path, state: tuple[str, ...]) -> None:
    write = shell('mkdir "$GPUFLOW_OUTPUTS/m"; cd "$GPUFLOW_OUTPUTS/m"; truncate -s 50M hole; echo end >>hole')
    done = run(*state, "--artifact", f"m={tmp_path}/kept", *write)
    assert done.returncode == 0, done.stderr
    (file,) = (tmp_path / "kept").rglob("hole")
    assert file.stat().st_size == 50 * (1 << 20) + 4
    assert file.stat().st_blocks * 512 < 1 << 20
