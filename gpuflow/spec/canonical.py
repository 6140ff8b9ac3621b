"""A pipeline as its canonical document: short forms where they say everything, nothing that is a default."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from gpuflow.by_type import ByType
from gpuflow.emit import emit
from gpuflow.quantity import Quantity
from gpuflow.spec import expression
from gpuflow.spec.container import Script
from gpuflow.spec.duration import Duration
from gpuflow.spec.engine_words.imported import Imported
from gpuflow.spec.fan_out import Range
from gpuflow.spec.gang import Gang, Leader
from gpuflow.spec.inputs import Input
from gpuflow.spec.model import Model
from gpuflow.spec.params import Output, Param
from gpuflow.spec.pipeline import Pipeline, Schedule
from gpuflow.spec.policies import Backoff, Priority, Retry, Spot
from gpuflow.spec.resources import Amount, Gpu, Mig, SharedGpu
from gpuflow.spec.settings import Settings
from gpuflow.spec.step import Approval, Step
from gpuflow.spec.text import literal

_HEAD = ("apiVersion", "kind")
_TAKE_AWAY = (Step, Leader)
"""Models in which null says something."""
_ALWAYS: dict[type[Model], tuple[str, ...]] = {Param: ("type",), Output: ("type",)}
"""Fields that are written even when they have their default."""
_SINGLE: dict[type[Model], str] = {
    Spot: "mode",
    Retry: "any",
    Backoff: "start",
    Priority: "pod",
    SharedGpu: "model",
    Schedule: "cron",
    Gang: "workers",
    Range: "stop",
    Output: "type",
    Script: "run",
    Approval: "message",
    Imported: "path",
}
"""Models whose short form is the value of one field."""


def to_document(model: Model) -> Any:
    """The model as plain data."""
    form = _FORMS[type(model)]
    return form(model) if form is _canonical else _fields(model)


def _fields(model: Model) -> Any:
    result: dict[str, Any] = {}
    base = _BASES[type(model)]
    unsaid = model.unsaid if base in _TAKE_AWAY else frozenset()  # type: ignore[attr-defined]  # they have it
    # An optional JSON parameter whose default is null must keep saying so, or it would become required.
    keeps_null = base is Param and not model.required and model.default is None  # type: ignore[attr-defined]  # as above
    values = model.__dict__
    for name, default, always in _defaults(type(model)):
        value = values[name]
        if unsaid and any(path[0] == name for path in unsaid):
            result[name] = _with_nulls(value, name, unsaid)
        elif always or (value is not default and value != default) or (keeps_null and name == "default"):
            result[name] = _plain(value)
    if base is Leader and not result:
        return True
    short = _SINGLE.get(type(model))
    if short is not None and set(result) <= {short} and getattr(model, short) is not None:
        return _plain(getattr(model, short))
    return result


def to_yaml(pipeline: Pipeline) -> str:
    """The canonical document: what `gpuflow show --format yaml` prints."""
    return emit(to_document(pipeline))


def _with_nulls(value: Any, name: str, unsaid: frozenset[tuple[str, ...]]) -> Any:
    """A field of which the step says null: as a whole, or of some of its keys."""
    if (name,) in unsaid:
        return None
    nulls = sorted(path[1] for path in unsaid if path[0] == name)
    return {**_plain(value), **dict.fromkeys(nulls)}


@cache
def _defaults(kind: type[Model]) -> list[tuple[str, Any, bool]]:
    """The fields of a document in their order, each with its default, and whether it is written all the same."""
    fields = kind.model_fields
    always = _HEAD if "apiVersion" in fields else _ALWAYS.get(kind, ())
    return [(name, fields[name].get_default(), name in always) for name in _ordered(kind)]


def _ordered(kind: type[Model]) -> list[str]:
    """Field order of the document: a step says first how it hangs together, then what it runs, then its settings."""
    names = list(kind.model_fields)
    if kind is Step:
        own = [name for name in names if name not in Settings.model_fields]
        ends = ("description", "engines")
        return ["description", *(n for n in own if n not in ends), *Settings.model_fields, "engines"]
    return names


def _plain(value: Any) -> Any:
    return _FORMS[type(value)](value)


def _as_it_is(value: Any) -> Any:
    return value


def _canonical(value: Any) -> Any:
    return value.canonical()


def _form(kind: type) -> Callable[[Any], Any]:
    """How a value of exactly this type is written."""
    if kind is str:
        return _as_it_is
    forms: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
        (Range, lambda value: {"range": _fields(value)}),
        ((Amount, Gpu, Input, Mig), _canonical),
        (Model, _fields),
        (str, literal),
        (dict, lambda value: {key: _plain(item) for key, item in value.items()}),
        ((tuple, list), lambda value: [_plain(item) for item in value]),
        ((Quantity, Duration), str),
        (expression.Expression, expression.render),
        ((int, float, type(None)), _as_it_is),
    )
    return next((form for base, form in forms if issubclass(kind, base)), _canonical)


_FORMS = ByType(_form)
_BASES = ByType(lambda kind: next((base for base in (Step, Param, Leader) if issubclass(kind, base)), None))
"""Which of the models that have more to say a model is; `isinstance` is slow for the classes of pydantic."""
