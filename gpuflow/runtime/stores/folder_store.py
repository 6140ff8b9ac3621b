"""A store that is a directory: files that appear whole, by rename, and are made by one caller only, by hard link.

Others may write to it too. Below its top no link is followed, to read, to write or to remove (`files.SharedFolder`).
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat

from gpuflow.runtime.base import files
from gpuflow.runtime.base.files import NotAFolder, SharedFolder
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.records import LARGE, Corrupt
from gpuflow.runtime.stores.storage_timeout import with_disk_timeout, with_timeout
from gpuflow.runtime.stores.store import CHUNK, StorageError, Store, in_parallel, is_no_manifest

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

    def __init__(self, root: str, *, inside: str = "", lasting: bool = True) -> None:
        """`inside`: a folder of ours in that one, which others may have replaced as well."""
        self._shared, self.lasting = SharedFolder(os.path.abspath(root), inside), lasting
        self.root = self._shared.root

    @with_timeout
    def read(self, key: str) -> bytes:
        with self._read_errors(key):
            try:
                return self._shared.read(key, LARGE)
            except files.NotAFile as refusal:
                if self._shared.is_folder(key):
                    # No object can be written over a folder: that must be known before the command runs.
                    raise StorageError(f"{self.url(key)} is a folder, where a file should be; remove it") from None
                raise Corrupt(f"{key}: {refusal.strerror}") from None

    @with_timeout
    def write(self, key: str, data: bytes) -> None:
        self._put(key, [data])

    @with_timeout
    def create(self, key: str, data: bytes) -> bool:
        with _storage_errors(), self._shared.open_parent(key, make=True) as (folder, name):
            part = self._part(folder, [data])
            try:
                os.link(part, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
            except FileExistsError:
                return False
            except OSError as refusal:
                if refusal.errno not in _NO_LINKS:
                    raise
                return self._create_without_links(folder, name, data)
            finally:
                _remove(folder, part)
            self._sync(folder)
            return True

    @with_disk_timeout
    def put(self, key: str, chunks: Iterable[bytes], size: int) -> None:
        self._put(key, chunks)

    def _put(self, key: str, chunks: Iterable[bytes]) -> None:
        with _storage_errors(), self._shared.open_parent(key, make=True) as (folder, name):
            _replace(folder, self._part(folder, chunks), name)
            self._sync(folder)

    def probe(self, key: str) -> bool:
        # What is removed at once need not be forced to disk.
        lasting, self.lasting = self.lasting, False
        try:
            return super().probe(key)
        finally:
            self.lasting = lasting

    def _unprobe(self, key: str) -> None:
        # The folders above stay: others may be about to write there.
        with contextlib.suppress(OSError):
            self._shared.unlink(key)
            self._rmdir(key.rpartition("/")[0])

    @with_disk_timeout
    def put_all(self, items: Iterable[tuple[str, Iterable[bytes], int]]) -> None:
        """One flush at the end instead of one for each file."""
        written: list[str] = []

        def put(item: tuple[str, Iterable[bytes], int]) -> None:
            with _storage_errors(), self._shared.open_parent(item[0], make=True) as (folder, name):
                _replace(folder, self._part(folder, item[1], lasting=False), name)
            written.append(item[0])

        in_parallel(put, items, self.streams)
        if self.lasting and written:
            with _storage_errors():
                self._flush(written)

    @with_disk_timeout
    def clear_uploads(self, prefix: str) -> None:
        for key, _ in self._walk(prefix):
            if _IS_PART.fullmatch(key.rpartition("/")[2]):
                with contextlib.suppress(OSError):
                    self._shared.unlink(key)

    def url(self, key: str) -> str:
        return self._shared.path(key)

    def chunks(self, key: str) -> Iterator[bytes]:
        with self._read_errors(key):
            try:
                handle = self._shared.open(key)
            except files.NotAFile as refusal:
                raise Corrupt(f"{key}: {refusal.strerror}") from None
            with files.close_after(handle):
                yield from iter(lambda: os.read(handle, CHUNK), b"")

    def clone(self, key: str, handle: int) -> bool:
        import fcntl

        try:
            with files.close_after(self._shared.open(key)) as source:
                fcntl.ioctl(handle, _FICLONE, source)
                return True
        except OSError:
            return False

    @with_timeout
    def size(self, key: str) -> int:
        with self._read_errors(key):
            status = self._shared.status(key)
        if not stat.S_ISREG(status.st_mode):
            raise FileNotFoundError(key)
        return status.st_size

    @with_disk_timeout
    def names(self, prefix: str) -> list[tuple[str, int]]:
        found = ((key, status.st_size) for key, status in self._walk(prefix))
        return sorted(entry for entry in found if not _IS_PART.fullmatch(entry[0].rpartition("/")[2]))

    def _walk(self, prefix: str) -> Iterator[tuple[str, os.stat_result]]:
        """Everything below a prefix but folders. One that cannot be read is an error: nothing seen is not nothing."""
        try:
            for relative, status in self._shared.walk(prefix):
                if not stat.S_ISDIR(status.st_mode):
                    yield f"{prefix}/{relative}" if prefix else relative, status
        except NotAFolder as refusal:
            if refusal.is_link:
                raise _planted_link(refusal) from None
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as refusal:
            raise StorageError(f"the listing failed: {refusal}") from refusal

    @with_disk_timeout
    def delete(self, keys: Iterable[str]) -> None:
        folders = set()
        for key in sorted(keys, key=is_no_manifest):
            with _storage_errors(), contextlib.suppress(FileNotFoundError):
                self._shared.unlink(key)
            folders.add(key.rpartition("/")[0])
        for folder in sorted(folders, key=len, reverse=True):
            # It and the folders above it, up to one that still holds something.
            with contextlib.suppress(OSError):
                while folder:
                    self._rmdir(folder)
                    folder = folder.rpartition("/")[0]

    @contextlib.contextmanager
    def _read_errors(self, key: str) -> Iterator[None]:
        """Translate errors of a read: FileNotFoundError for a missing key, StorageError for a failing disk."""
        try:
            yield
        except NotAFolder as refusal:
            if refusal.is_link:
                raise _planted_link(refusal) from None
            raise FileNotFoundError(key) from None
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(key) from None
        except OSError as refusal:
            raise StorageError(str(refusal)) from refusal

    def _part(self, folder: int, chunks: Iterable[bytes], *, lasting: bool = True) -> str:
        """The bytes beside their place, on disk for good: their name. Nothing stays behind when that fails."""
        part = f"{_PART}{os.getpid()}-{os.urandom(8).hex()}"
        try:
            with files.close_after(files.create(part, folder)) as handle:
                for data in chunks:
                    files.write_sparse(handle, data)
                files.truncate_here(handle)
                if self.lasting and lasting:
                    os.fsync(handle)
        except BaseException:
            _remove(folder, part)
            raise
        return part

    def _sync(self, folder: int) -> None:
        if self.lasting:
            _sync_directory(folder)

    def _create_without_links(self, folder: int, name: str, data: bytes) -> bool:
        """Where there are no hard links (SMB, some FUSE). A kill in the middle leaves a half-written object."""
        self.sure = False
        try:
            handle = files.create(name, folder)
        except FileExistsError:
            return False
        try:
            with files.close_after(handle):
                files.write_all(handle, data)
                os.fsync(handle)
        except OSError:
            _remove(folder, name)
            raise
        return True

    def _flush(self, written: list[str]) -> None:
        """All files of a file system to disk at once where the system can; else one after the other."""
        if len(written) > 4 and _sync_file_system(self.root):
            return
        for key in written:
            with files.close_after(self._shared.open(key)) as handle:
                os.fsync(handle)
        for folder in {key.rpartition("/")[0] for key in written}:
            with self._shared.folder(folder) as handle:
                _sync_directory(handle)

    def _rmdir(self, folder: str) -> None:
        with self._shared.open_parent(folder) as (above, name):
            os.rmdir(name, dir_fd=above)


@contextlib.contextmanager
def _storage_errors() -> Iterator[None]:
    """What it is called that something cannot be written or removed. Another try does not help against a link."""
    try:
        yield
    except NotAFolder as refusal:
        raise _planted_link(refusal) from None
    except OSError as refusal:
        raise StorageError(str(refusal)) from refusal


def _planted_link(refusal: NotAFolder) -> BadOption:
    what = "a link" if refusal.is_link else "no folder"
    return BadOption(
        f"{refusal.filename} is {what}, and gpuflow-run did not make it: nothing is read, written or removed there. "
        "Remove it"
    )


def _replace(folder: int, part: str, name: str) -> None:
    try:
        os.replace(part, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        _remove(folder, part)
        raise


def _sync_file_system(path: str) -> bool:
    import ctypes

    try:
        library = ctypes.CDLL(None, use_errno=True)
        syncfs = library.syncfs
    except (OSError, AttributeError):
        return False
    with files.close_after(os.open(path, os.O_RDONLY | os.O_DIRECTORY)) as handle:
        if syncfs(handle) == 0:
            return True
        number = ctypes.get_errno()
    if number in (errno.ENOSYS, errno.EINVAL):
        return False
    raise OSError(number, os.strerror(number), path)


def _remove(folder: int, name: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def _sync_directory(folder: int) -> None:
    """Make a rename last. Some network file systems cannot; they keep their own promises."""
    flags = os.O_RDONLY | os.O_DIRECTORY
    with contextlib.suppress(OSError), files.close_after(os.open(".", flags, dir_fd=folder)) as handle:
        os.fsync(handle)
