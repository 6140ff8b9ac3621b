"""YAML and Python are the same thing: equal models, the same canonical bytes, and a schema that agrees.

Tests gpuflow/spec/canonical.py and gpuflow/spec/step.py.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings

from gpuflow import Pipeline, load, loads
from gpuflow.core import yaml_tree
from gpuflow.core.emit import emit
from gpuflow.spec.canonical import to_document, to_yaml
from gpuflow.spec.schema import pipeline_schema
from tests.conftest import ROOT
from tests.spec.generated import pipelines

EXAMPLES = ROOT / "docs" / "examples"
slow = settings(
    max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None
)
SCHEMA = jsonschema.Draft202012Validator(pipeline_schema())


def in_python(document: dict[str, Any]) -> Pipeline:
    """The document as Python calls would give it."""
    fields = {key: value for key, value in document.items() if key not in ("steps", "exit", "params", "name")}
    with Pipeline(document["name"], **copy.deepcopy(fields)) as pipeline:
        for name, param in document["params"].items():
            if isinstance(param, dict):
                pipeline.param(name, **copy.deepcopy(param))
            else:
                pipeline.param(name, type(param), default=param)
        for section, add in (("steps", pipeline.step), ("exit", pipeline.exit_step)):
            for name, step in document.get(section, {}).items():
                add(name, **copy.deepcopy(step))
    return pipeline


@pytest.mark.slow
@slow
@given(pipelines())
def test_a_pipeline_is_the_same_from_yaml_from_python_and_from_its_own_canonical_form(document: dict[str, Any]) -> None:
    from_yaml = loads(emit(document), "x.yaml")
    assert from_yaml == Pipeline(**copy.deepcopy(document))
    assert from_yaml == in_python(document)
    text = to_yaml(from_yaml)
    again = loads(text, "canonical.yaml")
    assert again == from_yaml
    assert to_yaml(again) == to_yaml(in_python(document)) == text


@pytest.mark.slow
@slow
@given(pipelines())
def test_every_valid_pipeline_satisfies_the_schema_that_editors_use(document: dict[str, Any]) -> None:
    SCHEMA.validate(document)
    SCHEMA.validate(to_document(loads(emit(document), "x.yaml")))


@pytest.mark.parametrize("name", ["nightly", "finetune"])
def test_the_examples_in_yaml_and_in_python_are_equal_and_print_the_same_bytes(name: str) -> None:
    one, other = load(EXAMPLES / f"{name}.yaml"), load(EXAMPLES / f"{name}.py")
    assert one == other
    assert to_yaml(one) == to_yaml(other)
    assert loads(to_yaml(one), str(EXAMPLES / "canonical.yaml")) == one


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_examples_satisfy_the_schema(path: Path) -> None:
    SCHEMA.validate(yaml_tree.parse(path.read_bytes(), str(path)))


def test_the_demo_and_the_example_are_the_same_file() -> None:
    demo = ROOT / "gpuflow" / "demo" / "nightly.yaml"
    assert (EXAMPLES / "nightly.yaml").read_bytes() == demo.read_bytes()


def test_the_long_example_uses_most_of_the_language() -> None:
    from gpuflow.targets.constructs import VOCABULARY, uses

    used = {use.construct for name in ("finetune", "gang", "daily") for use in uses(load(EXAMPLES / f"{name}.yaml"))}
    assert len(load(EXAMPLES / "finetune.yaml").steps) == 12
    # By number, not by name: a new field must not need a line here.
    # Words of single engines, alerts and rare volumes have examples of their own, in the guides.
    assert len(set(VOCABULARY) - used) < len(VOCABULARY) / 2


HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: x\n"


@pytest.mark.parametrize(
    ("field", "short", "long"),
    [
        ("cpu", "4", "{request: 4, limit: 4000m}"),
        ("memory", "16Gi", "{request: 16384Mi, limit: 16Gi}"),
        ("retry", "3", "{any: 3}"),
        ("retry", "0", "{any: 0}"),
        ("spot", "prefer", "{mode: prefer}"),
        ("spot", "never", "{}"),
        ("priority", "high", "{pod: high}"),
        ("gpu", "a100-80gb x 2", "{model: a100-80gb, count: 2}"),
        ("gpu", "l4", "{model: l4}"),
        ("gpu", "1", "any"),
        ("gpu", "1", "{model: any}"),
        ("gpu", "2", "{count: 2}"),
        ("gpu", "2", "any x 2"),
        ("gpu", "2", "ANY  ×2"),
        ("gpu", "a100-80gb sxm", "{model: a100-80gb, form: sxm}"),
        ("gpu", "a100-80gb sxm x 8", "a100-80gb SXM*8"),
        ("mig", "1g.10gb of a100-80gb", "{profile: 1g.10gb, model: a100-80gb}"),
        ("shared_gpu", "l4", "{model: l4, by: time-slicing, count: 1}"),
        ("gang", "4", "{workers: 4}"),
        ("needs", "a", "[a]"),
        ("script", "ls", "{run: ls, interpreter: [sh]}"),
    ],
)
def test_short_and_long_forms_are_the_same_and_the_short_one_is_canonical(field: str, short: str, long: str) -> None:
    def written(value: str) -> Pipeline:
        what = "" if field == "script" else "command: [b], "
        return loads(f"{HEAD}steps:\n  a: {{image: i, command: [a]}}\n  b: {{image: i, {what}{field}: {value}}}\n")

    assert written(short) == written(long)
    assert to_yaml(written(short)) == to_yaml(written(long))
    if field not in ("needs", "mig"):
        shown = '"4"' if field == "cpu" else short  # quantities are text
        assert f"    {field}: {shown}\n" in to_yaml(written(long))
