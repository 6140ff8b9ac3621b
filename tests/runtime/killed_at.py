"""`gpuflow-run`, which is killed by SIGKILL at one of its own operations on a store or on a place:

    KILL_AT=17 KILL_LOG=FILE python -m tests.runtime.killed_at <the words of gpuflow-run>

What it was about to do is written down first: so the moments that are too short to be hit by a clock are hit too.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from typing import Any

from gpuflow.runtime.stores.folder_store import Folder
from gpuflow.runtime.supervise.main import main

AT = int(os.environ.get("KILL_AT", "0"))
LOG = os.environ.get("KILL_LOG", "")
_lock, _count = threading.Lock(), [0]


def step(what: str) -> None:
    with _lock:
        _count[0] += 1
        if _count[0] != AT:
            return
        with open(LOG, "a", encoding="utf-8") as file:
            file.write(f"{what}\n")
        os.kill(os.getpid(), signal.SIGKILL)


def before_and_after(kind: Any, name: str) -> None:
    real = getattr(kind, name)

    def do(self: Any, key: Any = "", *rest: Any, **named: Any) -> Any:
        step(f"before {name} {key if isinstance(key, str) else ''}")
        done = real(self, key, *rest, **named)
        step(f"after {name} {key if isinstance(key, str) else ''}")
        return done

    setattr(kind, name, do)


def piece_by_piece(kind: Any) -> None:
    real = kind.chunks

    def chunks(self: Any, key: str) -> Iterator[bytes]:
        for data in real(self, key):
            step(f"before chunk {key}")
            yield data
            step(f"after chunk {key}")

    kind.chunks = chunks


def file_system(name: str) -> None:
    real = getattr(os, name)

    def do(*words: Any, **named: Any) -> Any:
        step(f"before {name} {words[0]}")
        done = real(*words, **named)
        step(f"after {name} {words[0]}")
        return done

    setattr(os, name, do)


if __name__ == "__main__":
    kinds: list[Any] = [Folder]
    try:
        from gpuflow.runtime.stores.fsspec_store import Remote

        kinds.append(Remote)
    except ImportError:
        pass
    for kind in kinds:
        for name in ("put", "write", "create", "read", "names", "delete"):
            if name in vars(kind):
                before_and_after(kind, name)
        piece_by_piece(kind)
    for name in ("rename", "replace", "symlink", "fchmod"):
        file_system(name)
    sys.exit(main(sys.argv[1:]))
