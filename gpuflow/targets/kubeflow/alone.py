"""A step on its own, for hand-written pipelines: what it refers to becomes an input of its component."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuflow.errors import Finding, GpuflowError, fail
from gpuflow.plan import plan_of
from gpuflow.pod import pod_for
from gpuflow.pod.restarts import Restarts
from gpuflow.pod.supervision import active_deadline, keeps_state
from gpuflow.site import Site
from gpuflow.spec.building import caller
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import RunRef
from gpuflow.targets.keywords import keywords_of, refuse_flow, refuse_nothing
from gpuflow.targets.kubeflow.build import ENGINE
from gpuflow.targets.kubeflow.caching import cached_settings
from gpuflow.targets.kubeflow.capabilities import capabilities_at
from gpuflow.targets.kubeflow.container import container_spec
from gpuflow.targets.kubeflow.facts import FACTS
from gpuflow.targets.kubeflow.handover import handover
from gpuflow.targets.kubeflow.names import NODE_NAME, RUN_FACTS, Channel
from gpuflow.targets.kubeflow.pods import executor_config
from gpuflow.targets.kubeflow.refusals import partial_losses
from gpuflow.targets.kubeflow.retries import restarts_at, retry_policy
from gpuflow.targets.kubeflow.retry_notes import retry_notes
from gpuflow.targets.kubeflow.text import KubeflowSpelling
from gpuflow.targets.losses import construct_losses, weaknesses

SETTINGS = "pipeline_cache_settings"
"""The input whose value changes with what KFP's cache does not look at."""
FLOW = {
    "for_each": "dsl.ParallelFor",
    "when": "dsl.If",
    "needs": "task.after",
    "pipeline": "a pipeline of its own",
    "approval": "two pipelines",
    "on": "dsl.ExitHandler",
    "service_account": "service_account= of the call that starts the run",
}
"""What decides how steps hang together, and who decides it in a hand-written pipeline."""


@dataclass(frozen=True, slots=True)
class Alone:
    """A step's container and config, the arguments it takes, and the inputs that KFP itself gives a value."""

    name: str
    step: Step
    container: Any
    config: Any
    arguments: tuple[str, ...]
    known: dict[str, str]
    policy: Any
    """The task's retry policy, if it has one."""
    weaker: tuple[Finding, ...] = ()
    """What is carried only in part."""


def alone(
    step: Step,
    site: Site,
    name: str,
    *,
    own_command: bool = True,
    judged: bool = False,
    labels: Mapping[str, str] | None = None,
) -> Alone:
    """The step as KFP's messages. Raises for what KFP cannot carry, and for flow, which is kfp's to write.

    `own_command`: whether the task runs the step's command. Else no supervisor can be put in front of it.
    `judged`: what KFP cannot carry was said already. `labels`: those of the pipeline that it comes from.
    """
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", name):
        raise fail(
            "GF131", f'"{name}" is not a step name that every engine accepts', hint="lower-case letters, digits and '-'"
        )
    refuse_nothing(step)
    refuse_flow(step, FLOW, "kubernetes.mount_pvc of kfp")
    if step.gang is not None:
        # Nothing would keep the gangs of two calls apart, or of two turns of a loop.
        hint = "write the pipeline in gpuflow and compile it, which does"
        raise fail("GF378", "a component of a hand-written pipeline looks after no gang", hint=hint)
    pipeline = Pipeline.model_construct(name=name, steps={name: step}, labels=dict(labels or {}))
    missing = [*construct_losses(pipeline, capabilities_at(site), FACTS.name), *partial_losses(plan_of(pipeline, site))]
    if missing and not judged:
        where = caller()
        raise GpuflowError(loss.refusal_by_hand(where) for loss in missing)
    inputs: dict[Channel, str] = dict(keywords_of(step))
    facts: dict[Channel, str] = {RunRef(field): f"pipeline_run_{field}" for field in RUN_FACTS}
    taken = sorted({*facts.values(), SETTINGS} & {*inputs.values()})
    if taken:
        raise fail("GF301", f'"{taken[0]}" is an input that KFP itself gives a value', hint="choose another name")
    names: dict[Channel, str] = {**inputs, **facts}
    if step.init_containers or step.sidecars:  # a table that carries them has not refused them
        raise fail(
            "GF301",
            "the installed kfp has no init containers and sidecars for hand-written pipelines",
            hint="write the pipeline in gpuflow and compile it, which does",
        )
    spelling = KubeflowSpelling(lambda channel: names[_plain(channel)])
    restarts: Restarts = restarts_at(site) if own_command else "left alone"
    # A component knows neither its calls nor the loops around them: Argo's name of the task keeps their state apart.
    task = NODE_NAME if keeps_state(step, site, restarts) else None
    pod = pod_for(pipeline, name, site, spelling, replace(ENGINE, task=task, restarts=restarts))
    container = container_spec(pod["spec"]["containers"][0], outputs=handover(step, alone=own_command))
    used = {_plain(channel) for channel in spelling.used}
    known = {facts[ref]: RUN_FACTS[ref.field] for ref in map(RunRef, RUN_FACTS) if ref in used}
    settings = cached_settings(step, pod)
    known |= {} if settings is None else {SETTINGS: settings}
    policy = retry_policy(step, site, restarts, active_deadline(step, site, restarts))
    weaker = tuple(_weaker(pipeline, site, restarts))
    return Alone(name, step, container, executor_config(pod, {}), tuple(inputs.values()), known, policy, weaker)


def _weaker(pipeline: Pipeline, site: Site, restarts: Restarts) -> Iterator[Finding]:
    yield from weaknesses(pipeline, capabilities_at(site))
    yield from retry_notes(plan_of(pipeline, site), restarts)


def _plain(channel: Channel) -> Channel:
    """A fact of the run without the time zone UTC, in which KFP gives it anyway."""
    return RunRef(channel.field) if isinstance(channel, RunRef) else channel
