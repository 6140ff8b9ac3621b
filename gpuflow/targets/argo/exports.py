"""Outputs that exit steps read. An exit handler sees no task, so such an output is exported to the whole workflow.

Argo exports what a pod leaves as soon as the pod ends. What a loop gathers, or a cache answers, it exports when the DAG
around it has succeeded, which a run that fails never does; so these get a DAG of their own, `<step>-export`.
"""

from __future__ import annotations

from typing import Any

from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef
from gpuflow.spec.types import output_types
from gpuflow.targets.argo.spelling import constant, input_name


def exported(pipeline: Pipeline) -> frozenset[OutputRef]:
    """The outputs that some exit step uses."""
    steps = (pipeline.effective(name) for name in pipeline.exit)
    return frozenset(ref for step in steps for _, ref in step.references() if isinstance(ref, OutputRef))


def with_exports(outputs: dict[str, Any], step: str, wanted: frozenset[OutputRef]) -> dict[str, Any]:
    """A template's outputs, those that are wanted under a name that is global to the workflow."""
    parameters = []
    for parameter in outputs["parameters"]:
        ref = OutputRef(step, parameter["name"])
        parameters.append({**parameter, "globalName": input_name(ref)} if ref in wanted else parameter)
    return {**outputs, "parameters": parameters}


def exported_value(pipeline: Pipeline, ref: OutputRef) -> str:
    """The expression for an exported output's text: its default when the step failed, was skipped or never came."""
    step = pipeline.steps[ref.step]
    default = "[]" if step.for_each else text_of(step.outputs[ref.name].default)
    # Argo ends the expression at the first pair of closing braces, so the default's are written as escapes.
    return f"(workflow.outputs?.parameters?.['{input_name(ref)}'] ?? {constant(default)})"


def is_late(name: str, step: Step, wanted: frozenset[OutputRef]) -> bool:
    """Whether an exit step reads something that no pod of this run leaves by itself."""
    return any(ref.step == name for ref in wanted) and bool(step.for_each or step.cache)


def export_template(name: str, step: Step, task: dict[str, Any], title: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The template `title` around the step's template, and the task that calls it in place of `task`."""
    given = (task["arguments"] or {"parameters": []})["parameters"]
    handed = [{"name": one["name"], "value": f"{{{{inputs.parameters.{one['name']}}}}}"} for one in given]
    left = [
        {"name": output, "valueFrom": {"parameter": f"{{{{tasks.{name}.outputs.parameters.{output}}}}}"}}
        for output in output_types(step)
    ]
    inner = {"name": name, "template": task["template"], "arguments": {"parameters": handed} if handed else None}
    template = {
        "name": title,
        "inputs": {"parameters": [{"name": one["name"]} for one in given]} if given else None,
        "outputs": {"parameters": left},
        "dag": {"tasks": [{key: value for key, value in inner.items() if value}]},
    }
    return {key: value for key, value in template.items() if value}, {**task, "template": title}
