"""What must hold of a step's inputs: they are files or directories, and each has a place of its own to lie in."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpuflow.errors import Finding
from gpuflow.spec.inputs import Input
from gpuflow.spec.params import a
from gpuflow.spec.places import below, lost_with_pod, overlap, place_fault, plain, volume_above, written
from gpuflow.spec.step import Step
from gpuflow.spec.step_rules import finding_at
from gpuflow.spec.text import OutputRef
from gpuflow.spec.types import declared_output, writer_of

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline

_WRITABLE = ("claim", "new_claim", "empty_dir", "memory", "host_path", "nfs", "csi", "ephemeral")
"""Volumes that files can be put into."""
_OURS = "/gpuflow"
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
        if (path_lost := _unmounted(pipeline, step, given)) is not None:
            text = f"{who} is kept at {path_lost}, and the step has no volume there"
            yield at("GF350", text, where, hint=f"mount the volume that {_ref(given)} is written to")
        for message, hint in (*_kind(pipeline, step, given), *_place(pipeline, step, mount, given)):
            yield at("GF185", f"{who} {message}", where, hint=hint)


def is_file(pipeline: Pipeline, given: Input) -> bool:
    """Whether an input is one file; of a fan-out it is a directory with one entry for each item."""
    if given.output is None:
        return given.type == "file"
    found = declared_output(pipeline, given.output)
    return found is not None and found[0].type == "file" and not found[1]


def _unmounted(pipeline: Pipeline, step: Step, given: Input) -> str | None:
    """The path where another step keeps the input, when no volume of this step holds it."""
    writer = writer_of(pipeline, given.output) if given.output is not None else None
    if writer is None or given.output is None:
        return None
    declared = declared_output(pipeline, given.output)
    uri = None if declared is None or not declared[0].is_artifact else declared[0].uri
    if place_fault(*writer, uri) is not None:
        return None  # it has its own finding
    # The uri is read as its writer means it, the volumes are those of this step.
    texts = [] if uri is None else written(*writer, uri)
    return next((lost for text in texts if (lost := lost_with_pod(pipeline, step, text, reads=True)) is not None), None)


def _ref(given: Input) -> str:
    return "" if given.output is None else f"{given.output.step}.{given.output.name}"


def _meant_output(pipeline: Pipeline, given: Input) -> str | None:
    """`train.model` where a uri is expected, and a step has such an output."""
    step, dot, name = given.uri.partition(".") if isinstance(given.uri, str) else ("", "", "")
    return f"{step}.{name}" if dot and declared_output(pipeline, OutputRef(step, name)) is not None else None


def _kind(pipeline: Pipeline, step: Step, given: Input) -> Iterator[tuple[str, str]]:
    wrong = place_fault(pipeline, step, given.uri)
    if wrong is not None:
        meant = _meant_output(pipeline, given)
        yield (wrong[0], f"write {{output: {meant}}}") if meant is not None else wrong
    found = declared_output(pipeline, given.output) if given.output is not None else None
    if found is None or given.output is None:
        return  # a name that leads nowhere has its own finding
    output, loops = found
    ref = _ref(given)
    if not output.is_artifact:
        yield (
            f"cannot be {ref}, which is {a(output.type)}, not a file or directory",
            "pass values in the command or env instead",
        )
    elif loops and given.digest is not None:
        yield f"cannot have a digest: {ref} is one artifact for each item", "remove digest"
    elif len(loops) > 1:
        yield f"cannot be {ref}, a list of lists of artifacts", "collect them in a step of the sub-pipeline"


def _place(pipeline: Pipeline, step: Step, mount: str, given: Input) -> Iterator[tuple[str, str]]:
    if "=" in mount or posixpath.normpath(mount) != mount.rstrip("/") or mount.rstrip("/") == "":
        yield "is not a path for an input", "write an absolute path without =, . and .., like /in/model"
        return
    own_folder = "choose another folder, like /in/model"
    earlier = True
    for other in step.inputs:
        if other == mount:
            earlier = False
        elif plain(other) == plain(mount):
            if earlier:
                yield f"is the same path as the input {other}", "give each input a folder of its own"
        elif plain(other) != "/" and below(mount, other):
            yield f"lies in the input {other}", "give each input a folder of its own, like /in/data and /in/model"
    for name, output in step.outputs.items():
        if output.path is not None and plain(output.path) != "/" and (how := overlap(mount, output.path)):
            yield f"{how} the output {name}, {output.path}", "give each a folder of its own"
    if below(mount, _OURS) or (step.checkpoint is not None and overlap(mount, step.checkpoint.path)):
        yield "lies where gpuflow-run keeps its own files", own_folder
    inside = [volume for volume in step.volumes if below(volume, mount) and plain(volume) != plain(mount)]
    if inside and given.is_fetched:
        yield f"has the volume at {inside[0]} in it", "mount the volume outside of the input"
    kernels = next((folder for folder in _KERNEL if below(mount, folder)), None)
    if kernels is not None and not plain(mount).startswith("/dev/shm/"):
        yield f"lies in {kernels}, which is the kernel's", own_folder
        return
    if any(below(mount, folder) for folder in _TOKENS):
        yield "lies where Kubernetes puts the pod's own credentials", own_folder
        return
    above = volume_above(step, mount)
    if given.claim is not None:
        if any(plain(volume) == plain(mount) for volume in step.volumes):
            yield "is a mount of volumes: too", "keep one of the two"
        elif plain(mount) in _SYSTEM:
            yield "would hide what the image has there", own_folder
        return
    if above is not None:
        volume = above[1]
        if volume.read_only or not any(getattr(volume, source) is not None for source in _WRITABLE):
            yield f"lies in the volume at {above[0]}, which cannot be written", "choose a path outside of it"
    elif not is_file(pipeline, given):
        if plain(mount) in _SYSTEM:
            yield "would hide what the image has there", own_folder
    elif (folder := posixpath.dirname(plain(mount))) == "/":
        yield "is a file in /, and its folder becomes a volume", "put it into a folder, like /in/config.json"
    elif folder in _SYSTEM:
        yield (
            f"is a file in {folder}, and its folder becomes a volume, which would hide what the image has there",
            f"put it into a folder of its own, like /in/{posixpath.basename(plain(mount))}",
        )
