"""Pipeline + site, resolved: every step once, by its full name, with its defaults, its needs and its place.

Demand, notes, refusals and targets walk a plan instead of the document, so that none of them asks again what a step
inherits, in which section it stands, or what is inside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from gpuflow.core.errors import Where
from gpuflow.graph import Unknown
from gpuflow.site import Site
from gpuflow.spec.fan_out import Range
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import called_pipeline, upstream
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, ParamRef

Kind = Literal["container", "pipeline", "approval"]
Section = Literal["steps", "exit"]
SECTIONS: tuple[Section, ...] = ("steps", "exit")


@dataclass(frozen=True, eq=False, slots=True)
class PlannedStep:
    """One step in its place."""

    name: str
    """Its full name: `train`, or `tune.train` inside the sub-pipeline of `tune`."""
    own_name: str
    """Its name in its own pipeline."""
    step: Step
    """With the defaults of its pipeline filled in."""
    pipeline: Pipeline
    section: Section
    parent: PlannedStep | None
    """The step whose sub-pipeline it stands in."""
    needs: tuple[str, ...]
    """The full names of the steps it waits for."""
    copies: int | Unknown
    """How many of it its own fan-out makes."""

    @property
    def kind(self) -> Kind:
        """What the step is: a pod, a pipeline of its own, or a question to a person."""
        return "container" if self.step.runs_container else "approval" if self.step.approval else "pipeline"

    @property
    def copies_in_run(self) -> int | None:
        """How many of it a run makes, with the fan-outs around it; None when only the run will tell."""
        around = 1 if self.parent is None else self.parent.copies_in_run
        return None if around is None or isinstance(self.copies, Unknown) else around * self.copies

    def where(self, *path: str | int) -> Where:
        """The place of the step, or of a part of it, in the document that it was written in."""
        return self.pipeline.where(self.section, self.own_name, *path, key=not path)


@dataclass(frozen=True, eq=False)
class Plan:
    """A pipeline on a site."""

    pipeline: Pipeline
    site: Site
    steps: tuple[PlannedStep, ...]
    """In document order, the steps of a sub-pipeline right after the step that it is."""

    @cached_property
    def by_name(self) -> Mapping[str, PlannedStep]:
        return {each.name: each for each in self.steps}

    @cached_property
    def steps_by_parent(self) -> Mapping[str, tuple[PlannedStep, ...]]:
        """The steps of each sub-pipeline, by the name of the step that it is; under "" those of the pipeline itself."""
        found: dict[str, list[PlannedStep]] = {}
        for each in self.steps:
            found.setdefault("" if each.parent is None else each.parent.name, []).append(each)
        return {name: tuple(steps) for name, steps in found.items()}

    @property
    def pipelines(self) -> Iterator[tuple[Pipeline, tuple[PlannedStep, ...]]]:
        """Each pipeline with its own steps, from the outside in."""
        return ((steps[0].pipeline, steps) for steps in self.steps_by_parent.values())

    @property
    def containers(self) -> Iterator[PlannedStep]:
        """The steps that run a pod."""
        return (each for each in self.steps if each.step.runs_container)

    def with_parallel(self, parallel: int) -> Plan:
        """As if the pipeline said so: nothing of a step depends on it."""
        pipeline = self.pipeline.model_copy(update={"parallel": parallel})
        steps = (each if each.parent else replace(each, pipeline=pipeline) for each in self.steps)
        return Plan(pipeline, self.site, tuple(steps))

    def where(self, name: str) -> Where:
        """Where a step is written, by its full name; one of a sub-pipeline is found where that is called."""
        return self.by_name[name.partition(".")[0]].where()


def plan_of(pipeline: Pipeline, site: Site) -> Plan:
    """The plan of a pipeline on a site."""
    return Plan(pipeline, site, tuple(_steps(pipeline, pipeline, None)))


def _steps(pipeline: Pipeline, with_values: Pipeline, parent: PlannedStep | None) -> Iterator[PlannedStep]:
    """`with_values`: the same pipeline, its parameters being what the step around it hands over."""
    prefix = "" if parent is None else f"{parent.name}."
    needs = upstream(pipeline)
    for section in SECTIONS:
        for own_name in getattr(pipeline, section):
            step, name = pipeline.effective(own_name), prefix + own_name
            before = needs.get(own_name, ())
            planned = PlannedStep(
                name,
                own_name,
                step,
                pipeline,
                section,
                parent,
                tuple(prefix + need for need in before) if prefix else before,
                _copies(with_values, step, name) if step.for_each else 1,
            )
            yield planned
            if step.pipeline is not None:
                yield from _steps(step.pipeline, called_pipeline(with_values, step), planned)


def _copies(pipeline: Pipeline, step: Step, name: str) -> int | Unknown:
    """How many copies a fan-out makes: the product of its lists."""
    total = 1
    for source in (step.for_each or {}).values():
        if isinstance(source, Range):
            total *= len(source.items)
        elif isinstance(source, OutputRef):
            return Unknown(f"{name} runs over {source.step}.{source.name}, which only the run will tell")
        elif isinstance(source, ParamRef):
            default = pipeline.params[source.name].default
            if not isinstance(default, list):
                return Unknown(f'{name} runs over the parameter "{source.name}", whose value is only known in the run')
            total *= len(default)
        else:
            total *= len(source)
    return total
