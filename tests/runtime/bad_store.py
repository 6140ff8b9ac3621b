"""`gpuflow-run` over a directory that fails to list and is slow, in the process itself: what NFS does on a bad day.

    python -m tests.runtime.bad_store <the words of gpuflow-run>

`$BAD_STORE` is the directory, `$BAD_LISTINGS` the share of folders that fail with EIO when a listing comes to them,
`$BAD_SECONDS` how long each object takes at most.
"""

from __future__ import annotations

import errno
import os
import random
import sys
import time
from typing import Any

import gpuflow.runtime.stores.folder_store as stores
from gpuflow.runtime.supervise.main import main

FOLDER = os.environ.get("BAD_STORE", "")
LISTINGS = float(os.environ.get("BAD_LISTINGS", "0"))
SECONDS = float(os.environ.get("BAD_SECONDS", "0"))
_scandir = os.scandir


def scandir(path: Any = ".") -> Any:
    where = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else str(path)
    if FOLDER and where.startswith(FOLDER) and random.random() < LISTINGS:
        raise OSError(errno.EIO, "injected", where)
    return _scandir(path)


def slowly(real: Any) -> Any:
    def do(self: Any, key: str, *rest: Any, **named: Any) -> Any:
        time.sleep(SECONDS * random.random())
        return real(self, key, *rest, **named)

    return do


if __name__ == "__main__":
    os.scandir = scandir
    if SECONDS:
        for name in ("put", "read", "create"):
            setattr(stores.Folder, name, slowly(getattr(stores.Folder, name)))
    sys.exit(main(sys.argv[1:]))
