"""Whether the files that a step reads and writes fit into their volumes, as far as their sizes are known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from gpuflow.core.errors import Finding, Problem, rule
from gpuflow.quantity import Quantity
from gpuflow.spec.fan_out import written_sizes
from gpuflow.spec.rules.step_rules import finding_at
from gpuflow.spec.step import Pipeline, Step, leader_step
from gpuflow.spec.storage_paths import is_below, volume_above
from gpuflow.spec.volumes import VOLUME_SOURCES, Input, Volume


def input_size(pipeline: Pipeline, step: Step, given: Input) -> Quantity | None:
    """The size of an input: its own, or that of the output that it is, for each item of a fan-out."""
    if given.size is not None:
        return given.size
    if given.output is None:
        return pipeline.size_behind(step, given.uri)
    found = pipeline.declared_output(given.output)
    if found is None or found[0].size is None:
        return None
    # The items of a fan-in, where the document says how many; one, where only the run does.
    return found[0].size * math.prod(size for loop in found[1] for size in written_sizes(loop.for_each or {}))


SHM = "/dev/shm"
IN_MEMORY = ("memory", "shm")
"""What is written there is memory of the container."""
ON_NODE = ("empty_dir", "checkpoint")
"""What is written there is on the node's disk, as is everything outside of volumes."""
CLAIMS = ("new_claim", "ephemeral")
"""A claim gets at least what it asks for. Some storage gives more, or does not count."""


class Holder(NamedTuple):
    """The volume that a file lies in."""

    kind: str
    """The word of the spec that makes it."""
    mount: str
    limit: Quantity | None
    """The most that it holds, where the documents say so."""
    claim: str | None = None
    """The claim that it is, of the run or an existing one: one volume, wherever it is mounted."""


class File(NamedTuple):
    """An input or an output whose size is known."""

    what: str
    size: Quantity
    holder: Holder | None
    """None: the node's disk."""

    @property
    def is_on_node(self) -> bool:
        return self.holder is None or self.holder.kind in ON_NODE


def sized_files(pipeline: Pipeline, step: Step) -> Iterator[File]:
    """The files that are put into the step's pod, as far as their sizes are known."""
    for mount, given in step.inputs.items():
        size = input_size(pipeline, step, given) if given.is_fetched else None
        if size is not None:
            above = volume_above(step, mount)  # without one it gets scratch space that has no limit
            yield File(f"the input {mount}", size, None if above is None else _holder_of(pipeline, *above))
    for name, output in step.outputs.items():
        if output.size is not None:
            holder = None if output.path is None else _output_volume(pipeline, step, output.path)
            yield File(f"the output {name}", output.size, holder)


def room_faults(pipeline: Pipeline, step: Step, path: tuple[str | int, ...]) -> Iterator[Finding]:
    """Files that are larger than the limit of their volume, or than the memory of the step if they lie in memory."""
    if not (step.inputs or step.outputs):
        return
    workers = list(_room_problems(pipeline, step, path))
    leaders = [each for each in _room_problems(pipeline, leader_step(step), path) if each not in workers]
    for who, found in ((f'step "{path[1]}"', workers), (f'step "{path[1]}": the leader', leaders)):
        yield from (finding_at(pipeline, code, f"{who}: {text}", place, hint) for code, text, place, hint in found)


@rule("GF360")
def tight_claims(pipeline: Pipeline) -> Iterator[Problem | Finding]:
    """A warning for each claim that asks for less than what a step puts into it, the sub-pipelines included."""
    for section in ("steps", "exit"):
        for name in getattr(pipeline, section):
            step = pipeline.effective(name)
            if step.pipeline is not None:
                yield from tight_claims(step.pipeline)
                continue
            for holder, files in _by_volume(pipeline, step).items():
                taken = _sum(files)
                if holder.kind in CLAIMS and holder.limit is not None and taken > holder.limit:
                    what = f'the claim "{holder.claim}"' if holder.claim else f"the claim at {holder.mount}"
                    text = f'step "{name}": {what} asks for {holder.limit}, and {_what_takes(files)} {taken}'
                    where = pipeline.where(*_limit(pipeline, (section, name), holder))
                    yield Problem(text, where, f"raise its size to {taken} or more")


def put_into_claims(pipeline: Pipeline, step: Step) -> dict[str, Quantity]:
    """What a step puts into existing claims, by their names. Only a cluster knows how much they hold."""
    found = _by_volume(pipeline, step).items() if step.inputs or step.outputs else ()
    return {holder.claim: _sum(files) for holder, files in found if holder.kind == "claim" and holder.claim}


def _room_problems(
    pipeline: Pipeline, step: Step, path: tuple[str | int, ...]
) -> Iterator[tuple[str, str, tuple[str | int, ...], str]]:
    in_memory: list[File] = []
    is_said = False
    for holder, files in _by_volume(pipeline, step).items():
        taken = _sum(files)
        if holder.kind in IN_MEMORY:
            in_memory += files
        if holder.kind in CLAIMS or holder.limit is None or taken <= holder.limit:
            continue
        text = f"{_what_takes(files)} {taken}, and the volume at {holder.mount} holds {holder.limit}"
        word = {"checkpoint": "checkpoint.scratch", "shm": "shm"}.get(holder.kind, f"{holder.kind} of the volume")
        hint = f"raise {word} to {taken} or more, or put files elsewhere"
        if holder.kind in IN_MEMORY:
            is_said = True
            hint += "; what lies in memory counts toward the memory of the step, so that needs as much more"
        yield "GF359", text, _limit(pipeline, path, holder), hint
    most = _most_memory(step)
    if in_memory and not is_said and most is not None and (taken := _sum(in_memory)) > most:
        text = f"{_what_takes(in_memory)} {taken} of memory, and the limit of memory is {most}"
        hint = f"raise memory above {taken}, or put files on disk: empty_dir instead of memory"
        yield "GF359", text, _memory_limit(pipeline, step, path), hint


def _by_volume(pipeline: Pipeline, step: Step) -> dict[Holder, list[File]]:
    """The files of each volume. A claim that is mounted twice is one, the first mount of which is named."""
    found: dict[tuple[str, str], tuple[Holder, list[File]]] = {}
    for file in sized_files(pipeline, step):
        if file.holder is not None:
            one = (file.holder.kind, file.holder.claim or file.holder.mount)
            found.setdefault(one, (file.holder, []))[1].append(file)
    return dict(found.values())


def _output_volume(pipeline: Pipeline, step: Step, path: str) -> Holder | None:
    """The volume that an output is written to: also the shared memory, and the scratch space of checkpoints."""
    found = [_holder_of(pipeline, mount, volume) for mount, volume in step.volumes.items()]
    if step.shm is not None:
        found.append(Holder("shm", SHM, step.shm))
    checkpoint = step.checkpoint
    if checkpoint is not None and volume_above(step, checkpoint.path) is None:
        found.append(Holder("checkpoint", checkpoint.path, checkpoint.scratch))
    inside = [holder for holder in found if is_below(path, holder.mount)]
    return max(inside, key=lambda holder: len(holder.mount), default=None)


def _holder_of(pipeline: Pipeline, mount: str, volume: Volume) -> Holder:
    kind = next(source for source in VOLUME_SOURCES if getattr(volume, source) is not None)
    if kind == "new_claim":
        claim = pipeline.claims.get(str(volume.new_claim))
        return Holder(kind, mount, None if claim is None else claim.size, volume.new_claim)
    if volume.ephemeral is not None:
        return Holder(kind, mount, volume.ephemeral.size)
    if volume.claim is not None:
        return Holder(kind, mount, None, volume.claim)
    return Holder(kind, mount, volume.empty_dir if volume.empty_dir is not None else volume.memory)


def _limit(pipeline: Pipeline, path: tuple[str | int, ...], holder: Holder) -> tuple[str | int, ...]:
    """The place in the document where a volume gets its limit."""
    own = getattr(pipeline, str(path[0]))[path[1]]
    if holder.kind == "new_claim" and holder.claim is not None:
        return ("claims", holder.claim, "size")
    if holder.kind in ("shm", "checkpoint"):
        base = path if getattr(own, holder.kind) is not None else ("defaults",)
        return (*base, holder.kind, "scratch") if holder.kind == "checkpoint" else (*base, holder.kind)
    base = path if holder.mount in own.volumes else ("defaults",)
    inside = (holder.kind, "size") if holder.kind == "ephemeral" else (holder.kind,)
    return (*base, "volumes", holder.mount, *inside)


def _memory_limit(pipeline: Pipeline, step: Step, path: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The place in the document where the step, or the leader of its gang, gets its limit of memory."""
    own = getattr(pipeline, str(path[0]))[path[1]]
    leader = step.gang.leader if step.gang is not None else None
    if leader is not None and leader.memory is not None and step.memory is leader.memory:
        return (*path, "gang", "leader", "memory")
    return (*path, "memory") if own.memory is not None else ("defaults", "memory")


def _most_memory(step: Step) -> Quantity | None:
    """The limit of memory, that of the last attempt where attempts get more; None: no limit."""
    limit = step.memory.limit if step.memory is not None else None
    more = step.retry.more_memory if step.retry is not None else None
    return limit if limit is None or more is None else max(limit, more.max)


def _sum(files: list[File]) -> Quantity:
    return sum((file.size for file in files[1:]), files[0].size)


def _what_takes(files: list[File]) -> str:
    """`the input /in takes`, `the input /in (2Gi) and the output model (4Gi) take`."""
    if len(files) == 1:
        return f"{files[0].what} takes"
    names = [f"{file.what} ({file.size})" for file in files]
    return f"{', '.join(names[:-1])} and {names[-1]} take"
