"""A step on its own, for hand-written pipelines: its component with the inputs it refers to, and what its task is told.

kfp takes resources, retries, caching and pod settings from tasks, not from components.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from gpuflow.core.errors import Finding, GpuflowError, fail
from gpuflow.plan import Restarts, plan_of
from gpuflow.pod import pod_of
from gpuflow.quantity import Quantity
from gpuflow.site import Site
from gpuflow.spec.builder import caller
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import RunRef
from gpuflow.targets.capabilities import construct_losses, partial_support_notes
from gpuflow.targets.kubeflow.build import ENGINE
from gpuflow.targets.kubeflow.containers import cached_settings, caching_options, step_outputs, task_options
from gpuflow.targets.kubeflow.facts import FACTS, capabilities_at
from gpuflow.targets.kubeflow.pods import container_spec, executor_config
from gpuflow.targets.kubeflow.references import NODE_NAME, RUN_FACTS, Channel, KubeflowSpelling
from gpuflow.targets.kubeflow.refusals import partial_losses
from gpuflow.targets.kubeflow.retries import restarts_at, retry_notes, retry_policy
from gpuflow.targets.single_step import keywords_of, refuse_unfit

if TYPE_CHECKING:
    from kfp import dsl

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
class TaskSettings:
    """What a task has beside image, command, inputs and outputs; kfp takes it from tasks only."""

    container: dict[str, Any]
    """Its variables and resources (PipelineContainerSpec)."""
    config: dict[str, Any]
    """KubernetesExecutorConfig."""
    task: dict[str, Any]
    """What the IR says of the task itself: `retryPolicy`, and `cachingOptions`, unless the task keeps its own."""
    display_name: str | None = None


@dataclass(frozen=True, slots=True)
class StepMessages:
    """A step's container and config, the arguments it takes, and the inputs that KFP itself gives a value."""

    name: str
    step: Step
    settings: TaskSettings
    arguments: tuple[str, ...]
    known: dict[str, str]
    weaker: tuple[Finding, ...] = ()
    """What is carried only in part."""


def step_messages(
    step: Step,
    site: Site,
    name: str,
    *,
    own_command: bool = True,
    judged: bool = False,
    labels: Mapping[str, str] | None = None,
) -> StepMessages:
    """The step as KFP's messages. Raises for what KFP cannot carry, and for flow, which is kfp's to write.

    `own_command`: whether the task runs the step's command. Else no supervisor can be put in front of it.
    `judged`: what KFP cannot carry was said already. `labels`: those of the pipeline that it comes from.
    """
    refuse_unfit(name, step, FLOW, "kubernetes.mount_pvc of kfp")
    if step.gang is not None:
        # Nothing would keep the gangs of two calls apart, or of two turns of a loop.
        hint = "write the pipeline in gpuflow and compile it, which does"
        raise fail("GF378", "a component of a hand-written pipeline looks after no gang", hint=hint)
    pipeline = Pipeline.model_construct(name=name, steps={name: step}, labels=dict(labels or {}))
    plan = plan_of(pipeline, site)
    missing = [*construct_losses(pipeline, capabilities_at(site), FACTS.name), *partial_losses(plan)]
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
        text = "the installed kfp has no init containers and sidecars for hand-written pipelines"
        raise fail("GF301", text, hint="write the pipeline in gpuflow and compile it, which does")
    spelling = KubeflowSpelling(lambda channel: names[_without_utc(channel)])
    restarts: Restarts = restarts_at(site) if own_command else "left alone"
    # A component knows neither its calls nor the loops around them: Argo's name of the task keeps their state apart.
    planned = plan.under(restarts).by_name[name]
    task = NODE_NAME if planned.supervision.keeps_state else None
    pod = pod_of(planned, spelling, replace(ENGINE, task=task))
    container = container_spec(pod["spec"]["containers"][0], outputs=step_outputs(step, alone=own_command))
    used = {_without_utc(channel) for channel in spelling.used}
    known = {facts[ref]: RUN_FACTS[ref.field] for ref in map(RunRef, RUN_FACTS) if ref in used}
    key = cached_settings(step, pod)
    known |= {} if key is None else {SETTINGS: key}
    policy = retry_policy(planned)
    task_fields = {"cachingOptions": caching_options(step), **({} if policy is None else {"retryPolicy": policy})}
    settings = TaskSettings(container, executor_config(pod, {}), task_fields, task_options(step).display_name)
    weaker = (*partial_support_notes(pipeline, capabilities_at(site)), *retry_notes(plan, restarts))
    return StepMessages(name, step, settings, tuple(inputs.values()), known, weaker)


def _without_utc(channel: Channel) -> Channel:
    """A fact of the run without the time zone UTC, in which KFP gives it anyway."""
    return RunRef(channel.field) if isinstance(channel, RunRef) else channel


def apply_settings(task: dsl.PipelineTask, settings: TaskSettings) -> dsl.PipelineTask:
    """The task with all settings. A task that kfp's local runner has run already does not need them."""
    from google.protobuf import json_format
    from kfp.dsl.pipeline_task import TaskState
    from kfp.kubernetes.common import get_existing_kubernetes_config_as_message

    if task.state is TaskState.FINAL:
        return task
    for variable in settings.container.get("env", ()):
        task.set_env_variable(variable["name"], variable.get("value", ""))
    _resources(task, settings.container.get("resources", {}))
    policy, caching = settings.task.get("retryPolicy"), settings.task.get("cachingOptions")
    if policy is not None:
        task.set_retry(
            num_retries=policy["maxRetryCount"],
            backoff_duration=policy["backoffDuration"],
            backoff_factor=policy["backoffFactor"],
            backoff_max_duration=policy["backoffMaxDuration"],
        )
    if caching is not None:
        task.set_caching_options(caching.get("enableCache", False), caching.get("cacheKey"))
    if settings.display_name:
        task.set_display_name(settings.display_name)
    config = get_existing_kubernetes_config_as_message(task)
    more = json_format.ParseDict(settings.config, type(config)())
    _keep_both(config, more)
    config.MergeFromString(more.SerializeToString())
    task.platform_config["kubernetes"] = json_format.MessageToDict(config)
    return task


def _keep_both(before: Any, more: Any) -> None:
    """Take the required node affinity of both into `before`: Kubernetes takes the terms of a list for alternatives."""
    old, new = ([term for term in config.node_affinity if not term.HasField("weight")] for config in (before, more))
    if not old or not new:
        return
    both = []
    for one in old:
        for other in new:
            term = type(one)()
            term.CopyFrom(one)
            term.MergeFrom(other)
            both.append(term)
    for config in (before, more):
        rest = [term for term in config.node_affinity if term.HasField("weight")]
        del config.node_affinity[:]
        config.node_affinity.extend(rest)
    before.node_affinity.extend(both)


def _resources(task: dsl.PipelineTask, resources: dict[str, Any]) -> None:
    setters = {
        "resourceCpuRequest": task.set_cpu_request,
        "resourceCpuLimit": task.set_cpu_limit,
        "resourceMemoryRequest": task.set_memory_request,
        "resourceMemoryLimit": task.set_memory_limit,
    }
    for field, setter in setters.items():
        if field in resources:
            setter(_kfp_amount(resources[field], memory="Memory" in field))
    if "accelerator" in resources:
        task.set_accelerator_type(resources["accelerator"]["resourceType"])
        task.set_accelerator_limit(resources["accelerator"]["resourceCount"])


def _kfp_amount(amount: str, *, memory: bool) -> str:
    """The same amount in a spelling that kfp accepts: it knows no `k`, no exponents and no fractions of memory."""
    quantity = Quantity(amount)
    if memory:
        return amount if amount.endswith(("Ki", "Mi", "Gi", "Ti")) else str(quantity.value)
    return f"{quantity.milli}m" if quantity.milli % 1000 else str(quantity.value)
