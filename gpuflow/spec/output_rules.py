"""What must hold of a step's outputs: each is written to a path and kept at a place of its own, and that
place outlives the pod."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpuflow.errors import Finding
from gpuflow.spec.places import below, lost_with_pod, overlap, place_fault, plain
from gpuflow.spec.step import Step
from gpuflow.spec.step_rules import finding_at

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline

TO_LAST = "keep it in s3://…, gs://…, az://…, or below a volume of the step that lasts, such as a claim"


def output_faults(pipeline: Pipeline, step: Step, path: tuple[str | int, ...]) -> Iterator[Finding]:
    """Every finding about the outputs of one step."""
    at = partial(finding_at, pipeline)
    kept: dict[str, str] = {}
    for name, output in step.outputs.items():
        who, where = f'step "{path[1]}": the output {name}', (*path, "outputs", name, "uri")
        wrong = place_fault(pipeline, step, output.uri)
        if wrong is not None:
            yield at("GF350", f"{who} {wrong[0]}", where, hint=wrong[1])
        elif (lost := lost_with_pod(pipeline, step, output.uri)) is not None:
            yield at("GF350", f"{who} would be kept at {lost} and be lost with the pod", where, hint=TO_LAST)
        if isinstance(output.uri, str) and (other := kept.setdefault(output.uri.rstrip("/"), name)) != name:
            message = f'step "{path[1]}": the outputs {other} and {name} are kept at the same uri'
            yield at("GF147", message, where, hint="give each a place of its own")
    for name, message, hint in _paths(step):
        where = (*path, "outputs", name, "path")
        yield at("GF147", f'step "{path[1]}": the output {name} {message}', where, hint=hint)


def _paths(step: Step) -> Iterator[tuple[str, str, str]]:
    """Outputs that the program cannot write without writing something else."""
    written: dict[str, str] = {}
    checkpoint = None if step.checkpoint is None else step.checkpoint.path
    for name, output in step.outputs.items():
        if output.path is None:
            continue
        if plain(output.path) == "/":
            yield name, "is at /, which is all of the container", "write it to a folder of its own, like /out/model"
            continue
        for other, its in written.items():
            outer = output if below(its, output.path) else step.outputs[other]
            nested = plain(output.path) != plain(its) and outer.type == "directory"
            # A report inside of the directory that is kept as a whole is kept twice, and both are what was meant.
            if not nested and (how := overlap(output.path, its)):
                hint = "give each a path of its own, like /out/model and /out/report"
                yield name, f"at {output.path} {how} the output {other}, {its}", hint
        written[name] = output.path
        # What lies below it is often the last checkpoint itself; the folder as a whole holds files of ours too.
        if checkpoint is not None and below(checkpoint, output.path) and (how := overlap(output.path, checkpoint)):
            hint = f"write the output to a folder of its own, or inside, like {posixpath.join(checkpoint, 'final')}"
            yield name, f"at {output.path} {how} the folder of the checkpoints, {checkpoint}", hint
