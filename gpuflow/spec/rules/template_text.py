"""Text in a pipeline that looks like a template: gpuflow passes it on as it is, and says what to write instead."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpuflow.core.errors import Finding, Where
from gpuflow.spec.container import ConfigMapKey, SecretKey
from gpuflow.spec.references import output_types
from gpuflow.spec.step import Pipeline, Step
from gpuflow.spec.template_tags import Meaning, is_engines, meaning_of_tag, tags_in
from gpuflow.spec.text import RUN_FIELDS, Literally, Text, parts_of

Path = tuple[str | int, ...]
LITERALLY = 'or {text: "…"} if the program is to receive it as it stands'
REFERENCES = "gpuflow has references instead of templates: {param: …}, {output: step.name}, {item: …}, {run: id}"
SILENCE = "or silence: [GF341] in the pipeline, if it is meant as it stands"
MOST_SHOWN = 120


def template_warnings(pipeline: Pipeline) -> list[Finding]:
    """A warning for every text that looks like a template and is not said to be meant literally; one for each place."""
    return list(dict.fromkeys(_of_pipeline(pipeline)))


def step_template_warnings(step: Step, where: Where) -> list[Finding]:
    """The same, of a step that stands alone in hand-written engine code: every reference is an argument of its call."""
    findings = []
    for path, text, kind in _texts(step):
        tags = _template_tags(text, kind)
        if tags:
            message = (
                f"{_place_text(path)}: {_first_tag(tags)} is plain text to gpuflow and reaches the program as it stands"
            )
            hint = f"write a reference such as {{param: x}}, and pass x= where the step is used; {LITERALLY}"
            findings.append(Finding("GF341", message, where, hint, "warning"))
    return findings


def value_template_warning(name: str, value: Any, where: Where, instead: str) -> list[Finding]:
    """The same, of a value that hand-written engine code passes to a step."""
    tags = _tags(value) if isinstance(value, str) and not isinstance(value, Literally) else []
    if not tags:
        return []
    message = f"{name}={_first_tag(tags)} is plain text to gpuflow and reaches the program as it stands"
    return [Finding("GF341", message, where, f'{instead}; pass gpuflow.text("…") if it is meant', "warning")]


def _of_pipeline(pipeline: Pipeline) -> Iterator[Finding]:
    for name, param in pipeline.params.items():
        tags = _tags(param.default) if isinstance(param.default, str) else []
        if tags:
            message = (
                f'parameter "{name}": {_first_tag(tags)} in the default is plain text to gpuflow: nothing fills it in'
            )
            hint = f"use the reference where the parameter is used, or compute it in the program; {SILENCE}"
            yield Finding("GF341", message, pipeline.where("params", name, "default"), hint, "warning")
    for index, uri in enumerate(pipeline.on_data):
        if tags := _tags(uri):
            message = f"on_data: {_first_tag(tags)} is plain text to gpuflow: nothing fills it in"
            hint = f"name the location up to there; {SILENCE}"
            yield Finding("GF341", message, pipeline.where("on_data", index), hint, "warning")
    for path, text, kind in _of_settings(pipeline.defaults, ()):
        yield from _finding(pipeline, "defaults", ("defaults", *path), text, kind, None)
    for section in ("steps", "exit"):
        for name, step in getattr(pipeline, section).items():
            for path, text, kind in _texts(step):
                yield from _finding(pipeline, f'step "{name}"', (section, name, *path), text, kind, step)
            if step.pipeline is not None:
                yield from _of_pipeline(step.pipeline)


def _finding(pipeline: Pipeline, who: str, path: Path, text: Text, kind: str, step: Step | None) -> Iterator[Finding]:
    tags = _template_tags(text, kind)
    if not tags:
        return
    what = {"script": "the script receives it as it stands", "fixed": "nothing fills it in"}.get(
        kind, "it reaches the program as it stands"
    )
    place = path[1:] if path[0] == "defaults" else path[2:]
    message = f"{who}: {_first_tag(tags)} in {_place_text(place)} is plain text to gpuflow: {what}"
    found = [_reference(meaning_of_tag(tag), pipeline, step) for tag in tags]
    known = list(dict.fromkeys(each.text for each in found if each is not None))
    if kind == "fixed":
        hint = f"no reference can stand here; {SILENCE}"
    elif kind == "script":
        shown = known[0] if known else "{param: …}"
        hint = f"pass it as a variable, env: {{NAME: {shown}}}, and use $NAME in the script; {SILENCE}"
    elif None in found:
        some = f"write {' and '.join(known)} for what has a reference; " if known else ""
        hint = f"{some}{REFERENCES}; {LITERALLY}"
    else:
        hint = f"write {_rewritten(text, pipeline, step)}; {LITERALLY}"
    first = list(dict.fromkeys(each.first for each in found if each is not None and each.first))
    if first and kind != "fixed":
        hint = f"{'; '.join(first)}; {hint}"
    yield Finding("GF341", message, pipeline.where(*path), hint, "warning")


def _tags(text: str) -> list[str]:
    return [tag.text for tag in tags_in(text)]


def _template_tags(text: Text, kind: str) -> list[str]:
    """The tags in a text that deserve a warning. In a script only those of the engines: all others are its own."""
    parts = (part for part in parts_of(text) if isinstance(part, str) and not isinstance(part, Literally))
    tags = [tag for part in parts for tag in _tags(part)]
    return [tag for tag in tags if is_engines(tag)] if kind == "script" else tags


class _Reference(NamedTuple):
    """A reference that says what a tag says, and what must be declared before it can stand."""

    text: str
    first: str | None = None


def _reference(meaning: Meaning | None, pipeline: Pipeline, step: Step | None) -> _Reference | None:
    """The reference to write for a tag; None where gpuflow has none, or it is not clear which."""
    if meaning is None:
        return None
    kind, name = meaning
    items = tuple(step.for_each or ()) if step is not None else ()
    if kind == "run":
        return _Reference(f"{{run: {name}}}") if name.split(",")[0] in RUN_FIELDS else None
    if kind == "item":
        own = name or (items[0] if len(items) == 1 else "")
        return _Reference(f"{{item: {own}}}") if own in items else None
    if kind == "output":
        return _output(name, pipeline)
    plain = name.replace("-", "_")
    if plain in items:
        return _Reference(f"{{item: {plain}}}")
    return _Reference(f"{{param: {plain}}}", None if plain in pipeline.params else f"declare {plain} under params")


def _output(name: str, pipeline: Pipeline) -> _Reference | None:
    step, _, output = name.partition(".")
    if step not in pipeline.steps:
        return None
    known = tuple(output_types(pipeline.steps[step]))
    if output in ("result", "return_value"):
        return _Reference(f"{{output: {step}.{known[0]}}}") if len(known) == 1 else None
    plain = output.replace("-", "_")
    return _Reference(
        f"{{output: {step}.{plain}}}", None if plain in known else f'declare {plain} under outputs of step "{step}"'
    )


def _rewritten(text: Text, pipeline: Pipeline, step: Step | None) -> str:
    """The whole text with its tags as references, as the document would write it."""
    parts: list[str] = []
    for part in parts_of(text):
        if not isinstance(part, str):
            ((kind, value),) = list(part.canonical().items())[:1]
            parts.append(f"{{{kind}: {value}}}")
            continue
        at = 0
        for tag in tags_in(part):
            reference = _reference(meaning_of_tag(tag.text), pipeline, step)
            parts += [_quote(part[at : tag.start]), "" if reference is None else reference.text]
            at = tag.end
        parts.append(_quote(part[at:]))
    parts = [part for part in parts if part]
    whole = parts[0] if len(parts) == 1 else f"{{join: [{', '.join(parts)}]}}"
    return (
        whole
        if len(whole) <= MOST_SHOWN
        else "{join: […]} with " + " and ".join(dict.fromkeys(part for part in parts if part.startswith("{")))
    )


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False) if text else ""


def _first_tag(tags: list[str]) -> str:
    """The first tag; long ones are cut, since a message is one line."""
    first = " ".join(tags[0].split())
    more = len(dict.fromkeys(tags)) - 1
    return (first if len(first) <= 60 else f"{first[:57]}…") + (f" (and {more} more)" if more else "")


def _place_text(path: Path) -> str:
    """`env.DATE`, `args`, `sidecars.command`: where a text stands, without its number in a list."""
    return ".".join(str(part) for part in path if isinstance(part, str)) or "the step"


def _of_settings(settings: Any, place: Path) -> Iterator[tuple[Path, Text, str]]:
    """The texts of a step's or a helper's settings, or of a pipeline's defaults."""
    for name, value in settings.env.items():
        if not isinstance(value, SecretKey | ConfigMapKey):
            yield (*place, "env", name), value, "text"
    if getattr(settings, "image", None) is not None:
        yield (*place, "image"), settings.image, "fixed"
    for name, value in getattr(settings, "annotations", {}).items():
        yield (*place, "annotations", name), value, "fixed"


def _texts(step: Step) -> Iterator[tuple[Path, Text, str]]:
    """Every text of a step that a template could stand in, with its place and its kind: text, script or fixed."""
    for place, holder in ((), step), *_helpers(step), *_leader(step):
        for field in ("command", "args"):
            for index, value in enumerate(getattr(holder, field)):
                yield (*place, field, index), value, "text"
        yield from _of_settings(holder, place)
    for place, holder in ((), step), *_leader(step):
        if holder.script is not None:
            yield (*place, "script"), holder.script.run, "script"
    for mount, given in step.inputs.items():
        if given.uri is not None:
            yield ("inputs", mount), given.uri, "text"
    for name, output in step.outputs.items():
        if output.uri is not None:
            yield ("outputs", name, "uri"), output.uri, "text"
    if step.checkpoint is not None:
        yield ("checkpoint", "store"), step.checkpoint.store, "text"
    for name, value in step.params.items():
        if isinstance(value, str):
            yield ("params", name), value, "text"
    for name, source in (step.for_each or {}).items():
        for item in source if isinstance(source, tuple) else ():
            if isinstance(item, str):
                yield ("for_each", name), item, "fixed"
    if step.approval is not None:
        yield ("approval",), step.approval.message, "fixed"


def _leader(step: Step) -> Iterator[tuple[Path, Any]]:
    if step.gang is not None and step.gang.leader is not None:
        yield ("gang", "leader"), step.gang.leader


def _helpers(step: Step) -> Iterator[tuple[Path, Any]]:
    for field in ("init_containers", "sidecars"):
        for index, helper in enumerate(getattr(step, field)):
            yield (field, index), helper
