"""One attempt of one copy of a step: its command under gpuflow's supervisor, its start, and what its end means.

Every step runs under the supervisor, in a session of its own, also one that needs none on an engine: the supervisor
tells a failure from an interruption, keeps the time limit, and leaves no process behind. Its records lie in the run's
folder. Another attempt costs what ended the one before, as on Argo and Airflow: the supervisor counts where it counts
there, and `next_step` counts the rest.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import gpuflow.runtime
from gpuflow.kubernetes.expansion import escape
from gpuflow.local.containers import ENGINE_FAILED, SUPERVISOR, ContainerEngine, container_name
from gpuflow.local.events import Events
from gpuflow.local.machine import Share
from gpuflow.local.paths import PathMap, paths_of
from gpuflow.local.record import FAILED, INTERRUPTED, SUCCEEDED, RunFolder
from gpuflow.local.values import Values, unescape
from gpuflow.plan import PlannedStep
from gpuflow.pod.build import command_of, environment, rewritten
from gpuflow.pod.supervision import DEFAULT_GRACE, Engine, longest_wait, supervised_command, supervisor_grace
from gpuflow.pod.volumes import Volumes
from gpuflow.runtime.base import container, outcomes, progress, termination_message
from gpuflow.runtime.base.attempt_folder import process_began
from gpuflow.site import Site
from gpuflow.spec.policies import Retry
from gpuflow.spec.text import ItemRef, ParamRef, Ref

MARK = "GPUFLOW_LOCAL"
"""The variable by which the processes of a run are found again: the run's folder, and the attempt in it."""
_START = "import sys; sys.path += {path!r}; from gpuflow.runtime.supervise.main import main; sys.exit(main())"
_TAIL = 8192
KILL_MARGIN = 10.0
"""How much longer than its grace a supervisor may take before it is killed."""
_SAID_HERE = ("--step=", "--run-id=", "--rank-offset=")
"""Options that a run on this machine says otherwise."""
_OWN_FAULTS = (outcomes.OUT_OF_MEMORY, outcomes.TIMED_OUT, outcomes.DISK_LIMIT)
"""What a step's own lists of exit codes say nothing about."""


def local_site(site: Site, run: RunFolder, containers: Containers | None = None) -> Site:
    """The site of this machine: names and defaults as the site has them, every place a folder of the run."""
    runtime = site.runtime.model_copy(
        update={
            "delivery": "image" if containers is None else "config-map",
            "mount": SUPERVISOR,
            "state": str(run.path / "state"),
            "artifacts": str(run.path / "artifacts"),
            "buckets": {},
            "key": None,
        }
    )
    return site.model_copy(update={"runtime": runtime})


def local_step(planned: PlannedStep, run: RunFolder) -> PlannedStep:
    """The step with its checkpoints and its artifacts in the run's folder."""
    step, changes = planned.step, dict[str, Any]()
    if step.checkpoint is not None:
        changes["checkpoint"] = step.checkpoint.model_copy(update={"store": str(run.path / "checkpoints")})
    if any(output.uri is not None for output in step.outputs.values()):
        changes["outputs"] = {name: each.model_copy(update={"uri": None}) for name, each in step.outputs.items()}
    return planned.with_fields(**changes) if changes else planned


class MappedValues(Values):
    """The spelling of a run whose paths of the container are folders of the run."""

    paths: PathMap | None = None
    mounted: PathMap
    """The same paths, of a container."""
    own: frozenset[str] = frozenset()
    """Places of the run itself, which stay as they are."""

    def literal(self, text: str) -> str:
        return text if self.paths is None or text in self.own else self.paths.word(text)

    def text(self, ref: Ref) -> str:
        text = super().text(ref)
        mapped = self.paths is not None and isinstance(ref, ParamRef | ItemRef)
        return self.paths.word(text) if mapped and self.paths is not None else text


@dataclass(frozen=True)
class Program:
    """What is started: words, variables and the folder it works in."""

    words: list[str]
    environ: dict[str, str]
    cwd: Path
    folder: Path
    """Of the attempt."""
    outputs: Path
    """Where its outputs are."""
    grace: float
    end: Callable[[], object] | None = None
    """Ends what a kill of its processes may leave: its container."""


@dataclass(frozen=True)
class Containers:
    """How steps run in their images."""

    engine: ContainerEngine
    supervisor: Mapping[str, Path]
    """Where the supervisor is mounted, and from where."""

    def end(self, run: RunFolder, key: str, attempt: int, grace: int = 0) -> bool:
        """End the container of an attempt; whether it was running."""
        return self.engine.end(container_name(run.id, key, attempt), grace)


@dataclass(frozen=True)
class Place:
    """Where one copy of a step runs: the run, its key in it, and what the user said about its environment."""

    run: RunFolder
    key: str
    cwd: Path
    environ: Mapping[str, str]
    python: str | None = None
    containers: Containers | None = None
    options: tuple[str, ...] = ()
    """More options of the supervisor."""
    rank: Rank | None = None
    """Which rank it is, of a gang."""


@dataclass(frozen=True)
class Rank:
    """One rank of an attempt of a gang."""

    number: int
    gpus: int
    variables: Mapping[str, str]
    """Those that say who it is, and where the others are."""

    def folder(self, attempt: Path) -> Path:
        """Its part of the attempt's folder."""
        return attempt / f"rank-{self.number}"


def launch(planned: PlannedStep, values: MappedValues, place: Place, share: Share) -> Running:
    """Start one attempt, or one rank of it; OSError where that cannot be."""
    run, rank = place.run, place.rank
    # A rank has scratch space of its own in each attempt, as its pods have: nobody else's files are in it.
    own = run.files(place.key) if rank is None else rank.folder(run.attempt(place.key, values.attempt)) / "files"
    values.mounted = paths_of(planned, own, run.shared_folder)
    values.mounted.make()
    values.paths = None if place.containers is not None else values.mounted
    return start(program_of(planned, values, place, share))


def program_of(planned: PlannedStep, values: MappedValues, place: Place, share: Share) -> Program:
    """The program of one attempt. `values` has the number of the attempt."""
    run, step, grace, rank = place.run, planned.step, supervisor_grace(planned.step), place.rank
    folder, outputs = run.attempt(place.key, values.attempt), run.files(place.key) / "outputs"
    folder = folder if rank is None else rank.folder(folder)
    engine = Engine() if place.containers else Engine(outputs_dir=escape(str(outputs), glued=True))
    engine = replace(engine, leads=rank is not None and rank.number == 0)
    inside = place.containers
    runtime = planned.site.runtime
    values.own = frozenset(filter(None, (runtime.state, runtime.artifacts, str(run.path / "checkpoints"))))
    command = command_of(step, values)
    words, _ = supervised_command(planned, values, engine, Volumes(), command, 0 if rank is None else rank.gpus)
    words = [unescape(word) for word in words]
    end, head = words.index("--"), next(at for at, word in enumerate(words) if word.startswith("--"))
    options = [word for word in words[head:end] if not word.startswith(_SAID_HERE)]
    options += [f"--step={place.key}", *place.options]
    if step.checkpoint is None and not any(word.startswith("--state=") for word in options):
        options.append(f"--state={runtime.state}")
    options += [f"--termination-log={folder / 'end'}", f"--progress-file={folder / 'progress'}"]
    seconds = float(DEFAULT_GRACE if grace is None else grace.seconds)
    environ = _environment(planned, values, place, share)
    if inside is None:
        cwd = _working_folder(step.working_dir, values, place)
        return Program([*supervisor_words(), *options, *words[end:]], environ, cwd, folder, outputs, seconds)
    name, paths = container_name(run.id, place.key, values.attempt), values.mounted
    words = inside.engine.words(
        rewritten(step.image or "", planned.site),
        [*words[:head], *options, *words[end:]],
        environ,
        {**paths.mounts, **inside.supervisor, str(run.path): run.path},
        share,
        name,
        step=step,
        read_only=paths.read_only,
        grace=round(seconds + KILL_MARGIN),
    )
    environ = inside.engine.client_environment(environ, share)
    ending = partial(inside.end, run, place.key, values.attempt)
    return Program(words, environ, place.cwd, folder, outputs, seconds, ending)


def supervisor_words() -> list[str]:
    """What starts gpuflow-run with this Python: its own library first, and no variable or file of the user's folder
    changes it. The packages behind it are for stores of data from outside."""
    package = str(Path(gpuflow.runtime.__file__).resolve().parents[2])
    packages = [each for each in sys.path if each.endswith("-packages") and os.path.isdir(each)]
    return [sys.executable, "-I", "-S", "-c", _START.format(path=list(dict.fromkeys([package, *packages])))]


def _environment(planned: PlannedStep, values: MappedValues, place: Place, share: Share) -> dict[str, str]:
    """The user's variables, the step's, those of its GPUs, and the mark; in a container the step's alone."""
    environ = {name: text for name, text in place.environ.items() if not name.startswith("GPUFLOW_")}
    if place.containers is not None:
        environ = {name: environ[name] for name in planned.step.env if name in environ}
    if place.python is not None:
        environ["PATH"] = os.pathsep.join((str(Path(place.python).absolute().parent), environ.get("PATH", os.defpath)))
    for entry in environment(planned.step.env, values):
        if "value" in entry:  # what a Secret holds is in the user's variables already
            environ[entry["name"]] = unescape(entry["value"])
    if place.containers is None:
        environ.update(share.environment())
    environ[MARK] = f"{place.run.path}/{place.key}/{values.attempt}"
    if place.rank is not None:
        environ |= place.rank.variables
        environ[MARK] += f"/{place.rank.number}"
    return environ


def _working_folder(wanted: str | None, values: MappedValues, place: Place) -> Path:
    if wanted is None or values.paths is None:
        return place.cwd
    mapped = Path(values.paths.word(wanted))
    return mapped if mapped.is_dir() else place.cwd


@dataclass
class Running:
    """A supervisor that runs, with its program: an attempt, or one rank of it."""

    program: Program
    process: subprocess.Popen[bytes]

    def watch(self, events: Events, ended: Callable[[int], None]) -> None:
        """Call `ended` with the exit code of the supervisor."""

        def take(code: int) -> None:
            if code < 0:  # what the supervisor would have ended, had it not been killed
                self.kill()
            ended(code)

        events.watch(self.process, take)

    def last_progress(self) -> progress.Progress | None:
        """How far its program is, as far as that has said so."""
        return progress.read(str(self.program.folder / "progress"))

    def terminate(self) -> None:
        """Tell the supervisor to stop: it tells the program, and both have the step's grace."""
        self.process.terminate()

    def kill(self) -> None:
        """End everything of it now."""
        kill_all(self.program.environ[MARK])
        if self.process.poll() is None:
            self.process.kill()
        if self.program.end is not None:
            self.program.end()


def start(program: Program) -> Running:
    """Start it, its output in the attempt's `log`; OSError where that cannot be."""
    for folder in (program.folder, program.outputs):
        folder.mkdir(parents=True, exist_ok=True)
    (program.folder / "end").touch()
    with open(program.folder / "log", "ab") as log:
        process = subprocess.Popen(
            program.words,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=program.cwd,
            env=program.environ,
            start_new_session=True,
        )
    return Running(program, process)


@dataclass(frozen=True)
class End:
    """How an attempt ended."""

    state: str
    """succeeded, failed or interrupted."""
    code: int
    because: str
    outcome: str = ""
    """A word of the supervisor's table."""
    outputs: Mapping[str, str] = field(default_factory=dict)
    rank: int | None = None
    """Of a gang: the rank that its supervisor names as the cause; of the one end of all, the rank whose end it is."""


_CAUSE = re.compile(r"rank (\d+)\b")
"""How the last words of a gang's supervisor begin, where it knows which rank went first."""


def end_of(planned: PlannedStep, program: Program, code: int) -> End:
    """What the exit code of the supervisor and its last words say."""
    end = end_in(planned, program.folder, program.outputs, code)
    if program.end is not None and code == ENGINE_FAILED and not end.outcome:
        why = f"its container could not be started: {' '.join(last_lines(program.folder / 'log', 2))}"
        return replace(end, code=outcomes.EXIT_RUNTIME, because=why)
    return end


def end_in(planned: PlannedStep, folder: Path, outputs: Path, code: int) -> End:
    """The same, of an attempt that another process has started."""
    words = last_words(folder)
    said = termination_message.parse(words) or {}
    outcome, because = str(said.get("outcome", "")), str(said.get("because", ""))
    if code < 0:
        return End(INTERRUPTED, 128 - code, f"its supervisor was killed by signal {-code}", outcomes.INTERRUPTED)
    if code == 0:
        return _success(planned, outputs)
    if not because:
        because = words.strip().partition("\n")[0].removeprefix("gpuflow-run: ") or f"exit code {code}"
    stopped = code == outcomes.EXIT_INTERRUPTED or outcome == outcomes.INTERRUPTED
    cause = _CAUSE.match(because) if planned.step.gang is not None else None
    return End(INTERRUPTED if stopped else FAILED, code, because, outcome, rank=int(cause[1]) if cause else None)


def last_words(folder: Path) -> str:
    """What the supervisor of an attempt has written at its end; empty before."""
    try:
        return (folder / "end").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def code_in(folder: Path) -> int | None:
    """The exit code in the last words; None where there are none."""
    said = termination_message.parse(last_words(folder))
    return None if said is None else int(said.get("exit_code", 1))


def _success(planned: PlannedStep, outputs: Path) -> End:
    found = {}
    for name, output in planned.step.outputs.items():
        path = outputs / (f"{name}.uri" if output.is_artifact else name)
        try:
            found[name] = path.read_bytes().decode("utf-8", "surrogateescape")
        except OSError as fault:
            return End(FAILED, 0, f'the output "{name}" cannot be read: {fault.strerror}')
    return End(SUCCEEDED, 0, "", outcomes.SUCCEEDED, found)


def write_end(run: RunFolder, key: str, attempt: int, end: End, **more: float) -> None:
    """Write into the run's journal how an attempt ended."""
    how = {"state": end.state, "code": end.code, "because": end.because, **more, "outputs": dict(end.outputs)}
    run.write("ended", step=key, attempt=attempt, **how)


LEFT = End(INTERRUPTED, outcomes.EXIT_INTERRUPTED, "its run was killed", outcomes.INTERRUPTED)


@dataclass(frozen=True)
class Spent:
    """What the attempts since the run was opened have cost."""

    failures: int = 0
    interruptions: int = 0

    def plus(self, end: End) -> Spent:
        if end.state == INTERRUPTED:
            return replace(self, interruptions=self.interruptions + 1)
        return replace(self, failures=self.failures + 1)


def is_tried_again(planned: PlannedStep, end: End, spent: Spent) -> bool:
    """Whether another attempt follows one that did not succeed. `spent`: with this end."""
    retry = planned.step.retry
    if retry is None or end.code in (outcomes.EXIT_FINAL, outcomes.EXIT_RUNTIME):
        return False
    if planned.supervision.counts_budgets:
        return spent.failures + spent.interruptions <= retry.attempts + 1  # it says 79 before that
    if end.state == INTERRUPTED:
        return spent.interruptions <= retry.interruptions if retry.any is None else _total(spent) <= retry.any
    if not _may_fail(retry, end):
        return False
    return spent.failures <= retry.failures if retry.any is None else _total(spent) <= retry.any


def _total(spent: Spent) -> int:
    return spent.failures + spent.interruptions


def _may_fail(retry: Retry, end: End) -> bool:
    """Whether the step's lists of exit codes let a failure be tried again."""
    if end.outcome in _OWN_FAULTS:
        return True
    listed = retry.retryable_exit_codes
    return end.code in listed if listed is not None else end.code not in retry.final_exit_codes


def wait_before(planned: PlannedStep, end: End, spent: Spent) -> float:
    """The seconds before the next attempt. The launcher of a gang counts failures alone."""
    times = _total(spent)
    if planned.step.gang is not None:
        times = 1 if end.state == INTERRUPTED else spent.failures
    return float(longest_wait(planned.step.retry, times)) if planned.step.retry is not None else 0.0


def last_lines(log: Path, most: int = 10) -> list[str]:
    """The end of what a program wrote; what its supervisor wrote is said otherwise."""
    try:
        with open(log, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - _TAIL))
            text = file.read(_TAIL).decode("utf-8", "replace")
    except OSError:
        return []
    return [each for each in text.splitlines() if not each.startswith("gpuflow-run: ")][-most:]


def processes_of(mark: str) -> container.Processes:
    """The living processes that carry a mark, or that of a part of it, and all that descend from them."""
    here, found = container.all_processes(), dict[int, container.Process]()
    for pid, process in here.items():
        if pid == os.getpid() or not container.is_own(pid):
            continue
        said = (container.variable_of(pid, MARK) or b"").decode("utf-8", "surrogateescape")
        if said == mark or said.startswith(f"{mark}/"):
            found[pid] = process
            found |= container.descendants(pid, here)
    return found


def kill_all(mark: str, seconds: float = 5.0) -> container.Processes:
    """SIGKILL to all that carry a mark; what is left."""
    return container.end_processes(lambda: processes_of(mark), seconds)


def is_alive(pid: int | None, began: int | None) -> bool:
    """Whether a process that was written down is still the one that was meant."""
    return pid is not None and began is not None and process_began(pid) == began
