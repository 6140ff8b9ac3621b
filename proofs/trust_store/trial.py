"""One case: a copy of a sound store with one object changed, a start on it, and what is wrong with what came of it."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import stat
from pathlib import Path
from typing import Any
from unittest import mock

from gpuflow.runtime.base import options as table
from gpuflow.runtime.base import records
from gpuflow.runtime.base.outcomes import Ending
from gpuflow.runtime.state import directory_owner
from gpuflow.runtime.supervise import supervisor
from proofs.trust_store import mutations
from proofs.trust_store.sound import Sound, contents
from tests.runtime.harness import run as run_process
from tests.runtime.harness import shell

PATIENCE = 30
"""Seconds after which a start hangs."""


class Result:
    """What a start came to: exit code, what was said, and whether the program ran and from where."""

    def __init__(self, code: int, said: list[str], started: bool, resumed: Path | None) -> None:
        self.code, self.said, self.started, self.resumed = code, said, started, resumed


class Case:
    """Everything about one case follows from the seed and its number."""

    def __init__(self, sounds: list[Sound], seed: int, number: int, place: Path) -> None:
        chance = random.Random(f"{seed}/{number}")
        self.place, self.number = place, number
        self.sentinel = place / "sentinel"
        self.sound = chance.choice([sounds[0], sounds[0], *sounds])
        shutil.rmtree(place, ignore_errors=True)
        self.sentinel.mkdir(parents=True)
        (self.sentinel / "file").write_text("untouched")
        for folder in ("tmp", "o"):
            (place / folder).mkdir()
        (place / "log").write_text("")
        self.store = place / "store"
        shutil.copytree(self.sound.root / self.sound.base, self.store / self.sound.base, symlinks=True)
        self.key = chance.choice(self.sound.objects())
        self.sealed = False
        self.value: Any = None
        path = self.store / self.key
        what = chance.random()
        if what < 0.05:
            how = chance.choice(mutations.KINDS)
            how(path, self.sentinel)
            self.what = how.__name__
        elif what < 0.12:
            self._add(chance)
        else:
            others = [(self.sound.root / key).read_bytes() for key in self.sound.objects()]
            mutation = mutations.mutate(chance, path.read_bytes(), others, self.sentinel)
            path.write_bytes(mutation.data)
            self.what, self.sealed = mutation.what, mutation.sealed
        self._read(path)

    def __str__(self) -> str:
        return f"{self.number}: {self.sound.name}, {self.what} of {self.key[:200]!r}{', sealed' if self.sealed else ''}"

    def _add(self, chance: random.Random) -> None:
        source = self.store / self.key
        self.key = f"{self.sound.base}/{chance.choice(mutations.EXTRA)}"
        data = source.read_bytes()
        if (self.store / self.key).exists():
            data = data[:-20]
        (self.store / self.key).parent.mkdir(parents=True, exist_ok=True)
        (self.store / self.key).write_bytes(data)
        self.what = "addition"

    def _read(self, path: Path) -> None:
        """What is there now, when a plain reader can make it out."""
        if stat.S_ISREG(os.lstat(path).st_mode) and path.stat().st_size < 1 << 22:
            try:
                self.value = json.loads(path.read_bytes())
            except (ValueError, RecursionError):
                self.value = None

    # -- the start

    def start(self) -> Result:
        """In this process: everything but the program itself."""
        said: list[str] = []
        seen: list[Any] = []

        class Program:
            keeper = deadline = None
            grace = (0.0, 0.0)

            def __init__(self, *arguments: Any) -> None:
                seen.append(arguments[-1])

            def run(self) -> Ending:
                return Ending("failed (retryable)", "exit code 5", 5)

        class Attempt(supervisor.Attempt):
            def clean_up(self) -> None:
                super().clean_up()
                if self.directory is not None and self.directory.occupancy is not None:
                    self.directory.occupancy.leave()

        options = table.parse([*self.sound.options(self.store, self.place), "--", "true"], {})
        signal.signal(signal.SIGALRM, _hang)
        signal.alarm(PATIENCE)
        try:
            with (
                mock.patch.multiple(supervisor, CommandRun=Program, Attempt=Attempt, say=said.append),
                mock.patch.object(directory_owner, "find_orphans", return_value={}),
                mock.patch.object(supervisor.child, "block_signals"),
            ):
                code = supervisor.run(options, {"TMPDIR": str(self.place / "tmp")})
        except Hangs:
            import traceback

            return Result(-1, ["it hangs", traceback.format_exc()], False, None)
        finally:
            signal.alarm(0)
        restored = seen[0] if seen else None
        return Result(code, said, bool(seen), Path(restored.path) if restored and restored.path else None)

    def start_process(self) -> Result:
        """As a user does."""
        note = self.place / "started"
        words = shell(f'echo "$GPUFLOW_RESUME_FROM" >{note}; exit 5')
        environ = {"TMPDIR": str(self.place / "tmp")}
        done = run_process(*self.sound.options(self.store, self.place), *words, environ=environ)
        started = note.exists()
        resumed = note.read_text().strip() if started else ""
        note.unlink(missing_ok=True)
        return Result(done.returncode, done.stderr.splitlines(), started, Path(resumed) if resumed else None)

    # -- the verdict

    def faults(self, result: Result) -> list[str]:
        """What must not be, in words."""
        found = []
        text = "\n".join(result.said)
        if "a bug in gpuflow-run" in text or "Traceback" in text:
            found.append("a traceback")
        found += self._escapes()
        if result.code == 78:
            found += self._unexplained(result)
        elif result.code == 0:
            found += self._wrong_success()
        elif result.code == 79:
            if not (self._decides() and self._is_attempt()):
                found.append("the run is over, and nothing says so")
        elif result.code != 5 or not result.started:
            found.append(f"exit code {result.code}")
        if result.started:
            found += self._wrong_restore(result)
        return found

    def _escapes(self) -> list[str]:
        found = []
        if sorted(os.listdir(self.sentinel)) != ["file"] or (self.sentinel / "file").read_text() != "untouched":
            found.append("the sentinel was touched")
        expected = {"sentinel", "tmp", "o", "log", "store", "c"}
        beyond = set(os.listdir(self.place)) - expected
        if beyond or os.listdir(self.place / "tmp"):
            found.append(f"left outside: {sorted(beyond) or os.listdir(self.place / 'tmp')}")
        for top in ("c", "o"):
            whole = os.path.realpath(self.place / top)
            for folder, folders, names in os.walk(whole):
                for name in [*folders, *names]:
                    path = os.path.join(folder, name)
                    if os.path.islink(path) and not os.path.realpath(path).startswith(whole + os.sep):
                        found.append(f"a link that leads out: {path}")
                    if stat.S_IMODE(os.lstat(path).st_mode) & 0o7000:
                        found.append(f"a mode beyond 0777: {path}")
        return found

    def _unexplained(self, result: Result) -> list[str]:
        """A refusal names its reason in one sentence, and only what decides something may be refused."""
        log = (self.place / "log").read_text()
        sentences = [line for line in log.splitlines() if line.startswith("gpuflow-run: ")]
        if len(sentences) != 1 or len(sentences[0]) < 40:
            return ["refused without one sentence"]
        sentence = sentences[0]
        if "is of format" in sentence:
            value = self.value if isinstance(self.value, dict) else {}
            return ["refused for a format that it knows"] if value.get("format") == 2 else []
        # A folder in the place of the newest manifest is as if that had been removed: the book knows of it.
        folder = ("is a folder, where a file should be", "the book knows of the checkpoint")
        if self.what == "folder" and any(reason in sentence for reason in folder):
            return []
        reasons = {
            "attempts/": ("cannot be read, and no older one", "leaves no number", "the book knows of the checkpoint"),
            "success": ("cannot be given again", "has succeeded, but its output", "has succeeded, but the output"),
        }
        inside = self.key[len(self.sound.base) + 1 :]
        for start, allowed in reasons.items():
            if inside.startswith(start) and any(reason in sentence for reason in allowed):
                return [] if self._decides() or "no older one" in sentence else [f"refused: {sentence}"]
        return [f"refused: {sentence}"]

    def _decides(self) -> bool:
        """Whether the changed object may be believed: its hash fits."""
        if not isinstance(self.value, dict):
            return False
        try:
            return bool(self.value.get("hash") == records.digest(self.value))
        except (ValueError, RecursionError):
            return False

    def _is_attempt(self) -> bool:
        return self.key.startswith(f"{self.sound.base}/attempts/")

    def _wrong_success(self) -> list[str]:
        if not self.sound.done:
            return ["a success that nobody had"]
        if self.key.endswith("success.json") and not self._decides():
            return ["a broken success marker was believed"]
        declared = {"n", "s", "j", "b", "x", "f", "m"}
        allowed = declared | {f"{name}.{kind}" for name in ("f", "m") for kind in ("uri", "artifact.json")}
        beyond = set(os.listdir(self.place / "o")) - allowed
        return [f"outputs that were not asked for: {sorted(beyond)}"] if beyond else []

    def _wrong_restore(self, result: Result) -> list[str]:
        if result.resumed is None:
            begun_anew = self._is_attempt() and self._decides() and self._since() > 0
            return [] if self.sound.newest is None or begun_anew else ["began from nothing"]
        sound = self.sound.checkpoints()
        mine = [name for name in sound if f"/checkpoints/{name}/" in self.key]
        untouched = [name for name in sound if name not in mine]
        entry = result.resumed.name
        found = contents(result.resumed)
        if found == self._kept(untouched[-1]):
            return []
        # One whose manifest was changed and fits: what it restores was kept in that checkpoint, and is the newest.
        if mine and mine[0] > untouched[-1] and self._decides():
            original = set(self._kept(mine[0]).values())
            plain = {value for value in found.values() if value != "folder" and not value.startswith("-> ")}
            return [] if plain <= original else [f"restored what was never kept: {entry}"]
        return [f"resumed from {entry}, not from the newest sound one"]

    def _since(self) -> int:
        since = self.value.get("since") if isinstance(self.value, dict) else 0
        return since if isinstance(since, int) else 0

    def _kept(self, name: str) -> dict[str, str]:
        """What a checkpoint holds, from the sound store."""
        top = self.sound.root / self.sound.base / "checkpoints" / name
        manifest = json.loads((top / "manifest.json").read_bytes())
        found = {}
        for file in manifest["files"]:
            path = file["path"]
            if "link" in file:
                found[path] = f"-> {file['link']}"
            elif file.get("directory"):
                found[path] = "folder"
            else:
                found[path] = (top / (f"files/{path}" if path else "file")).read_text()
        return found


class Hangs(BaseException):
    """No code under test may catch it."""


def _hang(*_: object) -> None:
    raise Hangs()
