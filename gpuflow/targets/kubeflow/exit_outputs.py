"""Outputs that exit steps read.

KFP hands an exit task the output of a step that ended well. Of any other step there is none: the driver of the exit
task fails, and the exit step never starts. So the group of all steps hands out the first of two values that is there:
the step's own, or its default, which a small container writes. The container runs before the first step, not beside
it, because Argo starts nothing more in a group once a step of it has failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuflow.site import Site
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef
from gpuflow.targets.kubeflow.names import channel_name
from gpuflow.targets.kubeflow.own_steps import free_name, own_step

NAME = "exit-defaults"
"""The step that writes the defaults."""
PROGRAM = """
import os, sys
half = len(sys.argv) // 2 + 1
for text, place in zip(sys.argv[1:half], sys.argv[half:]):
    os.makedirs(os.path.dirname(place), exist_ok=True)
    with open(place, "w", encoding="utf-8") as file:
        file.write(text)
"""
"""Takes all texts, then the place of each."""


def exit_reads(pipeline: Pipeline) -> Iterator[tuple[str, tuple[str | int, ...], OutputRef]]:
    """Each output of a step that an exit step reads: the exit step, the place in it, and the output."""
    for name in pipeline.exit:
        for path, ref in pipeline.effective(name).references():
            if isinstance(ref, OutputRef) and ref.step in pipeline.steps:
                yield name, path, ref


def has_one_end(step: Step) -> bool:
    """Whether KFP always records how the step ended: not of a group of tasks, whose last word may be nobody's."""
    return step.runs_container and step.when is None and not step.for_each


def defaults_of(pipeline: Pipeline) -> dict[OutputRef, str]:
    """The outputs that exit steps read and that have a default to fall back on, each with that default."""
    steps = {ref.step: pipeline.effective(ref.step) for _, _, ref in exit_reads(pipeline)}
    refs = sorted({ref for _, _, ref in exit_reads(pipeline) if has_one_end(steps[ref.step])}, key=channel_name)
    return {ref: text_of(steps[ref.step].outputs[ref.name].default) for ref in refs}


def defaults_step(pipeline: Pipeline) -> str | None:
    """The step that writes the defaults, if the pipeline was given one."""
    return next((name for name, step in pipeline.steps.items() if PROGRAM in step.command), None)


def added_defaults(pipeline: Pipeline, site: Site) -> dict[str, Step]:
    """The step that writes the defaults, where one is needed and the site has an image for it."""
    texts = defaults_of(pipeline)
    if not texts or site.images.alerts is None:
        return {}
    says = "Writes what exit steps read where a step did not end well"
    return {free_name(NAME, pipeline): own_step(site, says, PROGRAM, *texts.values())}


def started_after(first: Mapping[str, Step], steps: Mapping[str, Step]) -> dict[str, Step]:
    """The steps, those that wait for nothing told to wait for `first`."""
    return {
        name: step
        if step.needs or any(isinstance(ref, OutputRef) for _, ref in step.references())
        else step.model_copy(update={"needs": tuple(first)})
        for name, step in steps.items()
    }
