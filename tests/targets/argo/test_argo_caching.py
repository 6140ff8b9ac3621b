"""Cached steps: equal runs have one key, different ones have different keys, and Argo accepts every key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given

from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import compiled, submitted, substituted, template
from tests.targets.argo.test_argo_text import PRINTABLE, SETTINGS

ARGOS_KEY = re.compile(r"[a-zA-Z0-9][-a-zA-Z0-9]*")
STEP = "params: {{p: {{type: string, default: d}}}}\nsteps: {{a: {{command: [x, {{param: p}}], cache: true{more}}}}}"


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def key(oracle: Oracle, manifest: dict[str, Any], value: str) -> str:
    """The key as Argo computes it, shown where the oracle shows a command."""
    leaf = template(manifest, "a")
    leaf["container"] = {"image": "i", "command": [leaf["memoize"]["key"]]}
    (pod,) = substituted(oracle, manifest, ["a"], parameters={"p": value})
    (found,) = pod["container"]["command"]
    assert isinstance(found, str)
    return found


@pytest.mark.go
@SETTINGS
@given(value=PRINTABLE.map(submitted), other=PRINTABLE.map(submitted))
def test_equal_inputs_have_equal_keys_and_different_inputs_different_ones(argo: Oracle, value: str, other: str) -> None:
    manifest = compiled(STEP.format(more=""), kind="Workflow")
    keys = [key(argo, manifest, text) for text in (value, other)]
    for found in keys:
        assert ARGOS_KEY.fullmatch(found) and len(found) <= 253
        assert found.startswith("a-")
    assert (keys[0] == keys[1]) == (value == other)


def memo(more: str) -> str:
    found: str = template(compiled(STEP.format(more=more)), "a")["memoize"]["key"]
    return found


def test_what_runs_decides_about_the_key_and_where_and_how_often_does_not() -> None:
    assert memo("") == memo(", retry: 3") == memo(", labels: {team: a}") == memo(", queue: q")
    assert len({memo(""), memo(", image: j"), memo(", env: {A: b}"), memo(", outputs: {o: int}")}) == 4


def test_entries_stand_in_a_config_map_of_the_pipeline_and_never_expire() -> None:
    memoize = template(compiled(STEP.format(more="")), "a")["memoize"]
    assert memoize["cache"] == {"configMap": {"name": "gpuflow-cache-p"}}
    assert memoize["maxAge"] == ""


def test_a_step_that_does_not_ask_is_not_cached() -> None:
    assert "memoize" not in template(compiled("steps: {a: {command: [x], outputs: {o: int}}}"), "a")
    defaults = "steps: {a: {command: [x]}, b: {command: [y], cache: false}}"
    manifest = compiled(defaults.replace("command: [x]", "command: [x], cache: true"))
    assert "memoize" in template(manifest, "a") and "memoize" not in template(manifest, "b")
