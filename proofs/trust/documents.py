"""The documents that hostile text is put into: small pipelines and sites that together use every field of the models.

Each is written in its long form, made from the models themselves, so that the way to a value in the document is the way
to it in the model. `test_fields.py` fails when a field of a model is used by none of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path as FilePath
from typing import Any

import yaml

from gpuflow.quantity import Quantity
from gpuflow.spec import expression
from gpuflow.spec.duration import Duration
from gpuflow.spec.fan_out import Range
from gpuflow.spec.loading import loads
from gpuflow.spec.model import Model
from gpuflow.spec.text import RunTimeValue
from tests.targets.every_construct import HEAD, PIPELINES, SITE

Path = tuple[str | int, ...]
Field = tuple[str, str]
"""A model and one of its fields."""

HERE = FilePath(__file__).parent


@dataclass(frozen=True)
class Place:
    """A value, or a key, of a document that hostile text is put into."""

    document: str
    path: Path
    is_key: bool
    field: Field
    """The field of a model that it belongs to."""

    @property
    def name(self) -> str:
        return f"{self.document}: {'.'.join(map(str, self.path))}{' (key)' if self.is_key else ''}"


def long(value: Any) -> Any:
    """A model as the document writes it without any short form."""
    if isinstance(value, Range):
        return {"range": {name: getattr(value, name) for name in type(value).model_fields}}
    if isinstance(value, Model):
        return {name: long(getattr(value, name)) for name in type(value).model_fields if name in value.model_fields_set}
    if isinstance(value, RunTimeValue):
        return value.canonical()
    if isinstance(value, dict):
        return {key: long(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [long(item) for item in value]
    if isinstance(value, Quantity | Duration):
        return str(value)
    return expression.render(value) if hasattr(value, "offset") else value


@cache
def pipelines() -> dict[str, dict[str, Any]]:
    """Every pipeline in its long form, by name."""
    constructs = {f"construct {name}": long(loads(HEAD + text, "p.yaml")) for name, text in PIPELINES.items()}
    return {**constructs, **{name: completed(each) for name, each in written("pipelines.yaml").items()}}


def completed(fields: dict[str, Any]) -> dict[str, Any]:
    """A pipeline in its long form, with what all of them begin with."""
    found: dict[str, Any] = long(loads(json.dumps({**yaml.safe_load(HEAD), **fields}), "p.yaml"))
    return found


@cache
def written(file: str) -> dict[str, Any]:
    """A file of this folder."""
    found: dict[str, Any] = yaml.safe_load((HERE / file).read_text(encoding="utf-8"))
    return found


@cache
def sites() -> dict[str, dict[str, Any]]:
    """Every site as a document. Sites have no short forms but one, so they stand as they are written."""
    head = {"apiVersion": "gpuflow/v1", "kind": "Site"}
    return {name: {**head, **fields} for name, fields in written("sites.yaml")["sites"].items()}


@cache
def for_sites(size: str) -> dict[str, Any]:
    """The pipeline that is compiled for a hostile site: `pipeline`, or `small` for who cannot do all of it."""
    return completed(written("sites.yaml")[size])


def base_site() -> Any:
    """The site that pipelines are compiled for."""
    return yaml.safe_load(SITE)


@cache
def places() -> tuple[Place, ...]:
    """Every place of every document, pipelines first; then names of files."""
    found: list[Place] = []
    for name, document in pipelines().items():
        model = loads(json.dumps(document), "p.yaml")
        found += [
            Place(name, path, is_key, field)
            for path, is_key, field in walk(model)
            if name == "whole" or path[0] not in SAME_EVERYWHERE
        ]
    for name, document in sites().items():
        found += [Place(name, path, is_key, field) for path, is_key, field in walk(_site_model(document))]
    found.append(Place(FILE, (), False, ("Source", "file")))
    return tuple(dict.fromkeys(found))


def used_fields(value: Any) -> Iterator[Field]:
    """The fields of a model, and of those in it, that say something."""
    if isinstance(value, Model):
        for name in type(value).model_fields:
            if name in value.model_fields_set and getattr(value, name) not in (None, (), {}):
                yield type(value).__name__, name
                yield from used_fields(getattr(value, name))
    elif isinstance(value, dict | list | tuple):
        for item in value.values() if isinstance(value, dict) else value:
            yield from used_fields(item)


SAME_EVERYWHERE = ("apiVersion", "kind", "name", "defaults")
"""What all pipelines begin with; tried in one of them."""
FILE = "the file's name"


@cache
def all_used_fields() -> frozenset[Field]:
    """The fields that some document uses."""
    models = [loads(json.dumps(each), "p.yaml") for each in pipelines().values()]
    models += map(_site_model, sites().values())
    return frozenset(field for model in models for field in used_fields(model))


def _site_model(document: dict[str, Any]) -> Any:
    from proofs.trust.compiling import site_of

    return site_of(document)


def walk(value: Any, path: Path = (), field: Field = ("", "")) -> Iterator[tuple[Path, bool, Field]]:
    """Each scalar and each key below a model, with the field it belongs to."""
    if isinstance(value, Model):
        path = (*path, "range") if isinstance(value, Range) else path
        for name in type(value).model_fields:
            if name in value.model_fields_set:
                yield from walk(getattr(value, name), (*path, name), (type(value).__name__, name))
    elif isinstance(value, RunTimeValue):
        yield from walk(value.canonical(), path, field)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key), True, field
            yield from walk(item, (*path, key), field)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk(item, (*path, index), field)
    elif value is not None:
        yield path, False, field
