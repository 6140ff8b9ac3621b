"""The runtime on real S3 servers: the store's three promises, restore, and the kill test."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from gpuflow.runtime.artifacts import artifact_files
from gpuflow.runtime.stores.fsspec_store import Remote
from gpuflow.runtime.stores.http_connections import Connection
from gpuflow.runtime.stores.open import open_store
from gpuflow.runtime.stores.store import Store
from proofs.supervisor_kills import torture
from tests.runtime.chaos import chaos
from tests.runtime.harness import run, shell
from tests.runtime.racing import one_of_many_creates

pytestmark = pytest.mark.s3


@pytest.fixture
def store(s3: str, request: pytest.FixtureRequest) -> Store:
    return open_store(f"{s3}/{request.node.name.partition('[')[0]}")


def test_small_objects_are_written_read_listed_and_deleted(store: Store) -> None:
    store.write("a/b", b"1")
    store.write("a/b", b"22")
    store.write("a/c/d", b"")
    assert store.read("a/b") == b"22"
    assert store.names("a") == [("a/b", 2), ("a/c/d", 0)]
    store.delete(["a/b", "a/c/d", "a/never"])
    assert store.names("a") == []
    with pytest.raises(FileNotFoundError):
        store.read("a/b")


def test_of_many_that_create_one_object_one_succeeds(s3: str) -> None:
    one_of_many_creates(lambda: open_store(f"{s3}/race"), 6)


def test_large_objects_pass_in_parts_and_a_broken_upload_leaves_nothing(store: Store) -> None:
    whole = os.urandom(40 << 20)
    store.put("big", (whole[at : at + (1 << 20)] for at in range(0, len(whole), 1 << 20)), len(whole))
    assert b"".join(store.chunks("big")) == whole

    def broken() -> object:
        yield whole[: 18 << 20]
        raise InterruptedError

    with pytest.raises(InterruptedError):
        store.put("half", broken(), len(whole))  # type: ignore[arg-type]  # a generator that breaks off
    assert [key for key, _ in store.names("")] == ["big"]


def test_the_driver_is_gone_around_and_takes_over_where_that_fails(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(store, Remote)
    direct = store._direct()
    assert direct is not None
    names = {f"d/{name}": os.urandom(size) for name, size in (("empty", 0), ("ü b+c&d=~%25?", 7), ("big", 40 << 20))}
    for key, data in names.items():
        store.put(key, (data[at : at + (1 << 20)] for at in range(0, len(data), 1 << 20)), len(data))
    assert store.names("d") == sorted((key, len(data)) for key, data in names.items())
    assert all(b"".join(store.chunks(key)) == data for key, data in names.items())
    with pytest.raises(FileNotFoundError):
        list(store.chunks("d/never"))

    def fail(*_: object) -> None:
        raise ConnectionResetError("cut")

    monkeypatch.setattr(direct._connections, "ask", fail)
    for key, data in names.items():
        store.put(f"e/{key}", [data], len(data))
    assert all(b"".join(store.chunks(f"e/{key}")) == data for key, data in names.items())
    assert [size for _, size in store.names("e")] == [size for _, size in store.names("d")]


def test_a_download_that_breaks_off_goes_on_where_it_was(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.urandom(3 << 20)
    store.put("broken", [whole], len(whole))
    pieces, real = [0], Connection.receive

    def receive(self: Connection, most: int) -> bytes:
        pieces[0] += 1
        return b"" if pieces[0] == 3 else real(self, most)

    monkeypatch.setattr(Connection, "receive", receive)
    assert b"".join(store.chunks("broken")) == whole
    assert pieces[0] == 3


def test_a_step_resumes_on_another_machine(s3: str, tmp_path: Path) -> None:
    options = ("--store", f"{s3}/resume", "--run-id", "r", "--keep", "1")
    save = 'cd "$GPUFLOW_CHECKPOINT_DIR"; mkdir .x; echo w >.x/w; mv .x one; exit 4'
    assert run("--checkpoint-dir", tmp_path / "a", *options, *shell(save)).returncode == 4
    done = run("--checkpoint-dir", tmp_path / "b", *options, *shell('cat "$GPUFLOW_RESUME_FROM/w"'))
    assert (done.returncode, done.stdout) == (0, "w\n")


def test_over_a_bad_network_training_is_kept_and_restored_whole(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = int(os.environ["AWS_ENDPOINT_URL"].rpartition(":")[2])
    with chaos(port, seed=3) as network:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{network.port}")
        report = torture(tmp_path, f"{s3}/chaos", kills=6, steps=200, seed=8)
    assert network.spoiled > 0
    assert report.digest == report.expected
    assert report.corrupt == []
    assert report.false_green == []


def test_killed_at_random_moments_it_ends_as_if_undisturbed(s3: str, tmp_path: Path) -> None:
    report = torture(
        tmp_path,
        f"{s3}/killed",
        kills=int(os.environ.get("KILLS", "12")),
        steps=int(os.environ.get("STEPS", "400")),
        seed=5,
    )
    assert report.digest == report.expected
    assert report.corrupt == []
    assert report.false_green == []


def test_many_objects_go_at_once_and_what_a_killed_upload_left_is_cleared(store: Store) -> None:
    keys = [f"c/{index}" for index in range(60)] + ["c/odd *[name]?", "c/manifest.json"]
    store.put_all((key, [b"x"], 1) for key in keys)
    assert sorted(keys) == [key for key, _ in store.names("c")]
    store.delete([*keys, "c/never"])
    assert store.names("c") == []
    driver, (bucket, _, own) = store.fs, store.root.partition("/")  # type: ignore[attr-defined]  # a remote store
    for key in ("mine/checkpoints/x", "other/x"):
        file = driver.open(f"{store.root}/{key}", "wb", block_size=5 << 20)  # type: ignore[attr-defined]  # as above
        file.write(bytes(12 << 20))
        file.closed = True  # as if it had been killed
    store.clear_uploads("mine/checkpoints")
    # Others that were given up may be there from tests that ran before.
    left = driver.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{own}/").get("Uploads") or []
    assert [upload["Key"].rpartition("/")[0].rpartition("/")[2] for upload in left] == ["other"]
    store.clear_uploads("other")


def test_artifacts_and_budgets_are_kept_on_a_real_server(s3: str, tmp_path: Path) -> None:
    options = (
        "--state",
        f"{s3}/artifacts",
        "--run-id",
        "r",
        "--output",
        "m:directory",
        "--outputs-dir",
        tmp_path / "o",
    )
    write = 'mkdir "$GPUFLOW_OUTPUTS/m"; echo w >"$GPUFLOW_OUTPUTS/m/w"'
    assert run(*options, "--failures", "3", *shell(f"{write}; exit 4")).returncode == 4
    done = run(*options, "--failures", "3", *shell(write))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o" / "m.uri").read_text().startswith(f"{s3}/artifacts/default/r/default/artifacts/m/000002-")
    (tmp_path / "o" / "m" / "w").write_text("changed")
    again = run(*options, *shell("echo ran"))
    assert (again.returncode, again.stdout) == (0, ""), again.stderr
    assert (tmp_path / "o" / "m" / "w").read_text() == "w\n"
    assert "not known to create" not in done.stderr


def test_an_artifact_goes_from_step_to_step_over_a_real_server(s3: str, tmp_path: Path) -> None:
    root = ("--artifacts", f"{s3}/root", "--run-id", "r")
    write = 'cd "$GPUFLOW_OUTPUTS"; mkdir -p m/e; echo w >m/w; chmod 750 m/w; ln -s e m/l; : >m/none; echo f >f'
    outputs = ("--output", "m:directory", "--output", "f:file", "--outputs-dir", tmp_path / "o")
    done = run(*root, "--step", "train", *outputs, *shell(write))
    assert done.returncode == 0, done.stderr
    (tmp_path / "in").mkdir()
    uris = [(tmp_path / "o" / f"{name}.uri").read_text() for name in ("m", "f")]
    fan_in = json.dumps([uris[0], None, uris[1]])
    words = ("--input", f"{tmp_path}/in={uris[0]}", "--input", f"{tmp_path}/all={fan_in}")
    read = run(*root, "--step", "eval", *words, *shell(f"cd {tmp_path}/in; stat -c '%a %n' *; ls -A ../all"))
    assert (read.returncode, read.stdout.split()) == (
        0,
        ["755", "e", "777", "l", "644", "none", "750", "w", "0", "2"],
    ), read.stderr
    assert (tmp_path / "all" / "2").read_text() == "f\n"
    again = run(*root, "--step", "eval", *words, *shell("true"))
    assert again.stderr.count("is there already") == 3, again.stderr


def test_data_from_outside_comes_from_a_real_server(s3: str, tmp_path: Path) -> None:
    store = open_store(f"{s3}/outside")
    for key in ("data/a", "data/d/odd name", "data2/never"):
        store.write(key, key.encode())
    (tmp_path / "same" / "d").mkdir(parents=True)
    (tmp_path / "same" / "a").write_text("data/a")
    (tmp_path / "same" / "d" / "odd name").write_text("data/d/odd name")
    digest = artifact_files.digest_of_path(str(tmp_path / "same"))
    whole, one = tmp_path / "whole", tmp_path / "one"
    words = ["--input", f"{whole}={s3}/outside/data/", "--input-digest", f"{whole}=sha256:{digest}"]
    words += ["--input", f"{one}={s3}/outside/data/a", "--input-type", f"{one}=file"]
    done = run(*words, *shell(f"cd {whole}; find . -type f | sort; cat {one}"))
    assert (done.returncode, done.stdout) == (0, "./a\n./d/odd name\ndata/a"), done.stderr
    missing = ("--storage-timeout", "10s")
    no_type = run(*missing, "--input", f"{tmp_path}/x={s3}/outside/data/a", *shell("echo ran"))
    assert (no_type.returncode, no_type.stdout) == (78, "")
    assert "--input-type PATH=file" in no_type.stderr
    nothing = run(*missing, "--input", f"{tmp_path}/x={s3}/outside/nothing", *shell("echo ran"))
    assert (nothing.returncode, nothing.stdout) == (78, "")
    assert f"there is nothing at {s3}/outside/nothing" in nothing.stderr
