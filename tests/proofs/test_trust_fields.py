"""Every field of every model is in some document that hostile text is put into."""

from __future__ import annotations

from collections.abc import Iterator

import gpuflow.site.model
import gpuflow.spec.pipeline  # noqa: F401  # defines models
from gpuflow.spec.model import Model
from proofs.trust.documents import FILE, all_used_fields, pipelines, places, sites


def models(root: type[Model] = Model) -> Iterator[type[Model]]:
    """Every model there is."""
    for model in root.__subclasses__():
        yield model
        yield from models(model)


def test_every_field_is_tried() -> None:
    fields = {
        (model.__name__, name)
        for model in models()
        if model.__module__.startswith("gpuflow.")
        for name in model.model_fields
    }
    tried = all_used_fields()
    missing = {
        # A default is the step's own field, written once for all steps.
        (owner, name)
        for owner, name in fields - tried
        if not (owner == "Settings" and ("Step", name) in tried)
    }
    assert sorted(missing) == [], "put these into a document of proofs/trust/documents.py"


def test_every_place_is_found_again_in_its_document() -> None:
    """The way to a value in the model is the way to it in the document; else text would be put elsewhere."""
    documents = {**pipelines(), **sites()}
    for place in places():
        if place.document == FILE:
            continue
        value: object = documents[place.document]
        for step in place.path:
            value = value[step]  # type: ignore[index]  # the path leads through maps and lists
        if not place.is_key:
            assert isinstance(value, str | int | float | bool), place.name
