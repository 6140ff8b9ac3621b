"""Warnings about a pipeline that is valid, such as retries without a number, and which of them its file silences."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from gpuflow.core.errors import Finding, Problem, Rule, Where, rule
from gpuflow.core.secret_text import is_secret_name, is_secret_value, passwords_in, secret_kind_in
from gpuflow.spec.container import ConfigMapKey, SecretKey
from gpuflow.spec.engine_options.rules import ineffective_options
from gpuflow.spec.kubernetes_fields import variables_of
from gpuflow.spec.policies import Leader, Retry
from gpuflow.spec.references import output_types
from gpuflow.spec.rules.volume_room import tight_claims
from gpuflow.spec.step import Pipeline, Step
from gpuflow.spec.template_tags import Meaning, is_engines, meaning_of_tag, tags_in
from gpuflow.spec.text import RUN_FIELDS, Literally, ParamRef, Text, parts_of

Path = tuple[str | int, ...]
SECRET_HINT = "write {name}: {{secret: SECRET, key: KEY}}, and keep the value in that Secret of the namespace"
ENV_HINT = "pass it with env: {NAME: {secret: SECRET, key: KEY}}, and change what was shown"
ADDRESS = "an address with a password"
ADDRESS_HINT = "take user and password out of it; pass them with env: {NAME: {secret: SECRET, key: KEY}}"


@rule("GF601", "GF602")
def exposed_secrets(pipeline: Pipeline) -> Iterable[Finding]:
    """A warning for every secret in plain text, the sub-pipelines included. No message repeats the secret."""
    return dict.fromkeys(_of_pipeline(pipeline))


def secrets_in_text(place: str, text: Any, where: Any) -> Iterator[Finding]:
    """A warning when a text holds an address with a password, or a secret that is known by its form."""
    kinds = set(_secrets_in(text))
    if ADDRESS in kinds:
        message = f"{place} holds an address with a password, which everybody sees who may see the run"
        yield Finding("GF602", message, where, ADDRESS_HINT, "warning")
    for kind in sorted(kinds - {ADDRESS}):
        message = f"{place} holds {kind} in plain text, for everybody who may see the file or the run"
        yield Finding("GF601", message, where, ENV_HINT, "warning")


def _secrets_in(value: Any) -> Iterator[str]:
    """The kinds of secrets in a value. An option and its value may be two words of a command."""
    texts = list(_texts(value))
    if any(True for text in texts for _ in passwords_in(text)):
        yield ADDRESS
    if isinstance(value, list | tuple):
        texts.append(" ".join(word if isinstance(word, str) else "$" for word in value))
    yield from filter(None, map(secret_kind_in, texts))


def _of_pipeline(pipeline: Pipeline) -> Iterator[Finding]:
    for name, param in pipeline.params.items():
        where = pipeline.where("params", name, "default")
        yield from secrets_in_text(f'the default of parameter "{name}"', param.default, where)
        if is_secret_name(name) and isinstance(param.default, str) and is_secret_value(param.default):
            message = f'parameter "{name}" has a secret as its default, in plain text'
            hint = "drop the parameter; steps take it with env: {NAME: {secret: SECRET, key: KEY}}"
            yield Finding("GF601", message, where, hint, "warning")
    for index, uri in enumerate(pipeline.on_data):
        yield from secrets_in_text("on_data", uri, pipeline.where("on_data", index))
    for section in ("steps", "exit"):
        for name in getattr(pipeline, section):
            yield from _of_step(pipeline, pipeline.effective(name), (section, name))


def _of_step(pipeline: Pipeline, step: Step, path: Path) -> Iterator[Finding]:
    who = f'step "{path[1]}"'
    yield from _environment(pipeline, who, step.env, (*path, "env"))
    for place, helper in _helpers(step):
        yield from _environment(pipeline, f"{who}, {helper.name}", helper.env, (*path, *place, "env"))
        for part in ("command", "args"):
            where = pipeline.where(*path, *place, part)
            yield from secrets_in_text(f"{who}, {helper.name}: {part}", getattr(helper, part), where)
    program = (("command", step.command), ("args", step.args), ("script", step.script and step.script.run))
    for field, text in (*program, ("annotations", step.annotations)):
        if text and any(_secrets_in(text)):
            yield from secrets_in_text(f"{who}: {field}", text, pipeline.where(*path, field))
    if step.kubernetes is not None and step.kubernetes.merge is not None:
        variables = variables_of(step.kubernetes.merge)
        yield from _environment(pipeline, who, variables, (*path, "kubernetes", "merge"))
    if step.gang is not None and step.gang.leader is not None:
        yield from _of_leader(pipeline, f"{who}, the leader", step.gang.leader, (*path, "gang", "leader"))
    if step.checkpoint is not None:
        place = (*path, "checkpoint", "store")
        yield from secrets_in_text(f"{who}: checkpoint.store", step.checkpoint.store, pipeline.where(*place))
    for name, output in step.outputs.items():
        where = pipeline.where(*path, "outputs", name, "uri")
        yield from secrets_in_text(f"{who}: the uri of output {name}", output.uri, where)
    for mount, given in step.inputs.items():
        yield from secrets_in_text(f"{who}: the input {mount}", given.uri, pipeline.where(*path, "inputs", mount))
    if step.pipeline is not None:
        yield from _of_pipeline(step.pipeline)


def _of_leader(pipeline: Pipeline, who: str, leader: Leader, path: Path) -> Iterator[Finding]:
    yield from _environment(pipeline, who, leader.env, (*path, "env"))
    program = (("command", leader.command), ("args", leader.args), ("script", leader.script and leader.script.run))
    for field, text in program:
        yield from secrets_in_text(f"{who}: {field}", text, pipeline.where(*path, field))
    if leader.kubernetes is not None and leader.kubernetes.merge is not None:
        yield from _environment(pipeline, who, variables_of(leader.kubernetes.merge), (*path, "kubernetes", "merge"))


def _environment(pipeline: Pipeline, who: str, env: dict[str, Any], path: Path) -> Iterator[Finding]:
    for name, value in env.items():
        has_secret_name = is_secret_name(name)
        if isinstance(value, SecretKey | ConfigMapKey) or not (has_secret_name or any(_secrets_in(value))):
            continue
        where = pipeline.where(*path, name)  # looked up only then: of many steps, that is felt
        by_form = secrets_in_text(f"{who}: {name}", value, where)
        if not has_secret_name:
            yield from by_form
            continue
        yield from (each for each in by_form if each.code == "GF602")
        parts, how = parts_of(value), None
        if any(isinstance(part, ParamRef) for part in parts):
            how = "comes from a parameter, which every engine shows in plain text"
        elif all(isinstance(part, str) for part in parts) and is_secret_value("".join(map(str, parts))):
            how = "is written in plain text, for everybody who may see the file or the run"
        if how is not None:
            yield Finding("GF601", f"{who}: {name} {how}", where, SECRET_HINT.format(name=name), "warning")


def _texts(value: Any) -> Iterator[str]:
    """Every literal text in a value: a text, a list of them, or JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list | tuple):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
    elif hasattr(value, "parts"):
        yield from _texts(value.parts)


LITERALLY = 'or {text: "…"} if the program is to receive it as it stands'
REFERENCES = "gpuflow has references instead of templates: {param: …}, {output: step.name}, {item: …}, {run: id}"
SILENCE = "or silence: [GF341] in the pipeline, if it is meant as it stands"
PLAIN_TEXT = "is plain text to gpuflow and reaches the program as it stands"
MOST_SHOWN = 120


@rule("GF341")
def template_warnings(pipeline: Pipeline) -> Iterable[Finding]:
    """A warning for every text that looks like a template and is not said to be meant literally; one for each place."""
    return dict.fromkeys(_template_text(pipeline))


def step_template_warnings(step: Step, where: Where) -> list[Finding]:
    """The same, of a step that stands alone in hand-written engine code: every reference is an argument of its call."""
    hint = f"write a reference such as {{param: x}}, and pass x= where the step is used; {LITERALLY}"
    found = ((_place_text(path), _template_tags(text, kind)) for path, text, kind in _template_texts(step))
    messages = [f"{place}: {_first_tag(tags)} {PLAIN_TEXT}" for place, tags in found if tags]
    return [Finding("GF341", message, where, hint, "warning") for message in messages]


def value_template_warning(name: str, value: Any, where: Where, instead: str) -> list[Finding]:
    """The same, of a value that hand-written engine code passes to a step."""
    tags = _tags(value) if isinstance(value, str) and not isinstance(value, Literally) else []
    if not tags:
        return []
    message = f"{name}={_first_tag(tags)} {PLAIN_TEXT}"
    return [Finding("GF341", message, where, f'{instead}; pass gpuflow.text("…") if it is meant', "warning")]


def _template_text(pipeline: Pipeline) -> Iterator[Finding]:
    for name, param in pipeline.params.items():
        tags = _tags(param.default) if isinstance(param.default, str) else []
        if tags:
            message = f'parameter "{name}": {_first_tag(tags)} in the default is plain text to gpuflow'
            message += ": nothing fills it in"
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
            for path, text, kind in _template_texts(step):
                yield from _finding(pipeline, f'step "{name}"', (section, name, *path), text, kind, step)
            if step.pipeline is not None:
                yield from _template_text(step.pipeline)


def _finding(pipeline: Pipeline, who: str, path: Path, text: Text, kind: str, step: Step | None) -> Iterator[Finding]:
    tags = _template_tags(text, kind)
    if not tags:
        return
    ways = {"script": "the script receives it as it stands", "fixed": "nothing fills it in"}
    what = ways.get(kind, "it reaches the program as it stands")
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
    first = None if plain in known else f'declare {plain} under outputs of step "{step}"'
    return _Reference(f"{{output: {step}.{plain}}}", first)


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
    if len(whole) <= MOST_SHOWN:
        return whole
    return "{join: […]} with " + " and ".join(dict.fromkeys(part for part in parts if part.startswith("{")))


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


def _template_texts(step: Step) -> Iterator[tuple[Path, Text, str]]:
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


HINT = "add the number, for example any: 3; or write retry: 0 if no retry is meant"


@rule("GF210")
def idle_retries(pipeline: Pipeline) -> Iterator[Problem | Finding]:
    """A warning for every `retry` that says how to retry and not how often, the sub-pipelines included."""
    default = pipeline.defaults.retry
    retries = default is not None and default.attempts > 0
    lost = f", and the retry of defaults ({_number(default)}) is replaced" if default is not None and retries else ""
    for name, step in (*pipeline.steps.items(), *pipeline.exit.items()):
        if step.pipeline is not None:
            yield from idle_retries(step.pipeline)
        elif step.retry is not None and _is_idle(step.retry):
            message = f'step "{name}": retry has no number, so the step is not retried{lost}'
            yield Problem(message, pipeline.where_step(name, "retry"), HINT)
    if default is not None and _is_idle(default):
        message = "the retry of defaults has no number, so steps without their own are not retried"
        yield Problem(message, pipeline.where("defaults", "retry"), HINT)


def _is_idle(retry: Retry) -> bool:
    """Whether nothing is retried and nobody wrote that down."""
    return retry.any is None and not retry.model_fields_set & {"failures", "interruptions"}


def _number(retry: Retry) -> str:
    if retry.any is not None:
        return str(retry.any)
    given = {"failures": retry.failures, "interruptions": retry.interruptions}
    return ", ".join(f"{name}: {number}" for name, number in given.items() if number)


SILENCED_CODE = "GF343"
"""The code of the line that counts what is silenced."""


REMARKS: Final[tuple[Rule[Pipeline], ...]] = (
    exposed_secrets, template_warnings, idle_retries, ineffective_options, tight_claims,
)  # fmt: skip


def remarks_on(pipeline: Pipeline) -> list[Finding]:
    """Warnings about what a pipeline says, its sub-pipelines included: secrets in plain text, text like a template,
    retries without a number, words of an engine without effect, claims smaller than what is put into them."""
    return [finding for each in REMARKS for finding in each(pipeline)]


def log_findings(findings: Iterable[Finding], logger: str) -> None:
    """Findings where an engine's own code uses gpuflow: the log is all there is, and it is shown by default."""
    for finding in findings:
        logging.getLogger(logger).warning("%s", finding.render())


def without_silenced(pipeline: Pipeline, findings: Iterable[Finding]) -> list[Finding]:
    """The findings without those that the pipeline's file silences, and one line that counts them."""
    return without_codes(pipeline.silence, findings, pipeline.where("silence"))


def without_codes(codes: Iterable[str], findings: Iterable[Finding], where: Where) -> list[Finding]:
    """The same for any codes. Errors are never silenced."""
    everything, quiet = list(findings), frozenset(codes)
    if not quiet:
        return everything
    silenced = Counter(each.code for each in everything if each.severity != "error" and each.code in quiet)
    left = [each for each in everything if each.severity == "error" or each.code not in quiet]
    if silenced and SILENCED_CODE not in quiet:
        counts = ", ".join(f"{code} x {count}" if count > 1 else code for code, count in sorted(silenced.items()))
        total = sum(silenced.values())
        text = f"{total} {'finding is' if total == 1 else 'findings are'} silenced here: {counts}"
        left.append(Finding(SILENCED_CODE, text, where, severity="note"))
    return left
