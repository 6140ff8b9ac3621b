"""What things are called in the IR.

KFP's backend reads meaning out of names: a loop's item is recognized by `loop-item`, a value handed into a sub-DAG by
`pipelinechannel--`, a condition's sub-DAG by `condition-`. So groups and their inputs carry exactly the names KFP's own
compiler gives them; only the inputs of a step's component, which nobody interprets, are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, RunRef

RUN_LABEL = "metadata.labels['pipeline/runid']"
"""The run's id on every pod of a run, one-off or recurring: its API server puts it into the workflow's podMetadata."""
NODE_NAME = "metadata.annotations['workflows.argoproj.io/node-name']"
"""Argo's name of a task: the way to it through groups and turns of loops, with the numbers of attempts."""
CACHE_SETTINGS = "pipeline_cache-settings"
"""The input whose value changes with what KFP's cache does not look at. No channel has such a name."""
RUN_FACTS = {
    "id": "{{$.pipeline_job_uuid}}",
    "name": "{{$.pipeline_job_resource_name}}",
    "logical_date": "{{$.pipeline_job_create_time_utc}}",
    "interval_end": "{{$.pipeline_job_create_time_utc}}",
}
"""What KFP's driver replaces with a fact of the run, where it is the whole value of a task's input. The placeholder for
the schedule's time says no more: 2.17 reads it from a label of recurring runs in which its API server writes the time
when the run was made (CreateRun in resource_manager.go)."""


@dataclass(frozen=True, slots=True)
class ClaimRef:
    """The name of a volume claim that is made for each run."""

    name: str


@dataclass(frozen=True, slots=True)
class ArtifactRef:
    """The artifact behind an output of a step: ML Metadata then knows who made it and who took it."""

    step: str
    name: str


@dataclass(frozen=True, slots=True)
class StatusRef:
    """How the steps of the run ended; for exit steps."""


Channel = ParamRef | OutputRef | ItemRef | RunRef | ClaimRef | StatusRef | ArtifactRef
"""Something that flows from one place of the pipeline to another."""


def input_name(channel: Channel) -> str:
    """The input of a step's own component. Params have no '-', steps no '_', so no two channels share a name."""
    match channel:
        case ParamRef(name):
            return name
        case OutputRef(step, name):
            return f"{step}-{name}"
        case ArtifactRef(step, name):
            return f"{step}-{name}-artifact"
        case ItemRef(name):
            return f"loop_item-{name}"
        case RunRef(field):
            return f"pipeline_run-{field}"
        case ClaimRef(name):
            return f"run_claim-{name}"
        case StatusRef():
            return "pipeline_run-status"


def channel_name(channel: Channel) -> str:
    """The input of a group (condition, loop, exit handler) that hands the channel on."""
    match channel:
        case ParamRef(name):
            return f"pipelinechannel--{name}"
        case OutputRef(step, name):
            return f"pipelinechannel--{step}-{name}"
        case ArtifactRef(step, name):
            return f"pipelinechannel--{step}-{name}-artifact"
        case ClaimRef(name):
            return f"pipelinechannel--{claim_task(name)}-name"
        case StatusRef():
            return "status"
        case _:
            raise TypeError(f"{channel} is never handed through a group")


def claim_task(name: str) -> str:
    """The task that makes a claim."""
    return f"createpvc-{name}"


def release_task(name: str) -> str:
    """The task that deletes a claim."""
    return f"deletepvc-{name}"


def placeholder(name: str) -> str:
    """What KFP replaces with the value of a component's input."""
    return f"{{{{$.inputs.parameters['{name}']}}}}"


class Names:
    """Gives each component, executor and group a name of its own."""

    def __init__(self, *taken: str) -> None:
        self._taken: set[str] = set(taken)
        self._count = 0

    def unique(self, wish: str) -> str:
        """`wish`, or `wish-2`, `wish-3` … when it is taken."""
        name, number = wish, 1
        while name in self._taken:
            number += 1
            name = f"{wish}-{number}"
        self._taken.add(name)
        return name

    def group(self, kind: str, tasks: set[str]) -> str:
        """`condition-3`: the next number of the pipeline, past any step of that name."""
        while True:
            self._count += 1
            name = f"{kind}-{self._count}"
            if name not in tasks and name not in self._taken:
                self._taken.add(name)
                return name
