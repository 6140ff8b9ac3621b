"""Everything a pipeline can say, as a vocabulary of constructs, and which of them a given pipeline uses.

A target's capability table has one entry per construct. A construct that is used and not carried is a loss, so a new
field of the spec is refused by every target until its table says otherwise: nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from gpuflow.spec import expression
from gpuflow.spec.container import ConfigMapKey, SecretKey
from gpuflow.spec.engine_options import PipelineEngines, StepEngines
from gpuflow.spec.fan_out import Range
from gpuflow.spec.kubernetes_fields import merged_texts
from gpuflow.spec.notify import CHANNELS
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Kubernetes, Leader
from gpuflow.spec.step import Step
from gpuflow.spec.text import RUN_FIELDS, OutputRef, ParamRef, RunRef, Text, parts_of
from gpuflow.spec.volumes import VOLUME_SOURCES

Place = tuple[str | int, ...]


class Use(NamedTuple):
    """A construct that a pipeline uses, and where."""

    construct: str
    step: str | None
    path: Place


ENGINE_OPTIONS: dict[str, str] = {f"engines.{engine}": engine for engine in PipelineEngines.model_fields}
"""What is said to one engine in its own words, and to which. It says nothing to the others, so every table has it among
what is carried."""
PIPELINE_FIELDS = ("on_data", "parallel", "deadline", "claims", "params", "schedule")
"""Fields of a pipeline, not of its steps, that are constructs by their own name."""


def _pipeline_constructs(pipeline: Pipeline) -> Iterator[tuple[str, Place]]:
    schedule = pipeline.schedule
    if schedule is not None:
        yield "schedule", ("schedule",)
        if schedule.timezone != "UTC":
            yield "schedule.timezone", ("schedule", "timezone")
        if schedule.start is not None:
            yield "schedule.start", ("schedule", "start")
        if schedule.catch_up:
            yield "schedule.catch_up", ("schedule", "catch_up")
        if schedule.concurrency == "replace":
            yield "schedule.replace", ("schedule", "concurrency")
        if schedule.suspended:
            yield "schedule.suspended", ("schedule", "suspended")
    if schedule is not None and pipeline.on_data:
        yield "on_data.with_schedule", ("on_data",)
    for name in PIPELINE_FIELDS:
        if name != "schedule" and getattr(pipeline, name):
            yield name, (name,)
    for name, param in pipeline.params.items():
        if param.enum is not None:
            yield "params.enum", ("params", name, "enum")
        if param.min is not None or param.max is not None:
            yield "params.range", ("params", name)
    yield from _engine_options(pipeline.engines)
    for index, alert in enumerate(pipeline.notify or ()):
        yield f"notify.{alert.channel}", ("notify", index, alert.channel)
    for name, step in pipeline.exit.items():
        yield f"exit.{step.on or 'always'}", ("exit", name)
        for path, ref in step.references():
            if isinstance(ref, OutputRef):
                yield "exit.outputs", ("exit", name, *path)


def _engine_options(said: PipelineEngines | StepEngines | None) -> Iterator[tuple[str, Place]]:
    for construct, engine in ENGINE_OPTIONS.items() if said is not None else ():
        if getattr(said, engine) is not None:
            yield construct, ("engines", engine)


_ENV_KINDS: dict[type, str] = {SecretKey: "env.secret", ConfigMapKey: "env.config_map"}
FieldReader = Callable[[Step], Any]


def _kubernetes_field(field: str, step: Step) -> Any:
    return step.kubernetes and getattr(step.kubernetes, field)


_IN_POD: dict[str, FieldReader] = {
    "env_from": lambda s: s.env_from,
    "shm": lambda s: s.shm,
    "sidecars": lambda s: s.sidecars,
    "init_containers": lambda s: s.init_containers,
    "probes": lambda s: s.probes,
    "lifecycle": lambda s: s.lifecycle,
    "working_dir": lambda s: s.working_dir,
    "image_pull_policy": lambda s: s.image_pull_policy,
    "image_pull_secrets": lambda s: s.image_pull_secrets,
    "service_account": lambda s: s.service_account,
    "annotations": lambda s: s.annotations,
    "termination_grace": lambda s: s.termination_grace or (s.checkpoint and s.checkpoint.grace),
    "ephemeral_storage": lambda s: s.ephemeral_storage,
    "gpu": lambda s: s.gpu,
    "gpu.any": lambda s: s.gpu and s.gpu.is_any,
    "gpu.any_of": lambda s: s.gpu and s.gpu.model is None and not s.gpu.is_any,
    "gpu.form": lambda s: s.gpu and s.gpu.form,
    "mig": lambda s: s.mig,
    "shared_gpu": lambda s: s.shared_gpu,
    "device_claim": lambda s: s.device_claim,
    "queue": lambda s: s.queue,
    "priority.pod": lambda s: s.priority and s.priority.pod,
    "priority.queue": lambda s: s.priority and s.priority.queue,
    "spot": lambda s: s.spot,
    "topology.same": lambda s: s.topology and s.topology.same,
    "topology.spread": lambda s: s.topology and s.topology.spread,
    "security.run_as_root": lambda s: s.security and s.security.run_as_root,
    "security.identity": lambda s: (
        s.security and any(value is not None for value in (s.security.user, s.security.group, s.security.fs_group))
    ),
    "security.read_only_root": lambda s: s.security and s.security.read_only_root,
    "security.add_capabilities": lambda s: s.security and s.security.add_capabilities,
    "security.privileged": lambda s: s.security and s.security.privileged,
    **{f"kubernetes.{field}": partial(_kubernetes_field, field) for field in Kubernetes.model_fields},
}
"""Constructs that say something about the step's pod and nothing else: `pod_for` makes it, and a target takes it."""
_OF_STEP: dict[str, FieldReader] = {
    "when": lambda s: s.when is not None,
    "if_skipped.run": lambda s: s.if_skipped == "run",
    "for_each.parallel": lambda s: s.parallel,
    "for_each.matrix": lambda s: len(s.for_each or ()) > 1,
    "pipeline": lambda s: s.pipeline is not None,
    "pipeline.timeout": lambda s: s.pipeline is not None and s.timeout,
    "pipeline.deadline": lambda s: s.pipeline is not None and s.pipeline.deadline,
    "approval": lambda s: s.approval is not None,
    "approval.timeout": lambda s: s.approval is not None and s.approval.timeout is not None,
    "when.item": lambda s: expression.asks_item(s.when),
    "for_each.dynamic_matrix": lambda s: (
        len(s.for_each or ()) > 1
        and any(isinstance(source, ParamRef | OutputRef) for source in (s.for_each or {}).values())
    ),
    "script": lambda s: s.script is not None,
    "inputs": lambda s: s.inputs,
    "inputs.size": lambda s: any(given.size for given in s.inputs.values()),
    "outputs.size": lambda s: any(output.size for output in s.outputs.values()),
    "outputs_from": lambda s: s.outputs_from and s.outputs,
    "gang": lambda s: s.gang,
    "checkpoint": lambda s: s.checkpoint,
    "checkpoint.scratch": lambda s: s.checkpoint and s.checkpoint.scratch,
    "queue_timeout": lambda s: s.queue_timeout,
    "spot.fallback_after": lambda s: s.spot and s.spot.fallback_after,
    "timeout": lambda s: s.timeout and s.pipeline is None,
    "cache": lambda s: s.cache,
    "retry.any": lambda s: s.retry and s.retry.any,
    "retry.failures": lambda s: s.retry and s.retry.failures,
    "retry.interruptions": lambda s: s.retry and s.retry.interruptions,
    "retry.backoff": lambda s: s.retry and s.retry.backoff,
    "retry.final_exit_codes": lambda s: s.retry and s.retry.final_exit_codes,
    "retry.retryable_exit_codes": lambda s: s.retry and s.retry.retryable_exit_codes is not None,
    "retry.more_memory": lambda s: s.retry and s.retry.more_memory,
    "retry.other_node": lambda s: s.retry and s.retry.other_node,
}
"""The other constructs of a step that are there or not."""
_PLACES: dict[str, Place] = {
    "for_each.parallel": ("parallel",),
    "pipeline.timeout": ("timeout",),
    "pipeline.deadline": ("pipeline", "deadline"),
}
"""Where a construct stands, when its name does not say."""
_FIELDS = {"for_each.parallel": ("parallel",), "termination_grace": ("termination_grace", "checkpoint")}
"""The fields of a step that a construct may stand in, when its name does not say."""


def _by_field() -> dict[str, list[tuple[str, Place, FieldReader]]]:
    """The constructs by field: a step sets few of its fields, and only those are asked about."""
    found: dict[str, list[tuple[str, Place, FieldReader]]] = {}
    for construct, present in (_IN_POD | _OF_STEP).items():
        first = construct.split(".")[0]
        for field in _FIELDS.get(construct, (first,)):
            found.setdefault(field, []).append((construct, _PLACES.get(construct, (first,)), present))
    return found


_BY_FIELD = _by_field()
STEP_FIELDS = frozenset(_BY_FIELD)
"""Fields of a step that constructs are looked for in."""


def _step_constructs(step: Step) -> Iterator[tuple[str, Place]]:
    values = step.__dict__
    for field, constructs in _BY_FIELD.items():
        if values[field]:
            for construct, place, present in constructs:
                if present(step):
                    yield construct, place
    for name, source in (step.for_each or {}).items():
        kind = {ParamRef: "param", OutputRef: "output", Range: "range"}.get(type(source), "list")
        yield f"for_each.{kind}", ("for_each", name)
    for name, output in step.outputs.items():
        yield "outputs.artifact" if output.is_artifact else "outputs.value", ("outputs", name)
        if output.default is not None:
            yield "outputs.default", ("outputs", name, "default")
    for mount, volume in step.volumes.items():
        origin = next(source for source in VOLUME_SOURCES if getattr(volume, source) is not None)
        yield f"volumes.{origin}", ("volumes", mount)
        for field in ("sub_path", "items", "default_mode"):
            if getattr(volume, field):
                yield f"volumes.{field}", ("volumes", mount, field)
    for name, value in step.env.items():
        if type(value) in _ENV_KINDS:
            yield _ENV_KINDS[type(value)], ("env", name)
    yield from _engine_options(step.engines)
    for path, text in texts_of(step):
        if "{{" in text:
            yield "text.braces", path
    for path, ref in step.references():
        if isinstance(ref, RunRef) and ref.field != "id":
            yield f"run.{ref.field}", path
            if ref.format is not None:
                yield "run.format", path
            if ref.timezone not in (None, "UTC"):
                yield "run.timezone", path


def texts_of(step: Step) -> Iterator[tuple[Place, str]]:
    """Every literal the user wrote that reaches a container."""
    yield from _of_program(step, ())
    if step.gang is not None and step.gang.leader is not None:
        yield from _of_program(step.gang.leader, ("gang", "leader"))
    for kind in ("init_containers", "sidecars"):
        for index, helper in enumerate(getattr(step, kind)):
            for value in (*helper.command, *helper.args, *(v for v in helper.env.values() if isinstance(v, str))):
                yield from _parts((kind, index), value)


def _of_program(step: Step | Leader, place: Place) -> Iterator[tuple[Place, str]]:
    """Of a step, or of what is different in the leader of its gang."""
    for field in ("command", "args"):
        for index, value in enumerate(getattr(step, field)):
            if isinstance(value, str):  # most are nothing else
                yield (*place, field, index), value
            else:
                yield from _parts((*place, field, index), value)
    for name, value in step.env.items():
        if isinstance(value, str):
            yield (*place, "env", name), value
        elif type(value) not in _ENV_KINDS:
            yield from _parts((*place, "env", name), value)
    if step.script is not None:
        yield (*place, "script"), step.script.run
    if step.kubernetes is not None and step.kubernetes.merge is not None:
        where = (*place, "kubernetes", "merge")
        yield from (((*where, *path), text) for path, text in merged_texts(step.kubernetes.merge))


def _parts(place: Place, value: Text) -> list[tuple[Place, str]]:
    """The literals in one text, each with its place."""
    return [(place, part) for part in parts_of(value) if isinstance(part, str)]


POD: tuple[str, ...] = tuple(
    sorted(
        {
            "env.secret", "env.config_map", "volumes.claim", "volumes.config_map", "volumes.secret",
            "volumes.empty_dir", "volumes.memory", "volumes.sub_path", "volumes.host_path", "volumes.nfs",
            "volumes.csi", "volumes.ephemeral", "volumes.projected", "volumes.items", "volumes.default_mode",
            *_IN_POD,
        }
    )
)  # fmt: skip
"""The constructs that are whole in the step's pod. A target that takes pods as they are carries all of them."""

RUN: tuple[str, ...] = tuple(f"run.{name}" for name in (*RUN_FIELDS, "format", "timezone") if name != "id")
"""Facts of the run in a step's text. Every engine has an id of its runs; the rest is asked for."""

VOCABULARY: tuple[str, ...] = tuple(
    sorted(
        {
            "schedule", "schedule.timezone", "schedule.start",
            "schedule.catch_up", "schedule.replace", "schedule.suspended", "on_data", "on_data.with_schedule",
            "parallel", "deadline", "claims", "params", "params.enum", "params.range", "exit.always", "exit.failure",
            "exit.success", "exit.outputs", "for_each.list", "for_each.param", "for_each.output", "for_each.range",
            "outputs.value", "outputs.artifact", "outputs.default", "volumes.new_claim", "text.braces",
            *(f"notify.{channel}" for channel in CHANNELS), *POD, *RUN, *_OF_STEP, *ENGINE_OPTIONS,
        }
    )
)  # fmt: skip
"""Every construct there is; each target's table answers for each of them."""


def uses(pipeline: Pipeline) -> Iterator[Use]:
    """The constructs a pipeline uses, sub-pipelines included, in document order."""
    for construct, path in _pipeline_constructs(pipeline):
        yield Use(construct, str(path[1]) if path[0] == "exit" else None, path)
    for section in ("steps", "exit"):
        for name in getattr(pipeline, section):
            step = pipeline.effective(name)
            for construct, path in _step_constructs(step):
                yield Use(construct, name, (section, name, *path))
            if step.pipeline is not None:
                for use in uses(step.pipeline):
                    if use.construct == "deadline":
                        continue  # of a whole run only; a sub-pipeline's own is said above
                    inner = f"{name}.{use.step}" if use.step else name
                    yield Use(use.construct, inner, (section, name, "pipeline", *use.path))
