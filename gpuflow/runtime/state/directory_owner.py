"""Who works in a checkpoint directory: one living supervisor, or several attempts of one run.

The supervisor holds a lock on `.gpuflow/lock` for as long as it lives; the kernel gives it back however it ends. A
directory that a living supervisor of another run, step or item holds is refused: two programs would take each other's
checkpoints for their own. An older attempt of the same run is not another run: the records of the run decide between
the two. Each attempt holds a lock on `alive` in its own folder, so that nobody takes it for dead: of three attempts of
one run, the second never has the lock of the directory, and is alive all the same when the third takes it from the
first.

Where a file system has no locks (some FUSE and SMB mounts), nobody can tell that another run lives: a directory there
is refused, unless it is a folder of the run's own (`--own-folder`).

Orphans are programs of earlier attempts that outlived their supervisor. They are ended before another program starts in
their place. They are known by the mark in their environment: that of this run, or, when they work in this directory,
that of the attempt which the directory's owner file names. What that file says alone ends nobody: anyone may have
written it. Whatever has a living supervisor is left alone, and so are other users' processes.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time

from gpuflow.runtime.base import container
from gpuflow.runtime.base import options as table
from gpuflow.runtime.base.attempt_folder import identity_of, process_began
from gpuflow.runtime.base.child import say
from gpuflow.runtime.base.files import SharedFolder
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.state.checkpoint_dir import HIDDEN_FOLDER, dump, load
from gpuflow.runtime.stores.folder_store import Folder

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.state.attempts import History
    from gpuflow.runtime.state.checkpoint_dir import Directory
    from gpuflow.runtime.state.ledger import Ledger

LOCK_TAKEN = (errno.EWOULDBLOCK, errno.EACCES)
"""What a lock that someone else has is refused with; anything else says that there are no locks here."""
_TRIES = 100


class AttemptLock:
    """This attempt's own lock."""

    def __init__(self) -> None:
        self._handle = -1

    def hold(self, shared: SharedFolder, folder: str) -> bool:
        """Take it, again when the folder was made anew; False where there are no locks."""
        path = os.path.join(folder, "alive")
        for _ in range(_TRIES):
            if is_same_file(self._handle, shared, path):
                return True
            self.leave()
            with contextlib.suppress(FileNotFoundError):
                shared.make(folder)
            try:
                self._handle = _lock_alive(shared, path)
            except OSError as refusal:
                # Someone found the folder before there was a lock on it, and is removing it.
                if refusal.errno not in (*LOCK_TAKEN, errno.ENOENT):
                    return False
                time.sleep(0.01)
        return is_same_file(self._handle, shared, path)

    def leave(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = -1


def remove_if_dead(shared: SharedFolder, folder: str) -> None:
    """Remove an attempt's folder unless its supervisor is alive. Others wait for the lock."""
    try:
        handle = _lock_alive(shared, os.path.join(folder, "alive"))
    except OSError:
        return
    shared.discard(folder)
    os.close(handle)


def is_same_file(handle: int, shared: SharedFolder, path: str) -> bool:
    """Whether a path still leads to the file that was opened."""
    try:
        return handle >= 0 and os.path.samestat(os.fstat(handle), shared.status(path))
    except OSError:
        return False


def _lock_alive(shared: SharedFolder, path: str) -> int:
    return _lock(shared.open(path, os.O_RDWR | os.O_CREAT, make=True))


def _lock(handle: int) -> int:
    """The same handle with a lock; closed when that is refused."""
    import fcntl

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        raise
    return handle


_PATIENCE = 2.0
"""How long a supervisor that is just ending is waited for."""


class Occupancy:
    """This attempt's hold on a checkpoint directory. `arbitrated`: durable records say which attempt owns the run."""

    def __init__(
        self, directory: Directory, ledger: Ledger, say: Callable[[str], None], *, arbitrated: bool = True
    ) -> None:
        self.directory, self.ledger, self.say, self.arbitrated = directory, ledger, say, arbitrated
        self.held, self._no_locks = False, ""
        self._handle = -1
        self._alive = AttemptLock()
        self.said: dict[str, Any] = {}

    def enter(self) -> None:
        """Take the directory, or BadOption when another run that is alive has it."""
        self.directory.enter(identity_of(self.ledger.base), self.ledger.id)
        self._refuse_links()
        self.directory.shared.make(self.directory.hidden)
        self._alive.hold(self.directory.shared, self.directory.attempt_folder)
        # What we have just made shows whose our files are here: on a mount that may be another than we are.
        self.directory.uid = self.directory.shared.status(self.directory.attempt_folder).st_uid
        before = read_owner(self.directory)
        try:
            if self.renew():
                self._clear(before)
            elif not self._no_locks:
                self._wait_for_holder()
            elif not self.directory.is_own:
                raise BadOption(
                    f"{self.directory.path} is on a file system without locks ({self._no_locks}), where another run "
                    "would not be noticed: use another one, or give this run a folder of its own with --own-folder "
                    "(GPUFLOW_RUN_OWN_FOLDER=true)"
                )
        except BadOption:
            self.leave()
            remove_if_dead(self.directory.shared, self.directory.attempt_folder)
            raise
        self.directory.prepare()
        self.directory.occupancy = self

    def renew(self) -> bool:
        """Try for the lock: the older attempt that had it may be gone, or the directory was made anew."""
        path = os.path.join(self.directory.hidden, "lock")
        self._alive.hold(self.directory.shared, self.directory.attempt_folder)
        if self.held and is_same_file(self._handle, self.directory.shared, path):
            return True
        self._give_back()
        handle = self.directory.shared.open(path, os.O_RDWR | os.O_CREAT)
        try:
            _lock(handle)
        except OSError as refusal:
            self._no_locks = "" if refusal.errno in LOCK_TAKEN else str(refusal.strerror)
            return False
        self._handle, self.held = handle, True
        os.ftruncate(handle, 0)
        os.pwrite(
            handle, f"{self.directory.identity} {self.ledger.id} {self.ledger.base}\n".encode(errors="replace"), 0
        )
        return True

    def write_again(self) -> None:
        """Write the owner file again after the directory was recreated."""
        if self.said and not read_owner(self.directory):
            dump(self.directory.shared, _owner_path(self.directory), self.said)

    def leave(self) -> None:
        self._alive.leave()
        self._give_back()

    def _give_back(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
        self._handle, self.held = -1, False

    def _wait_for_holder(self) -> None:
        """Someone holds the lock: go on beside an older attempt of this run, wait a moment for anyone else."""
        until = time.monotonic() + _PATIENCE
        while True:
            holder = self._holder()
            if self.arbitrated and holder[0] == self.directory.identity:
                self.say(f"an older attempt of this run still works in {self.directory.path}; it will find out")
                return
            if time.monotonic() >= until:
                raise self._refusal(holder[2])
            time.sleep(0.1)
            if self.renew():
                self._clear(read_owner(self.directory))
                return

    def _holder(self) -> tuple[str, str, str]:
        try:
            line = self.directory.shared.read(os.path.join(self.directory.hidden, "lock")).decode("utf-8", "replace")
            words = line.rstrip("\n").split(" ", 2)
        except OSError:
            words = []
        identity, attempt, base = [*words, "", "", ""][:3]
        return identity, attempt, base

    def _refusal(self, other: str) -> BadOption:
        return BadOption(
            f"{self.directory.path} is in use by {other or 'another run'}, which is alive; {self.ledger.base} cannot "
            "work there too: give it a --checkpoint-dir of its own, or start both with --own-folder"
        )

    def _clear(self, before: dict[str, Any]) -> None:
        """The lock is ours, so no other run lives: remove what the dead left half done, theirs and ours. On another
        machine's word for it nothing of another run is touched: a mount may keep locks to itself."""
        here, shared = before.get("boot") == boot_id(), self.directory.shared
        try:
            folders = shared.names(self.directory.hidden)
        except OSError:
            return
        for name in folders:
            path = os.path.join(self.directory.hidden, name)
            if not _is_id(name) or not (here or name == self.directory.identity):
                continue
            # What another run wrote down as finished stays: without a store it is all that run can resume from.
            for attempt in shared.names(path) if shared.is_folder(path) else []:
                inside = os.path.join(path, attempt)
                if _is_id(attempt) and attempt != self.ledger.id and shared.is_folder(inside):
                    remove_if_dead(shared, inside)

    def _refuse_links(self) -> None:
        """BadOption for a link where our folders and files are: it would lead what we write to another place."""
        directory = self.directory
        folders = (directory.hidden, directory.own_folder, os.path.join(directory.own_folder, "finished"))
        for path in folders:
            _refuse_unless_folder(directory.shared, path)
        for path in (_owner_path(directory), os.path.join(directory.hidden, "lock")):
            if directory.shared.has(path) and not stat.S_ISREG(directory.shared.status(path).st_mode):
                raise BadOption(f"{path} is no regular file, and gpuflow-run did not make it; remove it")


def records_folder(options: Options, base: str) -> Folder:
    """The records in a checkpoint directory, where no other place is given; BadOption when their folder is a link."""
    own = identity_of(base) if options.own_folder else ""
    shared, path = SharedFolder(os.path.abspath(options.checkpoint_dir), own), ""
    for part in (HIDDEN_FOLDER, "state", *base.split("/"), "attempts"):
        path = os.path.join(path, part)
        _refuse_unless_folder(shared, path)
    return Folder(options.checkpoint_dir, inside=os.path.join(own, HIDDEN_FOLDER, "state"))


def write_owner(directory: Directory, ledger: Ledger, child: int | None = None) -> None:
    """Who works in the directory now. An attempt that was followed by another writes nothing any more."""
    before = read_owner(directory)
    newer = before.get("attempt")
    if before.get("identity") == directory.identity and isinstance(newer, int) and newer > ledger.number:
        return
    facts: dict[str, Any] = {
        "identity": directory.identity,
        "run": ledger.base,
        "attempt": ledger.number,
        "id": ledger.id,
        "boot": boot_id(),
        "host": os.uname().nodename,
    }
    if child is not None:
        facts["child"], facts["child_began"] = child, process_began(child)
    if directory.occupancy is not None:
        directory.occupancy.said = facts
    dump(directory.shared, _owner_path(directory), facts)


def read_owner(directory: Directory) -> dict[str, Any]:
    """Who worked here last, as it was written down; empty when no one did, or when another user has written it."""
    path = _owner_path(directory)
    if directory.uid is not None:
        try:
            uid = directory.shared.status(path).st_uid
        except OSError:
            return {}
        if uid != directory.uid:
            directory.remark(f"{path} belongs to user {uid}, and this is user {directory.uid}; it is not believed")
            return {}
    return load(directory.shared, path) or {}


def read_last_owner(directory: Directory) -> dict[str, Any]:
    """The same, whoever has written it: nothing is ended by it, and nothing taken for newer than a store.

    Without a store it says whether the checkpoints here are this run's. A run whose user was changed needs that, and
    who may write the file may write the checkpoints too.
    """
    return load(directory.shared, _owner_path(directory)) or {}


def orphan_group(directory: Directory) -> int | None:
    """The process group of an earlier attempt's program that outlived its supervisor, when it is surely that one."""
    before = read_owner(directory)
    child = before.get("child")
    if before.get("boot") != boot_id() or not isinstance(child, int) or child <= 1:
        return None
    began = process_began(child)
    return child if began is not None and began == before.get("child_began") else None


def boot_id() -> str:
    """This boot of this machine."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip()
    except OSError:
        return "unknown"


def _owner_path(directory: Directory) -> str:
    return os.path.join(directory.hidden, "owner.json")


def _refuse_unless_folder(shared: SharedFolder, path: str) -> None:
    if shared.has(path) and not shared.is_folder(path):
        raise BadOption(
            f"{shared.path(path)} is no folder, or a link to one, and gpuflow-run did not make it; remove it"
        )


def _is_id(name: str) -> bool:
    return len(name) == 16 and all(letter in "0123456789abcdef" for letter in name)


_SECONDS_TO_END = 10.0


def end_orphans(options: Options, directory: Directory | None, ledger: Ledger, history: History) -> None:
    """End what earlier attempts of this run left alive on this machine, and what works on in its directory."""
    place = None
    if directory is not None:
        place = Place(directory.path, read_owner(directory).get("id"), orphan_group(directory))
    family = table.family(options, ledger.base)
    ids = {history.last_id} if history.last_id else set()

    def look() -> container.Processes:
        return find_orphans(family, ids, place)

    if not (found := look()):
        return
    numbers = ", ".join(map(str, sorted(found)))
    say(f"the program of an earlier attempt is still alive (process {numbers}); ending it")
    if left := container.end_processes(look, _SECONDS_TO_END):
        say(f"these cannot be ended, not even by SIGKILL: {container.format_processes(left)}")


class Place:
    """A checkpoint directory, the attempt that worked there last, and the process group of its command."""

    def __init__(self, path: str, attempt_id: object, group: int | None) -> None:
        self.path, self.attempt_id, self.group = path, attempt_id, group


def find_orphans(family: str | None, attempt_ids: set[str], place: Place | None = None) -> container.Processes:
    """Processes of such attempts whose supervisor is dead, the rest of their command's group, and all descendants."""
    here = container.all_processes()
    spared = {os.getpid()}
    pid = os.getpid()
    while pid in here and here[pid].parent not in spared:
        pid = here[pid].parent
        spared.add(pid)
    found: container.Processes = {}
    ours = [process for process in here.values() if process.pid not in spared and container.is_own(process.pid)]
    supervised = {process.pid: _has_supervisor(process.pid, family, attempt_ids, place) for process in ours}
    orphaned = {process.group for process in ours if supervised[process.pid] is False}
    # One that has shed its environment still is in its command's group, if that group is surely the command's.
    groups = {place.group} & orphaned if place is not None else set()
    for process in ours:
        if supervised[process.pid] is False or (process.group in groups and supervised[process.pid] is None):
            found[process.pid] = process
            found.update(container.descendants(process.pid, here))
    return {pid: process for pid, process in found.items() if pid not in spared}


def _has_supervisor(pid: int, family: str | None, attempt_ids: set[str], place: Place | None) -> bool | None:
    """Whether the supervisor of such a process lives; None for a process that is not known by its mark."""
    for mark in container.marks(pid):
        parts = mark.split(".")
        if len(parts) != 4 or not (parts[2].isascii() and parts[2].isdigit()):
            continue
        if parts[0] == family or parts[1] in attempt_ids or _works_in(pid, parts[1], place):
            # Numbers of another PID namespace say nothing here.
            here = container.namespace(pid) == container.namespace(os.getpid())
            return not here or str(process_began(int(parts[2]))) == parts[3]
    return None


def _works_in(pid: int, attempt_id: str, place: Place | None) -> bool:
    return (
        place is not None
        and attempt_id == place.attempt_id
        and container.variable_of(pid, "GPUFLOW_CHECKPOINT_DIR") == os.fsencode(place.path)
    )
