"""The buckets that a step's supervisor uses, and the variables that give it access to them.

A bucket that the site does not know is refused at the line of the step that names it (`refusal_at`).
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from functools import partial
from typing import Any

from gpuflow.core.errors import GpuflowError, fail, join_names
from gpuflow.pod.supervision import counts_budgets
from gpuflow.site import Site
from gpuflow.spec.params import Output
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import writer_of
from gpuflow.spec.step import Step
from gpuflow.spec.storage_paths import bucket_of, lost_with_pod, possible_texts, text_fault
from gpuflow.spec.text import parts_of


def refusal_at(
    pipeline: Pipeline, step: str, path: tuple[str, ...], code: str, message: str, *, hint: str
) -> GpuflowError:
    """A refusal at a part of a step. Where no line of it is known, whoever makes the pod names the step."""
    where = pipeline.where_step(step, *path)
    return fail(code, message if where.line is None else f'step "{step}": {message}', hint=hint, where=where)


Path = tuple[str, ...]


def bucket_credentials(pipeline: Pipeline, name: str, step: Step, site: Site) -> dict[str, Any]:
    """The variables for all buckets of a step. Refused: a bucket that the site does not know, no place at all, and two
    buckets that ask for different values of one variable."""
    if not (step.checkpoint or step.outputs or step.inputs or site.runtime.state):
        return {}  # it uses none
    known = site.runtime.buckets
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    _check_root(pipeline, name, step, site)
    for place, what, path in _used_buckets(pipeline, step, site):
        refused = partial(refusal_at, pipeline, name, path)
        if place is None:
            raise refused(
                "GF327",
                f"{what} has no uri, and the site has no runtime.artifacts to keep it in",
                hint="give it a uri, like s3://models/run, or set runtime.artifacts in the site",
            )
        if not known or not place:
            continue
        if place not in known:
            raise refused(
                "GF328",
                f"{what} is in {place}, which is not a bucket of the site",
                hint=_similar_bucket(place, known)
                or f"add it under runtime.buckets of the site; it has {join_names(sorted(known))}",
            )
        for variable, value in known[place].env.items():
            if variable in found and found[variable] != value and variable not in step.env:
                raise refused(
                    "GF329",
                    f"{place} and {origin[variable]} ask for different values of {variable}",
                    hint="set the variable in the step, or copy between the buckets in a step of its own",
                )
            found.setdefault(variable, value)
            origin.setdefault(variable, place)
    return {variable: value for variable, value in sorted(found.items()) if variable not in step.env}


def _check_root(pipeline: Pipeline, step_name: str, step: Step, site: Site) -> None:
    """A root that is a path lies on a volume that outlives the pod, in the steps that write there or read from it."""
    root = site.runtime.artifacts
    where, refused = f"runtime.artifacts of the site, {root}", partial(refusal_at, pipeline, step_name)
    for name, output in step.outputs.items():
        if output.is_artifact and output.uri is None and lost_with_pod(pipeline, step, root) is not None:
            message = f"the output {name} would be kept at {where}, and be lost with the pod"
            hint = f"mount a claim at {root}, or name a bucket there, like s3://models"
            raise refused(("outputs", name), "GF350", message, hint=hint)
    for mount, given in step.inputs.items():
        declared = None if given.output is None else pipeline.declared_output(given.output)
        if declared is not None and declared[0].uri is None and lost_with_pod(pipeline, step, root, reads=True):
            message = f"the input {mount} is kept at {where}, and the step has no volume there"
            raise refused(("inputs", mount), "GF350", message, hint="mount the volume that it is written to")


def _used_buckets(pipeline: Pipeline, step: Step, site: Site) -> Iterator[tuple[str | None, str, Path]]:
    """Each bucket that the supervisor uses, for what, and where the step says so. Empty text: only the run knows it, or
    it is a path. None: there is no place."""
    runtime, checkpoint = site.runtime, step.checkpoint
    store = None if checkpoint is None else checkpoint.store
    if store is not None:
        yield from _buckets(pipeline, step, store, "checkpoint.store", ("checkpoint", "store"))
    elif runtime.state is not None and counts_budgets(step, site):
        yield from _buckets(pipeline, step, runtime.state, "runtime.state of the site", ())
    for name, output in step.outputs.items():
        if output.is_artifact:
            kept, what, path = _kept_at(step, output, site), f"the output {name}", ("outputs", name)
            yield from [(None, what, path)] if kept is None else _buckets(pipeline, step, kept, what, path)
    for mount, given in step.inputs.items():
        what, path = f"the input {mount}", ("inputs", mount)
        if given.uri is not None:
            yield from _buckets(pipeline, step, given.uri, what, path)
            if any(not isinstance(parts_of(text)[0], str) for text in possible_texts(pipeline, step, given.uri)):
                # What only the run knows is most likely what an earlier step has kept where the site says.
                yield from _buckets(pipeline, step, runtime.artifacts, what, path)
        if given.output is not None:
            # A step on its own does not know who gives it the output.
            writer = writer_of(pipeline, given.output) or (pipeline, step)
            declared = pipeline.declared_output(given.output)
            kept = runtime.artifacts if declared is None else _kept_at(writer[1], declared[0], site)
            yield from _buckets(*writer, kept, what, path)


def _kept_at(step: Step, output: Output, site: Site) -> Any:
    """An artifact is at its uri, where the site says, or beside the checkpoints of its step."""
    store = None if step.checkpoint is None else step.checkpoint.store
    return next((place for place in (output.uri, site.runtime.artifacts, store) if place is not None), None)


def _buckets(pipeline: Pipeline, step: Step, uri: Any, what: str, path: Path) -> Iterator[tuple[str | None, str, Path]]:
    for place in dict.fromkeys(
        bucket_of(text) or "" for text in possible_texts(pipeline, step, uri) if text_fault(text) is None
    ):
        yield place, what, path


def _similar_bucket(place: str, known: Collection[str]) -> str | None:
    """Buckets with similar names. What precedes the name is the same in nearly all of them."""
    names = {each.partition("://")[2]: each for each in sorted(known)}
    close = difflib.get_close_matches(place.partition("://")[2], names, n=3, cutoff=0.6)
    return "did you mean " + " or ".join(f'"{names[name]}"' for name in close) + "?" if close else None
