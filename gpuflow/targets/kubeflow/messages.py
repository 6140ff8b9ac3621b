"""KFP's messages: how they are loaded, types and constants in them, and messages as plain data with sorted keys.

`import kfp` brings in its client, a Kubernetes client and its compiler: most of a second that a compile does not need.
The message modules need only each other. So, unless kfp is in use already, they are imported under bare packages that
are taken away again; a later `import kfp` finds nothing of this.

`message_dict` gives the same data as protobuf's own `MessageToDict`, in the order of the keys, and in a third of the
time: protobuf keeps no order in its maps, so everything would have to be walked a second time. What many tasks have
alike (`_REPEATED_TYPES`) is converted once, and all of them hold the same map: nobody may change it.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from operator import itemgetter
from types import ModuleType
from typing import Any

from google.protobuf import struct_pb2
from google.protobuf.descriptor import FieldDescriptor

from gpuflow.spec.params import Param
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.step import Step
from gpuflow.spec.text import OutputRef, ParamRef
from gpuflow.targets.kubeflow.containers import step_outputs
from gpuflow.targets.kubeflow.references import placeholder

SCHEMA_VERSION = "2.1.0"
_PACKAGES = ("kfp", "kfp.pipeline_spec", "kfp.kubernetes")


@contextmanager
def _bare_packages() -> Iterator[None]:
    if "kfp" in sys.modules:
        yield
        return
    found = importlib.util.find_spec("kfp")
    if found is None:
        raise ModuleNotFoundError("No module named 'kfp'", name="kfp")
    folders = pkgutil.extend_path(list(found.submodule_search_locations or ()), "kfp")
    for name in _PACKAGES:
        package = ModuleType(name)
        package.__path__ = ["/".join([folder, *name.split(".")[1:]]) for folder in folders]
        sys.modules[name] = package
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name.partition(".")[0] == "kfp"]:
            del sys.modules[name]


with _bare_packages():
    ir: Any = importlib.import_module("kfp.pipeline_spec.pipeline_spec_pb2")
    """pipeline_spec.proto: PipelineSpec, PipelineDeploymentConfig and their parts."""
    platform: Any = importlib.import_module("kfp.kubernetes.kubernetes_executor_config_pb2")
    """kubernetes_executor_config.proto: KubernetesExecutorConfig and its parts."""


Convert = Callable[[Any], Any] | None
"""How a value is written; None: as it is."""
_LONG = (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64)


def message_dict(message: Any) -> dict[str, Any]:
    fields = []
    for field, value in message.ListFields():
        name, convert = _field_converter(field)
        fields.append((name, value if convert is None else convert(value)))
    fields.sort(key=_first)
    return dict(fields)


_first = itemgetter(0)


def _value(message: Any) -> Any:
    """google.protobuf.Value, Struct and ListValue: the data they stand for."""
    kind = message.DESCRIPTOR.name
    if kind == "Struct":
        return {key: _value(value) for key, value in sorted(message.fields.items(), key=_first)}
    if kind == "ListValue":
        return [_value(item) for item in message.values]
    which = message.WhichOneof("kind")
    if which == "null_value":
        return None
    inner = getattr(message, which)
    return _value(inner) if which in ("struct_value", "list_value") else inner


_WELL_KNOWN: dict[str, Convert] = {
    "google.protobuf.Value": _value,
    "google.protobuf.Struct": _value,
    "google.protobuf.ListValue": _value,
    "google.protobuf.Duration": lambda message: message.ToJsonString(),
}


_REPEATED_TYPES = frozenset(
    (
        "ml_pipelines.ComponentInputsSpec",
        "ml_pipelines.PipelineDeploymentConfig.PipelineContainerSpec.EnvVar",
        "ml_pipelines.PipelineDeploymentConfig.PipelineContainerSpec.ResourceSpec",
        "ml_pipelines.PipelineTaskSpec.RetryPolicy",
        "ml_pipelines.TaskInputsSpec",
    )
)
"""Messages that most tasks of a pipeline have alike; a Kubernetes setting is one too, unless it is a pod's metadata."""


def _cached_dict(message: Any) -> dict[str, Any]:
    kind: Any = type(message)
    return _parse_cached(kind, message.SerializeToString(deterministic=True))


@lru_cache(maxsize=4096)
def _parse_cached(kind: Any, content: bytes) -> dict[str, Any]:
    """The message of this content in its JSON form."""
    return message_dict(kind.FromString(content))


def _is_alike(kind: Any) -> bool:
    return kind.full_name in _REPEATED_TYPES or (
        kind.full_name.startswith("kfp_kubernetes.") and kind.name != "PodMetadata"
    )


@cache
def _field_converter(field: Any) -> tuple[str, Convert]:
    """The name of one field, and how it is written."""
    return field.json_name, _converter(field)


def _converter(field: Any) -> Convert:
    kind = field.message_type
    if kind is not None and kind.GetOptions().map_entry:
        inner = _value_converter(kind.fields_by_name["value"]) or _as_it_is
        return lambda entries: {key: inner(value) for key, value in sorted(entries.items(), key=_first)}
    one = _value_converter(field)
    if not field.is_repeated:
        return one
    each = one or _as_it_is
    return lambda items: [each(item) for item in items]


def _value_converter(field: Any) -> Convert:
    if field.message_type is not None:
        return _WELL_KNOWN.get(
            field.message_type.full_name, _cached_dict if _is_alike(field.message_type) else message_dict
        )
    if field.enum_type is not None:
        names = field.enum_type.values_by_number
        return lambda number: names[number].name
    return str if field.cpp_type in _LONG else None


def _as_it_is(value: Any) -> Any:
    return value


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


TITLES = {
    "artifact": "system.Artifact",
    "dataset": "system.Dataset",
    "model": "system.Model",
    "metrics": "system.Metrics",
    "classification-metrics": "system.ClassificationMetrics",
    "html": "system.HTML",
    "markdown": "system.Markdown",
}
"""What kfp calls each kind of artifact."""
ARTIFACT_SCHEMA_VERSION = "0.0.1"
"""That of all of them in kfp 2."""


@dataclass(frozen=True, slots=True)
class ArtifactType:
    """The type of an artifact; `many`: of a list of them, one for each item of a loop."""

    title: str
    many: bool = False

    @property
    def as_list(self) -> ArtifactType:
        return replace(self, many=True)

    def define(self, spec: Any) -> None:
        """Write it into an input's or output's definition."""
        spec.artifact_type.CopyFrom(
            ir.ArtifactTypeSchema(schema_title=self.title, schema_version=ARTIFACT_SCHEMA_VERSION)
        )
        if self.many:
            spec.is_artifact_list = True


def artifact_types(step: Step) -> dict[str, ArtifactType]:
    """The step's outputs that are artifacts of KFP."""
    return {name: ArtifactType(TITLES[kind]) for name, kind in step_outputs(step).kinds.items()}


def component_outputs(step: Step) -> dict[str, Type | ArtifactType]:
    """All that the component of a step on its own gives."""
    keys = step_outputs(step).keys
    return {keys[name]: output_type(output.type, None) for name, output in step.outputs.items()} | artifact_types(step)


def with_paths(word: str, inputs: Mapping[str, Type | ArtifactType]) -> str:
    """A word of a command in which an input that is an artifact is the path where KFP's launcher leaves its files."""
    for name, type_ in inputs.items():
        if isinstance(type_, ArtifactType):
            word = word.replace(placeholder(name), f"{{{{$.inputs.artifacts['{name}'].path}}}}")
    return word
