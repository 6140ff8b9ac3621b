"""The inputs of a step in its pod: where they lie, what the supervisor is told, and the room they take."""

from __future__ import annotations

import math
import posixpath
from collections.abc import Iterator
from typing import Any

from gpuflow.pod.spelling import Spelling, spelled
from gpuflow.pod.volumes import Volumes
from gpuflow.quantity import Quantity
from gpuflow.spec.fan_out import written_sizes
from gpuflow.spec.input_rules import is_file
from gpuflow.spec.inputs import Input
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.places import below, volume_above
from gpuflow.spec.step import Step
from gpuflow.spec.types import declared_output
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
    """What inputs and outputs take of the node's disk, as far as their sizes are said."""
    found = [*_input_sizes(pipeline, step), *_output_sizes(step)]
    return sum(found[1:], found[0]) if found else None


def _input_sizes(pipeline: Pipeline, step: Step) -> Iterator[Quantity]:
    for mount, given in step.inputs.items():
        above = volume_above(step, mount)
        if not given.is_fetched or (above is not None and not _on_node(above[1])):
            continue
        size, times = given.size, 1
        declared = declared_output(pipeline, given.output) if given.output is not None else None
        if size is None and declared is not None:
            size, times = declared[0].size, _copies(declared[1])
        if size is not None:
            yield size * times


def _output_sizes(step: Step) -> Iterator[Quantity]:
    for output in step.outputs.values():
        above = volume_above(step, output.path) if output.path is not None else None
        if output.size is not None and (above is None or _on_node(above[1])):
            yield output.size


def _copies(loops: tuple[Step, ...]) -> int:
    """How many items a fan-in has, where the document says so; one, where only the run does."""
    return math.prod(size for step in loops for size in written_sizes(step.for_each or {}))


def _on_node(volume: Volume) -> bool:
    return volume.empty_dir is not None
