"""Links and special files that somebody plants where gpuflow-run works, and what becomes of the files they lead to.

    python -m proofs links --count 500 --seed 1

Each case is one step with a folder store (with or without a key), with nothing but its checkpoint directory, or with an
input. Something stands in the place of one of its files or folders, before it starts or from the middle of its run on:
a link (absolute, relative, over another link, to a file, a folder or nothing), a pipe, a socket, a device, a file or a
folder. Afterwards every file outside must be as it was, none of their bytes may lie in the store, the step must have
ended by itself, with 0 or with one sentence, and with 0 where what was planted is nothing that it needs.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import multiprocessing
import os
import random
import shlex
import shutil
import socket
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpuflow.runtime.base.attempt_folder import identity_of
from gpuflow.runtime.supervise.main import main as gpuflow_run

ROOT = Path(__file__).resolve().parents[1]
BASE = "p/r1/train"
BOUND = 120.0
"""Seconds after which a step counts as hanging; each needs about one."""
KINDS = ("file", "folder", "nothing", "chain", "pipe", "socket", "device", "plain file", "plain folder")
IN_BOOK = (
    "p", "p/r1", BASE, f"{BASE}/attempts", f"{BASE}/attempts/000001.json", f"{BASE}/attempts/000002.json",
    f"{BASE}/attempts/000001-ID.end.json", f"{BASE}/attempts/zz", f"{BASE}/probe", f"{BASE}/probe/zz",
    f"{BASE}/success.json", f"{BASE}/zz", "zz/zz",
)  # fmt: skip
IN_STORE = (
    f"{BASE}/checkpoints", f"{BASE}/checkpoints/zz", f"{BASE}/checkpoints/CK", f"{BASE}/checkpoints/CK/files",
    f"{BASE}/checkpoints/CK/files/w", f"{BASE}/checkpoints/CK/manifest.json", f"{BASE}/artifacts",
    f"{BASE}/artifacts/m",
    f"{BASE}/artifacts/m/000001-ID8", f"{BASE}/artifacts/m/000001-ID8/files/f",
    f"{BASE}/checkpoints/000009-000001-deadbeef/manifest.json", f"{BASE}/checkpoints/CK/.part-1-0123456789abcdef",
)  # fmt: skip
OWN = f".gpuflow/{identity_of(BASE)}"
IN_DIRECTORY = (
    ".gpuflow", ".gpuflow/lock", ".gpuflow/owner.json", OWN, f"{OWN}/finished", f"{OWN}/finished/ck-1.json", "ck-1",
    "ck-1/w", "ck-1/deep/er", "zz", "zz/leak", "zz/deep/leak", ".zz", f"{OWN}/0123456789abcdef", "ck-2",
)  # fmt: skip
IN_INPUT = ("in", "in/.gpuflow-input", "in/.gpuflow-input/files", "in/.gpuflow-input/files/f", "in/.gpuflow-input/lock",
            "in/f", "in/deep", "in/.gpuflow-input/files/deep", "in/zz")  # fmt: skip

OFTEN = ("probe", "leak", "files", "checkpoints", "CK", "ID8", "lock", "artifacts", "zz")
"""Where something planted could do most harm, or none at all."""


class Case:
    """One case in a folder of its own."""

    def __init__(self, folder: Path, number: int, seed: int) -> None:
        chance = random.Random(f"{seed}-{number}")
        self.folder, self.number = folder, number
        self.mode = chance.choice(("store", "store", "key", "directory", "directory", "input"))
        places = {
            "store": [f"store/{each}" for each in (*IN_BOOK, *IN_STORE)] + [f"c/{each}" for each in IN_DIRECTORY],
            "directory": [f"c/.gpuflow/state/{each}" for each in IN_BOOK] + [f"c/{each}" for each in IN_DIRECTORY],
            "input": list(IN_INPUT),
        }
        among = places["store" if self.mode == "key" else self.mode]
        self.place = chance.choice([each for each in among if each.endswith(OFTEN)] if chance.random() < 0.5 else among)
        self.kind, self.absolute = chance.choice(KINDS), chance.random() < 0.6
        if chance.random() < 0.6:
            self.kind = "file" if self.place.endswith("leak") else chance.choice(("file", "folder", "folder"))
        self.aim = chance.choice(("data", "key")) if self.mode == "key" else "data"
        self.before = chance.random() < 0.6 or "CK" in self.place or "ID" in self.place
        """Whether an attempt came before, which failed."""
        self.moment = "start" if self.mode == "input" else chance.choice(("start", "start", "run", "save"))
        self.sound = number % 25 == 24
        """Nothing is planted: the step must succeed."""
        self.said = ""

    def __str__(self) -> str:
        what = f"{self.kind}{'' if self.absolute else ', relative'} to the {self.aim}"
        return f"case {self.number}: {self.mode}, {what} as {self.place} at {self.moment}, before={self.before}"

    # -- what is outside

    def make(self) -> None:
        outside = self.folder / "outside"
        for each in (outside / "deep", self.folder / "c", self.folder / "made" / "deep", self.folder / "in"):
            each.mkdir(parents=True)
        self.token = f"OUTSIDE{self.number:06d}{os.urandom(12).hex()}"
        for name in ("data", "deep/data", "deep/f", "f", "w", "manifest.json", "000001.json"):
            (outside / name).write_text(f"{self.token} {name}\n")
        (outside / "key").write_text(f"{self.token}\n")
        for name in ("f", "deep/f"):
            (self.folder / "made" / name).write_text("input\n")

    def outside(self) -> dict[str, tuple[Any, ...]]:
        found = {}
        for path in sorted((self.folder / "outside").rglob("*")):
            status = path.lstat()
            content = path.read_bytes() if stat.S_ISREG(status.st_mode) else b""
            found[str(path)] = (status.st_mode, status.st_size, status.st_mtime_ns, content)
        return found

    # -- what is planted

    def path(self) -> Path:
        """Where, now that an attempt may have been there."""
        store = self.folder / "store" / BASE
        claims = sorted((store / "attempts").glob("*-*.end.json")) if store.is_dir() else []
        claims += sorted((self.folder / "c/.gpuflow/state" / BASE / "attempts").glob("*-*.end.json"))
        own = claims[0].name[7:23] if claims else "0123456789abcdef"
        kept = sorted(each.name for each in (store / "checkpoints").glob("0*")) if store.is_dir() else []
        name = self.place.replace("ID8", own[:8]).replace("ID", own)
        return self.folder / name.replace("CK", kept[0] if kept else "000001-000001-deadbeef")

    def plant(self, path: Path) -> None:
        if not self._parents(path):
            return
        if path.is_symlink() or path.is_file():
            path.unlink()
        elif path.is_dir():
            path.rename(self.folder / "aside")
        target = self.folder / "outside" / {"folder": "deep", "nothing": "new"}.get(self.kind, self.aim)
        if self.kind == "chain":
            (self.folder / "between").symlink_to(self.folder / "outside")
            target = self.folder / "between" / "deep"
        name = str(target) if self.absolute else os.path.relpath(target, path.parent)
        if self.kind in ("file", "folder", "nothing", "chain"):
            path.symlink_to(name)
        elif self.kind == "plain file":
            path.write_text("somebody's\n")
        elif self.kind == "plain folder":
            path.mkdir()
        else:
            self._special(path)
        if self.place.startswith("c/zz/"):
            with contextlib.suppress(OSError):
                (self.folder / "c/zz/.gpuflow-complete").touch()

    def _parents(self, path: Path) -> bool:
        for each in reversed(path.relative_to(self.folder).parents):
            if (self.folder / each).is_symlink() or (self.folder / each).is_file():
                return False
            (self.folder / each).mkdir(exist_ok=True)
        return True

    def _special(self, path: Path) -> None:
        if self.kind == "socket":
            here = os.getcwd()
            os.chdir(path.parent)  # the name of a socket is short
            with socket.socket(socket.AF_UNIX) as made:
                made.bind(path.name)
            os.chdir(here)
            return
        try:
            if self.kind == "device":
                os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
                return
        except PermissionError:
            pass
        os.mkfifo(path)

    def planting(self) -> str:
        """The same in shell, for a neighbor who comes while the program runs. Only links: they are what can harm."""
        path = self.path()
        target = self.folder / "outside" / ("deep" if self.kind in ("folder", "chain") else self.aim)
        here, above, there = (shlex.quote(str(each)) for each in (path, path.parent, target))
        mark = f"touch {above}/.gpuflow-complete" if self.place.startswith("c/zz/") else ":"
        made = f"mkdir -p {above}; mv {here} {here}.aside; ln -sn {there} {here}; {mark}"
        return f"[ -L {above} ] || {{ {made}; }} 2>/dev/null\n"

    # -- the step

    def words(self, script: str, termination: str) -> list[str]:
        words = ["--pipeline=p", "--run-id=r1", "--step=train", "--failures=9", "--storage-timeout=2s", "--every=1s"]
        words += [f"--checkpoint-dir={self.folder}/c", f"--termination-log={self.folder}/{termination}", "--grace=5s"]
        words += ["--output=m:directory", "--output=v", f"--outputs-dir={self.folder}/out"]
        if self.mode in ("store", "key"):
            words.append(f"--store={self.folder}/store")
        if self.mode == "key":
            words.append(f"--key-file={self.folder}/outside/key")
        if self.mode == "input":
            words.append(f"--input={self.folder}/in={self.folder}/made")
        return [*words, "--", "sh", "-c", script]

    def script(self, code: int) -> str:
        late = self.planting() if self.moment != "start" and code == 0 and not self.sound else ""
        save = "mkdir -p .n/deep; echo w >.n/w; echo e >.n/deep/er; mv -T .n ck-$GPUFLOW_ATTEMPT\n"
        text = "cd $GPUFLOW_CHECKPOINT_DIR\n" + (late + save if self.moment == "run" else save + late)
        out = f"sleep 0.3; mkdir -p {self.folder}/out/m; cd {self.folder}/out; echo f >m/f; echo v >v\n"
        return f"{text}{out}exit {code}\n"

    def start(self, code: int, termination: str) -> int | None:
        """One attempt in a process of its own; None when it does not end."""
        (self.folder / termination).touch()
        words = self.words(self.script(code), termination)
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                log = os.open(self.folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
                os.dup2(log, 1)
                os.dup2(log, 2)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os._exit(gpuflow_run(words))
            except BaseException as error:
                os.write(2, f"Traceback: {error!r}\n".encode())
            finally:
                os._exit(70)
        until = time.monotonic() + BOUND
        while time.monotonic() < until:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.02)
        os.killpg(child, 9)
        os.waitpid(child, 0)
        return None

    def run(self) -> tuple[str, list[str]]:
        """How it ended, and what is wrong with that."""
        self.make()
        if self.before:
            self.start(5, "first")
        if self.moment == "start" and not self.sound:
            self.plant(self.path())
        sums = self.outside()
        code = self.start(0, "last")
        log = (self.folder / "log").read_text(errors="replace")
        self.said = log
        faults = []
        if code is None:
            faults.append("it hangs")
        if self.outside() != sums:
            faults.append("a file outside was touched")
        leaked = self.leaked()
        if leaked:
            faults.append(f"bytes from outside lie in the store: {leaked}")
        if "Traceback" in log or "a bug in gpuflow-run" in log or code not in (None, 0, 1, 75, 78, 79):
            faults.append(f"it broke (exit code {code})")
        if code == 78 and not (self.folder / "last").read_text().startswith("gpuflow-run: "):
            faults.append("it says nothing of the refusal")
        if code != 0 and self.must_succeed():
            faults.append(f"it needs nothing of that, and ended with {code}")
        return f"exit code {code}", faults

    def must_succeed(self) -> bool:
        name = self.place.rpartition("/")[2]
        return self.sound or (name in ("zz", ".zz") and self.place != "in/zz") or self.place.endswith("leak")

    def leaked(self) -> str | None:
        for folder, _, names in os.walk(self.folder / "store"):
            for name in names:
                path = os.path.join(folder, name)
                if stat.S_ISREG(os.lstat(path).st_mode) and self.token.encode() in Path(path).read_bytes():
                    return os.path.relpath(path, self.folder)
        return None


def attempt(number: int, seed: int, *, keep: bool = False) -> tuple[Case, str, list[str]]:
    folder = Path(tempfile.mkdtemp(prefix="gpuflow-planted-"))
    case = Case(folder, number, seed)
    try:
        return (case, *case.run())
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)


def judged(wanted: tuple[int, int]) -> tuple[str, str, list[str]]:
    case, how, faults = attempt(*wanted)
    return str(case), how, faults


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m proofs links", description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time")
    parser.add_argument("--only", type=int, help="this one case, with everything that is said")
    parser.add_argument("--afresh", action="store_true", help="do not go on where it was stopped")
    wanted = parser.parse_args()
    if wanted.only is not None:
        case, how, faults = attempt(wanted.only, wanted.seed, keep=True)
        print(case, how, faults, case.folder, case.said, sep="\n")
        return 1 if faults else 0
    progress = ROOT / "build" / f"prove-links-{wanted.seed}.json"
    state: dict[str, Any] = {"cases": 0, "tally": {}, "faults": []}
    if progress.exists() and not wanted.afresh:
        state = json.loads(progress.read_text())
    progress.parent.mkdir(exist_ok=True)
    tally: collections.Counter[str] = collections.Counter(state["tally"])
    numbers = range(state["cases"], wanted.count)
    with multiprocessing.Pool(wanted.jobs) as pool:
        for number, (name, how, faults) in enumerate(
            pool.imap(judged, ((n, wanted.seed) for n in numbers)), numbers.start
        ):
            tally[how] += 1
            for fault in faults:
                tally[fault.partition(":")[0].partition(" (")[0]] += 1
                state["faults"].append(f"{name}: {fault}")
                print(f"{name}: {fault}", file=sys.stderr, flush=True)
            state.update(cases=number + 1, tally=tally)
            progress.write_text(json.dumps(state))
    sums = ", ".join(f"{tally[what]} {what}" for what in sorted(tally) if what.startswith("exit code"))
    print(
        f"{state['cases']} cases (seed {wanted.seed}): {tally['a file outside was touched']} touched files outside, "
        f"{tally['bytes from outside lie in the store']} put bytes from outside into the store, "
        f"{tally['it hangs']} hung, {len(state['faults'])} faults in all; {sums}"
    )
    return 1 if state["faults"] else 0


if __name__ == "__main__":
    sys.exit(main())
