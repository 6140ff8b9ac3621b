"""What must hold of a step's inputs and outputs.

Inputs are files or directories, and each has a path of its own. Each output is written to a path and kept at a place
that outlives the pod. Outputs that Airflow's images write as XCom (`outputs_from: xcom`) are values only.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import partial

from gpuflow.core.errors import Finding
from gpuflow.spec.params import a
from gpuflow.spec.references import writer_of
from gpuflow.spec.rules.step_rules import finding_at
from gpuflow.spec.step import Pipeline, Step
from gpuflow.spec.storage_paths import (
    is_below,
    lost_with_pod,
    normalize_path,
    overlap,
    place_fault,
    possible_texts,
    volume_above,
)
from gpuflow.spec.text import OutputRef
from gpuflow.spec.volumes import Input

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
