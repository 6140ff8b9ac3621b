"""What the command reads, at its paths before it starts: fetched, checked, placed. All of it or a refusal.

Nothing here is the command's failure: storage that fails for as long as it may, an artifact that was never finished,
bytes that do not match and a path where somebody's data lies are exit code 78, and cost no budget.

An input is an artifact, whose manifest says what it is, or data from outside, as a listing shows it. A URI that ends
like `…/000007-1a2b3c4d/files` is an artifact's: without its manifest it does not exist.

The place may be a mount point, so that nothing can be put there as a whole, by rename. What comes is gathered in a
hidden folder at the place (`.gpuflow-input`; of one file, beside it), which says that it is gpuflow's and unfinished.
Once all is there and checked, each entry is moved to its place, and the folder goes: the command sees its data and
nothing else. An end in the middle leaves the folder, and the next attempt goes on with what is whole in it. Two that
fill the same place take turns, and the second finds it done. Whatever else is at the place is somebody's: it is never
removed, and never mixed with what is fetched.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import threading
import time
from functools import partial

from gpuflow.runtime.artifacts import artifact_files
from gpuflow.runtime.artifacts.artifact_files import EXACT, Comparison, compare, hash_shared_file
from gpuflow.runtime.base import record_fields, records
from gpuflow.runtime.base.files import NotAFile, SharedFolder, close_after
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.records import Corrupt, File, Manifest, UnknownFormat
from gpuflow.runtime.checkpoints.transfer import TransferAbandoned
from gpuflow.runtime.stores import local_files
from gpuflow.runtime.stores.storage_timeout import Limit, persist
from gpuflow.runtime.stores.store import Progress, StorageError, Store, in_parallel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from gpuflow.runtime.artifacts.input_options import Input
    from gpuflow.runtime.base.signing import Keys

    Fetch = Callable[[SharedFolder, str, set[str]], None]

_ARTIFACT = re.compile(r"((?:.*/)?([0-9]{6,9}-[0-9a-f]{8}))/files(?:/([^/]+))?")
_INSIDE = re.compile(r"((?:.*/)?[0-9]{6,9}-[0-9a-f]{8})(?:/.*)?")


class ListedFile(File):
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
        if isinstance(file, ListedFile) and file.key is not None:
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
        return artifact_files.digest_of_files(self.kind, self.files)

    def sums(self) -> tuple[str, ...]:
        """What it may be called: by that, and an artifact also as its success marker and the engines call it."""
        own = (artifact_files.kept_output(self.kind, self.files, None, None).sha256,) if self.ours else ()
        return (self.digest(), *own)

    def forget_hashes(self) -> None:
        """What was read of data from outside does not count: it is read again."""
        for file in self.files if not self.ours else ():
            if isinstance(file, ListedFile):
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
        if (path := local_path(uri)) is not None:
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


def read_source(stores: Stores, uri: str, kind: str | None, keys: Keys | None, say: Callable[[str], None]) -> Source:
    """What a URI stands for. StorageError when it is not there, Corrupt when it is not what was kept."""
    store, key = stores.find(uri)
    if (match := _ARTIFACT.fullmatch(key)) is None:
        if (inside := _INSIDE.fullmatch(key)) is not None and _has_manifest(store, inside.group(1)):
            raise BadOption(f"{uri} is a part of an artifact; name all of it: {store.url(inside.group(1))}/files")
        return _read_outside(store, key, uri, kind or "directory")
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
        manifest = _unpack_signed(data, signed_places(manifest.run, url), keys)
    elif manifest.signed:
        say(f"{url} is signed, and there is no --key-file: the signature is not checked")
    if manifest.checkpoint != name or manifest.attempt != record_fields.attempt_of(name):
        raise Corrupt(f"{url} is of another artifact")
    return manifest


def signed_places(run: str | None, url: str) -> list[str]:
    """What the manifest at a URL may be signed for: its key below a root, or at a URI of its own its run and URL. The
    root need not be known: below one, an artifact lies in a folder that spells its run."""
    if run is None:
        return [url]
    parts = url.rsplit("/", 4)
    if len(parts) == 5 and parts[1] == "artifacts" and parts[0].endswith(f"/{run}"):
        return ["/".join((run, *parts[1:])), f"{run} {url}"]
    return [f"{run} {url}"]


def _unpack_signed(data: bytes, places: Sequence[str], keys: Keys) -> Manifest:
    for place in places[:-1]:
        with contextlib.suppress(Corrupt):
            found: Manifest = records.unpack(Manifest, data, place, keys)
            return found
    last: Manifest = records.unpack(Manifest, data, places[-1], keys)
    return last


def _read_outside(store: Store, key: str, uri: str, kind: str) -> Source:
    if kind == "file":
        try:
            size = store.size(key)
        except FileNotFoundError:
            raise StorageError(f"there is no file at {uri}") from None
        name = uri.rstrip("/").rpartition("/")[2]
        return Source(uri, store, "", kind, [ListedFile(name, size, key=key)], ours=False)
    path = local_path(uri)
    files = _list_objects(store, key, uri) if path is None else _list_folder(path, uri)
    flaw = next((file.path for file in files if not record_fields.is_path(file.path)), None)
    if flaw is not None:
        raise BadOption(f"{uri} has an object that cannot be a file here: {flaw[:200]!r}")
    if (clash := records.layout_problem(files, single=False)) is not None:
        raise BadOption(f"{uri} cannot be a directory: {clash}")
    return Source(uri, store, key if path is None else "", kind, files, ours=False)


def _list_objects(store: Store, key: str, uri: str) -> list[File]:
    names = store.names(key)
    if not names:
        try:
            store.size(key)
        except (FileNotFoundError, StorageError):
            raise StorageError(f"there is nothing at {uri}") from None
        raise BadOption(f"{uri} is one object, and no directory; say so with --input-type PATH=file")
    below = len(key) + 1 if key else 0
    files: list[File] = [ListedFile(name[below:], size) for name, size in names]
    # Folders too, as a disk has them: so that the sum of all is the same, wherever it lies.
    folders: set[str] = set()
    for file in files:
        above = file.path.rpartition("/")[0]
        while above and above not in folders:
            folders.add(above)
            above = above.rpartition("/")[0]
    paths = {file.path for file in files}
    return [
        *(File(path=path, directory=True) for path in sorted(folders - paths) if record_fields.is_path(path)),
        *files,
    ]


def _list_folder(path: str, uri: str) -> list[File]:
    """A folder of this machine, with its empty folders, links and modes, which a listing of objects has not."""
    if os.path.isfile(path):
        raise BadOption(f"{uri} is one file, and no directory; say so with --input-type PATH=file")
    if not os.path.isdir(path):
        raise StorageError(f"there is no directory {path}")
    files: list[File] = []
    try:
        for relative, item, status in artifact_files.entries_of(path):
            if stat.S_ISDIR(status.st_mode):
                files.append(File(path=relative, directory=True))
            elif stat.S_ISLNK(status.st_mode):
                files.append(File(path=relative, link=os.readlink(item)))
            else:
                mode = stat.S_IMODE(status.st_mode) & 0o777
                # A link to a file outside stands for that file.
                files.append(ListedFile(relative, status.st_size, mode, os.path.realpath(item).strip("/")))
    except artifact_files.NotKept as refusal:
        raise BadOption(f"{uri} cannot be copied: {refusal}") from None
    return files


HIDDEN = record_fields.STAGING_FOLDER
_POLL = 0.1
_OFTEN = 100
"""How often a folder may vanish under our hands before it is believed that nothing can be made there."""


class Place:
    """One path that an input belongs at. `passed` hears of each piece that is read here, and may raise."""

    def __init__(self, path: str, source: Source, passed: Callable[[int], None]) -> None:
        parent, name = os.path.split(path)
        self.path = os.path.join(os.path.realpath(parent), name)
        self.shared = SharedFolder(os.path.dirname(self.path))
        """Others may write beside it, and in it."""
        self.source, self.passed = source, passed
        self.single = source.kind == "file"
        self.hidden = os.path.join(os.path.dirname(self.path), f".{name}{HIDDEN}") if self.single else ""
        self.hidden = self.hidden or os.path.join(self.path, HIDDEN)
        self.staged = os.path.join(self.hidden, "files")
        self.own = False
        """Whether this very process has filled it before: what the command did to it since is repaired."""
        self.later = False
        """Whether attempts came before this one: what lies beside the whole input is what a command of theirs left."""
        self.left: list[str] = []
        """What was found so."""
        if not self.single and any(file.path.partition("/")[0] == HIDDEN for file in source.files):
            raise BadOption(f"{source.uri} has an entry {HIDDEN}, which cannot be placed; rename it")

    # -- what is there

    def is_filled(self) -> bool:
        """Whether all of it lies here already, byte for byte."""
        if os.path.lexists(self.hidden) or (not self.source.is_known and self.source.sum is None):
            return False
        if not (self.single or os.path.isdir(self.path)):
            return False  # an empty directory is something too
        there = self.look(learn=True, among_others=self.later)
        if self.later and not there.other:
            self.left, there.foreign = there.foreign, []
        if there.is_whole(self.source.files) and self.source.adds_up():
            return True
        if not self.own:
            self.source.forget_hashes()
        return False

    def look(self, *, learn: bool = False, among_others: bool = False) -> Comparison:
        """Compare what is at the path now with the source."""
        if os.path.islink(self.path):
            raise self._refusal(f"it is a link to {os.readlink(self.path)}")
        if self.single:
            return self._look_at_file(learn=learn)
        if os.path.lexists(self.path) and not os.path.isdir(self.path):
            raise self._refusal("it is no directory")
        among_others = among_others or self.own
        name, files, leave = os.path.basename(self.path), self.source.files, [HIDDEN]
        return compare(self.shared, name, files, self.passed, leave=leave, learn=learn, among_others=among_others)

    def _look_at_file(self, *, learn: bool) -> Comparison:
        (file,) = self.source.files
        found = Comparison()
        try:
            status = os.lstat(self.path)
        except FileNotFoundError:
            return found
        if stat.S_ISDIR(status.st_mode):
            raise self._refusal("it is a directory, and the input is one file (type: file in the pipeline)")
        worth_it = status.st_size == file.size and (file.sha256 or learn)
        whole = hash_shared_file(self.shared, self.path, self.passed) if worth_it else None
        if not file.sha256 and learn:
            file.sha256 = whole or ""
        found.same.add(file.path) if whole and whole == file.sha256 else found.other.append(file.path)
        return found

    # -- how it comes

    def fill(self, fetch: Fetch, wait: Callable[[], None]) -> None:
        """Bring what is missing. `fetch` brings files below a folder, or the one file; it knows of what has arrived."""
        self.shared.make("" if self.single else self.path)
        with self._lock(wait):
            if not self.source.is_known:
                here = self.look()
                if here.foreign and not self.own:
                    self._give_up(here)
                arrived = self._find_staged()
            else:
                here = self._without_what_was_changed(self.look())
                arrived = here.same | self._find_staged()
            fetch(self.shared, os.path.join(self.staged, "file") if self.single else self.staged, arrived)
            if not self.source.adds_up():
                found = self.source.digest()
                self.shared.discard(self.staged)
                self.source.forget_hashes()
                raise Corrupt(f"{self.source.uri} adds up to sha256:{found}, and should to sha256:{self.source.sum}")
            self._without_what_was_changed(self.look())
            self._move()
            self.shared.discard(self.hidden)

    @contextlib.contextmanager
    def _lock(self, wait: Callable[[], None]) -> Iterator[None]:
        """One of many does the work, the others wait and find it done. The lock ends with its process."""
        vanished = 0
        for place in (self.hidden, self.staged):
            if self.shared.has(place) and not self.shared.is_folder(place):
                raise self._refusal(f"{place} is no folder of ours")
        while True:
            try:
                handle = self._try_lock(os.path.join(self.hidden, "lock"))
            except FileNotFoundError:
                vanished += 1
                if vanished > _OFTEN:
                    raise
                continue  # its folder was removed meanwhile
            except NotAFile as refusal:
                raise self._refusal(f"{refusal.filename} is no lock of ours, but something else") from None
            if handle is not None:
                break
            wait()
            time.sleep(_POLL)
        with close_after(handle):
            yield

    def _try_lock(self, path: str) -> int | None:
        import fcntl

        # To read is enough for a lock, and all that another user may.
        handle = self.shared.open(path, os.O_RDONLY | os.O_CREAT, make=True)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Whoever held it has removed the file: then this is not the one that the next will find.
            if self.shared.has(path) and os.path.samestat(os.fstat(handle), self.shared.status(path)):
                return handle
        except BlockingIOError:
            pass
        except OSError:
            return handle  # no locks on this file system: then there is no one to wait for
        os.close(handle)
        return None

    def _find_staged(self) -> set[str]:
        """What an attempt before has fetched and not moved. What is not whole is removed. Of data from outside only the
        sum of all can be checked: without it, it is fetched from the beginning."""
        learn = not self.source.is_known
        if learn and (self.source.sum is None or not self.shared.is_folder(self.staged)):
            self.shared.discard(self.staged)
            return set()
        if self.single:
            (file,) = self.source.files
            path, wanted = os.path.join(self.staged, "file"), self.source.sum if learn else file.sha256
            if wanted and hash_shared_file(self.shared, path, self.passed) == wanted:
                file.sha256 = wanted
                return {file.path}
            self.shared.discard(path)
            return set()
        found = compare(self.shared, self.staged, self.source.files, self.passed, among_others=True, learn=learn)
        for relative in [*found.other, *found.foreign]:
            self.shared.discard(os.path.join(self.staged, relative))
        return found.same

    def _without_what_was_changed(self, here: Comparison) -> Comparison:
        """Refuse what is not ours. What the command of an earlier attempt in this process changed comes again."""
        if not (here.other or here.foreign):
            return here
        if not self.own:
            self._give_up(here)
        for relative in here.other:
            self.shared.discard(self.path if self.single else os.path.join(self.path, relative))
        return here

    def _give_up(self, here: Comparison) -> None:
        if not self.shared.is_folder(self.staged) or not self.shared.names(self.staged):
            self.shared.discard(self.hidden)
        raise self._refusal(_describe(here))

    def _refusal(self, what: str) -> BadOption:
        return BadOption(
            f"the input {self.path} cannot be placed: {what}; {self.source.uri} is neither mixed with it nor put over "
            "it. Use an empty path, or remove what is there"
        )

    def _move(self) -> None:
        """Move each entry to its place; existing folders are merged."""
        if self.single:
            path = os.path.join(self.staged, "file")
            if self.shared.has(path):
                self.shared.rename(path, self.path)
        elif self.shared.is_folder(self.staged):
            self._merge(self.staged, self.path)

    def _merge(self, source: str, target: str) -> None:
        for name in self.shared.names(source):
            old, new = os.path.join(source, name), os.path.join(target, name)
            if not self.shared.has(new):
                self.shared.rename(old, new)
            elif self.shared.is_folder(old) and self.shared.is_folder(new):
                self._merge(old, new)
            # What is there already was compared, and is the same.


def _describe(here: Comparison) -> str:
    named = sorted(here.foreign) or sorted(here.other)
    what = "is in the way" if here.foreign else "has other bytes"
    more = f" and {len(named) - 1} more" if len(named) > 1 else ""
    return f"{named[0][:200]!r}{more} {what}"


def can_be_a_link(path: str) -> bool:
    """Whether a link may stand at a path: there is nothing yet, or an empty folder that is no mount."""
    if not os.path.lexists(path):
        return True
    if os.path.islink(path) or not os.path.isdir(path) or os.path.ismount(path):
        return False
    try:
        return not os.listdir(path)
    except OSError:
        return False


def link(path: str, target: str) -> bool:
    """Make it one; False when it cannot be made."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if os.path.isdir(path):
            os.rmdir(path)
        os.symlink(target, path)
        return True
    except OSError:
        return False


_TRIES = 2
"""How often bytes that do not match are read before that is believed."""
_MANIFESTS = 8
"""Manifests that are read at a time."""
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PLACED_SOURCES: dict[tuple[str, str], Source] = {}
"""What this process has placed, for attempts that follow in it: the same bytes again, though a listing may change."""


class Inputs:
    """All inputs of a step on their way. `proceed` says whether to go on; `beat` shows that something moves."""

    def __init__(
        self,
        inputs: Sequence[Input],
        keys: Keys | None,
        seconds: float,
        open_place: Callable[[str], Store],
        say: Callable[[str], None],
        proceed: Callable[[], bool],
        beat: Callable[[], None] = lambda: None,
    ) -> None:
        self.inputs, self.keys, self.seconds = inputs, keys, seconds
        self.say, self.proceed, self.beat = say, proceed, beat
        self.stores = Stores(open_place)
        self.limit = Limit(seconds)
        self.later = False
        """Whether attempts of this run came before this one."""
        self._lock = threading.Lock()
        self._next_beat = 0.0

    def bring(self) -> None:
        """Place all inputs. BadOption or StorageError on failure; TransferAbandoned on a stop request."""
        parts = [(each, place, uri) for each in self.inputs for place, uri in each.parts]
        found: dict[str, Source] = {}

        def look(part: tuple[Input, str, str]) -> None:
            each, place, uri = part
            found[place] = _PLACED_SOURCES.get((place, uri)) or self._source(each, uri)

        for _, _, uri in parts:
            self._persist(partial(self.stores.find, uri))
        in_parallel(look, parts, _MANIFESTS)
        for each in self.inputs:
            if each.fan_in:
                self._make_folder(each)
        for each, place, uri in parts:
            self._place(each, place, found[place])
            _PLACED_SOURCES[place, uri] = found[place]

    def _source(self, each: Input, uri: str) -> Source:
        """What a URI stands for, once its storage says so."""
        for attempt in range(_TRIES):
            try:
                source: Source = self._persist(lambda: read_source(self.stores, uri, each.kind, self.keys, self.say))
                break
            except Corrupt as damage:
                self._read_again(each.path, damage, attempt)
        if each.digest is not None and source.ours and each.digest not in source.sums():
            raise BadOption(
                f"the input {each.path} is sha256:{source.digest()}, and should be sha256:{each.digest}: {uri}"
            )
        source.sum = None if source.ours else each.digest
        return source

    def _make_folder(self, each: Input) -> None:
        """Of a fan-in: the numbers stand in it, and nothing else."""
        if os.path.islink(each.path):
            raise BadOption(f"the input {each.path} cannot be placed: it is a link; remove it, or use another path")
        try:
            os.makedirs(each.path, exist_ok=True)
            names = set(os.listdir(each.path))
        except FileExistsError:
            raise BadOption(f"the input {each.path} cannot be placed: it is no directory") from None
        except OSError as refusal:
            raise BadOption(f"the input {each.path} cannot be placed: {refusal}") from None
        own = {os.path.basename(place) for place, _ in each.parts}
        own |= {f".{name}{HIDDEN}" for name in own}
        beyond = sorted(names - own - ({"lost+found"} if os.path.ismount(each.path) else set()))
        if beyond and not any((place, uri) in _PLACED_SOURCES for place, uri in each.parts):
            raise BadOption(
                f"the input {each.path} cannot be placed: {beyond[0][:200]!r} is in the way, and is not mixed with it; "
                "use an empty path, or remove what is there"
            )

    def _place(self, each: Input, path: str, source: Source) -> None:
        place = Place(path, source, self._add_progress)
        place.own, place.later = (path, source.uri) in _PLACED_SOURCES, self.later
        try:
            if self._is_linked(place) or place.is_filled():
                left = f"; {place.left[0][:200]!r} beside it stays, from an attempt before" if place.left else ""
                self.say(f"the input {path} is there already, as {source.uri} has it{left}")
                return
            if self._link(place):
                return
            told = Progress(self.say, f"the input {path}")
            self._fill(place, told)
            self.say(told.summary())
        except local_files.NoRoom as refusal:
            raise BadOption(f"the input {path} cannot be placed: {refusal}; give it a larger volume") from None
        except OSError as refusal:
            hint = "; give it a larger volume" if refusal.errno in _FULL else ""
            raise BadOption(f"the input {path} cannot be placed: {refusal}{hint}") from None

    # -- without a copy

    def _is_linked(self, place: Place) -> bool:
        """Whether an attempt before has made it a link to where it lies, which still has it."""
        target = place.source.local()
        return (
            target is not None
            and os.path.islink(place.path)
            and os.readlink(place.path) == target
            and self._is_whole_there(place, target)
        )

    def _link(self, place: Place) -> bool:
        """Link an input that is on a local disk instead of copying it, where a link is possible."""
        if (target := place.source.local()) is None or os.path.lexists(place.hidden):
            return False
        if not can_be_a_link(place.path):
            self.say(f"the input {place.path} is a mount, or there is something: {target} is copied, not linked")
            return False
        if not self._is_whole_there(place, target):
            # A store keeps files only: what else there is, and how they may be used, its manifest knows.
            self.say(f"the input {place.path} is copied: {target} has not all of its links, empty folders and modes")
            return False
        if not link(place.path, target):
            return False
        self.say(f"the input {place.path} is a link to {target}, without a copy; to change it would change that")
        return True

    def _is_whole_there(self, place: Place, target: str) -> bool:
        source = place.source
        if not source.ours and source.sum is None:
            return True
        if source.kind == "file":
            mode = source.files[0].mode
            if mode is not None and os.path.isfile(target) and os.stat(target).st_mode & 0o777 != mode & 0o777:
                return False
            shared = SharedFolder(os.path.dirname(target))
            return hash_shared_file(shared, target, self._add_progress) == (
                source.files[0].sha256 if source.ours else source.sum
            )
        if not os.path.isdir(target):
            return False  # a store keeps no empty folder
        there = compare(SharedFolder(target), "", source.files, self._add_progress, learn=not source.ours, modes=EXACT)
        if there.is_whole(source.files) and source.adds_up():
            return True
        source.forget_hashes()
        return False

    # -- by a copy

    def _fill(self, place: Place, told: Progress) -> None:
        source = place.source
        for attempt in range(_TRIES):
            try:
                place.fill(lambda *where: self._fetch(source, told, *where), self._wait)
                return
            except Corrupt as damage:
                self._read_again(place.path, damage, attempt)

    def _fetch(self, source: Source, told: Progress, shared: SharedFolder, into: str, arrived: set[str]) -> None:
        missing = [file for file in source.files if file.sha256 is not None and file.path not in arrived]
        told.begin(source.size, source.count, source.size - sum(file.size or 0 for file in missing))

        def report_bytes(count: int) -> None:
            self._add_progress(count)
            told.add(count)

        place = (source.store, source.prefix, source.files, shared, into, source.key, report_bytes)
        self._persist(
            lambda: local_files.bring_files(*place, single=source.kind == "file", arrived=arrived), lambda: len(arrived)
        )

    # -- storage that fails for a while, and notices

    def _read_again(self, path: str, damage: Exception, attempt: int) -> None:
        if attempt + 1 == _TRIES:
            raise BadOption(f"the input {path} cannot be used: {damage}") from damage
        self.say(f"{damage}; reading it again")

    def _persist(self, action: Callable[[], Any], settled: Callable[[], int] = lambda: 0) -> Any:
        limit = self.limit = Limit(self.seconds)
        try:
            return persist(action, limit, lambda: not self.proceed(), settled=settled, say=self.say)
        except UnknownFormat as refusal:
            raise BadOption(str(refusal)) from None

    def _add_progress(self, count: int) -> None:
        if not self.proceed():
            raise TransferAbandoned()
        self.limit.progress(count)
        with self._lock:
            now = time.monotonic()
            if now < self._next_beat:
                return
            self._next_beat = now + 1.0
        self.beat()

    def _wait(self) -> None:
        """Wait for another process that is fetching the same input."""
        self.limit.progress()
        self._add_progress(0)
