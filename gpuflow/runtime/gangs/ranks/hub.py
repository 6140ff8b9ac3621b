"""Rank 0's side of the connections: it lets in members and nobody else, starts all, and tells all the end.

With `--sharded` a checkpoint has a part from each rank. Rank 0 knows who has finished and who has stored, and makes the
one list:

    every program finishes an entry of the same name ── every member says `finished`
    rank 0 says `keep` ── all upload their own files under one name ── each writes its list, and says `part`
    rank 0 puts the lists together, sees that every file is there, and writes the manifest: now the checkpoint exists

Whoever is lost on the way leaves files without a manifest: no checkpoint. The next one prunes them.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import selectors
import socket
import time

from gpuflow.runtime.base import child, records, units
from gpuflow.runtime.base.child import say
from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.outcomes import FINAL, INTERRUPTED, OUTCOMES, RETRYABLE, SUCCEEDED, TIMED_OUT
from gpuflow.runtime.base.records import Corrupt, File, Manifest
from gpuflow.runtime.gangs.ranks import protocol
from gpuflow.runtime.gangs.ranks.connection import ConnectionClosed, ConnectionThread, Line
from gpuflow.runtime.gangs.ranks.protocol import COLLATERAL, Report, Tally
from gpuflow.runtime.stores.local_files import CheckpointRefused, CheckpointVanished
from gpuflow.runtime.stores.store import StorageError, Store
from gpuflow.runtime.supervise.running import StopRequested

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, Protocol

    from gpuflow.runtime.base.outcomes import Ending
    from gpuflow.runtime.base.signing import Keys
    from gpuflow.runtime.gangs.ranks.protocol import Message, Place
    from gpuflow.runtime.state.checkpoint_dir import Directory
    from gpuflow.runtime.state.ledger import Ledger

    class AgentServer(Protocol):
        """Who sends mpirun's orders to members; `mpi` has it."""

        def hear(self, rank: int, message: Message) -> None: ...
        def lose(self, rank: int, why: str) -> None: ...


FROM_MEMBERS = ("finished", "part", "nopart", "moving", "last")
"""What members say of their parts. `protocol` has the table."""
_MOST_ENTRIES = 64
"""Entries that are remembered of one rank: programs keep only a few."""
_TOKEN = 4096


class Parts:
    """What rank 0 knows of the members' parts. The hub's thread fills it, the keeper's thread reads it."""

    def __init__(self, hub: Hub, ranks: Iterable[int]) -> None:
        self._hub, self.ranks = hub, sorted(ranks)
        self._finished: dict[int, dict[str, str]] = {rank: {} for rank in self.ranks}
        self._stored: dict[int, tuple[str, str]] = {}
        self._refused: dict[int, Message] = {}
        self._over: set[int] = set()
        self._order = 0
        self.moved = time.monotonic()
        """When anything was last heard of a part."""
        self.wake: Callable[[], None] = lambda: None

    # -- the star's thread

    def hear(self, rank: int, message: Message) -> None:
        """A member's word; the hub's lock is held."""
        what = message["say"]
        self.moved = time.monotonic()
        if rank not in self._finished:
            return
        if what == "finished":
            known = self._finished[rank]
            name = protocol.text(message, "entry")
            known.pop(name, None)
            known[name] = protocol.text(message, "token")
            for old in list(known)[:-_MOST_ENTRIES]:
                del known[old]
        elif what == "part" and protocol.number(message, "order") == self._order:
            self._stored[rank] = (protocol.text(message, "checkpoint"), protocol.text(message, "digest"))
        elif what == "nopart" and protocol.number(message, "order") == self._order:
            self._refused[rank] = message
        elif what == "last":
            self._over.add(rank)
        if what != "moving":
            self.wake()

    # -- the keeper's thread

    def members_without(self, entry: str, token: str) -> list[int]:
        """The members that have not finished this entry, of the same save."""
        with self._hub.lock:
            return [rank for rank in self.ranks if self._finished[rank].get(entry) != token]

    def may_finish_more(self) -> bool:
        """Whether a member that is alive may still finish an entry."""
        with self._hub.lock:
            return any(rank in self._hub.members and rank not in self._over for rank in self.ranks)

    def ask(self, entry: str, token: str, checkpoint: str) -> None:
        """Tell every member to store its part under this name."""
        with self._hub.lock:
            self._order += 1
            self._stored.clear()
            self._refused.clear()
            self.moved = time.monotonic()
            self._hub.tell("keep", entry=entry, token=token, checkpoint=checkpoint, order=self._order)

    def announce(self, checkpoint: str, *, kept: bool) -> None:
        """Tell the members whether the checkpoint was stored."""
        self._hub.tell("done", checkpoint=checkpoint, kept=kept)

    def close(self) -> None:
        """Tell them that no part is asked for any more."""
        self._hub.tell("enough")

    def lost_members(self) -> list[int]:
        with self._hub.lock:
            return [rank for rank in self.ranks if rank not in self._hub.members]

    def answers(self, checkpoint: str) -> dict[int, str] | None:
        """What each member's list hashes to, once all have stored theirs. Raises what a member could not do."""
        with self._hub.lock:
            for rank, message in sorted(self._refused.items()):
                because = f"rank {rank}: {protocol.text(message, 'because', 'it did not say why')}"
                kind = protocol.text(message, "kind")
                raise {"refused": CheckpointRefused, "gone": CheckpointVanished}.get(kind, StorageError)(because)
            found = {rank: digest for rank, (name, digest) in self._stored.items() if name == checkpoint}
        return found if len(found) == len(self.ranks) else None


def token_of(directory: Directory, entry: str) -> str:
    """What tells one save from another under the same name: a hash of its marker's text, empty where there is none."""
    try:
        text = directory.shared.read(f"{entry}/{directory.marker}", _TOKEN)
    except (OSError, ValueError):
        return ""
    return hashlib.sha256(text).hexdigest()[:16] if text.strip() else ""


def list_key(ledger: Ledger, checkpoint: str, rank: int) -> str:
    """Where the list of one rank's files lies."""
    return ledger.key("checkpoints", checkpoint, "shards", f"{rank:06d}.json")


def write_list(store: Store, ledger: Ledger, rank: int, part: Manifest) -> str:
    """Store the list of one rank's files, and read it back; what its bytes hash to."""
    key = list_key(ledger, part.checkpoint, rank)
    data = records.pack(part, key, ledger.keys)
    if len(data) > records.LARGE:
        raise CheckpointRefused(f"its {len(part.files)} files are too many to name in one list; put them into archives")
    store.write_surely(key, data)
    return hashlib.sha256(data).hexdigest()


def read_list(store: Store, ledger: Ledger, rank: int, checkpoint: str, entry: str, digest: str) -> list[File]:
    """The files of one rank's part, exactly as that rank said it had stored them."""
    key = list_key(ledger, checkpoint, rank)
    try:
        data = store.read(key)
    except FileNotFoundError:
        raise StorageError(
            f"the list of rank {rank} is not in the store as rank 0 sees it ({key}); is --store the same place for all?"
        ) from None
    if hashlib.sha256(data).hexdigest() != digest:
        raise StorageError(f"{key} is not what rank {rank} has stored")
    try:
        part: Manifest = records.unpack(Manifest, data, key, ledger.keys)
    except Corrupt as damage:
        raise StorageError(str(damage)) from None
    if (part.checkpoint, part.entry, part.attempt) != (checkpoint, entry, ledger.number):
        raise StorageError(f"{key} is of another checkpoint")
    if part.kind != "directory":
        raise CheckpointRefused(f"{entry} is a file on rank {rank}; a checkpoint of many ranks is a directory")
    return part.files


def merge_lists(parts: Mapping[int, list[File]]) -> list[File]:
    """The files of all ranks as those of one folder. What two ranks have both must be the same."""
    found: dict[str, tuple[int, File]] = {}
    for rank in sorted(parts):
        for file in parts[rank]:
            first, known = found.setdefault(file.path, (rank, file))
            if (known.sha256, known.link, known.directory) != (file.sha256, file.link, file.directory):
                raise CheckpointRefused(
                    f"{file.path} is not the same on rank {first} and on rank {rank}; let one rank write it, or give "
                    "each rank's file a name of its own"
                )
    return [found[path][1] for path in sorted(found)]


def check_all_listed(store: Store, prefix: str, files: Iterable[File]) -> None:
    """StorageError unless the store lists every file with its size."""
    there = dict(store.names(prefix))
    for file in files:
        key = f"{prefix}/files/{file.path}"
        if file.sha256 is not None and there.get(key) != file.size:
            raise StorageError(f"{key} has {there.get(key)} bytes in the store, not {file.size}")


_POLL = 0.02
_HELLO_WITHIN = 10.0
"""Seconds for a new connection to say who it is."""
_MOST_UNKNOWN = 32
"""Connections that have not said who they are, beside one per rank."""
_REMARKS = 20
_REJECTION = "no proof of being of this gang; the log of rank 0 says more"
"""What a stranger is told, whatever was wrong."""
_BYE_WITHIN = 2.0
_KNOWN_OUTCOMES = frozenset((*OUTCOMES, COLLATERAL))


class Hub(ConnectionThread):
    """Rank 0's side of all connections. The main thread sends requests; this thread reads and answers."""

    def __init__(self, place: Place, keys: Keys | None) -> None:
        super().__init__(place.times)
        self.place, self.keys = place, keys
        self.tally = Tally(place.size, place.times)
        self.order: str | None = None
        """Why every command has to stop, once it has to."""
        self.members: dict[int, Line] = {}
        self._strangers: list[Line] = []
        self._answers: dict[str, dict[int, Message]] = {}
        self._refused: str | None = None
        self._closed_to_new = False
        self._complete = self._running = self._ignores_stops = False
        self._remarks: set[str] = set()
        self._listener: socket.socket | None = None
        self.parts: Parts | None = None
        """The members' parts of checkpoints, where they have some."""
        self.agent_server: AgentServer | None = None
        """Who sends the orders of rank 0's mpirun, where it is the program."""
        self._listening: dict[int, int] = {}

    # -- what the main thread asks for

    def listen(self, timeout: float) -> None:
        """Open the port. One that an older attempt on this machine still has is waited for."""
        until = time.monotonic() + timeout
        while True:
            try:
                self._listener = _listener(self.place.port)
                break
            except OSError as refusal:
                if time.monotonic() >= until:
                    raise BadOption(
                        f"rank 0 cannot listen on port {self.place.port} (--gang-port): {refusal.strerror or refusal}"
                    ) from None
                if child.stop_is_pending():
                    raise StopRequested() from None
                self._remark(f"port {self.place.port} cannot be had yet: {refusal.strerror or refusal}")
                time.sleep(0.2)
        self._listener.setblocking(False)
        if self.keys is None and self.place.size > 1:
            say(
                f"no ${protocol.SECRET} and no --key-file: whoever reaches port {self.place.port} and knows the name "
                "of this gang can join it"
            )
        self.selector.register(self._listener, selectors.EVENT_READ, None)
        self.start()

    def gather(self, timeout: float) -> None:
        """Wait until every rank is here. Nothing has been counted yet, so that a gang that waits costs nothing."""
        until, size = time.monotonic() + timeout, self.place.size
        while True:
            with self.lock:
                missing = [rank for rank in range(1, size) if rank not in self.members]
                self._complete = not missing
            if not missing:
                break
            if child.stop_is_pending():
                raise StopRequested()
            if time.monotonic() >= until:
                raise BadOption(
                    f"rank {', '.join(map(str, missing))} of {size} did not come within "
                    f"{units.format_seconds(timeout)} to {self.place.leader or os.uname().nodename}, port "
                    f"{self.place.port}; are those pods running, and does every NetworkPolicy let the gang's pods "
                    f"reach port {self.place.port} of rank 0?"
                )
            time.sleep(_POLL)
        if size > 1:
            say(f"all {size} ranks are here")

    def ask(self, question: str, answer: str, **facts: Any) -> dict[int, Message]:
        """Ask every member, and wait for all answers. A member that is lost or told to stop meanwhile ends the gang."""
        self.tell(question, **facts)
        while True:
            with self.lock:
                found = self._answers.get(answer, {})
                decided, refused = self.tally.decided, self._refused
            if decided is not None or child.stop_is_pending():
                raise StopRequested()
            if refused is not None:
                raise BadOption(refused)
            if len(found) == self.place.size - 1:
                return found
            time.sleep(_POLL)

    def go(self) -> None:
        with self.lock:
            self._running = True
            self.tell("go")

    def report_stop(self, outcome: str, because: str, *, told: bool = False) -> None:
        """Rank 0 itself was told to stop, or its time is over."""
        with self.lock:
            self.tally.report_stop(0, outcome, because, told=told)
            self._act()

    def report_end(self, ending: Ending, *, collateral: bool) -> None:
        """Rank 0's own command has ended."""
        with self.lock:
            outcome = COLLATERAL if collateral else ending.outcome
            self.tally.report_end(0, outcome, ending.because, ending.own_code, time.monotonic())
            self._act()

    def outcome(self, until: Callable[[], float | None]) -> Report:
        """The gang's outcome, when it is certain. At the latest `until`, when rank 0 itself has to leave."""
        while True:
            with self.lock:
                if self.tally.decided is not None:
                    self._ignores_stops = self.tally.decided.outcome == SUCCEEDED
                    return self.tally.decided
                if (deadline := until()) is not None and time.monotonic() >= deadline:
                    self.tally.report_stop(0, INTERRUPTED, "rank 0 had no more time to wait for the others")
            time.sleep(_POLL)

    def conclude(self, code: int, outcome: str, because: str) -> None:
        """Tell every member the exit code of all, and go. Those whose command runs still stop it by themselves."""
        with self.lock:
            self._closed_to_new = True
            self.tell("verdict", code=code, outcome=outcome, because=because)
        until = time.monotonic() + _BYE_WITHIN
        while time.monotonic() < until:
            with self.lock:
                waiting = [rank for rank, line in self.members.items() if line.has_unsent or rank in self.tally.over]
                waiting = [rank for rank in waiting if rank not in self._answers.get("bye", {})]
            if not waiting:
                break
            time.sleep(_POLL)
        self.end()
        for line in (*self.members.values(), *self._strangers):
            line.close()
        if self._listener is not None:
            self._listener.close()

    def tell(self, what: str, **facts: Any) -> None:
        """One message to every member."""
        with self.lock:
            for line in list(self.members.values()):
                self._write(line, protocol.pack(what, **facts))

    def tell_one(self, rank: int, what: str, **facts: Any) -> bool:
        """One message to one member; False when it is not there."""
        with self.lock:
            if (line := self.members.get(rank)) is not None:
                self._write(line, protocol.pack(what, **facts))
            return rank in self.members

    def others_listen(self) -> bool:
        """Whether programs on other ranks have said that they save when they are told to stop."""
        with self.lock:
            return any(count for rank, count in self._listening.items() if rank in self.members)

    # -- what the thread does

    def on_beat(self) -> None:
        self.tell("beat")

    def on_tick(self, now: float) -> None:
        for line in list(self.members.values()):
            if now - line.heard > self.times.lost:
                self._drop(line, f"nothing was heard from it for {units.format_seconds(self.times.lost)}")
            elif line.has_unsent:
                self._write(line, b"")
        for line in list(self._strangers):
            if now - line.opened > _HELLO_WITHIN:
                self._reject(line, "it did not say who it is", told=_REJECTION)
        if self._running and not self._ignores_stops and child.stop_is_pending():
            # The main thread is at work elsewhere, such as the last upload.
            self.tally.report_stop(0, INTERRUPTED, "rank 0 was told to stop", told=True)
        self.tally.look(now)
        self._act()

    def forgive(self, now: float) -> None:
        for line in (*self.members.values(), *self._strangers):
            line.heard = line.opened = now

    def _act(self) -> None:
        """Once the outcome is certain and is no success: everybody stops."""
        decided = self.tally.decided
        if decided is None or decided.outcome == SUCCEEDED or self.order is not None:
            return
        self.order = _sentence(decided)
        if self.place.size > 1 and self._complete:
            say(f"{self.order}; all ranks are told to stop")
        self.tell("stop", because=self.order)
        child.wake()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, peer = self._listener.accept()
        except OSError:
            return
        line = Line(connection, str(peer[0]))
        if len(self._strangers) >= _MOST_UNKNOWN + self.place.size:
            self._reject(self._strangers[0], "too many connections that did not say who they are", told=_REJECTION)
        line.nonce = os.urandom(16).hex()
        self._strangers.append(line)
        self.selector.register(connection, selectors.EVENT_READ, line)
        self._write(line, protocol.pack("welcome", gpuflow=protocol.VERSION, nonce=line.nonce))

    def _hear(self, line: Line, message: Message) -> None:
        if line.rank is None:
            self._greet(line, message)
            return
        what, rank, because = message["say"], line.rank, protocol.text(message, "because", "it did not say why")
        outcome = protocol.text(message, "outcome")
        if what == "stopping" and outcome in (INTERRUPTED, TIMED_OUT):
            self.tally.report_stop(rank, outcome, because, told=message.get("told") is True)
        elif what == "ended" and outcome in _KNOWN_OUTCOMES:
            self.tally.report_end(rank, outcome, because, protocol.number(message, "code"), time.monotonic())
        elif what == "refuse":
            self._refused = self._refused or f"rank {rank} cannot start: {because}"
        elif what in ("seen", "ready", "bye"):
            self._answers.setdefault(what, {})[rank] = message
        elif what in FROM_MEMBERS and self.parts is not None:
            self.parts.hear(rank, message)
        elif what in ("printed", "returned") and self.place.slots is not None:
            if self.agent_server is not None:
                self.agent_server.hear(rank, message)
        elif what == "beat":
            self._listening[rank] = protocol.number(message, "listening") or 0
        else:
            self._drop(line, f"it said what nobody understands here: {what[:40]!r}")
        self._act()

    def _greet(self, line: Line, message: Message) -> None:
        """Authenticate a new connection as a member of this gang."""
        place, rank = self.place, protocol.number(message, "rank")
        name = protocol.text(message, "gang")
        if message["say"] != "hello" or message.get("gpuflow") != protocol.VERSION or rank is None:
            self._reject(line, "it is no supervisor of a gang", told=_REJECTION)
        elif name != place.name:
            self._reject(line, f"it is of the gang {name[:80]!r}, and this is {place.name[:80]!r}", told=_REJECTION)
        elif self.keys is not None and not self.keys.verify(
            message.get("proof"), line.nonce, protocol.sign_of(place.name, rank)
        ):
            # Not for good: this may still be the address of another attempt, which has another secret.
            self._reject(line, f"it lacks this gang's ${protocol.SECRET} or key of --key-file", told=_REJECTION)
        elif message.get("size") != place.size or not 0 < rank < place.size:
            why = f"rank {rank} of {message.get('size')}, and this gang has the ranks 0 to {place.size - 1}"
            told = None if self.keys is not None else "it is none of the ranks of this gang"
            self._reject(line, f"it says that it is {why[:200]}", told=told, final=True)
        elif (protocol.number(message, "slots") is None) != (place.slots is None):
            self._reject(line, f"rank {rank} and rank 0 do not both have --mpi", final=True)
        elif rank in self.members:
            why = f"rank {rank} is here already"
            self._reject(line, f"{why}, from {self.members[rank].peer}", told=why)
        elif self._complete or self._closed_to_new:
            self._reject(line, f"rank {rank} comes too late: the gang has started", final=True)
        else:
            line.rank, line.hello = rank, message
            self._strangers.remove(line)
            self.members[rank] = line
            self._write(line, protocol.pack("beat"))

    def _reject(self, line: Line, why: str, *, told: str | None = None, final: bool = False) -> None:
        """Say why in our log, and to the peer only as much as it may know."""
        self._remark(f"a connection from {line.peer} was turned away: {why}")
        with contextlib.suppress(ConnectionClosed):
            line.write(protocol.pack("no", because=told or why, final=final))
        self._forget(line)

    def _drop(self, line: Line, why: str) -> None:
        rank = line.rank
        self._forget(line)
        if rank is None:
            self._remark(f"a connection from {line.peer} was closed before it said who it is: {why}")
            return
        if not self._complete:
            self._remark(f"rank {rank} has left before the gang was complete: {why}")
            return
        if self.agent_server is not None:
            self.agent_server.lose(rank, why)
        if rank not in self._answers.get("bye", {}):
            self.tally.report_loss(rank, f"rank {rank} is lost: {why}")
            self._act()

    def _forget(self, line: Line) -> None:
        self._close(line)
        if line in self._strangers:
            self._strangers.remove(line)
        if line.rank is not None and self.members.get(line.rank) is line:
            del self.members[line.rank]

    def _remark(self, sentence: str) -> None:
        """Log a sentence once, so that repeated connections do not fill the log."""
        if sentence not in self._remarks and len(self._remarks) < _REMARKS:
            self._remarks.add(sentence)
            say(sentence)


def _sentence(decided: Report) -> str:
    whose = f"rank {decided.rank}"
    if decided.outcome in (RETRYABLE, FINAL) or not decided.because.startswith(whose):
        return f"{whose}: {decided.because}"
    return decided.because


def _listener(port: int) -> socket.socket:
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=128)
        except OSError as refusal:
            import errno

            if refusal.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                raise
    return socket.create_server(("", port), backlog=128)
