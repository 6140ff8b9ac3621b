"""Object stores through fsspec: S3 (s3fs), Google Cloud Storage (gcsfs), Azure (adlfs). Loaded only for such a URL."""

from __future__ import annotations

import contextlib
import threading

from gpuflow.runtime.records import LARGE
from gpuflow.runtime.store import CHUNK, StorageError, Store, is_no_manifest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

DRIVERS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_BLOCK = 16 << 20
_PARTS = 5000
_MEMORY = 256 << 20
"""What uploads at the same time may hold in memory; a driver holds a block and the one it sends."""
_BULK = 1000
"""Most keys of one request to delete; S3 takes no more."""
_GLOB = "*?[]{}"
_S3_TIMES = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 2, "mode": "standard"}}


class NoDriver(Exception):
    """The package for a kind of store is not installed: exit code 78."""


class Remote(Store):
    """A prefix in a bucket."""

    def __init__(self, url: str, filesystem: Any = None) -> None:
        scheme = url.partition("://")[0]
        self.scheme = scheme
        self.root = url.partition("://")[2].rstrip("/")
        self.fs = filesystem or _filesystem(scheme)
        self.streams = _MEMORY // (2 * _BLOCK)
        self._room = Room(_MEMORY)

    def read(self, key: str) -> bytes:
        try:
            return bytes(self._do(lambda: self.fs.cat_file(self._path(key), start=0, end=LARGE + 1)))
        except StorageError:
            # Of an object without bytes no range can be read, says S3.
            if self._do(lambda: self.fs.info(self._path(key))).get("size") == 0:
                return b""
            raise

    def write(self, key: str, data: bytes) -> None:
        self._do(lambda: self.fs.pipe_file(self._path(key), data))

    def create(self, key: str, data: bytes) -> bool:
        """Conditional where driver and server can. Where they cannot this is a plain write, which a probe finds out."""
        try:
            self._do(lambda: self.fs.pipe_file(self._path(key), data, mode="create"))
            return True
        except FileExistsError:
            return False
        except TypeError:
            self.write(key, data)
            return True

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        # Parts must be large enough that the store's limit of 10,000 is not met.
        block = max(_BLOCK, size // _PARTS)
        with self._room.take(2 * min(block, max(size, 1))):
            self._put(key, chunks, block)

    def _put(self, key: str, chunks: Iterable[bytes], block: int) -> None:
        file = self._do(lambda: self.fs.open(self._path(key), "wb", block_size=block))
        try:
            for data in chunks:
                self._do(lambda data=data: file.write(data))
        except BaseException:
            # Closing would complete the object with what there is of it.
            self._quietly(file.discard)
            file.closed = True
            raise
        self._do(file.close)

    def chunks(self, key: str) -> Iterator[bytes]:
        file = self._do(lambda: self.fs.open(self._path(key), "rb", block_size=8 * CHUNK))
        try:
            while True:
                data = self._do(lambda: file.read(8 * CHUNK))
                if not data:
                    return
                yield data
        finally:
            self._quietly(file.close)

    def size(self, key: str) -> int:
        info = self._do(lambda: self.fs.info(self._path(key)))
        if info.get("type") == "directory":
            raise FileNotFoundError(key)
        return int(info.get("size") or 0)

    def names(self, prefix: str) -> list[tuple[str, int]]:
        def find() -> dict[str, dict[str, Any]]:
            self.fs.invalidate_cache()
            found: dict[str, dict[str, Any]] = self.fs.find(self._path(prefix), detail=True)
            return found

        try:
            found = self._do(find)
        except FileNotFoundError:
            return []
        # Some stores list the folders that were; a key is a file below the prefix.
        cut, below = len(self.root) + 1, f"{prefix}/" if prefix else ""
        sizes = {name[cut:]: int(info.get("size") or 0) for name, info in found.items() if info.get("type") == "file"}
        return sorted((key, size) for key, size in sizes.items() if key.startswith(below) and not key.endswith("/"))

    def delete(self, keys: Iterable[str]) -> None:
        """Many in one request where the driver can; all manifests before anything else."""
        paths = [self._path(key) for key in sorted(keys, key=is_no_manifest)]
        first = [path for path in paths if not is_no_manifest(path)]
        for group in (first, paths[len(first) :]):
            for at in range(0, len(group), _BULK):
                self._delete_together(group[at : at + _BULK])

    def _delete_together(self, paths: list[str]) -> None:
        if len(paths) > 1 and self._speaks_s3:
            # The driver's own way says nothing of those that could not be removed.
            bucket = paths[0].partition("/")[0]
            named = [{"Key": path.partition("/")[2]} for path in paths]
            request = {"Bucket": bucket, "Delete": {"Objects": named, "Quiet": True}}
            answer = self._do(lambda: self.fs.call_s3("delete_objects", **request))
            for error in (answer or {}).get("Errors") or []:
                raise StorageError(
                    f"{error.get('Key')} could not be removed: {error.get('Message') or error.get('Code')}"
                )
            return
        # In a list drivers take some characters for patterns, and would remove what matches.
        if len(paths) > 1 and not any(letter in path for path in paths for letter in _GLOB):
            with contextlib.suppress(FileNotFoundError, NotImplementedError, TypeError):
                self._do(lambda: self.fs.rm(paths))
                return
        for path in paths:
            self._delete_one(path)

    def _delete_one(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._do(lambda: self.fs.rm_file(path))

    def clear_uploads(self, prefix: str) -> None:
        """Abort multipart uploads below a prefix: they cost money and are not listed. Only S3 has them to abort."""
        if not self._speaks_s3:
            return
        bucket, _, top = self._path(prefix).partition("/")
        more: dict[str, Any] = {}
        while True:
            page = self._do(
                lambda more=more: self.fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{top}/", **more)
            )
            for upload in page.get("Uploads") or []:
                named = {"Bucket": bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                with contextlib.suppress(FileNotFoundError):
                    self._do(lambda named=named: self.fs.call_s3("abort_multipart_upload", **named))
            if not page.get("IsTruncated"):
                return
            more = {"KeyMarker": page.get("NextKeyMarker"), "UploadIdMarker": page.get("NextUploadIdMarker")}

    def url(self, key: str) -> str:
        return f"{self.scheme}://{self._path(key)}"

    @property
    def _speaks_s3(self) -> bool:
        return hasattr(self.fs, "call_s3")

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}".rstrip("/")

    def _do(self, action: Any) -> Any:
        """Drivers raise whatever their client library raises; all but a few of those are worth another try."""
        try:
            return action()
        except (FileNotFoundError, FileExistsError, TypeError, NotImplementedError):
            raise
        except Exception as refusal:
            if _exists_already(refusal):
                raise FileExistsError(str(refusal)) from refusal
            raise StorageError(f"{type(refusal).__name__}: {refusal}") from refusal

    def _quietly(self, action: Any) -> None:
        """The error that led here is the one to tell."""
        with contextlib.suppress(Exception):
            action()


class Room:
    """So much memory for all who upload at once. One that needs more than there is goes alone."""

    def __init__(self, size: int) -> None:
        self.size, self.taken = size, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def take(self, amount: int) -> Iterator[None]:
        with self._changed:
            self._changed.wait_for(lambda: self.taken == 0 or self.taken + amount <= self.size)
            self.taken += amount
        try:
            yield
        finally:
            with self._changed:
                self.taken -= amount
                self._changed.notify_all()


def _exists_already(refusal: BaseException | None) -> bool:
    """Drivers wrap what the store said; the store's own word for it is somewhere in the chain."""
    while refusal is not None:
        text = f"{type(refusal).__name__} {refusal}"
        if any(word in text for word in ("PreconditionFailed", "ConditionNotMet", "BlobAlreadyExists", "(412)")):
            return True
        refusal = refusal.__cause__
    return False


def _filesystem(scheme: str) -> Any:
    driver = DRIVERS.get(scheme)
    if driver is None:
        raise NoDriver(f"no store speaks {scheme}://; use a directory, s3://, gs:// or az://")
    settings: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if driver == "s3fs":
        settings["config_kwargs"] = _S3_TIMES
        settings["default_fill_cache"] = False
    try:
        import fsspec

        return fsspec.filesystem(scheme, **settings)
    except ImportError:
        raise NoDriver(f"{scheme}:// needs {driver} in the image: pip install fsspec {driver}") from None
