"""Pipeline + site, resolved: every step once, by its full name, with its defaults, its needs and its place.

Demand, notes, refusals and targets walk a plan instead of the document, so that none of them asks again what a step
inherits, in which section it stands, what is inside it, or what gpuflow's supervisor does for it.

A step is supervised when it has a checkpoint, outputs, inputs, or retry budgets that the engine cannot keep: those
with a place where the supervisor counts them, or where it repeats the command inside the pod. The ranks of a gang
always are: their supervisors agree on how it ended.

Another attempt is a new pod of the engine, or the command again inside the pod (`Restarts`). Argo and Airflow choose by
what ended an attempt, so the supervisor counts where it can and leaves the rest to them. Kubeflow cannot choose. Where
the site says that its installation starts a pod again whatever ended it, the supervisor splits that one number into the
two budgets. Elsewhere nobody knows which ends an installation repeats: the supervisor then repeats failures itself, and
only interruptions are left to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from gpuflow.core.errors import Where
from gpuflow.graph import Unknown
from gpuflow.site import Site
from gpuflow.spec.fan_out import Range
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Retry
from gpuflow.spec.references import called_pipeline, upstream
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, ParamRef

Kind = Literal["container", "pipeline", "approval"]
Section = Literal["steps", "exit"]
SECTIONS: tuple[Section, ...] = ("steps", "exit")
Restarts = Literal["by cause", "always", "unknown", "left alone"]
"""by cause: the engine asks what ended an attempt. always: it starts a pod again whatever that was. unknown: what it
repeats depends on its installation. left alone: the same, and no supervisor can stand in front of the command."""
MAX_INT32 = 2**31 - 1
"""The largest number of retries and of seconds that Kubernetes and Argo keep."""


@dataclass(frozen=True, slots=True)
class Supervision:
    """What gpuflow-run does for a step on a site, where the engine starts pods again in one way."""

    has_place: bool
    """Whether there is a place that outlives the pod, in which the supervisor can count."""
    counts_budgets: bool
    """Whether it keeps the step's retry budgets over all its pods. Those of a gang its launcher keeps."""
    repeats_inside: bool
    """Whether it starts a failed command again in the same pod."""
    is_supervised: bool
    """Whether the step's command runs under it."""
    keeps_state: bool
    """Whether attempts leave something behind that later attempts of the same step, and nobody else, must find."""
    pods_again: int
    """How many more pods of the step the engine is asked to start."""


def supervision_of(step: Step, site: Site, restarts: Restarts = "by cause") -> Supervision:
    """What the supervisor does for a step."""
    place = step.checkpoint is not None or site.runtime.state is not None
    # Whether it is in the container, or can be put there without a change of the image.
    possible = site.runtime.delivery == "config-map" or step.checkpoint is not None or bool(step.outputs)
    possible = possible or fetches(step)
    counts = place and _counts_budgets(step, restarts, possible)
    repeats = _repeats_inside(step, restarts, possible or counts)
    return Supervision(
        place,
        counts,
        repeats,
        _is_supervised(step, counts or repeats),
        step.checkpoint is not None or step.gang is not None or counts,
        _pods_again(step, restarts, place, counts or repeats),
    )


def _counts_budgets(step: Step, restarts: Restarts, possible: bool) -> bool:
    retry = step.retry
    if retry is None or restarts == "left alone" or not retry.attempts or step.gang is not None or writes_xcom(step):
        return False
    if restarts == "by cause" or not possible:
        return retry.interruptions > 0
    # A number for everything is what the engine counts itself, unless some exit codes are final.
    return restarts == "unknown" or retry.any is None or names_exit_codes(retry)


def _repeats_inside(step: Step, restarts: Restarts, possible: bool) -> bool:
    retry = step.retry
    return restarts == "unknown" and step.gang is None and retry is not None and retry.after_failures > 0 and possible


def _is_supervised(step: Step, for_its_budgets: bool) -> bool:
    if step.gang is not None or writes_xcom(step):
        return step.gang is not None
    return step.checkpoint is not None or bool(step.outputs) or fetches(step) or for_its_budgets


def _pods_again(step: Step, restarts: Restarts, place: bool, kept_by_supervisor: bool) -> int:
    if step.retry is None:
        return 0
    if restarts != "unknown" or not kept_by_supervisor:
        return min(MAX_INT32, step.retry.attempts)
    # Without a place each new pod would begin to count anew: all that the engine repeats would be multiplied.
    return min(MAX_INT32, step.retry.after_interruptions) if place else 0


def writes_xcom(step: Step) -> bool:
    """Whether the program writes its outputs as Airflow reads them, so that nobody else in the container need be."""
    return step.outputs_from == "xcom" and bool(step.outputs)


def fetches(step: Step) -> bool:
    """Whether the supervisor brings something before the command starts."""
    return bool(step.inputs) and any(given.is_fetched for given in step.inputs.values())


def names_exit_codes(retry: Retry) -> bool:
    """Whether some exit codes end the step at once."""
    return bool(retry.final_exit_codes) or retry.retryable_exit_codes is not None


@dataclass(frozen=True, eq=False)
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
    site: Site
    """As the step sees it."""
    restarts: Restarts = "by cause"
    """How the engine starts it again."""

    @cached_property
    def supervision(self) -> Supervision:
        """What gpuflow's supervisor does for it."""
        return supervision_of(self.step, self.site, self.restarts)

    @property
    def own_needs(self) -> tuple[str, ...]:
        """What it waits for, as its own pipeline names it."""
        return tuple(need.rpartition(".")[2] for need in self.needs) if self.parent else self.needs

    def with_fields(self, **fields: Any) -> PlannedStep:
        """As if the step said so."""
        return replace(self, step=self.step.model_copy(update=fields))

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
    restarts: Restarts = "by cause"

    def under(self, restarts: Restarts) -> Plan:
        """The same steps where the engine starts them again in another way; nothing of them is resolved anew."""
        if restarts == self.restarts:
            return self
        kept: dict[Restarts, Plan] = self.__dict__.setdefault("_under", {})
        if restarts not in kept:
            kept[restarts] = Plan(self.pipeline, self.site, _steps_under(self, restarts), restarts)
        return kept[restarts]

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

    @cached_property
    def with_state(self) -> frozenset[str]:
        """The steps that are pipelines in which a step keeps state."""
        found: set[str] = set()
        for each in self.containers:
            above = each.parent
            while above is not None and above.name not in found and each.supervision.keeps_state:
                found.add(above.name)
                above = above.parent
        return frozenset(found)

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
        return Plan(pipeline, self.site, tuple(steps), self.restarts)

    def where(self, name: str) -> Where:
        """Where a step is written, by its full name; one of a sub-pipeline is found where that is called."""
        return self.by_name[name.partition(".")[0]].where()


def plan_of(pipeline: Pipeline, site: Site) -> Plan:
    """The plan of a pipeline on a site."""
    return Plan(pipeline, site, tuple(_steps(pipeline, pipeline, site, None)))


def planned_step(pipeline: Pipeline, name: str, site: Site, restarts: Restarts = "by cause") -> PlannedStep:
    """One step alone: what it waits for and how many of it there are, nobody asks."""
    section: Section = "steps" if name in pipeline.steps else "exit"
    return PlannedStep(name, name, pipeline.effective(name), pipeline, section, None, (), 1, site, restarts)


def _steps_under(plan: Plan, restarts: Restarts) -> tuple[PlannedStep, ...]:
    """Copies of a sub-pipeline do not know their item where the engine starts pods without asking why, and a place that
    is that of all of them is none."""
    bare, made = plan.site, dict[str, PlannedStep]()
    if plan.site.runtime.state is not None and restarts != "by cause":
        bare = plan.site.model_copy(update={"runtime": plan.site.runtime.model_copy(update={"state": None})})
    looped: set[str] = set()
    for each in plan.steps:  # a parent stands before what is inside it
        parent = None if each.parent is None else made[each.parent.name]
        if parent is not None and (parent.name in looped or parent.step.for_each):
            looped.add(each.name)
        site = bare if each.name in looped else plan.site
        made[each.name] = replace(each, parent=parent, site=site, restarts=restarts)
    return tuple(made.values())


def _steps(pipeline: Pipeline, with_values: Pipeline, site: Site, parent: PlannedStep | None) -> Iterator[PlannedStep]:
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
                site,
            )
            yield planned
            if step.pipeline is not None:
                yield from _steps(step.pipeline, called_pipeline(with_values, step), site, planned)


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
