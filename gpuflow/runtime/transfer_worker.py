"""A process that moves files for the supervisor, straight between a disk and S3: one Python uses one processor.

It is told over its standard input, in lines of JSON, and answers on its standard output; `transfer_workers` is the
other side. Whatever is not plainly done is left to the supervisor, which does it anew and words what is wrong. When the
supervisor is gone the input ends, and so does this process, whatever it is at.

    {"direct": …, "signer": […], "threads": 2, "top": 7 or null, "most": 1048576}    first, once
    ["sign", access key, secret key, token, region]                                    credentials from now on
    ["put", number, key, path]                       -> [number, size, sha256, mode, [inode, time, size]]
    ["get", number, key, path, size, sha256, mode]   -> [number, size, sha256]         below the open folder `top`
    anything that was not done                       -> [number]
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import sys
import threading

from gpuflow.runtime import landing
from gpuflow.runtime.records import File
from gpuflow.runtime.s3_direct import Credentials, Direct
from gpuflow.runtime.s3_signing import Signer
from gpuflow.runtime.snapshot import facts
from gpuflow.runtime.store import CHUNK, Store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_WHOLE = 16 << 20
"""What is asked for at first: most objects are not longer."""


def main() -> int:
    """Work until the input ends."""
    source = open(0, "rb", closefd=False)  # noqa: SIM115  # it stays open as long as this process
    told = json.loads(source.readline())
    credentials = Credentials(Signer(*told["signer"]))
    worker = _Worker(Direct.told(told["direct"], credentials), told["top"], told["most"])
    for _ in range(told["threads"]):
        threading.Thread(target=worker.work, daemon=True).start()
    for line in source:
        order = json.loads(line)
        if order[0] == "sign":
            credentials.signer = Signer(*order[1:])
        else:
            worker.orders.put(order)
    # What is under way is not waited for: nobody hears of it any more.
    os._exit(0)


class _Worker:
    """Threads that take orders."""

    def __init__(self, direct: Direct, top: int | None, most: int) -> None:
        self.orders: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._direct, self._straight = direct, _Straight(direct)
        self._most = most
        self._folders = None if top is None else landing.Folders(top)
        self._lock = threading.Lock()

    def work(self) -> None:
        while True:
            what, number, *words = self.orders.get()
            try:
                answer = self._sent(*words) if what == "put" else self._fetched(*words)
            except Exception:
                answer = []
            line = json.dumps([number, *answer]).encode() + b"\n"
            with self._lock:
                os.write(1, line)

    def _sent(self, key: str, path: str) -> list[Any]:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = os.fstat(handle)
            if before.st_size > self._most:
                return []
            pieces, size, hashed = [], 0, hashlib.sha256()
            while True:
                data = os.read(handle, max(1, min(CHUNK, before.st_size - size)))
                if not data:
                    break
                size += len(data)
                if size > self._most:
                    return []
                hashed.update(data)
                pieces.append(data)
            if facts(os.fstat(handle)) != facts(before) or size != before.st_size:
                return []
        finally:
            os.close(handle)
        self._direct.put(key, pieces, hashed.hexdigest())
        return [size, hashed.hexdigest(), before.st_mode, facts(before)]

    def _fetched(self, key: str, path: str, size: int, sha256: str, mode: int) -> list[Any]:
        if self._folders is None:
            return []
        file = File(path=path, size=size, sha256=sha256)
        inside, _, name = path.rpartition("/")
        folder = self._folders.get(inside, path)
        landing.fetch_one(self._straight, key, file, folder, name, lambda _: None, mode)
        return [size, file.sha256]


class _Straight(Store):
    """Objects without a driver behind: what is not plainly had is not had."""

    def __init__(self, direct: Direct) -> None:
        self._direct = direct

    def chunks(self, key: str) -> Iterator[bytes]:
        answer, size, tag = self._direct.get(key, 0, _WHOLE)
        yield from answer.pieces()
        if answer.length != size:
            yield from self._direct.get(key, _WHOLE, size, tag)[0].pieces()


if __name__ == "__main__":
    sys.exit(main())
