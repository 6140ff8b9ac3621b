"""A retry that says how and not how often: it retries nothing, and replaces the number of the defaults."""

from __future__ import annotations

import pytest

from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.remarks import idle_retries

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"


def pipeline(retry: str, default: str = "") -> Pipeline:
    own = f", retry: {retry}" if retry else ""
    return loads(f"{HEAD}defaults: {{image: i{default}}}\nsteps:\n  a: {{command: [x]{own}}}\n", "p.yaml")


def test_a_retry_without_a_number_replaces_that_of_the_defaults_and_says_so() -> None:
    made = pipeline("{backoff: 10s}", ", retry: 3")
    assert made.effective("a").retry is made.steps["a"].retry, "a step's retry replaces the default as a whole"
    (found,) = idle_retries(made)
    assert (found.code, found.severity, found.where.line, found.where.step) == ("GF210", "warning", 6, "a")
    assert found.message == (
        'step "a": retry has no number, so the step is not retried, and the retry of defaults (3) is replaced'
    )
    assert found.hint


@pytest.mark.parametrize("default", [", retry: {failures: 2, interruptions: 1}", ""])
@pytest.mark.parametrize("retry", ["{backoff: 10s}", "{final_exit_codes: [3]}", "{other_node: true}", "{}"])
def test_whatever_else_it_says(retry: str, default: str) -> None:
    (found,) = idle_retries(pipeline(retry, default))
    assert ("the retry of defaults (failures: 2, interruptions: 1) is replaced" in found.message) == bool(default)


@pytest.mark.parametrize("retry", ["", "0", "2", "{any: 1, backoff: 10s}", "{failures: 0, backoff: 10s}"])
def test_a_number_is_taken_at_its_word(retry: str) -> None:
    assert list(idle_retries(pipeline(retry, ", retry: 3"))) == []


def test_the_defaults_and_sub_pipelines_are_looked_at_too() -> None:
    (found,) = idle_retries(pipeline("", ", retry: {backoff: 10s}"))
    assert (found.where.line, found.message.split(",")[0]) == (4, "the retry of defaults has no number")
    inner = "{apiVersion: gpuflow/v1, kind: Pipeline, name: q, steps: {b: {image: i, command: [x], retry: {}}}}"
    (found,) = idle_retries(loads(f"{HEAD}steps:\n  a: {{pipeline: {inner}}}\n", "p.yaml"))
    assert found.message.startswith('step "b": ')


def test_a_check_hears_of_it() -> None:
    demand = demand_of(pipeline("{backoff: 10s}", ", retry: 3"), Site.load("nvidia"))
    assert demand.pipeline is not None
    assert "GF210" in {finding.code for finding in demand.pipeline.warnings()}
