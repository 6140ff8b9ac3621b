"""The places that a pipeline names for files: a bucket, or a path on a volume that outlives the pod.

Parameters count with their defaults, and items with the list that the document has for them. What only the run knows
is no fault.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from typing import Any

from gpuflow.spec.params import text_of
from gpuflow.spec.step import Pipeline, Step
from gpuflow.spec.text import ItemRef, Join, OutputRef, ParamRef, RunRef, Text, join, parts_of
from gpuflow.spec.volumes import Volume

STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "file")
"""What `gpuflow-run` can read and write."""
STORE_HINT = "write s3://…, gs://…, az://… or an absolute path"
DOTS_HINT = "and a place has no .."
MOST_SHOWN = 60
MOST_LOOKED_AT = 10_000
"""Of longer lists the items are not looked at one by one: that would take longer than all the rest."""


def normalize_path(path: str) -> str:
    """An absolute path in its shortest form: /data for /data/ and //data/."""
    return "/" + posixpath.normpath(path).lstrip("/")


def is_below(path: str, folder: str) -> bool:
    """Whether a path is a folder, or in it."""
    path, folder = normalize_path(path), normalize_path(folder)
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def overlap(one: str, other: str) -> str | None:
    """How one path meets another, in words; None when each is a place of its own."""
    if normalize_path(one) == normalize_path(other):
        return "is the same path as"
    return "lies in" if is_below(one, other) else "holds" if is_below(other, one) else None


def volume_above(step: Step, path: str) -> tuple[str, Volume] | None:
    """The volume of the step that holds a path, with its mount: the innermost one."""
    mounts = [mount for mount in step.volumes if is_below(path, mount)]
    return None if not mounts else (mount := max(mounts, key=len), step.volumes[mount])


def possible_texts(pipeline: Pipeline, step: Step, uri: Text | None) -> list[Text]:
    """Every text that a uri may be, as far as the document knows. Items are told apart up to the bucket, and no more:
    what follows does not say which credentials are needed."""
    found: list[Text] = [""]
    for part in () if uri is None else parts_of(uri):
        values = _values(pipeline, step, part)
        if len(values) > 1:
            settled = all(_is_settled(join(each, part)) for each in found)
            values = [part] if settled or len(found) * len(values) > MOST_LOOKED_AT else values
        found = [join(each, value) for each in found for value in values]
    return list(dict.fromkeys(found))


def call_arguments(pipeline: Pipeline, step: Step) -> dict[str, tuple[str, ...]]:
    """What a step gives the parameters of its sub-pipeline, as text; nothing for what only the run knows."""
    found = {name: _values(pipeline, step, given) for name, given in step.params.items()}
    return {name: tuple(each for each in values if isinstance(each, str)) for name, values in found.items()}


def _values(pipeline: Pipeline, step: Step, part: Any) -> list[Any]:
    """A part of a text, or what stands for it in the document."""
    if isinstance(part, ParamRef):
        return list(_param_values(pipeline, part.name)) or [part]
    if not isinstance(part, ItemRef):
        return [part if isinstance(part, str | OutputRef | RunRef) else text_of(part)]
    source = (step.for_each or {}).get(part.name)
    if isinstance(source, ParamRef) and source.name in pipeline.params:
        source = pipeline.params[source.name].default
    return [text_of(item) for item in source] if source and isinstance(source, list | tuple) else [part]


def _param_values(pipeline: Pipeline, name: str) -> tuple[str, ...]:
    if name in pipeline.param_texts:
        return pipeline.param_texts[name]
    param = pipeline.params.get(name)
    # An empty default says that each run gives its own.
    return () if param is None or param.default in (None, "") else (text_of(param.default),)


def _is_settled(text: Text) -> bool:
    first = parts_of(text)[0]
    return isinstance(first, str) and (first.startswith("/") or bucket_of(text) is not None)


def bucket_of(uri: Text | None) -> str | None:
    """The bucket of a URI, like s3://models; None when a reference decides it, or when it is a path."""
    first = "" if uri is None else parts_of(uri)[0]
    if not isinstance(first, str) or "://" not in first:
        return None
    scheme, _, rest = first.partition("://")
    bucket, slash, _ = rest.partition("/")
    whole = slash or not isinstance(uri, Join)  # a reference may follow inside of the name
    return f"{scheme}://{bucket}" if bucket and whole else None


def place_fault(pipeline: Pipeline, step: Step, uri: Text | None) -> tuple[str, str] | None:
    """What is wrong with a place, and the way out; None when nothing is."""
    first = None if uri is None else parts_of(uri)[0]
    param = pipeline.params.get(first.name) if isinstance(first, ParamRef) else None
    if isinstance(first, ParamRef) and param is not None and param.type != "string":
        return f"is at the parameter {first.name}, which is of type {param.type} and no place", "give it type: string"
    for text in possible_texts(pipeline, step, uri) if uri is not None else ():
        fault = text_fault(text)
        if fault is not None:
            shown = "".join(part if isinstance(part, str) else "…" for part in parts_of(text))[:MOST_SHOWN]
            source = "" if isinstance(uri, str) else f"; the text comes from {_source(uri)}"
            hint = "write it without .." if fault == DOTS_HINT else STORE_HINT
            return f"is at {shown!r}, {fault}", hint + source
    return None


def text_fault(text: Text) -> str | None:
    """What is wrong with a text as a place; None when nothing is, or only the run knows."""
    first = parts_of(text)[0]
    if not isinstance(first, str):
        return None
    scheme, separator, rest = first.partition("://")
    if not first.startswith("/") and (not separator or scheme not in STORES):
        return "which is no place"
    bucket, slash, _ = rest.partition("/")
    if separator and scheme == "file" and bucket:
        return "which names a machine: a file has three slashes, file:///…"
    if separator and scheme != "file" and not bucket and (slash or not isinstance(text, Join)):
        return "which names no bucket"
    # A reference stands for some text, so that what is beside it is no whole name.
    if ".." in "".join(part if isinstance(part, str) else "?" for part in parts_of(text)).split("/"):
        return DOTS_HINT
    return None


def _source(uri: Any) -> str:
    refs = [part for part in parts_of(uri) if isinstance(part, ParamRef | ItemRef)]
    kinds = {ParamRef: "the default of the parameter", ItemRef: "the items of"}
    return " and ".join(dict.fromkeys(f"{kinds[type(ref)]} {ref.name}" for ref in refs)) or "this join"


def lost_with_pod(pipeline: Pipeline, step: Step, uri: Text | None, *, reads: bool = False) -> str | None:
    """The path among a uri's texts that lies in no volume of the step which outlives the pod. `reads`: a volume that
    cannot be written will do, and so will a claim that is an input."""
    for text in possible_texts(pipeline, step, uri) if uri is not None else ():
        first = parts_of(text)[0]
        path = first.removeprefix("file://") if isinstance(first, str) else ""
        if not path.startswith("/"):
            continue
        folder, is_open = (path, False) if isinstance(text, str) else (posixpath.dirname(path), True)
        if not any(
            is_below(folder, mount) or (is_open and is_below(mount, folder))
            for mount in _persistent_mounts(step, reads)
        ):
            return path if isinstance(text, str) else f"{path}…"
    return None


def _persistent_mounts(step: Step, reads: bool) -> Iterator[str]:
    """Where volumes are mounted that outlive the pod."""
    yield from (mount for mount, volume in step.volumes.items() if volume.lasts and (reads or not volume.read_only))
    if reads:
        yield from (mount for mount, given in step.inputs.items() if given.claim is not None)
    # A patch of the pod has Kubernetes' words for volumes: which of them last is for its author to know.
    patch = step.kubernetes.merge if step.kubernetes is not None else None
    for container in ((patch or {}).get("spec") or {}).get("containers") or ():
        mounts = container.get("volumeMounts") if isinstance(container, dict) else None
        for mount in mounts or ():
            if isinstance(mount, dict) and isinstance(mount.get("mountPath"), str):
                yield mount["mountPath"]
