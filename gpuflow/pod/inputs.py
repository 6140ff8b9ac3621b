"""The inputs of a step in its pod: where they lie, what the supervisor is told, and the room they take."""

from __future__ import annotations

import posixpath
from typing import Any

from gpuflow.pod.spelling import Spelling, spelled
from gpuflow.pod.volumes import Volumes
from gpuflow.quantity import Quantity
from gpuflow.spec.input_rules import is_file
from gpuflow.spec.inputs import Input
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.places import below, volume_above
from gpuflow.spec.step import Step
from gpuflow.spec.volume_room import sized_files
from gpuflow.spec.volumes import Volume


def fetches(step: Step) -> bool:
    """Whether the supervisor brings something before the command starts."""
    return bool(step.inputs) and any(given.is_fetched for given in step.inputs.values())


def keeps_artifacts(step: Step) -> bool:
    """Whether the supervisor keeps files or directories after the command has ended."""
    return any(output.is_artifact for output in step.outputs.values())


def input_mounts(pipeline: Pipeline, step: Step, volumes: Volumes) -> list[dict[str, Any]]:
    """A mount for each input: the claim that has it, or scratch space, unless a volume of the step holds its path.

    A directory gets scratch space at its path. A file cannot be mounted before it is there, so its folder gets it.
    """
    mounts = [
        volumes.mount(mount, Volume(claim=given.claim, sub_path=given.path, read_only=True))
        for mount, given in step.inputs.items()
        if given.claim is not None
    ]
    return mounts + [volumes.scratch(folder) for folder in scratch_folders(pipeline, step)]


def scratch_folders(pipeline: Pipeline, step: Step) -> list[str]:
    """The folders on the node's disk that inputs are brought to."""
    folders: list[str] = []
    for mount, given in step.inputs.items():
        if given.is_fetched and volume_above(step, mount) is None:
            path = mount.rstrip("/")
            folders.append(posixpath.dirname(path) if is_file(pipeline, given) else path)
    outermost = [one for one in folders if not any(one != other and below(one, other) for other in folders)]
    return list(dict.fromkeys(outermost))


def input_options(step: Step, spelling: Spelling) -> dict[str, Any]:
    """What the supervisor is told about the inputs that it brings."""
    fetched = {mount.rstrip("/"): given for mount, given in step.inputs.items() if given.is_fetched}
    paths = {mount: spelled(mount, spelling) for mount in fetched}
    options = {
        "input": [f"{paths[mount]}={_source(given, spelling)}" for mount, given in fetched.items()],
        "input-type": [f"{paths[mount]}={given.type}" for mount, given in fetched.items() if given.type],
        "input-digest": [f"{paths[mount]}={given.digest}" for mount, given in fetched.items() if given.digest],
    }
    return {key: value for key, value in options.items() if value}


def _source(given: Input, spelling: Spelling) -> str:
    return spelled(given.uri, spelling) if given.output is None else spelling.reference(given.output)


def room_on_node(pipeline: Pipeline, step: Step) -> Quantity | None:
    """What inputs and outputs take of the node's disk, as far as their sizes are known."""
    found = [file.size for file in sized_files(pipeline, step) if file.is_on_node]
    return sum(found[1:], found[0]) if found else None
