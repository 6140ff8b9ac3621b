"""Where an input comes from: an artifact, whose manifest says what it is, or data from outside, as a listing shows it.

A URI that ends like `…/000007-1a2b3c4d/files` is an artifact's: without its manifest it does not exist.
"""

from __future__ import annotations

import contextlib
import os
import re
import stat

from gpuflow.runtime import artifacts, digesting, naming, records
from gpuflow.runtime.options import BadOption
from gpuflow.runtime.records import Corrupt, File, Manifest
from gpuflow.runtime.store import StorageError, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuflow.runtime.signing import Keys

_ARTIFACT = re.compile(r"((?:.*/)?([0-9]{6,9}-[0-9a-f]{8}))/files(?:/([^/]+))?")
_INSIDE = re.compile(r"((?:.*/)?[0-9]{6,9}-[0-9a-f]{8})(?:/.*)?")


class Listed(File):
    """A file from outside: its size is known, its hash when it was read. `key` is where, when not at its path."""

    def __init__(self, path: str, size: int, mode: int | None = None, key: str | None = None) -> None:
        self.path, self.size, self.mode, self.key = path, size, mode, key
        self.sha256, self.link, self.directory = "", None, None


class Source:
    """What is to lie at one place, and where its bytes are. `ours`: a manifest says what they must be."""

    def __init__(self, uri: str, store: Store, prefix: str, kind: str, files: Sequence[File], *, ours: bool) -> None:
        self.uri, self.store, self.prefix, self.kind, self.ours = uri, store, prefix, kind, ours
        self.files = list(files)
        self.sum: str | None = None
        """Of data from outside: what it must add up to, when that was said."""

    def key(self, file: File) -> str:
        """Where a file lies below the prefix."""
        if isinstance(file, Listed) and file.key is not None:
            return file.key
        return f"files/{file.path}" if self.ours else file.path

    @property
    def size(self) -> int:
        return sum(file.size or 0 for file in self.files)

    @property
    def count(self) -> int:
        return sum(file.sha256 is not None for file in self.files)

    @property
    def is_known(self) -> bool:
        """Whether it is known what each of its bytes must be."""
        return all(file.sha256 != "" for file in self.files)

    def adds_up(self) -> bool:
        """Once all was read: whether it is what it should be."""
        return self.sum is None or self.digest() == self.sum

    def digest(self) -> str:
        """What it adds up to, as `gpuflow-run digest` says it; of data from outside only once all was read."""
        return digesting.of_files(self.kind, self.files)

    def sums(self) -> tuple[str, ...]:
        """What it may be called: by that, and an artifact also as its success marker and the engines call it."""
        own = (artifacts.kept(self.kind, self.files, None, None).sha256,) if self.ours else ()
        return (self.digest(), *own)

    def forget_hashes(self) -> None:
        """What was read of data from outside does not count: it is read again."""
        for file in self.files if not self.ours else ():
            if isinstance(file, Listed):
                file.sha256 = ""

    def local(self) -> str | None:
        """Where it lies on a disk of this machine, or None."""
        path = local_path(self.uri)
        return None if path is None else os.path.normpath(path)


class Stores:
    """The stores that URIs lead to: one for each bucket, since to open one takes a while."""

    def __init__(self, open_place: Callable[[str], Store]) -> None:
        self._open = open_place
        self._known: dict[str, Store] = {}

    def find(self, uri: str) -> tuple[Store, str]:
        """The store, and the key of what a URI names."""
        path = local_path(uri)
        if path is not None:
            # What leads to an artifact was given to us, and so was other data; links in an artifact are not followed.
            whole = os.path.normpath(os.path.join("/", path))
            match = _ARTIFACT.fullmatch(whole)
            top = os.path.dirname(match.group(1)) if match else "/"
            key = os.path.relpath(whole if match else os.path.realpath(whole), top)
        else:
            scheme, _, rest = uri.partition("://")
            scheme = scheme.lower()
            bucket, _, key = rest.partition("/")
            top, key = f"{scheme}://{bucket}", key.rstrip("/")
        if top not in self._known:
            self._known[top] = self._open(top)
        return self._known[top], key


def local_path(uri: str) -> str | None:
    scheme, found, rest = uri.partition("://")
    if not found:
        return uri
    return rest if scheme.lower() == "file" else None


def is_artifact(key: str) -> bool:
    return _ARTIFACT.fullmatch(key) is not None


def read(stores: Stores, uri: str, kind: str | None, keys: Keys | None, say: Callable[[str], None]) -> Source:
    """What a URI stands for. StorageError when it is not there, Corrupt when it is not what was kept."""
    store, key = stores.find(uri)
    match = _ARTIFACT.fullmatch(key)
    if match is None:
        inside = _INSIDE.fullmatch(key)
        if inside is not None and _has_manifest(store, inside.group(1)):
            raise BadOption(f"{uri} is a part of an artifact; name all of it: {store.url(inside.group(1))}/files")
        return _outside(store, key, uri, kind or "directory")
    prefix, name, file = match.groups()
    manifest = _manifest(store, prefix, name, keys, say)
    if file and manifest.kind == "directory":
        raise BadOption(f"{uri} is a part of an artifact; name all of it: {store.url(prefix)}/files")
    if manifest.kind != ("file" if file else "directory") or (file and manifest.files[0].path != file):
        raise Corrupt(f"{uri} is no {'file' if file else 'directory'} that {store.url(prefix)} was kept as")
    if kind is not None and kind != manifest.kind:
        raise BadOption(f"{uri} is a {manifest.kind}, and not a {kind}")
    return Source(uri, store, prefix, manifest.kind, manifest.files, ours=True)


def _has_manifest(store: Store, prefix: str) -> bool:
    try:
        store.read(f"{prefix}/manifest.json")
        return True
    except FileNotFoundError:
        return False


def _manifest(store: Store, prefix: str, name: str, keys: Keys | None, say: Callable[[str], None]) -> Manifest:
    key = f"{prefix}/manifest.json"
    url = store.url(key)
    try:
        data = store.read(key)
    except FileNotFoundError:
        raise StorageError(f"there is no {url}: the artifact was never finished, or it was removed") from None
    manifest: Manifest = records.unpack(Manifest, data, url)
    if keys is not None:
        # Only the place needs what the record says; then all of it is believed or nothing.
        manifest = _signed(data, signed_places(manifest.run, url), keys)
    elif manifest.signed:
        say(f"{url} is signed, and there is no --key-file: the signature is not checked")
    if manifest.checkpoint != name or manifest.attempt != records.attempt_of(name):
        raise Corrupt(f"{url} is of another artifact")
    return manifest


def signed_places(run: str | None, url: str) -> list[str]:
    """What the manifest at a URL may be signed for: its key below a root, or at a URI of its own its run and URL.

    The root need not be known: below one, an artifact lies in a folder that spells its run.
    """
    if run is None:
        return [url]
    parts = url.rsplit("/", 4)
    if len(parts) == 5 and parts[1] == "artifacts" and parts[0].endswith(f"/{run}"):
        return ["/".join((run, *parts[1:])), f"{run} {url}"]
    return [f"{run} {url}"]


def _signed(data: bytes, places: Sequence[str], keys: Keys) -> Manifest:
    for place in places[:-1]:
        with contextlib.suppress(Corrupt):
            found: Manifest = records.unpack(Manifest, data, place, keys)
            return found
    last: Manifest = records.unpack(Manifest, data, places[-1], keys)
    return last


def _outside(store: Store, key: str, uri: str, kind: str) -> Source:
    if kind == "file":
        try:
            size = store.size(key)
        except FileNotFoundError:
            raise StorageError(f"there is no file at {uri}") from None
        name = uri.rstrip("/").rpartition("/")[2]
        return Source(uri, store, "", kind, [Listed(name, size, key=key)], ours=False)
    path = local_path(uri)
    files = _found(store, key, uri) if path is None else _found_here(path, uri)
    flaw = next((file.path for file in files if not naming.is_path(file.path)), None)
    if flaw is not None:
        raise BadOption(f"{uri} has an object that cannot be a file here: {flaw[:200]!r}")
    clash = naming.flaw(files, single=False)
    if clash is not None:
        raise BadOption(f"{uri} cannot be a directory: {clash}")
    return Source(uri, store, key if path is None else "", kind, files, ours=False)


def _found(store: Store, key: str, uri: str) -> list[File]:
    names = store.names(key)
    if not names:
        try:
            store.size(key)
        except (FileNotFoundError, StorageError):
            raise StorageError(f"there is nothing at {uri}") from None
        raise BadOption(f"{uri} is one object, and no directory; say so with --input-type PATH=file")
    below = len(key) + 1 if key else 0
    files: list[File] = [Listed(name[below:], size) for name, size in names]
    # Folders too, as a disk has them: so that the sum of all is the same, wherever it lies.
    folders: set[str] = set()
    for file in files:
        above = file.path.rpartition("/")[0]
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
    paths = {file.path for file in files}
    return [*(File(path=path, directory=True) for path in sorted(folders - paths) if naming.is_path(path)), *files]


def _found_here(path: str, uri: str) -> list[File]:
    """A folder of this machine, with its empty folders, links and modes, which a listing of objects has not."""
    if os.path.isfile(path):
        raise BadOption(f"{uri} is one file, and no directory; say so with --input-type PATH=file")
    if not os.path.isdir(path):
        raise StorageError(f"there is no directory {path}")
    files: list[File] = []
    try:
        for relative, item, status in artifacts.entries_of(path):
            if stat.S_ISDIR(status.st_mode):
                files.append(File(path=relative, directory=True))
            elif stat.S_ISLNK(status.st_mode):
                files.append(File(path=relative, link=os.readlink(item)))
            else:
                mode = stat.S_IMODE(status.st_mode) & 0o777
                # A link to a file outside stands for that file.
                files.append(Listed(relative, status.st_size, mode, os.path.realpath(item).strip("/")))
    except artifacts.NotKept as refusal:
        raise BadOption(f"{uri} cannot be copied: {refusal}") from None
    return files
