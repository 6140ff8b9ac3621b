"""What is known about engines, by name."""

from __future__ import annotations

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.engines import NONE, engine_names, facts_of
from gpuflow.runtime.base.options import ENGINES
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.test_imports import HEAVY, loaded_by

ONE = "{apiVersion: gpuflow/v1, kind: Pipeline, name: p, steps: {a: {image: i, command: [x]}}}"


def test_every_engine_has_facts_under_its_own_name() -> None:
    assert [facts_of(name).name for name in engine_names()] == list(engine_names())
    assert facts_of("none") is NONE


@pytest.mark.parametrize("name", ["none", *engine_names()])
def test_every_engine_says_how_it_waits(name: str) -> None:
    waits = facts_of(name).waits
    assert set(waits) == {"quota", "queue", "nodes", "objects"}
    assert all(sentence.endswith(".") for sentence in waits.values())


@pytest.mark.parametrize("name", ["none", *engine_names()])
def test_the_supervisor_knows_how_outputs_leave(name: str) -> None:
    assert facts_of(name).supervisor in ENGINES


def test_an_unknown_engine_is_an_error_with_a_suggestion() -> None:
    with pytest.raises(GpuflowError) as refusal:
        demand_of(loads(ONE), Site.load(), "agro")
    (finding,) = refusal.value.findings
    assert (finding.code, finding.message) == ("GF302", '"agro" is not an engine')
    assert finding.hint == 'did you mean "argo"?'


def test_a_site_that_misspells_an_engine_is_told_so() -> None:
    with pytest.raises(Exception, match="unknown key"):
        Site.model_validate({"name": "s", "engines": {"agro": {}}})


def test_facts_and_capabilities_load_without_any_sdk() -> None:
    loaded = loaded_by("from gpuflow.targets import TARGETS, load_target\nfor name in TARGETS: load_target(name)")
    assert {module for module in loaded if module.split(".")[0] in HEAVY - {"pydantic", "yaml"}} == set()
