"""Null in a step: a default that does not count there, for every setting, in YAML and in Python.

Tests gpuflow/spec/step.py and gpuflow/spec/step_fields.py.
"""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from gpuflow import Pipeline
from gpuflow.core.errors import GpuflowError
from gpuflow.spec.canonical import to_document, to_yaml
from gpuflow.spec.loading import loads
from gpuflow.spec.schema import pipeline_schema
from gpuflow.spec.step import Step
from gpuflow.spec.step_fields import SHARED_MAPS, Settings

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
DEFAULTS: dict[str, Any] = {
    "image": "i:1",
    "image_pull_policy": "Always",
    "image_pull_secrets": ["registry"],
    "working_dir": "/w",
    "env": {"A": "a", "B": "b"},
    "env_from": [{"secret": "s"}],
    "volumes": {"/d": {"claim": "c"}, "/e": {"claim": "e"}},
    "shm": "1Gi",
    "cpu": 1,
    "memory": "1Gi",
    "ephemeral_storage": "1Gi",
    "service_account": "runner",
    "security": {"user": 7},
    "labels": {"team": "nlp"},
    "annotations": {"example.com/a": "b"},
    "termination_grace": "1m",
    "queue": "research",
    "queue_timeout": "1h",
    "priority": "high",
    "spot": "prefer",
    "topology": {"spread": "node"},
    "retry": 2,
    "timeout": "1h",
    "outputs_from": "xcom",
    "cache": True,
    "kubernetes": {"scheduler": "other"},
}
"""A default for every setting."""


def document(**step: Any) -> dict[str, Any]:
    return {
        "apiVersion": "gpuflow/v1",
        "kind": "Pipeline",
        "name": "p",
        "defaults": DEFAULTS,
        "steps": {"a": {"image": "j:1", "command": ["x"], **step}, "b": {"command": ["x"]}},
    }


SCHEMA = jsonschema.Draft202012Validator(pipeline_schema())


def loaded(**step: Any) -> Pipeline:
    return loads(yaml.safe_dump(document(**step)))


def test_the_table_has_every_setting() -> None:
    assert sorted(Settings.model_fields) == sorted(DEFAULTS)


@pytest.mark.parametrize("name", sorted(set(DEFAULTS) - {"image"}))
def test_null_takes_the_default_away_for_one_step(name: str) -> None:
    pipeline = loaded(**{name: None})
    nothing = Step.model_fields[name].get_default()
    assert getattr(pipeline.effective("a"), name) == nothing
    assert getattr(pipeline.effective("b"), name) not in (None, nothing)
    assert pipeline != loaded()
    assert to_document(pipeline)["steps"]["a"][name] is None
    assert loads(to_yaml(pipeline)) == pipeline
    SCHEMA.validate(document(**{name: None}))


@pytest.mark.parametrize("name", SHARED_MAPS)
def test_null_takes_one_key_of_a_default_away(name: str) -> None:
    key, *others = DEFAULTS[name]
    pipeline = loaded(**{name: {key: None}})
    assert list(getattr(pipeline.effective("a"), name)) == others
    assert key in getattr(pipeline.effective("b"), name)
    assert to_document(pipeline)["steps"]["a"][name] == {key: None}
    assert loads(to_yaml(pipeline)) == pipeline
    SCHEMA.validate(document(**{name: {key: None}}))


def test_other_keys_beside_a_null_are_the_steps_own() -> None:
    step = loaded(env={"A": None, "C": "c"}).effective("a")
    assert step.env == {"B": "b", "C": "c"}


def test_the_image_can_be_taken_away_and_is_then_missing() -> None:
    with pytest.raises(GpuflowError) as refusal:
        loads(HEAD + "defaults: {image: 'i:1'}\nsteps: {a: {command: [x], image: null}}")
    assert [finding.code for finding in refusal.value.findings] == ["GF176"]


def test_none_in_python_is_null_in_yaml() -> None:
    with Pipeline("p", defaults={"image": "i:1", "memory": "1Gi", "env": {"A": "a"}}) as pipeline:
        pipeline.step("a", ["x"], memory=None, env={"A": None})
    text = (
        "defaults: {image: 'i:1', memory: 1Gi, env: {A: a}}\nsteps: {a: {command: [x], memory: null, env: {A: null}}}"
    )
    assert pipeline == loads(HEAD + text)
    assert pipeline.effective("a").memory is None
    assert pipeline.effective("a").env == {}


def test_a_null_that_takes_nothing_away_is_an_error_at_its_place() -> None:
    text = (
        HEAD + "defaults: {image: 'i:1', env: {AWS_KEY: k}}\nsteps:\n  a:\n    command: [x]\n    env: {AWS_KYE: null}\n"
    )
    with pytest.raises(GpuflowError) as refusal:
        loads(text, "p.yaml")
    (finding,) = refusal.value.findings
    assert (finding.code, finding.where.line, finding.where.column) == ("GF374", 8, 11)
    assert finding.hint == 'did you mean "AWS_KEY"?'


def test_a_field_that_the_defaults_do_not_have_may_be_null() -> None:
    """Python code passes None for what was not given."""
    assert loads(HEAD + "steps: {a: {image: 'i:1', command: [x], memory: null}}").effective("a").memory is None
