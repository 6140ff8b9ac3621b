"""How long storage may fail or stay silent: one call that is waited for, and calls that are tried again.

Work with a store runs on a thread of its own. The caller looks five times a second whether the work is still wanted,
and whether anything moves: a driver, a name server or a mount may hang for as long as it likes. Work that is given up
goes on in its thread, but begins no other call to a store; a process that has such threads ends without them.

An answer is progress, and so are bytes: the kernel counts those of every TCP connection, whoever has opened it. Less
than 1 KiB a second, over as long as storage may fail, is none. Work of the supervisor's own (what is loaded, what is
hashed) is no standstill either.

`attend` is about one try. `Limit` and `persist` say how long storage is tried again, and when that is given up.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import operator
import os
import struct
import sys
import threading
import time

from gpuflow.runtime.stores.store import Refusal, StorageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

_POLL = 0.2
"""How often a wait looks whether it is still wanted."""
_SHORT = 0.4
"""Seconds after which it is looked what travels; most calls have answered by then."""
_SAID_EVERY = 10.0
"""Seconds of trouble between two lines in the log."""
_LEAST = 1024
"""Bytes a second; fewer are no progress."""
_SHARE = 0.5
"""Of the time: who is at work for so much of it, or would be if there were a processor, does not wait for storage."""
_OPENING = 30.0
"""Seconds, at least, until the first call: a driver is loaded first."""
_BRIEF = 5.0
"""Seconds for a place that has been silent for as long as it may be, and was not heard of since."""
_ASKING = 8 << 10
"""Bytes at the beginning of each connection that only ask: to ask again and again is no progress."""
_COUNTS = struct.Struct("=QQ")
_COUNTS_AT = 120
"""Where `struct tcp_info` (linux/tcp.h) has the bytes that the other side took, and those that came."""


class StorageSilent(StorageError):
    """Nothing moved for as long as storage may fail."""


class ConnectionLate(StorageError):
    """A connection was given up on which nothing came. A new one may do better."""


class CallDefaults:
    """The defaults for calls outside a `WatchedCall`."""

    def __init__(self) -> None:
        self.seconds = 60.0
        self.say: Callable[[str], None] = lambda _: None
        self.other_ports: frozenset[int] = frozenset()
        """Ports of connections that are not to storage."""


CALL_DEFAULTS = CallDefaults()
"""The supervisor sets it from its options."""


class LogThrottle:
    """One line in ten seconds of trouble."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._said = say, time.monotonic()

    def say(self, sentence: str) -> None:
        if time.monotonic() - self._said >= _SAID_EVERY:
            self._said = time.monotonic()
            self._say(sentence)


class WatchedCall:
    """One call with a timeout, including all threads that it starts."""

    def __init__(self, around: WatchedCall | None) -> None:
        self._around = around
        self.where = ""
        """What was asked for last."""
        self.place = ""
        """The bucket or folder of that."""
        self.answered = 0.0
        """When storage did last what it was asked, or we waited of our own will."""
        self.refused: Exception | None = None
        """The last error of storage."""
        self.bytes = 0
        self._on_disk, self._lock = 0, threading.Lock()
        self.given_up: list[Callable[[], None]] = []
        """What ends processes that work for it."""
        self.thread: threading.Thread | None = None
        self._over = False
        self._ended = threading.Event()
        self._found: Any = None
        self._error: BaseException | None = None

    def run(self, action: Callable[[], Any]) -> None:
        _CURRENT.set(self)
        try:
            self._found = action()
        except BaseException as error:
            self._error = error
        self._ended.set()

    def wait(self, seconds: float) -> bool:
        return self._ended.wait(seconds)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._found

    def give_up(self) -> None:
        """Give up: no further storage call is started."""
        self._over = True
        if self.thread is not None:
            _GIVEN_UP.append(self.thread)
        for end in self.given_up:
            end()

    def check(self) -> None:
        """StorageError when the caller has given up."""
        if self._over:
            raise StorageError("it was given up")
        if self._around is not None:
            self._around.check()

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[None]:
        """Mark a call as disk access, whose progress cannot be seen."""
        around = self._around.on_disk() if self._around is not None else contextlib.nullcontext()
        with around:
            with self._lock:
                self._on_disk += 1
            try:
                yield
            finally:
                with self._lock:
                    self._on_disk -= 1

    @property
    def is_on_disk(self) -> bool:
        return self._on_disk > 0

    def note_request(self, where: str, place: str) -> None:
        self.check()
        self.where, self.place = where, place
        if self._around is not None:
            self._around.note_request(where, place)

    def note_answer(self) -> None:
        """Storage did what it was asked."""
        self.answered = time.monotonic()
        _SILENT.discard(self.place)
        if self._around is not None:
            self._around.note_answer()


_CURRENT: contextvars.ContextVar[WatchedCall | None] = contextvars.ContextVar("storage", default=None)
_GIVEN_UP: list[threading.Thread] = []
_SILENT: set[str] = set()
"""Places that were silent for as long as they may be."""


def current() -> WatchedCall | None:
    return _CURRENT.get()


def report_moved(count: int) -> None:
    """So many bytes were read or written here; none: we wait of our own will, and that is no standstill."""
    if (turn := current()) is not None and count:
        turn.bytes += count
    elif turn is not None:
        turn.answered = time.monotonic()


def attend(action: Callable[[], Any], limit: Limit, give_up: Callable[[], bool], lines: LogThrottle) -> Any:
    """What the action comes to. Silent after the limit's seconds without progress, StorageError when it must be given
    up. `limit` hears of bytes that moved in another way."""
    turn, seconds = WatchedCall(current()), limit.seconds
    context, began = contextvars.copy_context(), time.monotonic()
    thread = threading.Thread(target=context.run, args=(turn.run, action), name="storage", daemon=True)
    turn.thread, pace = thread, _Pace(turn, limit)
    try:
        thread.start()
    except RuntimeError:
        return action()  # no thread can be had: then nobody can wait for it either
    while not turn.wait(_POLL):
        if give_up():
            turn.give_up()
            raise StorageError(f"{turn.where or 'storage'}: given up before it answered")
        now = time.monotonic()
        quiet = pace.quiet(now)
        most = min(seconds, _BRIEF) if turn.place in _SILENT else seconds
        if not turn.where:
            most = max(most, _OPENING)
        if quiet >= most and now - began >= min(1.0, seconds) and not turn.is_on_disk:
            turn.give_up()
            _SILENT.add(turn.place)
            # It may have been refused again and again, and only the last try had no time to be refused too.
            met = turn.refused or limit.refused
            why = f"; the last error was: {met}" if met is not None else ""
            raise StorageSilent(f"{turn.where or 'storage'}: nothing moved for {quiet:.0f} s, and it was given up{why}")
        if min(quiet, now - began) >= _SAID_EVERY / 2:
            then = "" if turn.is_on_disk else f"; it is given up after {most:.0f} s"
            where = turn.where or "its driver is loaded"
            lines.say(f"storage does not answer: {where}: nothing has moved for {quiet:.0f} s{then}")
    limit.ended_in_silence = pace.quiet(time.monotonic()) >= seconds / 4
    return turn.result()


class _Pace:
    """Since when less than 1 KiB a second moves."""

    def __init__(self, turn: WatchedCall, limit: Limit) -> None:
        self._turn, self._limit = turn, limit
        self._renew(max(limit.begun, limit.last))

    def _renew(self, since: float, travelled: int | None = None) -> None:
        self._since, self._travelled = since, travelled
        self._worked: float | None = None
        self._handed_on = self._turn.bytes, self._limit.bytes

    def quiet(self, now: float) -> float:
        """Seconds without progress."""
        answered = max(self._turn.answered, self._limit.waited)
        if answered > self._since:
            self._renew(answered)
        if now - self._since < _SHORT:
            return max(0.0, now - self._since)
        # Whoever computes does not wait: what is loaded and hashed here may take long on a busy machine.
        if self._worked is None:
            self._worked = _cpu_seconds()
        elif _cpu_seconds() - self._worked >= _SHARE * (now - self._since):
            self._renew(now)
            return 0.0
        travelled = _TRAFFIC.count(now)
        if self._travelled is None:
            self._travelled = travelled  # what went before is not looked at: that costs more than most calls
        # What was handed on counts by itself: from and to a disk nothing travels.
        handed_on = self._turn.bytes, self._limit.bytes
        gained = max(travelled - self._travelled, *map(operator.sub, handed_on, self._handed_on))
        if gained >= _LEAST * (now - self._since):
            self._renew(now, travelled)
        return now - self._since


def _cpu_seconds() -> float:
    """Seconds that the threads of this process, but for the one that asks, have computed or waited for a processor."""
    own, total = str(threading.get_native_id()), 0
    with contextlib.suppress(OSError, ValueError, IndexError):
        for name in os.listdir("/proc/self/task"):
            if name != own:
                with open(f"/proc/self/task/{name}/schedstat", "rb") as file:
                    computed, waited = file.read().split()[:2]
                total += int(computed) + int(waited)
    return total / 1e9


class _Traffic:
    """Bytes of this process's TCP connections, as the kernel counts them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[int, int] = {}
        self._total = 0
        self._next = 0.0

    def count(self, now: float) -> int:
        with self._lock:
            if now >= self._next:
                self._next = now + _POLL
                there = dict(_connections())
                self._total += sum(max(0, count - self._seen.get(node, 0)) for node, count in there.items())
                self._seen = there
            return self._total

    def add(self, count: int) -> None:
        """Add `count` bytes that another process moved for this one."""
        with self._lock:
            self._total += count


_TRAFFIC = _Traffic()
traffic, moved_elsewhere = _TRAFFIC.count, _TRAFFIC.add


def _connections() -> Iterator[tuple[int, int]]:
    """Each connection to storage: the number of its socket, and how many bytes went through."""
    import socket  # a run without storage far away needs none

    try:
        names = os.listdir("/proc/self/fd")
    except OSError:
        return
    for name in names:
        # The number may be another file's a moment later: what is looked at is a copy of our own.
        with contextlib.suppress(OSError, ValueError, struct.error):
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as own:
                if own.family not in (socket.AF_INET, socket.AF_INET6) or own.type != socket.SOCK_STREAM:
                    continue
                ports = {own.getsockname()[1], own.getpeername()[1]}
                if not ports & CALL_DEFAULTS.other_ports:
                    told = own.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                    taken, came = _COUNTS.unpack_from(told, _COUNTS_AT)
                    yield os.fstat(own.fileno()).st_ino, came + max(0, taken - _ASKING)


def with_timeout(method: Any) -> Any:
    """A method of a store, `(self, key, …)`, that is waited for: by those around it, else by itself."""

    def ask(turn: WatchedCall, work: Callable[[], Any]) -> Any:
        try:
            found = work()
        except (FileNotFoundError, FileExistsError):
            turn.note_answer()
            raise
        turn.note_answer()
        return found

    return _bounded_call(method, ask)


def _bounded_call(method: Any, ask: Callable[[WatchedCall, Callable[[], Any]], Any]) -> Any:
    @functools.wraps(method)
    def call(store: Any, *given: Any, **named: Any) -> Any:
        def work() -> Any:
            if (turn := current()) is None:
                return method(store, *given, **named)
            turn.note_request(str(store.url(given[0] if given and isinstance(given[0], str) else "")), store.url(""))
            return ask(turn, lambda: method(store, *given, **named))

        return work() if current() is not None else _attend_alone(work)

    return call


def stream_with_timeout(method: Any) -> Any:
    """The same for a method that yields pieces."""

    @functools.wraps(method)
    def call(store: Any, key: str) -> Iterator[Any]:
        turn, pieces = current(), method(store, key)
        if turn is not None:
            turn.note_request(store.url(key), store.url(""))
            yield from pieces
            return
        while True:
            if (piece := _attend_alone(lambda: next(pieces, None))) is None:
                return
            yield piece

    return call


def _attend_alone(action: Callable[[], Any]) -> Any:
    return attend(action, Limit(CALL_DEFAULTS.seconds), lambda: False, LogThrottle(CALL_DEFAULTS.say))


def with_disk_timeout(method: Any) -> Any:
    """The same for a folder, where it may take long without a sign: nobody sees how far a disk, or a mount, has come.
    That is said, and a notice is heard, but it is not given up."""

    def ask(turn: WatchedCall, work: Callable[[], Any]) -> Any:
        with turn.on_disk():
            return work()

    return _bounded_call(method, ask)


def leave(code: int) -> int:
    """The exit code; where threads were given up and still hang, the process ends here and does not wait for them."""
    if any(thread.is_alive() for thread in _GIVEN_UP):
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)
    return code


_IN_VAIN = 3
"""So many long tries in a row that came no further are enough."""


class Limit:
    """How long storage may fail, counted from the last progress: a long transfer that moves is not in trouble.

    Bytes that move once more, in another try, are no progress: a store that takes all of a file and then refuses it
    would be tried for ever.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.last = self._before = time.monotonic()
        self.bytes, self.waited = 0, 0.0
        """All that has moved, in whichever try; and when we waited last, of our own will."""
        self.ended_in_silence = False
        """Whether the last try stood still before it failed."""
        self.renew()

    def renew(self) -> None:
        """From now on it is about something else, of which nothing has moved yet."""
        self.begun = time.monotonic()
        self.refused: StorageError | None = None
        """Why the try before failed."""
        self._moved = self._furthest = self._settled = self._in_vain = 0

    def progress(self, moved: int | None = None) -> None:
        """Something was done; or so many bytes more have `moved` in this try; none, when we wait of our own will."""
        if not moved:
            self.waited = time.monotonic()
        if moved is not None:
            self._moved += moved
            self.bytes += moved
            if self._moved <= self._furthest:
                return
            self._furthest = self._moved
        self.last = time.monotonic()

    def begin(self) -> None:
        """A try begins, perhaps from the beginning."""
        self._moved, self._before = 0, self.last

    def has_gained(self, settled: int = 0) -> bool:
        """Whether the try that failed came further than any before; so much is `settled` and will not be sent again."""
        if settled > self._settled:
            self._settled = settled
            self.progress()
        gained = self.last != self._before
        self._in_vain = 0 if gained else self._in_vain + 1
        return gained

    def is_over(self, wait: float = 0.0) -> bool:
        """Whether it is given up, instead of waiting so long. Tries that take long may come less far than the best."""
        enough = not self._moved or self._in_vain >= _IN_VAIN or self.ended_in_silence
        return time.monotonic() + wait >= self.until and enough

    @property
    def until(self) -> float:
        return self.last + self.seconds


def persist(
    action: Callable[[], object],
    limit: Limit,
    give_up: Callable[[], bool] = lambda: False,
    *,
    settled: Callable[[], int] = lambda: 0,
    say: Callable[[str], None] | None = None,
    first_wait: float = 0.1,
    longest_wait: float = 5.0,
) -> object:
    """Do it, and on a storage error again with growing waits, up to a limit.

    `settled` says how much of it is done for good, in any unit; `say` hears now and then what is wrong. One that does
    not answer is given up at the same moment, one that is refused for good at once.
    """
    wait, lines = first_wait, LogThrottle(say or CALL_DEFAULTS.say)
    limit.renew()
    while True:
        try:
            limit.begin()
            done = attend(action, limit, give_up, lines)
            limit.progress()
            return done
        except StorageError as refusal:
            limit.refused = refusal
            limit.ended_in_silence = limit.ended_in_silence or isinstance(refusal, ConnectionLate)
            wait = first_wait if limit.has_gained(settled()) else wait
            if give_up() or limit.is_over(wait) or isinstance(refusal, (StorageSilent, Refusal)):
                raise
            lines.say(f"storage fails, and is tried again: {refusal}")
            left = wait
            while left > 0:
                time.sleep(min(_POLL, left))
                left -= _POLL
                if give_up():
                    raise
        wait = min(2 * wait, longest_wait)
