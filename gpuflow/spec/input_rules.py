"""What must hold of a step's inputs: they are files or directories, and each has a place of its own to lie in."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

from gpuflow.errors import Finding
from gpuflow.spec.inputs import Input
from gpuflow.spec.params import a
from gpuflow.spec.step import Step
from gpuflow.spec.step_rules import finding_at
from gpuflow.spec.text import parts_of
from gpuflow.spec.types import declared_output
from gpuflow.spec.volumes import Volume

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline

_WRITABLE = ("claim", "new_claim", "empty_dir", "memory", "host_path", "nfs", "csi", "ephemeral")
"""Volumes that files can be put into."""
_SCHEMES = ("s3://…", "gs://…", "az://…")
_STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "file")
"""What `gpuflow-run` can fetch from."""
_OURS = "/gpuflow"
"""Where the supervisor has its own folders."""


def input_faults(pipeline: Pipeline, step: Step, path: tuple[str | int, ...]) -> Iterator[Finding]:
    """Every finding about the inputs of one step."""
    at = partial(finding_at, pipeline)
    for mount, given in step.inputs.items():
        where = (*path, "inputs", mount)
        who = f'step "{path[1]}": the input {mount}'
        for message, hint in (*_kind(pipeline, given), *_place(pipeline, step, mount, given)):
            yield at("GF185", f"{who} {message}", where, hint=hint)
    kept: dict[str, str] = {}
    for name, output in step.outputs.items():
        if isinstance(output.uri, str) and (other := kept.setdefault(output.uri.rstrip("/"), name)) != name:
            message = f'step "{path[1]}": the outputs {other} and {name} are kept at the same uri'
            yield at("GF147", message, (*path, "outputs", name, "uri"), hint="give each a place of its own")


def is_file(pipeline: Pipeline, given: Input) -> bool:
    """Whether an input is one file; of a fan-out it is a directory with one entry for each item."""
    if given.output is None:
        return given.type == "file"
    found = declared_output(pipeline, given.output)
    return found is not None and found[0].type == "file" and not found[1]


def below(path: str, folder: str) -> bool:
    """Whether a path is a folder, or in it."""
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def volume_above(step: Step, path: str) -> tuple[str, Volume] | None:
    """The volume of the step that holds a path, with its mount: the innermost one."""
    mounts = [mount for mount in step.volumes if below(path, mount)]
    return None if not mounts else (mount := max(mounts, key=len), step.volumes[mount])


def _kind(pipeline: Pipeline, given: Input) -> Iterator[tuple[str, str]]:
    first = "" if given.uri is None else parts_of(given.uri)[0]
    if given.uri is not None and isinstance(first, str) and not _is_place(first):
        yield f"is at {first[:60]!r}, which is no place", f"write {', '.join(_SCHEMES)} or an absolute path"
    found = declared_output(pipeline, given.output) if given.output is not None else None
    if found is None or given.output is None:
        return  # a name that leads nowhere has its own finding
    output, loops = found
    ref = f"{given.output.step}.{given.output.name}"
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
    for other in step.inputs:
        if other != mount and below(mount.rstrip("/"), other.rstrip("/")):
            yield f"lies in the input {other}", "give each input a folder of its own, like /in/data and /in/model"
    if below(mount, _OURS) or (step.checkpoint is not None and _overlap(mount, step.checkpoint.path)):
        yield "lies where gpuflow-run keeps its own files", "choose another folder, like /in/model"
    above = volume_above(step, mount)
    if given.claim is not None:
        if mount in step.volumes:
            yield "is a mount of volumes: too", "keep one of the two"
        return
    if above is not None:
        volume = above[1]
        if volume.read_only or not any(getattr(volume, source) is not None for source in _WRITABLE):
            yield f"lies in the volume at {above[0]}, which cannot be written", "choose a path outside of it"
    elif is_file(pipeline, given) and posixpath.dirname(mount.rstrip("/")) == "/":
        yield "is a file in /, and its folder becomes a volume", "put it into a folder, like /in/config.json"


def _is_place(text: str) -> bool:
    return text.startswith("/") or text.partition("://")[0] in _STORES


def _overlap(one: str, other: str) -> bool:
    return below(one, other) or below(other, one)
