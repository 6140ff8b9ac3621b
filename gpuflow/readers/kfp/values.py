"""Values on their way through a pipeline: constants, defaults, parameters of the run, and what only the run knows.

Conditions of tasks are the part of CEL that kfp writes, with inputs that may not be known:
`inputs.parameter_values['x'] == 'heads'`, `int(inputs.parameter_values['n']) > 5`, `!(…) && (…)`. A condition that asks
for more, or that Kubeflow could not evaluate, is not decided here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuflow.core.errors import did_you_mean, fail
from gpuflow.core.operator_parser import Parser, Token
from gpuflow.formats.kfp import Message, as_driver_reads, go_number
from gpuflow.spec.expression import COMPARISONS, Expression, ExpressionError, parse

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


MOST_WORDS = 500
MOST_DEPTH = 40
_BINDING = {"||": 0, "&&": 1, **dict.fromkeys(COMPARISONS, 2)}
_TOKEN = re.compile(
    r"""\s*(?:(?P<number>\d+\.\d*(?:[eE][-+]?\d+)?|\d+)|(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<word>[A-Za-z_]\w*)|(?P<sign>==|!=|<=|>=|&&|\|\||[-<>!()\[\].,])|(?P<space>\Z))"""
)
_ESCAPE = re.compile(r"\\([\\'\"`?abfnrtv]|u[0-9a-fA-F]{4}|U000[0-9a-fA-F]{5}|[xX][0-9a-fA-F]{2})")
_ESCAPED_TEXT = re.compile(rf"(?:[^\\]|{_ESCAPE.pattern})*", re.DOTALL)
_MEANINGS = dict(zip("\\'\"`?abfnrtv", "\\'\"`?\a\b\f\n\r\t\v", strict=True))
_CONSTANTS = {"true": True, "false": False, "null": None}


class _Undecided(Exception):
    """What this part of CEL cannot say."""


UNKNOWN: Any = object()
"""Stands for a value that is not known."""


@dataclass(frozen=True)
class Condition:
    """A condition with the inputs of its task."""

    holds: bool | None
    """None: only the run will tell."""
    by_item: bool
    """Each item of a loop has its own answer."""


def condition_of(text: str, inputs: Values) -> Condition:
    """Whether a task with this condition runs. A default that a run may change decides nothing."""
    reading = _Parser(inputs)
    try:
        found = reading.parse(as_driver_reads(text))
    except (_Undecided, ValueError, OverflowError, TypeError, KeyError, IndexError):
        found = UNKNOWN
        reading.asked += [value for name, value in inputs.items() if name in text]
    by_item = any(isinstance(value, OpenValue) and value.by_item for value in reading.asked)
    return Condition(found if isinstance(found, bool) else None, by_item)


def _hex(text: str) -> str:
    return text.encode().hex()


_OWN_WORDS = {"!": "not", "&&": "and", "||": "or"}


def condition_tree(text: str, sources: Mapping[str, str]) -> Expression | None:
    """A condition in the words of a pipeline, each input called by where it comes from; None where there are none."""
    try:
        tokens = [*_Parser({}).scan(as_driver_reads(text))]
        words = [token.text for token in tokens]
        said: list[str] = []
        at = 0
        while at < len(words):
            call = words[at] in ("int", "double", "string", "bool") and words[at + 1 : at + 2] == ["("]
            begin = at + 2 * call
            name = words[begin + 4 : begin + 5]
            if words[begin : begin + 6 + call] == ["inputs", ".", "parameter_values", "[", *name, "]", *[")"] * call]:
                said.append(f"params.{words[at] if call else 'as'}-{_hex(sources[_require_unquoted(name[0])])}")
                at = begin + 6 + call
                continue
            is_text = tokens[at].kind == "text"
            said.append(f"'{_hex(_require_unquoted(words[at]))}'" if is_text else _OWN_WORDS.get(words[at], words[at]))
            at += 1
        return parse(" ".join(said))
    except (_Undecided, ExpressionError, KeyError):
        return None


class _Parser(Parser[Any]):
    """One condition, read and evaluated from left to right."""

    TOKEN, BINDING, DEEPEST = _TOKEN, _BINDING, MOST_DEPTH

    def __init__(self, inputs: Values) -> None:
        super().__init__()
        self.inputs = inputs
        self.asked: list[Value] = []

    def refusal(self, token: Token) -> _Undecided:
        return _Undecided()

    def scan(self, text: str) -> Iterator[Token]:
        for count, token in enumerate(super().scan(text)):
            if count == MOST_WORDS:
                raise _Undecided
            yield token

    def may_chain(self, sign: Token, left: Any) -> bool:
        return sign.text not in COMPARISONS

    def join(self, sign: Token, left: Any, right: Any, begin: int) -> Any:
        if sign.text in ("||", "&&"):
            return _combine(left, right, decided_by=sign.text == "||")
        if left is UNKNOWN or right is UNKNOWN:
            return UNKNOWN
        if _kind(left) != _kind(right):
            raise _Undecided  # Kubeflow's driver fails, or says that they differ
        return COMPARISONS[sign.text](left, right)

    def operand(self, least: int) -> Any:
        if self.take("!"):
            value = self.deeper(lambda: self.operand(least))
            if value is not UNKNOWN and not isinstance(value, bool):
                raise _Undecided
            return UNKNOWN if value is UNKNOWN else not value
        if self.take("-"):
            value = self.deeper(lambda: self.operand(least))
            return UNKNOWN if value is UNKNOWN else -value
        if self.take("("):
            value = self.inner()
            self.need(")")
            return value
        kind, word, _ = self.advance()
        if kind == "number":
            return float(word) if "." in word else int(word)
        if kind == "text":
            return _require_unquoted(word)
        if kind != "word":
            raise _Undecided
        if word == "inputs":
            return self._input()
        return self._call(word) if self.take("(") else _CONSTANTS[word]

    def _input(self) -> Any:
        for word in (".", "parameter_values", "["):
            self.need(word)
        kind, name, _ = self.advance()
        if kind != "text":
            raise _Undecided
        self.need("]")
        value = self.inputs[_require_unquoted(name)]
        self.asked.append(value)
        if isinstance(value, KnownValue) and not value.is_default:
            number = isinstance(value.value, int | float) and not isinstance(value.value, bool)
            return float(value.value) if number else value.value
        return UNKNOWN

    def _call(self, name: str) -> Any:
        value = self.inner()
        self.need(")")
        if value is UNKNOWN:
            return UNKNOWN
        if name == "int":
            return _integer(value)
        if name == "double":
            return float(value)
        if name == "bool" and value in ("true", "false", True, False):
            return value in ("true", True)
        if name == "string" and isinstance(value, str):
            return value
        if name == "parseJson" and isinstance(value, str) and parse_json(value) is not NotJson:
            return parse_json(value)
        raise _Undecided


def _combine(left: Any, right: Any, *, decided_by: bool) -> Any:
    """`||` is decided by one true, `&&` by one false."""
    if any(each is not UNKNOWN and not isinstance(each, bool) for each in (left, right)):
        raise _Undecided
    if left is decided_by or right is decided_by:
        return decided_by
    return UNKNOWN if UNKNOWN in (left, right) else not decided_by


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__


def _integer(value: Any) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[-+]?\d{1,19}", value):
            raise _Undecided
        return int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise _Undecided
    return int(value)


def _require_unquoted(word: str) -> str:
    found = unquote(word)
    if found is None:
        raise _Undecided
    return found


def unquote(word: str) -> str | None:
    """The text of a literal of CEL; None where it has an escape that CEL does not know."""
    inner = word[1:-1]
    if "\\" not in inner:
        return inner
    if not _ESCAPED_TEXT.fullmatch(inner):
        return None
    return _ESCAPE.sub(lambda found: _MEANINGS.get(found[1]) or chr(int(found[1].lstrip("uUxX"), 16)), inner)
