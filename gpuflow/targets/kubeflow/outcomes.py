"""When an exit step with `on` starts.

KFP tells an exit task how the steps ended: the state of their group in ML Metadata. The group's state is written by the
launcher of each step, so a group has none where the last word was not a launcher's: a pod that was deleted or timed
out, a driver that failed, and also, in a good run, a step that was skipped or came from the cache. Then the state is
still RUNNING.

Where every task of the group has a launcher, RUNNING can only mean that one of them did not come to its end. Where not,
a small container asks Argo's Workflow, which knows how the group ended, and the exit steps wait for its answer.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from gpuflow.errors import Finding
from gpuflow.plan import Plan
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, RunRef
from gpuflow.targets.kubeflow.names import StatusRef, input_name
from gpuflow.targets.kubeflow.own_steps import free_name, own_step

OUTCOMES = ("failure", "success")
"""The values of `on` that ask how the run ended, and what the container that asks Argo answers."""
NAME, ANSWER = "run-outcome", "outcome"
"""The exit step that asks Argo, and its output."""
_GOOD = ("SUCCEEDED", "COMPLETE")
"""KFP's own word for success, and that of a backend with ML Metadata."""


def asks_outcome(step: Step) -> bool:
    """Whether an exit step is for one outcome only."""
    return step.on in OUTCOMES


def outcome_channel(pipeline: Pipeline) -> StatusRef | OutputRef:
    """What tells an exit step how the run ended: KFP's final status, or the answer of the container that asks Argo."""
    asking = asking_step(pipeline)
    return StatusRef() if asking is None else OutputRef(asking, ANSWER)


def condition_on(pipeline: Pipeline, step: Step) -> str:
    """The condition in CEL under which an exit step with `on` starts; the driver decides it, before there is a pod."""
    channel = outcome_channel(pipeline)
    value = f"inputs.parameter_values['{input_name(channel)}']"
    if isinstance(channel, OutputRef):
        return f"{value} == '{step.on}'"
    good = f"{value}.state in [{', '.join(map(repr, _GOOD))}]"
    if step.on == "success":
        return good
    return f"{value}.state == 'FAILED'" if may_stay_open(pipeline) else f"!({good})"


def may_stay_open(pipeline: Pipeline) -> bool:
    """Whether a good run may leave the state RUNNING: not where each task of the group is a plain step's container."""
    return any(
        step.cache or not step.runs_container or step.when is not None or step.for_each
        for step in (pipeline.effective(name) for name in pipeline.steps)
    )


def asking_step(pipeline: Pipeline) -> str | None:
    """The exit step that asks Argo, if the pipeline was given one."""
    return next((name for name, step in pipeline.exit.items() if _program() in step.command), None)


def added_step(pipeline: Pipeline, site: Site) -> dict[str, Step]:
    """The exit step that asks Argo, where one is needed and the site has an image for it."""
    needed = any(map(asks_outcome, pipeline.exit.values())) and may_stay_open(pipeline)
    if not needed or site.images.alerts is None:
        return {}
    step = own_step(site, "Asks Argo how the steps ended", _program(), RunRef("name"))
    return {free_name(NAME, pipeline): step}


@cache
def _program() -> str:
    return (resources.files("gpuflow.targets.kubeflow") / "ask_argo.py").read_text(encoding="utf-8")


def unsure_ends(plan: Plan) -> list[Finding]:
    """Exit steps that may not start although the run ended as they ask, because KFP has no record of its end."""
    pipeline = plan.pipeline
    names = [name for name, step in pipeline.exit.items() if asks_outcome(step)]
    if not names or not may_stay_open(pipeline) or plan.site.images.alerts is not None:
        return []
    shown = ", ".join(f'"{name}"' for name in names)
    return [
        Finding(
            "GF325",
            f"exit {shown}: KFP has no record of how a run ended whose last word was a pod that was deleted or timed "
            "out, or a step that was skipped or cached; then neither on: failure nor on: success starts",
            pipeline.where("exit", names[0], "on"),
            "set images.alerts in the site to an image with Python, and a small container asks Argo; or leave on out "
            "and decide in the step",
            "warning",
        )
    ]
