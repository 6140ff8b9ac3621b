"""What must hold of one step in its pipeline: GPUs that exist, the lists it runs over, the files it mounts, reads and
keeps, and the memory of its later attempts.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from functools import partial

from gpuflow.catalog.catalog import FormName, Model, UnknownGpu, UnknownProfile, model, models, profile
from gpuflow.catalog.profile_name import BadProfileName
from gpuflow.core.errors import Finding, did_you_mean
from gpuflow.spec.fan_out import MOST_COPIES, product_of, written_sizes
from gpuflow.spec.params import a, text_of
from gpuflow.spec.references import every_step, output_types
from gpuflow.spec.resources import Gpu
from gpuflow.spec.step import Pipeline, Step, leader_step
from gpuflow.spec.storage_paths import normalize_path
from gpuflow.spec.text import OutputRef, ParamRef

Place = tuple[str | int, ...]
Problem = tuple[str, str, Place, str | None]


def check_hardware(step: Step) -> Iterator[Problem]:
    """Code, message, place within the step, and way out of each problem."""
    if step.gpu is not None:
        yield from _gpu(step.gpu, ("gpu",))
    leader = step.gang.leader if step.gang is not None else None
    if leader is not None and leader.gpu is not None:
        yield from _gpu(leader.gpu, ("gang", "leader", "gpu"))
    if step.shared_gpu is not None and step.shared_gpu.model is not None:
        yield from _model(step.shared_gpu.model, ("shared_gpu", "model"))
    if step.mig is not None:
        unknown = list(_model(step.mig.model, ("mig", "model")))
        yield from unknown
        if not unknown:
            yield from _profile(step.mig.model, step.mig.profile)


def _gpu(gpu: Gpu, place: Place) -> Iterator[Problem]:
    if gpu.model is not None:
        yield from _model(gpu.model, (*place, "model"), gpu.form)
    for index, name in enumerate(gpu.any_of or ()):
        yield from _model(name, (*place, "any_of", index), gpu.form)


def _model(name: str, place: Place, form: FormName | None = None) -> Iterator[Problem]:
    try:
        owner = model(name)
    except UnknownGpu as refusal:
        message, _, hint = str(refusal).partition("; ")
        yield "GF201", message, place, hint or None
        return
    refused = None if form is None else form_problem(owner, form)
    if refused is not None:
        above = next(index for index, part in enumerate(place) if part in ("model", "any_of"))
        yield "GF204", refused[0], (*place[:above], "form"), refused[1]


def form_problem(owner: Model, form: FormName) -> tuple[str, str] | None:
    """Why the model has no such form, and the way out; None when it has it."""
    has = [each.name for each in owner.forms]
    if form in has:
        return None
    if not has:
        return f"{owner.id} comes in no form that node labels tell apart", "leave form out"
    # H100 NVL is a model of its own, with other memory.
    other = next((each for each in models() if f"{owner.id.partition('-')[0]}-{form}" in each.aliases), None)
    hint = f"use form: {' or '.join(has)}, or leave form out"
    return f"{owner.id} has no form {form}; it has {' and '.join(has)}", f"use {other.id}" if other else hint


def _profile(owner: str, name: str) -> Iterator[Problem]:
    try:
        profile(owner, name)
    except (UnknownProfile, BadProfileName) as refusal:
        message, _, hint = str(refusal).partition("; ")
        yield "GF202", message, ("mig", "profile"), hint or f"see: gpuflow gpus show {owner}"


def finding_at(
    pipeline: Pipeline, code: str, message: str, path: Place, hint: str | None = None, *, key: bool = False
) -> Finding:
    """A finding at a part of the document."""
    return Finding(code, message, pipeline.where(*path, key=key), hint)


def fan_out_faults(pipeline: Pipeline, step: Step, path: Place) -> Iterator[Finding]:
    """A step runs over lists, and over no item twice where it is found again by its item."""
    if step.for_each is None:
        return
    at = partial(finding_at, pipeline)
    sizes = written_sizes(step.for_each)
    if math.prod(sizes) > MOST_COPIES:
        message = f'the fan-out of step "{path[1]}" makes {product_of(sizes)}; {MOST_COPIES:,} is the most'
        yield at("GF163", message, (*path, "for_each"), "let each copy work through several items")
    for name, source in step.for_each.items():
        kind: str | None = None
        if isinstance(source, ParamRef) and source.name in pipeline.params:
            kind = pipeline.params[source.name].type
        elif isinstance(source, OutputRef) and source.step in pipeline.steps:
            kind = output_types(pipeline.steps[source.step]).get(source.name)
        if kind is not None and kind != "json":
            message = f'step "{path[1]}" runs over {a(kind)}, which is not a list'
            yield at("GF182", message, (*path, "for_each", name), "declare it with type: json")
        default = pipeline.params[source.name].default if isinstance(source, ParamRef) and kind == "json" else None
        if default is not None and not isinstance(default, list):
            message = f'step "{path[1]}" runs over "{name}", whose default is not a list'
            yield at("GF182", message, (*path, "for_each", name), "give it a list as default")
        given = default if isinstance(default, list) else source if isinstance(source, tuple) else ()
        twice = next((text for text, count in Counter(map(text_of, given)).items() if count > 1), None)
        if twice is not None and _keeps_state(step):
            message = f'step "{path[1]}" runs twice over {json.dumps(twice, ensure_ascii=False)} in "{name}": '
            message += "both would share one checkpoint and one retry count"
            hint = "give every item a unique value, for example by adding a number"
            yield at("GF194", message, (*path, "for_each", name), hint)


def _keeps_state(step: Step) -> bool:
    """Whether attempts of the step, or of a step inside it, are found again by the item they run for."""
    inside = (each for _, each in every_step(step.pipeline)) if step.pipeline is not None else ()
    return any(
        each.checkpoint is not None or (each.retry is not None and each.retry.interruptions > 0)
        for each in (step, *inside)
    )


def file_faults(pipeline: Pipeline, step: Step, path: Place) -> Iterator[Finding]:
    """Volumes that are there, paths that are free, a store that outlives the pod."""
    at = partial(finding_at, pipeline)
    for mount, volume in step.volumes.items():
        if volume.new_claim is not None and volume.new_claim not in pipeline.claims:
            hint = did_you_mean(volume.new_claim, pipeline.claims) or "add it under claims:"
            text = f'step "{path[1]}" mounts the claim "{volume.new_claim}", which the pipeline does not declare'
            yield at("GF183", text, (*path, "volumes", mount, "new_claim"), hint)
    mounted: dict[str, str] = {}
    for mount in step.volumes:
        if (other := mounted.setdefault(normalize_path(mount), mount)) != mount:
            message = f'step "{path[1]}" mounts {normalize_path(mount)} twice: as {other} and as {mount}'
            yield at("GF184", message, (*path, "volumes", mount), hint="keep one")
    if step.shm is not None and "/dev/shm" in mounted:
        text = f'step "{path[1]}" mounts /dev/shm twice: by shm and by volumes'
        yield at("GF184", text, (*path, "volumes", mounted["/dev/shm"]), hint="keep one")
    own = getattr(pipeline, str(path[0]))[path[1]].checkpoint
    if own is not None and own.sharded and step.gang is None:
        text = f'step "{path[1]}": checkpoint.sharded is for a gang, whose ranks each write a part'
        hint = "remove it: the checkpoints of one pod are whole"
        yield at("GF166", text, (*path, "checkpoint", "sharded"), hint)
    if step.checkpoint is not None and isinstance(step.checkpoint.store, str):
        yield from _store(pipeline, step, path, step.checkpoint.store)


def null_faults(pipeline: Pipeline, step: Step, path: Place) -> Iterator[Finding]:
    """A key that is set to null takes something away."""
    for field, key in sorted((each[0], each[1]) for each in step.nulls if len(each) > 1):
        known = getattr(pipeline.defaults, field)
        if key not in known:
            text = f'step "{path[1]}" sets {field} {key} to null, and the defaults have no such key'
            hint = did_you_mean(key, known) or "remove the line"
            yield finding_at(pipeline, "GF374", text, (*path, field, key), hint, key=True)


def leader_faults(pipeline: Pipeline, step: Step, path: Place) -> Iterator[Finding]:
    """What is different in the leader of a gang must be possible beside what it has of the step."""
    leader = step.gang.leader if step.gang is not None else None
    if leader is None:
        return
    place, who = (*path, "gang", "leader"), f'step "{path[1]}": the leader'
    if leader.args and not leader.command and not step.command:
        text = f"{who} has args, which belong to a command, and the step has a script"
        yield finding_at(pipeline, "GF164", text, (*place, "args"), hint="give the leader a command, or a script")
    if leader.shm is not None and "/dev/shm" in step.volumes:
        text = f"{who} mounts /dev/shm twice: by its shm, and by the step's volumes"
        yield finding_at(pipeline, "GF184", text, (*place, "shm"), hint="keep one")
    for key in sorted(each[1] for each in leader.nulls if len(each) > 1 and each[1] not in step.env):
        hint = did_you_mean(key, step.env) or "remove the line"
        text = f"{who} sets env {key} to null, and the step has no such variable"
        yield finding_at(pipeline, "GF374", text, (*place, "env", key), hint=hint, key=True)
    if leader.memory is not None:
        yield from memory_faults(pipeline, leader_step(step), path, f"{who} of the gang")


def memory_faults(
    pipeline: Pipeline, step: Step, path: tuple[str | int, ...], who: str | None = None
) -> Iterator[Finding]:
    """More memory after running out of it is never less than at the start."""
    policy = step.retry.more_memory if step.retry is not None else None
    if policy is None or step.memory is None:
        return
    first = max(amount for amount in (step.memory.request, step.memory.limit) if amount is not None)
    if policy.max < first:
        own = getattr(pipeline, str(path[0]))[path[1]].retry is not None
        who = who or f'step "{path[1]}"'
        text = f"{who} starts with {first} of memory, and retry.more_memory.max is {policy.max}: "
        text += "after running out of memory it would get less"
        place = (*(path if own else ("defaults",)), "retry", "more_memory", "max")
        yield finding_at(pipeline, "GF195", text, place, f"raise max above {first}, or drop more_memory")


def _store(pipeline: Pipeline, step: Step, path: tuple[str | int, ...], store: str) -> Iterator[Finding]:
    place = (*path, "checkpoint", "store")
    scheme, separator, _ = store.partition("://")
    if separator:
        if scheme not in ("s3", "gs", "az", "abfs", "file"):
            text = f'step "{path[1]}": the store {scheme}:// is not known'
            yield finding_at(pipeline, "GF186", text, place, hint=did_you_mean(scheme, ("s3", "gs", "az", "abfs")))
    elif not any(store == mount or store.startswith(mount.rstrip("/") + "/") for mount in step.volumes):
        text = f'step "{path[1]}": checkpoints kept at {store} would be lost with the pod'
        hint = "keep them in s3://…, gs://…, az://…, or on a path below one of the step's volumes"
        yield finding_at(pipeline, "GF186", text, place, hint)
