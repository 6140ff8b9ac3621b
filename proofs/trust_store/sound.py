"""Sound stores, written by gpuflow-run itself: what is changed in them, and what a run must make of them unchanged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from gpuflow.runtime.base import records
from gpuflow.runtime.state.ledger import Ledger
from gpuflow.runtime.stores.open import open_store
from tests.runtime.harness import run, shell

OUTPUTS = ("n:int", "s:string", "j:json", "b:bool", "x:float", "f:file", "m:directory")
_SAVE = """
cd "$GPUFLOW_CHECKPOINT_DIR"; n=$GPUFLOW_ATTEMPT; mkdir -p .t/d/e .t/empty
echo "weights $n" >.t/w; echo "optimizer $n" >.t/d/e/o; echo run >.t/d/tool; chmod 755 .t/d/tool
ln -s w .t/latest; ln -s ../w .t/d/up; ln -s e .t/d/folder
mv .t "ck-$n"
"""
_SAVE_FILE = 'cd "$GPUFLOW_CHECKPOINT_DIR"; echo "weights $GPUFLOW_ATTEMPT" >.t; mv .t "ck-$GPUFLOW_ATTEMPT"; '
_LEAVE = """
cd "$GPUFLOW_OUTPUTS"; echo 7 >n; echo text >s; echo '{"a": [1]}' >j; echo true >b; echo 0.5 >x; echo model >f
mkdir m; echo part >m/p; ln -s p m/l
"""


class Sound:
    """A store, the step that is started on it, and where its newest checkpoint is."""

    def __init__(self, name: str, root: Path, step: str, newest: str | None, *, done: bool) -> None:
        self.name, self.root, self.step, self.newest, self.done = name, root, step, newest, done
        self.base = f"default/r/{step}"

    def options(self, store: Path, place: Path) -> list[str]:
        words = ["--run-id", "r", "--step", self.step, "--store", str(store), "--checkpoint-dir", str(place / "c")]
        words += ["--outputs-dir", str(place / "o"), "--failures", "9", "--interruptions", "9"]
        words += ["--storage-timeout", "300ms", "--termination-log", str(place / "log")]
        declared = OUTPUTS if self.done else ()
        return words + [word for output in declared for word in ("--output", output)]

    def objects(self) -> list[str]:
        """The records in it, by key."""
        top = self.root / self.base
        return sorted(str(path.relative_to(self.root)) for path in top.rglob("*.json") if "/files/" not in str(path))

    def checkpoints(self) -> list[str]:
        """The names of its checkpoints, oldest first."""
        return sorted(path.parent.name for path in (self.root / self.base / "checkpoints").glob("*/manifest.json"))


def build(folder: Path) -> list[Sound]:
    """All of them, below a folder."""
    store = folder / "store"

    def start(step: str, code: str, *more: str) -> int:
        shutil.rmtree(folder / "c", ignore_errors=True)
        words = ["--run-id", "r", "--step", step, "--store", store, "--checkpoint-dir", folder / "c", "--keep", "9"]
        done = run(*words, "--outputs-dir", folder / "o", "--grace", "2s", *more, *shell(code))
        return done.returncode

    for code in (_SAVE, _SAVE_FILE, _SAVE):
        assert start("train", f"{code} exit 5") == 5
    lost = Ledger(open_store(str(store)), "default/r/train")
    assert lost.claim(lost.history())
    judged = records.Judgment(outcome="interrupted", cause={"kind": "preempted"}, evidence=["node"], by="test")
    lost.store.write(lost.key("attempts", f"{lost.number:06d}-{lost.id}.judged.json"), records.pack(judged))
    usage = records.Usage(used=50, limit=100)
    lost.store.write(lost.memory_key(lost.number, lost.id), records.pack(usage))
    assert start("done", f"{_SAVE} exit 5") == 5
    declared = [word for output in OUTPUTS for word in ("--output", output)]
    assert start("done", f"{_SAVE} {_LEAVE}", *declared) == 0
    return [
        Sound("train", store, "train", "ck-3", done=False),
        Sound("done", store, "done", "ck-2", done=True),
    ]


def contents(path: Path) -> dict[str, str]:
    """What a restored checkpoint holds: paths to contents, links and folders named as such."""
    if not path.is_dir():
        return {"": path.read_text()}
    found = {}
    for folder, folders, names in os.walk(path):
        for name in [*folders, *names]:
            item = Path(folder) / name
            inside = str(item.relative_to(path))
            if item.is_symlink():
                found[inside] = f"-> {item.readlink()}"
            else:
                found[inside] = "folder" if item.is_dir() else item.read_text()
    return found
