"""Argo Workflows runs real workflows to the end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from .cluster import Cluster
from .faults import Faults
from .fixtures import AnyCluster
from .kube import Kube

pytestmark = pytest.mark.cluster

SMALL = {"requests": {"cpu": "20m", "memory": "16Mi"}}
GPU = {"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": {"nvidia.com/gpu": "1"}}


def shell(name: str, image: str, script: str, resources: dict[str, Any] = SMALL, **more: Any) -> dict[str, Any]:
    container = {"image": image, "command": ["sh", "-c", script], "resources": resources}
    return {"name": name, "container": {**container, "imagePullPolicy": "IfNotPresent"}, **more}


def workflow(name: str, templates: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": name},
        "spec": {"entrypoint": "main", "templates": templates, **more},
    }


def ended(kube: Kube, name: str, timeout: float = 180.0) -> dict[str, Any]:
    return kube.await_object(
        "workflow", name, "ended", lambda item: bool(item.get("status", {}).get("finishedAt")), timeout
    )


def nodes(done: dict[str, Any], template: str) -> list[dict[str, Any]]:
    """The pods that ran a template."""
    found = done.get("status", {}).get("nodes", {}).values()
    return [item for item in found if item["type"] == "Pod" and item.get("templateName") == template]


def everything(image: str) -> dict[str, Any]:
    """Outputs, fan-out over them, a GPU step, a retry that is needed once, and an exit handler."""
    prepare = shell("prepare", image, "echo '[1, 2, 3, 4]' > /tmp/shards")
    prepare["outputs"] = {"parameters": [{"name": "shards", "valueFrom": {"path": "/tmp/shards"}}]}
    shard = shell("shard", image, "echo shard $SHARD")
    shard["inputs"] = {"parameters": [{"name": "number"}]}
    shard["container"]["env"] = [{"name": "SHARD", "value": "{{inputs.parameters.number}}"}]
    flaky = shell("flaky", image, "test {{retries}} -ge 1", retryStrategy={"limit": "2"})
    tasks = [
        {"name": "prepare", "template": "prepare"},
        {
            "name": "shards",
            "template": "shard",
            "depends": "prepare",
            "withParam": "{{tasks.prepare.outputs.parameters.shards}}",
            "arguments": {"parameters": [{"name": "number", "value": "{{item}}"}]},
        },
        {"name": "train", "template": "train", "depends": "prepare"},
        {"name": "flaky", "template": "flaky", "depends": "prepare"},
    ]
    templates = [
        {"name": "main", "dag": {"tasks": tasks}, "parallelism": 3},
        prepare,
        shard,
        shell("train", image, "echo training", GPU),
        flaky,
        shell("last", image, "echo {{workflow.status}}"),
    ]
    return workflow("everything", templates, onExit="last")


def test_a_workflow_with_everything_succeeds(argo: AnyCluster, workflows: Kube) -> None:
    workflows.create(everything(argo.image("busybox")))
    done = ended(workflows, "everything")
    assert done["status"]["phase"] == "Succeeded"
    assert len(nodes(done, "shard")) == 4
    assert sorted(item["phase"] for item in nodes(done, "flaky")) == ["Failed", "Succeeded"]
    (last,) = nodes(done, "last")
    assert last["phase"] == "Succeeded"
    (train,) = nodes(done, "train")
    assert train["phase"] == "Succeeded"


def test_a_failing_step_fails_the_workflow_with_its_exit_code(argo: AnyCluster, workflows: Kube) -> None:
    workflows.create(workflow("failing", [shell("main", argo.image("busybox"), "exit 7")]))
    done = ended(workflows, "failing")
    (step,) = nodes(done, "main")
    assert done["status"]["phase"] == "Failed"
    assert step["outputs"]["exitCode"] == "7"
    assert step["message"] == "main: Error (exit code 7)"


def running_pod(kube: Kube, name: str) -> dict[str, Any]:
    """The only pod of a workflow, once Argo itself says that it runs."""
    kube.await_object(
        "workflow",
        name,
        "running its pod",
        lambda item: any(node["phase"] == "Running" for node in nodes(item, "main")),
    )
    (found,) = kube.list("pod", f"workflows.argoproj.io/workflow={name}")
    return found


@pytest.fixture
def attentive_argo(private_cluster: Cluster, argo: AnyCluster, faults: Faults) -> Iterator[AnyCluster]:
    """Argo with the setting that lets it see how every deleted pod ended."""
    faults.restart("workflow-controller", env={"ARGO_POD_STATUS_CAPTURE_FINALIZER": "true"})
    yield argo
    faults.restart("workflow-controller")


def test_an_evicted_step_is_retried(attentive_argo: AnyCluster, workflows: Kube, faults: Faults) -> None:
    script = "test {{retries}} -ge 1 && exit 0; trap 'exit 143' TERM; while true; do sleep 0.1; done"
    retry = {"limit": "1", "retryPolicy": "Always"}
    step = shell("main", attentive_argo.image("busybox"), script, retryStrategy=retry)
    workflows.create(workflow("evicted", [step]))
    faults.evict(running_pod(workflows, "evicted")["metadata"]["name"])
    done = ended(workflows, "evicted")
    first, second = sorted(nodes(done, "main"), key=lambda item: item["startedAt"])
    assert first["message"] == "main: Error (exit code 143)"
    assert second["phase"] == "Succeeded"
    assert done["status"]["phase"] == "Succeeded"


def test_a_force_deleted_step_runs_again_without_any_retry_allowed(
    argo: AnyCluster, workflows: Kube, faults: Faults
) -> None:
    workflows.create(workflow("forced", [shell("main", argo.image("busybox"), "sleep 6")]))
    first = running_pod(workflows, "forced")
    faults.force_delete(first["metadata"]["name"])
    done = ended(workflows, "forced")
    (last,) = workflows.list("pod", "workflows.argoproj.io/workflow=forced")
    assert done["status"]["phase"] == "Succeeded"
    assert last["metadata"]["name"] == first["metadata"]["name"]
    assert last["metadata"]["uid"] != first["metadata"]["uid"]


def test_a_workflow_survives_a_killed_controller(
    private_cluster: Cluster, argo: AnyCluster, workflows: Kube, faults: Faults
) -> None:
    steps = [[{"name": "first", "template": "wait"}], [{"name": "second", "template": "wait"}]]
    templates = [{"name": "main", "steps": steps}, shell("wait", argo.image("busybox"), "sleep 2")]
    workflows.create(workflow("orphan", templates))
    workflows.await_object("workflow", "orphan", "begun", lambda item: bool(item.get("status", {}).get("nodes")))
    faults.restart("workflow-controller")
    done = ended(workflows, "orphan")
    assert done["status"]["phase"] == "Succeeded"
    assert len(nodes(done, "wait")) == 2
