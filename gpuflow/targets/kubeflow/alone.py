"""A step on its own, for hand-written pipelines: what it refers to becomes an input of its component."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from gpuflow.errors import GpuflowError, fail
from gpuflow.pod import pod_for
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import RunRef
from gpuflow.targets.frame import losses
from gpuflow.targets.keywords import keywords_of
from gpuflow.targets.kubeflow.build import ENGINE
from gpuflow.targets.kubeflow.capabilities import CAPABILITIES
from gpuflow.targets.kubeflow.container import container_spec
from gpuflow.targets.kubeflow.names import Channel
from gpuflow.targets.kubeflow.pods import executor_config, refuse_shared_names
from gpuflow.targets.kubeflow.refusals import omissions, refusals
from gpuflow.targets.kubeflow.text import KubeflowSpelling

RUN_ID_INPUT = "pipeline_run_id"
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
    """A step's container and config, and the inputs it takes: keyword by channel."""

    name: str
    step: Step
    container: Any
    config: Any
    inputs: dict[Channel, str]


def alone(step: Step, site: Site, name: str) -> Alone:
    """The step as KFP's messages. Raises for what KFP cannot carry, and for flow, which is kfp's to write."""
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,50}[a-z0-9])?", name):
        raise fail(
            "GF131", f'"{name}" is not a step name that every engine accepts', hint="lower-case letters, digits and '-'"
        )
    for field, instead in FLOW.items():
        if getattr(step, field):
            raise fail(
                "GF301", f"{field} belongs to the pipeline, not to a step on its own", hint=f"write it with {instead}"
            )
    pipeline = Pipeline.model_construct(name=name, steps={name: step})
    missing = [loss.finding("kubeflow") for loss in losses(pipeline, CAPABILITIES)]
    missing += [*refusals(pipeline), *omissions(pipeline)]
    if missing:
        raise GpuflowError(missing)
    inputs: dict[Channel, str] = dict(keywords_of(step))
    spelling = KubeflowSpelling(inputs.__getitem__)
    inputs[RunRef("id")] = RUN_ID_INPUT
    pod = pod_for(pipeline, name, site, spelling, ENGINE)
    refuse_shared_names(pod)
    container = container_spec(pod["spec"]["containers"][0], outputs=tuple(step.outputs))
    used = {channel: inputs[channel] for channel in inputs if channel in spelling.used}
    return Alone(name, step, container, executor_config(pod, {}), used)
