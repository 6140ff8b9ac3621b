"""Secrets that a pipeline spells out. Documents are in Git, and every engine shows what it runs to all who may look."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gpuflow.errors import Finding
from gpuflow.secret_text import is_secret_name, is_secret_value, passwords_in
from gpuflow.spec.container import ConfigMapKey, SecretKey
from gpuflow.spec.gang import Leader
from gpuflow.spec.merge import variables_of
from gpuflow.spec.step import Step
from gpuflow.spec.text import ParamRef, parts_of

if TYPE_CHECKING:
    from gpuflow.spec.pipeline import Pipeline

Path = tuple[str | int, ...]
WAY_OUT = "write {name}: {{secret: SECRET, key: KEY}}, and keep the value in that Secret of the namespace"
WITHOUT = "take user and password out of it; pass them with env: {NAME: {secret: SECRET, key: KEY}}"


def exposed_secrets(pipeline: Pipeline) -> list[Finding]:
    """A warning for every secret in plain text, the sub-pipelines included. No message repeats the secret."""
    return list(dict.fromkeys(_of_pipeline(pipeline)))


def password_in_address(place: str, text: Any, where: Any) -> Iterator[Finding]:
    """A warning when an address in a text holds a password."""
    if _has_password(text):
        message = f"{place} holds an address with a password, which everybody sees who may see the run"
        yield Finding("GF602", message, where, WITHOUT, "warning")


def _has_password(text: Any) -> bool:
    return any(True for part in _texts(text) for _ in passwords_in(part))


def _of_pipeline(pipeline: Pipeline) -> Iterator[Finding]:
    for name, param in pipeline.params.items():
        where = pipeline.where("params", name, "default")
        yield from password_in_address(f'the default of parameter "{name}"', param.default, where)
        if is_secret_name(name) and isinstance(param.default, str) and is_secret_value(param.default):
            message = f'parameter "{name}" has a secret as its default, in plain text'
            hint = "drop the parameter; steps take it with env: {NAME: {secret: SECRET, key: KEY}}"
            yield Finding("GF601", message, where, hint, "warning")
    for index, uri in enumerate(pipeline.on_data):
        yield from password_in_address("on_data", uri, pipeline.where("on_data", index))
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
                yield from password_in_address(f"{who}, {helper.name}: {part}", getattr(helper, part), where)
    for field, text in (("command", step.command), ("args", step.args), ("script", step.script and step.script.run)):
        if text and _has_password(text):  # the place is looked up only then: of many steps, that is felt
            yield from password_in_address(f"{who}: {field}", text, pipeline.where(*path, field))
    if step.kubernetes is not None and step.kubernetes.merge is not None:
        variables = variables_of(step.kubernetes.merge)
        yield from _environment(pipeline, who, variables, (*path, "kubernetes", "merge"))
    if step.gang is not None and step.gang.leader is not None:
        yield from _of_leader(pipeline, f"{who}, the leader", step.gang.leader, (*path, "gang", "leader"))
    if step.checkpoint is not None:
        place = (*path, "checkpoint", "store")
        yield from password_in_address(f"{who}: checkpoint.store", step.checkpoint.store, pipeline.where(*place))
    for name, output in step.outputs.items():
        where = pipeline.where(*path, "outputs", name, "uri")
        yield from password_in_address(f"{who}: the uri of output {name}", output.uri, where)
    for mount, given in step.inputs.items():
        yield from password_in_address(f"{who}: the input {mount}", given.uri, pipeline.where(*path, "inputs", mount))
    if step.pipeline is not None:
        yield from _of_pipeline(step.pipeline)


def _of_leader(pipeline: Pipeline, who: str, leader: Leader, path: Path) -> Iterator[Finding]:
    yield from _environment(pipeline, who, leader.env, (*path, "env"))
    program = (("command", leader.command), ("args", leader.args), ("script", leader.script and leader.script.run))
    for field, text in program:
        yield from password_in_address(f"{who}: {field}", text, pipeline.where(*path, field))
    if leader.kubernetes is not None and leader.kubernetes.merge is not None:
        yield from _environment(pipeline, who, variables_of(leader.kubernetes.merge), (*path, "kubernetes", "merge"))


def _environment(pipeline: Pipeline, who: str, env: dict[str, Any], path: Path) -> Iterator[Finding]:
    for name, value in env.items():
        if isinstance(value, SecretKey | ConfigMapKey):
            continue
        where = pipeline.where(*path, name)
        yield from password_in_address(f"{who}: {name}", value, where)
        if not is_secret_name(name):
            continue
        parts = parts_of(value)
        hint = WAY_OUT.format(name=name)
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
