"""What surrounds the steps of a run: claims made before them, exit steps after them, claims released at the end.

KFP knows one exit task per group of steps. Several exit steps, or exit steps and claims, become one sub-DAG. A claim's
name is only known at run time, and an exit task that reads another task's output would run right after that task; so
the steps and their exit task stand in a DAG of their own, which is handed the names.
"""

from __future__ import annotations

from collections.abc import Mapping

from gpuflow.spec.params import RunClaim
from gpuflow.spec.text import OutputRef
from gpuflow.targets.kubeflow.build import Builder, component
from gpuflow.targets.kubeflow.dag import EMPTY, AnyType, Dag, Fixed, Given, Task, Want, inputs_of, outputs_of
from gpuflow.targets.kubeflow.exit_outputs import defaults_step
from gpuflow.targets.kubeflow.messages import ir
from gpuflow.targets.kubeflow.names import (
    ClaimRef,
    StatusRef,
    channel_name,
    claim_task,
    input_name,
    placeholder,
    release_task,
)
from gpuflow.targets.kubeflow.outcomes import ANSWER, asking_step, asks_outcome
from gpuflow.targets.kubeflow.plain import plain
from gpuflow.targets.kubeflow.values import LIST, STATUS, STRING, Type

CREATE, DELETE = "argostub/createpvc", "argostub/deletepvc"
"""Images that never run: KFP's driver does their work itself."""
_AT_THE_END = ir.PipelineTaskSpec.TriggerPolicy.ALL_UPSTREAM_TASKS_COMPLETED


def root(builder: Builder) -> Dag:
    """The pipeline's own DAG. The pipeline's outputs are produced in it, whatever stands around their steps."""
    pipeline, dag = builder.pipeline, Dag(direct=True)
    if not pipeline.claims:
        if not pipeline.exit:
            builder.fill(dag)
        else:
            _handled(builder, dag)
        return dag
    for name, claim in pipeline.claims.items():
        dag.add(_create(builder, name, claim))
    inner = Dag(direct=False)
    _handled(builder, inner)
    group = _group(builder, "run", inner, surfaced=True)
    for want, (channel, _) in list(group.wants.items()):
        if isinstance(channel, ClaimRef):
            made = ir.TaskInputsSpec.InputParameterSpec()
            made.task_output_parameter.producer_task = claim_task(channel.name)
            made.task_output_parameter.output_parameter_key = "name"
            group.spec.inputs.parameters[want].CopyFrom(made)
            del group.wants[want]
    dag.add(group, [claim_task(name) for name in pipeline.claims])
    return dag


def _handled(builder: Builder, dag: Dag) -> None:
    """The steps as one group, and its exit task beside it."""
    body = Dag(direct=False)
    builder.fill(body)
    handler = _group(builder, "exit-handler", body, surfaced=True, otherwise=_defaults(builder, body))
    dag.add(handler)
    dag.status_of = handler.name
    exits = builder.pipeline.exit
    simple = len(exits) == 1 and not builder.pipeline.claims and builder.steps[next(iter(exits))].when is None
    task = builder.step_task(next(iter(exits)), dag) if simple else _exits(builder, handler.name)
    task.spec.trigger_policy.strategy = _AT_THE_END
    dag.add(task, [handler.name])


def _defaults(builder: Builder, body: Dag) -> dict[OutputRef, tuple[str, str]]:
    """The outputs that exit steps read, each with the task and the key that give its default."""
    name = defaults_step(builder.pipeline)
    if name is None:
        return {}
    keys = {ref: channel_name(ref) for ref in builder.handed_out}
    made = builder.components[body.tasks[name].component_ref.name]
    made.output_definitions.CopyFrom(outputs_of({key: body.produced[ref][2] for ref, key in keys.items()}))
    places = (f"{{{{$.outputs.parameters['{key}'].output_file}}}}" for key in keys.values())
    builder.executors[made.executor_label]["container"]["command"] += places
    return {ref: (name, key) for ref, key in keys.items()}


def _exits(builder: Builder, handler: str) -> Task:
    """Exit steps and the release of claims as one sub-DAG. A claim goes when the exit steps that mount it are done."""
    inner = Dag(direct=False)
    mounts: dict[str, list[str]] = {name: [] for name in builder.pipeline.claims}
    asking = asking_step(builder.pipeline)
    if asking is not None:
        inner.add(_asking(builder, asking, inner, handler))
    for name in builder.pipeline.exit:
        if name == asking:
            continue
        task = builder.step_task(name, inner)
        inner.add(task, [asking] if asking is not None and asks_outcome(builder.steps[name]) else [])
        for volume in builder.steps[name].volumes.values():
            if volume.new_claim is not None:
                mounts[volume.new_claim].append(task.name)
    for claim, users in mounts.items():
        inner.add(_delete(builder, claim), users)
    return _group(builder, "exit", inner)


def _asking(builder: Builder, name: str, dag: Dag, handler: str) -> Task:
    """The exit step that asks Argo how the handler's group ended. It is told the group and KFP's own status."""
    task = builder.step_task(name, dag)
    made = builder.components[task.spec.component_ref.name]
    status = input_name(StatusRef())
    made.input_definitions.parameters[status].CopyFrom(inputs_of({status: STATUS}).parameters[status])
    made.output_definitions.CopyFrom(outputs_of({ANSWER: STRING}))
    words = (handler, placeholder(status), f"{{{{$.outputs.parameters['{ANSWER}'].output_file}}}}")
    builder.executors[made.executor_label]["container"]["command"] += words
    task.wants[status] = (StatusRef(), STATUS)
    task.outputs[OutputRef(name, ANSWER)] = (ANSWER, STRING)
    return task


def _group(
    builder: Builder,
    kind: str,
    inner: Dag,
    *,
    surfaced: bool = False,
    otherwise: Mapping[OutputRef, tuple[str, str]] = EMPTY,
) -> Task:
    """`surfaced`: it gives the pipeline's outputs. `otherwise`: what it gives to exit steps, and who else has it."""
    name = builder.names.group(kind, builder.step_names)
    types: dict[str, AnyType] = {channel_name(channel): type_ for channel, type_ in inner.used.items()}
    given = (*(builder.pipeline.outputs.values() if surfaced else ()), *otherwise)
    outputs: dict[Given, tuple[str, AnyType]] = {ref: (channel_name(ref), inner.produced[ref][2]) for ref in given}
    made = ir.ComponentSpec(dag=inner.spec({key: ref for ref, (key, _) in outputs.items()}, otherwise))
    if types:
        made.input_definitions.CopyFrom(inputs_of(types))
    if outputs:
        made.output_definitions.CopyFrom(outputs_of(dict(outputs.values())))
    builder.components[f"comp-{name}"] = made
    wants: dict[str, Want] = {channel_name(channel): (channel, type_) for channel, type_ in inner.used.items()}
    spec = ir.PipelineTaskSpec(component_ref=ir.ComponentRef(name=f"comp-{name}"))
    return Task(name, spec, wants, {}, outputs)


def _create(builder: Builder, name: str, claim: RunClaim) -> Task:
    wants: dict[str, Want] = {
        "access_modes": (Fixed([claim.access]), LIST),
        "pvc_name_suffix": (Fixed(f"-{name}"), STRING),
        "size": (Fixed(str(claim.size)), STRING),
        "storage_class_name": (Fixed(claim.storage_class), STRING),
    }
    return _stub(builder, claim_task(name), CREATE, wants, {"name": STRING})


def _delete(builder: Builder, name: str) -> Task:
    return _stub(builder, release_task(name), DELETE, {"pvc_name": (ClaimRef(name), STRING)}, {})


def _stub(builder: Builder, name: str, image: str, wants: dict[str, Want], outputs: dict[str, Type]) -> Task:
    label = builder.names.unique(name)
    executor = ir.PipelineDeploymentConfig.ExecutorSpec()
    executor.container.image = image
    builder.executors[f"exec-{label}"] = plain(executor)
    inputs = {key: type_ for key, (_, type_) in wants.items()}
    builder.components[f"comp-{label}"] = component(f"exec-{label}", inputs, outputs)
    spec = ir.PipelineTaskSpec(component_ref=ir.ComponentRef(name=f"comp-{label}"))
    spec.caching_options.enable_cache = False
    return Task(name, spec, wants)
