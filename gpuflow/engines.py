"""What is known about an engine, in one place: what it keeps of a pipeline, what it adds, and how it waits.

`ENGINES` registers them, and no other module spells their names (`tests/test_engines.py`). Each engine's facts stand
in its own package, `gpuflow/targets/<engine>/facts.py`; none of them needs the engine's SDK. The demand and the checker
ask here, by the engine's name.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, Protocol

from gpuflow.core.errors import Where, did_you_mean, fail
from gpuflow.quantity import Quantity

WaitsFor = Literal["quota", "queue", "nodes", "objects"]
"""What a pod may wait for: quota, a Kueue queue, a node with room, or finished objects to be deleted."""

AIRFLOW, ARGO, KUBEFLOW = "airflow", "argo", "kubeflow"
"""For what concerns one engine and stands outside its packages."""
ENGINES = {name: f"gpuflow.targets.{name}" for name in (AIRFLOW, ARGO, KUBEFLOW)}
"""The engines, each with its package: a module with `target`, which loads without the engine's SDK."""
DEFAULT_ENGINE = ARGO
"""Where none is named and one is needed."""
NO_ENGINE = "none"
"""The steps' own pods and nothing else."""


@dataclass(frozen=True, slots=True)
class RunObject:
    """A kind of object that an engine creates beside pods, and that quotas may count."""

    quota_key: str
    kind: str
    per: Literal["run", "pod"]
    """Whether there is one for each run, or one for each pod."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """One engine. A new engine states only where it differs from the plain case."""

    name: str
    title: str
    """As a sentence calls it."""
    waits: Mapping[WaitsFor, str]
    """What it means that a pod waits, by what it waits for. One sentence each: it is printed under a finding."""
    stock_waits: Mapping[WaitsFor, str] = field(default_factory=dict)
    """The same for pods that the engine makes without gpuflow's help, where it differs."""
    keeps_parallel: bool = True
    """Whether it limits the steps that run at once to the pipeline's `parallel`."""
    caps_pods: bool = False
    """Whether `parallel` bounds all the pods of a run, so that a run can be made to fit (--fit)."""
    writes_active_deadline: bool = False
    """Whether its pods get what is left of the pipeline's deadline as `activeDeadlineSeconds`."""
    drops_late_runs: bool = False
    """Whether a run starts no later than the site's `starting_deadline` after its time; its deadline then ends it."""
    objects_per_run: tuple[RunObject, ...] = ()
    """What it creates beside pods."""
    artifacts: tuple[str, str, str] | None = None
    """The quota keys of the objects from which runs start: without a schedule; with one; and of the runs it keeps."""
    most_runs: int | None = None
    """The most runs of one pipeline that it has active at once, where they may overlap; None: no bound."""
    forbids_data_runs: bool = False
    """Whether `concurrency: forbid` of a schedule also holds back the runs that new data starts."""
    keeps_pods: Literal["all", "failed", "unknown"] = "all"
    """Which finished pods stay until the run is deleted: all, or those that failed; unknown: maybe all."""
    runs_drivers: bool = False
    """Whether it runs a pod of its own before a step's; what that asks for, the site says."""
    launcher: str | None = None
    """The init container that brings the engine's own program into a step's pod; its own pods have none."""
    avoids_nodes_of: Literal["failures", "attempts"] = "failures"
    """Which earlier attempts `retry.other_node` keeps away from: those that failed, or all."""
    container_settings: str = "set them where the engine is installed"
    """Where the people who run it say what its own containers may use."""
    outputs_dir: str = "/gpuflow/outputs"
    """The directory in the container in which it looks for a step's outputs."""
    launcher_memory: str | None = None
    """What the engine's own program needs in each container that it starts; None: it starts none."""
    launches_gangs: bool = True
    """Whether a pod of its own looks after a gang; else the engine itself does."""
    requests_disk: bool = True
    """Whether its pods can ask for the node's disk (`ephemeral-storage`)."""
    supervisor: str = NO_ENGINE
    """How the supervisor hands outputs over: a word that `gpuflow-run --engine` knows. none: as files."""


def too_small_containers(pod: Mapping[str, Any], facts: EngineFacts) -> list[tuple[str, Quantity]]:
    """The containers that the engine starts through a program of its own which does not fit into their memory limit.

    Init containers that end are started by the kubelet alone; those that keep running are sidecars.
    """
    if facts.launcher_memory is None:
        return []
    least, spec = Quantity(facts.launcher_memory), pod["spec"]
    started = [*spec["containers"], *(each for each in spec.get("initContainers", ()) if "restartPolicy" in each)]
    limits = [(each["name"], ((each.get("resources") or {}).get("limits") or {}).get("memory")) for each in started]
    return [(name, Quantity(limit)) for name, limit in limits if limit is not None and Quantity(limit) < least]


class Engine(Protocol):
    """What a target tells the packages below it."""

    @property
    def facts(self) -> EngineFacts: ...


NONE = EngineFacts(
    name=NO_ENGINE,
    title="the engine",
    waits={
        "quota": "What happens then depends on the engine: --engine says.",
        "queue": "Kueue holds the pod back until there is quota; how long an engine lets it: --engine says.",
        "nodes": "The pod stays Pending until a node has room; how long an engine lets it: --engine says.",
        "objects": "Finished pods count until they are deleted.",
    },
    keeps_pods="unknown",
)


def engine_names() -> tuple[str, ...]:
    """The engines there are, without `none`."""
    return tuple(ENGINES)


def engine_choices() -> tuple[str, ...]:
    """The same for a command that takes the default where none is named: it comes first."""
    return tuple(sorted(ENGINES, key=lambda name: name != DEFAULT_ENGINE))


def facts_of(name: str) -> EngineFacts:
    """What is known about the engine of that name; an unknown name is an error that says which there are."""
    return NONE if name == NO_ENGINE else load_engine(name).facts


def load_engine(name: str) -> Any:
    """The target of that name. Its package loads without the engine's SDK."""
    if name not in ENGINES:
        raise fail("GF302", f'"{name}" is not an engine', hint=did_you_mean(name, ENGINES), where=Where("gpuflow"))
    return _load_target(ENGINES[name])


@cache
def _load_target(package: str) -> Any:
    return importlib.import_module(package).target
