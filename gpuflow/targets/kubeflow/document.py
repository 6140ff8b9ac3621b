"""The artifact: pipeline spec and platform spec as two YAML documents, as resources for Git, or as one component.

What surrounds the steps of a run: claims made before them, exit steps after them, claims released at the end. KFP knows
one exit task per group of steps. Several exit steps, or exit steps and claims, become one sub-DAG. A claim's name is
only known at run time, and an exit task that reads another task's output would run right after that task; so the steps
and their exit task stand in a DAG of their own, which is handed the names.

A pipeline of one step can be a primitive component: one container, which kfp users adjust like any task of theirs. kfp
keeps a component's container, inputs and outputs, and takes resources, retries, caching and Kubernetes settings from
tasks only. So kfp's own loader leaves those of the file out, and `gpuflow.kubeflow.load_component` gives them to each
task. Run by itself, the file is a whole pipeline. Variables of fixed text stand in the command, where every loader
keeps them, and where KFP's cache compares them.

KFP has no step that waits for a person: approvals are taken out for those who accept that loss.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.core.emit import emit_all
from gpuflow.core.errors import Finding, GpuflowError, fail
from gpuflow.core.printable import comment
from gpuflow.core.version import __version__
from gpuflow.formats.kfp import AT_THE_END, CREATE_CLAIM, DELETE_CLAIM
from gpuflow.graph.order import order
from gpuflow.plan import plan_of
from gpuflow.spec.expression import Logic
from gpuflow.spec.params import RunClaim
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import edges
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef
from gpuflow.targets.kubeflow import build
from gpuflow.targets.kubeflow.client_calls import client_line, run_calls
from gpuflow.targets.kubeflow.containers import RUN_AS_IT_IS, pipeline_options
from gpuflow.targets.kubeflow.exit_steps import OUTCOME_OUTPUT, asks_outcome, defaults_step, outcome_step, with_alerts
from gpuflow.targets.kubeflow.facts import COMPONENT, KubeflowOptions
from gpuflow.targets.kubeflow.pods import Data, fixed_value, in_order
from gpuflow.targets.kubeflow.references import (
    BRACE,
    ArtifactRef,
    ClaimRef,
    StatusRef,
    channel_name,
    claim_task,
    input_name,
    placeholder,
    release_task,
)
from gpuflow.targets.kubeflow.retries import restarts_at
from gpuflow.targets.kubeflow.single_step import FLOW, SETTINGS, StepMessages, step_messages
from gpuflow.targets.target import Artifact, Request, header


def without_approvals(pipeline: Pipeline) -> Pipeline:
    """Whatever waited for an approval waits for what the approval waited for, and runs under its condition too."""
    steps: dict[str, Step] = {}
    if not any(step.approval or step.pipeline for step in pipeline.steps.values()):
        return pipeline
    for name in order(edges(pipeline)):
        step = pipeline.steps[name]
        asked = [steps[need] for need in step.needs if steps[need].approval is not None]
        needs = [inner for need in step.needs for inner in (steps[need].needs if steps[need].approval else (need,))]
        conditions = [one for one in (*(before.when for before in asked), step.when) if one is not None]
        when = Logic("and", tuple(conditions)) if len(conditions) > 1 else next(iter(conditions), None)
        changes: dict[str, Any] = {"needs": tuple(dict.fromkeys(needs)), "when": when}
        if step.pipeline is not None:
            changes["pipeline"] = without_approvals(step.pipeline)
        steps[name] = step.model_copy(update=changes)
    kept = {name: steps[name] for name in pipeline.steps if steps[name].approval is None}
    return pipeline.model_copy(update={"steps": kept})


def root(builder: build.Builder) -> build.Dag:
    """The pipeline's own DAG. The pipeline's outputs are produced in it, whatever stands around their steps."""
    pipeline, dag = builder.pipeline, build.Dag(direct=True)
    if not pipeline.claims:
        if not pipeline.exit:
            builder.fill(dag)
        else:
            _add_exit_handler(builder, dag)
        return dag
    for name, claim in pipeline.claims.items():
        dag.add(_create(builder, name, claim))
    inner = build.Dag(direct=False)
    _add_exit_handler(builder, inner)
    group = _group(builder, "run", inner, surfaced=True)
    for want, (channel, _) in list(group.wants.items()):
        if isinstance(channel, ClaimRef):
            made = {"producerTask": claim_task(channel.name), "outputParameterKey": "name"}
            group.give("parameters", want, {"taskOutputParameter": made})
            del group.wants[want]
    dag.add(group, [claim_task(name) for name in pipeline.claims])
    return dag


def _add_exit_handler(builder: build.Builder, dag: build.Dag) -> None:
    """The steps as one group, and its exit task beside it."""
    body = build.Dag(direct=False)
    builder.fill(body)
    handler = _group(builder, "exit-handler", body, surfaced=True, otherwise=_defaults(builder, body))
    dag.add(handler)
    dag.status_of = handler.name
    exits = builder.pipeline.exit
    simple = len(exits) == 1 and not builder.pipeline.claims and builder.steps[next(iter(exits))].when is None
    task = builder.step_task(next(iter(exits)), dag) if simple else _exits(builder, handler.name)
    task.spec["triggerPolicy"] = {**task.spec.get("triggerPolicy", {}), "strategy": AT_THE_END}
    dag.add(task, [handler.name])


def _defaults(builder: build.Builder, body: build.Dag) -> dict[OutputRef, tuple[str, str]]:
    """The outputs that exit steps read, each with the task and the key that give its default."""
    name = defaults_step(builder.pipeline)
    if name is None:
        return {}
    keys = {ref: channel_name(ref) for ref in builder.handed_out}
    made = builder.components[body.tasks[name]["componentRef"]["name"]]
    made["outputDefinitions"] = build.outputs_of({key: body.produced[ref][2] for ref, key in keys.items()})
    places = (f"{{{{$.outputs.parameters['{key}'].output_file}}}}" for key in keys.values())
    builder.executors[made["executorLabel"]]["container"]["command"] += places
    return {ref: (name, key) for ref, key in keys.items()}


def _exits(builder: build.Builder, handler: str) -> build.Task:
    """Exit steps and the release of claims as one sub-DAG. A claim goes when the exit steps that mount it are done."""
    inner = build.Dag(direct=False)
    mounts: dict[str, list[str]] = {name: [] for name in builder.pipeline.claims}
    asking = outcome_step(builder.pipeline)
    if asking is not None:
        inner.add(_outcome_task(builder, asking, inner, handler))
    for name in builder.pipeline.exit:
        if name == asking:
            continue
        task = builder.step_task(name, inner)
        inner.add(task, [asking] if asking is not None and asks_outcome(builder.steps[name]) else [])
        for volume in builder.steps[name].volumes.values():
            if volume.new_claim is not None:
                mounts[volume.new_claim].append(task.name)
    for claim, users in mounts.items():
        wants: dict[str, build.Input] = {"pvc_name": (ClaimRef(claim), build.STRING)}
        inner.add(_image_task(builder, release_task(claim), DELETE_CLAIM, wants, {}), users)
    return _group(builder, "exit", inner)


def _outcome_task(builder: build.Builder, name: str, dag: build.Dag, handler: str) -> build.Task:
    """The exit step that asks Argo how the handler's group ended. It is told the group and KFP's own status."""
    task = builder.step_task(name, dag)
    made = builder.components[task.spec["componentRef"]["name"]]
    status = input_name(StatusRef())
    made["inputDefinitions"]["parameters"] |= build.inputs_of({status: build.STATUS})["parameters"]
    made["outputDefinitions"] = build.outputs_of({OUTCOME_OUTPUT: build.STRING})
    words = (handler, placeholder(status), f"{{{{$.outputs.parameters['{OUTCOME_OUTPUT}'].output_file}}}}")
    builder.executors[made["executorLabel"]]["container"]["command"] += words
    task.wants[status] = (StatusRef(), build.STATUS)
    task.outputs[OutputRef(name, OUTCOME_OUTPUT)] = (OUTCOME_OUTPUT, build.STRING)
    return task


def _group(
    builder: build.Builder,
    kind: str,
    inner: build.Dag,
    *,
    surfaced: bool = False,
    otherwise: Mapping[OutputRef, tuple[str, str]] = build.EMPTY,
) -> build.Task:
    """`surfaced`: it gives the pipeline's outputs. `otherwise`: what it gives to exit steps, and who else has it."""
    name = builder.names.group(kind, builder.step_names)
    types: dict[str, build.AnyType] = {channel_name(channel): type_ for channel, type_ in inner.used.items()}
    given = (*(builder.pipeline.outputs.values() if surfaced else ()), *otherwise)
    outputs: dict[build.OutputKey, tuple[str, build.AnyType]] = {
        ref: (channel_name(ref), inner.produced[ref][2]) for ref in given
    }
    made = {"dag": inner.spec({key: ref for ref, (key, _) in outputs.items()}, otherwise)}
    if types:
        made["inputDefinitions"] = build.inputs_of(types)
    if outputs:
        made["outputDefinitions"] = build.outputs_of(dict(outputs.values()))
    builder.components[f"comp-{name}"] = made
    wants: dict[str, build.Input] = {channel_name(channel): (channel, type_) for channel, type_ in inner.used.items()}
    return build.Task(name, build.component_task(name), wants, {}, outputs)


def _create(builder: build.Builder, name: str, claim: RunClaim) -> build.Task:
    wants: dict[str, build.Input] = {
        "access_modes": (build.Constant([claim.access]), build.LIST),
        "pvc_name_suffix": (build.Constant(f"-{name}"), build.STRING),
        "size": (build.Constant(str(claim.size)), build.STRING),
        "storage_class_name": (build.Constant(claim.storage_class), build.STRING),
    }
    return _image_task(builder, claim_task(name), CREATE_CLAIM, wants, {"name": build.STRING})


def _image_task(
    builder: build.Builder, name: str, image: str, wants: dict[str, build.Input], outputs: dict[str, build.Type]
) -> build.Task:
    label = builder.names.unique_name(name)
    builder.executors[f"exec-{label}"] = {"container": {"image": image}}
    inputs = {key: type_ for key, (_, type_) in wants.items()}
    builder.components[f"comp-{label}"] = build.component(f"exec-{label}", inputs, outputs)
    return build.Task(name, build.component_task(label, cached={}), wants)


HEADER = (
    "A component: gpuflow.kubeflow.load_component(FILE) makes tasks with everything in this file. kfp's own loader,",
    "load_component_from_file, keeps image, command, inputs and outputs, and leaves out resources, retries, caching",
    "and Kubernetes settings (nodes, volumes, Secrets, user, labels): set those on each task.",
)
_OF_A_PIPELINE = ("schedule", "on_data", "deadline", "parallel", "notify", "claims", "exit")


def component_refusals(pipeline: Pipeline) -> Iterator[Finding]:
    """Why a pipeline is not one component, each reason by name."""
    hint = "compile it as a pipeline, without --as component"

    def refusal(message: str, *place: str | int) -> Finding:
        return Finding(
            "GF398", f'pipeline "{pipeline.name}" is not one component: {message}', pipeline.where(*place), hint
        )

    if len(pipeline.steps) != 1:
        shown = ", ".join(f'"{name}"' for name in list(pipeline.steps)[:4])
        more = f" and {len(pipeline.steps) - 4} more" if len(pipeline.steps) > 4 else ""
        yield refusal(f"it has {len(pipeline.steps)} steps, {shown}{more}", "steps")
        return
    for field in _OF_A_PIPELINE:
        if getattr(pipeline, field):
            yield refusal(f"{field} belongs to the pipeline that uses the component", field)
    (name,) = pipeline.steps
    for field, instead in FLOW.items():
        if getattr(pipeline.effective(name), field):
            yield refusal(f'{field} of step "{name}" is written with {instead}', "steps", name)
    for out, ref in pipeline.outputs.items():
        if isinstance(ref, OutputRef) and ref.name != out:
            yield refusal(f'its output "{out}" is called "{ref.name}" in step "{name}"', "outputs", out)


def component_documents(request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
    """The component and its platform document, as plain data."""
    pipeline = request.pipeline
    (name,) = pipeline.steps
    made = step_messages(pipeline.effective(name), request.site, pipeline.name, judged=True, labels=pipeline.labels)
    types = build.param_types(pipeline, build.wanted_types(pipeline, {}))
    outputs = build.component_outputs(made.step)
    inputs: dict[str, build.AnyType] = {**types, **dict.fromkeys(made.known, build.STRING)}
    own, given = build.component(f"exec-{pipeline.name}", inputs, outputs), build.parameters_of(pipeline, types)
    if given:
        own["inputDefinitions"]["parameters"] |= given["parameters"]
    if SETTINGS in made.known:  # nobody's to give; kfp's own loader would ask for it
        own["inputDefinitions"]["parameters"][SETTINGS] |= {"isOptional": True, "defaultValue": made.known[SETTINGS]}
    executors = {f"exec-{pipeline.name}": {"container": _with_command_variables(made.settings.container)}}
    spec = {
        "components": {f"comp-{pipeline.name}": own},
        "root": _root(pipeline, made, given, outputs),
        "deploymentSpec": {"executors": executors},
        **_about(pipeline),
    }
    written: Data = in_order(spec)
    if not made.settings.config:
        return written, {}
    kubernetes = {"deploymentSpec": {"executors": {f"exec-{pipeline.name}": made.settings.config}}}
    return written, {"platforms": {"kubernetes": kubernetes}}


def _about(pipeline: Pipeline) -> Data:
    """What a pipeline's IR says of itself."""
    info = {"name": pipeline.name, **({"description": pipeline.description} if pipeline.description else {})}
    return {"pipelineInfo": info, "schemaVersion": build.SCHEMA_VERSION, "sdkVersion": f"gpuflow-{__version__}"}


def _root(pipeline: Pipeline, made: StepMessages, given: Data, outputs: Mapping[str, build.AnyType]) -> Data:
    """The component as the only task, so that the file runs by itself."""
    body, name = build.Dag(direct=True), pipeline.name
    task = build.Task(name, {**build.component_task(name), **made.settings.task})
    for key in pipeline.params:
        task.give("parameters", key, {"componentInputParameter": key})
    for key, value in made.known.items():
        task.give("parameters", key, fixed_value(value))
    refs: dict[str, build.OutputKey] = {
        out: ArtifactRef(name, out) if isinstance(type_, build.ArtifactType) else OutputRef(name, out)
        for out, type_ in outputs.items()
    }
    task.outputs = {ref: (out, outputs[out]) for out, ref in refs.items()}
    body.add(task)
    root = {"dag": body.spec(refs)}
    if pipeline.params:
        root["inputDefinitions"] = given
    return {**root, "outputDefinitions": build.outputs_of(outputs)} if outputs else root


def _with_command_variables(container: Data) -> Data:
    """The container with its variables in the command. The brace is left to whoever keeps variables."""
    env, words = container.get("env", []), container["command"]
    moved = [f"{entry['name']}={entry.get('value', '')}" for entry in env if entry["name"] != BRACE]
    if not moved:
        return container
    if "=" in words[0]:
        words = ["sh", "-c", RUN_AS_IT_IS, *words]
    kept = [entry for entry in env if entry["name"] == BRACE]
    changed = {**container, "command": ["env", *moved, *words], "env": kept}
    return {key: value for key, value in changed.items() if key != "env" or value}


FORMS = ("ir", "crd", COMPONENT)
COMFORTABLE_TASKS = 250
"""Argo keeps a run in one object of at most 1 MiB; KFP needs some 2.5 KB of it per task, more with pod settings."""
OWN_NAME = "GPUFLOW_COMPONENT"
TELLS_APART = f"NOTE: {OWN_NAME} tells steps with one container and other inputs apart; KFP would take them for one."


def compile_request(request: Request) -> Artifact:
    """The compiled pipeline as one file."""
    form = request.options_as(KubeflowOptions).form or "ir"
    if form not in FORMS:
        raise fail("GF302", f'kubeflow has no form "{form}"', hint=f"known here: {', '.join(FORMS)}")
    name = f"{request.pipeline.name}.yaml"
    if form == COMPONENT:
        return _component(request, name)
    spec, platform, tasks = documents(request)
    plain_parts = [spec, platform] if platform else [spec]
    version = f"{request.pipeline.name}-{_digest(spec, platform)}" if form == "crd" else None
    parts = _resources(request, version, spec, platform) if version else plain_parts
    calls = _start(request, None if version else request.file or name, version)
    large = f"NOTE: {tasks} tasks; Argo may refuse the run above about 300 (1 MiB). Split it, or use fan-outs."
    containers = (each["container"] for each in spec["deploymentSpec"]["executors"].values())
    has_twins = any(entry["name"] == OWN_NAME for each in containers for entry in each.get("env", ()))
    notes = [*([large] if tasks > COMFORTABLE_TASKS else []), *([TELLS_APART] if has_twins else [])]
    lines = [*header(request), *notes, *calls]
    return Artifact(name, comment(lines) + emit_all(parts))


def _component(request: Request, name: str) -> Artifact:
    """The pipeline as one component."""
    found = list(component_refusals(request.pipeline))
    if found:
        raise GpuflowError(found)
    parts = [part for part in component_documents(request) if part]
    return Artifact(name, comment([*header(request), *HEADER]) + emit_all(parts))


def documents(request: Request) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Pipeline spec, platform spec (empty when there is nothing to say) and the number of steps, as plain data."""
    pipeline = with_alerts(without_approvals(request.pipeline), request.site)
    plan = request.plan if pipeline is request.pipeline else plan_of(pipeline, request.site)
    builder = build.Builder(plan.under(restarts_at(request.site)))
    dag = root(builder)
    own, whole = pipeline_options(pipeline), {"dag": dag.spec(pipeline.outputs)}
    if pipeline.params:
        whole["inputDefinitions"] = build.parameters_of(pipeline, builder.param_types)
    if pipeline.outputs:
        whole["outputDefinitions"] = build.outputs_of(
            {key: dag.produced[ref][2] for key, ref in pipeline.outputs.items()}
        )
    _tell_apart(builder)
    spec: Data = in_order({"components": builder.components, "root": whole, **_about(pipeline)})
    if own.display_name:
        spec["pipelineInfo"] = in_order({**spec["pipelineInfo"], "displayName": own.display_name})
    if own.pipeline_root:
        spec["defaultPipelineRoot"] = own.pipeline_root
    spec["deploymentSpec"] = {"executors": dict(sorted(builder.executors.items()))}
    written = dict(sorted(spec.items()))
    return written, _platform(builder, _run_config(pipeline)), len(builder.executors)


def _tell_apart(builder: build.Builder) -> None:
    """Give a container that another component has too, with other inputs or outputs, a variable of its own.

    KFP's compiler knows a component by the hash of its container alone (hashComponentContainer in
    backend/src/v2/compiler/argocompiler/argo.go, 2.17.0): the second one would be taken for the first, and its driver
    would fail for want of inputs.
    """
    known: dict[tuple[str, ...], list[tuple[Data, Data]]] = {}
    for name, component in builder.components.items():
        if (label := component.get("executorLabel")) is None:
            continue
        container = builder.executors[label]["container"]
        interface = {key: value for key, value in component.items() if key != "executorLabel"}
        alike = known.setdefault((container["image"], *container.get("command", ())), [])
        if any(container == other and interface != own for other, own in alike):
            env = [*container.get("env", ()), {"name": OWN_NAME, "value": name}]
            builder.executors[label] = {"container": {**container, "env": env}}
        else:
            alike.append((container, interface))


def _run_config(pipeline: Pipeline) -> dict[str, Any]:
    """What holds for a whole run."""
    ttl = pipeline_options(pipeline).ttl
    said = {
        "activeDeadlineSeconds": pipeline.deadline.seconds if pipeline.deadline else None,
        "resourceTtlOnCompletion": ttl.seconds if ttl else None,
    }
    return {key: value for key, value in said.items() if value is not None}


def _platform(builder: build.Builder, config: dict[str, Any]) -> dict[str, Any]:
    kubernetes: dict[str, Any] = {}
    said = {label: config for label, config in sorted(builder.configs.items()) if config}
    if said:
        kubernetes["deploymentSpec"] = {"executors": said}
    if config:
        kubernetes["pipelineConfig"] = config
    return {"platforms": {"kubernetes": kubernetes}} if kubernetes else {}


def _digest(spec: dict[str, Any], platform: dict[str, Any]) -> str:
    """A version is named after what it holds, so that a change makes a new one."""
    return hashlib.sha256(json.dumps([spec, platform], sort_keys=True).encode()).hexdigest()[:8]


def _resources(request: Request, version: str, spec: dict[str, Any], platform: dict[str, Any]) -> list[dict[str, Any]]:
    """Pipeline and PipelineVersion."""
    pipeline = request.pipeline
    name, labels = pipeline.name, {**request.site.labels, **pipeline.labels}
    metadata: dict[str, Any] = {"namespace": request.namespace} if request.namespace else {}
    if labels:
        metadata["labels"] = dict(sorted(labels.items()))
    shown = pipeline_options(pipeline).display_name or name
    about = {"description": pipeline.description} if pipeline.description else {}
    body = {"pipelineName": name, "displayName": version, **about, "pipelineSpec": spec}
    if platform:
        body["platformSpec"] = platform
    kind = {"apiVersion": "pipelines.kubeflow.org/v2beta1"}
    return [
        {**kind, "kind": "Pipeline", "metadata": {"name": name, **metadata}, "spec": {"displayName": shown, **about}},
        {**kind, "kind": "PipelineVersion", "metadata": {"name": version, **metadata}, "spec": body},
    ]


def _start(request: Request, package: str | None, version: str | None) -> list[str]:
    calls = run_calls(request.pipeline, request.site, package, request.namespace, version)
    how = "Runs on its schedule after:" if request.pipeline.schedule else "Start a run with:"
    return [client_line(request.site), how, *(f"  {call}" for call in calls)]
