"""What a task of a hand-written pipeline is told: kfp takes resources, retries, caching and pod settings from tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format
from kfp import dsl
from kfp.dsl.pipeline_task import TaskState
from kfp.kubernetes.common import get_existing_kubernetes_config_as_message

from gpuflow.quantity import Quantity
from gpuflow.targets.kubeflow.alone import Alone
from gpuflow.targets.kubeflow.own_words import task_words
from gpuflow.targets.kubeflow.text import for_driver


@dataclass(frozen=True, slots=True)
class TaskSettings:
    """What a task has beside image, command, inputs and outputs; kfp takes it from tasks only."""

    container: Any
    """Its variables and resources (PipelineContainerSpec)."""
    config: Any
    """KubernetesExecutorConfig."""
    policy: Any | None
    """RetryPolicy."""
    caching: bool | None
    """None: as the task has it."""
    cache_key: str | None = None
    display_name: str | None = None


def settings_of(made: Alone, *, caching: bool = True) -> TaskSettings:
    """What a step on its own says. `caching`: whether it speaks of caching."""
    step, words = made.step, task_words(made.step)
    key = for_driver(words.cache_key) if step.cache and words.cache_key else None
    return TaskSettings(
        made.container, made.config, made.policy, bool(step.cache) if caching else None, key, words.display_name
    )


def applied(task: dsl.PipelineTask, settings: TaskSettings) -> dsl.PipelineTask:
    """The task, told everything. One that kfp's local runner has run already has no use for it."""
    if task.state is TaskState.FINAL:
        return task
    for variable in settings.container.env:
        task.set_env_variable(variable.name, variable.value)
    _resources(task, settings.container.resources)
    policy = settings.policy
    if policy is not None:
        task.set_retry(
            num_retries=policy.max_retry_count,
            backoff_duration=f"{policy.backoff_duration.seconds}s",
            backoff_factor=policy.backoff_factor,
            backoff_max_duration=f"{policy.backoff_max_duration.seconds}s",
        )
    if settings.caching is not None:
        task.set_caching_options(settings.caching, settings.cache_key)
    if settings.display_name:
        task.set_display_name(settings.display_name)
    config, more = get_existing_kubernetes_config_as_message(task), type(settings.config)()
    more.CopyFrom(settings.config)
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


def _resources(task: dsl.PipelineTask, resources: Any) -> None:
    setters = {
        "resource_cpu_request": task.set_cpu_request,
        "resource_cpu_limit": task.set_cpu_limit,
        "resource_memory_request": task.set_memory_request,
        "resource_memory_limit": task.set_memory_limit,
    }
    for field, setter in setters.items():
        amount = getattr(resources, field)
        if amount:
            setter(_kfp_amount(amount, memory="memory" in field))
    if resources.accelerator.resource_type:
        task.set_accelerator_type(resources.accelerator.resource_type)
        task.set_accelerator_limit(resources.accelerator.resource_count)


def _kfp_amount(amount: str, *, memory: bool) -> str:
    """The same amount in a spelling that kfp accepts: it knows no `k`, no exponents and no fractions of memory."""
    quantity = Quantity(amount)
    if memory:
        return amount if amount.endswith(("Ki", "Mi", "Gi", "Ti")) else str(quantity.value)
    return f"{quantity.milli}m" if quantity.milli % 1000 else str(quantity.value)
