"""The buckets that a step's supervisor uses, and the variables with which it gets at them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuflow.errors import did_you_mean, fail
from gpuflow.pod.restarts import counts_budgets
from gpuflow.site import Site
from gpuflow.spec.inputs import place_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ParamRef, join, parts_of
from gpuflow.spec.types import declared_output


def credentials(pipeline: Pipeline, name: str, step: Step, site: Site) -> dict[str, Any]:
    """The variables for all buckets of a step. Refused: a bucket that the site does not know, no place at all, and two
    buckets that ask for different values of one variable."""
    if not (step.checkpoint or step.outputs or step.inputs or site.runtime.state):
        return {}  # it uses none
    known = site.runtime.buckets
    found: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for place, what in _places(pipeline, step, site):
        if place is None:
            raise fail(
                "GF327",
                f"{what} has no uri, and the site has no runtime.artifacts to keep it in",
                hint="give it a uri, like s3://models/run, or set runtime.artifacts in the site",
            )
        if not known or not place:
            continue
        if place not in known:
            raise fail(
                "GF328",
                f"{what} is in {place}, which is not a bucket of the site",
                hint=did_you_mean(place, known) or f"add it under runtime.buckets of the site; it has {_listed(known)}",
            )
        for variable, value in known[place].env.items():
            if variable in found and found[variable] != value and variable not in step.env:
                raise fail(
                    "GF329",
                    f"{place} and {origin[variable]} ask for different values of {variable}",
                    hint="set the variable in the step, or copy between the buckets in a step of its own",
                )
            found.setdefault(variable, value)
            origin.setdefault(variable, place)
    return {variable: value for variable, value in sorted(found.items()) if variable not in step.env}


def _places(pipeline: Pipeline, step: Step, site: Site) -> Iterator[tuple[str | None, str]]:
    """Each bucket that the supervisor uses, and for what; empty text where only the run knows it, or for a path."""
    runtime, checkpoint = site.runtime, step.checkpoint
    store = None if checkpoint is None else checkpoint.store
    if store is not None:
        yield _place(pipeline, store), "checkpoint.store"
    elif runtime.state is not None and counts_budgets(step, site):
        yield _place(pipeline, runtime.state), "runtime.state of the site"
    for name, output in step.outputs.items():
        if output.is_artifact:
            # At its uri, where the site says, or beside the checkpoints of its step.
            kept = next((place for place in (output.uri, runtime.artifacts, store) if place is not None), None)
            yield None if kept is None else _place(pipeline, kept), f"the output {name}"
    for mount, given in step.inputs.items():
        if given.uri is not None:
            found = _place(pipeline, given.uri)
            if not found and not isinstance(parts_of(given.uri)[0], str):
                # What only the run knows is most likely what an earlier step has kept where the site says.
                found = _place(pipeline, runtime.artifacts)
            yield found, f"the input {mount}"
        declared = declared_output(pipeline, given.output) if given.output is not None else None
        if declared is not None and declared[0].uri is not None:
            yield _place(pipeline, declared[0].uri), f"the input {mount}"
        elif given.output is not None:
            # Also of a step on its own, which does not know who gives it the output.
            yield _place(pipeline, runtime.artifacts), f"the input {mount}"


def _place(pipeline: Pipeline, uri: Any) -> str:
    """The bucket; where a parameter begins the uri, that of its default."""
    if uri is None:
        return ""
    first, *rest = parts_of(uri)
    if isinstance(first, ParamRef):
        param = pipeline.params.get(first.name)
        if param is not None and isinstance(param.default, str):
            return place_of(join(param.default, *rest)) or ""
    return place_of(uri) or ""


def _listed(known: dict[str, Any]) -> str:
    return ", ".join(sorted(known))
