"""Who is told to stop. One table, for every shape of program.

A process has one of these roles when the notice comes:

listener   it said so itself (`checkpointing()` does): it saves and leaves
program    no listener, but it handles the signal: it knows what to do, and about its own workers
launcher   it handles the signal and stands above listeners: torchrun, mpirun
wrapper    a shell, or what does not handle the signal, above one of these; also the command itself
helper     everything else beside or below these: data-loader workers, `tee`
anyone     nobody handles the signal: every process of the command
"""

from __future__ import annotations

from gpuflow.runtime import processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection

LISTENER, PROGRAM, LAUNCHER = "listener", "program", "launcher"
WRAPPER, HELPER, ANYONE = "wrapper", "helper", "anyone"
AT_ONCE, LATER, NEVER = "at once", "when its listeners are gone", "never"

WHEN = {
    LISTENER: AT_ONCE,
    PROGRAM: AT_ONCE,
    # Told at once, mpirun would kill its ranks soon after and torchrun in 30 s, perhaps in the middle of a save.
    LAUNCHER: LATER,
    # A shell that is not told would start its next command.
    WRAPPER: AT_ONCE,
    # PyTorch's data loaders die of a SIGTERM that is not from their parent, and take the last save with them.
    HELPER: NEVER,
    ANYONE: AT_ONCE,
}
"""When a role gets SIGTERM. SIGKILL at the end goes to everybody."""


def roles(
    members: processes.Processes,
    leader: int,
    listeners: Collection[int],
    hears: Callable[[int], bool],
    is_shell: Callable[[int], bool],
) -> dict[int, str]:
    """The role of each process of an attempt. `leader` is the command itself."""
    found = {pid: LISTENER if pid in listeners else HELPER for pid in members}
    children: dict[int, list[int]] = {}
    for process in members.values():
        children.setdefault(process.parent, []).append(process.pid)

    def visit(pid: int) -> bool:
        """Give roles from here downwards; whether anybody here or below hears."""
        if found[pid] == LISTENER:
            return True
        if hears(pid) and not is_shell(pid):
            above = any(other in listeners for other in processes.below(pid, members))
            found[pid] = LAUNCHER if above else PROGRAM
            return True
        heard = [visit(child) for child in children.get(pid, ())]
        if any(heard):
            found[pid] = WRAPPER
        return any(heard)

    # What was started by a process that has ended stands beside the command.
    tops = [pid for pid, process in members.items() if process.parent not in members]
    heard = [visit(pid) for pid in tops]
    if not any(heard):
        return dict.fromkeys(members, ANYONE)
    if found.get(leader) == HELPER:
        found[leader] = WRAPPER
    return found
