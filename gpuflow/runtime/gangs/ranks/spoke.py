"""A member's side: one connection to rank 0. When it is lost, the gang is lost."""

from __future__ import annotations

import os
import selectors
import socket
import time

from gpuflow.runtime.base import child, units
from gpuflow.runtime.base.child import say
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.outcomes import EXIT_INTERRUPTED, INTERRUPTED
from gpuflow.runtime.gangs.ranks import protocol
from gpuflow.runtime.gangs.ranks.connection import ConnectionClosed, ConnectionThread, Line
from gpuflow.runtime.gangs.ranks.protocol import COLLATERAL
from gpuflow.runtime.supervise.running import StopRequested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from gpuflow.runtime.base.outcomes import Ending
    from gpuflow.runtime.base.signing import Keys
    from gpuflow.runtime.gangs.ranks.protocol import Message, Place

_POLL = 0.02
_LONGEST_WAIT = 1.0
_ONE_TRY = 5.0
_ANSWER_WITHIN = 10.0


class GangEnded(Exception):
    """The gang has ended before this rank's command ran; `Spoke.verdict` says how."""


class Verdict:
    """How the gang ended: the exit code of every rank."""

    def __init__(self, code: int, outcome: str, because: str) -> None:
        self.code, self.outcome, self.because = code, outcome, because


class Spoke(ConnectionThread):
    """A member's connection. Lost once, it is never made again: rank 0 has counted this rank as lost then."""

    def __init__(self, place: Place, keys: Keys | None) -> None:
        super().__init__(place.times)
        self.place, self.keys = place, keys
        self.order: str | None = None
        """Why the command has to stop, once it has to."""
        self.verdict: Verdict | None = None
        self._line: Line | None = None
        self._heard: dict[str, Message] = {}
        self._running = self._said_stopping = False
        self.keep: Message | None = None
        self.done: Message | None = None
        self.enough = False
        """What rank 0 last asked of our part of a checkpoint, what it said of one, and whether that was all."""
        self.wake_keeper: Callable[[], None] = lambda: None
        self.nonce = os.urandom(16).hex()
        """What rank 0 must sign with every order, where there is a key."""
        self.take_order: Callable[[Message], None] = lambda message: None
        """Who starts what rank 0's mpirun asks for."""
        self.listening: Callable[[], int] | None = None
        """How many processes of our program save when they are told to stop."""

    # -- what the main thread asks for

    def connect(self, timeout: float) -> None:
        """Reach rank 0: its name may not be known yet, its pod not be up, and it may have another visitor."""
        until, wait, said = time.monotonic() + timeout, 0.1, ""
        while True:
            try:
                self._heard.clear()
                self._line = self._join()
                break
            except (OSError, ConnectionClosed) as refusal:
                why = getattr(refusal, "strerror", None) or str(refusal) or type(refusal).__name__
            if time.monotonic() >= until:
                place = self.place
                raise BadOption(
                    f"rank {place.rank} of {place.size} cannot join its gang at {place.address} within "
                    f"{units.format_seconds(timeout)}: {why}; is the pod of rank 0 running, does its name resolve, and "
                    f"does every NetworkPolicy let this pod reach its port {place.port}?"
                )
            if why != said:
                said = why
                say(f"rank {self.place.rank} waits for rank 0 at {self.place.address}: {why}")
            self._pause(min(wait, max(0.0, until - time.monotonic())))
            wait = min(2 * wait, _LONGEST_WAIT)
        self.selector.register(self._line.socket, selectors.EVENT_READ, self._line)
        self.start()

    def wait_for(self, what: str) -> Message:
        """The next message of rank 0; GangEnded when all is over, StopRequested when this rank has to stop."""
        while True:
            with self.lock:
                if what in self._heard:
                    return self._heard[what]
                if self.verdict is not None:
                    raise GangEnded()
            if child.stop_is_pending():
                self.report_stop(
                    INTERRUPTED, f"rank {self.place.rank} was told to stop before the command ran", told=True
                )
                raise StopRequested()
            time.sleep(_POLL)

    def say(self, what: str, **facts: Any) -> None:
        with self.lock:
            if self._line is not None and not self._line.closed:
                self._write(self._line, protocol.pack(what, **facts))

    def go(self) -> None:
        self.wait_for("go")
        with self.lock:
            self._running = True

    def report_stop(self, outcome: str, because: str, *, told: bool = False) -> None:
        """This rank was told to stop, or its time is over: rank 0 tells the others."""
        with self.lock:
            if not self._said_stopping:
                self._said_stopping = True
                self.say("stopping", outcome=outcome, because=because, told=told)

    def report_end(self, ending: Ending, *, collateral: bool) -> None:
        """This rank's command has ended."""
        outcome = COLLATERAL if collateral else ending.outcome
        self.say("ended", outcome=outcome, because=ending.because, code=ending.own_code)

    def await_verdict(self, until: float | None, grace: float) -> Verdict:
        """What rank 0 says in the end. A rank that was told to stop leaves in time, also without it."""
        while True:
            with self.lock:
                if self.verdict is not None:
                    return self.verdict
            if until is None and child.stop_is_pending():
                # Nothing of the command is left that could use the grace.
                until = time.monotonic() + max(0.2, grace - min(1.0, grace / 10))
                self.report_stop(INTERRUPTED, f"rank {self.place.rank} was told to stop", told=True)
            if until is not None and time.monotonic() >= until:
                because = "told to stop; the gang's verdict did not come in time"
                return Verdict(EXIT_INTERRUPTED, INTERRUPTED, because)
            time.sleep(_POLL)

    def leave(self) -> None:
        """Send `bye`; a member that disconnects without it counts as lost."""
        self.say("bye")
        self.end()
        if self._line is not None:
            self._line.close()

    # -- how it joins

    def _join(self) -> Line:
        """Try once to connect; OSError or ConnectionClosed on failure."""
        place = self.place
        connection = socket.create_connection((place.leader, place.port), _ONE_TRY)
        line = Line(connection, place.leader)
        try:
            welcome = self._wait_for_first(line, "welcome")
            nonce = protocol.text(welcome, "nonce")
            facts: dict[str, Any] = {"gpuflow": protocol.VERSION, "gang": place.name, "rank": place.rank}
            if place.slots is not None:
                facts.update(slots=place.slots, nonce=self.nonce)
            if self.keys is not None:
                facts["proof"] = self.keys.sign(nonce, protocol.sign_of(place.name, place.rank))
            line.write(protocol.pack("hello", size=place.size, **facts))
            self._wait_for_first(line, "beat")  # rank 0 turns away at once, or gives signs of life
        except BaseException:
            line.close()
            raise
        return line

    def _wait_for_first(self, line: Line, what: str) -> Message:
        until = time.monotonic() + _ANSWER_WITHIN
        while time.monotonic() < until:
            found = line.read()
            for message in found:
                self._hear(line, message)
            for message in found:
                if message["say"] == what:
                    return message
                if message["say"] == "no":
                    why = f"it turned this rank away: {protocol.text(message, 'because')}"
                    if message.get("final") is True:
                        raise BadOption(f"rank {self.place.rank} cannot join its gang at {self.place.address}: {why}")
                    raise ConnectionClosed(why)
            self._pause(_POLL)
        raise ConnectionClosed("it does not answer as rank 0 of a gang does")

    def _pause(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            if child.stop_is_pending():
                raise StopRequested()
            left = until - time.monotonic()
            if left <= 0:
                return
            time.sleep(min(_POLL, left))

    # -- what the thread does

    def on_beat(self) -> None:
        self.say("beat", **({} if self.listening is None else {"listening": self.listening()}))

    def on_tick(self, now: float) -> None:
        if (line := self._line) is None or line.closed:
            return
        if now - line.heard > self.times.lost:
            self._drop(line, f"nothing was heard from it for {units.format_seconds(self.times.lost)}")
        elif line.has_unsent:
            self._write(line, b"")

    def forgive(self, now: float) -> None:
        if self._line is not None:
            self._line.heard = now

    def _hear(self, line: Line, message: Message) -> None:
        what = message["say"]
        self._heard[what] = message
        if what == "verdict" and self.verdict is None:
            code = protocol.number(message, "code")
            outcome, because = protocol.text(message, "outcome"), protocol.text(message, "because")
            self.verdict = Verdict(EXIT_INTERRUPTED if code is None else code, outcome, because)
        if what in ("keep", "done", "enough", "verdict"):
            self.keep = message if what == "keep" else self.keep
            self.done = message if what == "done" else self.done
            self.enough = self.enough or what == "enough"
            self.wake_keeper()
        if what in ("run", "hangup", "over"):
            self.take_order(message)
        if what in ("stop", "verdict") and self.order is None:
            self.order = protocol.text(message, "because", "the gang has ended")
            child.wake()

    def _drop(self, line: Line, why: str) -> None:
        self._close(line)
        if self.verdict is None:
            because = f"rank 0 is lost: {why}"
            self.verdict = Verdict(EXIT_INTERRUPTED, INTERRUPTED, because)
            self.order = self.order or because
            child.wake()
