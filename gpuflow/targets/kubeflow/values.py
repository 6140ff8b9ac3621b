"""Types and constants in KFP's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2

from gpuflow.spec.params import Param
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.text import OutputRef, ParamRef
from gpuflow.targets.kubeflow.messages import ir

Type = int
"""A member of KFP's ParameterTypeEnum."""

STRING: Type = ir.ParameterType.STRING
LIST: Type = ir.ParameterType.LIST
STATUS: Type = ir.ParameterType.TASK_FINAL_STATUS
STRUCT: Type = ir.ParameterType.STRUCT
_SCALARS: dict[str, Type] = {
    "string": STRING,
    "int": ir.ParameterType.NUMBER_INTEGER,
    "float": ir.ParameterType.NUMBER_DOUBLE,
    "bool": ir.ParameterType.BOOLEAN,
    "file": STRING,
    "directory": STRING,
}


def wanted_types(pipeline: Pipeline, outside: Mapping[str, Type]) -> dict[ParamRef | OutputRef, Type]:
    """What readers want parameters and outputs to be: a fan-out a list, a sub-pipeline what its parameter is.

    `outside`: what readers outside want the pipeline's own outputs to be.
    """
    found = {ref: outside[name] for name, ref in pipeline.outputs.items() if name in outside}
    for step in pipeline.steps.values():
        sources = (step.for_each or {}).values()
        found.update({source: LIST for source in sources if isinstance(source, ParamRef | OutputRef)})
        if step.pipeline is not None:
            inner = param_types(step.pipeline, wanted_types(step.pipeline, {}))
            given = step.params.items()
            found.update({value: inner[name] for name, value in given if isinstance(value, ParamRef | OutputRef)})
    return found


def param_types(pipeline: Pipeline, wanted: Mapping[ParamRef | OutputRef, Type]) -> dict[str, Type]:
    """The types of a pipeline's parameters. JSON is a list or a map by its default; without one, by its readers."""
    return {name: _param_type(param, wanted.get(ParamRef(name))) for name, param in pipeline.params.items()}


def _param_type(param: Param, wanted: Type | None) -> Type:
    if param.type != "json":
        return _SCALARS[param.type]
    if param.default is None:
        return wanted if wanted in (LIST, STRUCT) else STRUCT
    return LIST if isinstance(param.default, list) else STRUCT


def output_type(kind: str, wanted: Type | None) -> Type:
    """An output's type. JSON stays text, so that it arrives as it was written, unless its reader needs the data."""
    if kind == "json":
        return wanted if wanted in (LIST, STRUCT) else STRING
    return _SCALARS[kind]


def items_type(items: list[Any]) -> Type:
    """The common type of a fixed list of items."""
    kinds = {type(item) for item in items}
    if kinds <= {int, float} and bool not in kinds:
        return _SCALARS["int" if kinds == {int} else "float"]
    single = kinds.pop() if len(kinds) == 1 else None
    return {bool: _SCALARS["bool"], dict: STRUCT, list: LIST}.get(single or str, STRING)


def constant(value: Any) -> Any:
    """Plain data as a protobuf Value."""
    if value is None:
        return struct_pb2.Value(null_value=struct_pb2.NULL_VALUE)
    if isinstance(value, bool):
        return struct_pb2.Value(bool_value=value)
    if isinstance(value, int | float):
        return struct_pb2.Value(number_value=value)
    if isinstance(value, str):
        return struct_pb2.Value(string_value=value)
    if isinstance(value, dict):
        fields = {key: constant(item) for key, item in value.items()}
        return struct_pb2.Value(struct_value=struct_pb2.Struct(fields=fields))
    return struct_pb2.Value(list_value=struct_pb2.ListValue(values=[constant(item) for item in value]))
