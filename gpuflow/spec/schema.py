"""The JSON Schema of the documents, for completion and inline errors in editors."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from gpuflow.quantity import Quantity
from gpuflow.spec.duration import Duration
from gpuflow.spec.model import Model
from gpuflow.spec.pipeline import Pipeline

DIALECT = "https://json-schema.org/draft/2020-12/schema"


class _Generator(GenerateJsonSchema):
    """Writes our own values as documents spell them."""

    def encode_default(self, dft: Any) -> Any:
        if isinstance(dft, Duration | Quantity):
            return str(dft)
        return {} if isinstance(dft, Model) else super().encode_default(dft)


def schema_of(model: type[Model], title: str) -> dict[str, Any]:
    """The schema of one kind of document."""
    generated = model.model_json_schema(mode="validation", schema_generator=_Generator)
    generated = _tidy(generated)
    return {"$schema": DIALECT, **generated, "title": title}


def pipeline_schema() -> dict[str, Any]:
    """The schema of `kind: Pipeline`. A sub-pipeline may also be the name of a file."""
    schema = schema_of(Pipeline, "gpuflow Pipeline")
    definitions = schema["$defs"]
    inner = definitions["Step"]["properties"]["pipeline"]
    file = {"type": "string", "description": "A file next to this one."}
    definitions["Step"]["properties"]["pipeline"] = {"description": inner.pop("description"), "anyOf": [file, inner]}
    for whole in (schema, definitions["Pipeline"]):
        if "properties" in whole:
            whole["required"] = ["apiVersion", "kind", "name", "steps"]
    return schema


def _tidy(node: Any) -> Any:
    """Drop generated titles, which only repeat the key, and nulls, which documents never write."""
    if isinstance(node, dict):
        node = {key: _tidy(value) for key, value in node.items() if not (key == "title" and isinstance(value, str))}
        if node.get("default", 0) is None:
            del node["default"]
        if "patternProperties" in node:
            node.setdefault("additionalProperties", False)  # a key that is no name is an error in the editor too
        options = node.get("anyOf")
        if isinstance(options, list):
            options = [option for option in options if option != {"type": "null"}]
            if len(options) == 1 and isinstance(options[0], dict):
                rest = {key: value for key, value in node.items() if key != "anyOf"}
                return {**options[0], **rest}
            node["anyOf"] = options
        return node
    return [_tidy(item) for item in node] if isinstance(node, list) else node
