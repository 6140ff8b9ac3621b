"""A store that is a directory: files that appear whole, by rename, and are made by one caller only, by hard link."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat

from gpuflow.runtime import files
from gpuflow.runtime.parallel import in_parallel
from gpuflow.runtime.records import LARGE, Corrupt
from gpuflow.runtime.store import CHUNK, StorageError, Store, is_no_manifest
from gpuflow.runtime.waiting import watched, written_to_disk

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_PART = ".part-"
_IS_PART = re.compile(r"\.part-\d+-[0-9a-f]{16}")
"""Exactly the names that `_part` gives: others begin like them too, and are kept."""
_FICLONE = 0x40049409
"""The request that makes one file share the blocks of another (linux/fs.h): btrfs, xfs and a few more can."""
_NO_LINKS = frozenset(
    {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EINVAL, errno.EACCES}
)
"""What `link` says where there are no hard links. Anything else is trouble."""


class Folder(Store):
    """A directory: a mounted claim, or a local disk. What need not outlive the machine is not forced to disk."""

    streams = 4

    def __init__(self, root: str, *, lasting: bool = True) -> None:
        self.root, self.lasting = os.path.abspath(root), lasting

    @watched
    def read(self, key: str) -> bytes:
        try:
            return files.read(self._path(key), LARGE)
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(key) from None
        except files.NotAFile as refusal:
            if os.path.isdir(self._path(key)):
                # No object can be written over a folder: that must be known before the command runs.
                raise StorageError(f"{self._path(key)} is a folder, where a file should be; remove it") from None
            raise Corrupt(f"{key}: {refusal.strerror}") from None
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    @watched
    def write(self, key: str, data: bytes) -> None:
        self._put(key, [data])

    @watched
    def create(self, key: str, data: bytes) -> bool:
        path = self._path(key)
        try:
            part = self._part(path, [data])
            try:
                os.link(part, path)
            except FileExistsError:
                return False
            except OSError as refusal:
                if refusal.errno not in _NO_LINKS:
                    raise
                return self._create_without_links(path, data)
            finally:
                _remove(part)
            self._sync(path)
            return True
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    @written_to_disk
    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        self._put(key, chunks)

    def _put(self, key: str, chunks: Iterable[bytes]) -> None:
        path = self._path(key)
        try:
            part = self._part(path, chunks)
            _replace(part, path)
            self._sync(path)
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    def probe(self, key: str) -> bool:
        # What is removed at once need not be forced to disk.
        lasting, self.lasting = self.lasting, False
        try:
            return super().probe(key)
        finally:
            self.lasting = lasting

    def _unprobe(self, key: str) -> None:
        # The folders above stay: others may be about to write there.
        path = self._path(key)
        with contextlib.suppress(OSError):
            os.unlink(path)
            os.rmdir(os.path.dirname(path))

    @written_to_disk
    def put_all(self, items: Iterable[tuple[str, Iterable[bytes], int]]) -> None:
        """One flush at the end instead of one for each file."""
        written: list[str] = []

        def put(item: tuple[str, Iterable[bytes], int]) -> None:
            path = self._path(item[0])
            try:
                _replace(self._part(path, item[1], lasting=False), path)
            except OSError as refusal:
                raise StorageError(str(refusal)) from refusal
            written.append(path)

        in_parallel(put, items, self.streams)
        if self.lasting and written:
            try:
                _flush(self.root, written)
            except OSError as refusal:
                raise StorageError(str(refusal)) from refusal

    @written_to_disk
    def clear_uploads(self, prefix: str) -> None:
        for path in self._walk(prefix):
            if _IS_PART.fullmatch(os.path.basename(path)):
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def url(self, key: str) -> str:
        return self._path(key)

    def chunks(self, key: str) -> Iterator[bytes]:
        try:
            handle = files.open_regular(self._path(key))
            try:
                while True:
                    data = os.read(handle, CHUNK)
                    if not data:
                        return
                    yield data
            finally:
                os.close(handle)
        except FileNotFoundError:
            raise
        except files.NotAFile as refusal:
            raise Corrupt(f"{key}: {refusal.strerror}") from None
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    def clone(self, key: str, handle: int) -> bool:
        import fcntl

        try:
            source = files.open_regular(self._path(key))
            try:
                fcntl.ioctl(handle, _FICLONE, source)
                return True
            finally:
                os.close(source)
        except OSError:
            return False

    @watched
    def size(self, key: str) -> int:
        try:
            status = os.stat(self._path(key))
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(key) from None
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(key)
        return status.st_size

    @written_to_disk
    def names(self, prefix: str) -> list[tuple[str, int]]:
        found = []
        for path in self._walk(prefix):
            if _IS_PART.fullmatch(os.path.basename(path)):
                continue
            try:
                found.append((os.path.relpath(path, self.root).replace(os.sep, "/"), os.lstat(path).st_size))
            except FileNotFoundError:
                continue
            except OSError as refusal:
                raise StorageError(str(refusal)) from refusal
        return sorted(found)

    def _walk(self, prefix: str) -> Iterator[str]:
        """Every file below a prefix. A folder that cannot be read is an error: nothing seen is not nothing there."""

        def fail(refusal: OSError) -> None:
            if not isinstance(refusal, (FileNotFoundError, NotADirectoryError)):
                raise StorageError(f"the listing failed: {refusal}") from refusal

        try:
            for folder, folders, names in os.walk(self._path(prefix), onerror=fail):
                folders.sort()
                for name in names:
                    yield os.path.join(folder, name)
        except RecursionError:
            raise StorageError(f"the listing failed: folders in {self._path(prefix)} are nested too deep") from None

    @written_to_disk
    def delete(self, keys: Iterable[str]) -> None:
        folders = set()
        for key in sorted(keys, key=is_no_manifest):
            path = self._path(key)
            try:
                _remove(path)
            except OSError as refusal:
                raise StorageError(str(refusal)) from refusal
            folders.add(os.path.dirname(path))
        for folder in sorted(folders, key=len, reverse=True):
            self._drop_empty(folder)

    def _path(self, key: str) -> str:
        return os.path.join(self.root, *[part for part in key.split("/") if part])

    def _part(self, path: str, chunks: Iterable[bytes], *, lasting: bool = True) -> str:
        """The bytes beside their place, on disk for good; nothing stays behind when that fails."""
        part = os.path.join(os.path.dirname(path), f"{_PART}{os.getpid()}-{os.urandom(8).hex()}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        try:
            handle = files.create(part)
            try:
                for data in chunks:
                    files.write_sparse(handle, data)
                files.end_here(handle)
                if self.lasting and lasting:
                    os.fsync(handle)
            finally:
                os.close(handle)
        except BaseException:
            _remove(part)
            raise
        return part

    def _sync(self, path: str) -> None:
        if self.lasting:
            _sync_directory(os.path.dirname(path))

    def _create_without_links(self, path: str, data: bytes) -> bool:
        """Where there are no hard links (SMB, some FUSE). A kill in the middle leaves a half-written object."""
        self.sure = False
        try:
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            return False
        try:
            try:
                view = memoryview(data)
                while view:
                    view = view[os.write(handle, view) :]
                os.fsync(handle)
            finally:
                os.close(handle)
        except OSError:
            _remove(path)
            raise
        return True

    def _drop_empty(self, folder: str) -> None:
        while len(folder) > len(self.root):
            try:
                os.rmdir(folder)
            except OSError:
                return
            folder = os.path.dirname(folder)


def _replace(part: str, path: str) -> None:
    try:
        os.replace(part, path)
    except OSError:
        _remove(part)
        raise


def _flush(root: str, written: list[str]) -> None:
    """All files of a file system to disk at once where the system can; else one after the other."""
    if len(written) > 4 and _sync_file_system(root):
        return
    for path in written:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    for folder in {os.path.dirname(path) for path in written}:
        _sync_directory(folder)


def _sync_file_system(path: str) -> bool:
    import ctypes

    try:
        library = ctypes.CDLL(None, use_errno=True)
        syncfs = library.syncfs
    except (OSError, AttributeError):
        return False
    handle = os.open(path, os.O_RDONLY)
    try:
        if syncfs(handle) == 0:
            return True
        number = ctypes.get_errno()
        if number in (errno.ENOSYS, errno.EINVAL):
            return False
        raise OSError(number, os.strerror(number), path)
    finally:
        os.close(handle)


def _remove(path: str) -> None:
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        os.unlink(path)


def _sync_directory(path: str) -> None:
    """Make a rename last. Some network file systems cannot; they keep their own promises."""
    try:
        handle = os.open(path, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
