"""Files and directories that a step leaves: kept in a folder of the attempt's own, manifest last; compared and hashed.

Nothing of one attempt ever meets another's, and a folder without a manifest is no artifact. Where there is a store but
no URI, the artifact is kept in the store, so that it can be given again when the step does not run any more.

`compare` says what in a folder is there byte for byte, what is not, and what is foreign. `gpuflow-run digest PATH`
prints what `digest:` of an input must say, of a copy of the data on this machine.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys

from gpuflow.runtime.base import record_fields, records
from gpuflow.runtime.base.files import SharedFolder, close_after, discard, open_same
from gpuflow.runtime.base.records import File, KeptOutput, Manifest
from gpuflow.runtime.base.signing import why_secret
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.store import CHUNK, BadName, StorageError, Store, in_parallel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gpuflow.runtime.state.ledger import Ledger
    from gpuflow.runtime.stores.store import Progress

SET, LEAVE, EXACT = "set", "leave", "exact"
_STREAMS = 4


class Comparison:
    """`same`: paths with the expected content; `other`: with different content; `foreign`: not expected at all."""

    def __init__(self) -> None:
        self.same: set[str] = set()
        self.other: list[str] = []
        self.foreign: list[str] = []

    def is_whole(self, files: Sequence[File]) -> bool:
        return not self.other and not self.foreign and len(self.same) == len(files)


def compare(
    shared: SharedFolder,
    folder: str,
    files: Sequence[File],
    passed: Callable[[int], None],
    *,
    leave: Sequence[str] = (),
    learn: bool = False,
    among_others: bool = False,
    modes: str = SET,
) -> Comparison:
    """A folder in a shared one against the files it should hold; `leave` are names at its top that do not count.

    Hashes are compared, unless one is not known: with `learn` it is then that of the file here if that has its size.
    `modes` says what becomes of modes that differ: they are set where that can be done, left, or no longer the same.
    Once there is something foreign nothing is read any more, unless it may lie `among_others`.
    """
    found = Comparison()
    wanted = {file.path: file for file in files}
    implied = {path.rpartition("/")[0] for path in wanted}
    while True:
        above = {path.rpartition("/")[0] for path in implied} - implied
        if not above:
            break
        implied |= above
    to_read: list[tuple[File, str]] = []
    for relative, path, status in _walk_folder(shared, folder, leave):
        if (file := wanted.get(relative)) is None:
            if not (stat.S_ISDIR(status.st_mode) and relative in implied):
                found.foreign.append(relative)
        elif file.link is not None:
            is_it = stat.S_ISLNK(status.st_mode) and shared.readlink(path) == file.link
            found.same.add(relative) if is_it else found.other.append(relative)
        elif file.directory:
            found.same.add(relative) if stat.S_ISDIR(status.st_mode) else found.other.append(relative)
        elif not stat.S_ISREG(status.st_mode) or status.st_size != file.size or not (file.sha256 or learn):
            found.other.append(relative)
        else:
            to_read.append((file, path))
    if found.foreign and not among_others:
        found.other += [file.path for file, _ in to_read]
        return found

    def read(item: tuple[File, str]) -> None:
        file, path = item
        try:
            handle = shared.open(path)
        except OSError:
            found.other.append(file.path)
            return
        with close_after(handle):
            judge(file, handle)

    def judge(file: File, handle: int) -> None:
        sha256, mode = _hash_file(handle, passed), os.fstat(handle).st_mode
        if not file.sha256:
            file.sha256 = sha256 or ""
        if sha256 is None or sha256 != file.sha256:
            found.other.append(file.path)
            return
        if modes != LEAVE and file.mode is not None and stat.S_IMODE(mode) != file.mode & 0o777:
            if modes == EXACT:
                found.other.append(file.path)
                return
            with contextlib.suppress(OSError):
                os.fchmod(handle, file.mode & 0o777)
        found.same.add(file.path)

    in_parallel(read, to_read, _STREAMS)
    return found


def hash_shared_file(shared: SharedFolder, path: str, passed: Callable[[int], None]) -> str | None:
    """The hash of a regular file in a shared folder; None when it cannot be read."""
    try:
        handle = shared.open(path)
    except OSError:
        return None
    with close_after(handle):
        return _hash_file(handle, passed)


def _hash_file(handle: int, passed: Callable[[int], None]) -> str | None:
    import hashlib

    whole = hashlib.sha256()
    try:
        while True:
            if not (data := os.read(handle, CHUNK)):
                return whole.hexdigest()
            passed(len(data))
            whole.update(data)
    except OSError:
        return None


def _walk_folder(shared: SharedFolder, folder: str, leave: Sequence[str]) -> Iterator[tuple[str, str, os.stat_result]]:
    left = {*leave, "lost+found"} if os.path.ismount(shared.path(folder)) else {*leave}  # as a new ext4 volume has it
    try:
        for relative, status in shared.walk(folder):
            if relative.partition("/")[0] not in left:
                yield relative, os.path.join(folder, relative), status
    except FileNotFoundError:
        return


class NotKept(Exception):
    """Something in the artifact cannot be kept, and never will be."""


class Artifact:
    """One file or directory on its way into a store. `progress` hears of the bytes of each chunk, and may raise. `told`
    hears how much there is, and how much of it has passed."""

    def __init__(
        self,
        ledger: Ledger,
        store: Store,
        prefix: str,
        source: str,
        progress: Callable[[int], None],
        told: Progress | None = None,
    ) -> None:
        self.ledger, self.store, self.prefix = ledger, store, prefix
        self.source, self.progress, self.told = source, progress, told
        self.kind = "directory" if os.path.isdir(source) else "file"
        self._put: dict[str, File] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """Which file was found: another one that has taken its name since is not read."""
        self.settled = 0
        """How many files were found in the store after the last error."""

    def keep(self) -> list[File]:
        """Upload it and write its manifest. Called again after an error, it goes on with what did not arrive."""
        self.ledger.assert_owner()
        self._forget_what_did_not_arrive()
        # There may be a hundred thousand: no more is held of each than is needed.
        entries = []
        total = count = 0
        for relative, _, status in entries_of(self.source):
            entries.append((relative, status.st_mode))
            self._seen[relative] = (status.st_dev, status.st_ino)
            if stat.S_ISREG(status.st_mode):
                total, count = total + status.st_size, count + 1
                self._see_name(relative)
        if self.told is not None:
            self.told.begin(total, count, sum(file.size or 0 for file in self._put.values()))
        missing = (name for name, mode in entries if stat.S_ISREG(mode) and name not in self._put)
        self.store.put_all(self._item(relative) for relative in missing)
        self._see_that_all_arrived()
        files = [self._file(relative, mode) for relative, mode in entries]
        data = self._pack(files)
        if len(data) > records.LARGE // 2:  # the success marker names them too
            raise NotKept(f"its {len(files)} files are too many to name in one manifest; put them into an archive")
        self.ledger.assert_owner()
        key = f"{self.prefix}/manifest.json"
        self.store.write_surely(key, data, self.store.url(key))
        return files

    def _see_name(self, relative: str) -> None:
        """Before anything is sent: what the store cannot keep is the program's to name in another way."""
        try:
            self.store.see_name(self._key(relative))
        except BadName as refusal:
            raise NotKept(f"{self._path(relative)}: {refusal}") from None

    def _forget_what_did_not_arrive(self) -> None:
        """After an error: it is sent once more."""
        if self._put:
            arrived = self._stored_sizes()
            self._put = {relative: file for relative, file in self._put.items() if arrived.get(relative) == file.size}
            self.settled = len(self._put)

    def _stored_sizes(self) -> dict[str, int]:
        cut = len(self._key(""))
        return {key[cut:]: size for key, size in self.store.names(f"{self.prefix}/files")}

    def _see_that_all_arrived(self) -> None:
        arrived = self._stored_sizes()
        for relative, file in self._put.items():
            if arrived.get(relative) != file.size:
                path = self._path(relative)
                raise StorageError(f"{self.store.url(self._key(relative))} did not arrive whole; it is {path}")

    def _pack(self, files: list[File]) -> bytes:
        manifest = Manifest(
            checkpoint=records.artifact_name(self.ledger.number, self.ledger.id),
            # For people to read; a path may end with a slash, or in a hidden name.
            entry=os.path.basename(os.path.normpath(self.source)).lstrip(".") or "output",
            kind=self.kind,
            attempt=self.ledger.number,
            id=self.ledger.id,
            files=files,
            run=self.ledger.base,
        )
        key = f"{self.prefix}/manifest.json"
        # At a URI of its own the key says nothing about the run.
        own = key if key.startswith(f"{self.ledger.base}/") else f"{self.ledger.base} {self.store.url(key)}"
        return self.ledger.pack(manifest, own)

    def _key(self, relative: str) -> str:
        return f"{self.prefix}/files/{relative}"

    def _path(self, relative: str) -> str:
        return self.source if self.kind == "file" else os.path.join(self.source, relative)

    def _item(self, relative: str) -> tuple[str, Iterable[bytes], int]:
        path = self._path(relative)
        return self._key(relative), _Reader(self, relative, path, self._seen[relative]), os.path.getsize(path)

    def add_progress(self, count: int) -> None:
        """Report `count` more bytes as sent."""
        self.progress(count)
        if self.told is not None:
            self.told.add(count)

    def add_file(self, file: File) -> None:
        """A file was read to its end."""
        self._put[file.path] = file

    def _file(self, relative: str, mode: int) -> File:
        if stat.S_ISDIR(mode):
            return File(path=relative, directory=True)
        if stat.S_ISLNK(mode):
            return File(path=relative, link=_link(self._path(relative), relative))
        return self._put[relative]


class _Reader:
    """The pieces of one file, hashed on the way."""

    is_limited = False

    def __init__(self, artifact: Artifact, relative: str, path: str, seen: tuple[int, int]) -> None:
        self._artifact, self._relative, self.path, self.seen = artifact, relative, path, seen
        self.sha256 = ""
        self._moved = 0

    def report_moved(self, count: int) -> None:
        """Report `count` more bytes, sent by another process."""
        self._moved += count
        self._artifact.add_progress(count)

    def accept_result(self, size: int, sha256: str, mode: int, _: list[int]) -> bool:
        """Another process has read it, as a whole."""
        self._artifact.add_file(File(path=self._relative, size=size, sha256=sha256, mode=stat.S_IMODE(mode) & 0o777))
        self._artifact.add_progress(max(0, size - self._moved))
        return True

    def __iter__(self) -> Iterator[bytes]:
        import hashlib

        hashed, size = hashlib.sha256(), 0
        try:
            handle = open_same(self.path, self.seen)
        except PermissionError:
            raise NotKept(f"{self.path} may not be read") from None
        except FileNotFoundError:
            raise StorageError(f"{self.path} was changed while it was read") from None
        with close_after(handle):
            before = os.fstat(handle)
            while True:
                # No more is made room for than there is.
                if not (data := os.read(handle, max(1, min(CHUNK, before.st_size - size)))):
                    break
                self._artifact.add_progress(len(data))
                hashed.update(data)
                size += len(data)
                yield data
            after = os.fstat(handle)
        if size != after.st_size or before.st_mtime_ns != after.st_mtime_ns:
            raise StorageError(f"{self.path} was changed while it was read")
        mode = stat.S_IMODE(after.st_mode) & 0o777
        self.sha256 = hashed.hexdigest()
        self._artifact.add_file(File(path=self._relative, size=size, sha256=self.sha256, mode=mode))


def entries_of(source: str) -> Iterator[tuple[str, str, os.stat_result]]:
    """What there is to keep, parents first. A link inside stays a link; one to a file elsewhere is that file. NotKept
    for what must not be: keys, tokens, Secrets."""
    if not os.path.isdir(source):
        status = _stat(source)
        if not stat.S_ISREG(status.st_mode):
            raise NotKept(f"{source} is no file")
        _see_that_it_is_no_secret(source, status)
        yield _check_name(os.path.basename(source)), source, status
        return
    whole = os.path.realpath(source)
    for relative, status in _walk(source):
        path = os.path.join(source, _check_name(relative))
        if relative == record_fields.STAGING_FOLDER:
            raise NotKept(f"no input can be called {relative}: gpuflow-run has a folder of that name; rename it")
        if stat.S_ISLNK(status.st_mode):
            target = os.path.realpath(path)
            inside = f"{target}{os.sep}".startswith(whole + os.sep)
            plain = inside and os.path.exists(target) and not record_fields.leads_out(relative, os.readlink(path))
            if plain or (inside and os.path.isdir(target)):
                pass  # it stays a link
            elif not os.path.isdir(target):
                status = _stat(path)
            else:
                raise NotKept(f"{path} is a link to a folder outside of the output: {target}")
        if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode) or stat.S_ISLNK(status.st_mode)):
            raise NotKept(f"{path} is no file, folder or link")
        if stat.S_ISREG(status.st_mode):
            _see_that_it_is_no_secret(path, status, f"{whole}/{relative}")
        yield relative, path, status


def _walk(source: str) -> Iterator[tuple[str, os.stat_result]]:
    try:
        yield from SharedFolder(source).walk()
    except OSError as refusal:
        raise NotKept(f"it cannot be read: {refusal}") from None


def _see_that_it_is_no_secret(path: str, status: os.stat_result, known: str | None = None) -> None:
    """NotKept for a file that must stay here; `known` is its path where that has no links."""
    real = known if known is not None and not os.path.islink(path) else os.path.realpath(path)
    if (why := why_secret(real, status)) is not None:
        raise NotKept(f"{path} must not be kept: {why}" + (f" ({real})" if real != path else ""))


def measure_files(source: str) -> list[File]:
    """The files of an artifact that is kept nowhere."""
    files = []
    for relative, path, status in entries_of(source):
        if stat.S_ISDIR(status.st_mode):
            files.append(File(path=relative, directory=True))
        elif stat.S_ISLNK(status.st_mode):
            files.append(File(path=relative, link=_link(path, relative)))
        else:
            files.append(File(path=relative, size=status.st_size, sha256=_hash(path), mode=status.st_mode))
    return files


def kept_output(kind: str, files: list[File], uri: str | None, key: str | None) -> KeptOutput:
    """What the success marker says about an artifact."""
    import hashlib

    whole = hashlib.sha256()
    for file in sorted(files, key=lambda file: file.path):
        what = file.sha256 or (f"-> {file.link}" if file.link is not None else "folder")
        # A single file has the same digest under any name.
        whole.update(f"{'' if kind == 'file' else file.path}\0{what}\n".encode())
    count = sum(file.size or 0 for file in files)
    return KeptOutput(type=kind, sha256=whole.hexdigest(), bytes=count, uri=uri, key=key, files=files)


def is_present(path: str, output: KeptOutput) -> bool:
    """Whether the path already holds the artifact, byte for byte."""
    if os.path.isdir(path) != (output.type == "directory"):
        return False
    for file in output.files or []:
        place = path if output.type == "file" else os.path.join(path, *file.path.split("/"))
        try:
            if file.link is not None:
                if os.readlink(place) != file.link:
                    return False
            elif file.directory:
                if not os.path.isdir(place):
                    return False
            # To open a pipe would wait for its writer, for ever.
            elif not os.path.isfile(place) or _hash(place) != file.sha256:
                return False
        except OSError:
            return False
    return True


def bring(store: Store, prefix: str, output: KeptOutput, path: str, progress: Callable[[int], None]) -> None:
    """Fetch an artifact to a path and verify every byte; it replaces what was there once it is complete."""
    part = os.path.join(os.path.dirname(path), f".{os.path.basename(path)[:200]}.{os.urandom(8).hex()}")
    try:
        local_files.bring_files(
            store,
            prefix,
            output.files or [],
            SharedFolder(os.path.dirname(path) or "."),
            os.path.basename(part),
            lambda file: f"files/{file.path}",
            progress,
            single=output.type == "file",
            arrived=set(),
        )
        discard(path)
        os.rename(part, path)
    finally:
        discard(part)


def _hash(path: str) -> str:
    import hashlib

    hashed = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while True:
            if not (data := file.read(CHUNK)):
                return hashed.hexdigest()
            hashed.update(data)


def _link(path: str, relative: str) -> str:
    """Where a link inside leads to, from where it is: an absolute one would lead nowhere in another place."""
    given = os.readlink(path)
    if not record_fields.leads_out(relative, given):
        return given
    return os.path.relpath(os.path.realpath(path), os.path.realpath(os.path.dirname(path)))


def _check_name(relative: str) -> str:
    try:
        relative.encode("utf-8")
    except UnicodeEncodeError:
        raise NotKept(f"{relative!r} is not a name that every store can keep; name files in UTF-8") from None
    if not record_fields.is_path(relative):
        raise NotKept(f"{relative[:80]!r}… is longer than {record_fields.PATH_MOST} characters; put it less deep")
    return relative


def _stat(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError:
        raise NotKept(f"{path} is a link to nothing") from None


DIGEST_USAGE = "usage: gpuflow-run digest PATH"


def digest_main(words: Sequence[str], _: Mapping[str, str]) -> int:
    """Print `sha256:…`; 2 for what has none."""
    if len(words) != 1 or words[0].startswith("-"):
        print(DIGEST_USAGE, file=sys.stderr)
        return 0 if list(words) in (["--help"], ["-h"]) else 2
    try:
        print(f"sha256:{digest_of_path(words[0])}")
        return 0
    except (OSError, NotKept) as refusal:
        print(f"gpuflow-run: {refusal}", file=sys.stderr)
        return 2


def digest_of_path(path: str) -> str:
    """The digest of the file or directory at a path."""
    if not os.path.lexists(path):
        raise FileNotFoundError(f"there is no {path}: digest takes a path on this machine")
    return digest_of_files("directory" if os.path.isdir(path) else "file", measure_files(path))


def digest_of_files(kind: str, files: Sequence[File]) -> str:
    """Of a file the hash of its bytes. Of a directory that over its files and links: a bucket has no folders."""
    if kind == "file":
        return files[0].sha256 or ""
    return kept_output(kind, [file for file in files if not file.directory], None, None).sha256
