"""Google Cloud Storage and Azure Blob on their emulators: the store's promises, artifacts, a run. `make test-clouds`.

gs:// goes through gcsfs to fake-gcs-server, az:// through adlfs to Azurite. Both are programs of others that behave
like the clouds for what is asked here; they are looked for beside this Python and on the PATH.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from gpuflow.runtime.artifacts import artifact_files
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.checkpoints import transfer
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.fsspec_store import Remote
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.store import StorageError, Store
from tests.runtime.harness import free_port, run, shell
from tests.runtime.racing import one_of_many_creates
from tests.runtime.servers import BUCKET, answers, started

pytestmark = pytest.mark.clouds
ACCOUNT, KEY = "devstoreaccount1", "Z3B1Zmxvdy10ZXN0LWtleQ=="
"""An account of the emulator's, with a key that is a secret to nobody."""


def _lacking(reason: str) -> NoReturn:
    """Skip; where CI is set, as `make test-clouds` does, fail: a suite that quietly tests nothing is no proof."""
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _program(name: str) -> str:
    beside = Path(sys.executable).parent
    places = [str(beside), str(beside.parent / "node_modules" / ".bin"), os.environ.get("PATH", "")]
    found = shutil.which(name, path=os.pathsep.join(places))
    if found is None:
        _lacking(f"{name} is not installed; make test-clouds installs it")
    return found


@pytest.fixture(scope="session", params=["gs", "az"])
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an empty bucket, or container; the environment points the drivers at the emulator."""
    driver = {"gs": "gcsfs", "az": "adlfs"}[request.param]
    if importlib.util.find_spec(driver) is None:
        _lacking(f"{driver} is not installed; make test-clouds installs it")
    saved = dict(os.environ)
    folder = tmp_path_factory.mktemp(request.param)
    try:
        with _google(folder) if request.param == "gs" else _azure(folder):
            yield f"{request.param}://{BUCKET}"
    finally:
        os.environ.clear()
        os.environ.update(saved)


@contextlib.contextmanager
def _google(folder: Path) -> Iterator[None]:
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    words = [_program("fake-gcs-server"), "-scheme", "http", "-host", "127.0.0.1", "-port", str(port)]
    words += ["-backend", "memory", "-public-host", f"127.0.0.1:{port}", "-external-url", address]
    with started(words, folder) as server:
        answers(f"{address}/storage/v1/b", server)
        made = urllib.request.Request(
            f"{address}/storage/v1/b?project=test",
            json.dumps({"name": BUCKET}).encode(),
            {"Content-Type": "application/json"},
        )
        urllib.request.urlopen(made, timeout=20).read()
        os.environ.update(STORAGE_EMULATOR_HOST=address, FSSPEC_GS_TOKEN="anon")
        # Else the driver asks Google itself, over another protocol, what kind of bucket this is.
        os.environ["GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT"] = "false"
        yield


@contextlib.contextmanager
def _azure(folder: Path) -> Iterator[None]:
    port = free_port()
    address = f"http://127.0.0.1:{port}/{ACCOUNT}"
    os.environ["AZURITE_ACCOUNTS"] = f"{ACCOUNT}:{KEY}"
    words = [_program("azurite"), "--silent", "--skipApiVersionCheck", "--location", str(folder)]
    words += ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    words += [f"--{name}Port={free_port()}" for name in ("queue", "table")]
    with started(words, folder) as server:
        answers(address, server)
        text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={address};"
        os.environ["AZURE_STORAGE_CONNECTION_STRING"] = text
        from azure.storage.blob import (  # type: ignore[import-not-found,unused-ignore]  # an extra
            BlobServiceClient,
        )

        BlobServiceClient.from_connection_string(text).create_container(BUCKET)
        yield


@pytest.fixture
def store(cloud: str, request: pytest.FixtureRequest) -> Store:
    return open_store(f"{cloud}/{request.node.name.partition('[')[0]}")


def test_small_objects_are_written_read_listed_and_deleted(store: Store) -> None:
    assert store.names("a") == []
    store.write("a/b", b"1")
    store.write("a/b", b"22")
    store.write("a/c/d", b"")
    store.write("ab", b"no")
    assert store.read("a/b") == b"22"
    assert store.read("a/c/d") == b""
    assert store.names("a") == [("a/b", 2), ("a/c/d", 0)]
    store.delete(["a/b", "a/c/d", "a/never"])
    assert store.names("a") == []
    with pytest.raises(FileNotFoundError):
        store.read("a/b")
    with pytest.raises(FileNotFoundError):
        list(store.chunks("a/b"))


def test_an_object_is_created_once_and_a_probe_says_so(store: Store) -> None:
    assert store.create("claim", b"1")
    assert not store.create("claim", b"2")
    assert store.read("claim") == b"1"
    assert store.probe("probe/x") is True
    assert store.names("probe") == []


def test_of_many_that_create_one_object_one_succeeds(cloud: str) -> None:
    one_of_many_creates(lambda: open_store(f"{cloud}/race"), 6)


def test_large_objects_pass_in_parts_and_a_broken_upload_leaves_nothing(store: Store) -> None:
    whole = os.urandom((20 << 20) + 17)
    store.put("big", (whole[at : at + (1 << 20)] for at in range(0, len(whole), 1 << 20)), len(whole))
    assert b"".join(store.chunks("big")) == whole
    assert store.names("") == [("big", len(whole))]

    def broken() -> Iterator[bytes]:
        yield whole[: 18 << 20]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        store.put("half", broken(), len(whole))
    store.put("empty", [], 0)
    assert store.names("") == [("big", len(whole)), ("empty", 0)]


def test_many_objects_with_odd_names_go_at_once(store: Store) -> None:
    odd = "c/odd *[name]?"
    if store.url("").startswith("az:"):
        with pytest.raises(StorageError, match="cannot be kept"):
            store.put(odd, [b"x"], 1)
        odd = odd[:-1]
    keys = [f"c/{index}" for index in range(60)] + [odd, "c/a b+c&d=%25~", "c/ü", "c/manifest.json"]
    store.put_all((key, [b"x"], 1) for key in keys)
    assert sorted(keys) == [key for key, _ in store.names("c")]
    assert all(b"".join(store.chunks(key)) == b"x" for key in keys[-4:])
    store.delete([odd])
    assert len(store.names("c")) == len(keys) - 1
    store.delete([*keys, "c/never"])
    assert store.names("c") == []
    store.clear_uploads("c")


def test_an_artifact_goes_there_and_comes_back(store: Store, tmp_path: Path) -> None:
    source = tmp_path / "it"
    (source / "deep" / "er").mkdir(parents=True)
    (source / "none").mkdir()
    (source / "empty").touch()
    (source / "deep" / "er" / "large").write_bytes(os.urandom((17 << 20) + 3))
    (source / "deep" / "tool").write_text("#!/bin/sh\n")
    (source / "deep" / "tool").chmod(0o755)
    (source / "link").symlink_to("deep")
    ledger = Ledger(store, "p/r/s")
    assert ledger.claim(ledger.history())
    prefix = ledger.key("artifacts", "it", artifact_files.records.artifact_name(ledger.number, ledger.id))
    kept = artifact_files.Artifact(ledger, store, prefix, str(source), lambda _: None).keep()
    manifest = transfer.read_manifest(store, f"{prefix}/manifest.json")
    assert manifest.files == kept
    back = str(tmp_path / "back")
    local_files.bring_files(
        store,
        prefix,
        manifest.files,
        SharedFolder(os.path.dirname(back)),
        back,
        manifest.key,
        lambda _: None,
        single=False,
        arrived=set(),
    )
    assert artifact_files.is_present(back, artifact_files.kept_output("directory", kept, None, None))
    assert os.stat(f"{back}/deep/tool").st_mode & 0o777 == 0o755


def test_a_run_resumes_from_there_and_gives_its_artifact_again(cloud: str, tmp_path: Path) -> None:
    options = ("--store", f"{cloud}/resume", "--run-id", "r", "--keep", "1", "--output", "m:directory")
    options += ("--outputs-dir", str(tmp_path / "o"))
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; mkdir .x; echo w >.x/w; mv .x one; exit 4'
    assert run("--checkpoint-dir", tmp_path / "a", *options, *shell(save)).returncode == 4
    write = 'cat "$GPUFLOW_RESUME_FROM/w"; mkdir "$GPUFLOW_OUTPUTS/m"; echo w >"$GPUFLOW_OUTPUTS/m/w"'
    done = run("--checkpoint-dir", tmp_path / "b", *options, *shell(write))
    assert (done.returncode, done.stdout) == (0, "w\n"), done.stderr
    assert "not known to create" not in done.stderr
    (tmp_path / "o" / "m" / "w").write_text("changed")
    again = run("--checkpoint-dir", tmp_path / "c", *options, *shell("echo ran"))
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    assert (tmp_path / "o" / "m" / "w").read_text() == "w\n"


def test_no_way_around_the_driver_is_looked_for(store: Store) -> None:
    assert isinstance(store, Remote)
    assert store._direct() is None
