"""The processes of an attempt, as /proc shows them: who descends from whom, who hears a signal, who bears our mark.

While the supervisor lives, everything its program starts descends from it: it is the one that inherits orphans. After
it was killed only the mark tells: a variable that every process of the attempt carries.
"""

from __future__ import annotations

import contextlib
import os
import time

from gpuflow.runtime.attempt_folder import process_began

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Processes = dict[int, "Process"]

VARIABLE = "GPUFLOW_ATTEMPT_ID"
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "csh", "tcsh"})
_KILL = 9
_SUBREAPER = 36
_GLANCES = 5
"""How often a new process whose variables are empty is looked at again."""


class Process:
    """A living process. Its number and the moment it began name it for good."""

    def __init__(self, pid: int, name: str, parent: int, group: int, began: int) -> None:
        self.pid, self.name, self.parent, self.group, self.began = pid, name, parent, group, began

    def __str__(self) -> str:
        return f"{self.name} {self.pid}"

    @property
    def lives(self) -> bool:
        return process_began(self.pid) == self.began


def inherit_orphans() -> bool:
    """Become the parent of every descendant whose own parent has ended, as process 1 is. False where that cannot be."""
    if os.getpid() == 1:
        return True
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0)
    except (ImportError, OSError, AttributeError):
        return False


def everyone() -> Processes:
    """All living processes that can be seen; none where there is no /proc."""
    found: Processes = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        process = _look(int(name)) if name.isdigit() else None
        if process is not None:
            found[process.pid] = process
    return found


def below(pid: int, among: Processes) -> Processes:
    """The descendants of a process."""
    children: dict[int, list[Process]] = {}
    for process in among.values():
        children.setdefault(process.parent, []).append(process)
    found: Processes = {}
    rest = [pid]
    while rest:
        for process in children.get(rest.pop(), ()):
            if process.pid not in found:
                found[process.pid] = process
                rest.append(process.pid)
    return found


def hears(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, or holds it back to take it by itself."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return False
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(("SigCgt:", "SigBlk:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def is_shell(pid: int) -> bool:
    """By its first word or its program, not its name: a script that is started as one bears its own name."""
    words = [_read(f"/proc/{pid}/cmdline").partition(b"\0")[0]]
    with contextlib.suppress(OSError):
        words.append(os.fsencode(os.readlink(f"/proc/{pid}/exe")))
    return any(os.path.basename(os.fsdecode(word)).lstrip("-") in _SHELLS for word in words)


def written_by(pid: int) -> set[str]:
    """The files that a process has open for writing, as far as they are ours to see."""
    found = set()
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                flags = _read(f"/proc/{pid}/fdinfo/{number}").partition(b"flags:")[2].split()[0]
                if int(flags, 8) & (os.O_WRONLY | os.O_RDWR):
                    found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def shell_words(pid: int) -> str:
    """What a shell was told to do in its own words; nothing for another program."""
    return _read(f"/proc/{pid}/cmdline").decode("utf-8", "replace") if is_shell(pid) else ""


# -- the mark


def family(base: str, place: str | None) -> str | None:
    """What all attempts of one run, step and item in one place share; None where no attempt follows another."""
    if place is None:
        return None
    import hashlib

    where = place if "://" in place else os.path.abspath(place)
    return hashlib.sha256(f"{base}\n{where}".encode("utf-8", "surrogateescape")).hexdigest()[:16]


def mark(family: str | None, attempt_id: str, environ: Mapping[str, str]) -> str:
    """The value of the variable: family, attempt, and this supervisor. In another's program, after that one's mark."""
    own = f"{family or '-'}.{attempt_id}.{os.getpid()}.{process_began(os.getpid())}"
    outer = environ.get(VARIABLE)
    return f"{outer},{own}" if outer else own


def marks(pid: int) -> list[str]:
    """The marks of a process, none when it has none or is not ours to ask."""
    found = variable(pid, VARIABLE)
    return [] if found is None else found.decode("utf-8", "replace").split(",")


def variable(pid: int, name: str) -> bytes | None:
    """A variable that a process was started with, when there is one and it is ours to ask."""
    start, path = f"{name}=".encode(), f"/proc/{pid}/environ"
    found = _read(path)
    for _ in range(_GLANCES):
        # While a process becomes another program its variables cannot be seen; its forks may be what we look for.
        if found or not _is_new(pid):
            break
        time.sleep(0.002)
        found = _read(path)
    for word in found.split(b"\0"):
        if word.startswith(start):
            return word[len(start) :]
    return None


def is_own(pid: int) -> bool:
    """Whether a process is of this user: root may see and signal everybody's."""
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.geteuid()
    except OSError:
        return False


# -- the end


def end(look: Callable[[], Processes], seconds: float) -> Processes:
    """SIGKILL to all that `look` finds, again and again until it finds none: those that fork meanwhile too.

    What is left after `seconds` cannot be ended from here: it waits in the kernel, or belongs to another user.
    """
    until = time.monotonic() + seconds
    pause = 0.002
    while True:
        left = look()
        for process in left.values():
            kill(process, _KILL)
        if not left or time.monotonic() >= until:
            return left
        time.sleep(pause)
        pause = min(0.05, 2 * pause)


def kill(process: Process, number: int) -> None:
    """A signal to this very process, if it still lives and is ours to signal."""
    if process.lives:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def spoken(found: Processes) -> str:
    """Processes for a sentence: the first few by name and number."""
    names = [str(process) for _, process in sorted(found.items())]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _look(pid: int) -> Process | None:
    head, _, tail = _read(f"/proc/{pid}/stat").rpartition(b")")
    fields = tail.split()
    # A main thread that has ended while others go on looks dead and is not.
    if len(fields) < 20 or (fields[0] in (b"Z", b"X") and int(fields[17]) < 2):
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Process(pid, name, int(fields[1]), int(fields[2]), int(fields[19]))


def _is_new(pid: int) -> bool:
    """Whether a living process was started within the last second."""
    process = _look(pid)
    now = time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK")
    return process is not None and now - process.began < os.sysconf("SC_CLK_TCK")


def namespace(pid: int) -> str | None:
    """The PID namespace a process is in, when that may be known."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return None


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""
