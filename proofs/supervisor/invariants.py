"""What must hold, whatever happens. Looked at after every change of the store, every start and every end."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from gpuflow.runtime.base.outcomes import INTERRUPTED
from gpuflow.runtime.base.records import Corrupt, Success, unpack
from gpuflow.runtime.base.signing import Keys
from gpuflow.runtime.state.attempts import Counts
from proofs.supervisor.forger import KEY
from proofs.supervisor.program import Save, token_of
from proofs.supervisor.world import Actor

if TYPE_CHECKING:
    from proofs.supervisor.process import Process
    from proofs.supervisor.scene import Scene

LIMITS = ("timed out", "disk limit")
"""Why an attempt is told to stop for what is its own fault: only the engine knows."""
HELD = (
    "an artifact that a marker names is there, is what that program wrote, and stays as it is",
    "no success without the program's own end: its attempt's program reached its end, left with 0, wrote the output",
    "one owner commits: one success marker that stays; who exits with 0 delivered what the marker says",
    "a restored checkpoint is whole, of this run, and the newest of those its listing showed",
    "a run that was forgotten, or is done again, starts from nothing",
    "budgets never go backwards: each attempt is counted once, as what it was; a final end and a spent budget hold",
    "the last save is kept: an attempt that was told to stop leaves it in the store, if the storage works",
    "nothing needed is removed: the newest kept or restored checkpoint stays, and those newer than one's own start",
)


class Book:
    """What the explorer knows about one identity."""

    def __init__(self) -> None:
        self.claims: dict[int, dict[str, Any]] = {}
        self.claimed_at: dict[int, int] = {}
        self.ends: dict[int, tuple[int, dict[str, Any]]] = {}
        self.judged: dict[int, tuple[int, dict[str, Any]]] = {}
        """What was found out about attempts by others."""
        self.marker: bytes | None = None
        self.markers: dict[bytes, Any] = {}
        """Every marker that was written, and by whom."""
        self.marked_at: int | None = None
        self.kept: set[str] = set()
        """Checkpoints whose commit was read back, or that were restored."""
        self.claimed: dict[str, int] = {}
        """When each attempt, by its id, has claimed its number."""
        self.forgotten_at = 0
        """When the run was forgotten last."""
        self.forged = False
        """Whether somebody else wrote a marker. It is written over, and then no store can say who was first."""

    def is_forgotten(self, attempt_id: str) -> bool:
        return self.claimed.get(attempt_id, 0) < self.forgotten_at


class Invariants:
    def __init__(self, scene: Scene) -> None:
        self.scene, self.world = scene, scene.world
        self.books: dict[str, Book] = {}
        self.sequence = 0
        self.listings: dict[tuple[Any, str], tuple[int, list[str]]] = {}
        self.resumed: dict[Any, tuple[Save | None, str, frozenset[str]]] = {}
        """Of each attempt: what it began with, the name of that in the store, and what the store had then."""
        """What a process began with, and which whole checkpoints were there then."""
        scene.storage.changed = self._changed
        scene.storage.listed = self._listed
        scene.storage.was_read = self._read

    def book(self, base: str) -> Book:
        return self.books.setdefault(base, Book())

    # The store.

    def _split(self, key: str) -> tuple[str, str, str]:
        """base, folder, rest"""
        inside = key.partition("store/")[2]
        for folder in ("attempts", "checkpoints", "artifacts"):
            head, found, rest = inside.partition(f"/{folder}/")
            if found:
                return head, folder, rest
        head, _, name = inside.rpartition("/")
        return (head, "success", name) if name.startswith("success") else ("", "", "")

    def _listed(self, process: Any, top: str, keys: list[str]) -> None:
        self.sequence += 1
        if Actor.current().name == process.name:  # what the keeper sees later is not what was restored from
            self.listings[process, top] = (self.sequence, keys)

    def _read(self, process: Any, key: str) -> None:
        base, folder, rest = self._split(key)
        if folder == "checkpoints" and rest.count("/") == 1 and rest.endswith("/manifest.json"):
            name = rest.partition("/")[0]
            if process.number and name.startswith(f"{process.number:06d}-") and self._save(base, name) is not None:
                self.book(base).kept.add(name)

    def _changed(self, process: Any, key: str, before: bytes | None, after: bytes | None) -> None:
        self.sequence += 1
        base, folder, rest = self._split(key)
        if process.forges:
            self.book(base).forged = self.book(base).forged or folder == "success"
        elif folder == "attempts":
            self._attempt_changed(process, base, rest, after)
        elif folder == "success":
            self._success_changed(process, base, before, after)
        elif folder == "artifacts":
            self._artifact_changed(process, base, key, before, after)
        elif folder == "checkpoints" and after is None:
            self._removed(process, base, rest.partition("/")[0], key, before)

    def _attempt_changed(self, process: Process, base: str, name: str, after: bytes | None) -> None:
        book = self.book(base)
        if after is None:
            return
        record = json.loads(after)
        if name.endswith(".end.json"):
            number = int(name[:6])
            claim = book.claims.get(number)
            if claim is not None and name[7:-9] == claim["id"]:
                book.ends[number] = (self.sequence, record)
            return
        if name.endswith(".judged.json"):
            number = int(name[:6])
            claim = book.claims.get(number)
            if claim is not None and name[7:-12] == claim["id"]:
                book.judged[number] = (self.sequence, record)
            return
        if not name[:-5].isdigit():
            return
        number = int(name[:-5])
        if any(n > number and self._there(base, n) for n in book.claims):
            # By a late listing someone took a number that had been used and removed. It counts for nothing.
            process.number, process.attempt_id = number, record["id"]
            return
        earlier = [n for n in book.claims if n < number]
        fresh = record.get("since") == number or not earlier
        if not fresh:
            self._check_counts(process, base, book, number, record)
        elif (record["failures"], record["interruptions"]) != (0, 0):
            self.world.violated(f"attempt {number} begins anew with {record['failures']} failures counted")
        elif (earlier or (number > 1 and not self.scene.scenario.signed)) and not process.may_begin_anew:
            self.world.violated(f"attempt {number} counts from zero though no one asked for it")
        if fresh and process.may_begin_anew:
            book.forgotten_at = self.sequence
        process.number, process.attempt_id = number, record["id"]
        book.claims[number], book.claimed_at[number] = record, self.sequence
        for later in [n for n in book.claims if n > number]:
            del book.claims[later]
        book.ends.pop(number, None)
        book.judged.pop(number, None)
        book.claimed[record["id"]] = self.sequence

    def _there(self, base: str, number: int) -> bool:
        return f"store/{base}/attempts/{number:06d}.json" in self.scene.storage.data

    def _check_counts(self, process: Process, base: str, book: Book, number: int, record: dict[str, Any]) -> None:
        looked, _ = self.listings.get((process, f"store/{base}/attempts/"), (0, []))
        allowed = self._counts(book, number, looked)
        if process.may_renew:
            allowed.append(Counts())
        said = (record["failures"], record["interruptions"])
        if said not in [(each.failures, each.interruptions) for each in allowed]:
            want = " or ".join(f"{each.failures} failures, {each.interruptions} interruptions" for each in allowed)
            self.world.violated(
                f"attempt {number} of {process.name} counts {said[0]} failures, {said[1]} interruptions; true: {want}"
            )

    def _counts(self, book: Book, number: int, looked: int) -> list[Counts]:
        """What the attempts before a number add up to for one who looked then: a word that came later is optional."""
        before = max(n for n in book.claims if n < number)
        claim = book.claims[before]
        counts = [Counts(claim["failures"], claim["interruptions"])]
        known = claim.get("previous")
        late = known and book.ends.get(known["attempt"], (0, {}))[0] > book.claimed_at[before]
        if known and (known["assumed"] or late):
            words = self._words(book, known["attempt"], looked)
            counts = [
                counts[0].with_outcome(known["outcome"], -1).with_outcome(word or known["outcome"]) for word in words
            ]
        if claim.get("forget"):
            return counts
        return [each.with_outcome(word or INTERRUPTED) for word in self._words(book, before, looked) for each in counts]

    def _words(self, book: Book, number: int, looked: int) -> list[str | None]:
        """How an attempt may have ended for one who looked then: its own word, else what others found out."""

        def seen(found: tuple[int, dict[str, Any]] | None) -> list[dict[str, Any] | None]:
            return [None] if found is None else [found[1]] if found[0] <= looked else [None, found[1]]

        words: list[str | None] = []
        for end in seen(book.ends.get(number)):
            for judged in seen(book.judged.get(number)):
                told = end is not None and (end["outcome"], end.get("cause")) == (INTERRUPTED, "told to stop")
                if end is not None and not (told and judged is not None and judged["outcome"] in LIMITS):
                    words.append(end["outcome"])
                else:
                    words.append(None if judged is None else judged["outcome"])
        return words

    def _success_changed(self, process: Process, base: str, before: bytes | None, after: bytes | None) -> None:
        book = self.book(base)
        if after is None:
            asked = process.may_begin_anew and not process.number
            if before is not None and self._valid(base, before) and not asked and not self._obsolete(book, before):
                self.world.violated(f"{process.name} removed the success marker")
            if before == book.marker:
                book.marker = book.marked_at = None
            return
        if before is not None and self._valid(base, before) and not (book.forged or self._obsolete(book, before)):
            self.world.violated(f"{process.name} wrote over a success marker")
        marker = json.loads(after)
        book.markers[after] = process
        if not self._obsolete(book, after):
            book.marker, book.marked_at = after, self.sequence
        program = process.program
        if marker["id"] != process.attempt_id:
            self.world.violated(f"{process.name} wrote a success marker of another attempt")
        elif program is None or program.code != 0 or not program.finished:
            step = program.step if program is not None else 0
            self.world.violated(f"FALSE SUCCESS: {process.name} at step {step} of {self.scene.steps}")
        elif marker["outputs"]["result"]["value"] != program.output:
            self.world.violated(
                f"FALSE SUCCESS: {process.name} says result {marker['outputs']['result']['value']!r}, "
                f"its program wrote {program.output!r}"
            )

        kept = marker["outputs"].get("model")
        if kept is not None:
            there = self.scene.storage.data.get(f"store/{base}/{kept['key']}/files/model")
            if there is None or program is None or there.decode() != program.output:
                self.world.violated(f"{process.name} says that {kept['key']} is kept, and there is {there!r}")

    def _artifact_changed(
        self, process: Process, base: str, key: str, before: bytes | None, after: bytes | None
    ) -> None:
        book = self.book(base)
        if book.marker is None or self._obsolete(book, book.marker) or before == after:
            return
        kept = json.loads(book.marker)["outputs"].get("model")
        if kept is not None and key.startswith(f"store/{base}/{kept['key']}/"):
            what = "removed" if after is None else "changed"
            self.world.violated(f"{process.name} {what} {key}, which the success marker names")

    def _obsolete(self, book: Book, marker: bytes) -> bool:
        value = json.loads(marker)
        newest = book.claims.get(max(book.claims, default=0), {})
        return int(value["attempt"]) < int(newest.get("since") or 0) or book.is_forgotten(value["id"])

    def _valid(self, base: str, marker: bytes) -> bool:
        keys = Keys([KEY]) if self.scene.scenario.signed else None
        try:
            unpack(Success, marker, f"{base}/success.json", keys)
        except Corrupt:
            return False
        return True

    def _save(self, base: str, name: str, over: dict[str, bytes] | None = None) -> Save | None:
        """What a checkpoint in the store holds, when it is whole."""
        data = {**self.scene.storage.data, **over} if over else self.scene.storage.data
        prefix = f"store/{base}/checkpoints/{name}"
        manifest = data.get(f"{prefix}/manifest.json")
        if manifest is None:
            return None
        files = {}
        for file in json.loads(manifest)["files"]:
            if "sha256" in file:
                body = data.get(f"{prefix}/files/{file['path']}" if file["path"] else f"{prefix}/file")
                if body is None:
                    return None
                files[file["path"]] = body
        return self.scene.saves.get(token_of(files) or "")

    def _token(self, base: str, name: str) -> str | None:
        save = self._save(base, name)
        return None if save is None else save.token

    def _names(self, base: str, keys: Any) -> list[str]:
        """Names of checkpoints that have a manifest among these keys, oldest first; only those that still count."""
        prefix = f"store/{base}/checkpoints/"
        found = [key[len(prefix) : -len("/manifest.json")] for key in keys if _is_manifest(key, prefix)]
        since = self._since(base)
        return sorted(name for name in found if int(name[:6]) >= since)

    def _since(self, base: str) -> int:
        claims = self.book(base).claims
        return int(claims[max(claims)].get("since") or 0) if claims else 0

    def _removed(self, process: Process, base: str, name: str, key: str, before: bytes | None) -> None:
        save = self._save(base, name, {key: before or b""})
        book = self.book(base)
        if save is None or int(name[:6]) < self._since(base) or book.is_forgotten(save.root):
            return
        if process.may_begin_anew and not process.number:
            return  # it forgets what it finds
        needed = [other for other in self._names(base, [*self.scene.storage.data, key]) if other in book.kept]
        whole = [other for other in needed if other == name or self._save(base, other) is not None]
        if whole and whole[-1] == name:
            self.world.violated(f"{process.name} removed the newest checkpoint {name} (step {save.step})")
        begun, begun_name, seen = self.resumed.get(process, (None, "", frozenset()))
        # Newer is what was kept later. An older attempt on a shared volume may be a step ahead: it has lost anyway.
        newer = name > begun_name and save.step > (begun.step if begun else 0)
        if name in seen and int(name[:6]) < process.number and newer:
            self.world.violated(
                f"{process.name} began at step {begun.step if begun else 0} and removed {name} (step {save.step})"
            )

    # Starts and ends.

    def spawning(self, process: Process, environ: dict[str, str]) -> None:
        book = self.book(process.base)
        claim = book.claims.get(process.number)
        if claim is None or claim["id"] != process.attempt_id:
            if process.number == 0:
                self.world.violated(f"{process.name} starts its program without a claim")
            return
        since = int(claim.get("since") or 0)
        claimed = book.claimed_at[process.number]
        if since < process.number and [n for n in book.claims if n < process.number] and not process.may_renew:
            # A word that comes after the claim is read again, and may cost less than what was judged without it.
            true = self._counts(book, process.number, claimed)
            for budget in ("failures", "interruptions"):
                most, used = getattr(process.options, budget), min(getattr(each, budget) for each in true)
                if most is not None and used > most:
                    self.world.violated(f"{process.name} runs with {used} {budget} of {most}")
        for number, (when, end) in book.ends.items():
            counts = since <= number < process.number
            if counts and when < claimed and end.get("final") and not process.may_renew:
                self.world.violated(f"{process.name} runs though attempt {number} was final")
        if book.marker is None or self._obsolete(book, book.marker):
            return
        if book.marked_at is not None and book.marked_at < claimed and not process.may_begin_anew:
            self.world.violated(f"{process.name} runs though the run has succeeded")

    def spawned(self, process: Process) -> None:
        """The program has read what it was given."""
        base, book = process.base, self.book(process.base)
        assert process.program is not None
        resumed = process.program.resumed
        there = [name for name in self._names(base, self.scene.storage.data) if self._save(base, name) is not None]
        same = [name for name in there if resumed is not None and self._token(base, name) == resumed.token]
        # What lay here and is not in the store is newer than all of it.
        begun_name = "" if resumed is None else max(same, default="~")
        self.resumed[process] = (resumed, begun_name, frozenset(there))
        prefix = f"store/{base}/checkpoints/"
        _, keys = self.listings.get((process, prefix), (0, None))
        if process.program.environ.get("GPUFLOW_RESUME_FROM"):
            if resumed is None:
                return
            # An attempt that claimed before the run was forgotten has lost, and finds out.
            if book.is_forgotten(resumed.root) and process.number >= self._since(base):
                self.world.violated(f"{process.name} resumed from step {resumed.step} of a run that was forgotten")
            for name in self._names(base, self.scene.storage.data):
                there = self._save(base, name)
                if there is not None and there.token == resumed.token:
                    book.kept.add(name)
        visible = self._names(base, self.scene.storage.data if keys is None else keys)
        whole = [save for save in (self._save(base, name) for name in visible) if save is not None]
        whole = [save for save in whole if not book.is_forgotten(save.root)]
        if whole and (resumed.step if resumed else 0) < whole[-1].step:
            self.world.violated(
                f"{process.name} resumed from step {resumed.step if resumed else 0}, the store has {whole[-1].step}"
            )

    def ended(self, process: Process) -> None:
        saved = process.program.saved if process.program is not None else None
        undisturbed = self.world.decided <= {"notice", "switch", "program"}
        if saved is not None and process.code == 75 and not process.killed and undisturbed:
            names = self._names(process.base, self.scene.storage.data)
            if saved.token not in [self._token(process.base, name) for name in names]:
                self.world.violated(f"{process.name} was told to stop, and lost the save of step {saved.step}")
        if process.killed or process.options is None or process.code != 0:
            return
        book = self.book(process.base)
        own = [marker for marker, writer in book.markers.items() if writer is process]
        # Forgotten meanwhile or not: it delivers what it wrote, or what another had written.
        said = [json.loads(marker)["outputs"]["result"]["value"] for marker in own or book.markers]
        if not said:
            self.world.violated(f"{process.name} exits with 0 and there is no success marker")
            return
        try:
            with open(os.path.join(process.options.outputs_dir, "result"), encoding="utf-8") as file:
                delivered = file.read()
        except OSError as refusal:
            delivered = str(refusal)
        if delivered not in said:
            self.world.violated(f"{process.name} exits with 0 and delivered {delivered!r}; the marker says {said}")
        if any(word.startswith("model") for word in process.options.output):
            try:
                with open(os.path.join(process.options.outputs_dir, "model"), encoding="utf-8") as file:
                    model = file.read()
            except OSError as refusal:
                model = str(refusal)
            # After another's success it is that one's file, brought from the store.
            if model not in said:
                self.world.violated(f"{process.name} exits with 0 and its file says {model!r}; the marker says {said}")

    def forgot(self, base: str) -> None:
        self.sequence += 1
        self.book(base).forgotten_at = self.sequence


def _is_manifest(key: str, prefix: str) -> bool:
    return key.startswith(prefix) and key.endswith("/manifest.json") and key.count("/") == prefix.count("/") + 1
