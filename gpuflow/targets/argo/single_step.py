"""A step on its own, for hand-written workflows: its template, and values for what it refers to."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from gpuflow.core.errors import GpuflowError, fail
from gpuflow.kubernetes.expansion import escape
from gpuflow.plan import planned_step
from gpuflow.site import Site
from gpuflow.spec.builder import caller
from gpuflow.spec.params import Output, Param, text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, Literally, OutputRef, ParamRef, Ref, RunRef
from gpuflow.targets.argo.facts import CAPABILITIES, FACTS
from gpuflow.targets.argo.references import ITEM, Inputs, Scope, safe_value, without_tags
from gpuflow.targets.argo.refusals import step_findings
from gpuflow.targets.argo.templates import PLACE_INPUT, PLACE_TAG, step_template
from gpuflow.targets.capabilities import construct_losses
from gpuflow.targets.single_step import keywords_of, refuse_unfit

FLOW = {
    "for_each": "with_items or with_param of the task",
    "when": "when of the task",
    "needs": ">> between tasks",
    "pipeline": "a DAG of its own",
    "approval": "Suspend",
    "on": "on_exit of the workflow",
}
"""What decides how steps hang together, and who decides it in a hand-written workflow."""
_TAG = re.compile(r"(\{\{(?!\{)(?:(?!\{\{).)*?\}\})", re.DOTALL)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def standalone_template(step: Step, site: Site, name: str) -> dict[str, Any]:
    """The step's template. Raises for what Argo cannot express, and for flow, which the workflow's author writes."""
    refuse_unfit(name, step, FLOW, "claim and volume_claim_templates of the workflow")
    if any(isinstance(ref, RunRef) and ref.field == "interval_start" for _, ref in step.references()):
        text = "a step on its own has no schedule, and so no {run: interval_start}"
        raise fail("GF301", text, hint="write {param: interval_start}, and pass it as interval_start=")
    names: dict[Ref, str] = dict(keywords_of(step))
    pipeline = _enclosing_pipeline(step, name, tuple(names))
    where = caller()
    missing = [loss.refusal_by_hand(where) for loss in construct_losses(pipeline, CAPABILITIES, FACTS.name)]
    planned = planned_step(pipeline, name, site)
    missing += step_findings(planned)
    if missing:
        raise GpuflowError(missing)
    inputs = Inputs(name_of=names.__getitem__)
    template = step_template(planned, name, inputs=inputs, within=_call_identity(names.values()))[0]
    if planned.supervision.keeps_state:  # whoever calls the template by its name alone is its only caller
        given = template["inputs"]["parameters"]
        template["inputs"] = {
            "parameters": [{**one, "value": name} if one["name"] == PLACE_INPUT else one for one in given]
        }
    return template


def _call_identity(names: Collection[str]) -> str:
    """What keeps the state of a template's tasks apart: where each is called, and with which arguments."""
    values = ", ".join(f"inputs.parameters['{name}']" for name in sorted(names))
    return f"{PLACE_TAG},{{{{=sprig.trunc(16, sprig.sha256sum(toJson([{values}])))}}}}" if values else PLACE_TAG


def place_of_call(task: str, *, looped: bool) -> str:
    """What a task hands down: its name, and in a loop a digest of its item."""
    return f"{task},{{{{=sprig.trunc(16, sprig.sha256sum({ITEM}))}}}}" if looped else task


def _enclosing_pipeline(step: Step, name: str, refs: tuple[Ref, ...]) -> Pipeline:
    """A pipeline that has everything the step refers to, as text: only the workflow's author knows better."""
    params = {ref.name: Param(type="string") for ref in refs if isinstance(ref, ParamRef)}
    outputs: dict[str, dict[str, Output]] = {}
    for ref in refs:
        if isinstance(ref, OutputRef):
            outputs.setdefault(ref.step, {})[ref.name] = Output(type="string")
    others = {other: Step.model_construct(outputs=given) for other, given in outputs.items()}
    return Pipeline.model_construct(name=name, params=params, steps={**others, name: step})


def container_argument(value: Any) -> str:
    """An argument that reaches the container unchanged: Argo's tags are read as text, the rest stands as it is."""
    text = value if isinstance(value, str) else text_of(value)
    parts = [text] if isinstance(value, Literally) else _TAG.split(text)
    return "".join(
        safe_value(_expression(part)) if index % 2 else without_tags(escape(part, glued=index + 1 < len(parts)))
        for index, part in enumerate(parts)
    )


def _expression(tag: str) -> str:
    """A tag as an expression: `{{tasks.a.outputs.parameters.x}}` is `tasks['a'].outputs.parameters['x']`."""
    inside = tag[2:-2].strip()
    if inside.startswith("="):
        return f"string({inside[1:].strip()})"
    if inside == "item":
        return ITEM
    if inside.startswith("item."):
        return Scope().text(ItemRef(inside.removeprefix("item.")))
    first, *rest = inside.split(".")
    return first + "".join(f".{word}" if _IDENTIFIER.fullmatch(word) else f"['{word}']" for word in rest)
