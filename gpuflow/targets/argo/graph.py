"""The steps of a pipeline as DAG templates: tasks, dependencies, conditions, loops, sub-pipelines, exit handler.

Fan-out as a loop of one task, and the DAG templates that stand around a step: `<step>-loop` and `<step>-export`.

A list that is written in the pipeline stands in `withItems`, each text spelled so that neither Argo nor the kubelet
changes it. A list that is only known at run time is a `withParam`; several lists become one there, by an expression
that makes every combination. A condition on the item must see the text as it is, so such a list is a `withParam` too.

Argo counts the children of a template, so a loop with its own parallelism needs one, `<step>-loop`. There the outputs
of all copies become one output: with a default, for a loop whose condition may leave every item out, or exported, for
an exit step that reads them.

An exit handler sees no task, so an output that an exit step reads is exported to the whole workflow. Argo exports what
a pod leaves as soon as the pod ends. What a loop gathers, or a cache answers, it exports when the DAG around it has
succeeded, which a run that fails never does; so these get a DAG of their own, `<step>-export`.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

from gpuflow.core.errors import Finding, Where
from gpuflow.kubernetes.expansion import escape
from gpuflow.plan import Plan, PlannedStep
from gpuflow.spec import expression
from gpuflow.spec.fan_out import Range
from gpuflow.spec.params import text_of
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import condition_types, may_be_skipped, output_types, reference_type
from gpuflow.spec.step import Step
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref
from gpuflow.targets.argo import references, templates
from gpuflow.targets.argo.alerts import alert_tasks
from gpuflow.targets.argo.shared_templates import Names
from gpuflow.targets.refusals import fan_out_finding


def exported_outputs(pipeline: Pipeline) -> frozenset[OutputRef]:
    """The outputs that some exit step uses."""
    steps = (pipeline.effective(name) for name in pipeline.exit)
    return frozenset(ref for step in steps for _, ref in step.references() if isinstance(ref, OutputRef))


def with_exports(outputs: dict[str, Any], step: str, wanted: frozenset[OutputRef]) -> dict[str, Any]:
    """A template's outputs, those that are wanted under a name that is global to the workflow."""
    refs = [(one, OutputRef(step, one["name"])) for one in outputs["parameters"]]
    named = [{**one, "globalName": references.input_name(ref)} if ref in wanted else one for one, ref in refs]
    return {**outputs, "parameters": named}


def exported_value(pipeline: Pipeline, ref: OutputRef) -> str:
    """The expression for an exported output's text: its default when the step failed, was skipped or never came."""
    step = pipeline.steps[ref.step]
    default = "[]" if step.for_each else text_of(step.outputs[ref.name].default)
    # Argo ends the expression at the first pair of closing braces, so the default's are written as escapes.
    return f"(workflow.outputs?.parameters?.['{references.input_name(ref)}'] ?? {references.constant(default)})"


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


AS_TEXT = "type(#) == 'string' ? # : toJson(#)"


def is_static(step: Step) -> bool:
    """Whether the loop's items stand in the manifest in their safe spelling."""
    return not expression.asks_item(step.when) and is_written(step)


def is_written(step: Step) -> bool:
    """Whether the loop's items stand in the manifest at all."""
    return not any(_is_open(source) for source in (step.for_each or {}).values())


def scope_of(step: Step, *, nested: bool, defaults: references.Defaults) -> references.Scope:
    """How the step's task reads what it refers to. `defaults`: for outputs of steps that were skipped."""
    return references.Scope(nested, len(step.for_each or ()) == 1, is_written(step), defaults)


def _is_open(source: Any) -> bool:
    return isinstance(source, ParamRef | OutputRef)


def loop(step: Step, scope: references.Scope) -> dict[str, Any]:
    """`withItems` or `withParam`, or nothing for a step that is no fan-out."""
    if not step.for_each:
        return {}
    keys, sources = tuple(step.for_each), tuple(step.for_each.values())
    if is_written(step):
        spell = _protect_item if is_static(step) else str
        rows = [[spell(text_of(value)) for value in row] for row in itertools.product(*map(_values, sources))]
        items = [row[0] if len(keys) == 1 else dict(zip(keys, row, strict=True)) for row in rows]
        # As JSON in which Argo finds no tag.
        text = json.dumps(items, ensure_ascii=False).replace("{{", "{\\u007b")
        return {"withItems": items} if is_static(step) else {"withParam": text}
    if len(keys) == 1:
        return {"withParam": references.hidden_json(scope.text(sources[0]))}
    return {"withParam": references.hidden_json(_combinations(step.for_each, scope))}


def _combinations(sources: dict[str, Any], scope: references.Scope) -> str:
    """The expression for every combination as a list of maps of texts. Braces never touch: `}}` would end the tag."""
    *outer, last = sources
    texts = {name: _texts_of(source, scope) for name, source in sources.items()}
    fields = ", ".join(f"'{name}': v{number}" for number, name in enumerate(outer))
    result = f"map({texts[last]}, {{ {{{fields}, '{last}': #}} }})"
    for number, name in reversed(list(enumerate(outer))):
        result = f"map({texts[name]}, {{let v{number} = #; {result} }})"
    return f"toJson(flatten({result}))"


def _texts_of(source: Any, scope: references.Scope) -> str:
    if _is_open(source):
        return f"map(fromJSON({scope.text(source)}), {AS_TEXT})"
    return "[" + ", ".join(references.constant(text_of(value)) for value in _values(source)) + "]"


def is_quoted(step: Step, name: str) -> bool:
    """Whether Argo hands an item of several variables on with JSON's escapes still in it."""
    texts = (_protect_item(text_of(value)) for value in _values((step.for_each or {})[name]))
    return any(json.dumps(text)[1:-1] != text for text in texts)


def item_findings(pipeline: Pipeline, name: str, step: Step) -> Iterator[Finding]:
    """Items that Argo cannot express: it quotes what it replaces as Go does, which is not JSON for the unprintable."""
    where = pipeline.where("steps", name, "for_each") if step.for_each else Where()
    written = [source for source in (step.for_each or {}).values() if not _is_open(source)]
    too_large = fan_out_finding(step, name, "Argo", where)
    if too_large is not None:
        yield too_large
        return
    for text in (text_of(value) for source in written for value in _values(source)):
        if not all(character.isprintable() or character in "\n\t\r" for character in text):
            yield Finding("GF306", f'step "{name}": Argo cannot express the item {text!r}', where, "use printable text")
        elif step.pipeline is not None and is_static(step) and _protect_item(text) != text:
            message = f'step "{name}": the item {text!r} cannot be passed to a sub-pipeline'
            yield Finding("GF306", message, where, "pass items with $ or { through a parameter instead")


def _protect_item(text: str) -> str:
    """An item as text that neither Argo nor the kubelet changes; numbers too, so that no engine prints them anew."""
    return references.without_tags(escape(text, glued=True))


def _values(source: Any) -> list[Any]:
    return list(source.items if isinstance(source, Range) else source)


Task = dict[str, Any]
ITEMS = "items"
"""The input that carries the loop's list; `items--all` where the step uses a parameter of that name."""


def needs_template(name: str, step: Step, wanted: frozenset[OutputRef]) -> bool:
    """Whether the step is a loop that cannot stand in its pipeline's own DAG."""
    if not step.for_each:
        return False
    is_read = any(ref.step == name for ref in wanted)
    return step.parallel is not None or is_read or (expression.asks_item(step.when) and bool(output_types(step)))


def loop_template(
    pipeline: Pipeline, name: str, task: Task, title: str, scope: references.Scope, wanted: frozenset[OutputRef]
) -> tuple[dict[str, Any], Task]:
    """The template `title` around the loop, and the task that calls it in place of `task`."""
    step = pipeline.effective(name)
    task = dict(task)
    outer: list[dict[str, str]] = []
    inner: list[dict[str, str]] = []
    for parameter in (task.pop("arguments") or {"parameters": []})["parameters"]:
        if _uses_item(parameter["value"]):
            inner.append(parameter)
            if parameter["value"].startswith(templates.PLACE_TAG):
                outer.append({"name": templates.PLACE_INPUT, "value": templates.PLACE_TAG})
        else:
            outer.append(parameter)
            inner.append({"name": parameter["name"], "value": f"{{{{inputs.parameters.{parameter['name']}}}}}"})
    each: Task = {"name": name, "template": task["template"], "when": None}
    if expression.asks_item(step.when):
        task["when"], each["when"] = None, _inner_condition(pipeline, step, scope)
        outer += _condition_inputs(pipeline, step, scope)
    each["arguments"] = {"parameters": inner} if inner else None
    each["withItems"], each["withParam"] = task.pop("withItems", None), task.pop("withParam", None)
    if each["withParam"]:
        items = ITEMS if all(parameter["name"] != ITEMS for parameter in outer) else f"{ITEMS}--all"
        outer.append({"name": items, "value": each["withParam"]})
        each["withParam"] = f"{{{{inputs.parameters.{items}}}}}"
    template: dict[str, Any] = {
        "name": title,
        "inputs": {"parameters": [{"name": parameter["name"]} for parameter in outer]} if outer else None,
        "outputs": _outputs(name, step, wanted),
        "parallelism": step.parallel,
        "dag": {"tasks": [{key: value for key, value in each.items() if value}]},
    }
    call = {**task, "template": title, "arguments": {"parameters": outer} if outer else None}
    return {key: value for key, value in template.items() if value}, call


def _outputs(name: str, step: Step, wanted: frozenset[OutputRef]) -> dict[str, Any] | None:
    parameters = []
    for output in output_types(step):
        source = {"parameter": f"{{{{tasks.{name}.outputs.parameters.{output}}}}}"}
        if not is_static(step):
            source["default"] = "[]"  # Argo has no value at all when every item was left out, or there are none
        parameters.append({"name": output, "valueFrom": source})
    return with_exports({"parameters": parameters}, name, wanted) if parameters else None


def _uses_item(value: str) -> bool:
    """Whether an argument's value is made from the loop's item."""
    return "{{item" in value or "(item" in value or " item[" in value


def _outer_references(step: Step, scope: references.Scope) -> dict[str, expression.Reference]:
    """References of the condition that the loop's own template cannot see, by the input that carries each."""
    assert step.when is not None
    kinds = (OutputRef, ParamRef) if scope.nested else (OutputRef,)
    found = [reference for reference in expression.references(step.when) if isinstance(reference.ref, kinds)]
    return {f"when--{references.input_name(reference.ref)}": reference for reference in found}


def _condition_inputs(pipeline: Pipeline, step: Step, scope: references.Scope) -> list[dict[str, str]]:
    types, handed = condition_types(pipeline, step), []
    for name, reference in sorted(_outer_references(step, scope).items()):
        kind, ref = types[expression.render(reference)], reference.ref
        # Text for a sub-pipeline's parameter passes through Argo once more, so it travels without braces.
        plain = kind in references.PLAIN_TYPES
        value = scope.checked_number(ref, kind) if plain else references.percent_encoded(scope.text(ref))
        handed.append({"name": name, "value": value})
    return handed


def _inner_condition(pipeline: Pipeline, step: Step, scope: references.Scope) -> str:
    assert step.when is not None
    carriers = {reference.ref: name for name, reference in _outer_references(step, scope).items()}

    def read(ref: Ref, kind: str) -> str:
        if isinstance(ref, ItemRef) or ref not in carriers:
            return scope.read(ref, kind)
        value = f"inputs.parameters['{carriers[ref]}']"
        return value if kind in references.PLAIN_TYPES else references.percent_decoded(value)

    return f"{{{{={references.condition(step.when, condition_types(pipeline, step), read)}}}}}"


MAIN, EXIT = "main", "exit"


class Templates:
    """All templates of one workflow, in the order they are first needed."""

    def __init__(self, plan: Plan, semaphores: str | None = None, facts: references.RunFacts | None = None) -> None:
        self.plan = plan
        self.facts = facts or references.RunFacts()
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
            place_input = [templates.PLACE_INPUT] if within.name in self.plan.with_state else []
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
                "arguments": _arguments(pipeline, inputs, step, references.Scope(), ending=True),
                "when": _exit_condition(pipeline, step),
            }
            tasks.append({key: value for key, value in task.items() if value})
        alerts, called = alert_tasks(pipeline, self.plan.site, self.names)
        self.found.insert(place, {"name": EXIT, "dag": {"tasks": [*tasks, *alerts]}})
        self.found += called

    def _step(
        self, each: PlannedStep, prefix: str, wanted: frozenset[OutputRef] = frozenset()
    ) -> tuple[str, references.Inputs]:
        step, title = each.step, self.names.claim(prefix + each.own_name)
        if step.approval is not None:
            self.found.append(templates.approval_template(step.approval, title))
            return title, references.Inputs()
        if step.pipeline is not None:
            self.dag(each, title)
            return title, references.Inputs()
        within = templates.PLACE_TAG if each.parent else ""
        template, inputs = templates.step_template(each, title, self.semaphores, references.Inputs(self.facts), within)
        if "outputs" in template and not step.for_each:
            template["outputs"] = with_exports(template["outputs"], each.own_name, wanted)
            if "memoize" in template:  # an entry holds outputs with the names they are exported under
                template["memoize"] = templates.memoize(each.pipeline.name, title, template, inputs)
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
            "arguments": templates.with_place(
                _arguments(pipeline, inputs, step, scope), templates.place_of(each, self.plan)
            ),
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


def skipped_outputs(pipeline: Pipeline) -> references.Defaults:
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


def _condition(pipeline: Pipeline, step: Step, scope: references.Scope) -> str | None:
    if step.when is None:
        return None
    return f"{{{{={references.condition(step.when, condition_types(pipeline, step), scope.read)}}}}}"


STATUS = {"failure": "!= Succeeded", "success": "== Succeeded"}


def _exit_condition(pipeline: Pipeline, step: Step) -> str | None:
    """When an exit step runs: by how the run ended, and by its own condition."""
    by_status = STATUS.get(step.on or "")
    if step.when is None:
        return f"{{{{workflow.status}}}} {by_status}" if by_status else None

    def read_exported(ref: Ref, kind: str) -> str:
        return exported_value(pipeline, ref) if isinstance(ref, OutputRef) else references.Scope().read(ref, kind)

    own = references.condition(step.when, condition_types(pipeline, step), read_exported)
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
    pipeline: Pipeline, inputs: references.Inputs, step: Step, scope: references.Scope, *, ending: bool = False
) -> dict[str, Any] | None:
    """Values for the template's inputs: safe text for containers, carried text for a sub-pipeline's parameters.

    `ending`: of an exit step, which reads what was exported."""
    static, parameters = is_static(step), dict[str, str]()
    for name, ref in sorted(inputs.used.items()):
        kind = reference_type(pipeline, step, ref)
        if ending and isinstance(ref, OutputRef):
            value = _reference_text(pipeline, ref, exported_value(pipeline, ref))
            parameters[name] = (
                f"{{{{={references.typed_value(value, kind, ref)}}}}}"
                if kind in references.PLAIN_TYPES
                else references.safe_value(value)
            )
        elif isinstance(ref, ItemRef) and static:  # the list itself was written safely
            quoted = not scope.single_item and is_quoted(step, ref.name)
            parameters[name] = references.unquoted_item(ref.name) if quoted else scope.argument(ref)
        elif kind in references.PLAIN_TYPES:
            parameters[name] = scope.checked_number(ref, kind)
        else:
            parameters[name] = references.safe_value(_reference_text(pipeline, ref, scope.text(ref)))
    for name, value in _call_parameters(step).items():
        assert step.pipeline is not None
        kind = step.pipeline.params[name].type
        if not isinstance(value, ParamRef | OutputRef | ItemRef):
            parameters[name] = (
                text_of(value) if kind in references.PLAIN_TYPES else references.percent_encoded_text(text_of(value))
            )
        elif kind not in references.PLAIN_TYPES:
            parameters[name] = references.percent_encoded(_reference_text(pipeline, value, scope.text(value)))
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
    return references.typed_list(value, output_types(step.model_copy(update={"for_each": None}))[ref.name])


def _nested_outputs(pipeline: Pipeline) -> dict[str, Any]:
    parameters = []
    defaults = skipped_outputs(pipeline)
    for name, ref in pipeline.outputs.items():
        assert isinstance(ref, OutputRef)
        source = {"parameter": references.Scope(nested=True).argument(ref)}
        if ref in defaults:
            source["default"] = defaults[ref]
        parameters.append({"name": name, "valueFrom": source})
    return {"parameters": parameters}
