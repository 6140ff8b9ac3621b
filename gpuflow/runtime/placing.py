"""An input at its place. The place may be a mount point, so that nothing can be put there as a whole, by rename.

What comes is gathered in a hidden folder at the place (`.gpuflow-input`; of one file, beside it), which says that it is
ours and unfinished. Once all is there and checked, each entry is moved to its place, and the folder goes: the command
sees its data and nothing else. An end in the middle leaves the folder, and the next attempt goes on with what is whole
in it. Two that fill the same place take turns, and the second finds it done.

Whatever else lies at the place is somebody's: it is never removed, and never mixed with what is fetched.
"""

from __future__ import annotations

import contextlib
import os
import stat
import time

from gpuflow.runtime import naming
from gpuflow.runtime.comparing import Comparison, compare, hashed
from gpuflow.runtime.files import NotAFile, Shared
from gpuflow.runtime.options import BadOption
from gpuflow.runtime.records import Corrupt

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gpuflow.runtime.sources import Source

    Fetch = Callable[[Shared, str, set[str]], None]

HIDDEN = naming.STAGED
_GLANCE = 0.1
_OFTEN = 100
"""How often a folder may vanish under our hands before it is believed that nothing can be made there."""


class Place:
    """One path that an input belongs at. `passed` hears of each piece that is read here, and may raise."""

    def __init__(self, path: str, source: Source, passed: Callable[[int], None]) -> None:
        parent, name = os.path.split(path)
        self.path = os.path.join(os.path.realpath(parent), name)
        self.shared = Shared(os.path.dirname(self.path))
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
        """What lies here now."""
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
        whole = hashed(self.shared, self.path, self.passed) if worth_it else None
        if not file.sha256 and learn:
            file.sha256 = whole or ""
        found.same.add(file.path) if whole and whole == file.sha256 else found.other.append(file.path)
        return found

    # -- how it comes

    def fill(self, fetch: Fetch, wait: Callable[[], None]) -> None:
        """Bring what is missing. `fetch` brings files below a folder, or the one file; it knows of what has arrived."""
        self.shared.make("" if self.single else self.path)
        with self._locked(wait):
            if not self.source.is_known:
                here = self.look()
                if here.foreign and not self.own:
                    self._give_up(here)
                arrived = self._staged_of_size()
            else:
                here = self._without_what_was_changed(self.look())
                arrived = here.same | self._staged()
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
    def _locked(self, wait: Callable[[], None]) -> Iterator[None]:
        """One of many does the work, the others wait and find it done. The lock ends with its process."""
        vanished = 0
        for place in (self.hidden, self.staged):
            if self.shared.has(place) and not self.shared.is_folder(place):
                raise self._refusal(f"{place} is no folder of ours")
        while True:
            try:
                handle = self._taken(os.path.join(self.hidden, "lock"))
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
            time.sleep(_GLANCE)
        try:
            yield
        finally:
            os.close(handle)

    def _taken(self, path: str) -> int | None:
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

    def _staged(self) -> set[str]:
        """What an attempt before has fetched and not moved. What is not whole is removed."""
        if self.single:
            (file,) = self.source.files
            path = os.path.join(self.staged, "file")
            if file.sha256 and hashed(self.shared, path, self.passed) == file.sha256:
                return {file.path}
            self.shared.discard(path)
            return set()
        found = compare(self.shared, self.staged, self.source.files, self.passed, among_others=True)
        for relative in [*found.other, *found.foreign]:
            self.shared.discard(os.path.join(self.staged, relative))
        return found.same

    def _staged_of_size(self) -> set[str]:
        """Of data from outside only the sum of all can be checked: without it, it is fetched from the beginning."""
        if self.source.sum is None or not self.shared.is_folder(self.staged):
            self.shared.discard(self.staged)
            return set()
        if self.single:
            (file,) = self.source.files
            path = os.path.join(self.staged, "file")
            file.sha256 = hashed(self.shared, path, self.passed) or ""
            if file.sha256 == self.source.sum:
                return {file.path}
            self.shared.discard(path)
            file.sha256 = ""
            return set()
        found = compare(self.shared, self.staged, self.source.files, self.passed, among_others=True, learn=True)
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
        raise self._refusal(_what(here))

    def _refusal(self, what: str) -> BadOption:
        return BadOption(
            f"the input {self.path} cannot be placed: {what}; {self.source.uri} is neither mixed with it nor put over "
            "it. Use an empty path, or remove what is there"
        )

    def _move(self) -> None:
        """Each entry to its place, whole; folders that are there already are gone into."""
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


def _what(here: Comparison) -> str:
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
