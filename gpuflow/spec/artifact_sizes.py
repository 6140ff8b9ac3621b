"""How large a file or directory is that a step reads, as far as the documents say so."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from gpuflow.quantity import Quantity
from gpuflow.spec.fan_out import written_sizes
from gpuflow.spec.inputs import Input
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef
from gpuflow.spec.types import declared_output

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline


def input_size(pipeline: Pipeline, step: Step, given: Input) -> Quantity | None:
    """The size of an input: its own, or that of the output that it is, for each item of a fan-out."""
    if given.size is not None:
        return given.size
    if given.output is None:
        return _size_behind(pipeline, step, given.uri)
    found = declared_output(pipeline, given.output)
    if found is None or found[0].size is None:
        return None
    return found[0].size * _copies(found[1])


def passed_sizes(pipeline: Pipeline, step: Step) -> dict[str, Quantity]:
    """The sizes of the artifacts that a step passes into its sub-pipeline, by the parameter that names each."""
    sizes = {name: _size_behind(pipeline, step, value) for name, value in step.params.items()}
    return {name: size for name, size in sizes.items() if size is not None}


def _size_behind(pipeline: Pipeline, step: Step, value: Any) -> Quantity | None:
    """The size of the one artifact whose URI a reference is; None where that is not known, or where it is several."""
    if isinstance(value, ParamRef):
        return pipeline.passed.get(value.name)
    is_item = isinstance(value, ItemRef)
    ref = (step.for_each or {}).get(value.name) if is_item else value
    found = declared_output(pipeline, ref) if isinstance(ref, OutputRef) else None
    # An item of a fan-out's list is one artifact; the list itself is no URI.
    return found[0].size if found is not None and len(found[1]) == int(is_item) else None


def _copies(loops: tuple[Step, ...]) -> int:
    """How many items a fan-in has, where the document says so; one, where only the run does."""
    return math.prod(size for step in loops for size in written_sizes(step.for_each or {}))
