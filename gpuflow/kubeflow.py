"""For kfp users: gpuflow steps inside a hand-written `@dsl.pipeline`.

    train = gpuflow.Step(command=["train", "--lr", {"param": "lr"}], gpu="a100-80gb", memory="64Gi", image="train:1")

    @dsl.pipeline(name="nightly")
    def nightly(lr: float = 1e-4):
        task = gpuflow.kubeflow.component(train, site="site.yaml", name="train")(lr=lr)

`component` makes tasks with everything the step says. `configure` gives a step's resources and policies to a task you
already have. Both raise `GpuflowError` when the step says something KFP cannot carry.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from google.protobuf import json_format
from kfp import dsl
from kfp.components import load_component_from_text
from kfp.dsl.pipeline_channel import PipelineChannel
from kfp.dsl.types.type_utils import get_parameter_type
from kfp.kubernetes.common import get_existing_kubernetes_config_as_message

from gpuflow.emit import emit
from gpuflow.errors import Where, fail
from gpuflow.quantity import Quantity
from gpuflow.site import Site
from gpuflow.spec.building import caller
from gpuflow.spec.questioned_texts import questioned_step, questioned_value
from gpuflow.spec.remarks import log_findings
from gpuflow.spec.step import Step
from gpuflow.spec.text import Literally
from gpuflow.targets.kubeflow.alone import Alone, alone
from gpuflow.targets.kubeflow.build import component as executor_component
from gpuflow.targets.kubeflow.document import SCHEMA_VERSION
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.own_words import task_words
from gpuflow.targets.kubeflow.text import for_driver, replaced
from gpuflow.targets.kubeflow.values import STRING, Type, output_type

__all__ = ["StepComponent", "component", "configure"]

INSTEAD = "pass a parameter of the pipeline, or a task's output"
"""What to pass where a template was meant."""
_OF_THE_COMMAND = {
    "working_dir": "KFP has no working directory",
    "checkpoint": "checkpoint needs the supervisor in front of it",
    "outputs": "outputs need the supervisor in front of it",
}
"""What a step says that only its command can carry."""
_PYTHON_TYPES: dict[type, Type] = {
    str: STRING,
    int: ir.ParameterType.NUMBER_INTEGER,
    float: ir.ParameterType.NUMBER_DOUBLE,
    bool: ir.ParameterType.BOOLEAN,
    list: ir.ParameterType.LIST,
    dict: ir.ParameterType.STRUCT,
}


def component(step: Step, site: Site | str = "nvidia", *, name: str = "step") -> StepComponent:
    """A component that makes tasks of the step. Its references are keyword arguments, which may be kfp channels.

    :param step: what runs, a `gpuflow.Step`.
    :param site: how the cluster names its GPUs and queues: a Site, a preset, or a file.
    :param name: the component's name.
    """
    made = alone(step, _site(site), name)
    log_findings([*questioned_step(step, caller()), *made.weaker], __name__)
    return StepComponent(made)


def configure(
    task: dsl.PipelineTask, step: Step, site: Site | str = "nvidia", *, name: str | None = None
) -> dsl.PipelineTask:
    """Give an existing task the step's resources, placement, volumes, environment, identity, retries and caching.

    :param task: a task of a pipeline of yours.
    :param step: what it needs, a `gpuflow.Step` without a command.
    :param site: as for `component`.
    :param name: the step's name in labels and messages.
    """
    if not isinstance(task, dsl.PipelineTask):
        raise fail("GF301", f"configure takes a task and a step, not a {type(task).__name__}")
    made = alone(step, _site(site), name or task.name, own_command=False)
    log_findings([*questioned_step(step, caller()), *made.weaker], __name__)
    for field, why in _OF_THE_COMMAND.items():
        if getattr(step, field):
            raise fail("GF301", f"configure leaves a task's command alone, and {why}", hint="use component")
    late = [key for key, value in step.env.items() if not isinstance(value, str) and hasattr(value, "canonical")]
    if late:
        raise fail(
            "GF301", f"configure cannot set {late[0]} to a reference: KFP's variables are fixed", hint="use component"
        )
    return _applied(task, made)


class StepComponent:
    """Called in a pipeline, it makes a task. What an argument is decides the type of the component's input.

    :param made: what the step became.
    """

    def __init__(self, made: Alone) -> None:
        self._made = made
        self.inputs = made.arguments

    def __call__(self, **arguments: Any) -> dsl.PipelineTask:
        unknown, missing = sorted({*arguments} - {*self.inputs}), sorted({*self.inputs} - {*arguments})
        if unknown or missing:
            wrong = f'takes no "{unknown[0]}"' if unknown else f'needs "{missing[0]}"'
            raise fail(
                "GF301", f'component "{self._made.name}" {wrong}; it takes {", ".join(self.inputs) or "nothing"}'
            )
        where = caller()
        # KFP's own placeholders in a constant are filled in by KFP.
        asked = {name: value for name, value in arguments.items() if "{{$." not in str(value)}
        log_findings((each for name in asked for each in questioned_value(name, asked[name], where, INSTEAD)), __name__)
        arguments = {name: str(value) if isinstance(value, Literally) else value for name, value in arguments.items()}
        for name, value in arguments.items():
            _refuse_lost(f'component "{self._made.name}"', name, value, self._made.step.env, where)
        known = self._made.known
        types = {name: _type(value) for name, value in arguments.items()} | dict.fromkeys(known, STRING)
        return _applied(load_component_from_text(self.text(types))(**arguments, **known), self._made)

    def text(self, types: dict[str, Type] | None = None) -> str:
        """The component as YAML that `kfp.components.load_component_from_text` reads; inputs are text unless said."""
        made = self._made
        outputs = {out: output_type(kind.type, None) for out, kind in made.step.outputs.items()}
        inputs = types or dict.fromkeys((*made.arguments, *made.known), STRING)
        label = f"comp-{made.name}"
        bare = ir.PipelineDeploymentConfig.PipelineContainerSpec(
            image=made.container.image, command=made.container.command
        )
        spec = ir.PipelineSpec(schema_version=SCHEMA_VERSION)
        spec.pipeline_info.name = made.name
        spec.components[label].CopyFrom(executor_component(f"exec-{made.name}", inputs, outputs))
        task = spec.root.dag.tasks[made.name]
        task.component_ref.name, task.task_info.name = label, made.name
        written = json_format.MessageToDict(spec)
        written["deploymentSpec"] = {"executors": {f"exec-{made.name}": {"container": json_format.MessageToDict(bare)}}}
        return emit(written)


def _refuse_lost(what: str, name: str, value: Any, variables: Collection[str], where: Where) -> None:
    """A constant that KFP would hand over as something else, as in a pipeline's own document."""
    if not isinstance(value, str) or "{{" in value:  # KFP's own placeholders are for KFP, and others are questioned
        return
    lost = replaced(value, lambda: variables)
    if lost is not None:
        hint = "write it in the step's command, or keep it in a file or a ConfigMap"
        raise fail("GF301", f"{what}: {name}={value[:60]!r} holds {lost}", where=where, hint=hint)


def _type(value: Any) -> Type:
    if isinstance(value, PipelineChannel):
        return get_parameter_type(value.channel_type) or STRING
    return _PYTHON_TYPES.get(type(value), STRING)


def _applied(task: dsl.PipelineTask, made: Alone) -> dsl.PipelineTask:
    step = made.step
    for variable in made.container.env:
        task.set_env_variable(variable.name, variable.value)
    _resources(task, made.container.resources)
    policy = made.policy
    if policy is not None:
        task.set_retry(
            num_retries=policy.max_retry_count,
            backoff_duration=f"{policy.backoff_duration.seconds}s",
            backoff_factor=policy.backoff_factor,
            backoff_max_duration=f"{policy.backoff_max_duration.seconds}s",
        )
    words = task_words(step)
    task.set_caching_options(bool(step.cache), for_driver(words.cache_key) if step.cache and words.cache_key else None)
    if words.display_name:
        task.set_display_name(words.display_name)
    config = get_existing_kubernetes_config_as_message(task)
    config.MergeFromString(made.config.SerializeToString())
    task.platform_config["kubernetes"] = json_format.MessageToDict(config)
    return task


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


def _site(site: Site | str) -> Site:
    return site if isinstance(site, Site) else Site.load(site)
