"""A document's meaning without its spelling: maps have no order, and comments, line ends and short forms are not read.

What is compiled depends on this and on nothing else of the source, so that the same meaning gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, TypeVar, cast

from gpuflow.graph.order import order
from gpuflow.spec.canonical import to_document
from gpuflow.spec.flow import edges
from gpuflow.spec.model import Model
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.text import Join, Literally, join

M = TypeVar("M", bound=Model)
_PLAIN = frozenset((type(None), bool, int, float, str))
"""Most of a document: values of exactly these types have nothing to put in order."""


def meaning_of(document: M) -> M:
    """The same document in one spelling: steps after those they wait for, every other map by its keys.

    Lists keep the order that they were written in. What only decides which remarks are printed is left out.
    """
    return cast(M, _model(document))


def digest(pipeline: Pipeline) -> str:
    """The hash of what a pipeline says, its sub-pipelines included: equal pipelines have equal hashes."""
    text = json.dumps(to_document(meaning_of(pipeline)), sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _model(model: Model) -> Model:
    changes = {}
    for name, value in model.__dict__.items():
        if type(value) in _PLAIN:
            continue
        ordered = _value(value)
        if ordered is not value:
            changes[name] = ordered
    if changes:
        model = model.model_copy(update=changes)
    return _pipeline(model) if isinstance(model, Pipeline) else model


def _pipeline(pipeline: Pipeline) -> Pipeline:
    names = order(edges(pipeline))
    if names == list(pipeline.steps) and not pipeline.silence:
        return pipeline
    return pipeline.model_copy(update={"steps": {name: pipeline.steps[name] for name in names}, "silence": ()})


def _value(value: Any) -> Any:
    """The value itself where it is in order already: most of a document is."""
    if type(value) in _PLAIN:
        return value
    if isinstance(value, Model):
        return _model(value)
    if isinstance(value, Literally):
        return str(value)
    if isinstance(value, Join):
        return join(*(_value(part) for part in value.parts))
    if isinstance(value, dict):
        keys = sorted(value)
        ordered = {key: _value(value[key]) for key in keys}
        same = keys == list(value) and all(ordered[key] is value[key] for key in keys)
        return value if same else ordered
    if isinstance(value, tuple | list):
        items = [_value(item) for item in value]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else type(value)(items)
    return value
