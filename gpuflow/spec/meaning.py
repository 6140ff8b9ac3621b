"""A document's meaning without its spelling: maps have no order, and comments, line ends and short forms are not read.

What is compiled depends on this and on nothing else of the source, so that the same meaning gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from typing import Any, TypeVar, cast

from gpuflow.by_type import ByType
from gpuflow.graph.order import order
from gpuflow.spec.canonical import to_document
from gpuflow.spec.flow import edges
from gpuflow.spec.model import Model
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.text import Join, Literally, join

M = TypeVar("M", bound=Model)


def meaning_of(document: M) -> M:
    """The same document in one spelling: steps after those they wait for, every other map by its keys.

    Lists keep the order that they were written in. What only decides which remarks are printed is left out.
    """
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
        if not value:
            continue
        put = _WAYS[type(value)]
        if put is None:
            continue
        ordered = put(value)
        if ordered is not value:
            changes[name] = ordered
    return model.model_copy(update=changes) if changes else model


def _pipeline(written: Pipeline) -> Pipeline:
    pipeline = cast(Pipeline, _model(written))
    names = order(edges(pipeline))
    if names == list(pipeline.steps) and not pipeline.silence:
        return pipeline
    return pipeline.model_copy(update={"steps": {name: pipeline.steps[name] for name in names}, "silence": ()})


def _value(value: Any) -> Any:
    """The value itself where it is in order already: most of a document is."""
    put = _WAYS[type(value)]
    return value if put is None else put(value)


def _join(value: Join) -> Any:
    return join(*map(_value, value.parts))


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
        if _WAYS[type(value)] is not None:
            return False
    return True


def _way(kind: type) -> Callable[[Any], Any] | None:
    """How a value of exactly this type is put in order; None: it has no order, as most of a document."""
    ways: tuple[tuple[Any, Callable[[Any], Any]], ...] = (
        (Pipeline, _pipeline),
        (Model, _model),
        (Literally, str),
        (Join, _join),
        (dict, _map),
        ((tuple, list), _items),
    )
    return next((way for base, way in ways if issubclass(kind, base)), None)


_WAYS = ByType(_way)
