"""What the kernel shows of this container: its processes in /proc, its memory and its processors in the cgroup.

While the supervisor lives, everything its program starts descends from it: it is the one that inherits orphans. After
it was killed only the mark tells: a variable that every process of the attempt carries.

Who is told to stop is one table, `WHEN`, for every shape of program. A process has one of these roles when the notice
comes:

    listener   it said so itself (`checkpointing()` does): it saves and leaves
    program    no listener, but it handles the signal: it knows what to do, and about its own workers
    launcher   it handles the signal and stands above listeners: torchrun, mpirun
    wrapper    a shell, or what does not handle the signal, above one of these; also the command itself
    helper     everything else beside or below these: data-loader workers, `tee`
    anyone     nobody handles the signal: every process of the command

`own_command` is the list of words that starts gpuflow-run as another process, from its package or from the mount.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time

from gpuflow.runtime.base.attempt_folder import process_began, process_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    Processes = dict[int, "Process"]


def oom_kills() -> int:
    """How often the kernel has killed in this container's memory group; 0 when that cannot be read."""
    for path in _memory_files():
        counts = dict(line.split(None, 1) for line in _read_bytes(path).splitlines() if len(line.split()) > 1)
        with contextlib.suppress(KeyError, ValueError):
            # A whole group that is killed (memory.oom.group) counts apart from its processes.
            return int(counts[b"oom_kill"]) + int(counts.get(b"oom_group_kill", 0))
    return 0


def _memory_files() -> list[str]:
    """Where cgroup v2 and v1 count: in a container the group is the root of what it sees."""
    files = []
    try:
        with open("/proc/self/cgroup", encoding="utf-8") as file:
            lines = [line.rstrip("\n").split(":", 2) for line in file]
    except OSError:
        lines = []
    for _, controllers, path in lines:
        inside = path.lstrip("/")
        if controllers == "":
            files.append(os.path.join("/sys/fs/cgroup", inside, "memory.events"))
        elif "memory" in controllers.split(","):
            files.append(os.path.join("/sys/fs/cgroup/memory", inside, "memory.oom_control"))
    return [*files, "/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"]


def available_memory() -> int | None:
    """Bytes of memory this container can still take: the kernel's figure or its group's limit; None if unknown."""
    found = [figure for figure in (_free_on_machine(), _free_in_group()) if figure is not None]
    return max(0, min(found)) if found else None


def _free_on_machine() -> int | None:
    for line in _read_bytes("/proc/meminfo").splitlines():
        if line.startswith(b"MemAvailable:"):
            with contextlib.suppress(IndexError, ValueError):
                return int(line.split()[1]) * 1024
    return None


def _free_in_group() -> int | None:
    """The limit less what is used, where file pages that can be dropped do not count as used."""
    for most, now, counts, inherited in _memory_groups():
        return most - now + int(counts.get(f"{inherited}inactive_file", 0))
    return None


def working_set() -> tuple[int, int] | None:
    """Bytes that the kernel cannot take back from this container's group, and its limit; None where there is none.

    Not counted are file pages, active or not, and kernel memory that can be freed: a data loader that fills the page
    cache is not short of memory. Files in memory (`/dev/shm`) do count.
    """
    for most, now, counts, inherited in _memory_groups():
        if 0 < most < _NO_LIMIT:
            freed = (f"{inherited}active_file", f"{inherited}inactive_file", "slab_reclaimable")
            return max(0, now - sum(int(counts.get(name, 0)) for name in freed)), most
    return None


_NO_LIMIT = 1 << 60
"""cgroup v1 has a number of this size where there is no limit."""


def _memory_groups() -> Iterator[tuple[int, int, dict[str, str], str]]:
    """Limit, usage, `memory.stat` and the prefix of its sums, of each place where the group may be seen."""
    for folder in (os.path.dirname(path) for path in _memory_files()):
        for limit, used, inherited in (
            ("memory.max", "memory.current", ""),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
        ):
            try:
                most, now = (int(_read_text(os.path.join(folder, name))) for name in (limit, used))
                lines = _read_text(os.path.join(folder, "memory.stat")).splitlines()
            except (OSError, ValueError):
                # Not there, or "max": no limit on this level.
                continue
            yield most, now, dict(line.split(None, 1) for line in lines if " " in line), inherited


def _read_text(path: str) -> str:
    with open(path, encoding="ascii") as file:
        return file.read()


def available_cpus() -> int:
    """Those it may run on, or fewer where its limit is lower: at least one."""
    try:
        here = len(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        here = os.cpu_count() or 1
    limits = [here, *(max(1, int(-(-quota // period))) for quota, period in _quotas())]
    return min(limits)


def _quotas(groups: str = "/sys/fs/cgroup") -> Iterator[tuple[int, int]]:
    """What the kernel gives the group of processes in each period: cgroup v2, and v1. In a container it is the root."""
    words = _read_bytes(f"{groups}/cpu.max").split()
    if len(words) != 2:
        words = [
            *_read_bytes(f"{groups}/cpu/cpu.cfs_quota_us").split(),
            *_read_bytes(f"{groups}/cpu/cpu.cfs_period_us").split(),
        ]
    # "max", or -1: no limit.
    if len(words) == 2 and all(word.isdigit() and int(word) > 0 for word in words):
        yield int(words[0]), int(words[1])


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


def all_processes() -> Processes:
    """All living processes that can be seen; none where there is no /proc."""
    found: Processes = {}
    try:
        names = os.listdir("/proc")
    except OSError:
        return found
    for name in names:
        if (process := _look(int(name)) if name.isdigit() else None) is not None:
            found[process.pid] = process
    return found


def descendants(pid: int, among: Processes) -> Processes:
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


def handles_signal(pid: int, number: int) -> bool:
    """Whether a process has a handler for a signal, or holds it back to take it by itself."""
    lines = _read_bytes(f"/proc/{pid}/status").splitlines()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith((b"SigCgt:", b"SigBlk:"))]
    return any(mask >> (number - 1) & 1 for mask in masks)


def is_shell(pid: int) -> bool:
    """By its first word or its program, not its name: a script that is started as one bears its own name."""
    words = [_read_bytes(f"/proc/{pid}/cmdline").partition(b"\0")[0]]
    with contextlib.suppress(OSError):
        words.append(os.fsencode(os.readlink(f"/proc/{pid}/exe")))
    return any(os.path.basename(os.fsdecode(word)).lstrip("-") in _SHELLS for word in words)


def files_open_for_writing(pid: int) -> set[str]:
    """The files that a process has open for writing, as far as they are ours to see."""
    found = set()
    with contextlib.suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError, ValueError, IndexError):
                flags = _read_bytes(f"/proc/{pid}/fdinfo/{number}").partition(b"flags:")[2].split()[0]
                if int(flags, 8) & (os.O_WRONLY | os.O_RDWR):
                    found.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return found


def shell_words(pid: int) -> str:
    """The command line of a shell; empty for any other program."""
    return _read_bytes(f"/proc/{pid}/cmdline").decode("utf-8", "replace") if is_shell(pid) else ""


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
    """The marks of a process; empty when it has none or belongs to another user."""
    found = variable_of(pid, VARIABLE)
    return [] if found is None else found.decode("utf-8", "replace").split(",")


def variable_of(pid: int, name: str) -> bytes | None:
    """An environment variable of a process; None when it is not set or the process belongs to another user."""
    start, path = f"{name}=".encode(), f"/proc/{pid}/environ"
    found = _read_bytes(path)
    for _ in range(_GLANCES):
        # While a process becomes another program its variables cannot be seen; its forks may be what we look for.
        if found or not _is_new(pid):
            break
        time.sleep(0.002)
        found = _read_bytes(path)
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


def end_processes(look: Callable[[], Processes], seconds: float) -> Processes:
    """SIGKILL to all that `look` finds, again and again until it finds none: those that fork meanwhile too. What is
    left after `seconds` cannot be ended from here: it waits in the kernel, or belongs to another user."""
    until = time.monotonic() + seconds
    pause = 0.002
    while True:
        left = look()
        for process in left.values():
            signal_process(process, _KILL)
        if not left or time.monotonic() >= until:
            return left
        time.sleep(pause)
        pause = min(0.05, 2 * pause)


def signal_process(process: Process, number: int) -> None:
    """A signal to this very process, if it still lives and is ours to signal."""
    if process.lives:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def format_processes(found: Processes) -> str:
    """Processes for a sentence: the first few by name and number."""
    names = [str(process) for _, process in sorted(found.items())]
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _look(pid: int) -> Process | None:
    if (found := process_status(pid)) is None:
        return None
    name, fields = found
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


def _read_bytes(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


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
    members: Processes,
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
            above = any(other in listeners for other in descendants(pid, members))
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


_IN_PACKAGE = "import sys; sys.path[:] = {path!r}; from gpuflow.runtime.supervise.main import main; sys.exit(main())"


def own_command(*words: str) -> list[str]:
    """`gpuflow-run` with these words."""
    spec = sys.modules["gpuflow.runtime"].__spec__
    # Nothing of the image's Python but the standard library: it starts sooner, and no variable changes it.
    python = [sys.executable, "-E", "-S"]
    if spec is not None and not spec.has_location and spec.origin:
        return [*python, spec.origin, *words]
    return [*python, "-c", _IN_PACKAGE.format(path=[os.path.abspath(place) for place in sys.path]), *words]
