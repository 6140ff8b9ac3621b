"""What must hold of one step in its pipeline: GPUs that exist, the lists it runs over, the files it mounts, reads and
keeps, and the memory of its later attempts.

Inputs are files or directories, and each has a path of its own. Each output is written to a path and kept at a place
that outlives the pod. Outputs that Airflow's images write as XCom (`outputs_from: xcom`) are values only.
"""

from __future__ import annotations

import json
import math
import posixpath
from collections import Counter
from collections.abc import Iterator
from functools import partial

from gpuflow.catalog.catalog import FormName, Model, UnknownGpu, UnknownProfile, model, models, profile
from gpuflow.catalog.profile_name import BadProfileName
from gpuflow.core.errors import Finding, did_you_mean
from gpuflow.spec.fan_out import MOST_COPIES, product_of, written_sizes
from gpuflow.spec.params import a, text_of
from gpuflow.spec.references import every_step, output_types, writer_of
from gpuflow.spec.resources import Gpu
from gpuflow.spec.step import Pipeline, Step, leader_step
from gpuflow.spec.storage_paths import (
    is_below,
    lost_with_pod,
    normalize_path,
    overlap,
    place_fault,
    possible_texts,
    volume_above,
)
from gpuflow.spec.text import OutputRef, ParamRef
from gpuflow.spec.volumes import Input

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


XCOM_RETURN_KEY = "return_value"
"""The output that is the whole file, not an entry of the map in it: what Airflow calls the value of a task."""
Fault = tuple[str, tuple[str, ...], str]
"""Message, place in the step, way out."""


def xcom_faults(step: Step) -> Iterator[Fault]:
    """What only the supervisor does, in a step whose program writes its outputs itself."""
    if step.outputs_from is None or not step.outputs:
        return
    for name, output in step.outputs.items():
        if output.is_artifact:
            text = f'the output "{name}" is a {output.type}, which gpuflow-run keeps at its uri; return.json has values'
            yield text, ("outputs", name), "let the program keep it, and write its place as a string"
        elif output.path is not None:
            text = f'the output "{name}" has a path, and nobody reads it: the program writes return.json itself'
            yield text, ("outputs", name, "path"), "remove path, or outputs_from"
    if XCOM_RETURN_KEY in step.outputs and len(step.outputs) > 1:
        text = f'"{XCOM_RETURN_KEY}" is the whole of return.json, and the step has other outputs beside it'
        yield text, ("outputs", XCOM_RETURN_KEY), f"keep {XCOM_RETURN_KEY} alone, or name the entries of the map"
    hint = "write each output to $GPUFLOW_OUTPUTS/<name>, and remove outputs_from (null, where defaults have it)"
    if any(given.is_fetched for given in step.inputs.values()):
        yield "inputs need gpuflow-run, which hands over the outputs too", ("inputs",), hint
    if step.checkpoint is not None:
        text = "a checkpoint needs gpuflow-run, which hands over the outputs too: of an attempt that it finds done, "
        yield f"{text}nobody would write return.json again", ("outputs_from",), hint


STORE_HINT = "keep it in s3://…, gs://…, az://…, or below a volume of the step that lasts, such as a claim"


def output_faults(pipeline: Pipeline, step: Step, path: tuple[str | int, ...]) -> Iterator[Finding]:
    """Every finding about the outputs of one step."""
    at = partial(finding_at, pipeline)
    kept: dict[str, str] = {}
    for name, output in step.outputs.items():
        who, where = f'step "{path[1]}": the output {name}', (*path, "outputs", name, "uri")
        wrong = place_fault(pipeline, step, output.uri)
        if wrong is not None:
            yield at("GF350", f"{who} {wrong[0]}", where, hint=wrong[1])
        elif (lost := lost_with_pod(pipeline, step, output.uri)) is not None:
            yield at("GF350", f"{who} would be kept at {lost} and be lost with the pod", where, hint=STORE_HINT)
        if isinstance(output.uri, str) and (other := kept.setdefault(output.uri.rstrip("/"), name)) != name:
            message = f'step "{path[1]}": the outputs {other} and {name} are kept at the same uri'
            yield at("GF147", message, where, hint="give each a place of its own")
    for name, message, hint in _paths(step):
        where = (*path, "outputs", name, "path")
        yield at("GF147", f'step "{path[1]}": the output {name} {message}', where, hint=hint)


def _paths(step: Step) -> Iterator[tuple[str, str, str]]:
    """Outputs that the program cannot write without writing something else."""
    written: dict[str, str] = {}
    checkpoint = None if step.checkpoint is None else step.checkpoint.path
    for name, output in step.outputs.items():
        if output.path is None:
            continue
        if normalize_path(output.path) == "/":
            yield name, "is at /, which is all of the container", "write it to a folder of its own, like /out/model"
            continue
        for other, its in written.items():
            outer = output if is_below(its, output.path) else step.outputs[other]
            nested = normalize_path(output.path) != normalize_path(its) and outer.type == "directory"
            # A report inside of the directory that is kept as a whole is kept twice, and both are what was meant.
            if not nested and (how := overlap(output.path, its)):
                hint = "give each a path of its own, like /out/model and /out/report"
                yield name, f"at {output.path} {how} the output {other}, {its}", hint
        written[name] = output.path
        # What lies below it is often the last checkpoint itself; the folder as a whole holds files of ours too.
        if checkpoint is not None and is_below(checkpoint, output.path) and (how := overlap(output.path, checkpoint)):
            hint = f"write the output to a folder of its own, or inside, like {posixpath.join(checkpoint, 'final')}"
            yield name, f"at {output.path} {how} the folder of the checkpoints, {checkpoint}", hint


_WRITABLE = ("claim", "new_claim", "empty_dir", "memory", "host_path", "nfs", "csi", "ephemeral")
"""Volumes that files can be put into."""
_OWN_FOLDER = "/gpuflow"
"""Where the supervisor has its own folders."""
_KERNEL = ("/proc", "/sys", "/dev")
_TOKENS = ("/var/run/secrets", "/run/secrets")
_SYSTEM = frozenset(
    (
        "/bin", "/boot", "/etc", "/etc/ssl", "/etc/ssl/certs", "/lib", "/lib32", "/lib64", "/run", "/sbin", "/usr",
        "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/local", "/usr/local/bin", "/usr/local/lib",
        "/usr/local/lib64", "/usr/local/sbin", "/usr/sbin", "/usr/share", "/var", "/var/lib", "/var/run",
    )
)  # fmt: skip
"""Folders without which an image's programs do not start, or do not find their libraries and certificates."""


def input_faults(pipeline: Pipeline, step: Step, path: tuple[str | int, ...]) -> Iterator[Finding]:
    """Every finding about the inputs of one step."""
    at = partial(finding_at, pipeline)
    for mount, given in step.inputs.items():
        where = (*path, "inputs", mount)
        who = f'step "{path[1]}": the input {mount}'
        if (path_lost := _unmounted_path(pipeline, step, given)) is not None:
            text = f"{who} is kept at {path_lost}, and the step has no volume there"
            yield at("GF350", text, where, hint=f"mount the volume that {_ref(given)} is written to")
        for message, hint in (*_kind(pipeline, step, given), *_mount_problems(pipeline, step, mount, given)):
            yield at("GF185", f"{who} {message}", where, hint=hint)


def is_file(pipeline: Pipeline, given: Input) -> bool:
    """Whether an input is one file; of a fan-out it is a directory with one entry for each item."""
    if given.output is None:
        return given.type == "file"
    found = pipeline.declared_output(given.output)
    return found is not None and found[0].type == "file" and not found[1]


def _unmounted_path(pipeline: Pipeline, step: Step, given: Input) -> str | None:
    """The path where another step keeps the input, when no volume of this step holds it."""
    writer = writer_of(pipeline, given.output) if given.output is not None else None
    if writer is None or given.output is None:
        return None
    declared = pipeline.declared_output(given.output)
    uri = None if declared is None or not declared[0].is_artifact else declared[0].uri
    if place_fault(*writer, uri) is not None:
        return None  # it has its own finding
    # The uri is read as its writer means it, the volumes are those of this step.
    texts = [] if uri is None else possible_texts(*writer, uri)
    return next((lost for text in texts if (lost := lost_with_pod(pipeline, step, text, reads=True)) is not None), None)


def _ref(given: Input) -> str:
    return "" if given.output is None else f"{given.output.step}.{given.output.name}"


def _meant_output(pipeline: Pipeline, given: Input) -> str | None:
    """`train.model` where a uri is expected, and a step has such an output."""
    step, dot, name = given.uri.partition(".") if isinstance(given.uri, str) else ("", "", "")
    return f"{step}.{name}" if dot and pipeline.declared_output(OutputRef(step, name)) is not None else None


def _kind(pipeline: Pipeline, step: Step, given: Input) -> Iterator[tuple[str, str]]:
    wrong = place_fault(pipeline, step, given.uri)
    if wrong is not None:
        meant = _meant_output(pipeline, given)
        yield (wrong[0], f"write {{output: {meant}}}") if meant is not None else wrong
    found = pipeline.declared_output(given.output) if given.output is not None else None
    if found is None or given.output is None:
        return  # a name that leads nowhere has its own finding
    output, loops = found
    ref = _ref(given)
    if not output.is_artifact:
        text = f"cannot be {ref}, which is {a(output.type)}, not a file or directory"
        yield text, "pass values in the command or env instead"
    elif loops and given.digest is not None:
        yield f"cannot have a digest: {ref} is one artifact for each item", "remove digest"
    elif len(loops) > 1:
        yield f"cannot be {ref}, a list of lists of artifacts", "collect them in a step of the sub-pipeline"


def _mount_problems(pipeline: Pipeline, step: Step, mount: str, given: Input) -> Iterator[tuple[str, str]]:
    if "=" in mount or posixpath.normpath(mount) != mount.rstrip("/") or mount.rstrip("/") == "":
        yield "is not a path for an input", "write an absolute path without =, . and .., like /in/model"
        return
    own_folder = "choose another folder, like /in/model"
    earlier = True
    for other in step.inputs:
        if other == mount:
            earlier = False
        elif normalize_path(other) == normalize_path(mount):
            if earlier:
                yield f"is the same path as the input {other}", "give each input a folder of its own"
        elif normalize_path(other) != "/" and is_below(mount, other):
            yield f"lies in the input {other}", "give each input a folder of its own, like /in/data and /in/model"
    for name, output in step.outputs.items():
        if output.path is not None and normalize_path(output.path) != "/" and (how := overlap(mount, output.path)):
            yield f"{how} the output {name}, {output.path}", "give each a folder of its own"
    if is_below(mount, _OWN_FOLDER) or (step.checkpoint is not None and overlap(mount, step.checkpoint.path)):
        yield "lies where gpuflow-run keeps its own files", own_folder
    inside = [
        volume for volume in step.volumes if is_below(volume, mount) and normalize_path(volume) != normalize_path(mount)
    ]
    if inside and given.is_fetched:
        yield f"has the volume at {inside[0]} in it", "mount the volume outside of the input"
    kernels = next((folder for folder in _KERNEL if is_below(mount, folder)), None)
    if kernels is not None and not normalize_path(mount).startswith("/dev/shm/"):
        yield f"lies in {kernels}, which is the kernel's", own_folder
        return
    if any(is_below(mount, folder) for folder in _TOKENS):
        yield "lies where Kubernetes puts the pod's own credentials", own_folder
        return
    above = volume_above(step, mount)
    if given.claim is not None:
        if any(normalize_path(volume) == normalize_path(mount) for volume in step.volumes):
            yield "is a mount of volumes: too", "keep one of the two"
        elif normalize_path(mount) in _SYSTEM:
            yield "would hide what the image has there", own_folder
        return
    if above is not None:
        volume = above[1]
        if volume.read_only or not any(getattr(volume, source) is not None for source in _WRITABLE):
            yield f"lies in the volume at {above[0]}, which cannot be written", "choose a path outside of it"
    elif not is_file(pipeline, given):
        if normalize_path(mount) in _SYSTEM:
            yield "would hide what the image has there", own_folder
    elif (folder := posixpath.dirname(normalize_path(mount))) == "/":
        yield "is a file in /, and its folder becomes a volume", "put it into a folder, like /in/config.json"
    elif folder in _SYSTEM:
        text = f"is a file in {folder}, and its folder becomes a volume, which would hide what the image has there"
        yield text, f"put it into a folder of its own, like /in/{posixpath.basename(normalize_path(mount))}"
