"""The JSON Schema for editors: it explains every field and rejects what the loader rejects at first sight."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from gpuflow.core import yaml_tree
from gpuflow.site import Site, presets
from gpuflow.site.model import site_schema
from gpuflow.spec.canonical import to_document
from gpuflow.spec.loading import loads
from gpuflow.spec.policies import Leader
from gpuflow.spec.schema import pipeline_schema
from gpuflow.spec.step_fields import Settings
from tests.conftest import ROOT

PIPELINE = pipeline_schema()
SITE = site_schema()
NIGHTLY = ROOT / "docs" / "examples" / "nightly.yaml"


def nightly() -> Any:
    return copy.deepcopy(yaml_tree.parse(NIGHTLY.read_bytes(), "nightly.yaml"))


def errors(document: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(PIPELINE).iter_errors(document)]


def test_both_schemas_are_schemas() -> None:
    for schema in (PIPELINE, SITE):
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize(
    ("place", "key", "value"),
    [
        ((), "stepz", {}),
        ((), "schedule", 5),
        ((), "kind", "Site"),
        (("steps", "train"), "gpus", "a100-80gb"),
        (("steps", "train"), "command", "python train.py"),
        (("steps", "train", "retry"), "failure", 3),
        (("steps", "train", "checkpoint"), "keep", 0),
        (("steps", "train"), "spot", "sometimes"),
        (("steps", "train"), "memory", "200 GB"),
        (("steps", "train"), "timeout", "5 minutes"),
        (("steps",), "Train_2", {"command": ["x"]}),
        (("defaults", "labels"), "team", "-nlp-"),
        (("params",), "my-param", 3),
        (("steps", "fetch", "env"), "A-B", "x"),
        (("steps", "evaluate"), "for_each", {"suite": []}),
        (("steps", "evaluate"), "needs", [1]),
    ],
)
def test_an_editor_marks_what_the_loader_refuses(place: tuple[str, ...], key: str, value: Any) -> None:
    document = nightly()
    assert errors(document) == []
    target = document
    for part in place:
        target = target[part]
    target[key] = value
    assert errors(document) != []


def test_a_document_without_its_head_or_steps_is_marked() -> None:
    for key in ("apiVersion", "kind", "name", "steps"):
        document = nightly()
        del document[key]
        assert errors(document) == [f"'{key}' is a required property"]


def fields(schema: dict[str, Any]) -> Iterator[tuple[str, str, Any]]:
    for name, definition in {"": schema, **schema["$defs"]}.items():
        for option in (definition, *definition.get("anyOf", ())):
            for field, content in option.get("properties", {}).items():
                target = schema["$defs"].get(content.get("$ref", "").rpartition("/")[2], {})
                yield name, field, {**target, **content}


@pytest.mark.parametrize("schema", [PIPELINE, SITE], ids=["pipeline", "site"])
def test_every_field_is_described(schema: dict[str, Any]) -> None:
    found = list(fields(schema))
    assert len(found) > 50
    assert [(owner, field) for owner, field, content in found if not content.get("description")] == []


@pytest.mark.parametrize("schema", [PIPELINE, SITE])
def test_no_definition_shows_the_path_of_a_module(schema: dict[str, Any]) -> None:
    """Two models of one name would be told apart so, in the reference and in editors."""
    assert [name for name in schema["$defs"] if "__" in name] == []


def test_only_the_settings_of_a_step_and_of_a_leader_may_be_null_which_takes_something_away() -> None:
    rest = copy.deepcopy(PIPELINE)
    settings = {name: rest["$defs"]["Step"]["properties"].pop(name) for name in Settings.model_fields}
    leader = rest["$defs"]["Leader"]["anyOf"][1]["properties"]
    settings |= {f"leader.{name}": leader.pop(name) for name in (*Leader.SETTINGS, "env")}
    assert all('"null"' in json.dumps(schema) for schema in settings.values())
    assert '"null"' not in json.dumps(rest)


def test_a_site_that_extends_another_is_as_good_as_a_full_one() -> None:
    check = jsonschema.Draft202012Validator(SITE)
    head = {"apiVersion": "gpuflow/v1", "kind": "Site"}
    assert check.is_valid({**head, "name": "mine", "extends": "gke", "namespace": "team-a"})
    assert not check.is_valid({**head, "name": "mine", "extend": "gke"})


@pytest.mark.parametrize("name", presets())
def test_every_preset_satisfies_the_schema_of_sites(name: str) -> None:
    jsonschema.Draft202012Validator(SITE).validate(to_document(Site.load(name)))


def test_one_item_may_stand_for_a_list_of_one_in_an_editor_too() -> None:
    words = """apiVersion: gpuflow/v1
kind: Pipeline
name: p
silence: GF307
on_data: s3://lake/in
notify: [{mail: {to: a@example.com}, "on": success}]
engines: {airflow: {on_failure_callback: company.page, default_args: {email: a@example.com, inlets: s3://b/x}}}
steps:
  a: {image: i, command: [x]}
  b: {image: i, command: [x], needs: a, engines: {airflow: {on_retry_callback: {path: company.page}}}}
"""
    loads(words)
    jsonschema.Draft202012Validator(pipeline_schema()).validate(yaml.safe_load(words))
    nodes = {"labels": {"gpu": "a100"}, "forms": {"sxm": {"board": "sxm"}}}
    site = {"apiVersion": "gpuflow/v1", "kind": "Site", "name": "s", "gpu": {"models": {"a100-80gb": nodes}}}
    Site.model_validate(site)
    jsonschema.Draft202012Validator(site_schema()).validate(site)
