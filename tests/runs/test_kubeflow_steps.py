"""Which steps a run on Kubeflow has and how they are, from its compiled file and Argo's nodes of it.

The nodes are named as KFP's compiler and Argo's controller name them (argocompiler/dag.go; workflow/controller/dag.go,
exit_handler.go); `tests/cluster/test_kubeflow_runs.py` has those of real runs.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from gpuflow.local.record import FAILED, INTERRUPTED, NOT_RUN, RUNNING, SKIPPED, SUCCEEDED, WAITING
from gpuflow.plan import Plan, plan_of
from gpuflow.runs.kubeflow_steps import Steps
from gpuflow.runs.model import StepState
from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.targets.kubeflow import target
from gpuflow.targets.target import Request, compile_with

PIPELINE = """
apiVersion: gpuflow/v1
kind: Pipeline
name: nightly
defaults: {image: python:3.13, cpu: 1, memory: 1Gi}
steps:
  prep: {command: [prep], outputs: {rows: {type: int}, names: {type: json}}}
  train:
    for_each: {name: {output: prep.names}}
    command: [train, {item: name}]
    outputs: {loss: {type: float}}
  tune:
    for_each: {size: [1, 2]}
    params: {size: {item: size}}
    pipeline:
      apiVersion: gpuflow/v1
      kind: Pipeline
      name: tuning
      params: {size: {type: int}}
      defaults: {image: python:3.13, cpu: 1, memory: 1Gi}
      steps:
        search: {command: [search, {param: size}]}
        check: {needs: [search], command: [check]}
  deploy: {when: steps.prep.rows > 100, needs: [prep], command: [deploy]}
  after: {needs: [deploy], command: [after]}
  report: {command: [report, {output: prep.rows}, {output: train.loss}]}
exit:
  alarm: {on: failure, command: [alarm]}
  tell: {command: [tell]}
"""
SITE = """
apiVersion: gpuflow/v1
kind: Site
name: here
extends: nvidia
images: {alerts: python:3.13}
"""
GROUPS = ("condition-1", "for-loop-2", "for-loop-4", "exit-handler-5", "exit-6")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("steps")
    (folder / "nightly.yaml").write_text(PIPELINE)
    (folder / "site.yaml").write_text(SITE)
    pipeline, site = load(str(folder / "nightly.yaml")), Site.load(str(folder / "site.yaml"))
    text = compile_with(target, Request(pipeline, site, None, "nightly.yaml"), allow_lossy=False).text
    spec = next(iter(yaml.safe_load_all(text)))
    assert set(GROUPS) <= {name.removeprefix("comp-") for name in spec["components"]}
    return plan_of(pipeline, site), spec


class Workflow:
    """Nodes of a workflow, added one by one."""

    def __init__(self, *, retried: bool = False) -> None:
        self.nodes: dict[str, dict[str, Any]] = {}
        self.retried = retried
        """As where every template has a retryStrategy: each node has another one around it."""

    def add(self, way: str, kind: str = "DAG", phase: str = "Succeeded", **more: Any) -> Workflow:
        """`way`: behind the group of all steps; one that begins with a dot is from the root."""
        place = f".root{way}" if way.startswith(".") or not way else f".root.exit-handler-5.{way}"
        parts = place.split(".")
        name = "run-1" + ("(0)." if self.retried else ".").join(parts)
        self._put(name + ("(0)" if self.retried and kind in ("DAG", "Pod") else ""), kind, phase, more)
        if self.retried and kind in ("DAG", "Pod"):
            self._put(name, "Retry", phase, {})
        return self

    def _put(self, name: str, kind: str, phase: str, more: dict[str, Any]) -> None:
        number = len(self.nodes) + 1
        times = {"startedAt": f"2026-11-19T20:{number // 60:02}:{number % 60:02}Z"}
        if phase not in ("Pending", "Running"):
            times["finishedAt"] = f"2026-11-19T21:{number // 60:02}:{number % 60:02}Z"
        known = {"id": f"run-1-{number}", "name": name, "type": kind, "phase": phase, "templateName": "impl"}
        self.nodes[known["id"]] = {**known, **times, **more}

    def group(self, way: str, phase: str = "Succeeded", **outputs: str) -> Workflow:
        """A DAG and its driver."""
        self.add(f"{way}-driver", "Pod", outputs=_parameters(outputs))
        return self.add(way, "DAG", phase)

    def step(self, way: str, *phases: str, message: str = "", **inputs: Any) -> Workflow:
        """A step and its driver; a pod for each attempt."""
        words = ["launcher", "--executor_input", json.dumps({"inputs": {"parameterValues": inputs}})]
        patch = json.dumps({"containers": [{"command": words}]})
        last = (phases or ("Succeeded",))[-1]
        self.add(f"{way}-driver", "Pod", outputs=_parameters({"pod-spec-patch": patch}))
        self.add(way, "DAG", "Running" if last == "Pending" else last)
        if len(phases) > 1:
            self.add(f"{way}.executor", "Retry", last)
        for number, phase in enumerate(phases or ("Succeeded",)):
            place = f"{way}.executor({number})" if len(phases) > 1 else f"{way}.executor"
            self.add(place, "Pod", phase, message=message if phase != "Succeeded" else "")
        return self

    def document(self) -> dict[str, Any]:
        return {"metadata": {"name": "run-1"}, "status": {"nodes": self.nodes}}


def _parameters(values: dict[str, str]) -> dict[str, Any]:
    return {"parameters": [{"name": name, "value": value} for name, value in values.items()]}


def begun(**settings: bool) -> Workflow:
    found = Workflow(**settings).add(".exit-handler-5-driver", "Pod").add("", "DAG", "Running")
    return found.add(".exit-handler-5", "DAG", "Running")


def whole(**settings: bool) -> Workflow:
    """A run in which everything went well, and nothing was to be deployed."""
    run = begun(**settings).step("prep")
    run.add("condition-1-driver", "Pod").add("condition-1", "Skipped", "Skipped")
    run.add("after-driver", "Skipped", "Omitted").add("after", "Skipped", "Omitted")
    run.add("for-loop-2").add("for-loop-2.iteration-driver", "Pod", outputs=_parameters({"iteration-count": "2"}))
    run.add("for-loop-4").add("for-loop-4.iteration-driver", "Pod", outputs=_parameters({"iteration-count": "2"}))
    for turn in range(2):
        way = f"for-loop-2.iteration-iterations({turn}:{turn})"
        run.add(way).group(f"{way}.iteration-item").step(f"{way}.iteration-item.train", loop_item_name="ada")
        way = f"for-loop-4.iteration-iterations({turn}:{turn})"
        run.add(way).group(f"{way}.iteration-item").group(f"{way}.iteration-item.tune")
        run.step(f"{way}.iteration-item.tune.search", size=turn + 1).step(f"{way}.iteration-item.tune.check")
    taken: dict[str, Any] = {"prep-rows": 42, "train-loss": [0.5, 0.25]}
    run.step("report", **taken)
    hook = ".exit-handler-5.onExit"
    run.add(hook).group(f"{hook}.exit-6").step(f"{hook}.exit-6.run-outcome").step(f"{hook}.exit-6.tell")
    return run.add(f"{hook}.exit-6.alarm-driver", "Pod").add(f"{hook}.exit-6.alarm", "Skipped", "Skipped")


def states(
    compiled: tuple[Plan, dict[str, Any]], run: Workflow, *, over: str = "", plan: bool = True
) -> dict[str, StepState]:
    steps = Steps(compiled[1], run.document(), is_over=bool(over), is_stopped=over == "stopped")
    found = steps.states(compiled[0] if plan else None)
    assert len({each.name for each in found}) == len(found)
    return {each.name: each for each in found}


ALL = ["prep", "train", "train@0", "train@1", "tune", "tune@0", "tune@0.search", "tune@0.check"]
ALL += ["tune@1", "tune@1.search", "tune@1.check", "deploy", "after", "report", "alarm", "tell"]


@pytest.mark.parametrize("retried", [False, True], ids=["plain", "every template is retried"])
def test_a_good_run_shows_the_pipelines_steps_in_its_order(
    compiled: tuple[Plan, dict[str, Any]], retried: bool
) -> None:
    found = states(compiled, whole(retried=retried), over="succeeded")
    assert list(found) == ALL
    skipped = {name for name, each in found.items() if each.state == SKIPPED}
    assert skipped == {"deploy", "after", "alarm"}
    assert {each.state for name, each in found.items() if name not in skipped} == {SUCCEEDED}
    without = {"tune", "tune@0", "tune@1", *skipped}
    assert {name for name, each in found.items() if not each.attempts} == without
    assert found["train"].attempts == 2
    assert found["tune@1.check"].pods[0].startswith("run-1-impl-")


def test_without_the_pipeline_what_gpuflow_adds_is_still_no_step(compiled: tuple[Plan, dict[str, Any]]) -> None:
    found = states(compiled, whole(), over="succeeded", plan=False)
    assert sorted(found) == sorted(ALL)


def test_outputs_are_those_that_another_step_has_taken(compiled: tuple[Plan, dict[str, Any]]) -> None:
    found = states(compiled, whole(), over="succeeded")
    assert {name: dict(each.outputs) for name, each in found.items() if each.outputs} == {
        "prep": {"rows": "42"},
        "train": {"loss": "[0.5, 0.25]"},
    }


def test_before_anything_has_begun_every_step_waits(compiled: tuple[Plan, dict[str, Any]]) -> None:
    steps = Steps(compiled[1], {}, is_over=False, is_stopped=False).states(compiled[0])
    inside = ["tune.search", "tune.check"]
    assert [each.name for each in steps] == [
        *["prep", "train", "tune", *inside, "deploy", "after", "report", "alarm", "tell"]
    ]
    assert {each.state for each in steps} == {WAITING}


def test_a_step_waits_while_its_driver_or_its_pod_is_pending(compiled: tuple[Plan, dict[str, Any]]) -> None:
    run = begun().add("prep-driver", "Pod", "Pending", message="Unschedulable: no CPU")
    assert (states(compiled, run)["prep"].state, states(compiled, run)["prep"].because) == (
        WAITING,
        "Unschedulable: no CPU",
    )
    run = begun().step("prep", "Pending", message="Unschedulable: no GPU")
    assert (states(compiled, run)["prep"].state, states(compiled, run)["prep"].because) == (
        WAITING,
        "Unschedulable: no GPU",
    )
    assert states(compiled, begun().step("prep", "Running"))["prep"].state == RUNNING


def test_a_failure_ends_what_comes_behind_it(compiled: tuple[Plan, dict[str, Any]]) -> None:
    run = begun().step("prep", "Failed", message="Error (exit code 3)")
    for name in ("condition-1", "for-loop-2", "after", "report"):
        run.add(f"{name}-driver", "Skipped", "Omitted").add(name, "Skipped", "Omitted")
    found = states(compiled, run, over="failed")
    assert found["prep"].state == FAILED
    assert "3" in found["prep"].because
    assert {found[name].state for name in ("deploy", "train", "after", "report", "tell")} == {NOT_RUN}


def test_a_driver_that_fails_is_the_failure_of_its_step(compiled: tuple[Plan, dict[str, Any]]) -> None:
    run = begun().add("prep-driver", "Pod", "Failed", message="Error (exit code 1)")
    found = states(compiled, run.add("prep", "Skipped", "Omitted"), over="failed")
    assert (found["prep"].state, "driver" in found["prep"].because) == (FAILED, True)
    run = begun().step("prep").add("condition-1-driver", "Pod", "Error", message="pod deleted")
    found = states(compiled, run.add("condition-1", "Skipped", "Omitted"), over="failed")
    assert (found["deploy"].state, "pod deleted" in found["deploy"].because) == (FAILED, True)


def test_attempts_are_the_pods_of_a_step_oldest_first(compiled: tuple[Plan, dict[str, Any]]) -> None:
    found = states(compiled, begun().step("prep", "Failed", "Failed", "Running"))["prep"]
    assert (found.state, found.attempts) == (RUNNING, 3)
    assert len(set(found.pods)) == 3


def test_between_two_attempts_a_step_waits(compiled: tuple[Plan, dict[str, Any]]) -> None:
    run = begun().add("prep-driver", "Pod").add("prep", "DAG", "Running").add("prep.executor", "Retry", "Running")
    run.add("prep.executor(0)", "Pod", "Failed", message="Error (exit code 3)")
    found = states(compiled, run)["prep"]
    assert found.state == WAITING
    assert "exit code 3" in found.because


def test_what_was_stopped_is_interrupted_and_what_had_ended_is_not(compiled: tuple[Plan, dict[str, Any]]) -> None:
    run = begun().step("prep")
    run.add("condition-1-driver", "Pod", "Failed", message="Step exceeded its deadline")
    run.step("after", "Failed", message="Error (exit code 3)")
    run.step("report", "Failed", message="Step exceeded its deadline")
    found = states(compiled, run, over="stopped")
    assert {name: found[name].state for name in ("prep", "deploy", "after", "report", "tell")} == {
        "prep": SUCCEEDED,
        "deploy": INTERRUPTED,
        "after": FAILED,
        "report": INTERRUPTED,
        "tell": NOT_RUN,
    }


def test_one_copy_that_fails_fails_its_step(compiled: tuple[Plan, dict[str, Any]]) -> None:
    run = begun().step("prep").add("for-loop-2", "DAG", "Failed")
    run.add("for-loop-2.iteration-driver", "Pod", outputs=_parameters({"iteration-count": "3"}))
    for turn, phase in enumerate(("Succeeded", "Failed")):
        way = f"for-loop-2.iteration-iterations({turn}:{turn})"
        run.add(way).group(f"{way}.iteration-item").step(f"{way}.iteration-item.train", phase)
    found = states(compiled, run, over="failed")
    assert [found[name].state for name in ("train", "train@0", "train@1", "train@2")] == [
        *[FAILED, SUCCEEDED, FAILED, NOT_RUN]
    ]


def test_a_list_without_items_makes_no_copies(compiled: tuple[Plan, dict[str, Any]]) -> None:
    run = begun().step("prep").add("for-loop-2")
    run.add("for-loop-2.iteration-driver", "Pod", outputs=_parameters({"iteration-count": "0"}))
    run.add("for-loop-2.iteration-iterations", "Skipped", "Skipped")
    found = states(compiled, run)["train"]
    assert (found.state, found.because) == (SKIPPED, "its list is empty")


def test_a_result_of_the_cache_is_said(compiled: tuple[Plan, dict[str, Any]]) -> None:
    run = begun().add("prep-driver", "Pod").add("prep").add("prep.executor", "Skipped", "Skipped")
    found = states(compiled, run)["prep"]
    assert (found.state, found.attempts, "cache" in found.because) == (SUCCEEDED, 0, True)
