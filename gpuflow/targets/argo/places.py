"""Where a sub-pipeline stands in the pipeline around it, handed down so that its copies keep their state apart.

A supervised step finds its checkpoints and budgets by pipeline, run and step. A sub-pipeline that is used twice, or
once per item, has several steps of that name in one run, so each copy is told its own place: the step that it is, and
a digest of its item. Digests need no protection on their way through Argo.
"""

from __future__ import annotations

from typing import Any

from gpuflow.pod.supervision import keeps_state
from gpuflow.site import Site
from gpuflow.spec.flow import every_step
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef
from gpuflow.targets.argo.spelling import text_value

PLACE = "pipeline--place"
PLACE_TAG = f"{{{{inputs.parameters.{PLACE}}}}}"


def asks_place(pipeline: Pipeline, site: Site) -> bool:
    """Whether a step of the sub-pipeline keeps state that must not be that of another copy."""
    return any(step.runs_container and keeps_state(step, site) for _, step in every_step(pipeline))


def place_of(name: str, step: Step, site: Site, *, nested: bool) -> str | None:
    """What a task hands down: to a sub-pipeline its place, to a step inside one the place it stands in."""
    if step.pipeline is None:
        return PLACE_TAG if nested and step.runs_container and keeps_state(step, site) else None
    if not asks_place(step.pipeline, site):
        return None
    own = name if not step.for_each else f"{name},{_digest(step, nested=nested)}"
    return f"{PLACE_TAG}/{own}" if nested else own


def _digest(step: Step, *, nested: bool) -> str:
    items = step.for_each or {}
    texts = (text_value(ItemRef(key), nested=nested, single_item=len(items) == 1) for key in items)
    return f"{{{{=sprig.trunc(16, sprig.sha256sum(toJson([{', '.join(texts)}])))}}}}"


def with_place(arguments: dict[str, Any] | None, place: str | None) -> dict[str, Any] | None:
    """A task's arguments with the place added."""
    if place is None:
        return arguments
    given = (arguments or {"parameters": []})["parameters"]
    return {"parameters": [*given, {"name": PLACE, "value": place}]}
