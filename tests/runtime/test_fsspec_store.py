"""Object stores through a driver: what the driver or the server cannot do is found out, not assumed."""

from __future__ import annotations

import errno
import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuflow.runtime.artifacts.artifact_files import Artifact, NotKept
from gpuflow.runtime.checkpoints.transfer import Upload as CheckpointUpload
from gpuflow.runtime.checkpoints.transfer import no_throttle
from gpuflow.runtime.state import attempts
from gpuflow.runtime.state.ledger import Ledger, OwnershipLost
from gpuflow.runtime.stores import fsspec_store as remotes
from gpuflow.runtime.stores.fsspec_store import Remote
from gpuflow.runtime.stores.local_files import CheckpointRefused, list_items
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import BadName, Refusal, StorageError


class Bucket:
    """A driver as fsspec's are, over a dict: it ignores `mode` as s3fs did, or a server If-None-Match."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls: list[tuple[str, int]] = []

    def invalidate_cache(self) -> None: ...

    def cat_file(self, path: str, start: int | None = None, end: int | None = None) -> bytes:
        if path not in self.objects:
            raise FileNotFoundError(path)
        return self.objects[path][start:end]

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        self.objects[path] = value

    def find(self, path: str, detail: bool) -> dict[str, dict[str, Any]]:
        return {
            name: {"size": len(data), "type": "file"} for name, data in self.objects.items() if name.startswith(path)
        }

    def rm_file(self, path: str) -> None:
        self.calls.append(("rm_file", 1))
        self.cat_file(path)
        del self.objects[path]

    def rm(self, paths: list[str]) -> None:
        self.calls.append(("rm", len(paths)))
        for path in paths:
            self.cat_file(path)
            del self.objects[path]

    def open(self, path: str, mode: str, block_size: int) -> Any:
        return Upload(self, path) if mode == "wb" else io.BytesIO(self.cat_file(path))


class Upload(io.BytesIO):
    def __init__(self, bucket: Bucket, path: str) -> None:
        super().__init__()
        self.bucket, self.path = bucket, path

    def close(self) -> None:
        if not self.closed:
            self.bucket.objects[self.path] = self.getvalue()
        super().close()


class Honest(Bucket):
    """A driver and a server that create conditionally."""

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **_: Any) -> None:
        if mode == "create" and path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = value


class Older(Bucket):
    """A driver from before there was a `mode`."""

    def pipe_file(self, path: str, value: bytes) -> None:  # type: ignore[override]  # on purpose
        self.objects[path] = value


class Amazon(Honest):
    """A driver that passes the server's own calls on."""

    def __init__(self) -> None:
        super().__init__()
        self.uploads = [("b/p/r/s/checkpoints/x", "1"), ("b/other/checkpoints/y", "2"), ("b/p/r/s/checkpoints/z", "3")]
        self.locked: set[str] = set()

    def call_s3(self, method: str, **named: Any) -> dict[str, Any]:
        bucket = named["Bucket"]
        if method == "delete_objects":
            keys = [item["Key"] for item in named["Delete"]["Objects"]]
            self.calls.append((method, len(keys)))
            for key in keys:
                if key not in self.locked:
                    self.objects.pop(f"{bucket}/{key}", None)
            return {"Errors": [{"Key": key, "Code": "AccessDenied"} for key in keys if key in self.locked]}
        if method == "list_multipart_uploads":
            # One to a page: the second is asked for with the markers of the first.
            found = [
                item
                for item in self.uploads
                if item[0].startswith(f"{bucket}/{named['Prefix']}") and item[1] > named.get("UploadIdMarker", "")
            ]
            page = [{"Key": path.partition("/")[2], "UploadId": number} for path, number in found[:1]]
            if len(found) < 2:
                return {"Uploads": page}
            key, number = page[0]["Key"], page[0]["UploadId"]
            return {"Uploads": page, "IsTruncated": True, "NextKeyMarker": key, "NextUploadIdMarker": number}
        assert method == "abort_multipart_upload"
        self.uploads.remove((f"{bucket}/{named['Key']}", named["UploadId"]))
        return {}


def remote(bucket: Bucket, url: str = "s3://b") -> Remote:
    return Remote(url, bucket)


@pytest.mark.parametrize("kind", [Bucket, Older])
def test_a_driver_or_server_that_does_not_create_conditionally_is_found_out(
    kind: type[Bucket], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SETTLE", 0.0)
    bucket, said = kind(), list[str]()
    one = Ledger(remote(bucket), "p/r/s", say=said.append)
    two = Ledger(remote(bucket), "p/r/s", say=said.append)
    early = two.history()
    assert one.claim(one.history())
    assert not two.claim(early)
    assert two.claim(two.history())
    assert (one.number, two.number) == (1, 2)
    assert len(said) == 2  # each of the two supervisors once
    with pytest.raises(OwnershipLost):
        one.assert_owner()


def test_a_store_that_creates_conditionally_is_used_as_such() -> None:
    bucket = Honest()
    ledger = Ledger(remote(bucket), "p/r/s")
    assert ledger.probe()
    assert bucket.objects == {}


def test_a_thousand_keys_go_in_one_request_manifests_before_all_others() -> None:
    bucket = Amazon()
    store = remote(bucket)
    keys = [f"c/{index}" for index in range(1500)] + ["c/manifest.json", "d/manifest.json"]
    for key in keys:
        store.write(key, b"x")
    store.delete(keys)
    assert bucket.objects == {}
    assert bucket.calls == [("delete_objects", 2), ("delete_objects", 1000), ("delete_objects", 500)]


def test_what_a_server_refuses_to_delete_is_an_error() -> None:
    bucket = Amazon()
    store = remote(bucket)
    store.write("c/a", b"x")
    bucket.locked = {"c/a"}
    with pytest.raises(StorageError, match=r"c/a could not be removed: AccessDenied"):
        store.delete(["c/a", "c/b"])


def test_other_drivers_delete_a_list_and_one_by_one_where_some_are_gone() -> None:
    bucket = Honest()
    store = remote(bucket, "gs://b")
    for index in range(5):
        store.write(f"c/{index}", b"x")
    store.delete([f"c/{index}" for index in range(4)])
    assert bucket.calls == [("rm", 4)]
    store.delete(["c/never", "c/4"])
    assert bucket.objects == {}


def test_a_name_that_a_driver_takes_for_a_pattern_is_deleted_alone() -> None:
    bucket = Honest()
    store = remote(bucket, "gs://b")
    for key in ("c/*", "c/kept", "c/[a]"):
        store.write(key, b"x")
    store.delete(["c/*", "c/[a]"])
    assert [kind for kind, _ in bucket.calls] == ["rm_file", "rm_file"]
    assert [key for key, _ in store.names("")] == ["c/kept"]


def test_multipart_uploads_of_killed_attempts_are_aborted_below_our_own_prefix_only() -> None:
    bucket = Amazon()
    ledger = Ledger(remote(bucket), "p/r/s")
    assert ledger.claim(ledger.history())
    ledger.tidy()
    assert bucket.uploads == [("b/other/checkpoints/y", "2")]


def test_an_account_that_may_not_look_for_leftovers_is_told_what_else_removes_them() -> None:
    class Strict(Amazon):
        def call_s3(self, method: str, **named: Any) -> dict[str, Any]:
            raise PermissionError("Access Denied")

    said: list[str] = []
    ledger = Ledger(remote(Strict()), "p/r/s", say=said.append)
    assert ledger.claim(ledger.history())
    ledger.tidy()
    assert len(said) == 1
    assert "lifecycle rule" in said[0]


def test_uploads_at_once_stay_within_a_bound_of_memory() -> None:
    store = remote(Honest())
    assert 2 <= store.streams <= 16
    store.put_all((f"k{index}", [b"x" * index], index) for index in range(40))
    assert dict(store.names("")) == {f"k{index}": index for index in range(40)}


def test_uploads_whose_parts_are_huge_go_one_after_the_other() -> None:
    busy, most = [0], [0]

    class Watching(Honest):
        def open(self, path: str, mode: str, block_size: int) -> Any:
            assert block_size >= (1 << 40) // 10_000 or path >= "b/l"
            return Upload(self, path)

    def chunks() -> Iterator[bytes]:
        busy[0] += 1
        most[0] = max(most[0], busy[0])
        time.sleep(0.01)
        yield b"x"
        busy[0] -= 1

    store = remote(Watching())
    store.put_all((f"k{index}", chunks(), 1 << 40) for index in range(4))
    assert most[0] == 1
    store.put_all((f"l{index}", iter([b"x"]), 10) for index in range(4))


def test_the_url_of_an_object_is_what_others_use() -> None:
    assert Remote("s3://b/top/", Honest()).url("a/b") == "s3://b/top/a/b"


def test_a_name_that_azures_driver_would_cut_is_refused_and_nothing_is_written() -> None:
    bucket = Honest()
    with pytest.raises(StorageError, match=r"'a\?' cannot be kept at az://"):
        remote(bucket, "az://b").put("a?", [b"x"], 1)
    remote(bucket, "gs://b").put("a?", [b"x"], 1)
    assert list(bucket.objects) == ["b/a?"]


def test_a_server_that_is_not_understood_is_left_to_the_driver() -> None:
    """A driver without what the way around it is learned from: every request goes through it."""
    store = remote(Amazon())
    assert store._direct() is None
    store.put("k", [b"ab", b"c"], 3)
    assert b"".join(store.chunks("k")) == b"abc"


# -- what is refused for good


@pytest.mark.parametrize(("scheme", "longest"), [("s3", "é" * 511), ("gs", "é" * 511), ("az", "é" * 1022)])
def test_a_name_that_no_store_takes_is_refused_before_it_is_sent(scheme: str, longest: str) -> None:
    bucket = Honest()
    store = remote(bucket, f"{scheme}://b/p")
    store.write(longest, b"x")
    with pytest.raises(BadName, match=r"is a name of 102[5-9]"):
        persist(lambda: store.write(f"{longest}ab", b"x"), Limit(3600))
    assert len(bucket.objects) == 1


def deep(tmp_path: Path) -> Path:
    """A folder with a file that lies too deep for a store."""
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "a").write_text("x")
    below = tmp_path / "m" / "/".join(["d" * 200] * 6)
    below.mkdir(parents=True)
    (below / "file").write_text("x")
    return tmp_path / "m"


def test_an_output_that_lies_too_deep_is_named_before_anything_of_it_is_sent(tmp_path: Path) -> None:
    bucket = Honest()
    ledger = Ledger(remote(Honest()), "p/r/s")
    ledger.claim(ledger.history())
    with pytest.raises(NotKept, match=r"/file: s3://b/one/files/.* is a name of 12\d\d bytes"):
        Artifact(ledger, remote(bucket), "one", str(deep(tmp_path)), lambda _: None).keep()
    assert not bucket.objects


def test_a_checkpoint_that_lies_too_deep_is_refused_before_anything_of_it_is_sent(tmp_path: Path) -> None:
    bucket = Honest()
    upload = CheckpointUpload("one", list_items(str(deep(tmp_path))))
    with pytest.raises(CheckpointRefused, match="is a name of"):
        upload.send(remote(bucket), no_throttle(lambda: True))
    assert not bucket.objects


class Refusing(Honest):
    """A server that says no in its own words."""

    def __init__(self, refusal: Exception) -> None:
        super().__init__()
        self.refusal, self.tries = refusal, 0

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:  # type: ignore[override]  # never done
        self.tries += 1
        raise self.refusal


@pytest.mark.parametrize(
    ("refusal", "kind", "words"),
    [
        (
            OSError(errno.ENAMETOOLONG, "KeyTooLongError"),
            BadName,
            "s3://b/k: the store says that this name is too long",
        ),
        (FileNotFoundError("The specified bucket does not exist"), Refusal, "there is no bucket s3://b; make it"),
    ],
)
def test_what_a_server_refuses_for_good_is_asked_once(refusal: Exception, kind: type[Exception], words: str) -> None:
    bucket = Refusing(refusal)
    with pytest.raises(kind, match=words):
        persist(lambda: remote(bucket).write("k", b"x"), Limit(3600))
    assert bucket.tries == 1


def test_a_scheme_in_capitals_is_the_same_scheme() -> None:
    assert Remote("S3://b/p", Honest()).url("k") == "s3://b/p/k"


# -- large objects


class Parts(Amazon):
    """Counts the parts that it holds at a time; the first time it is asked for one it has no time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = self.refused = 0
        self.lock = threading.Lock()
        self.parts: dict[int, bytes] = {}

    def call_s3(self, method: str, **named: Any) -> dict[str, Any]:
        if method == "create_multipart_upload":
            return {"UploadId": "u"}
        if method == "complete_multipart_upload":
            self.objects["b/k"] = b"".join(self.parts[part["PartNumber"]] for part in named["MultipartUpload"]["Parts"])
            return {}
        assert method == "upload_part"
        if not self.refused:
            self.refused = 1
            slow = OSError("Please reduce your request rate.")
            slow.response = {"Error": {"Code": "SlowDown"}, "ResponseMetadata": {"HTTPStatusCode": 503}}  # type: ignore[attr-defined]
            raise slow
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self.parts[named["PartNumber"]] = named["Body"]
        time.sleep(0.01)
        with self.lock:
            self.now -= 1
        return {"ETag": "e"}


@pytest.mark.parametrize(("room", "most"), [((2 << 20) - 1, 1), ((4 << 20) - 1, 2), (1 << 30, 3)])
def test_of_an_object_whose_parts_are_huge_fewer_travel_at_a_time(
    room: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remotes, "_WHOLE", 1000)
    monkeypatch.setattr(remotes, "_ONE", room)
    bucket, data = Parts(), bytes(range(256)) * (6 << 12)
    store = remote(bucket)
    store.put("k", [data[at : at + 300_000] for at in range(0, len(data), 300_000)], len(data))
    assert bucket.objects["b/k"] == data
    assert bucket.most <= most
    assert bucket.refused == 1
