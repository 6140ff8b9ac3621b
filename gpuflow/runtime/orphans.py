"""Programs of earlier attempts that outlived their supervisor: ended before another one starts in their place.

They are known by the mark in their environment: that of this run, or, when they work in this directory, that of the
attempt which the directory's owner file names. What that file says alone ends nobody: anyone may have written it.
Whatever has a living supervisor is left alone: the book decides between the two. So are other users' processes.
"""

from __future__ import annotations

import os

from gpuflow.runtime import options as table
from gpuflow.runtime import processes
from gpuflow.runtime.attempt_folder import process_began
from gpuflow.runtime.child import say

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuflow.runtime.directory import Directory
    from gpuflow.runtime.ledger import History, Ledger
    from gpuflow.runtime.options import Options

_WITHIN = 10.0


def end_all(options: Options, directory: Directory | None, ledger: Ledger, history: History) -> None:
    """End what earlier attempts of this run left alive on this machine, and what works on in its directory."""
    place = None
    if directory is not None:
        from gpuflow.runtime import owner

        place = Place(directory.path, owner.owner(directory).get("id"), owner.orphan(directory))
    family = table.family(options, ledger.base)
    ids = {history.last_id} if history.last_id else set()

    def look() -> processes.Processes:
        return find(family, ids, place)

    found = look()
    if not found:
        return
    numbers = ", ".join(map(str, sorted(found)))
    say(f"the program of an earlier attempt is still alive (process {numbers}); ending it")
    left = processes.end(look, _WITHIN)
    if left:
        say(f"these cannot be ended, not even by SIGKILL: {processes.spoken(left)}")


class Place:
    """A checkpoint directory, the attempt that worked there last, and the process group of its command."""

    def __init__(self, path: str, attempt_id: object, group: int | None) -> None:
        self.path, self.attempt_id, self.group = path, attempt_id, group


def find(family: str | None, attempt_ids: set[str], place: Place | None = None) -> processes.Processes:
    """Processes of such attempts whose supervisor is dead, the rest of their command's group, and all descendants."""
    here = processes.everyone()
    spared = {os.getpid()}
    pid = os.getpid()
    while pid in here and here[pid].parent not in spared:
        pid = here[pid].parent
        spared.add(pid)
    found: processes.Processes = {}
    ours = [process for process in here.values() if process.pid not in spared and processes.is_own(process.pid)]
    supervised = {process.pid: _supervised(process.pid, family, attempt_ids, place) for process in ours}
    orphaned = {process.group for process in ours if supervised[process.pid] is False}
    # One that has shed its environment still is in its command's group, if that group is surely the command's.
    groups = {place.group} & orphaned if place is not None else set()
    for process in ours:
        if supervised[process.pid] is False or (process.group in groups and supervised[process.pid] is None):
            found[process.pid] = process
            found.update(processes.below(process.pid, here))
    return {pid: process for pid, process in found.items() if pid not in spared}


def _supervised(pid: int, family: str | None, attempt_ids: set[str], place: Place | None) -> bool | None:
    """Whether the supervisor of such a process lives; None for a process that is not known by its mark."""
    for mark in processes.marks(pid):
        parts = mark.split(".")
        if len(parts) != 4 or not (parts[2].isascii() and parts[2].isdigit()):
            continue
        if parts[0] == family or parts[1] in attempt_ids or _works_in(pid, parts[1], place):
            # Numbers of another PID namespace say nothing here.
            here = processes.namespace(pid) == processes.namespace(os.getpid())
            return not here or str(process_began(int(parts[2]))) == parts[3]
    return None


def _works_in(pid: int, attempt_id: str, place: Place | None) -> bool:
    return (
        place is not None
        and attempt_id == place.attempt_id
        and processes.variable(pid, "GPUFLOW_CHECKPOINT_DIR") == os.fsencode(place.path)
    )
