"""The program inside the container of a sequence's step. It runs from its source text, with the standard library alone.

`puppet.py FOLDER ACT…`: each start takes the next number in FOLDER and plays the act of that number. What it leaves
there is what the test believes: a folder per start, `done` when it succeeded, `overlap-N` when another start of the
same step was still alive.
"""

import fcntl
import os
import signal
import socket
import sys
import time

PATIENCE = 240


def main(folder: str, acts: list[str]) -> int:
    number = take_number(folder)
    lock = open(f"{folder}/lock", "a")  # noqa: SIM115 (held until the process is gone, however it goes)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        write(f"{folder}/overlap-{number}", socket.gethostname())
    kind, _, word = (acts[number - 1] if number <= len(acts) else "exit:0").partition(":")
    if kind == "exit":
        if word == "0":
            write(f"{folder}/done", str(number))
        return int(word)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "crash":
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    hoard = []
    while kind == "oom":
        hoard.append(b"x" * (1 << 20))
    wait(f"{folder}/{number}/ready", word)
    return 97  # nobody came


def take_number(folder: str) -> int:
    number = 1
    while True:
        try:
            os.mkdir(f"{folder}/{number}")
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
    sys.exit(main(sys.argv[1], sys.argv[2:]))
