"""Object stores through fsspec: S3 (s3fs), Google Cloud Storage (gcsfs), Azure (adlfs). Loaded only for such a URL."""

from __future__ import annotations

import contextlib

from gpuflow.runtime.store import CHUNK, StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any

DRIVERS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_BLOCK = 16 << 20
_PARTS = 5000
_S3_TIMES = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 2, "mode": "standard"}}


class NoDriver(Exception):
    """The package for a kind of store is not installed: exit code 78."""


class Remote(Store):
    """A prefix in a bucket."""

    def __init__(self, url: str, filesystem: Any = None) -> None:
        scheme = url.partition("://")[0]
        self.root = url.partition("://")[2].rstrip("/")
        self.fs = filesystem or _filesystem(scheme)

    def read(self, key: str) -> bytes:
        return bytes(self._do(lambda: self.fs.cat_file(self._path(key))))

    def write(self, key: str, data: bytes) -> None:
        self._do(lambda: self.fs.pipe_file(self._path(key), data))

    def create(self, key: str, data: bytes) -> bool:
        """Conditional where the store can; elsewhere the last writer wins, and the caller reads back who that was."""
        try:
            self._do(lambda: self.fs.pipe_file(self._path(key), data, mode="create"))
            return True
        except FileExistsError:
            return False
        except TypeError:
            if self._do(lambda: self.fs.exists(self._path(key))):
                return False
            self.write(key, data)
            return True

    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        # Parts must be large enough that the store's limit of 10,000 is not met.
        file = self._do(lambda: self.fs.open(self._path(key), "wb", block_size=max(_BLOCK, size // _PARTS)))
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
        for key in keys:
            try:
                self._do(lambda key=key: self.fs.rm_file(self._path(key)))
            except FileNotFoundError:
                continue

    def _path(self, key: str) -> str:
        return f"{self.root}/{key}".rstrip("/")

    def _do(self, action: Any) -> Any:
        """Drivers raise whatever their client library raises; all but a few of those are worth another try."""
        try:
            return action()
        except (FileNotFoundError, FileExistsError, TypeError):
            raise
        except Exception as refusal:
            if _exists_already(refusal):
                raise FileExistsError(str(refusal)) from refusal
            raise StorageError(f"{type(refusal).__name__}: {refusal}") from refusal

    def _quietly(self, action: Any) -> None:
        """The error that led here is the one to tell."""
        with contextlib.suppress(Exception):
            action()


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
