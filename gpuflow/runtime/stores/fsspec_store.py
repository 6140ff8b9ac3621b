"""Object stores through fsspec: S3 (s3fs), Google Cloud Storage (gcsfs), Azure (adlfs). Loaded only for such a URL."""

from __future__ import annotations

import contextlib
import itertools
import threading
import time

from gpuflow.runtime.base.records import LARGE
from gpuflow.runtime.stores import storage_timeout, transfer_pool
from gpuflow.runtime.stores.s3_client import LATE_ERRORS, NotDone, learn_direct
from gpuflow.runtime.stores.storage_timeout import ConnectionLate, stream_with_timeout, with_timeout
from gpuflow.runtime.stores.store import (
    CHUNK,
    BadName,
    Refusal,
    StorageError,
    Store,
    in_parallel,
    is_no_manifest,
    run_ahead,
)
from gpuflow.runtime.stores.transfer_pool import Order, Workers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from gpuflow.runtime.stores.s3_client import DirectClient

DRIVERS = {"s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}
_BLOCK = 8 << 20
"""What is sent and fetched at once of a large object, at least."""
_WHOLE = 16 << 20
"""Objects up to this size travel in one piece."""
_PARTS = 9000
_AHEAD = 3
"""So many blocks of one large object travel at the same time, where they are not too large."""
_MEMORY = 104 << 20
"""What transfers at the same time may hold; a driver holds a block and the one it sends."""
_ONE = 200 << 20
"""What one object may hold at most; only one of more than 1.7 TiB has a single block that is larger."""
_NAME = 1024
"""The longest name of an object: in bytes at S3 and Google, in characters at Azure."""
_STREAMS, _DIRECT_STREAMS = 8, 16
_BULK = 1000
"""Most keys of one request to delete; S3 takes no more."""
_GLOB = "*?[]{}"
_M_MMAP_THRESHOLD = -3
"""As glibc's malloc.h has it."""
_TAGS = ("ETag", "ChecksumCRC32")
"""What a server says of a part, and wants to hear again."""
_READ, _CONNECT = 30.0, 5.0
"""Seconds without a byte after which a connection is given up; less where storage may fail for a short time only."""
_PAUSES = (0.1, 0.3, 0.9)
"""Seconds before a request is made again that S3 answered with "not now"."""
_NOT_NOW = ("SlowDown", "Throttling", "RequestTimeout", "InternalError", "ServiceUnavailable", "OperationAborted")
_NO_BUCKET = ("NoSuchBucket", "specified bucket does not exist", "ContainerNotFound", "specified container does not")


class NoDriver(Exception):
    """The package for a kind of store is not installed: exit code 78."""


class Remote(Store):
    """A prefix in a bucket."""

    batch = 20_000

    def __init__(self, url: str, filesystem: Any = None) -> None:
        scheme = url.partition("://")[0].lower()
        self.scheme = scheme
        self.root = url.partition("://")[2].rstrip("/")
        self.fs = filesystem or _filesystem(scheme)
        self._room = MemoryBudget(_MEMORY)
        self._lock = threading.Lock()
        self._way: DirectClient | None = None
        self._asked = False

    @property
    def streams(self) -> int:  # type: ignore[override]  # found out when it is needed
        """How many transfers at once are worth it."""
        return _STREAMS if self._learn_direct() is None else _DIRECT_STREAMS

    @with_timeout
    def _learn_direct(self) -> DirectClient | None:
        return self._direct()

    def _direct(self) -> DirectClient | None:
        """The way around the driver, where there is one."""
        with self._lock:
            if not self._asked:
                self._way, self._asked = learn_direct(self.fs, self.root.partition("/")[0]), True
                if self._way is not None:
                    _give_memory_back()
        return self._way

    @with_timeout
    def workers(self, files: int, top: int | None = None) -> Workers | None:
        processes = transfer_pool.count() if files >= transfer_pool.MANY else 0
        if (direct := self._direct() if processes else None) is None:
            return None
        below = self.root.partition("/")[2]
        return Workers(direct, f"{below}/" if below else "", processes, top)

    @with_timeout
    def put_all(self, items: Iterable[tuple[str, Iterable[bytes], int]]) -> None:
        rest = iter(items)
        first = list(itertools.islice(rest, transfer_pool.MANY))
        workers = self.workers(len(first))
        if workers is None:
            super().put_all(itertools.chain(first, rest))
            return
        with contextlib.closing(workers.move(_order(item) for item in itertools.chain(first, rest))) as left:
            in_parallel(lambda item: self.put(*item), left, self.streams)

    @with_timeout
    def read(self, key: str) -> bytes:
        try:
            return bytes(self._call_driver(lambda: self.fs.cat_file(self._path(key), start=0, end=LARGE + 1)))
        except StorageError:
            # Of an object without bytes no range can be read, says S3.
            if self._call_driver(lambda: self.fs.info(self._path(key))).get("size") == 0:
                return b""
            raise

    @with_timeout
    def write(self, key: str, data: bytes) -> None:
        with self._write_errors(key):
            self._call_driver(lambda: self.fs.pipe_file(self._path(key), data))

    @with_timeout
    def create(self, key: str, data: bytes) -> bool:
        """Conditional where driver and server can. Where they cannot this is a plain write, which a probe finds out."""
        try:
            with self._write_errors(key):
                self._call_driver(lambda: self.fs.pipe_file(self._path(key), data, mode="create"))
            return True
        except FileExistsError:
            return False
        except TypeError:
            self.write(key, data)
            return True

    @with_timeout
    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        # Parts must be large enough that the store's limit of 10,000 is not met; some stores want them even.
        even = -(-size // _PARTS >> 20) << 20
        with self._write_errors(key):
            if not self._speaks_s3:
                block = max(_BLOCK, even)
                with self._room.take(2 * min(block, max(size, 1))):
                    self._put(key, chunks, block)
                return
            block = max(_WHOLE, even)
            ahead_of_it = max(0, min(_AHEAD, _ONE // block - 1))
            with self._room.take(min((1 + ahead_of_it) * block, max(size, 1))):
                self._put_s3(key, chunks, block, ahead_of_it)

    def _put(self, key: str, chunks: Iterable[bytes], block: int) -> None:
        file = self._call_driver(lambda: self.fs.open(self._path(key), "wb", block_size=block))
        try:
            for data in chunks:
                self._call_driver(lambda data=data: file.write(data))
        except BaseException:
            # Closing would complete the object with what there is of it.
            self._suppress_errors(file.discard)
            file.closed = True
            raise
        self._call_driver(file.close)

    def _put_s3(self, key: str, chunks: Iterable[bytes], block: int, width: int) -> None:
        blocks = _blocks(chunks, block)
        first = next(blocks, [])
        second = next(blocks, None)
        bucket, _, name = self._path(key).partition("/")
        if second is not None:
            self._put_parts({"Bucket": bucket, "Key": name}, _chain_blocks([first, second], blocks), width)
            return
        # Who reads a file for its hash need not have it hashed again.
        sha256 = getattr(chunks, "sha256", None) or None
        self._directly(
            lambda direct: direct.put(name, first, sha256),
            lambda: self._call_driver(lambda: self.fs.pipe_file(self._path(key), b"".join(first))),
        )

    def _put_parts(self, place: dict[str, str], blocks: Iterator[list[bytes]], width: int) -> None:
        upload = self._call_driver(lambda: self.fs.call_s3("create_multipart_upload", **place))["UploadId"]

        def send(number: int, block: list[bytes]) -> Callable[[], dict[str, Any]]:
            def by_driver() -> dict[str, Any]:
                named = {**place, "UploadId": upload, "PartNumber": number, "Body": b"".join(block)}
                answer = self._call_driver(lambda: self.fs.call_s3("upload_part", **named))
                return {"PartNumber": number, **{name: answer[name] for name in _TAGS if answer.get(name)}}

            def send_part() -> dict[str, Any]:
                part: dict[str, Any] = self._directly(
                    lambda direct: direct.part(place["Key"], upload, number, block), by_driver
                )
                return part

            return send_part

        try:
            actions = (send(number, block) for number, block in enumerate(blocks, 1))
            # One block is read while the others are sent, where there is memory for more than one.
            parts = list(run_ahead(actions, width)) if width else [action() for action in actions]
            whole = {"MultipartUpload": {"Parts": parts}, "UploadId": upload}
            self._call_driver(lambda: self.fs.call_s3("complete_multipart_upload", **place, **whole))
        except BaseException:
            self._suppress_errors(lambda: self.fs.call_s3("abort_multipart_upload", UploadId=upload, **place))
            raise

    def _directly(self, action: Callable[[DirectClient], Any], by_driver: Callable[[], Any]) -> Any:
        """Around the driver, and by it where that is not done. What did not answer us is not asked by it again."""
        turn, direct = storage_timeout.current(), self._direct()
        if turn is not None:
            turn.check()
        if direct is not None:
            try:
                found = action(direct)
                if turn is not None:
                    turn.note_answer()
                return found
            except NotDone as refusal:
                if refusal.silent:
                    where = (turn.where if turn is not None else "") or self.url("")
                    raise ConnectionLate(f"{where}: {refusal}") from refusal
        return by_driver()

    @stream_with_timeout
    def chunks(self, key: str) -> Iterator[bytes]:
        direct, count = self._direct(), 0
        tags: list[str | None] = []
        if direct is not None:
            try:
                for data in self._fetch_blocks(direct, self._path(key).partition("/")[2], tags):
                    count += len(data)
                    yield data
                return
            except (NotDone, OSError) as refusal:
                # Else the driver goes on from there, or says why not.
                if getattr(refusal, "silent", isinstance(refusal, LATE_ERRORS)):
                    raise ConnectionLate(f"{self.url(key)}: no answer in time") from refusal
        yield from self._driver_chunks(key, count, tags)

    def _driver_chunks(self, key: str, begin: int, tags: list[str | None]) -> Iterator[bytes]:
        file = self._call_driver(lambda: self.fs.open(self._path(key), "rb", block_size=8 * CHUNK))
        try:
            if begin:
                if (getattr(file, "details", None) or {}).get("ETag") not in tags:
                    raise StorageError(f"{self.url(key)} was replaced while it was read")
                self._call_driver(lambda: file.seek(begin))
            while True:
                if not (data := self._call_driver(lambda: file.read(8 * CHUNK))):
                    return
                yield data
        finally:
            self._suppress_errors(file.close)

    @with_timeout
    def size(self, key: str) -> int:
        try:
            info = self._call_driver(lambda: self.fs.info(self._path(key)))
        except FileNotFoundError:
            if self._speaks_s3:
                # Of an object that is not there S3 says no more; of a bucket it does.
                bucket, _, name = self._path(key).partition("/")
                self._call_driver(lambda: self.fs.call_s3("list_objects_v2", Bucket=bucket, Prefix=name, MaxKeys=1))
            raise
        if info.get("type") == "directory":
            raise FileNotFoundError(key)
        return int(info.get("size") or 0)

    def _fetch_blocks(self, direct: DirectClient, name: str, tags: list[str | None]) -> Iterator[bytes]:
        """The first block tells how long it is; of a long one several blocks come at once, where there is room. `tags`
        hears which object it is, as the server marks it."""
        answer, size, tag = direct.get(name, 0, _WHOLE)
        tags.append(tag)
        yield from answer.pieces()
        if answer.length == size:
            return

        def fetch(begin: int) -> Callable[[], bytes]:
            end = min(size, begin + _BLOCK)
            return lambda: direct.get(name, begin, end, tag)[0].read(_BLOCK)

        with self._room.take_if_free((1 + _AHEAD) * _BLOCK) as free:
            if free:
                yield from run_ahead((fetch(begin) for begin in range(_WHOLE, size, _BLOCK)), _AHEAD)
                return
        yield from direct.get(name, _WHOLE, size, tag)[0].pieces()

    @with_timeout
    def names(self, prefix: str) -> list[tuple[str, int]]:
        def find() -> dict[str, dict[str, Any]]:
            self.fs.invalidate_cache()
            found: dict[str, dict[str, Any]] = self.fs.find(self._path(prefix), detail=True)
            return found

        return list(
            self._directly(
                lambda direct: self._list_directly(direct, prefix), lambda: self._list_by_driver(prefix, find)
            )
        )

    def _list_by_driver(self, prefix: str, find: Callable[[], dict[str, dict[str, Any]]]) -> list[tuple[str, int]]:
        try:
            found = self._call_driver(find)
        except FileNotFoundError:
            return []
        # Some stores list the folders that were; a key is a file below the prefix.
        cut, below = len(self.root) + 1, f"{prefix}/" if prefix else ""
        sizes = {name[cut:]: int(info.get("size") or 0) for name, info in found.items() if info.get("type") == "file"}
        return sorted((key, size) for key, size in sizes.items() if key.startswith(below) and not key.endswith("/"))

    def _list_directly(self, direct: DirectClient, prefix: str) -> list[tuple[str, int]]:
        bucket, _, below = f"{self._path(prefix)}/".partition("/")
        cut = len(self.root) - len(bucket)
        return sorted((key[cut:], size) for key, size in direct.names(below) if not key.endswith("/"))

    @with_timeout
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
            answer = self._call_driver(lambda: self.fs.call_s3("delete_objects", **request))
            for error in (answer or {}).get("Errors") or []:
                raise StorageError(
                    f"{error.get('Key')} could not be removed: {error.get('Message') or error.get('Code')}"
                )
            return
        # In a list drivers take some characters for patterns, and would remove what matches.
        if len(paths) > 1 and not any(letter in path for path in paths for letter in _GLOB):
            with contextlib.suppress(FileNotFoundError, NotImplementedError, TypeError):
                self._call_driver(lambda: self.fs.rm(paths))
                return
        for path in paths:
            self._delete_one(path)

    def _delete_one(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._call_driver(lambda: self.fs.rm_file(path))

    @with_timeout
    def clear_uploads(self, prefix: str) -> None:
        """Abort multipart uploads below a prefix: they cost money and are not listed. Only S3 has them to abort."""
        if not self._speaks_s3:
            return
        bucket, _, top = self._path(prefix).partition("/")
        more: dict[str, Any] = {}
        while True:
            page = self._call_driver(
                lambda more=more: self.fs.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=f"{top}/", **more)
            )
            for upload in page.get("Uploads") or []:
                named = {"Bucket": bucket, "Key": upload["Key"], "UploadId": upload["UploadId"]}
                with contextlib.suppress(FileNotFoundError):
                    self._call_driver(lambda named=named: self.fs.call_s3("abort_multipart_upload", **named))
            if not page.get("IsTruncated"):
                return
            more = {"KeyMarker": page.get("NextKeyMarker"), "UploadIdMarker": page.get("NextUploadIdMarker")}

    def url(self, key: str) -> str:
        return f"{self.scheme}://{self._path(key)}"

    def see_name(self, key: str) -> None:
        name = self._path(key).partition("/")[2]
        letters = DRIVERS.get(self.scheme) == "adlfs"
        length = len(name) if letters else len(name.encode("utf-8", "surrogateescape"))
        if length > _NAME:
            raise BadName(
                f"{self.url(key)[:200]}… is a name of {length} {'characters' if letters else 'bytes'}, "
                f"and a store takes {_NAME}; put it less deep, or give a shorter prefix"
            )

    @contextlib.contextmanager
    def _write_errors(self, key: str) -> Iterator[None]:
        """Add the URL to errors of a write."""
        self.see_name(key)
        where = self.url(key) if key.isprintable() else repr(self.url(key))
        try:
            yield
        except BadName as refusal:
            raise BadName(f"{where}: {refusal}") from refusal
        except ConnectionLate as refusal:
            raise ConnectionLate(f"{where}: {refusal}") from refusal
        except FileNotFoundError as refusal:
            raise StorageError(f"{where} cannot be written: {refusal}") from refusal

    @property
    def _speaks_s3(self) -> bool:
        return hasattr(self.fs, "call_s3")

    def _path(self, key: str) -> str:
        if "?" in key and DRIVERS.get(self.scheme) == "adlfs":
            # It would write to the name before the question mark: to another file.
            raise StorageError(f"{key!r} cannot be kept at {self.scheme}://: adlfs takes '?' for the end of a name")
        return f"{self.root}/{key}".rstrip("/")

    def _call_driver(self, action: Any) -> Any:
        """Drivers raise whatever their client library raises; all but a few of those are worth another try."""
        turn, pauses = storage_timeout.current(), iter(_PAUSES)
        while True:
            if turn is not None:
                turn.check()
            try:
                found = action()
                if turn is not None:
                    turn.note_answer()
                return found
            except (FileExistsError, TypeError, NotImplementedError):
                raise
            except Exception as refusal:
                meant = self._error_of(refusal)
                if turn is not None and isinstance(meant, StorageError):
                    turn.refused = meant
                if (pause := next(pauses, None) if _is_not_now(refusal) else None) is None:
                    if meant is refusal:
                        raise
                    raise meant from refusal
                time.sleep(pause)

    def _error_of(self, refusal: Exception) -> Exception:
        """What a driver's error means; itself when it is a plain FileNotFoundError."""
        text = " ".join(f"{type(each).__name__} {each}" for each in _chain(refusal))
        if any(word in text for word in _NO_BUCKET):
            bucket = f"{self.scheme}://{self.root.partition('/')[0]}"
            return Refusal(f"there is no bucket {bucket}; make it, or name another")
        if isinstance(refusal, FileNotFoundError):
            return refusal
        if "KeyTooLong" in text:
            return BadName(f"the store says that this name is too long: {refusal}")
        if any(word in text for word in ("PreconditionFailed", "ConditionNotMet", "BlobAlreadyExists", "(412)")):
            return FileExistsError(str(refusal))
        kind = ConnectionLate if "Timeout" in type(refusal).__name__ else StorageError
        return kind(f"{type(refusal).__name__}: {refusal}{self._hint(refusal)}")

    def _hint(self, refusal: Exception) -> str:
        if self._speaks_s3 and "CERTIFICATE_VERIFY_FAILED" in str(refusal):
            return "; if the server's certificate is from an authority of your own, name its file in AWS_CA_BUNDLE"
        return ""

    def _suppress_errors(self, action: Any) -> None:
        """Run a cleanup and ignore its errors; the original error is reported."""
        with contextlib.suppress(Exception):
            action()


def _order(item: tuple[str, Any, int]) -> Order:
    """An upload for a process of its own, where the file is one that it can read by itself."""
    key, reader, size = item
    if not hasattr(reader, "accept_result"):
        return Order(item, None, lambda _: False)
    words = transfer_pool.put_order(key, reader.path, reader.seen, size, is_limited=reader.is_limited)
    return Order(item, words, lambda answer: bool(reader.accept_result(*answer)), moves=reader.report_moved)


class MemoryBudget:
    """A memory budget for concurrent uploads. One that needs more than the budget runs alone."""

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
            self._leave(amount)

    @contextlib.contextmanager
    def take_if_free(self, amount: int) -> Iterator[bool]:
        """Without waiting; False when there is no room now."""
        with self._changed:
            free = self.taken + amount <= self.size
            self.taken += amount if free else 0
        try:
            yield free
        finally:
            if free:
                self._leave(amount)

    def _leave(self, amount: int) -> None:
        with self._changed:
            self.taken -= amount
            self._changed.notify_all()


def _give_memory_back() -> None:
    """Tell the C library to return large pieces to the system at once: else each thread keeps what it once held."""
    import ctypes

    with contextlib.suppress(OSError, AttributeError):  # only glibc has it, and only glibc needs it
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 512 << 10)


def _blocks(chunks: Iterable[bytes], size: int) -> Iterator[list[bytes]]:
    """Pieces gathered to blocks of exactly so many bytes; the last one is what is left."""
    block: list[bytes] = []
    count = 0
    for data in chunks:
        while count + len(data) > size:
            block.append(data[: size - count])
            data = data[size - count :]
            yield block
            block, count = [], 0
        block.append(data)
        count += len(data)
    if block:
        yield block


def _chain_blocks(first: list[list[bytes]], rest: Iterator[list[bytes]]) -> Iterator[list[bytes]]:
    while first:
        yield first.pop(0)
    yield from rest


def _chain(refusal: BaseException | None) -> Iterator[BaseException]:
    """Drivers wrap what the store said; the store's own word for it is somewhere in the chain."""
    while refusal is not None:
        yield refusal
        refusal = refusal.__cause__


def _is_not_now(refusal: BaseException) -> bool:
    """Whether S3 has answered, and may do it the next moment: one part of many is not worth all of them again."""
    for each in _chain(refusal):
        answer = getattr(each, "response", None)
        if isinstance(answer, dict):
            code = str((answer.get("Error") or {}).get("Code"))
            status = (answer.get("ResponseMetadata") or {}).get("HTTPStatusCode") or 0
            return status >= 500 or status == 429 or any(word in code for word in _NOT_NOW)
    return False


def _filesystem(scheme: str) -> Any:
    if (driver := DRIVERS.get(scheme)) is None:
        raise NoDriver(f"no store speaks {scheme}://; use a directory, s3://, gs:// or az://")
    settings: dict[str, Any] = {"skip_instance_cache": True, "use_listings_cache": False}
    if driver == "s3fs":
        # A silent connection is left for a new one while storage may still fail; requests are repeated by us.
        most = max(1.0, storage_timeout.CALL_DEFAULTS.seconds / 2)
        times = {"connect_timeout": min(_CONNECT, most), "read_timeout": min(_READ, most)}
        settings["config_kwargs"] = {**times, "retries": {"max_attempts": 1, "mode": "standard"}}
        settings["default_fill_cache"] = False
    try:
        import fsspec

        found = fsspec.filesystem(scheme, **settings)
        if driver == "s3fs":
            found.retries = 1
        return found
    except ImportError:
        raise NoDriver(f"{scheme}:// needs {driver} in the image: pip install fsspec {driver}") from None
