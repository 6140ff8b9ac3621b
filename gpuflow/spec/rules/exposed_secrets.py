"""Secrets that a pipeline spells out. Documents are in Git, and every engine shows what it runs to all who may look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuflow.core.errors import Finding
from gpuflow.core.secret_text import is_secret_name, is_secret_value, passwords_in, secret_kind_in
from gpuflow.spec.container import ConfigMapKey, SecretKey
from gpuflow.spec.gang import Leader
from gpuflow.spec.kubernetes_fields import variables_of
from gpuflow.spec.step import Pipeline, Step
from gpuflow.spec.text import ParamRef, parts_of

Path = tuple[str | int, ...]
SECRET_HINT = "write {name}: {{secret: SECRET, key: KEY}}, and keep the value in that Secret of the namespace"
ENV_HINT = "pass it with env: {NAME: {secret: SECRET, key: KEY}}, and change what was shown"
ADDRESS = "an address with a password"
ADDRESS_HINT = "take user and password out of it; pass them with env: {NAME: {secret: SECRET, key: KEY}}"


def exposed_secrets(pipeline: Pipeline) -> list[Finding]:
    """A warning for every secret in plain text, the sub-pipelines included. No message repeats the secret."""
    return list(dict.fromkeys(_of_pipeline(pipeline)))


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
    for field in ("init_containers", "sidecars"):
        for index, helper in enumerate(getattr(step, field)):
            yield from _environment(pipeline, f"{who}, {helper.name}", helper.env, (*path, field, index, "env"))
            for part in ("command", "args"):
                where = pipeline.where(*path, field, index, part)
                yield from secrets_in_text(f"{who}, {helper.name}: {part}", getattr(helper, part), where)
    program = (("command", step.command), ("args", step.args), ("script", step.script and step.script.run))
    for field, text in (*program, ("annotations", step.annotations)):
        # The place is looked up only then: of many steps, that is felt.
        if text and any(True for _ in _secrets_in(text)):
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
        if isinstance(value, SecretKey | ConfigMapKey):
            continue
        where = pipeline.where(*path, name)
        by_form = secrets_in_text(f"{who}: {name}", value, where)
        if not is_secret_name(name):
            yield from by_form
            continue
        yield from (each for each in by_form if each.code == "GF602")
        parts = parts_of(value)
        hint = SECRET_HINT.format(name=name)
        if any(isinstance(part, ParamRef) for part in parts):
            message = f"{who}: {name} comes from a parameter, which every engine shows in plain text"
            yield Finding("GF601", message, where, hint, "warning")
        elif all(isinstance(part, str) for part in parts) and is_secret_value("".join(map(str, parts))):
            message = f"{who}: {name} is written in plain text, for everybody who may see the file or the run"
            yield Finding("GF601", message, where, hint, "warning")


def _texts(value: Any) -> Iterator[str]:
    """Every literal text in a value: a text, a list of them, or JSON."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from _texts(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _texts(part)
    elif hasattr(value, "parts"):
        yield from _texts(value.parts)
