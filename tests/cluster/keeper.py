"""The first process of a private cluster: it owns the cluster's namespaces and starts its programs.

`unshare` runs this file as process 1 of new pid, mount and network namespaces. Everything the cluster does
to a machine then happens inside them: when this process dies, however it dies, the kernel ends every program,
container, mount and interface of the cluster. Nothing else has to be remembered or undone, except the control
groups (see `machine.py`).

It takes one JSON request per connection on `<run>/keeper.sock`. Until it has read `ready` on standard input
it also ends when standard input closes, so that a killed `up` leaves nothing running. Standard library only,
no imports from the rest: it runs on its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Folders that programs insist on writing to: inside, each is a copy-on-write view that vanishes at the end.
PRIVATE_FOLDERS = ("/etc", "/var", "/run", "/usr/libexec")
# What kubelet wants of the kernel: it reads these files, finds its wish granted and changes nothing.
PRETENDED_SYSCTLS = {
    "kernel/keys/root_maxbytes": "25000000",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
}


def call(*command: str) -> None:
    subprocess.run(command, check=True)


def mount(*words: str) -> None:
    """Mount without a note of it in /run, which is the machine's own at first."""
    call("mount", "--no-mtab", *words)


def furnish(run: Path, address: str) -> None:
    """Make the namespaces a place to live in: own /proc, private folders, pretended sysctls, one address."""
    mount("--make-rprivate", "/")
    mount("-t", "proc", "proc", "/proc")
    scratch = run / "scratch"
    scratch.mkdir()
    mount("-t", "tmpfs", "tmpfs", str(scratch))
    for folder in filter(os.path.isdir, PRIVATE_FOLDERS):
        upper, work = scratch / "upper" / folder[1:], scratch / "work" / folder[1:]
        upper.mkdir(parents=True)
        work.mkdir(parents=True)
        options = f"lowerdir={folder},upperdir={upper},workdir={work}"
        mount("-t", "overlay", "overlay", "-o", options, folder)
    for name, value in PRETENDED_SYSCTLS.items():
        pretended = scratch / name.replace("/", ".")
        pretended.write_text(f"{value}\n")
        if os.path.exists(f"/proc/sys/{name}"):
            mount("--bind", str(pretended), f"/proc/sys/{name}")
    mount("--make-rshared", "/")
    call("ip", "link", "set", "lo", "up")
    call("ip", "address", "add", f"{address}/32", "dev", "lo")


class Keeper:
    """Starts programs by name, signals them, and buries the dead, its own and those left to process 1."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.running: dict[str, int] = {}
        self.ended: dict[str, int] = {}

    def start(self, name: str, argv: list[str], env: dict[str, str]) -> dict[str, Any]:
        if name in self.running:
            return {"error": f"{name} is already running as process {self.running[name]}"}
        log = str(self.run / "log" / f"{name}.log")
        files = [
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ]
        try:
            self.running[name] = os.posix_spawn(argv[0], argv, env, file_actions=files, setsid=True)
        except OSError as error:
            return {"error": f"{name} cannot be started: {error}"}
        self.ended.pop(name, None)
        return {}

    def signal(self, name: str, number: int) -> dict[str, Any]:
        if name not in self.running:
            return {"error": f"{name} is not running; running: {', '.join(sorted(self.running)) or 'nothing'}"}
        os.kill(self.running[name], number)
        return {}

    def status(self) -> dict[str, Any]:
        return {"running": self.running, "ended": self.ended}

    def bury(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                pid, status = found
                for name in [name for name, running in self.running.items() if running == pid]:
                    del self.running[name]
                    self.ended[name] = os.waitstatus_to_exitcode(status)

    def answer(self, connection: socket.socket) -> None:
        actions: dict[str, Callable[..., dict[str, Any]]] = {
            "start": self.start,
            "signal": self.signal,
            "status": self.status,
        }
        with connection, connection.makefile("rw") as stream, contextlib.suppress(OSError, ValueError):
            request = json.loads(stream.readline())
            self.bury()
            stream.write(json.dumps(actions[request.pop("do")](**request)) + "\n")


def serve(keeper: Keeper, listener: socket.socket) -> None:
    waker, wakened = socket.socketpair()
    for end in (waker, wakened):
        end.setblocking(False)
    signal.set_wakeup_fd(wakened.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        selector.register(waker, selectors.EVENT_READ)
        selector.register(0, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is listener:
                    keeper.answer(listener.accept()[0])
                elif key.fileobj is waker:
                    waker.recv(4096)
                elif os.read(0, 64).startswith(b"ready"):
                    selector.unregister(0)
                else:
                    return
            keeper.bury()


def main() -> None:
    run, address = Path(sys.argv[1]), sys.argv[2]
    furnish(run, address)
    with socket.socket(socket.AF_UNIX) as listener:
        # Bound under another name first: the socket appears only when it answers.
        listener.bind(str(run / "keeper.new"))
        listener.listen(16)
        (run / "keeper.new").rename(run / "keeper.sock")
        serve(Keeper(run), listener)


if __name__ == "__main__":
    main()
