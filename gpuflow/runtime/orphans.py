"""Programs of earlier attempts that outlived their supervisor: ended before another one starts in their place.

They are known by the mark in their environment, or, for the command itself, by what the directory's owner wrote down.
Whatever has a living supervisor is left alone: the book decides between the two.
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
    command, known = None, [history.last_id]
    if directory is not None:
        from gpuflow.runtime import owner

        command = owner.orphan(directory)
        known.append(owner.owner(directory).get("id"))
    family = table.family(options, ledger.base)
    ids = {str(identity) for identity in known if identity}

    def look() -> processes.Processes:
        return find(family, ids, command)

    found = look()
    if not found:
        return
    numbers = ", ".join(map(str, sorted(found)))
    say(f"the program of an earlier attempt is still alive (process {numbers}); ending it")
    left = processes.end(look, _WITHIN)
    if left:
        say(f"these cannot be ended, not even by SIGKILL: {processes.spoken(left)}")


def find(family: str | None, attempt_ids: set[str], command: int | None = None) -> processes.Processes:
    """Processes of such attempts whose supervisor is dead, the group of such a `command`, and all their descendants."""
    here = processes.everyone()
    spared = {os.getpid()}
    pid = os.getpid()
    while pid in here and here[pid].parent not in spared:
        pid = here[pid].parent
        spared.add(pid)
    found: processes.Processes = {}
    for process in here.values():
        if process.pid in spared:
            continue
        supervised = _supervised(process.pid, family, attempt_ids)
        if supervised is False or (process.group == command and supervised is None):
            found[process.pid] = process
            found.update(processes.below(process.pid, here))
    return {pid: process for pid, process in found.items() if pid not in spared}


def _supervised(pid: int, family: str | None, attempt_ids: set[str]) -> bool | None:
    """Whether the supervisor of such a process lives; None for a process that is not known by its mark."""
    for mark in processes.marks(pid):
        parts = mark.split(".")
        if len(parts) == 4 and parts[2].isdigit() and (parts[0] == family or parts[1] in attempt_ids):
            # Numbers of another PID namespace say nothing here.
            here = processes.namespace(pid) == processes.namespace(os.getpid())
            return not here or str(process_began(int(parts[2]))) == parts[3]
    return None
