"""Inputs that a pod of this node has fetched before: a folder that its pods share, by content, of bounded size.

```
<cache>/<name>/content/…   an entry: appears whole, by rename; or `content` is the one file
<cache>/<name>/entry.json  its bytes; the time of this file is when it was used last
<cache>/.new-<name>/       one that is being fetched, with the bytes it will have
<cache>/.gone-<random>/    one that is being removed
<cache>/.locks/<name>      held by who fetches or removes an entry, shared by those who copy from it
<cache>/.locks/room        held while room is made
```

The name is a hash over kind, paths, sizes, hashes and links; of data from outside, the digest that was given. Locks end
with their process, so that a kill leaves nothing that others wait for: what is half-fetched is taken up by the next who
wants it, or removed. Every byte is checked on its way out of the cache, against the artifact's own manifest: whoever
else may write here can spoil an entry, which is then fetched again, or delay others, and nothing more. The cache is
never a reason to fail: without it, the input is fetched, also when whoever holds a lock shows no sign of life.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from gpuflow.runtime import file_lock, records
from gpuflow.runtime.comparing import LEAVE, compare, hashed
from gpuflow.runtime.directory import discard, dump, load
from gpuflow.runtime.folder_store import Folder
from gpuflow.runtime.landing import NoRoom
from gpuflow.runtime.progress import amount
from gpuflow.runtime.records import Corrupt, File

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuflow.runtime.sources import Source

_NEW, _GONE = ".new-", ".gone-"
_BEAT = 5.0
PATIENCE = 60.0
"""Seconds without a sign of life from whoever holds a lock, after which an input is fetched without the cache."""


class Stuck(OSError):
    """Somebody holds a lock and does nothing."""


class NodeCache:
    """The cache of one node. `wait` is called while another pod is at work, and may raise."""

    def __init__(self, folder: str, size: int, say: Callable[[str], None], wait: Callable[[], None]) -> None:
        self.folder, self.size, self.say, self.wait = os.path.abspath(folder), size, say, wait

    @contextlib.contextmanager
    def holding(
        self, source: Source, fetch: Callable[[str, set[str]], None], passed: Callable[[int], None]
    ) -> Iterator[Folder | None]:
        """The entry of an artifact as a store, fetched if need be; None when it cannot be had.

        In the store the files lie at `content/<path>`, or the one file at `content`. It is not removed meanwhile.
        """
        name = name_of(source)
        if source.size > self.size:
            self.say(f"{source.uri} has {amount(source.size)}, more than the whole cache: it is fetched without it")
            yield None
            return
        with contextlib.ExitStack() as lock:
            try:
                there = self._entry(name, source, fetch, passed, lock)
            except (OSError, NoRoom) as refusal:
                self.say(f"the cache {self.folder} cannot be used: {refusal}; {source.uri} is fetched without it")
                there = None
            yield there

    def drop(self, source: Source) -> None:
        """Remove a spoiled entry, unless somebody copies from it: then they will find out too."""
        with contextlib.suppress(OSError, file_lock.Busy), self._lock(name_of(source), None):
            self._remove(name_of(source))

    def _entry(
        self,
        name: str,
        source: Source,
        fetch: Callable[[str, set[str]], None],
        passed: Callable[[int], None],
        lock: contextlib.ExitStack,
    ) -> Folder | None:
        said = False

        began = time.monotonic()

        def wait() -> None:
            nonlocal said
            if not said:
                self.say(f"another pod of this node fetches {source.uri}; waiting for it")
            said = True
            if time.monotonic() - began > PATIENCE and self._silent_for(name) > PATIENCE:
                raise Stuck("another pod holds a lock there and does not move")
            self.wait()

        path = os.path.join(self.folder, name)
        while True:
            with contextlib.ExitStack() as own:
                own.enter_context(self._lock(name, wait, shared=True))
                if os.path.isdir(path):
                    with contextlib.suppress(OSError):
                        os.utime(os.path.join(path, "entry.json"))
                    lock.push(own.pop_all())
                    return Folder(path, lasting=False)
            with self._lock(name, wait):
                if not os.path.isdir(path) and not self._fill(name, source, fetch, passed):
                    return None

    def _fill(
        self, name: str, source: Source, fetch: Callable[[str, set[str]], None], passed: Callable[[int], None]
    ) -> bool:
        """Fetch an entry; False when there is no room. Only whoever holds its lock alone comes here."""
        new = os.path.join(self.folder, f"{_NEW}{name}")
        began = time.monotonic()

        def wait() -> None:
            if time.monotonic() - began > PATIENCE:
                raise Stuck("another pod makes room there and does not end")
            self.wait()

        with self._lock("room", wait):
            self._clear_what_the_dead_left(name)
            if not self._make_room(source.size, name):
                self.say(f"the cache has no room for {amount(source.size)}: all else in it is in use")
                return False
            os.makedirs(new, exist_ok=True)
            dump(os.path.join(new, "entry.json"), {"bytes": source.size, "uri": source.uri})
        content = os.path.join(new, "content")
        try:
            with _beating(os.path.join(new, "entry.json")):
                fetch(content, _whole(content, source, passed))
        except (OSError, NoRoom):
            discard(new)
            raise
        if not source.adds_up():
            source.forget_hashes()
            discard(new)
            raise Corrupt(f"{source.uri} does not add up to sha256:{source.sum}")
        os.rename(new, os.path.join(self.folder, name))
        return True

    def _silent_for(self, name: str) -> float:
        """Seconds since whoever fetches an entry last said that they live."""
        try:
            return time.time() - os.stat(os.path.join(self.folder, f"{_NEW}{name}", "entry.json")).st_mtime
        except OSError:
            return PATIENCE + 1

    def _make_room(self, needed: int, name: str) -> bool:
        """Remove what was not used for longest until there is room; never what is in use."""
        sizes, used = {}, {}
        for entry in os.listdir(self.folder):
            if entry == f"{_NEW}{name}" or (entry.startswith(".") and not entry.startswith(_NEW)):
                continue
            note = os.path.join(self.folder, entry, "entry.json")
            known = (load(note) or {}).get("bytes")
            sizes[entry] = known if isinstance(known, int) else 0
            if not entry.startswith("."):
                try:
                    used[entry] = os.stat(note).st_mtime
                except OSError:
                    used[entry] = 0.0
        free = self.size - sum(sizes.values())
        for entry in sorted(used, key=lambda entry: used[entry]):
            if free >= needed:
                break
            with contextlib.suppress(file_lock.Busy), self._lock(entry, None):
                self._remove(entry)
                free += sizes[entry]
        return free >= needed

    def _clear_what_the_dead_left(self, name: str) -> None:
        for entry in os.listdir(self.folder):
            if entry.startswith(_GONE):
                discard(os.path.join(self.folder, entry))
            elif entry.startswith(_NEW) and entry != f"{_NEW}{name}":
                with contextlib.suppress(file_lock.Busy), self._lock(entry[len(_NEW) :], None):
                    discard(os.path.join(self.folder, entry))

    def _remove(self, name: str) -> None:
        """An entry goes at once, by its name; its bytes after that. The caller holds its lock alone."""
        gone = os.path.join(self.folder, f"{_GONE}{os.urandom(8).hex()}")
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(self.folder, name), gone)
        discard(gone)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(self.folder, ".locks", name))

    def _lock(
        self, name: str, wait: Callable[[], None] | None, *, shared: bool = False
    ) -> contextlib.AbstractContextManager[None]:
        return file_lock.held(os.path.join(self.folder, ".locks", name), wait, shared=shared)


def name_of(source: Source) -> str:
    """By content alone: the same files from another run are the same entry."""
    import hashlib

    if source.sum is not None:
        return f"{source.kind}-{source.sum}"
    listed = [{**file.plain(), "mode": None} for file in sorted(source.files, key=lambda file: file.path)]
    if source.kind == "file":
        listed = [{**listed[0], "path": ""}]
    return hashlib.sha256(records.encode({"kind": source.kind, "files": listed})).hexdigest()


def key_of(source: Source, file: File) -> str:
    """Where a file lies in an entry."""
    return "content" if source.kind == "file" else f"content/{file.path}"


def _whole(content: str, source: Source, passed: Callable[[int], None]) -> set[str]:
    """What a fetch that was killed has brought; the rest of it is removed. Of data from outside nothing is believed."""
    if not source.is_known:
        discard(content)
        return set()
    if source.kind == "file":
        (file,) = source.files
        if os.path.isfile(content) and hashed(content, passed) == file.sha256:
            return {file.path}
        discard(content)
        return set()
    found = compare(content, source.files, passed, among_others=True, modes=LEAVE)
    for relative in [*found.other, *found.foreign]:
        discard(os.path.join(content, *relative.split("/")))
    return found.same


@contextlib.contextmanager
def _beating(path: str) -> Iterator[None]:
    """Say that we live while we fetch: a large entry takes long, and others wait for it."""
    over = threading.Event()

    def beat() -> None:
        while not over.wait(_BEAT):
            with contextlib.suppress(OSError):
                os.utime(path)

    thread = threading.Thread(target=beat, name="cache-beat", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
