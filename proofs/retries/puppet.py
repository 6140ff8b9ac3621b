"""The program in the containers of a case's step. It runs from its source text, with the standard library alone.

`puppet.py main FOLDER ACT…` and `puppet.py init FOLDER ACT…`: each start takes the next number and plays the act of
that number. What it leaves in FOLDER is what the proof believes: a folder per start, `done` when it succeeded,
`overlap-N` when another start of the same step was still alive.
"""

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time

PATIENCE = 400
EATER = """\
import os, sys, time  # GPUFLOW_EATER
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
hoard = []
while True:
    hoard.append(b"x" * (1 << 20))
"""


def main(role: str, folder: str, acts: list) -> int:
    number = take_number(folder, "" if role == "main" else "init-")
    place = f"{folder}/{number}" if role == "main" else f"{folder}/init-{number}"
    kind, _, word = (acts[number - 1] if number <= len(acts) else "exit:0").partition(":")
    if role == "main":
        lock = open(f"{folder}/lock", "a")  # noqa: SIM115 (held until the process is gone, however it goes)
        os.set_inheritable(lock.fileno(), False)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            write(f"{folder}/overlap-{number}", socket.gethostname())
    if kind == "exit":
        if word == "0" and role == "main":
            write(f"{folder}/done", str(number))
        return int(word)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
        return 137  # the first process of a container does not die of its own signal
    hoard = []
    while kind == "oom":
        hoard.append(b"x" * (1 << 20))
    if kind == "eat":
        eater = subprocess.Popen([sys.executable, "-c", EATER, f"{place}/go"])
        write(f"{place}/ready", socket.gethostname())
        eater.wait()
        time.sleep(PATIENCE)
    if kind == "fill":
        with open(f"{word}/filled", "wb") as file:
            for _ in range(64):
                file.write(b"x" * (1 << 20))
            file.flush()
            os.fsync(file.fileno())
        word = "143"
    if kind == "go":
        write(f"{place}/ready", socket.gethostname())
        while not os.path.exists(f"{place}/go"):
            time.sleep(0.1)
        write(f"{folder}/done", str(number))
        return 0
    wait(f"{place}/ready", word)
    return 97  # nobody came


def take_number(folder: str, prefix: str) -> int:
    number = 1
    while True:
        try:
            os.mkdir(f"{folder}/{prefix}{number}")
            os.chmod(f"{folder}/{prefix}{number}", 0o777)
            return number
        except FileExistsError:
            number += 1


def wait(ready: str, answer: str) -> None:
    """Say that the fault may come, and answer SIGTERM as told."""
    if answer == "never":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(int(answer)))
    write(ready, socket.gethostname())
    time.sleep(PATIENCE)


def write(path: str, text: str) -> None:
    with open(f"{path}.new", "w") as file:
        file.write(text)
    os.rename(f"{path}.new", path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))
