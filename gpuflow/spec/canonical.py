"""A pipeline as its canonical document, and the digest of its meaning.

The canonical document has short forms where they say everything, and nothing that is a default. The meaning leaves out
the spelling: maps have no order, and comments, line ends and short forms are not read. What is compiled depends on the
meaning and on nothing else of the source, so that the same meaning gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeVar, cast

from gpuflow.core.caching import ByType
from gpuflow.core.emit import emit
from gpuflow.graph.order import order
from gpuflow.quantity import Quantity
from gpuflow.spec import expression
from gpuflow.spec.duration import Duration
from gpuflow.spec.engine_options.airflow import Teardown
from gpuflow.spec.fan_out import Range
from gpuflow.spec.model import Model, WithNulls
from gpuflow.spec.params import Output, Param
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Gang, Leader
from gpuflow.spec.references import edges
from gpuflow.spec.resources import Amount, Gpu, Mig
from gpuflow.spec.step import Step
from gpuflow.spec.step_fields import Settings
from gpuflow.spec.text import Join, Literally, join, literal
from gpuflow.spec.volumes import FileItem, HostPath, Input

_HEAD = ("apiVersion", "kind")
_ALWAYS: dict[type[Model], tuple[str, ...]] = {Param: ("type",), Output: ("type",)}
"""Fields that are written even when they have their default."""
_SHORT_FIELDS: dict[type[Model], str] = {Gang: "workers", Output: "type", FileItem: "", HostPath: "", Teardown: ""}
"""Where the short form that is written, as the value of one field, is not the `SHORT_FIELD` that is read."""


def to_document(model: Model) -> Any:
    """The model as plain data."""
    form = _FORMS[type(model)]
    return form(model) if form is _canonical else _fields(model)


def _fields(model: Model) -> Any:
    result: dict[str, Any] = {}
    base = _BASES[type(model)]
    unsaid = model.nulls if isinstance(model, WithNulls) else frozenset()
    # An optional JSON parameter whose default is null must keep saying so, or it would become required.
    keeps_null = base is Param and not model.required and model.default is None  # type: ignore[attr-defined]  # it has both
    values = model.__dict__
    for name, default, always in _defaults(type(model)):
        value = values[name]
        if unsaid and any(path[0] == name for path in unsaid):
            result[name] = _with_nulls(value, name, unsaid)
        elif always or (value is not default and value != default) or (keeps_null and name == "default"):
            result[name] = _plain_value(value)
    if base is Leader and not result:
        return True
    short = _SHORT_FIELDS.get(type(model), model.SHORT_FIELD)
    if short and set(result) <= {short} and getattr(model, short) is not None:
        return _plain_value(getattr(model, short))
    return result


def to_yaml(pipeline: Pipeline) -> str:
    """The canonical document: what `gpuflow show --format yaml` prints."""
    return emit(to_document(pipeline))


def _with_nulls(value: Any, name: str, unsaid: frozenset[tuple[str, ...]]) -> Any:
    """A field of which the step says null: as a whole, or of some of its keys."""
    if (name,) in unsaid:
        return None
    nulls = sorted(path[1] for path in unsaid if path[0] == name)
    return {**_plain_value(value), **dict.fromkeys(nulls)}


@cache
def _defaults(kind: type[Model]) -> list[tuple[str, Any, bool]]:
    """The fields of a document in their order, each with its default, and whether it is written all the same."""
    fields = kind.model_fields
    always = _HEAD if "apiVersion" in fields else _ALWAYS.get(kind, ())
    names = list(fields)
    if kind is Step:  # first its dependencies, then what it runs, then its settings
        settings = list(Settings.model_fields)
        own = [name for name in names if name not in (*settings, "description", "engines")]
        names = ["description", *own, *settings, "engines"]
    return [(name, fields[name].get_default(), name in always) for name in names]


def _plain_value(value: Any) -> Any:
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
        (dict, lambda value: {key: _plain_value(item) for key, item in value.items()}),
        ((tuple, list), lambda value: [_plain_value(item) for item in value]),
        ((Quantity, Duration), str),
        (expression.Expression, expression.render),
        ((int, float, type(None)), _as_it_is),
    )
    return next((form for base, form in forms if issubclass(kind, base)), _canonical)


_FORMS = ByType(_form)
_BASES = ByType(lambda kind: next((base for base in (Step, Param, Leader) if issubclass(kind, base)), None))
"""Which of the models that have more to say a model is; `isinstance` is slow for the classes of pydantic."""


M = TypeVar("M", bound=Model)


def meaning_of(document: M) -> M:
    """The same document in one spelling: steps after those they wait for, every other map by its keys, lists as they
    were written. What only decides which remarks are printed is left out."""
    return cast(M, _value(document))


def digest(pipeline: Pipeline) -> str:
    """The hash of what a pipeline says, its sub-pipelines included: equal pipelines have equal hashes."""
    return digest_of_meaning(meaning_of(pipeline))


def digest_of_meaning(pipeline: Pipeline) -> str:
    """The same hash of what `meaning_of` gave: whoever compiles has that already, and finding it again takes time."""
    text = json.dumps(to_document(pipeline), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _model(model: Model) -> Model:
    changes = {}
    for name, value in model.__dict__.items():
        put = _ORDERINGS[type(value)] if value else None
        if put is not None and (ordered := put(value)) is not value:
            changes[name] = ordered
    return model.model_copy(update=changes) if changes else model


def _pipeline(written: Pipeline) -> Pipeline:
    pipeline = cast(Pipeline, _model(written))
    if pipeline is not written:
        pipeline._effective = dict(written._effective)  # the steps that are in order already are the same
    names = order(edges(pipeline))
    if names == list(pipeline.steps) and not pipeline.silence:
        return pipeline
    return pipeline.model_copy(update={"steps": {name: pipeline.steps[name] for name in names}, "silence": ()})


def _value(value: Any) -> Any:
    """The value itself where it is in order already: most of a document is."""
    put = _ORDERINGS[type(value)]
    return value if put is None else put(value)


def _map(value: dict[str, Any]) -> dict[str, Any]:
    keys = sorted(value)
    if keys == list(value) and _is_plain(value.values()):
        return value
    ordered = {key: _value(value[key]) for key in keys}
    same = keys == list(value) and all(ordered[key] is value[key] for key in keys)
    return value if same else ordered


def _items(value: Any) -> Any:
    if _is_plain(value):
        return value
    items = list(map(_value, value))
    same = all(new is old for new, old in zip(items, value, strict=True))
    return value if same else type(value)(items)


def _is_plain(values: Iterable[Any]) -> bool:
    """Whether none of them has an order, as texts and numbers."""
    for value in values:  # noqa: SIM110  # most lists and maps are, so without a call for each
        if _ORDERINGS[type(value)] is not None:
            return False
    return True


def _ordering_for(kind: type) -> Callable[[Any], Any] | None:
    """How a value of exactly this type is put in order; None: it has no order, as most of a document."""
    ways: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
        (Pipeline, _pipeline),
        (Model, _model),
        (Literally, str),
        (Join, lambda value: join(*map(_value, value.parts))),
        (dict, _map),
        ((tuple, list), _items),
    )
    return next((way for base, way in ways if issubclass(kind, base)), None)


_ORDERINGS = ByType(_ordering_for)
