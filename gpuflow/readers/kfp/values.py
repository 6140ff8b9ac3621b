"""Values on their way through a pipeline: constants, defaults, parameters of the run, and what only the run knows."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from gpuflow.core.errors import did_you_mean, fail
from gpuflow.formats.kfp import Message

PLACEHOLDER = re.compile(r"\$.inputs.parameters\['(.+?)'\]")
"""As the driver finds an input in the text of a resource or an image (driver/util.go)."""
_FACT = re.compile(r"\{\{\$[^}]*\}\}")
_MEMBER = re.compile(r"""parseJson\(string_value\)\[(?:"([^"]*)"|'([^']*)'|(\d{1,9}))\]""")
WORKSPACE = "{{$.workspace_path}}"


@dataclass(frozen=True)
class KnownValue:
    """A value that every run has, or that a run has unless it is started with another one."""

    value: Any
    is_default: bool = False
    """The default of a parameter that a run may set."""


@dataclass(frozen=True)
class OpenValue:
    """A value that only the run will tell, and why."""

    because: str
    by_item: bool = False
    """Each item of a loop has its own."""
    among: tuple[Any, ...] = ()
    """All that it can be, where that is known."""
    hint: str | None = None
    """What would settle it."""


Value = KnownValue | OpenValue
Values = Mapping[str, Value]


@dataclass
class Scope:
    """What the tasks of one DAG can refer to: the inputs of the DAG, and the outputs of the tasks in it."""

    inputs: Values
    outputs: dict[tuple[str, str], Value] = field(default_factory=dict)
    uris: dict[str, str] = field(default_factory=dict)
    """The addresses of the DAG's input artifacts, where they are known."""
    output_uris: dict[tuple[str, str], str] = field(default_factory=dict)

    def parameter(self, spec: Message) -> Value:
        """The value of an input parameter, as its task or a Kubernetes setting names it."""
        given = spec.text("componentInputParameter")
        if given:
            return self.inputs.get(given, OpenValue(f'the input "{given}" is not an input of the group around it'))
        if "taskOutputParameter" in spec:
            source = spec.message("taskOutputParameter")
            task, key = source.text("producerTask"), source.text("outputParameterKey")
            return self.outputs.get((task, key), OpenValue(f'it is the output "{key}" of the task "{task}"'))
        if "taskFinalStatus" in spec:
            return OpenValue("it is the final status of a task")
        runtime = spec.message("runtimeValue")
        if "constant" in runtime.value:
            return _constant(runtime.value["constant"])
        if "constantValue" in runtime:
            return _constant(runtime.message("constantValue").old_value())
        named = runtime.text("runtimeParameter")
        if named:
            return self.inputs.get(named, OpenValue(f'the input "{named}" is not an input of the group around it'))
        return KnownValue(None)


def _constant(value: Any) -> Value:
    """A constant; the driver puts facts of the run in the place of some."""
    if isinstance(value, str) and value != WORKSPACE and _FACT.fullmatch(value):
        return OpenValue(f"it is {value}, a fact of the run")
    return KnownValue(value)


def run_parameters(component: Message, given: Mapping[str, Any], options: Mapping[str, str]) -> dict[str, Value]:
    """The parameters of a run: those it is started with, and the defaults of the others."""
    definitions = component.message("inputDefinitions").message("parameters")
    for name in options:
        if name not in definitions.value:
            hint = did_you_mean(name, definitions.value) or "the pipeline has no parameters"
            where = definitions.where()
            raise fail("GF733", f'"{name}" is not a parameter of the pipeline', where=where, hint=hint)
    found: dict[str, Value] = {}
    for name, definition in definitions.entries():
        if name in options:
            found[name] = KnownValue(_parse_typed(name, options[name], definition))
        elif name in given:
            found[name] = KnownValue(given[name])
        elif definition.get("defaultValue") is not None:
            found[name] = KnownValue(definition.get("defaultValue"), is_default=True)
        elif definition.flag("isOptional"):
            found[name] = KnownValue(None, is_default=True)
        else:
            hint = "give the value with --param, or a default in the pipeline"
            found[name] = OpenValue(f'the parameter "{name}" of the pipeline has no default', hint=hint)
    return found


def _parse_typed(name: str, text: str, definition: Message) -> Any:
    """The value that a text stands for, by the type of its parameter."""
    kind = definition.text("parameterType") or definition.text("type")
    if kind in ("", "STRING"):
        return text
    value = parse_json(text)
    fits = {
        **dict.fromkeys(("NUMBER_INTEGER", "INT"), _is_number(value) and float(value).is_integer()),
        **dict.fromkeys(("NUMBER_DOUBLE", "DOUBLE"), _is_number(value)),
        "BOOLEAN": isinstance(value, bool),
        "LIST": isinstance(value, list),
        "STRUCT": isinstance(value, dict),
    }
    if not fits.get(kind, True):
        hint = "write it as JSON does: 3, true, [1, 2]"
        message = f'the parameter "{name}" is a {kind}, and "{text[:60]}" is not'
        raise fail("GF733", message, where=definition.where(), hint=hint)
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(float(value))


class NotJson:
    """Stands for the value of a text that is no JSON."""


def parse_json(text: str) -> Any:
    """A text as JSON; `NotJson` stands for a text that is none."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return NotJson


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def task_inputs(task: Message, component: Message, scope: Scope) -> dict[str, Value]:
    definitions = component.message("inputDefinitions").message("parameters")
    found: dict[str, Value] = {}
    for name, spec in task.message("inputs").message("parameters").entries():
        value = scope.parameter(spec)
        selector = spec.text("parameterExpressionSelector")
        found[name] = _select_member(value, selector) if selector else value
    for name, definition in definitions.entries():
        given = found.get(name)
        if given is None or (isinstance(given, KnownValue) and given.value is None):
            found[name] = KnownValue(definition.get("defaultValue"), is_default=given is not None and given.is_default)
        elif definition.text("parameterType") == "STRING":
            found[name] = _as_text(given)
    return found


def _as_text(value: Value) -> Value:
    if isinstance(value, KnownValue):
        return replace(value, value=text_of(value.value))
    return replace(value, among=tuple(text_of(each) for each in value.among))


def _select_member(value: Value, selector: str) -> Value:
    """The member of a value that `parseJson(string_value)["name"]` asks for, which is all that kfp writes."""
    if isinstance(value, OpenValue):
        chosen = [_select_member(KnownValue(each), selector) for each in value.among]
        return replace(value, among=_known_values(chosen))
    asked = _MEMBER.fullmatch(selector.strip())
    whole = parse_json(value.value) if isinstance(value.value, str) else value.value
    if asked is None or whole is NotJson:
        return OpenValue(f"it is chosen by the expression {selector[:60]}")
    try:
        return replace(value, value=whole[int(asked[3])] if asked[3] else whole[asked[1] or asked[2] or ""])
    except (KeyError, IndexError, TypeError):
        return OpenValue(f"the expression {selector[:60]} finds nothing in its value")


def _known_values(values: Sequence[Value]) -> tuple[Any, ...]:
    """The values, where all of them are known."""
    found = tuple(each.value for each in values if isinstance(each, KnownValue))
    return found if len(found) == len(values) else ()


def text_of(value: Any) -> str:
    """A value as the text that Kubeflow makes of it."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return json.dumps(value, separators=(",", ":"), default=str)
    return go_number(float(value))


def go_number(value: float) -> str:
    """A float as Go's `%v` prints it."""
    if value == 0:
        return "0"
    if 1e-4 <= abs(value) < 1e21:
        return format(Decimal(repr(float(value))).normalize(), "f")
    return repr(value)


def substitute(text: str, inputs: Values) -> Value:
    """The text of a resource or an image with its input put in, as the driver does: one placeholder is the whole text,
    and an input that is no text counts as empty (driver/resolve.go, resolvePodSpecInputRuntimeParameter)."""
    asked = PLACEHOLDER.search(text)
    if asked is None:
        return KnownValue(text)
    value = inputs.get(asked[1])
    if value is None:
        return OpenValue(f'it refers to the input "{asked[1]}", which the task does not have')
    if isinstance(value, OpenValue):
        return replace(value, among=tuple(each if isinstance(each, str) else "" for each in value.among))
    return replace(value, value=value.value if isinstance(value.value, str) else "")


def items_of(value: Any) -> list[Any] | None:
    """The items that a loop runs over; None where the driver finds none to run over (driver/util.go, getItems)."""
    if isinstance(value, str):
        found = parse_json(value)
        return None if found is NotJson else found if isinstance(found, list) else []
    return value if isinstance(value, list) else None
