"""The steps of a pipeline as DAG templates: tasks, dependencies, conditions, loops, sub-pipelines, exit handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuflow.plan import Plan, PlannedStep
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import condition_types, may_be_skipped, output_types, reference_type
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref
from gpuflow.targets.argo.alerts import alert_tasks
from gpuflow.targets.argo.loops import (
    export_template,
    exported_outputs,
    exported_value,
    is_late,
    is_quoted,
    is_static,
    is_written,
    loop,
    loop_template,
    needs_template,
    scope_of,
    with_exports,
)
from gpuflow.targets.argo.references import (
    PLAIN_TYPES,
    Defaults,
    Inputs,
    RunFacts,
    Scope,
    condition,
    percent_encoded,
    percent_encoded_text,
    safe_value,
    typed_list,
    typed_value,
    unquoted_item,
)
from gpuflow.targets.argo.shared_templates import Names
from gpuflow.targets.argo.templates import (
    PLACE_INPUT,
    PLACE_TAG,
    approval_template,
    memoize,
    place_of,
    step_template,
    with_place,
)

MAIN, EXIT = "main", "exit"


class Templates:
    """All templates of one workflow, in the order they are first needed."""

    def __init__(self, plan: Plan, semaphores: str | None = None, facts: RunFacts | None = None) -> None:
        self.plan = plan
        self.facts = facts or RunFacts()
        self.semaphores = semaphores
        self.names = Names((MAIN, EXIT))
        self.found: list[dict[str, Any]] = []

    def dag(self, within: PlannedStep | None, title: str) -> None:
        """A DAG template for the pipeline, or for the one that a step is, and the templates of its steps."""
        place = len(self.found)
        pipeline = self.plan.pipeline if within is None else within.step.pipeline
        assert pipeline is not None
        prefix = f"{title}-" if within else ""
        wanted = frozenset() if within else exported_outputs(pipeline)
        steps = self.plan.steps_by_parent.get(within.name if within else "", ())
        tasks = [self._task(each, prefix, wanted) for each in steps if each.section == "steps"]
        template: dict[str, Any] = {"name": title}
        if within is not None:
            place_input = [PLACE_INPUT] if within.name in self.plan.with_state else []
            template["inputs"] = {"parameters": [{"name": name} for name in (*pipeline.params, *place_input)]}
            template["outputs"] = _nested_outputs(pipeline)
            template["parallelism"] = pipeline.parallel
        template["dag"] = {"tasks": tasks}
        self.found.insert(
            place, {key: value for key, value in template.items() if value not in (None, {"parameters": []})}
        )

    def exit(self) -> None:
        """The exit handler: every exit step and alert at once, each under its own condition on how the run ended."""
        place, pipeline = len(self.found), self.plan.pipeline
        tasks = []
        for each in (each for each in self.plan.steps if each.section == "exit" and each.parent is None):
            title, inputs = self._step(each, "")
            step = each.step
            task = {
                "name": each.name,
                "template": title,
                "arguments": _arguments(pipeline, inputs, step, Scope(), ending=True),
                "when": _exit_condition(pipeline, step),
            }
            tasks.append({key: value for key, value in task.items() if value})
        alerts, templates = alert_tasks(pipeline, self.plan.site, self.names)
        self.found.insert(place, {"name": EXIT, "dag": {"tasks": [*tasks, *alerts]}})
        self.found += templates

    def _step(self, each: PlannedStep, prefix: str, wanted: frozenset[OutputRef] = frozenset()) -> tuple[str, Inputs]:
        step, title = each.step, self.names.claim(prefix + each.own_name)
        if step.approval is not None:
            self.found.append(approval_template(step.approval, title))
            return title, Inputs()
        if step.pipeline is not None:
            self.dag(each, title)
            return title, Inputs()
        within = PLACE_TAG if each.parent else ""
        template, inputs = step_template(each, title, self.semaphores, Inputs(self.facts), within)
        if "outputs" in template and not step.for_each:
            template["outputs"] = with_exports(template["outputs"], each.own_name, wanted)
            if "memoize" in template:  # an entry holds outputs with the names they are exported under
                template["memoize"] = memoize(each.pipeline.name, title, template, inputs)
        self.found.append(template)
        return title, inputs

    def _task(self, each: PlannedStep, prefix: str, wanted: frozenset[OutputRef]) -> dict[str, Any]:
        step, name, pipeline, nested = each.step, each.own_name, each.pipeline, each.parent is not None
        place = len(self.found)
        title, inputs = self._step(each, prefix, wanted)
        scope = scope_of(step, nested=nested, defaults=skipped_outputs(pipeline) if step.if_skipped == "run" else {})
        task: dict[str, Any] = {
            "name": name,
            "template": title,
            "depends": _depends(each.own_needs, step),
            "when": _condition(pipeline, step, scope),
            "arguments": with_place(_arguments(pipeline, inputs, step, scope), place_of(each, self.plan)),
            **loop(step, scope),
        }
        if needs_template(name, step, wanted):
            around = self.names.claim(f"{title}-loop")
            template, task = loop_template(pipeline, name, task, around, scope, wanted)
            self.found.insert(place, template)
        if is_late(name, step, wanted):
            template, task = export_template(name, step, task, self.names.claim(f"{title}-export"))
            self.found.insert(place, template)
        return {key: value for key, value in task.items() if value}


def skipped_outputs(pipeline: Pipeline) -> Defaults:
    """What others read when a step was skipped: its outputs' defaults, and of a fan-out no values at all. Argo also
    skips a fan-out over a list that turns out to be empty."""
    skipped = may_be_skipped(pipeline)
    found: dict[OutputRef, str] = {}
    for name, step in pipeline.steps.items():
        if step.for_each and (name in skipped or not is_written(step)):
            found |= {OutputRef(name, output): "[]" for output in output_types(step)}
        elif name in skipped:
            said = {output: declared.default for output, declared in step.outputs.items()}
            found |= {OutputRef(name, key): text_of(value) for key, value in said.items() if value is not None}
    return found


def _condition(pipeline: Pipeline, step: Step, scope: Scope) -> str | None:
    if step.when is None:
        return None
    return f"{{{{={condition(step.when, condition_types(pipeline, step), scope.read)}}}}}"


STATUS = {"failure": "!= Succeeded", "success": "== Succeeded"}


def _exit_condition(pipeline: Pipeline, step: Step) -> str | None:
    """When an exit step runs: by how the run ended, and by its own condition."""
    by_status = STATUS.get(step.on or "")
    if step.when is None:
        return f"{{{{workflow.status}}}} {by_status}" if by_status else None

    def read_exported(ref: Ref, kind: str) -> str:
        return exported_value(pipeline, ref) if isinstance(ref, OutputRef) else Scope().read(ref, kind)

    own = condition(step.when, condition_types(pipeline, step), read_exported)
    if not by_status:
        return f"{{{{={own}}}}}"
    return f"{{{{=workflow.status {by_status.replace('Succeeded', repr('Succeeded'))} && ({own})}}}}"


def _depends(needs: Sequence[str], step: Step) -> str | None:
    """`needs` means done, not skipped: Argo's bare task name would also accept a skipped one."""
    done = "{0}.Succeeded" if step.if_skipped != "run" else "({0}.Succeeded || {0}.Skipped || {0}.Omitted)"
    return " && ".join(done.format(need) for need in needs) or None


def _call_parameters(step: Step) -> dict[str, Any]:
    """Values for a sub-pipeline's parameters."""
    if step.pipeline is None:
        return {}
    defaults = {name: param.default for name, param in step.pipeline.params.items() if not param.required}
    return {**defaults, **step.params}


def _arguments(
    pipeline: Pipeline, inputs: Inputs, step: Step, scope: Scope, *, ending: bool = False
) -> dict[str, Any] | None:
    """Values for the template's inputs: safe text for containers, carried text for a sub-pipeline's parameters.

    `ending`: of an exit step, which reads what was exported."""
    static, parameters = is_static(step), dict[str, str]()
    for name, ref in sorted(inputs.used.items()):
        kind = reference_type(pipeline, step, ref)
        if ending and isinstance(ref, OutputRef):
            value = _reference_text(pipeline, ref, exported_value(pipeline, ref))
            parameters[name] = f"{{{{={typed_value(value, kind, ref)}}}}}" if kind in PLAIN_TYPES else safe_value(value)
        elif isinstance(ref, ItemRef) and static:  # the list itself was written safely
            quoted = not scope.single_item and is_quoted(step, ref.name)
            parameters[name] = unquoted_item(ref.name) if quoted else scope.argument(ref)
        elif kind in PLAIN_TYPES:
            parameters[name] = scope.checked_number(ref, kind)
        else:
            parameters[name] = safe_value(_reference_text(pipeline, ref, scope.text(ref)))
    for name, value in _call_parameters(step).items():
        assert step.pipeline is not None
        kind = step.pipeline.params[name].type
        if not isinstance(value, ParamRef | OutputRef | ItemRef):
            parameters[name] = text_of(value) if kind in PLAIN_TYPES else percent_encoded_text(text_of(value))
        elif kind not in PLAIN_TYPES:
            parameters[name] = percent_encoded(_reference_text(pipeline, value, scope.text(value)))
        elif static and isinstance(value, ItemRef):
            parameters[name] = scope.argument(value)
        else:
            parameters[name] = scope.checked_number(value, kind, reference_type(pipeline, step, value))
    pairs = [{"name": name, "value": value} for name, value in parameters.items()]
    return {"parameters": pairs} if pairs else None


def _reference_text(pipeline: Pipeline, ref: Ref, value: str) -> str:
    """The expression for a reference's text: what a loop's copies wrote is one JSON list of values of their type."""
    step = pipeline.steps[ref.step] if isinstance(ref, OutputRef) else None
    if step is None or not step.for_each:
        return value
    assert isinstance(ref, OutputRef)
    return typed_list(value, output_types(step.model_copy(update={"for_each": None}))[ref.name])


def _nested_outputs(pipeline: Pipeline) -> dict[str, Any]:
    parameters = []
    defaults = skipped_outputs(pipeline)
    for name, ref in pipeline.outputs.items():
        assert isinstance(ref, OutputRef)
        source = {"parameter": Scope(nested=True).argument(ref)}
        if ref in defaults:
            source["default"] = defaults[ref]
        parameters.append({"name": name, "valueFrom": source})
    return {"parameters": parameters}
