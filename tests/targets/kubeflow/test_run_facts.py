"""The facts of a run on Kubeflow: placeholders that its driver replaces, and what it does not know."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from gpuflow import Step
from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import target
from gpuflow.targets.kubeflow.client_calls import run_calls
from gpuflow.targets.kubeflow.single_step import step_messages
from gpuflow.targets.target import Request, compile_with

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: i}\n"


def compiled(text: str) -> dict[str, Any]:
    request = Request(loads(HEAD + text, "p.yaml"), Site.load("nvidia"), "team-a", "p.yaml")
    first: dict[str, Any] = next(yaml.safe_load_all(compile_with(target, request, allow_lossy=False).text))
    return first


def constants(task: dict[str, Any]) -> dict[str, str]:
    """What a task is handed that the driver replaces."""
    return {name: given["runtimeValue"]["constant"] for name, given in task["inputs"]["parameters"].items()}


def test_without_a_schedule_an_interval_ends_when_the_run_was_made() -> None:
    made = compiled("steps: {a: {command: [x, {run: interval_end}]}}")
    assert constants(made["root"]["dag"]["tasks"]["a"]) == {
        "pipeline_run-interval_end": "{{$.pipeline_job_create_time_utc}}"
    }


EXPECTED = {
    "pipeline_run-id": "{{$.pipeline_job_uuid}}",
    "pipeline_run-name": "{{$.pipeline_job_resource_name}}",
    "pipeline_run-logical_date": "{{$.pipeline_job_create_time_utc}}",
}


def test_each_fact_is_a_whole_input_which_the_driver_replaces() -> None:
    words = "[x, {run: id}, {join: [name=, {run: name}]}, {run: logical_date}, {run: logical_date, timezone: UTC}]"
    made = compiled(f"steps: {{a: {{command: {words}}}}}\nexit: {{z: {{command: {words}}}}}")
    tasks = {**made["root"]["dag"]["tasks"], **made["components"]["comp-exit-handler-1"]["dag"]["tasks"]}
    assert constants(tasks["a"]) == EXPECTED
    assert (
        EXPECTED.items()
        <= {
            name: given.get("runtimeValue", {}).get("constant")
            for name, given in tasks["z"]["inputs"]["parameters"].items()
        }.items()
    )


def test_a_step_in_a_loop_and_a_condition_knows_the_run() -> None:
    made = compiled(
        "params: {go: true}\nsteps: {a: {command: [x, {run: name}], for_each: {i: [1, 2]}, when: params.go}}"
    )
    (task,) = [
        tasks["a"] for part in made["components"].values() if "a" in (tasks := part.get("dag", {}).get("tasks", {}))
    ]
    assert (
        task["inputs"]["parameters"]["pipeline_run-name"]["runtimeValue"]["constant"] == EXPECTED["pipeline_run-name"]
    )


def refused(text: str) -> list[str]:
    with pytest.raises(GpuflowError) as refusal:
        compiled(text)
    assert all(finding.hint for finding in refusal.value.findings)
    return [f"{finding.code} {finding.message}" for finding in refusal.value.findings]


@pytest.mark.parametrize(
    ("reference", "construct"),
    [
        ("{run: attempt}", "run.attempt"),
        ("{run: date}", "run.date"),
        ("{run: logical_date, format: '%Y'}", "run.format"),
        ("{run: logical_date, timezone: Europe/Berlin}", "run.timezone"),
        ("{run: interval_start}", "run.interval_start"),
    ],
)
def test_what_kubeflow_does_not_know_is_refused_by_name(reference: str, construct: str) -> None:
    (only,) = refused(f"steps: {{a: {{command: [x, {reference}]}}}}")
    assert only.startswith(f'GF301 kubeflow does not support {construct} (step "a"): ')


@pytest.mark.parametrize("fact", ["logical_date", "interval_end"])
def test_a_recurring_run_does_not_know_its_scheduled_time(fact: str) -> None:
    inner = f"{{name: q, steps: {{s: {{image: i, command: [x, {{run: {fact}}}]}}}}}}"
    (only,) = refused(f'schedule: "0 3 * * *"\nsteps: {{a: {{pipeline: {inner}}}}}')
    assert only.startswith(f'GF301 kubeflow does not support run.{fact} (step "a.s") in a pipeline with a schedule')


def test_a_step_alone_is_given_the_facts_by_kfp_itself() -> None:
    step = Step("a", image="i", command=["x", {"run": "name"}, {"run": "logical_date", "timezone": "UTC"}])
    assert step_messages(step, Site.load("nvidia"), "a").known == {
        "pipeline_run_name": EXPECTED["pipeline_run-name"],
        "pipeline_run_logical_date": EXPECTED["pipeline_run-logical_date"],
    }


def test_the_recurring_run_begins_with_the_first_time_from_the_start_on() -> None:
    text = 'schedule: {cron: "0 0 * * *", start: 2026-01-31}\nsteps: {a: {command: [x]}}'
    call = run_calls(loads(HEAD + text), Site.load("nvidia"), "p.yaml", None)[-1]
    assert 'start_time="2026-01-30T23:59:59Z"' in call
    assert (
        "start_time"
        not in run_calls(loads(HEAD + text.replace(", start: 2026-01-31", "")), Site.load("nvidia"), "p.yaml", None)[-1]
    )
