"""Nodes of Argo as steps of the pipeline, and what of them a retry begins anew; tests/cluster has a real controller.

What is in recorded/ Argo's controller 4.0.2 has made, of pods whose ends were played; containers of templates are left
out.

Tests gpuflow/runs/argo_nodes.py and gpuflow/runs/argo_retry.py.
"""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

from gpuflow.plan import plan_of
from gpuflow.runs.argo_nodes import STOPPED, Steps, nodes_of, pod_name
from gpuflow.runs.argo_retry import workflow_again
from gpuflow.runs.model import StepState
from gpuflow.site import Site
from gpuflow.spec.loading import load

RECORDED = Path(__file__).with_name("recorded")
Row = tuple[str, str, str, dict[str, Any]]


def task(name: str, template: str = "", **fields: Any) -> dict[str, Any]:
    return {"name": name, "template": template or name, **fields}


def dag(name: str, *tasks: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "dag": {"tasks": list(tasks)}}


TEMPLATES = [
    dag(
        "main",
        task("prepare"),
        task("train", "train-export", depends="prepare.Succeeded"),
        task("tune", withItems=["a", "b(1).c"]),
        task("ask", depends="prepare.Succeeded"),
        task("left", depends="prepare.Succeeded", when="false"),
        task("after-left", depends="left.Succeeded"),
        task("follows", depends="train.Succeeded && tune.Succeeded"),
    ),
    dag("train-export", task("train", "train-loop")),
    dag("train-loop", task("train", withParam="[3, 4]")),
    dag("tune", task("tune", "tune-tune")),
    {"name": "ask", "suspend": {}, "annotations": {"gpuflow.dev/approval": "deploy it?"}},
    *({"name": name, "container": {}} for name in ("prepare", "train", "tune-tune", "left", "after-left", "follows")),
    dag("exit", task("tell", "follows"), task("alerts")),
    dag("alerts", task("alert-slack")),
    dag("alert-slack", task("post")),
    {"name": "post", "http": {}},
]


def workflow(phase: str, *rows: Row, **spec: Any) -> dict[str, Any]:
    """`rows`: name below the run, type, phase, further fields; `children` are names too."""
    nodes = {}
    for name, kind, state, fields in (("", "DAG", phase, {}), *rows):
        whole = f"run{name}"
        node = {"id": whole, "name": whole, "type": kind, "phase": state, **fields}
        node["children"] = [f"run{each}" for each in fields.get("children", ())]
        nodes[whole] = node
    return {
        "metadata": {"name": "run", "namespace": "team-a"},
        "spec": {"entrypoint": "main", "onExit": "exit", "templates": TEMPLATES, **spec},
        "status": {"phase": phase, "nodes": nodes},
    }


def states(found: dict[str, Any]) -> dict[str, StepState]:
    return {each.name: each for each in Steps(found).states()}


LOOP = ".train.train.train"
RUNNING = workflow(
    "Running",
    (".prepare", "Retry", "Succeeded", {"children": [".prepare(0)", ".prepare(1)"]}),
    (".prepare(0)", "Pod", "Failed", {"message": "main: Error (exit code 1)", "nodeFlag": {"retried": True}}),
    (".prepare(1)", "Pod", "Succeeded", {"outputs": {"exitCode": "0"}, "templateName": "prepare"}),
    (".train", "DAG", "Running", {}),
    (".train.train", "DAG", "Running", {}),
    (LOOP, "TaskGroup", "Running", {"children": [f"{LOOP}(1:4)", f"{LOOP}(0:3)"]}),
    (f"{LOOP}(0:3)", "Pod", "Running", {"startedAt": "2026-11-19T10:00:00Z", "progress": "40/100"}),
    (f"{LOOP}(1:4)", "Pod", "Pending", {"message": "Unschedulable: 0/1 nodes are available"}),
    (".tune", "TaskGroup", "Running", {"children": [".tune(0:a)", ".tune(1:b(1).c)"]}),
    (".tune(0:a)", "DAG", "Running", {}),
    (".tune(0:a).tune", "Pod", "Running", {"progress": "0/1"}),
    (".tune(1:b(1).c)", "DAG", "Succeeded", {}),
    (".tune(1:b(1).c).tune", "Pod", "Succeeded", {"outputs": {"parameters": [{"name": "x", "value": "1"}]}}),
    (".ask", "Suspend", "Running", {"templateName": "ask"}),
    (".left", "Skipped", "Skipped", {"message": "when 'false' evaluated false"}),
    (".after-left", "Skipped", "Omitted", {"message": "omitted: depends condition not met"}),
)


def test_every_step_copy_and_step_inside_is_there_also_what_has_not_begun() -> None:
    found = states(RUNNING)
    assert {name: each.state for name, each in found.items()} == {
        "prepare": "succeeded",
        "train": "running",
        "train@0": "running",
        "train@1": "waiting",
        "tune": "running",
        "tune@0": "running",
        "tune@0.tune": "running",
        "tune@1": "succeeded",
        "tune@1.tune": "succeeded",
        "ask": "waiting",
        "left": "skipped",
        "after-left": "skipped",
        "follows": "waiting",
        "tell": "waiting",
    }
    assert found["prepare"].attempts == 2 and len(found["prepare"].pods) == 2
    assert found["train@0"].progress is not None and found["train@0"].progress.step == 40
    assert found["tune@0.tune"].progress is None, "0/1 is what Argo says of every pod"
    assert found["train@1"].because.startswith("Unschedulable") and found["train@1"].attempts == 0
    assert found["tune@1.tune"].outputs == {"x": "1"}
    assert found["ask"].because == "it waits for a person: deploy it?; argo resume run goes on"
    assert found["after-left"].because == "left was skipped"


def test_packed_nodes_are_read_and_a_run_that_has_not_begun_has_its_steps() -> None:
    packed = {**RUNNING, "status": {"phase": "Running"}}
    nodes = json.dumps(RUNNING["status"]["nodes"]).encode()
    packed["status"]["compressedNodes"] = base64.b64encode(gzip.compress(nodes)).decode()
    assert nodes_of(packed) == RUNNING["status"]["nodes"] and states(packed) == states(RUNNING)
    fresh = {**RUNNING, "status": {}}
    assert {each.state for each in states(fresh).values()} == {"waiting"}


def test_what_a_failure_and_a_stop_leave_has_its_reason() -> None:
    ended = workflow(
        "Failed",
        (
            ".prepare",
            "Pod",
            "Failed",
            {"message": "main: OOMKilled (exit code 137): said", "outputs": {"exitCode": "137"}},
        ),
        (".train", "Skipped", "Omitted", {}),
        (".onExit", "DAG", "Succeeded", {}),
        (".onExit.tell", "Pod", "Succeeded", {}),
    )
    found = states(ended)
    assert found["prepare"].state == "failed" and "memory" in found["prepare"].because
    assert found["train"].state == "not run" and found["train"].because == "prepare failed"
    assert found["follows"].state == "not run" and found["tell"].state == "succeeded"
    ended["spec"]["shutdown"] = "Stop"
    ended["status"]["nodes"]["run.prepare"] |= {"message": "workflow shutdown with strategy:  Stop", "outputs": {}}
    assert states(ended)["prepare"].state == "interrupted"
    ended["status"]["nodes"]["run.prepare"] |= {"message": "main: Error (exit code 3)", "outputs": {"exitCode": "3"}}
    assert states(ended)["prepare"].state == "failed", "it failed by itself before the stop"


def test_pods_have_the_names_that_argo_gives_them() -> None:
    node = {"id": "run-1", "name": "run.train(0:3)", "templateName": "train"}
    assert pod_name(RUNNING, node) == "run-train-2188130092"
    assert pod_name(RUNNING, {**node, "name": "run"}) == "run"
    old = {"metadata": {"name": "run", "annotations": {"workflows.argoproj.io/pod-name-format": "v1"}}}
    assert pod_name(old, node) == "run-1"


def test_a_retry_keeps_what_has_succeeded_and_begins_the_rest_anew() -> None:
    group = {"children": [f"{LOOP}(0:3)", f"{LOOP}(1:4)"], "boundaryID": "run.train.train"}
    failed = workflow(
        "Failed",
        (".prepare", "Pod", "Succeeded", {"children": [".train", ".left"], "boundaryID": "run"}),
        (".train", "DAG", "Failed", {"children": [".train.train"], "outboundNodes": [f"run{LOOP}(1:4)"]}),
        (".train.train", "DAG", "Failed", {"children": [LOOP]}),
        (LOOP, "TaskGroup", "Failed", group),
        (f"{LOOP}(0:3)", "Pod", "Succeeded", {"children": [".follows"]}),
        (f"{LOOP}(1:4)", "Retry", "Failed", {"children": [f"{LOOP}(1:4)(0)", f"{LOOP}(1:4)(1)"]}),
        (f"{LOOP}(1:4)(0)", "Pod", "Failed", {"nodeFlag": {"retried": True}, "templateName": "train"}),
        (f"{LOOP}(1:4)(1)", "Pod", "Error", {"children": [".follows"], "nodeFlag": {"retried": True}}),
        (".follows", "Skipped", "Omitted", {}),
        (".left", "Skipped", "Skipped", {}),
        (".onExit", "DAG", "Failed", {"children": [".onExit.tell"]}),
        (".onExit.tell", "Pod", "Failed", {"templateName": "follows"}),
        shutdown="Stop",
    )
    failed["metadata"]["labels"] = {"workflows.argoproj.io/completed": "true", "team": "nlp"}
    failed["status"] |= {"conditions": [{"type": "Completed", "status": "True"}], "finishedAt": "x", "message": "m"}
    answer = workflow_again(failed)
    assert answer is not None
    new, pods = answer
    kept = {name.removeprefix("run"): node["phase"] for name, node in new["status"]["nodes"].items()}
    assert kept == {
        "": "Running",
        ".prepare": "Succeeded",
        ".train": "Running",
        ".train.train": "Running",
        LOOP: "Running",
        f"{LOOP}(0:3)": "Succeeded",
        f"{LOOP}(1:4)": "Running",
        ".left": "Skipped",
    }
    assert new["status"]["nodes"][f"run{LOOP}(1:4)"]["children"] == []
    assert len(pods) == 3, "two attempts and the exit step"
    assert new["metadata"]["labels"] == {"team": "nlp"} and "shutdown" not in new["spec"]
    assert new["status"]["phase"] == "" and new["status"]["finishedAt"] is None and "message" not in new["status"]
    assert new["status"]["conditions"] == [{"type": "Completed", "status": "False"}]
    assert failed["spec"]["shutdown"] == "Stop", "what was given is not changed"


def test_an_attempt_that_failed_before_one_that_succeeded_is_no_failure() -> None:
    assert workflow_again(RUNNING) is None


def test_an_approval_that_a_stop_has_cut_off_is_asked_again() -> None:
    stopped = workflow("Failed", (".ask", "Suspend", "Failed", {"message": "Stopped with strategy 'Stop'"}))
    answer = workflow_again(stopped)
    assert answer is not None and set(answer[0]["status"]["nodes"]) == {"run"} and answer[1] == []


def recorded(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return found


SHAPES = {
    "prepare": "succeeded",
    "train": "succeeded",
    "train@0": "succeeded",
    "train@1": "succeeded",
    "again": "succeeded",
    "tune": "succeeded",
    "tune@0": "succeeded",
    "tune@0.tune": "succeeded",
    "tune@0.score": "succeeded",
    "tune@1": "succeeded",
    "tune@1.tune": "succeeded",
    "tune@1.score": "succeeded",
    "left": "skipped",
    "after-left": "skipped",
    "breaks": "failed",
    "follows": "not run",
    "tell": "succeeded",
}


def test_a_run_of_every_shape_as_the_controller_left_it() -> None:
    found = states(recorded("shapes-failed"))
    assert {name: each.state for name, each in found.items()} == SHAPES
    assert found["again"].attempts == 2 and found["train"].attempts == 2 and found["tune"].attempts == 0
    assert found["breaks"].because == "it failed (exit code 3)" and found["follows"].because == "breaks failed"
    assert found["prepare"].outputs == {"count": "7", "sizes": "[3, 4]"}
    assert found["train"].outputs == {"loss": '["3","4"]'} and found["train@1"].outputs == {"loss": "4"}
    assert found["tune@1.score"].outputs == {"score": "b(1).c!"} and found["prepare"].started


def test_a_plan_gives_the_order_and_a_retry_ended_as_the_controller_says() -> None:
    plan = plan_of(load(str(RECORDED / "shapes.yaml")), Site.load("nvidia"))
    found = Steps(recorded("shapes-retried")).states(plan)
    heads = [each.name for each in found if "@" not in each.name]
    assert heads == ["prepare", "train", "again", "tune", "left", "after-left", "breaks", "follows", "tell"]
    assert {each.name: each.state for each in found} == SHAPES | {"breaks": "succeeded", "follows": "succeeded"}


def test_a_retry_of_what_the_controller_left_begins_two_steps_and_the_ending_anew() -> None:
    answer = workflow_again(recorded("shapes-failed"))
    assert answer is not None
    new, pods = answer
    before = {node["name"] for node in recorded("shapes-failed")["status"]["nodes"].values()}
    gone = before - {node["name"] for node in new["status"]["nodes"].values()}
    assert gone == {f"shapes.{name}" for name in ("breaks", "follows", "onExit", "onExit.tell")}
    assert [pod.rpartition("-")[0] for pod in pods] == ["shapes-breaks", "shapes-tell"]
    assert workflow_again(recorded("shapes-retried")) is None


def test_a_run_that_was_stopped_is_no_failure_and_its_exit_step_ran() -> None:
    stopped = recorded("stopped")
    assert {name: each.state for name, each in states(stopped).items()} == {
        "train": "interrupted",
        "wait": "interrupted",
        "ask": "interrupted",
        "then": "not run",
        "tell": "succeeded",
    }
    answer = workflow_again(stopped)
    assert answer is not None
    assert {node["name"]: node["phase"] for node in answer[0]["status"]["nodes"].values()} == {
        "three": "Running",
        "three.train": "Running",
    }
    assert answer[0]["spec"]["activeDeadlineSeconds"] is None
    assert STOPPED not in answer[0]["metadata"]["annotations"]
