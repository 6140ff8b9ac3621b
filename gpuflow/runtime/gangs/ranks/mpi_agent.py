"""`gpuflow-run mpi-agent SOCKET [options of ssh] HOST COMMAND…`: what mpirun calls in the place of ssh.

It asks rank 0's supervisor to have the command run on that host, prints what it prints, and ends with its exit code;
255 when it could not be run, as ssh does. When mpirun ends it, the command is told to stop too.
"""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import sys

from gpuflow.runtime.base import files
from gpuflow.runtime.gangs.ranks import protocol

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_FAILED = 255
_WITH_VALUE = "BbcDEeFIiJLlmOopQRSWw"
"""Options of ssh whose value may be the next word."""
LONGEST = 48 << 10
"""Bytes of a command: it must fit into one line of the star."""


def main(given: Sequence[str]) -> int:
    """Ask, and be the command as far as mpirun can see."""
    host, command = split(given[1:])
    if not host or not command:
        return _refuse("mpirun named no host or no command; it calls: agent HOST COMMAND…")
    line = protocol.pack("ask", host=host, command=command)
    if len(line) > LONGEST:
        return _refuse(f"the command for {host} has {len(line)} bytes, and the most is {LONGEST}")
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.connect(given[0])
        connection.sendall(line)
        with connection, connection.makefile("rb") as stream:
            return _follow(stream, command)
    except OSError as refusal:
        return _refuse(f"rank 0's supervisor does not answer: {refusal.strerror or refusal}")


def split(given: Sequence[str]) -> tuple[str, str]:
    """Host and command line, as ssh reads them: the command is for a shell, with the quotes that mpirun put there."""
    rest = list(given)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if len(option) == 2 and option[1] in _WITH_VALUE and rest:
            rest.pop(0)
    host = rest.pop(0).rpartition("@")[2] if rest else ""
    return host, " ".join(rest).strip()


def _follow(stream: object, command: str) -> int:
    for line in stream:  # type: ignore[attr-defined]  # a file of bytes
        message = protocol.unpack(line)
        said = message["say"]
        if said == "printed":
            with contextlib.suppress(OSError):  # mpirun reads no more; what the command does still counts
                files.write_all(
                    2 if message.get("to") == 2 else 1, base64.b64decode(protocol.long_text(message, "data"))
                )
        elif said == "returned":
            code = protocol.number(message, "code")
            return EXIT_FAILED if code is None else code
        elif said == "here":
            os.execvp("sh", ["sh", "-c", command])
        elif said == "no":
            return _refuse(protocol.text(message, "because"))
    return _refuse("rank 0's supervisor has ended")


def _refuse(sentence: str) -> int:
    print(f"gpuflow-run: {sentence}", file=sys.stderr)
    return EXIT_FAILED
