"""The run's book: who tried, how it ended, who owns the run now, and the success marker.

`attempts/000007.json` is written by `create`, so that a number belongs to one attempt. The newest attempt owns the
run; every commit asks first, and an older one that is still alive stops. Each record carries the sums so far, so that
opening the book reads two objects and not hundreds. No clock decides anything: two machines need not agree on time.
"""

from __future__ import annotations

import json
import os
import time

from gpuflow.runtime import identity
from gpuflow.runtime.outcomes import FINAL, INTERRUPTED, OUT_OF_MEMORY, RETRYABLE
from gpuflow.runtime.store import StorageError, Store, open_store

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuflow.runtime.options import Options

_REMEMBERED = 20
COSTS = {RETRYABLE: "failures", OUT_OF_MEMORY: "failures", FINAL: "failures", INTERRUPTED: "interruptions"}
"""Which budget an outcome is counted against."""


class Lost(Exception):
    """Another attempt owns the run."""


class Counts:
    """What the attempts before this one have used up."""

    def __init__(self, failures: int = 0, interruptions: int = 0, seconds: float = 0.0) -> None:
        self.failures, self.interruptions, self.seconds = failures, interruptions, seconds

    def after(self, outcome: str) -> Counts:
        """The counts once an attempt has ended so."""
        grown = Counts(self.failures, self.interruptions, self.seconds)
        budget = COSTS.get(outcome)
        if budget is not None:
            setattr(grown, budget, getattr(grown, budget) + 1)
        return grown


class History:
    """What is known when an attempt begins."""

    def __init__(self, last: int, counts: Counts, final: dict[str, Any] | None, last_id: str | None) -> None:
        self.last, self.counts, self.final, self.last_id = last, counts, final, last_id


class Ledger:
    """The book of one identity in one store."""

    def __init__(self, store: Store, base: str) -> None:
        self.store, self.base = store, base
        self.number, self.id = 0, ""
        self.counts = Counts()
        self.began = time.monotonic()
        self.damaged: set[str] = set()
        """Checkpoints that could not be restored: they do not count among the N that are kept."""
        self.resumed: str | None = None
        """The checkpoint this attempt resumed from, by its name in the store: older ones are no longer needed."""

    def key(self, *parts: str) -> str:
        return "/".join((self.base, *parts))

    def success(self) -> dict[str, Any] | None:
        """The success marker, when there is one that was written whole."""
        marker = self._read(self.key("success.json"))
        return marker if marker is not None and marker.get("hash") == digest(marker) else None

    def history(self) -> History:
        """What the attempts so far add up to. One that left no word was lost: that is an interruption."""
        numbers = self._numbers()
        if not numbers:
            return History(0, Counts(), None, None)
        last = numbers[-1]
        record = self._read(self._attempt(last)) or {}
        end = self._read(self._end(last, str(record.get("id"))))
        counts = Counts(
            int(record.get("failures", 0)), int(record.get("interruptions", 0)), float(record.get("seconds", 0))
        )
        counts = counts.after(end["outcome"] if end else INTERRUPTED)
        counts.seconds += float(end["seconds"]) if end else self._last_seen(last)
        return History(last, counts, end if end and end.get("final") else None, record.get("id"))

    def claim(self, history: History) -> None:
        """Become the newest attempt."""
        number, self.id = history.last + 1, self.id or os.urandom(8).hex()
        self.counts = history.counts
        while True:
            record = {
                "attempt": number,
                "id": self.id,
                "host": os.uname().nodename,
                "time": now(),
                "failures": self.counts.failures,
                "interruptions": self.counts.interruptions,
                "seconds": self.counts.seconds,
            }
            if self.store.create(self._attempt(number), encode(record)):
                break
            there = self._read(self._attempt(number))
            if there is not None and there.get("id") == self.id:
                break  # an answer was lost on the way, not the request
            number += 1
        self.number = number
        self.began = time.monotonic()

    def tidy(self) -> None:
        """Forget records that nothing reads any more."""
        old = f"{self.number - _REMEMBERED:06d}"
        keys = [key for key, _ in self.store.names(self.key("attempts")) if key.rpartition("/")[2][:6] < old]
        self.store.delete(keys)

    def assert_owner(self) -> None:
        """Raise Lost unless this is the newest attempt."""
        numbers = self._numbers()
        newest = numbers[-1] if numbers else 0
        if newest > self.number:
            raise Lost(f"attempt {newest} has taken over from attempt {self.number}")
        record = self._read(self._attempt(self.number))
        if record is None:
            # An empty store is storage in trouble, such as a mount that went away; no one has taken over.
            raise StorageError(f"{self._attempt(self.number)} is gone from the store")
        if record.get("id") != self.id:
            raise Lost(f"another attempt {self.number} has taken over")

    def end(self, outcome: str, *, final: bool, exit_code: int, because: str) -> None:
        """Write how the attempt ended."""
        record = {
            "outcome": outcome,
            "final": final,
            "exit_code": exit_code,
            "because": because,
            "seconds": round(time.monotonic() - self.began, 3),
            "time": now(),
        }
        self.store.write(self._end(self.number, self.id), encode(record))

    def succeed(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Write the success marker: the last thing a successful attempt does. The first one stays."""
        self.assert_owner()
        marker: dict[str, Any] = {
            "contract": 1,
            "attempt": self.number,
            "id": self.id,
            "time": now(),
            "outputs": outputs,
        }
        marker["hash"] = digest(marker)
        if not self.store.create(self.key("success.json"), encode(marker)):
            there = self.success()
            if there is None:
                self.store.write(self.key("success.json"), encode(marker))
            else:
                return there
        return marker

    def forget(self, *, attempts: bool) -> None:
        """Throw checkpoints and the success marker away; with `attempts`, the budgets too. Manifests go first."""
        keys = [key for key, _ in self.store.names(self.base) if not key.startswith(self.key("items") + "/")]
        manifests = [key for key in keys if key.endswith("/manifest.json")]
        rest = [key for key in keys if key.startswith(self.key("checkpoints") + "/") and key not in set(manifests)]
        self.store.delete([*manifests, *rest, self.key("success.json")])
        if attempts:
            self.store.delete([key for key in keys if key.startswith(self.key("attempts") + "/")])

    def _attempt(self, number: int) -> str:
        return self.key("attempts", f"{number:06d}.json")

    def _end(self, number: int, owner: str) -> str:
        return self.key("attempts", f"{number:06d}-{owner}.end.json")

    def _numbers(self) -> list[int]:
        names = [key.rpartition("/")[2] for key, _ in self.store.names(self.key("attempts"))]
        return sorted(int(name[:-5]) for name in names if name.endswith(".json") and name[:-5].isdigit())

    def _last_seen(self, number: int) -> float:
        """How long a lost attempt is known to have lived: until its last checkpoint."""
        prefix = f"{number:06d}-"
        seen = 0.0
        for key, _ in self.store.names(self.key("checkpoints")):
            parts = key.split("/")
            if parts[-1] == "manifest.json" and parts[-2].startswith(prefix):
                seen = max(seen, float((self._read(key) or {}).get("seconds", 0.0)))
        return seen

    def _read(self, key: str) -> dict[str, Any] | None:
        try:
            data = self.store.read(key)
        except FileNotFoundError:
            return None
        try:
            value = json.loads(data)
        except ValueError:
            return None
        return value if isinstance(value, dict) else None


def forget(options: Options) -> int:
    """`gpuflow-run forget`: the run starts from nothing next time, with full budgets."""
    from gpuflow.runtime.options import BadOption

    where = [place for place in (options.store, options.state) if place]
    if not where or not options.run_id:
        raise BadOption("forget needs --run-id and --store or --state")
    base = identity.path(options.pipeline, options.run_id, options.step, options.item)
    try:
        for place in where:
            Ledger(open_store(place), base).forget(attempts=True)
    except StorageError as refusal:
        raise BadOption(f"storage failed: {refusal}") from None
    print(f"gpuflow-run: forgot {base}")
    return 0


def encode(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":")) + "\n").encode()


def digest(value: dict[str, Any]) -> str:
    """The hash of a record without its own `hash`."""
    import hashlib

    return hashlib.sha256(encode({key: item for key, item in value.items() if key != "hash"})).hexdigest()


def now() -> str:
    """Wall-clock time for people to read; nothing is decided by it."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
