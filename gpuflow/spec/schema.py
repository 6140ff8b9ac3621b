"""The JSON Schema of the documents, for completion and inline errors in editors."""

from __future__ import annotations

import ast
import inspect
from itertools import pairwise
from typing import Any

from pydantic.json_schema import GenerateJsonSchema
from pydantic_core.core_schema import ModelSchema

from gpuflow.quantity import Quantity
from gpuflow.spec.duration import Duration
from gpuflow.spec.model import Model
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Leader
from gpuflow.spec.step_fields import SHARED_MAPS, Settings

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Writes our own values as documents spell them, and describes fields: no other command has to read the source."""

    def model_schema(self, schema: ModelSchema) -> dict[str, Any]:
        found, told = super().model_schema(schema), _docstrings(schema["cls"])
        for name, field in schema["cls"].model_fields.items():
            shown = found["properties"].get(field.alias or name, {})
            if name in told and told[name] != field.annotation.__doc__:  # else its model says the same
                shown.setdefault("description", told[name])
        return found

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Duration | Quantity):
            return str(dft)
        return {} if isinstance(dft, Model) else super().encode_default(dft)


def _docstrings(model: type) -> dict[str, str]:
    """What stands below the fields of a class and of those above it, by field."""
    found = {}
    for each in reversed([base for base in model.__mro__ if issubclass(base, Model)]):
        body = ast.parse(inspect.getsource(each)).body[0].body  # type: ignore[attr-defined]  # a class
        for field, text in pairwise(body):
            match field, text:
                case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(words))):
                    found[name] = inspect.cleandoc(words)
    return found


def schema_of(model: type[Model], title: str) -> dict[str, Any]:
    """The schema of one kind of document."""
    generated = model.model_json_schema(mode="validation", schema_generator=_Generator)
    return {"$schema": DIALECT, **_without_titles(generated), "title": title}


def pipeline_schema() -> dict[str, Any]:
    """The schema of `kind: Pipeline`. A sub-pipeline may also be the name of a file."""
    schema = schema_of(Pipeline, "gpuflow Pipeline")
    definitions = schema["$defs"]
    properties = definitions["Step"]["properties"]
    inner = properties["pipeline"]
    file = {"type": "string", "description": "A file next to this one."}
    properties["pipeline"] = {"description": inner.pop("description"), "anyOf": [file, inner]}
    for name in Settings.model_fields:
        properties[name] = _with_null(properties[name], keys=name in SHARED_MAPS)
    # true, or a map
    leader = definitions["Leader"]["anyOf"][1]["properties"]
    for name in (*Leader.SETTINGS, "env"):
        leader[name] = _with_null(leader[name], keys=name == "env")
    for whole in (schema, definitions["Pipeline"]):
        if "properties" in whole:
            whole["required"] = ["apiVersion", "kind", "name", "steps"]
    return schema


def _with_null(node: dict[str, Any], *, keys: bool) -> dict[str, Any]:
    """A setting of a step, or of its gang's leader: null takes away what would count, of a map also a key of it."""
    inner, patterns = node.get("additionalProperties"), node.get("patternProperties")
    if keys and isinstance(inner, dict):
        node = {**node, "additionalProperties": _with_null(inner, keys=False)}
    if keys and isinstance(patterns, dict):
        each = {key: _with_null(value, keys=False) for key, value in patterns.items()}
        node = {**node, "patternProperties": each}
    rest: dict[str, Any] = {key: node[key] for key in ("description", "default", "examples") if key in node}
    own = {key: value for key, value in node.items() if key not in rest}
    options = own["anyOf"] if set(own) == {"anyOf"} else [own]
    return {**rest, "anyOf": [*options, {"type": "null"}]}


def _without_titles(node: Any) -> Any:
    """Drop generated titles, which only repeat the key, and nulls, which documents never write."""
    if isinstance(node, dict):
        node = {
            key: _without_titles(value)
            for key, value in node.items()
            if not (key == "title" and isinstance(value, str))
        }
        if node.get("default", 0) is None:
            del node["default"]
        if "patternProperties" in node:
            node.setdefault("additionalProperties", False)  # a key that is no name is an error in the editor too
        options = node.get("anyOf")
        if isinstance(options, list):
            options = node["anyOf"] = [option for option in options if option != {"type": "null"}]
            if len(options) == 1 and isinstance(options[0], dict):
                del node["anyOf"]
                return {**options[0], **node}
        return node
    return [_without_titles(item) for item in node] if isinstance(node, list) else node
