"""Findings about a document: where it was written, which codes it may silence, and pydantic's errors as ours.

Each kind of pydantic error has a code, a sentence and a hint. A document silences notes and warnings, never errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, PlainValidator, ValidationError, WithJsonSchema

from gpuflow.core.codes import CODES
from gpuflow.core.errors import Where, did_you_mean
from gpuflow.spec.kubernetes_fields import spec_field_hint
from gpuflow.spec.model import Model, as_spelled, problem

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """`file` is None for a document that was never a file."""

    file: str | None = None
    locate: Callable[[Path, bool], Where] = lambda path, key: Where()
    is_part: bool = False
    """Whether the document stands inside another one, whose file this is."""


_REFUSALS = frozenset({"GF301", "GF302", "GF304", "GF312", "GF342", "GF702", "GF703", "GF704", "GF736", "GF737"})
_REMARKS = frozenset({"GF210", "GF912"})
"""Notes and warnings among codes that are errors else."""


def is_always_error(code: str) -> bool:
    """Whether a code only ever stops the work: what is wrong with a document, a site or a command, and every never."""
    if code in _REMARKS:
        return False
    return code in _REFUSALS or code[:3] in ("GF1", "GF2", "GF9") or CODES[code].title.startswith("Never")


def _check_code(value: Any) -> str:
    if not isinstance(value, str) or value not in CODES:
        hint = did_you_mean(value, CODES) if isinstance(value, str) else None
        raise problem("GF342", f"{value!r} is not a code", hint or "gpuflow explain lists them")
    if is_always_error(value):
        text = f'{value} ("{CODES[value].title}") is an error, which cannot be silenced'
        raise problem("GF342", text, f"gpuflow explain {value}")
    return value


SilencedCode = Annotated[
    str, PlainValidator(_check_code), WithJsonSchema({"type": "string", "pattern": "^GF[0-9]{3}$"})
]


M = TypeVar("M", bound=Model)
MAX_PROBLEMS = 1000
"""So many errors of one document are told one by one."""
Problem = tuple[str, str, str | None, Path, bool]
"""Code, message, hint, path in the document, and whether the key itself is meant."""


def problems(error: ValidationError, model: type[BaseModel]) -> Iterator[Problem]:
    """Every error of a validation, in our words; of more than `MAX_PROBLEMS`, the number of the others."""
    items = error.errors(include_url=False)
    for number, item in enumerate(items[: MAX_PROBLEMS + 1]):
        below = (item.get("ctx") or {}).get("at", ())
        path = (*(part for part in item["loc"] if part != "[key]"), *below)
        about_key = bool(item["loc"]) and (item["loc"][-1] == "[key]" or item["type"] == "extra_forbidden")
        code, message, hint = _describe(dict(item), model)
        if number == MAX_PROBLEMS:
            message, hint = f"{message}, and {len(items) - MAX_PROBLEMS - 1:,} more are wrong", "mend those above first"
        yield code, message, hint, path, about_key


def _describe(item: dict[str, Any], model: type[BaseModel]) -> tuple[str, str, str | None]:
    kind, value, context = item["type"], item.get("input"), item.get("ctx") or {}
    if kind.startswith("GF"):
        return kind, context["message"], context["hint"]
    path = [part for part in item["loc"] if part != "[key]"]
    key = path[-1] if path else ""
    if kind == "extra_forbidden":
        owner = _model_at(model, path[:-1])
        known = set(owner.model_fields) if owner is not None else set()
        said = owner.unknown(str(key)) if owner is not None and issubclass(owner, Model) else None
        instead = spec_field_hint(str(key), owner.__name__, known) if owner is not None else None
        advice = instead or did_you_mean(str(key), sorted(known)) or "remove it"
        # A word of Kubernetes first: an engine may have it too, and its way out is then the longer one.
        return said if said and not instead else ("GF113", f'unknown key "{key}"', advice)
    if kind == "missing":
        return "GF114", f'"{key}" is missing', f"add {key}: …"
    if kind == "literal_error":
        expected = context["expected"].replace("'", "")
        hint = did_you_mean(str(value), expected.replace(" or ", ", ").split(", "))
        return "GF115", f"{_show(value)} is not one of {expected}", hint
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        return "GF116", f"a mapping is expected here, not {_show(value)}", "write key: value pairs"
    if kind in ("tuple_type", "list_type"):
        return "GF117", f"a list is expected here, not {_show(value)}", "write [a, b] or one '- item' per line"
    if kind.startswith("float"):
        return "GF118", f"{_show(value)} is not a number", "write it without quotes"
    return "GF119", f"{_show(value)} does not fit here: {item['msg']}", None


def _show(value: Any) -> str:
    value = as_spelled(value)
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if value is None:
        return "nothing"
    text = str(value)
    return f'"{text[:77]}…"' if len(text) > 80 else f'"{text}"'


def _model_at(model: type[BaseModel], path: list[Any]) -> type[BaseModel] | None:
    """The model that stands at `path` below `model`."""
    current: Any = model
    for part in path:
        if isinstance(current, type) and issubclass(current, BaseModel) and part in current.model_fields:
            current = _model_in(current.model_fields[part].annotation)
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None


def _model_in(annotation: Any) -> Any:
    """The model inside `dict[str, Step]`, `Step | None`, `tuple[Helper, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def validate_nested(model: type[M], value: Any) -> M:
    """Validate a part that a field's own validator has recognized; its first error becomes the field's error."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        code, message, hint, path, _ = next(problems(error, model))
        place = ".".join(str(part) for part in path)
        raise problem(code, f"{place}: {message}" if place else message, hint) from None
