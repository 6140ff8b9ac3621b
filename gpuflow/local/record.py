"""A run as a folder: `.gpuflow/runs/<id>/`, with everything that is needed to go on with it.

| entry | holds |
|---|---|
| `run.json` | the pipeline's name and digest, its source, the values of its parameters, the folder it runs in |
| `pipeline.yaml` | the pipeline as it was run, in its canonical form |
| `journal.jsonl` | what happened, one JSON object per line; lines are only added, and what counts is written through |
| `lock` | held by the one process that runs the run |
| `steps/<step>/<attempt>/` | `log`, `outputs/`, and `end`, the last words of the supervisor |
| `state/`, `checkpoints/`, `artifacts/`, `shared/` | the supervisor's records, and what stands for buckets and claims |

A line that was cut off when the machine went down says nothing, and the next one begins on a line of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from gpuflow.core.errors import EnvironmentFailure, Finding, GpuflowError, Where, did_you_mean, fail
from gpuflow.core.printable import json_text

FOLDER = ".gpuflow"
COMMAND = Where("gpuflow run")
SUCCEEDED, FAILED, INTERRUPTED, RUNNING = "succeeded", "failed", "interrupted", "running"
SKIPPED, NOT_RUN, WAITING = "skipped", "not run", "waiting"
"""States of runs and steps. Not run: a step that it needs failed, or nobody asked for it."""


@dataclass(frozen=True)
class Facts:
    """What does not change while a run goes on. `moment`: when it was made, RFC 3339 in UTC."""

    id: str
    pipeline: str
    digest: str
    source: str | None
    params: Mapping[str, Any]
    site: str
    cwd: str
    moment: str

    @property
    def date(self) -> datetime:
        return datetime.fromisoformat(self.moment)


@dataclass
class StepRecord:
    """What the journal says of one step, or of one copy of it."""

    state: str = WAITING
    attempts: int = 0
    """The number of the last attempt."""
    generation: int = 0
    """How often it was asked for anew."""
    outputs: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    because: str = ""
    supervisors: tuple[tuple[int, int | None], ...] = ()
    """Of an attempt whose end nobody wrote: their processes, and when each began."""
    answer: bool | None = None
    """Of a question: what was answered."""


class RunFolder:
    """One run on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.steps: dict[str, StepRecord] = {}
        self.state = INTERRUPTED
        self.begun = self.closed = self.last = ""
        """When it was first opened, last closed, and when the journal was last written."""
        self.in_containers = False
        """Whether its steps were started in containers when it was last opened."""
        self._journal: int | None = None
        self._lock: int | None = None

    @property
    def id(self) -> str:
        return self.path.name

    def facts(self) -> Facts:
        """What `run.json` says; GF926 where it cannot be read."""
        try:
            said = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
            return Facts(**{name: said[name] for name in Facts.__dataclass_fields__})
        except (OSError, ValueError, KeyError, TypeError) as fault:
            text = f"{self.path} is no run that can be read: {type(fault).__name__}: {fault}"
            raise fail(
                "GF926", text, where=Where(str(self.path)), hint="start a new run, or remove the folder"
            ) from None

    def attempt(self, key: str, number: int) -> Path:
        """The folder of one attempt."""
        return self.path / "steps" / key / str(number)

    def files(self, key: str) -> Path:
        """Where the paths of a step are, or of one copy of it; anew once it was asked for anew."""
        generation = self.step(key).generation
        return self.path / "steps" / key / (f"files-{generation}" if generation else "files")

    @property
    def shared_folder(self) -> Path:
        """What stands for claims, which the steps of the run share."""
        return self.path / "shared"

    # -- the one process that runs it

    def lock(self) -> None:
        """Become the process that runs it; GF924 when there is one."""
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        for pause in (0.02, 0.05, 0.1, 0.0):  # who only looks holds it for a moment
            with contextlib.suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(pause)
        else:
            pid = os.read(self._lock, 20).decode("ascii", "replace").strip()
            os.close(self._lock)
            self._lock = None
            text = f"run {self.id} is being run by another process{f' ({pid})' if pid else ''}"
            hint = "wait for it, or end it with Ctrl-C or SIGTERM and then go on with --resume"
            raise fail("GF924", text, where=COMMAND, hint=hint)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def is_locked(self) -> bool:
        """Whether a process runs it now."""
        try:
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return False
        except OSError:
            return True
        finally:
            os.close(handle)

    def close(self) -> None:
        """Let go of the journal and of the lock."""
        for handle in (self._journal, self._lock):
            if handle is not None:
                os.close(handle)
        self._journal = self._lock = None

    # -- the journal

    def write(self, event: str, **fields: Any) -> None:
        """Add one line, and count it."""
        entry = {"time": now(), "event": event, **fields}
        line = (json.dumps(entry, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
        path = self.path / "journal.jsonl"
        try:
            if self._journal is None:
                self._journal = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                size = os.fstat(self._journal).st_size
                if size and os.pread(self._journal, 1, size - 1) != b"\n":
                    line = b"\n" + line
            while line:
                line = line[os.write(self._journal, line) :]
            if event not in _TOLD_AGAIN and fields.get("state") not in (SKIPPED, NOT_RUN):
                os.fdatasync(self._journal)
        except OSError as fault:
            raise cannot_write(path, fault) from None
        self._count(entry)

    def read(self) -> RunFolder:
        """Itself, as the journal says."""
        self.steps, self.state, self.begun, self.closed, self.last = {}, INTERRUPTED, "", "", ""
        for entry in self.events():
            with contextlib.suppress(KeyError, TypeError, ValueError):
                self._count(entry)
        return self

    def events(self) -> Iterator[dict[str, Any]]:
        """The journal's entries that are whole."""
        path = self.path / "journal.jsonl"
        if not path.is_file():
            return
        with open(path, "rb") as file:
            for line in file:
                try:
                    entry = json.loads(line.decode("utf-8", "surrogatepass"))
                except ValueError:
                    continue
                if isinstance(entry, dict) and isinstance(entry.get("event"), str):
                    yield entry

    def step(self, key: str) -> StepRecord:
        """What is known of a step, which is little at first."""
        return self.steps.setdefault(key, StepRecord())

    def _count(self, entry: Mapping[str, Any]) -> None:
        event, self.last = entry["event"], entry["time"]
        if event == "opened":
            self.in_containers = bool(entry.get("container"))
            self.begun, self.state, self.closed = self.begun or entry["time"], INTERRUPTED, ""
        elif event == "closed":
            self.state, self.closed = entry["state"], entry["time"]
        elif event == "again":
            self._forget(entry["steps"])
        else:
            step = self.step(entry["step"])
            _EVENTS[event](step, entry)

    def _forget(self, names: Iterable[str]) -> None:
        """These steps, and all inside them, are done anew."""
        wanted = set(names)
        for key, step in self.steps.items():
            if key.partition(".")[0].partition("@")[0] in wanted:
                self.steps[key] = StepRecord(attempts=step.attempts, generation=step.generation + 1)


def _count_start(step: StepRecord, entry: Mapping[str, Any]) -> None:
    pairs = entry.get("supervisors") or [(entry["pid"], entry["began"])]
    step.attempts, step.supervisors, step.state = entry["attempt"], tuple((pid, began) for pid, began in pairs), RUNNING


def _count_end(step: StepRecord, entry: Mapping[str, Any]) -> None:
    step.state, step.because, step.supervisors = entry["state"], entry.get("because", ""), ()
    step.outputs = dict(entry.get("outputs") or {})
    step.seconds += entry.get("seconds", 0.0)


def _count_answer(step: StepRecord, entry: Mapping[str, Any]) -> None:
    step.answer = bool(entry["yes"])


_EVENTS = {"started": _count_start, "ended": _count_end, "settled": _count_end, "answered": _count_answer}
"""What each event of a step says: an attempt began, an attempt ended, a step without a program of its own ended, a
question was answered."""


_TOLD_AGAIN = ("started",)
"""What is lost with the machine without harm, and so reaches the disk with the next event: a program that began has
ended with the machine, and who is skipped is found out again."""


def now() -> str:
    """This moment as the journal writes it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def cannot_write(path: Path, fault: OSError) -> EnvironmentFailure:
    """GF906 for a place of the run."""
    text = f"{path} cannot be written: {fault.strerror or fault}"
    return EnvironmentFailure(Finding("GF906", text, Where(str(path)), "free some space, or name another --folder"))


def create(folder: Path, facts: Mapping[str, Any], document: str) -> RunFolder:
    """A new run, locked."""
    try:
        runs = folder / "runs"
        runs.mkdir(parents=True, exist_ok=True)
        ignore = (folder if folder.name == FOLDER else runs) / ".gitignore"  # another folder may hold other things
        if not ignore.exists():
            ignore.write_text("*\n", encoding="utf-8")
        while True:
            moment = datetime.now(UTC)  # names are in the order of time
            path = runs / f"{moment:%Y%m%d-%H%M%S}-{moment.microsecond * 0x10000 // 1_000_000:04x}"
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                break
        run = RunFolder(path)
        run.lock()
        write_whole(path / "pipeline.yaml", document)
        whole = Facts(id=path.name, moment=moment.isoformat(timespec="seconds"), **facts)
        write_whole(path / "run.json", json_text(asdict(whole)))
    except OSError as fault:
        raise cannot_write(folder, fault) from None
    return run


def write_whole(path: Path, text: str) -> None:
    """The file, whole or not at all."""
    part = path.with_name(f".{path.name}.part")
    with open(part, "w", encoding="utf-8", newline="\n") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def runs_in(folder: Path) -> list[RunFolder]:
    """All runs, the latest first."""
    try:
        names = sorted((path for path in (folder / "runs").iterdir() if (path / "run.json").is_file()), reverse=True)
    except OSError:
        return []
    return [RunFolder(path) for path in names]


def find(folder: Path, id: str) -> RunFolder:
    """The run of this name, or of which this is the beginning."""
    known = runs_in(folder)
    found = [run for run in known if run.id == id] or [run for run in known if id and run.id.startswith(id)]
    if len(found) == 1:
        return found[0].read()
    text = f'"{id}" is not a run in {folder}' if not found else f'"{id}" may be any of {len(found)} runs in {folder}'
    hint = did_you_mean(id, [run.id for run in known[:50]]) or "gpuflow runs lists them"
    raise fail("GF926", text, where=COMMAND, hint=hint)


def latest(folder: Path, pipeline: str, *, finished: bool | None = None) -> RunFolder | None:
    """The latest run of a pipeline, of those that have succeeded, or of those that have not."""
    for run in runs_in(folder):
        try:
            name = run.facts().pipeline
        except GpuflowError:
            continue  # of what cannot be read nobody knows whose it is; `gpuflow runs` names it
        if name != pipeline:
            continue
        if finished is None or (run.read().state == SUCCEEDED) == finished:
            return run.read()
    return None
