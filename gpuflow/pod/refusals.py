"""Why a pod cannot be made on a site, at the line of the step that says what it cannot have."""

from __future__ import annotations

from gpuflow.errors import GpuflowError, fail
from gpuflow.spec.pipeline import Pipeline


def refusal_at(
    pipeline: Pipeline, step: str, path: tuple[str, ...], code: str, message: str, *, hint: str
) -> GpuflowError:
    """A refusal at a part of a step. Where no line of it is known, whoever makes the pod names the step."""
    where = pipeline.where_step(step, *path)
    return fail(code, message if where.line is None else f'step "{step}": {message}', hint=hint, where=where)
