"""A pipeline's document with every program replaced by one that writes the step's outputs."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gpuflow.spec.canonical import to_yaml
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline

PROGRAM = Path(__file__).with_name("stand_in.py")
VALUES: dict[str, Any] = {"int": 3, "float": 0.5, "bool": True, "string": "heads", "json": {"a": 1}}
"""What a program may say; a list where something is repeated for it."""
LIST = ["a", "b"]
_PLACE = re.compile("uri|url|bucket|store|folder|output|dest")
"""In the name of a parameter that is a place."""
Tree = dict[str, Any]


def with_stand_ins(pipeline: Pipeline) -> Pipeline:
    """The pipeline as it is, but for its programs and the values of parameters that it requires."""
    tree: Tree = yaml.safe_load(to_yaml(pipeline))
    _give_params(tree)
    _replace(tree)
    return loads(yaml.safe_dump(tree, sort_keys=False, allow_unicode=True), "stand-ins.yaml")


def variables_of(pipeline: Pipeline) -> list[str]:
    """The variables that come from Secrets and ConfigMaps of a cluster."""
    return [
        name
        for step in _steps(yaml.safe_load(to_yaml(pipeline)))
        for name, value in (step.get("env") or {}).items()
        if isinstance(value, dict) and not set(value).isdisjoint({"secret", "config_map"})
    ]


def questions_of(pipeline: Pipeline) -> list[str]:
    return [name for name, step in pipeline.steps.items() if step.approval is not None]


def _steps(tree: Tree) -> Iterator[Tree]:
    for section in ("steps", "exit"):
        for step in (tree.get(section) or {}).values():
            yield step
            if "pipeline" in step:
                yield from _steps(step["pipeline"])


def _give_params(tree: Tree) -> None:
    """Values for what must be given."""
    repeated = {source["param"] for step in _steps(tree) for source in _sources(step) if "param" in source}
    for name, param in (tree.get("params") or {}).items():
        if isinstance(param, dict) and "type" in param and "default" not in param:
            kind = param["type"]
            param.pop("required", None)
            value = "s3://stand-in/heads" if kind == "string" and _PLACE.search(name) else VALUES[kind]
            param["default"] = LIST if name in repeated else (param.get("enum") or [value])[0]


def _sources(step: Tree) -> Iterator[Tree]:
    yield from (each for each in (step.get("for_each") or {}).values() if isinstance(each, dict))


def _replace(tree: Tree) -> None:
    repeated = {source["output"] for step in _steps(tree) for source in _sources(step) if "output" in source}
    # A list may go through a parameter of a pipeline in this one.
    for section in ("steps", "exit"):
        for name, step in (tree.get(section) or {}).items():
            if "pipeline" in step:
                inner = step["pipeline"]
                asked = {source["param"] for each in _steps(inner) for source in _sources(each) if "param" in source}
                given = step.get("params") or {}
                repeated |= {
                    value["output"]
                    for param, value in given.items()
                    if param in asked and isinstance(value, dict) and "output" in value
                }
                _replace(inner)
            elif "approval" not in step:
                _replace_program(name, step, repeated)


def _replace_program(name: str, step: Tree, repeated: set[str]) -> None:
    script = step.pop("script", None)
    text = script["run"] if isinstance(script, dict) else script
    said = [*step.pop("command", []), *step.pop("args", []), text]
    words = [word for word in said if isinstance(word, dict)]  # what it refers to must be there
    outputs = []
    for output, form in (step.get("outputs") or {}).items():
        kind = form if isinstance(form, str) else form["type"]
        value = LIST if f"{name}.{output}" in repeated else VALUES.get(kind, "some bytes")
        entry = {"name": output, "type": kind, "value": value}
        if isinstance(form, dict) and "path" in form:
            entry["word"] = len(words)
            words.append(form["path"])
        outputs.append(entry)
    step["command"] = [sys.executable, "-I", "-S", str(PROGRAM), json.dumps(outputs), *words]
    gang = step.get("gang")
    leader = gang.get("leader") if isinstance(gang, dict) else None
    if isinstance(leader, dict) and "command" in leader:
        leader["command"] = step["command"]
