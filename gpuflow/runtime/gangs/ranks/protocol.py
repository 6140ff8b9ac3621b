"""What the supervisors of one gang say to each other, how long they wait, and the one outcome that they agree on.

A rank says who it is, then each line is one JSON object with `say`. Rank 0 keeps, the others are members:

| message | from | means |
|---|---|---|
| `welcome` | rank 0 | someone listens here; `nonce` is what a key must sign |
| `hello` | member | rank, size, gang and `proof`; with `--mpi` its slots, and a `nonce` that orders must sign |
| `no` | rank 0 | turned away, and why, where the peer is one of us; `final` when asking again cannot help |
| `beat` | both | a sign of life; with `--mpi` also how many processes of the rank are `listening` for a stop |
| `look` / `seen` | rank 0 / member | whether rank 0's folder in the checkpoint directory is there for the member too |
| `begin` / `ready` | rank 0 / member | the attempt and its checkpoint / it has been restored |
| `refuse` | member | it cannot start the command, and why |
| `go` | rank 0 | all are ready: start the command |
| `finished` | member | with `--sharded`: its program has finished an entry; `token` is a hash of its marker's text |
| `keep` / `part`, `nopart` | rank 0 / member | store your part under this name / it is stored / it cannot be, and why |
| `moving` | member | its part is on its way |
| `done` | rank 0 | that checkpoint exists now, or never will |
| `last` / `enough` | member / rank 0 | its program finishes nothing more / nothing more is asked for |
| `run` / `hangup` | rank 0 | with `--mpi`: start this command of mpirun's, whose agent is at `agent` / end it |
| `printed`, `returned` | member | what such a command has printed / its exit code |
| `over` | rank 0 | rank 0's program has ended, with this code: there are no more orders |
| `report_stop` | member | it was told to stop, or its time is over |
| `ended` | member | its command has ended, and how |
| `stop` | rank 0 | tell your command to stop |
| `verdict` | rank 0 | how the gang ended: the exit code of every rank |
| `bye` | member | the verdict was heard |

Whoever is told to stop, or lost, takes the others with it: they fail of it, some earlier than the cause is known. So an
interruption beats every failure, and a failure waits a while for one. No clock decides, and the order in which reports
are looked at does not either.
"""

from __future__ import annotations

import json

from gpuflow.runtime.base.options import BadOption
from gpuflow.runtime.base.outcomes import DISK_LIMIT, FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE, SUCCEEDED, TIMED_OUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from gpuflow.runtime.base.options import Options
    from gpuflow.runtime.base.signing import Keys

    Message = dict[str, Any]


VERSION = 1
LONGEST = 64 << 10
"""Bytes of a line. Whoever sends more is none of us."""
_REASON = 2000
RANK, LEADER, NAME, TIMES = "GPUFLOW_RANK", "GPUFLOW_LEADER", "GPUFLOW_GANG", "GPUFLOW_GANG_TIMES"
SECRET = "GPUFLOW_GANG_SECRET"
"""What a rank has from whoever created its gang, and proves to have; another one for each attempt."""


class BadMessage(Exception):
    """What came is no message."""


def pack(say: str, **facts: Any) -> bytes:
    """One message as a line. Reasons are cut: a line has a limit."""
    if isinstance(facts.get("because"), str):
        facts["because"] = facts["because"][:_REASON]
    return json.dumps({"say": say, **facts}, sort_keys=True).encode("ascii") + b"\n"


def unpack(line: bytes) -> Message:
    """The message in a line, or BadMessage."""
    try:
        message = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        raise BadMessage("it is no JSON") from None
    if not isinstance(message, dict) or not isinstance(message.get("say"), str):
        raise BadMessage("it is no message of gpuflow-run")
    return message


def text(message: Mapping[str, Any], field: str, default: str = "") -> str:
    """A field that should be a text."""
    value = message.get(field)
    return value[:_REASON] if isinstance(value, str) else default


def long_text(message: Mapping[str, Any], field: str) -> str:
    """A field that should be a text, however long: a line has a limit."""
    value = message.get(field)
    return value if isinstance(value, str) else ""


def number(message: Mapping[str, Any], field: str) -> int | None:
    """A field that should be a whole number."""
    value = message.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


class Times:
    """How long is waited, in seconds. `$GPUFLOW_GANG_TIMES` changes it: `beat=2,lost=15,settle=20,launcher=60`."""

    def __init__(
        self, beat: float = 2.0, lost: float = 15.0, settle: float = 20.0, linger: float = 3.0, launcher: float = 60.0
    ) -> None:
        self.beat = beat
        """From one sign of life to the next."""
        self.lost = lost
        """A peer that gives no sign of life for so long is lost."""
        self.settle = settle
        """After a failure: how long ranks that still run may show that it was an interruption."""
        self.linger = linger
        """The same, once every rank has ended."""
        self.launcher = launcher
        """A launcher that owns its gang and does not answer for so long is lost."""


class Place:
    """One rank's place in its gang."""

    def __init__(
        self, rank: int, size: int, leader: str, port: int, name: str, times: Times, slots: int | None = None
    ) -> None:
        self.rank, self.size, self.leader, self.port, self.name, self.times = rank, size, leader, port, name, times
        self.slots = slots
        """How many processes rank 0's mpirun may start here; None: every rank runs the command itself."""

    @property
    def address(self) -> str:
        return f"{self.leader}:{self.port}" if ":" not in self.leader else f"[{self.leader}]:{self.port}"


def place(options: Options, environ: Mapping[str, str]) -> Place:
    """Who this supervisor is, from its options and the variables of its pod; BadOption for what cannot be."""
    size: int = options.gang
    given = environ.get(RANK, "").strip()
    if not (given.isascii() and given.isdigit() and len(given) < 8):
        raise BadOption(f"--gang {size}: ${RANK} must be this pod's rank, a number from 0 up; it is {given[:80]!r}")
    rank = int(given) + options.rank_offset
    if rank >= size:
        raise BadOption(f"--gang {size}: this is rank {rank}, and the last one is {size - 1}")
    leader = environ.get(LEADER, "").strip()
    if rank and not leader:
        raise BadOption(f"--gang {size}: rank {rank} needs ${LEADER}, the host of rank 0")
    return Place(rank, size, leader, options.gang_port, environ.get(NAME, ""), times(environ.get(TIMES)), options.mpi)


def times(given: str | None) -> Times:
    """The waits, those that were given in the place of the usual ones."""
    from gpuflow.runtime.base import units

    found: dict[str, float] = {}
    for word in (given or "").replace(" ", "").split(","):
        name, equals, value = word.partition("=")
        if not word:
            continue
        if not equals or name not in Times().__dict__:
            raise BadOption(f"${TIMES}: {word[:80]!r} is none of beat=, lost=, settle=, linger=, launcher=")
        try:
            found[name] = units.seconds(value)
        except ValueError as refusal:
            raise BadOption(f"${TIMES}: {refusal}") from None
    made = Times(**found)
    if not 0 < 2 * made.beat < made.lost or made.settle < made.lost:
        # A lost rank must be found out before the failure that it causes is counted.
        raise BadOption(f"${TIMES}: lost must be more than twice beat, and settle at least lost")
    return made


def new_secret() -> str:
    """The secret of one attempt."""
    import secrets

    return secrets.token_hex(32)


def proof_keys(keys: Keys | None, environ: Mapping[str, str]) -> Keys | None:
    """What the ranks prove themselves with: the gang's secret, the key of --key-file, or both where both are there."""
    from gpuflow.runtime.base.signing import SHORTEST, Keys

    secret = environ.get(SECRET, "").strip().encode("utf-8", "surrogateescape")
    if not secret:
        return keys
    if len(secret) < SHORTEST:
        raise BadOption(f"${SECRET} has {len(secret)} bytes, and needs at least {SHORTEST}")
    return Keys([secret]) if keys is None else keys.with_secret(secret)


def sign_of(name: str, rank: int) -> str:
    """What the key signs beside the nonce: a proof for one rank of one gang is worth nothing for another."""
    return f"gang/{name}/{rank}"


def order_sign(name: str, rank: int, order: int, command: str, agent: str = "") -> str:
    """What the key signs beside the member's nonce: this command, once, for this rank, and where the agent is."""
    import hashlib

    digest = hashlib.sha256(f"{command}\0{agent}".encode("utf-8", "surrogateescape")).hexdigest()
    return f"gang/{name}/{rank}/order/{order}/{digest}"


COLLATERAL = "ended with its gang"
"""The outcome of a rank whose command ended after the gang had told it to: it says nothing."""
STRONGEST_FIRST = (INTERRUPTED, FINAL, OUT_OF_MEMORY, DISK_LIMIT, TIMED_OUT, RETRYABLE)


class Report:
    """What is known of one rank. `order` numbers the reports as they came to rank 0: the first failure is the cause."""

    def __init__(
        self, rank: int, outcome: str, because: str, code: int | None = None, *, order: int = 0, told: bool = False
    ) -> None:
        self.rank, self.outcome, self.because, self.code = rank, outcome, because, code
        self.order = order
        self.told = told
        """Whether it got a stop signal: why, the engine may know."""


def agree(reports: Iterable[Report], size: int) -> Report:
    """The report that decides for the gang: the first with the strongest outcome; success only when all succeeded."""
    found = sorted(reports, key=lambda report: (report.order, report.rank))
    for outcome in STRONGEST_FIRST:
        for report in found:
            if report.outcome == outcome:
                return report
    missing = set(range(size)) - {report.rank for report in found if report.outcome == SUCCEEDED}
    if missing:
        ranks = ", ".join(map(str, sorted(missing)))
        return Report(min(missing), INTERRUPTED, f"nothing was heard from rank {ranks}")
    return Report(0, SUCCEEDED, f"the command ended well on all {size} ranks", 0)


class Tally:
    """The reports of a running gang, and when they are enough. It looks at no clock: moments are given to it."""

    def __init__(self, size: int, times: Times) -> None:
        self.size, self.times = size, times
        self.reports: list[Report] = []
        self.decided: Report | None = None
        """The gang's outcome, once it is certain. Nothing that comes later changes it."""
        self._failed_at: float | None = None
        self.over: set[int] = set()
        """Ranks whose command runs no more."""

    def report_stop(self, rank: int, outcome: str, because: str, *, told: bool = False) -> None:
        """A rank stops before its command's own end."""
        self._add(rank, outcome, because, None, told=told)
        self._decide()

    def report_loss(self, rank: int, because: str) -> None:
        """Record that the connection to a rank is lost."""
        self.over.add(rank)
        self.report_stop(rank, INTERRUPTED, because)

    def report_end(self, rank: int, outcome: str, because: str, code: int | None, now: float) -> None:
        """A rank's command has ended."""
        if rank in self.over:
            return
        self.over.add(rank)
        self._add(rank, outcome, because, code)
        if outcome == INTERRUPTED:
            self._decide()
        elif outcome not in (SUCCEEDED, COLLATERAL) and self._failed_at is None:
            self._failed_at = now
        self.look(now)

    def look(self, now: float) -> None:
        """Decide, if there is nothing left to wait for."""
        if self.decided is not None:
            return
        all_over = len(self.over) == self.size
        if self._failed_at is None:
            if all_over:
                self._decide()
            return
        if now >= self._failed_at + (self.times.linger if all_over else self.times.settle):
            self._decide()

    def _add(self, rank: int, outcome: str, because: str, code: int | None, *, told: bool = False) -> None:
        self.reports.append(Report(rank, outcome, because, code, order=len(self.reports), told=told))

    def _decide(self) -> None:
        if self.decided is None:
            self.decided = agree(self.reports, self.size)
