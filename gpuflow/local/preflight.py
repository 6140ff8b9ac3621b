"""What is said before anything starts: what this machine cannot give, what is missing, and what is done otherwise here.

All of it at once, each with the way out; what only `--allow-lossy` runs is left out then, and that is said too.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuflow.core.errors import Finding, GpuflowError, did_you_mean, join_names
from gpuflow.local.attempt import Containers
from gpuflow.local.gangs import wanted_by
from gpuflow.local.machine import Room
from gpuflow.local.paths import PathMap, paths_of
from gpuflow.local.record import RunFolder
from gpuflow.plan import Plan, PlannedStep, writes_xcom
from gpuflow.pod.supervision import OUTPUTS
from gpuflow.spec.container import ConfigMapKey, SecretKey
from gpuflow.spec.policies import Leader
from gpuflow.spec.step import Step
from gpuflow.spec.text import Text


class CannotRunHere(GpuflowError):
    """This machine, or its environment, lacks something that the pipeline needs. Exit code 1."""

    exit_code = 1


@dataclass(frozen=True)
class Setting:
    """What the user said about the environment of steps."""

    environ: Mapping[str, str]
    cwd: Path
    pythons: Mapping[str, str] = field(default_factory=dict)
    """The Python of a step, by its full name."""
    allow_lossy: bool = False
    folder: Path = Path(".gpuflow")
    """Where runs are kept."""
    containers: Containers | None = None

    def paths(self, planned: PlannedStep) -> PathMap:
        """Where the paths of a step would be."""
        return paths_of(planned, self.folder / "runs" / "RUN" / "steps" / planned.name, self.folder / "runs" / "RUN")


def refusals(steps: list[PlannedStep], plan: Plan, room: Room, setting: Setting) -> list[Finding]:
    """Every reason why these steps of a plan cannot run here."""
    found = list(_pythons(plan, setting))
    for planned in steps:
        if planned.step.runs_container:
            found += _hardware(planned, room)
            found += _constructs(planned, setting)
            found += _secrets(planned, setting)
            try:
                if setting.containers is None:
                    found += _programs(planned, setting, setting.paths(planned))
            except GpuflowError as refusal:  # a folder whose name no path can have
                found += refusal.findings
    return found


def _finding(code: str, planned: PlannedStep, path: tuple[str | int, ...], message: str, hint: str) -> Finding:
    return Finding(code, f'step "{planned.name}": {message}', planned.where(*path), hint)


def _hardware(planned: PlannedStep, room: Room) -> Iterator[Finding]:
    missing = room.missing(*wanted_by(planned.step))
    if missing is not None:
        devices = ("gpu", "mig", "shared_gpu", "device_claim")
        asks = next((name for name in devices if getattr(planned.step, name)), None)
        hint = "ask for less, or run it all the same, on what there is: --pretend-gpus"
        yield _finding("GF920", planned, (asks,) if asks else (), missing, hint)


def _constructs(planned: PlannedStep, setting: Setting) -> Iterator[Finding]:
    step = planned.step
    if step.gang is not None and setting.containers is not None:
        hint = "run without --container, in this environment, or the other steps alone: --until STEP"
        text = "the ranks of a gang need one network, and containers of a run have one each"
        yield _finding("GF923", planned, ("gang",), text, hint)
    if writes_xcom(step):
        text = "outputs_from: xcom is written where Airflow looks, which is a place of its pods"
        yield _finding("GF923", planned, ("outputs_from",), text, "write the outputs to $GPUFLOW_OUTPUTS")
    for name, what in _HELPERS.items():
        if getattr(step, name) and not setting.allow_lossy:
            text = f"its {what} run in images of their own, beside the program, and are not started here"
            hint = "if it does without them, run it without: --allow-lossy"
            yield _finding("GF923", planned, (name,), text, hint)


_HELPERS = {"init_containers": "init containers", "sidecars": "sidecars", "lifecycle": "hooks"}


def _secrets(planned: PlannedStep, setting: Setting) -> Iterator[Finding]:
    for part, said in _programs_of(planned):
        for name, value in said.env.items():
            if not isinstance(value, SecretKey | ConfigMapKey) or value.optional or name in setting.environ:
                continue
            what = f"the Secret {value.secret}" if isinstance(value, SecretKey) else f"the ConfigMap {value.config_map}"
            text = f"{name} comes from {what} of the cluster, which is not here"
            hint = f"set it in your environment, and the step gets it: export {name}=…"
            yield _finding("GF921", planned, (*part, "env", name), text, hint)
    for path, volume in planned.step.volumes.items():
        held = f"the Secret {volume.secret}" if volume.secret else f"the ConfigMap {volume.config_map}"
        if (volume.secret or volume.config_map) and not volume.optional and not setting.allow_lossy:
            text = f"{path} holds {held} of the cluster, which is not here"
            hint = "if it does without, run it with an empty folder there: --allow-lossy"
            yield _finding("GF921", planned, ("volumes", path), text, hint)


def _programs(planned: PlannedStep, setting: Setting, paths: PathMap) -> Iterator[Finding]:
    path = search_path(planned, setting)
    for word, at in _first_words(planned):
        # What lies below a mount is seen only when the step runs.
        if not isinstance(word, str) or paths.word(word) != word or is_program(word, path, setting.cwd):
            continue
        near = did_you_mean(word, ["python3"] if word == "python" and shutil.which("python3", path=path) else [])
        hint = near or "install it, or name the environment that has it: "
        if near is None:
            hint += f"--env-for {planned.name}=PYTHON puts the folder of that Python first in PATH"
        yield _finding("GF922", planned, at, f"its program {word} is not found on this machine", hint)


def _programs_of(planned: PlannedStep) -> Iterator[tuple[tuple[str, ...], Step | Leader]]:
    """The step, and the leader of its gang, each with its place in the document."""
    yield (), planned.step
    if planned.step.gang is not None and planned.step.gang.leader is not None:
        yield ("gang", "leader"), planned.step.gang.leader


def _first_words(planned: PlannedStep) -> Iterator[tuple[Text, tuple[str | int, ...]]]:
    for part, said in _programs_of(planned):
        if said.script is not None:
            yield said.script.interpreter[0], (*part, "script")
        elif said.command:
            yield said.command[0], (*part, "command", 0)


def search_path(planned: PlannedStep, setting: Setting) -> str:
    """PATH as the step will have it."""
    own: Any = planned.step.env.get("PATH")
    path = own if isinstance(own, str) else setting.environ.get("PATH", os.defpath)
    python = setting.pythons.get(planned.name)
    return path if python is None else os.pathsep.join((str(Path(python).absolute().parent), path))


def is_program(word: str, path: str, cwd: Path) -> bool:
    """Whether a first word of a command can be run."""
    if "/" in word:
        return os.access(cwd / word, os.X_OK)
    return shutil.which(word, path=path) is not None


def _pythons(plan: Plan, setting: Setting) -> Iterator[Finding]:
    for name, python in setting.pythons.items():
        if name not in plan.by_name:
            hint = did_you_mean(name, plan.by_name)
            yield Finding("GF927", f'--env-for {name}={python}: there is no step "{name}"', plan.pipeline.where(), hint)
        elif not os.access(python, os.X_OK):
            text = f"--env-for {name}={python}: that is no program"
            yield Finding("GF922", text, plan.by_name[name].where(), "name the python of a virtual environment")


def remarks(steps: list[PlannedStep], room: Room, run: RunFolder, setting: Setting) -> list[str]:
    """What is done otherwise here than on a cluster, a sentence each."""
    found: list[str] = []
    containers = [planned for planned in steps if planned.step.runs_container]
    if setting.containers is None and any(planned.step.image for planned in containers):
        found.append("images are not used: commands run in this environment")
    stores = sorted({str(each) for planned in containers for each in _places(planned)})
    if stores:
        found.append(f"buckets are folders of the run: nothing is written to {join_names(stores)}")
    names = sorted({each.secret or each.config_map or "" for planned in containers for each in planned.step.env_from})
    if names:
        found.append(f"what {join_names(names)} would set is taken from your environment, where it is set there")
    for key, what in _HELPERS.items():
        left = [planned.name for planned in containers if getattr(planned.step, key)]
        if left and setting.allow_lossy:
            found.append(f"left out: the {what} of {join_names(left)}")
    lost = [planned.name for planned in containers if planned.step.probes is not None]
    if lost:
        found.append(f"probes are not asked: {join_names(lost)}")
    for planned in containers:
        folder = run.files(planned.name)
        if planned.step.gang is not None:
            folder = folder.parent / "ATTEMPT" / "rank-RANK" / "files"
        paths = paths_of(planned, folder, run.shared_folder)
        told = [*room.remarks(*wanted_by(planned.step)), *paths.sentences()]
        told += setting.containers.engine.remarks(planned.step) if setting.containers is not None else ()
        own = (each for each in told if not each.startswith(f"{OUTPUTS} is "))  # nobody wrote that path
        found += (f"{planned.name}: {each}".replace(f"{run.path}/", "") for each in own)
    return found


def _places(planned: PlannedStep) -> Iterator[str]:
    """The buckets that a step would write to, as far as the document says."""
    step = planned.step
    for text in (step.checkpoint.store if step.checkpoint else None, *(each.uri for each in step.outputs.values())):
        if isinstance(text, str) and "://" in text:
            yield "/".join(text.split("/")[:3])
