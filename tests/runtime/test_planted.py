"""Links and special files in folders that others may write to: nothing outside is read, written or removed.

Tests gpuflow/runtime/base/files.py and gpuflow/runtime/stores/local_files.py.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.artifacts import artifact_files
from gpuflow.runtime.artifacts.artifact_files import NotKept
from gpuflow.runtime.artifacts.outputs import BadOutput, collect, parse
from gpuflow.runtime.base import signing
from gpuflow.runtime.base.files import NotAFile, NotAFolder, SharedFolder
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.signing import read_keys
from gpuflow.runtime.checkpoints import transfer
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.stores.local_files import CheckpointRefused
from proofs.links import attempt
from tests.runtime.harness import run, shell


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "deep").mkdir(parents=True)
    for name in ("c", "deep/c"):
        (folder / name).write_text("untouched")
    return folder


def untouched(outside: Path) -> bool:
    found = sorted(str(path.relative_to(outside)) for path in outside.rglob("*"))
    return found == ["c", "deep", "deep/c"] and (outside / "deep" / "c").read_text() == "untouched"


@pytest.mark.parametrize("number", range(40))
def test_what_is_planted_leads_nowhere(number: int) -> None:
    """The same by hundreds: python -m proofs links."""
    case, how, faults = attempt(number, 34)
    assert not faults, f"{case}: {how}: {case.said}"


# -- the finding's own inputs


@pytest.mark.parametrize("key", [False, True])
def test_a_link_as_probe_is_refused_with_its_name_and_removes_nothing(tmp_path: Path, outside: Path, key: bool) -> None:
    probe = tmp_path / "store" / "p" / "r1" / "train" / "probe"
    probe.parent.mkdir(parents=True)
    probe.symlink_to(outside)
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef\n")
    words = ["--pipeline=p", "--step=train", "--run-id=r1", f"--checkpoint-dir={tmp_path}/c"]
    words += [f"--store={tmp_path}/store", *([f"--key-file={tmp_path}/key"] if key else [])]
    done = run(*words, *shell("echo training"))
    assert (done.returncode, done.stdout) == (78, "")
    assert f"{probe} is a link, and gpuflow-run did not make it" in done.stderr
    assert untouched(outside)


def test_the_key_is_not_kept_through_a_link_in_a_checkpoint(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    script = f"""cd $GPUFLOW_CHECKPOINT_DIR
    mkdir zz; ln -s {key} zz/leak; touch zz/.gpuflow-complete; sleep 0.5"""
    words = ["--pipeline=p", "--step=train", "--run-id=r1", f"--checkpoint-dir={tmp_path}/c", "--every=1s"]
    done = run(*words, f"--store={tmp_path}/store", f"--key-file={key}", *shell(script))
    assert done.returncode == 0, done.stderr
    assert f"c/zz/leak is a link out of the checkpoint directory to {key}, and is not followed" in done.stderr
    kept = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert not [path for path in kept if b"0123456789abcdef0123456789abcdef" in path.read_bytes()]


def test_staging_of_an_input_that_is_a_link_is_refused_and_removes_nothing(tmp_path: Path, outside: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "f").write_text("input")
    (tmp_path / "in" / ".gpuflow-input").mkdir(parents=True)
    (tmp_path / "in" / ".gpuflow-input" / "files").symlink_to(outside)
    done = run("--run-id=r", f"--input={tmp_path}/in={tmp_path}/made", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert ".gpuflow-input/files is no folder of ours" in done.stderr
    assert untouched(outside)


def test_a_link_as_the_folder_of_a_fan_in_is_refused(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "in").symlink_to(tmp_path / "empty")
    done = run("--run-id=r", f'--input={tmp_path}/in=["{tmp_path}/made"]', *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert f"the input {tmp_path}/in cannot be placed: it is a link" in done.stderr
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_pipe_as_the_lock_of_an_input_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "f").write_text("input")
    (tmp_path / "in" / ".gpuflow-input").mkdir(parents=True)
    os.mkfifo(tmp_path / "in" / ".gpuflow-input" / "lock")
    done = run("--run-id=r", f"--input={tmp_path}/in={tmp_path}/made", *shell("echo ran"))
    assert (done.returncode, done.stdout) == (78, "")
    assert ".gpuflow-input/lock is no lock of ours" in done.stderr


# -- a neighbor who swaps a folder for a link between two of our steps


def test_a_folder_that_becomes_a_link_during_a_walk_is_not_entered(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Folder(str(tmp_path / "s"))
    store.write("a/b/c", b"ours")
    real = SharedFolder._scan

    def swapping(self: SharedFolder, inside: str) -> Any:
        found = real(self, inside)
        if inside == "a" and not (tmp_path / "aside").exists():
            (tmp_path / "s/a/b").rename(tmp_path / "aside")
            (tmp_path / "s/a/b").symlink_to(outside)
        return found

    monkeypatch.setattr(SharedFolder, "_scan", swapping)
    assert store.names("a") == []
    with pytest.raises(BadOption, match="s/a/b is a link"):
        store.delete(["a/b/c"])
    with pytest.raises(BadOption, match="s/a/b is a link"):
        store.write("a/b/new", b"x")
    with pytest.raises(BadOption, match="s/a/b is a link"):
        store.read("a/b/c")
    assert untouched(outside)


def test_a_folder_that_becomes_a_link_while_its_tree_is_removed_is_not_entered(
    tmp_path: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "s" / "a" / "deep").mkdir(parents=True)
    (tmp_path / "s" / "a" / "deep" / "c").write_text("ours")
    real = os.listdir

    def swapping(handle: int) -> list[str]:
        found = real(handle)
        if "deep" in found:
            (tmp_path / "s/a/deep").rename(tmp_path / "aside")
            (tmp_path / "s/a/deep").symlink_to(outside)
        return found

    monkeypatch.setattr(os, "listdir", swapping)
    SharedFolder(str(tmp_path / "s")).discard("a")
    assert untouched(outside)
    assert not (tmp_path / "s" / "a").exists()  # the link itself went with it


def test_a_file_that_becomes_a_link_before_it_is_read_is_not_sent(tmp_path: Path, outside: Path) -> None:
    """Found as one file, and another by the time it is opened: also of the same size and age."""
    entry = tmp_path / "c" / "ck"
    entry.mkdir(parents=True)
    (entry / "w").write_text("untouched")
    items = local_files.list_items(str(entry))
    times = (entry / "w").stat()
    (entry / "w").unlink()
    (entry / "w").symlink_to(outside / "c")
    os.utime(outside / "c", ns=(times.st_atime_ns, times.st_mtime_ns))
    store = Folder(str(tmp_path / "s"))
    with pytest.raises(local_files.CheckpointVanished):
        transfer.Upload("it", items).send(store, transfer.no_throttle(lambda: True))
    assert store.names("it") == []


# -- what a shared folder refuses, and never waits for


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, outside: Path, kind: str) -> None:
    place = tmp_path / "it"
    if kind == "link":
        place.symlink_to(outside / "c")
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    shared = SharedFolder(str(tmp_path))
    with pytest.raises(NotAFile):
        shared.read("it")
    if kind != "folder":
        with pytest.raises(NotAFolder):
            shared.make("it/below")
        with pytest.raises(NotAFolder):
            shared.names("it")
    with pytest.raises(NotAFolder):
        shared.read("../it")
    assert untouched(outside)


# -- secrets


def secrets_volume(tmp_path: Path) -> Path:
    """As the kubelet fills one."""
    volume = tmp_path / "volume"
    (volume / "..2026_11_18_00_00_00.123").mkdir(parents=True)
    (volume / "..2026_11_18_00_00_00.123" / "token").write_text("secret")
    (volume / "..data").symlink_to("..2026_11_18_00_00_00.123")
    (volume / "token").symlink_to("..data/token")
    return volume


def test_no_secret_is_kept_as_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    volume, out = secrets_volume(tmp_path), tmp_path / "out"
    out.mkdir()
    (out / "leak").symlink_to(volume / "token")
    with pytest.raises(NotKept, match="out/leak must not be kept: it is a file of a mounted Secret or token"):
        list(artifact_files.entries_of(str(out)))
    with pytest.raises(BadOutput, match="out/leak must not be kept: it is a file of a mounted Secret"):
        collect(parse(["leak"]), str(out), {})
    (out / "leak").unlink()
    (out / "leak").symlink_to("/proc/self/environ")
    with pytest.raises(NotKept, match=r"must not be kept: it lies in /proc"):
        list(artifact_files.entries_of(str(out)))
    (out / "leak").unlink()
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef\n")
    monkeypatch.setattr(signing, "_KEYS", set())
    read_keys(str(key))
    os.link(key, out / "leak")
    with pytest.raises(NotKept, match=r"must not be kept: it is the key file"):
        list(artifact_files.entries_of(str(out)))


def test_no_secret_is_kept_in_a_checkpoint_even_below_a_folder_that_is_named(tmp_path: Path) -> None:
    volume, entry = secrets_volume(tmp_path), tmp_path / "c" / "ck"
    entry.mkdir(parents=True)
    (entry / "leak").symlink_to(volume / "token")
    with pytest.raises(CheckpointRefused, match="is not followed; put the file itself there, or name the folder"):
        local_files.list_items(str(entry))
    with pytest.raises(CheckpointRefused, match="c/ck/leak must not be kept: it is a file of a mounted Secret"):
        local_files.list_items(str(entry), [str(volume)])


def test_the_blobs_of_a_hugging_face_cache_are_kept(tmp_path: Path) -> None:
    cache = tmp_path / "models--x"
    (cache / "blobs").mkdir(parents=True)
    (cache / "blobs" / "abc").write_text("weights")
    (cache / "snapshots" / "rev" / "sub").mkdir(parents=True)
    (cache / "snapshots" / "rev" / "model").symlink_to("../../blobs/abc")
    (cache / "snapshots" / "rev" / "sub" / "model").symlink_to("../../../blobs/abc")
    for source in (cache, cache / "snapshots" / "rev", cache / "snapshots" / "rev" / "sub"):
        items = {item.relative: item for item in local_files.list_items(str(source))}
        assert all(item.is_file or item.is_directory or item.link for item in items.values())
    assert stat.S_ISREG(items["model"].mode)
