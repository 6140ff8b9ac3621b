"""Text with references in it.

A reference is a small map, never a string with a language inside: `{param: lr}`, `{output: train.model}`,
`{item: suite}`, `{run: id}`, `{run: date, format: "%Y/%m/%d"}`, and `{join: [s3://bucket/, {run: id}]}` to glue parts.
So `{{`, `$(HOME)` and quotes in ordinary text are data and need no escaping. `{text: "{{ x }}"}` says that text which
looks like a template is meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import PlainValidator, WithJsonSchema

from gpuflow.core import date_format
from gpuflow.core.errors import did_you_mean
from gpuflow.spec.model import as_spelled, check_receivable, problem
from gpuflow.spec.schedule import check_zone
from gpuflow.spec.template_tags import looks_like_template


class RunTimeValue:
    """Something whose text is known only in the run, so that an f-string or str() with it in Python is a mistake."""

    __slots__ = ()

    def canonical(self) -> dict[str, Any]:
        """As the document writes it."""
        raise NotImplementedError

    def __str__(self) -> str:
        raise TypeError(f'{self.canonical()} has no text before the run; use gpuflow.join("--lr=", lr)')

    def __format__(self, form: str) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class ParamRef(RunTimeValue):
    """The value of a pipeline parameter."""

    name: str

    def canonical(self) -> dict[str, str]:
        return {"param": self.name}


@dataclass(frozen=True, slots=True)
class OutputRef(RunTimeValue):
    """What an earlier step wrote: a parameter's text, or an artifact's URI."""

    step: str
    name: str

    def canonical(self) -> dict[str, str]:
        return {"output": f"{self.step}.{self.name}"}


@dataclass(frozen=True, slots=True)
class ItemRef(RunTimeValue):
    """The current item of the step's own fan-out."""

    name: str

    def canonical(self) -> dict[str, str]:
        return {"item": self.name}


@dataclass(frozen=True, slots=True)
class RunRef(RunTimeValue):
    """A fact of the run itself. Dates take a format, and a time zone when it is not the schedule's."""

    field: str
    format: str | None = None
    timezone: str | None = None

    @property
    def is_date(self) -> bool:
        """Whether it is a date or a moment, so that a format and a time zone belong to it."""
        return self.field in RUN_DATES

    @property
    def layout(self) -> str:
        """The format of a date, the default one when nothing is said."""
        return self.format or (date_format.DATE if self.field == "date" else date_format.TIMESTAMP)

    def canonical(self) -> dict[str, str]:
        said = {"run": self.field, "format": self.format, "timezone": self.timezone}
        return {key: value for key, value in said.items() if value is not None}


Ref = ParamRef | OutputRef | ItemRef | RunRef
RUN_DATES = {
    "logical_date": "the scheduled time; for a run by hand the time when it was made",
    "date": "the day of logical_date",
    "interval_start": "the scheduled time before logical_date",
    "interval_end": "the same as logical_date",
}
"""The dates of a run, and what each says."""
RUN_FIELDS = {
    "id": "unique for each run, and the same for all its steps and attempts",
    "name": "what the engine calls the run",
    "attempt": "which attempt of the step this is, from 1",
    **RUN_DATES,
}
"""The facts of a run, and what each says."""


@dataclass(frozen=True, slots=True)
class Join(RunTimeValue):
    """Parts that are concatenated. Literals are merged and empty ones dropped."""

    parts: tuple[str | Ref, ...]

    def canonical(self) -> dict[str, Any]:
        return {"join": [literal(part) if isinstance(part, str) else part.canonical() for part in self.parts]}


Text = str | Ref | Join


class Literally(str):
    """Text that is meant as it stands, although it looks like a template of some engine. Equal to the same text."""

    __slots__ = ()


def literal(value: str) -> str | dict[str, str]:
    """A text as the document writes it: marked as meant literally only where that makes a difference."""
    return {"text": str(value)} if isinstance(value, Literally) and looks_like_template(value) else str(value)


def text(value: str) -> str:
    """Text that is meant as it stands: `text("{{ ds }}")` reaches the program as it is, and nobody asks."""
    if not isinstance(value, str):
        raise TypeError(f"text takes a str, not a {type(value).__name__}")
    return Literally(check_receivable(value))


def parts_of(text: Text) -> tuple[str | Ref, ...]:
    """Any text as literals and references in order."""
    return text.parts if isinstance(text, Join) else (text,)


def refs_of(text: Text) -> Iterator[Ref]:
    """The references in a text."""
    return (part for part in parts_of(text) if not isinstance(part, str))


def join(*parts: Text | int | float) -> Text:
    """Glue texts: `join("s3://models/", run_id, "/best")`."""
    flat: list[str | Ref] = []
    for part in parts:
        for piece in parts_of(parse_text(part)):
            if isinstance(piece, str) and flat and isinstance(flat[-1], str):
                flat[-1] = _join_literal(flat[-1], piece)
            elif piece != "":
                flat.append(piece)
    return Join(tuple(flat)) if len(flat) > 1 else flat[0] if flat else ""


def _join_literal(left: str, right: str) -> str:
    """Two texts as one; the result is literal if one part is and the other does not look like a template."""
    meant = [isinstance(part, Literally) for part in (left, right)]
    asked = [looks_like_template(part) and not isinstance(part, Literally) for part in (left, right)]
    return Literally(left + right) if any(meant) and not any(asked) else str(left + right)


def parse_text(value: Any) -> Text:
    """A scalar or a reference map as Text."""
    if type(value) is str:  # nearly always
        return check_receivable(value)
    if isinstance(value, ParamRef | OutputRef | ItemRef | RunRef | Join):
        return value
    value = as_spelled(value)
    if isinstance(value, str):
        return check_receivable(value)
    if value is None or isinstance(value, bool):
        shown = "null" if value is None else str(value).lower()
        raise problem("GF126", f"{shown} is not text", f'quote it: "{shown}"')
    if isinstance(value, dict):
        return _reference(value)
    kind = type(value).__name__
    hint = "a list is not text" if isinstance(value, list | tuple) else f"write str(…) around the {kind}"
    raise problem("GF142", "text, or one reference such as {param: lr}, is expected here", hint)


def _reference(value: dict[str, Any]) -> Text:
    if "run" in value:
        wrong = next((key for key in value if key not in ("run", *_OF_DATES)), None)
        if wrong is None:
            return _run(**value)
        hint = did_you_mean(str(wrong), _OF_DATES) or "combine several references with {join: [...]}"
        raise problem("GF142", f'{{run: …}} takes a format and a timezone, and no "{wrong}"', hint)
    if len(value) != 1:
        text = "a reference is a map with one key: " + ", ".join(_KINDS)
        raise problem("GF142", text, "combine several with {join: [...]}")
    ((kind, target),) = value.items()
    if kind not in _KINDS:
        raise problem("GF142", f'"{kind}" is not a kind of reference', did_you_mean(str(kind), _KINDS))
    return _KINDS[kind](target)


_OF_DATES = ("format", "timezone")
"""What a date of the run takes beside its name."""


def _run(run: Any, format: Any = None, timezone: Any = None) -> Text:
    field = _require_text(run, "run", "a fact of the run")
    if field not in RUN_FIELDS:
        raise problem("GF142", f'the run has no field "{field}"', did_you_mean(field, RUN_FIELDS))
    said = {key: value for key, value in zip(_OF_DATES, (format, timezone), strict=True) if value is not None}
    if said and field not in RUN_DATES:
        text = f"{{run: {field}}} is no date and takes no {' and no '.join(said)}"
        raise problem("GF331", text, "dates: " + ", ".join(RUN_DATES))
    words = {key: check_receivable(_require_text(value, key, f"a {key}")) for key, value in said.items()}
    if "format" in words:
        try:
            date_format.pieces(words["format"])
        except ValueError as refusal:
            hint = "use " + " ".join(date_format.DIRECTIVES)
            raise problem("GF331", f'format "{words["format"]}": {refusal}', hint, at=("format",)) from None
    if "timezone" in words:
        check_zone(words["timezone"])
    return RunRef(field, **words)


def _output(target: Any) -> Text:
    word = _require_text(target, "output", "step.name")
    step, dot, name = word.partition(".")
    if not (step and dot and name) or "." in name:
        raise problem("GF142", f'"{word}" does not name an output', "write {output: step.name}")
    return OutputRef(step, name)


def _join(target: Any) -> Text:
    if not isinstance(target, list | tuple):
        raise problem("GF142", "join takes a list of texts and references", None)
    return join(*target)


def _text(target: Any) -> Text:
    words = as_spelled(target)
    if not isinstance(words, str):
        raise problem("GF142", f"{{text: {words}}} must give plain text", "references stand beside it, in {join: […]}")
    return text(words)


def _require_text(value: Any, kind: str, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise problem("GF142", f"{{{kind}: {as_spelled(value)}}} must give {what}", None)
    return value


_KINDS: dict[str, Callable[[Any], Text]] = {
    "param": lambda target: ParamRef(_require_text(target, "param", "the name of a parameter")),
    "output": _output,
    "item": lambda target: ItemRef(_require_text(target, "item", "the name of a fan-out variable")),
    "run": _run,
    "join": _join,
    "text": _text,
}


_REFERENCES: dict[str, dict[str, Any]] = {
    "param": {"type": "string", "description": "The value of a pipeline parameter."},
    "output": {"type": "string", "pattern": r"^[^.]+\.[^.]+$", "description": "step.name of an earlier step's output."},
    "item": {"type": "string", "description": "The current value of this step's fan-out variable."},
    "join": {"type": "array", "description": "Texts and references, concatenated."},
    "text": {"type": "string", "description": "Text that is meant as it stands, also when it looks like a template."},
}


_FACTS = "; ".join(f"{name}: {what}" for name, what in RUN_FIELDS.items())
_RUN_SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["run"],
    "properties": {
        "run": {"enum": list(RUN_FIELDS), "description": f"A fact of the run: {_FACTS}."},
        "format": {
            "type": "string",
            "description": "How a date is written: " + " ".join(date_format.DIRECTIVES) + ".",
            "examples": ["%Y/%m/%d"],
        },
        "timezone": {
            "type": "string",
            "description": "In which time zone; by default the schedule's.",
            "examples": ["Europe/Berlin"],
        },
    },
}


def ref_schema(*forms: str) -> dict[str, Any]:
    """The JSON schema of a reference of one of these forms."""
    return {
        "type": "object",
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
        "properties": {form: _REFERENCES[form] for form in forms},
    }


TEXT_SCHEMA: dict[str, Any] = {"anyOf": [{"type": ["string", "number"]}, ref_schema(*_REFERENCES), _RUN_SCHEMA]}

TextField = Annotated[Any, PlainValidator(parse_text), WithJsonSchema(TEXT_SCHEMA)]
"""A `Text` in a model. Typed `Any` for pydantic's sake: the validator alone decides."""
