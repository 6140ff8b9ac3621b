"""`gpuflow-run transfer-worker`: a process that moves files for the supervisor, straight between a disk and S3.

One Python uses one processor, so the supervisor starts several. The process is told over its standard input, in lines
of JSON, and answers on its standard output; `transfer_pool` is the other side. Whatever is not plainly done is left to
the supervisor, which does it anew and words what is wrong. When the supervisor is gone the input ends, and so does this
process, whatever it is at.

    {"direct": …, "signer": […], "threads": 2, "top": 7 or null, "most": 1048576}    first, once
    ["sign", access key, secret key, token, region]                                    credentials from now on
    ["put", number, key, path]                       -> [number, size, sha256, mode, [inode, time, size]]
    ["get", number, key, path, size, sha256, mode]   -> [number, size, sha256]         below the open folder `top`
    on the way, every few megabytes                  -> [number, "moved", bytes]
    what went over all connections, every second     -> [0, "moved", bytes]
    anything that was not done                       -> [number]
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import queue
import sys
import threading
import time

from gpuflow.runtime.base.files import close_after, open_same
from gpuflow.runtime.base.records import File
from gpuflow.runtime.stores import local_files, storage_timeout
from gpuflow.runtime.stores.http_connections import FileBody
from gpuflow.runtime.stores.local_files import file_facts
from gpuflow.runtime.stores.s3_client import Credentials, DirectClient, Signer
from gpuflow.runtime.stores.store import CHUNK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_WHOLE = 16 << 20
"""What is asked for at first: most objects are not longer."""
_MOST_HELD = 1 << 20
"""A file up to this size is held whole while it is sent."""
_BUFFER = 512 << 10
_TOLD_EVERY, _TOLD_AFTER = 2 << 20, 1.0
"""Bytes of one file; seconds, for all of them."""


def main(*_words: object) -> int:
    """Work until the input ends; no words are read."""
    source = open(0, "rb", closefd=False)  # noqa: SIM115  # it stays open as long as this process
    told = json.loads(source.readline())
    credentials = Credentials(Signer(*told["signer"]))
    worker = _Worker(DirectClient.from_plain(told["direct"], credentials), told["top"], told["most"])
    for _ in range(told["threads"]):
        threading.Thread(target=worker.work, daemon=True).start()
    threading.Thread(target=worker.tell_traffic, daemon=True).start()
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

    def __init__(self, direct: DirectClient, top: int | None, most: int) -> None:
        self.orders: queue.SimpleQueue[list[Any]] = queue.SimpleQueue()
        self._buffers = _Buffers()
        self._direct, self._straight = direct, _DirectSource(direct, self._buffers)
        self._most = most
        self._folders = None if top is None else local_files.Folders(top)
        self._lock = threading.Lock()

    def work(self) -> None:
        while True:
            what, number, *words = self.orders.get()
            moved = _ProgressReport(self._say, number)
            try:
                answer = self._send(moved.add, *words) if what == "put" else self._fetch(moved.add, *words)
            except Exception:
                answer = []
            self._say(number, *answer)

    def tell_traffic(self) -> None:
        """Of a slow link that moves: a file may take minutes."""
        told = 0
        while True:
            time.sleep(_TOLD_AFTER)
            counted = storage_timeout.traffic(time.monotonic())
            if counted > told:
                self._say(0, "moved", counted - told)
                told = counted

    def _say(self, number: int, *words: Any) -> None:
        line = json.dumps([number, *words]).encode() + b"\n"
        with self._lock:
            os.write(1, line)

    def _send(self, passed: Callable[[int], None], key: str, path: str, seen: list[int]) -> list[Any]:
        with close_after(open_same(path, seen)) as handle:
            before = os.fstat(handle)
            if before.st_size > self._most:
                return []
            if before.st_size > _MOST_HELD:
                # Read twice, for its hash and to be sent, and never held.
                body = FileBody(handle, before.st_size, self._buffers.own(), passed)
                self._direct.put(key, body, body.sha256)
                sha256 = body.sha256
            else:
                sha256 = self._send_whole(key, handle, before)
            # Some file systems say that a file has fewer bytes than can be read.
            if file_facts(os.fstat(handle)) != file_facts(before) or os.pread(handle, 1, before.st_size):
                return []
        return [before.st_size, sha256, before.st_mode, file_facts(before)]

    def _send_whole(self, key: str, handle: int, before: os.stat_result) -> str:
        pieces, size, hashed = [], 0, hashlib.sha256()
        while size < before.st_size:
            if not (data := os.read(handle, min(CHUNK, before.st_size - size))):
                raise OSError("it became shorter")
            size += len(data)
            hashed.update(data)
            pieces.append(data)
        if file_facts(os.fstat(handle)) != file_facts(before):
            raise OSError("it has changed")
        self._direct.put(key, pieces, hashed.hexdigest())
        return hashed.hexdigest()

    def _fetch(
        self, passed: Callable[[int], None], key: str, path: str, size: int, sha256: str, mode: int
    ) -> list[Any]:
        if self._folders is None:
            return []
        file = File(path=path, size=size, sha256=sha256, mode=mode)
        inside, _, name = path.rpartition("/")
        folder = self._folders.get(inside, path)
        local_files.fetch_file(self._straight, key, file, folder, name, passed)
        return [size, file.sha256]


class _ProgressReport:
    """Reports progress in steps, so that a slow link is not taken for a stalled one."""

    def __init__(self, say: Callable[..., None], number: int) -> None:
        self._say, self._number, self._untold = say, number, 0

    def add(self, count: int) -> None:
        self._untold += count
        if self._untold >= _TOLD_EVERY:
            self._say(self._number, "moved", self._untold)
            self._untold = 0


class _Buffers(threading.local):
    """One for each thread, for all of its files: new memory for every piece costs more than to fill it."""

    _own: memoryview | None = None

    def own(self) -> memoryview:
        # The system gives memory page by page, as it is used: small files need little of it.
        self._own = self._own or memoryview(mmap.mmap(-1, _BUFFER))
        return self._own


class _DirectSource:
    """Objects without a driver behind: what is not plainly had is not had."""

    def __init__(self, direct: DirectClient, buffers: _Buffers) -> None:
        self._direct, self._buffers = direct, buffers

    def chunks(self, key: str) -> Iterator[bytes | memoryview]:
        buffer = self._buffers.own()
        answer, size, tag = self._direct.get(key, 0, _WHOLE)
        yield from answer.pieces_in(buffer)
        if answer.length != size:
            yield from self._direct.get(key, _WHOLE, size, tag)[0].pieces_in(buffer)

    def clone(self, key: str, handle: int) -> bool:
        return False


if __name__ == "__main__":
    sys.exit(main())
