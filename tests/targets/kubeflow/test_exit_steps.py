"""Exit steps for one outcome: when they start, and who says how the run ended.

Tests gpuflow/targets/kubeflow/ask_argo.py and gpuflow/targets/kubeflow/exit_steps.py.
"""

from __future__ import annotations

import base64
import gzip
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from gpuflow.targets.kubeflow import ask_argo, target
from gpuflow.targets.kubeflow.exit_steps import DEFAULTS_PROGRAM
from gpuflow.targets.target import Request, compile_with, findings_of
from tests.targets.kubeflow.compiling import HEAD, documents

PLAIN = "steps: {work: {command: [work]}}"
OPEN = {
    "condition": "steps: {work: {command: [work]}, more: {command: [more], needs: [work], when: params.go}}",
    "cache": "steps: {work: {command: [work], cache: true}}",
    "fan-out": "steps: {work: {command: [work], for_each: {n: [1, 2]}}}",
    "sub-pipeline": 'steps: {work: {pipeline: {name: in, steps: {a: {image: "i:1", command: [a]}}}}}',
}
"""Pipelines whose good runs may leave KFP's state RUNNING."""
SOURCE = """
name: ending
params: {go: true}
defaults: {image: "i:1"}
%s
exit:
  cheer: {command: [echo, cheer], on: success}
  warn: {command: [echo, warn], on: failure, gpu: l4}
  tell: {command: [echo, tell]}
"""
ASKS = Site.load("nvidia").model_copy(
    update={"images": Site.load("nvidia").images.model_copy(update={"alerts": "python:3.13"})}
)


def exit_tasks(steps: str, **more: Any) -> dict[str, Any]:
    """The tasks of the exit sub-DAG."""
    spec, *_ = documents(SOURCE % steps, **more)
    exits = next(task for task in spec["root"]["dag"]["tasks"].values() if "strategy" in task.get("triggerPolicy", {}))
    tasks: dict[str, Any] = spec["components"][exits["componentRef"]["name"]]["dag"]["tasks"]
    return tasks


def started(tasks: dict[str, Any], values: dict[str, Any]) -> set[str]:
    """The exit steps that start: CEL's words for these conditions are nearly Python's."""
    inputs = SimpleNamespace(parameter_values=values)
    conditions = {name: task.get("triggerPolicy", {}).get("condition") for name, task in tasks.items()}
    return {
        name
        for name, text in conditions.items()
        if text is None or eval(text.replace("!(", "not ("), {"inputs": inputs})  # our own text
    }


def after(state: str, steps: str) -> set[str]:
    return started(exit_tasks(steps), {"pipeline_run-status": SimpleNamespace(state=state)})


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("COMPLETE", {"cheer", "tell"}),
        ("SUCCEEDED", {"cheer", "tell"}),
        ("FAILED", {"warn", "tell"}),
        ("RUNNING", {"warn", "tell"}),  # a pod was deleted: every good end is recorded
    ],
)
def test_where_every_good_end_is_recorded_anything_else_is_a_failure(state: str, expected: set[str]) -> None:
    assert after(state, PLAIN) == expected


@pytest.mark.parametrize("kind", OPEN)
def test_where_a_good_end_may_be_unrecorded_a_run_without_a_record_starts_neither(kind: str) -> None:
    assert after("FAILED", OPEN[kind]) == {"warn", "tell"}
    assert after("COMPLETE", OPEN[kind]) == {"cheer", "tell"}
    assert after("RUNNING", OPEN[kind]) == {"tell"}


def test_the_outcome_is_decided_by_the_driver_so_no_pod_takes_the_gpu_of_a_step_that_does_nothing() -> None:
    spec, *_ = documents(SOURCE % PLAIN)
    words = spec["deploymentSpec"]["executors"]["exec-warn"]["container"]["command"]
    assert words == ["echo", "warn"]  # no shell that looks at the status inside the step's own pod
    assert "condition" in exit_tasks(PLAIN)["warn"]["triggerPolicy"]


def test_a_single_exit_step_has_its_condition_on_the_exit_task_itself() -> None:
    spec, *_ = documents(
        'name: one\nsteps: {a: {image: "i:1", command: [a]}}\nexit: {b: {image: "i:1", command: [b], on: failure}}'
    )
    policy = spec["root"]["dag"]["tasks"]["b"]["triggerPolicy"]
    assert policy["strategy"] == "ALL_UPSTREAM_TASKS_COMPLETED" and "condition" in policy


@pytest.mark.parametrize("kind", OPEN)
def test_with_an_image_a_container_asks_argo_and_the_exit_steps_wait_for_its_answer(kind: str) -> None:
    tasks = exit_tasks(OPEN[kind], site=ASKS)
    assert "dependentTasks" not in tasks["tell"]  # what runs always does not wait
    assert tasks["warn"]["dependentTasks"] == tasks["cheer"]["dependentTasks"] == ["run-outcome"]
    assert started(tasks, {"run-outcome-outcome": "failure"}) == {"run-outcome", "warn", "tell"}
    assert started(tasks, {"run-outcome-outcome": "success"}) == {"run-outcome", "cheer", "tell"}


def test_the_asking_container_is_told_the_group_of_the_steps() -> None:
    spec, *_ = documents(SOURCE % OPEN["condition"], site=ASKS)
    words = spec["deploymentSpec"]["executors"]["exec-run-outcome"]["container"]["command"]
    assert words[4] in spec["root"]["dag"]["tasks"] and words[4].startswith("exit-handler-")


def test_no_container_asks_where_kfps_own_word_is_enough() -> None:
    assert "run-outcome" not in exit_tasks(PLAIN, site=ASKS)


def test_a_step_of_that_name_keeps_it() -> None:
    steps = "steps: {run-outcome: {command: [work], when: params.go}}"
    tasks = exit_tasks(steps, site=ASKS)
    assert tasks["warn"]["dependentTasks"] == ["run-outcome-x"]


def test_a_demand_counts_the_container_that_asks() -> None:
    pipeline = loads(HEAD + (SOURCE % OPEN["condition"]).lstrip())
    assert "run-outcome" in {step.name for step in demand_of(pipeline, ASKS, "kubeflow").steps}
    assert "run-outcome" not in {step.name for step in demand_of(pipeline, ASKS, "argo").steps}


def warnings(steps: str, site: Site) -> list[str]:
    pipeline = loads(HEAD + (SOURCE % steps).lstrip())
    request = Request(pipeline, site, None, "p.yaml")
    compiled = compile_with(target, request, allow_lossy=False)
    found = [each.message for each in findings_of(target, request, compiled) if each.code == "GF325"]
    assert compiled.text.count("KFP has no record") == len(found)  # in the file, too
    return found


def test_an_end_without_a_record_is_warned_of_where_nobody_asks_argo() -> None:
    (text,) = warnings(OPEN["condition"], Site.load("nvidia"))
    assert 'exit "cheer", "warn"' in text
    assert warnings(OPEN["condition"], ASKS) == warnings(PLAIN, Site.load("nvidia")) == []


def node(phase: str, name: str = "exit-handler-1") -> dict[str, Any]:
    return {"displayName": name, "type": "DAG", "phase": phase}


def packed(nodes: dict[str, Any]) -> str:
    return base64.b64encode(gzip.compress(json.dumps(nodes).encode())).decode()


@pytest.mark.parametrize(
    ("status", "state", "expected"),
    [
        ({"nodes": {"a": node("Succeeded")}}, "RUNNING", "success"),
        ({"nodes": {"a": node("Failed")}}, "RUNNING", "failure"),
        ({"nodes": {"a": node("Error")}}, "COMPLETE", "failure"),  # the Workflow is asked first
        (
            {"nodes": {"a": {**node("Failed"), "type": "Retry"}, "b": node("Failed", "exit-handler-1(0)")}},
            "RUNNING",
            "failure",
        ),
        ({"compressedNodes": packed({"a": node("Failed")})}, "RUNNING", "failure"),
        ({"offloadNodeStatusVersion": "fnv:1"}, "FAILED", "failure"),  # out of reach: KFP's own word
        ({"offloadNodeStatusVersion": "fnv:1"}, "RUNNING", None),
    ],
)
def test_the_program_answers_by_the_group_of_the_steps(
    status: dict[str, Any], state: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ask_argo, "workflow", lambda name: {"status": status})
    monkeypatch.setattr(ask_argo.time, "sleep", lambda seconds: None)
    place = tmp_path / "out" / "outcome"
    ended = ask_argo.main("run-1", "exit-handler-1", json.dumps({"state": state}), str(place))
    assert ended == (1 if expected is None else 0)
    assert (place.read_text() if place.exists() else None) == expected


READS = """
name: reads
defaults: {image: "i:1"}
params: {go: true}
steps:
  a: {command: [a], outputs: {n: {type: int, default: -1}, t: {type: string, default: none yet}}}
  b: {command: [b], needs: [a]}
  c: {command: [c]}
exit:
  e: {command: [e, {output: a.n}], on: failure}
  f: {command: [f, {output: a.n}, {output: a.t}]}
"""


def test_an_exit_step_reads_the_output_of_a_step_or_what_a_container_wrote_before_the_first_step() -> None:
    spec, *_ = documents(READS, site=ASKS)
    tasks = spec["root"]["dag"]["tasks"]
    handler = next(name for name in tasks if name.startswith("exit-handler"))
    body = spec["components"][tasks[handler]["componentRef"]["name"]]
    given = body["dag"]["outputs"]["parameters"]["pipelinechannel--a-n"]["valueFromOneof"]["parameterSelectors"]
    assert [(each["producerSubtask"], each["outputParameterKey"]) for each in given] == [
        ("a", "n"),
        ("exit-defaults", "pipelinechannel--a-n"),
    ]
    # Argo starts nothing more in a group where a step has failed: the defaults are written before.
    assert [body["dag"]["tasks"][name].get("dependentTasks") for name in ("exit-defaults", "a", "b", "c")] == [
        None,
        ["exit-defaults"],
        ["a"],
        ["exit-defaults"],
    ]
    exits = next(task for task in tasks.values() if "strategy" in task.get("triggerPolicy", {}))
    read = {"outputParameterKey": "pipelinechannel--a-n", "producerTask": handler}
    assert exits["inputs"]["parameters"]["pipelinechannel--a-n"] == {"taskOutputParameter": read}
    words = spec["deploymentSpec"]["executors"]["exec-exit-defaults"]["container"]["command"]
    assert words[3] == "-1"
    assert words[5:] == [f"{{{{$.outputs.parameters['pipelinechannel--a-{key}'].output_file}}}}" for key in "nt"]


def test_the_container_writes_each_default_to_its_place(tmp_path: Path) -> None:
    places = [tmp_path / "x" / "n", tmp_path / "y" / "t"]
    subprocess.run([sys.executable, "-c", DEFAULTS_PROGRAM, "-1", "a\nb", *map(str, places)], check=True)
    assert [place.read_text() for place in places] == ["-1", "a\nb"]


def test_the_container_that_writes_defaults_is_counted() -> None:
    found = demand_of(loads(HEAD + READS), ASKS, engine="kubeflow")
    assert "exit-defaults" in {step.name for step in found.steps}


@pytest.mark.parametrize("more", ["when: params.go, ", "for_each: {i: [1]}, "], ids=["condition", "fan-out"])
def test_an_output_of_a_group_of_tasks_is_no_value_for_an_exit_step(more: str) -> None:
    source = READS.replace("a: {command: [a], ", f"a: {{command: [a], {more}")
    with pytest.raises(GpuflowError, match=r"does not always record how such a step ended: a\.n would be its default"):
        documents(source, site=ASKS)


def test_without_an_image_an_exit_step_reads_no_output() -> None:
    with pytest.raises(GpuflowError, match=r"names no image for a container that writes the default of a\.n"):
        documents(READS)
