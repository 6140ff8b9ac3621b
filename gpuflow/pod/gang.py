"""A gang in its pods: the variables of a rank, the object of one attempt, and the network between the ranks.

A JobSet, or an object of another kind that the site names (`gang_kinds`), is one attempt. It never restarts
anything by itself: `gpuflow-run gang`, in the launcher's pod, reads why it ended, counts, and creates the next one. So
the two budgets mean what they mean for a single pod, whatever created the launcher. What ranks need for a fast network
(devices, rights, settings) the site says once, for all of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from gpuflow.kubernetes.expansion import escape
from gpuflow.kubernetes.labels import LEADER, MADE_BY, QUEUED_BY, WORKERS
from gpuflow.pod.gang_kinds import DEFAULT, SPELLINGS
from gpuflow.pod.spelling import Spelling
from gpuflow.site import Site
from gpuflow.site.model import GangNetwork
from gpuflow.spec.container import Security
from gpuflow.spec.policies import Gang, Kubernetes
from gpuflow.spec.step import Step

COUNTS = ("attempt", "interruptions")
"""What the launcher notes on the pods: the number of the attempt, and the interruptions before it."""


def star_port(gang: Gang) -> int:
    """The port on which the supervisors of a gang agree: the one beside the program's own."""
    return gang.rendezvous.port + 1


def mpi_slots(step: Step, gpus: int, *, leads: bool) -> int | None:
    """How many processes mpirun starts in a rank's pod; None where the gang is not one of mpirun's.

    A leader whose GPU is taken away (`gpu: null`) leads, and works not.
    """
    gang = step.gang
    if gang is None or gang.rendezvous.framework != "mpi":
        return None
    if leads and gang.leader is not None and ("gpu",) in gang.leader.nulls:
        return 0
    return gang.rendezvous.processes_per_worker or max(1, gpus)


def gang_environment(step: Step, gpus: int, kind: str = DEFAULT) -> list[dict[str, Any]]:
    """Who a rank is, as variables; for torchrun in its own words too, so that it needs no options."""
    gang = step.gang
    if gang is None:
        return []
    of = SPELLINGS[kind]
    host = of.leader(WORKERS if gang.leader is None else LEADER)
    leader = {"name": "GPUFLOW_LEADER", **host}
    found = [
        _field("GPUFLOW_RANK", of.rank),
        *([leader] if "valueFrom" in leader else []),
        {"name": "GPUFLOW_WORLD_SIZE", "value": str(gang.pods)},
        _field("GPUFLOW_GANG", f"metadata.labels['{of.kind.pods}']"),
        # A text may have the name of the gang in it, and must come after that.
        *([leader] if "value" in leader else []),
        *(_field(f"GPUFLOW_GANG_{name.upper()}", f"metadata.annotations['gpuflow.dev/{name}']") for name in COUNTS),
    ]
    if gang.rendezvous.framework != "torchrun":
        return found
    values = {
        "PET_NNODES": gang.pods,
        "PET_NPROC_PER_NODE": gang.rendezvous.processes_per_worker or max(1, gpus),
        "PET_MASTER_PORT": gang.rendezvous.port,
        # Restarts of torchrun's own inside a world that has lost a member would hide the cause.
        "PET_MAX_RESTARTS": 0,
    }
    torchrun = [_field("PET_NODE_RANK", of.rank), {"name": "PET_MASTER_ADDR", **host}]
    torchrun += [{"name": name, "value": str(value)} for name, value in values.items()]
    # What the step sets itself is meant.
    return [*found, *(entry for entry in torchrun if entry["name"] not in step.env)]


def _field(name: str, path: str) -> dict[str, Any]:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def gang_object(
    step: Step, pod: Mapping[str, Any], leader: Mapping[str, Any] | None = None, kind: str = DEFAULT
) -> dict[str, Any]:
    """One attempt, without its name, its owner and its number: the launcher fills them in. `pod`: of each worker."""
    assert step.gang is not None
    return SPELLINGS[kind].build(pod, step.gang.workers, leader)


def as_queued(pod: Mapping[str, Any], kind: str = DEFAULT) -> dict[str, Any]:
    """A rank's pod as a check looks at it: the gang's object is what Kueue queues, where it knows the kind."""
    of = SPELLINGS[kind]
    made = of.as_made(pod)
    # A namespace's default queue of Kueue's takes in what it knows, also where the step's queue is another's.
    maker = {} if of.kind.integration is None else {QUEUED_BY: of.kind.integration}
    if not of.kind.in_kueue:
        maker[MADE_BY] = of.kind.word
    metadata = made["metadata"]
    return {**made, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **maker}}}


def manifest_arguments(manifest: Mapping[str, Any], spelling: Spelling, is_open: Callable[[str], bool]) -> list[str]:
    """The object as words of the launcher's command: `--manifest`, and a `--set` for each text that is `is_open`.

    Such a text holds something that the engine fills in. It travels as a word of its own, because what is filled in
    may be any text, and would not be valid inside JSON.
    """
    sets: list[str] = []
    closed = _extract_open_texts(manifest, "", is_open, sets)
    text = json.dumps(closed, indent=1, sort_keys=True, ensure_ascii=False)
    return [f"--manifest={spelling.literal(escape(text))}", *sets]


def _extract_open_texts(value: Any, place: str, is_open: Callable[[str], bool], sets: list[str]) -> Any:
    if isinstance(value, Mapping):
        return {
            key: _extract_open_texts(each, place + _step(key, bool(place)), is_open, sets)
            for key, each in value.items()
        }
    if isinstance(value, list):
        return [_extract_open_texts(each, f"{place}[{index}]", is_open, sets) for index, each in enumerate(value)]
    if isinstance(value, str) and is_open(value):
        sets.append(f"--set={place}={value}")
        return ""
    return value


def _step(key: str, inside: bool) -> str:
    plain = key.replace("-", "").replace("_", "").isalnum()
    return (f".{key}" if inside else key) if plain else f"['{key}']"


SHM = "/dev/shm"
DEFAULT_SECURITY = Security()
"""What a step that says nothing about security has: one value for all of them."""


def with_network(step: Step, site: Site) -> Step:
    """The step with what `gangs.network` of the site adds to a rank with GPUs. What the step says itself is meant."""
    preset = _preset(step, site)
    if preset is None:
        return step
    more: dict[str, Any] = {
        "env": {**preset.env, **step.env},
        "annotations": {**preset.annotations, **step.annotations},
        "shm": preset.shm if step.shm is None and SHM not in step.volumes else step.shm,
    }
    if preset.resources:
        own = step.kubernetes or Kubernetes()
        more["kubernetes"] = own.model_copy(update={"resources": {**preset.resources, **own.resources}})
    return step.model_copy(update=more)


def program_security(step: Step, site: Site) -> Security:
    """What the program of a rank may do: more than its helpers and the launcher, which use no network of this kind."""
    said, preset = step.security or DEFAULT_SECURITY, _preset(step, site)
    if preset is None or not preset.capabilities:
        return said
    added = dict.fromkeys((*preset.capabilities, *said.add_capabilities))
    return said.model_copy(update={"add_capabilities": tuple(added)})


def _preset(step: Step, site: Site) -> GangNetwork | None:
    devices = (step.gpu, step.mig, step.shared_gpu, step.device_claim)
    return site.gangs.network if step.gang is not None and any(each is not None for each in devices) else None
