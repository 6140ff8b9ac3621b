"""What must hold across a pipeline: names that lead somewhere, no loops, outputs that exist when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from pydantic_core import PydanticCustomError

from gpuflow.core.errors import Finding, did_you_mean
from gpuflow.graph.order import find_cycle
from gpuflow.spec import expression
from gpuflow.spec.engine_options.rules import option_faults, role_faults
from gpuflow.spec.problems import Source
from gpuflow.spec.references import edges, may_be_skipped, output_types, type_of
from gpuflow.spec.rules import step_rules
from gpuflow.spec.rules.step_rules import finding_at
from gpuflow.spec.rules.volume_room import room_faults
from gpuflow.spec.schedule import has_rules, missing_rules_problem
from gpuflow.spec.step import Pipeline, Step
from gpuflow.spec.storage_paths import call_arguments
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef, Ref, RunRef


def broken_rules(pipeline: Pipeline) -> Iterator[Finding]:
    """Every finding about a pipeline of the right shape."""
    yield from _document(pipeline)
    sound = True
    for section in ("steps", "exit"):
        for name in getattr(pipeline, section):
            for finding in _step(pipeline, section, name):
                sound = False
                yield finding
    if not sound:
        return  # loops and skips are only meaningful when every name leads somewhere
    cycle = find_cycle(edges(pipeline))
    if cycle:
        text, hint = f"the steps wait for each other: {' -> '.join(cycle)}", "remove one of these needs or references"
        yield finding_at(pipeline, "GF172", text, ("steps", cycle[0], "needs"), hint)
        return
    yield from _skipped_outputs(pipeline)
    yield from role_faults(pipeline)


def _document(pipeline: Pipeline) -> Iterator[Finding]:
    at = partial(finding_at, pipeline)
    if not pipeline.steps:
        yield at("GF170", f'pipeline "{pipeline.name}" has no steps', ("steps",), hint="add at least one step")
    yield from option_faults(pipeline)
    schedule = pipeline.schedule
    if schedule is not None and schedule.start is not None and not has_rules(schedule.timezone):
        code, text, hint = missing_rules_problem(schedule.timezone, "schedule.start cannot be placed")
        yield at(code, text, ("schedule", "start"), hint=hint)
    for name in pipeline.exit:
        if name in pipeline.steps:
            message = f'"{name}" is the name of a step and of an exit step'
            yield at("GF109", message, ("exit", name), hint="rename one", key=True)
    for name, ref in pipeline.outputs.items():
        if not isinstance(ref, OutputRef):
            yield at("GF173", f'the pipeline\'s output "{name}" must be {{output: step.name}}', ("outputs", name))
        else:
            yield from _output_exists(pipeline, ref, ("outputs", name), "the pipeline")


def _step(pipeline: Pipeline, section: str, name: str) -> Iterator[Finding]:
    step, path = pipeline.effective(name), (section, name)
    at = partial(finding_at, pipeline)
    who = f'step "{name}"'
    for index, need in enumerate(step.needs):
        yield from _need(pipeline, section, name, need, (*path, "needs", index))
    if step.on is not None and section == "steps":
        text = f'{who}: "on" belongs to exit steps'
        yield at("GF174", text, (*path, "on"), "move the step under exit:", key=True)
    if section == "exit" and (step.for_each or step.pipeline):
        text = f"exit {who}: an exit step cannot be a fan-out or a sub-pipeline"
        yield at("GF174", text, path, hint="make it one container")
    for place, ref in dict.fromkeys(step.references()):
        yield from _reference(pipeline, name, step, ref, (*path, *place))
    if step.runs_container and step.image is None:
        yield at("GF176", f"{who} has no image", path, hint="give it one, or set defaults.image", key=True)
    for rule in STEP_RULES:
        yield from rule(pipeline, step, path)
    for message, inside, instead in step_rules.xcom_faults(step):
        yield at("GF364", f"{who}: {message}", (*path, *inside), hint=instead)
    yield from _sub_pipeline(pipeline, step, path)
    for code, message, place, hint in step_rules.check_hardware(step):
        yield at(code, f"{who}: {message}", (*path, *place), hint=hint)


def _need(pipeline: Pipeline, section: str, name: str, need: str, path: tuple[str | int, ...]) -> Iterator[Finding]:
    at = partial(finding_at, pipeline)
    if section == "exit":
        text = f'exit step "{name}" cannot need "{need}": exit steps run when everything else has ended'
        yield at("GF175", text, path, hint="remove needs")
    elif need == name:
        yield at("GF172", f'step "{name}" needs itself', path, hint="remove it")
    elif need in pipeline.exit:
        text = f'step "{name}" needs the exit step "{need}", which runs after everything else'
        yield at("GF175", text, path, hint="move it under steps:")
    elif need not in pipeline.steps:
        text = f'step "{name}" needs "{need}", which does not exist'
        yield at("GF177", text, path, hint=did_you_mean(need, pipeline.steps))


def _reference(pipeline: Pipeline, name: str, step: Step, ref: Ref, path: tuple[str | int, ...]) -> Iterator[Finding]:
    at = partial(finding_at, pipeline)
    who = f'step "{name}"'
    if isinstance(ref, RunRef):
        kept = next((field for field in ("checkpoint", "outputs") if field in path[2:]), None)
        if ref.field == "attempt" and kept is not None:
            text = f"{who}: a later attempt would not find its {kept} under {{run: attempt}}"
            yield at("GF333", text, path, hint="leave it out; {run: id} tells runs apart")
        return
    if isinstance(ref, ParamRef):
        if ref.name not in pipeline.params:
            hint = did_you_mean(ref.name, pipeline.params) or f"declare it: params: {{{ref.name}: {{type: string}}}}"
            yield at("GF178", f'{who} uses the parameter "{ref.name}", which does not exist', path, hint)
    elif isinstance(ref, ItemRef):
        if ref.name not in (step.for_each or {}):
            hint = did_you_mean(ref.name, step.for_each or {}) or f"add for_each: {{{ref.name}: [...]}} to the step"
            yield at("GF179", f'{who} uses the fan-out item "{ref.name}", which it does not have', path, hint=hint)
    elif ref.step == name:
        yield at("GF175", f'{who} uses its own output "{ref.name}"', path, "an output exists when its step has ended")
    elif ref.step in pipeline.exit:
        text = f'{who} uses an output of the exit step "{ref.step}", which is not upstream'
        yield at("GF175", text, path, hint="move that step under steps:")
    else:
        yield from _output_exists(pipeline, ref, path, who)


def _output_exists(pipeline: Pipeline, ref: OutputRef, path: tuple[str | int, ...], who: str) -> Iterator[Finding]:
    if ref.step not in pipeline.steps:
        text = f'{who} uses "{ref.step}.{ref.name}", but there is no step "{ref.step}"'
        yield finding_at(pipeline, "GF180", text, path, hint=did_you_mean(ref.step, pipeline.steps))
        return
    known = output_types(pipeline.steps[ref.step])
    if ref.name not in known:
        hint = did_you_mean(ref.name, known) or f"declare it: outputs: {{{ref.name}: {{type: string}}}}"
        text = f'{who} uses "{ref.step}.{ref.name}", but step "{ref.step}" has no output "{ref.name}"'
        yield finding_at(pipeline, "GF181", text, path, hint=hint)


def _condition(pipeline: Pipeline, step: Step, path: tuple[str | int, ...]) -> Iterator[Finding]:
    found = expression.references(step.when) if step.when is not None else ()
    if step.when is None or not all(_reference_exists(pipeline, step, each.ref) for each in found):
        return  # a name that leads nowhere has its own finding; what type it might have had is no second one
    try:
        kind = expression.infer(step.when, partial(type_of, pipeline, step))
        if kind != "bool":
            text = f"the condition gives {kind}, not true or false"
            raise expression.ExpressionError(text, 0, "compare it with something", "GF162")
    except expression.ExpressionError as refusal:
        hint = f"in: {expression.render(step.when)}" + (f"\n{refusal.hint}" if refusal.hint else "")
        yield finding_at(pipeline, refusal.code, f'step "{path[1]}": {refusal.message}', (*path, "when"), hint=hint)


def _reference_exists(pipeline: Pipeline, step: Step, ref: Ref) -> bool:
    if isinstance(ref, ParamRef):
        return ref.name in pipeline.params
    if isinstance(ref, OutputRef):
        return ref.step in pipeline.steps and ref.name in output_types(pipeline.steps[ref.step])
    return isinstance(ref, ItemRef) and ref.name in (step.for_each or {})


def _sub_pipeline(pipeline: Pipeline, step: Step, path: tuple[str | int, ...]) -> Iterator[Finding]:
    inner = step.pipeline
    if inner is None:
        return
    at = partial(finding_at, pipeline)
    for field in ("schedule", "on_data", "engines", "claims", "exit", "notify"):
        if getattr(inner, field):
            text = f'step "{path[1]}": a sub-pipeline has no {field} of its own'
            yield at("GF187", text, (*path, "pipeline", field), hint="the outermost pipeline decides", key=True)
    for name, value in step.params.items():
        if name not in inner.params:
            text = f'step "{path[1]}": the sub-pipeline has no parameter "{name}"'
            yield at("GF188", text, (*path, "params", name), hint=did_you_mean(name, inner.params), key=True)
        elif not isinstance(value, ParamRef | OutputRef | ItemRef):
            try:
                inner.params[name].accept(value)
            except PydanticCustomError as refusal:
                context = refusal.context or {}
                text = f'step "{path[1]}": parameter "{name}": {context.get("message")}'
                yield at(refusal.type, text, (*path, "params", name), hint=context.get("hint"))
    missing = [name for name, param in inner.params.items() if param.required and name not in step.params]
    if missing:
        text = f'step "{path[1]}": the sub-pipeline needs {", ".join(missing)}'
        yield at("GF188", text, (*path, "params"), hint="give them under params:")
    if inner.source.file is None or inner.source.is_part:
        # Written here, or included: its places are places of this document.
        source = Source(pipeline.source.file, lambda p, key: pipeline.source.locate((*path, "pipeline", *p), key), True)
        for each in (inner, getattr(pipeline, str(path[0]))[path[1]].pipeline):  # with what it inherits, and as written
            each._source = source
    for name, values in call_arguments(pipeline, step).items():
        # Several steps may call it.
        inner.param_texts[name] = tuple(dict.fromkeys((*inner.param_texts.get(name, ()), *values)))
    for finding in broken_rules(inner):
        yield replace(finding, message=f'step "{path[1]}": {finding.message}')


STEP_RULES = (
    _condition,
    step_rules.fan_out_faults,
    step_rules.file_faults,
    step_rules.input_faults,
    room_faults,
    step_rules.output_faults,
    step_rules.memory_faults,
    step_rules.leader_faults,
    step_rules.null_faults,
)
"""What is asked of every step with its defaults, in this order."""


def _skipped_outputs(pipeline: Pipeline) -> Iterator[Finding]:
    """Outputs that are read although their step may not have run."""
    skippable = may_be_skipped(pipeline)
    for section in ("steps", "exit") if skippable else ("exit",):
        for name in getattr(pipeline, section):
            step = pipeline.effective(name)
            for place, ref in dict.fromkeys(step.references()):
                output = pipeline.steps[ref.step].outputs.get(ref.name) if isinstance(ref, OutputRef) else None
                if not isinstance(ref, OutputRef) or (output is not None and output.default is not None):
                    continue
                path = (section, name, *place)
                found = pipeline.declared_output(ref)
                is_artifact = found is not None and found[0].is_artifact
                who, default = f'step "{name}" uses {ref.step}.{ref.name}', f"give the output {ref.name} a default"
                if section == "exit":
                    text = f'exit {who}, which is missing when "{ref.step}" failed or was skipped'
                    files = "an exit step cannot read files: read them in a step, and give the exit step a value"
                    yield finding_at(pipeline, "GF189", text, path, files if is_artifact else default)
                elif ref.step in skippable and step.if_skipped != "skip":
                    text = f'{who}, but "{ref.step}" may be skipped: {skippable[ref.step]}'
                    hint = f'say if_skipped: skip on "{name}"' + ("" if is_artifact else f", or {default}")
                    yield finding_at(pipeline, "GF190", text, path, hint)
