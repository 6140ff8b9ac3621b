"""Processes that move files for this one, where there are many files and many processors.

A single Python process moves files with one processor's strength, however many threads it has. So a few processes
(`transfer_process`) take orders, a few at a time, and say what became of each. What they leave, and what they had in
hand when they were lost, is done here. They end with this process, and when there is nothing left.
"""

from __future__ import annotations

import json
import os
import queue
import threading

from gpuflow.runtime.base import container
from gpuflow.runtime.stores import storage_timeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Generator, Iterable, Sequence
    from typing import Any

    from gpuflow.runtime.base.records import File
    from gpuflow.runtime.stores.s3_client import DirectClient, Signer

VARIABLE = "GPUFLOW_TRANSFER_PROCESSES"
MANY = 200
"""Fewer files than this are not worth a process that must start first."""
_MOST = 8
_CONNECTIONS = 16
_AHEAD = 2
"""Orders that wait in a worker, for each of its threads: it never waits for us."""
_MOMENT = 1 << 20
LONG = 64 << 20
"""A longer file is sent and fetched here, in several parts at once."""


def count() -> int:
    """How many processes to start; none where processors are few. A variable says otherwise."""
    said = os.environ.get(VARIABLE, "")
    if said.isascii() and said.isdigit():
        return min(int(said), 64)
    there = container.available_cpus()
    return 0 if there < 4 else min(_MOST, there // 2)


class Workers:
    """Processes for the files of one transfer. `top` is the open folder that they may write below."""

    def __init__(self, direct: DirectClient, below: str, processes: int, top: int | None = None) -> None:
        """Keys are `below` this name in the bucket."""
        self._direct, self._below, self._processes, self._top = direct, below, processes, top

    def move(self, orders: Iterable[Order]) -> Generator[Any, None, None]:
        """Have them done; what is given is left for the caller to do, as it turns up. Close this when it is enough."""
        rest, lock = iter(orders), threading.Lock()
        left: queue.SimpleQueue[Any] = queue.SimpleQueue()
        threads = max(2, _CONNECTIONS // self._processes)
        lanes = [_Lane(self._direct, self._below, self._top, threads) for _ in range(self._processes)]

        def take() -> Order | None:
            with lock:
                return next(rest, None)

        def work(lane: _Lane) -> None:
            try:
                lane.run(take, left.put)
            except BaseException as error:
                left.put(_TransferFailed(error))
            left.put(_END_OF_ORDERS)

        running = [threading.Thread(target=work, args=(lane,), name="transfer", daemon=True) for lane in lanes]
        if (turn := storage_timeout.current()) is not None:
            turn.given_up.extend(lane.end for lane in lanes)
        try:
            for thread in running:
                thread.start()
            ended = 0
            while ended < len(running):
                item = left.get()
                if item is _END_OF_ORDERS:
                    ended += 1
                elif isinstance(item, _TransferFailed):
                    raise item.error
                else:
                    yield item
            # All processes may have been lost with orders that nobody took.
            yield from (order.item for order in iter(take, None))
        finally:
            for lane in lanes:
                lane.end()
            for thread in running:
                if thread.ident is not None:
                    thread.join()


_END_OF_ORDERS = object()


class _TransferFailed:
    def __init__(self, error: BaseException) -> None:
        self.error = error


class Order:
    """One file: `words` for the worker, None when it is not for one; `done` hears the answer, and may not take it."""

    def __init__(
        self,
        item: Any,
        words: list[Any] | None,
        done: Callable[[list[Any]], bool],
        lost: Callable[[], None] = lambda: None,
        moves: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.item, self.words, self.done = item, words, done
        self.lost = lost
        """Hears that a worker was lost with it: clear away what it left."""
        self.moves = moves
        """Hears how many bytes of it have moved meanwhile."""


def put_order(key: str, path: str, seen: Sequence[int], size: int, *, is_limited: bool) -> list[Any] | None:
    """The words of an order to send a file, the one that was seen; None when several connections had better send it. A
    worker sends as fast as it can: where that `is_limited`, it is given no more than a moment's work."""
    return ["put", key, path, list(seen[:2])] if size <= (_MOMENT if is_limited else LONG) else None


def get_order(key: str, file: File, mode: int) -> list[Any] | None:
    """The words of an order to fetch a file; None when more than one connection had better fetch it."""
    size = file.size or 0
    return ["get", key, file.path, size, file.sha256, mode] if size <= LONG else None


class _WorkerLost(Exception):
    """The worker has ended, or sent an invalid answer."""


class _Lane:
    """One worker and its current orders."""

    def __init__(self, direct: DirectClient, below: str, top: int | None, threads: int) -> None:
        self._direct, self._below, self._top, self._threads = direct, below, top, threads
        self._signer: Signer | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._over = False

    def run(self, take: Callable[[], Order | None], leave: Callable[[Any], None]) -> None:
        """Orders until there are none, or the worker is lost."""
        held: dict[int, Order] = {}
        number, more = 0, True
        process: subprocess.Popen[bytes] | None = None
        try:
            while more or held:
                while more and len(held) < (1 + _AHEAD) * self._threads:
                    if (order := take()) is None:
                        more = False
                    elif order.words is None:
                        leave(order.item)
                    else:
                        number += 1
                        held[number] = order
                        process = process or self._start()
                        self._sign(process)
                        what, key, *words = order.words
                        _say(process, [what, number, f"{self._below}{key}", *words])
                if held and process is not None:
                    which, *answer = _answer(process)
                    if which == 0:
                        storage_timeout.moved_elsewhere(int(answer[1]))
                        continue
                    if which not in held:
                        raise _WorkerLost
                    if answer[:1] == ["moved"]:
                        held[which].moves(int(answer[1]))
                        continue
                    order = held.pop(which)
                    if not answer or not order.done(answer):
                        leave(order.item)
        except _WorkerLost:
            pass  # what it had in hand is done by others
        finally:
            self.end()
            for order in held.values():
                order.lost()
                leave(order.item)

    def _start(self) -> subprocess.Popen[bytes]:
        import subprocess  # not before it is needed: most transfers have no worker

        with self._lock:
            if self._over:
                raise _WorkerLost
            try:
                self._process = process = subprocess.Popen(
                    container.own_command("transfer-worker"),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    pass_fds=() if self._top is None else (self._top,),
                )
            except OSError:
                raise _WorkerLost from None
        self._signer = signer = self._direct.signer()
        about = {"threads": self._threads, "top": self._top, "most": LONG}
        _say(process, {"direct": self._direct.plain(), "signer": signer.plain(), **about})
        return process

    def _sign(self, process: subprocess.Popen[bytes]) -> None:
        signer = self._direct.signer()
        if signer is not self._signer:
            self._signer = signer
            _say(process, ["sign", *signer.plain()])

    def end(self) -> None:
        """The process is gone when this returns, and no other will start."""
        with self._lock:
            self._over = True
            if (process := self._process) is not None:
                process.kill()
                process.wait()


def _say(process: subprocess.Popen[bytes], what: Any) -> None:
    pipe = process.stdin
    assert pipe is not None  # it was asked for
    data = json.dumps(what).encode() + b"\n"
    try:
        while data:
            data = data[os.write(pipe.fileno(), data) :]
    except (OSError, ValueError):
        raise _WorkerLost from None


def _answer(process: subprocess.Popen[bytes]) -> list[Any]:
    pipe = process.stdout
    assert pipe is not None  # it was asked for
    try:
        found = json.loads(pipe.readline())
    except (OSError, ValueError):
        raise _WorkerLost from None
    if not isinstance(found, list) or not found:
        raise _WorkerLost
    return found
