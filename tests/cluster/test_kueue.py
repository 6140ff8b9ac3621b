"""Kueue holds real pods back and lets them go as quota frees."""

from __future__ import annotations

from typing import Any

import pytest

from .argo import permit
from .fixtures import AnyCluster
from .kube import Kube
from .pods import pod
from .queues import LABEL, queue, waiting_message
from .waiting import until

pytestmark = pytest.mark.cluster

QUOTA = {"nvidia.com/gpu": "2", "cpu": "1", "memory": "1Gi"}
GPU = {"nvidia.com/gpu": "1"}


def test_pods_over_quota_are_gated_and_all_run_in_the_end(
    cluster: AnyCluster, kueue: AnyCluster, namespace: Kube
) -> None:
    image, names = cluster.image("busybox"), [f"step-{number}" for number in range(3)]
    with queue(namespace, QUOTA):
        namespace.create(*(pod(name, image, ["sleep", "2"], resources=GPU, labels=LABEL) for name in names))
        held = until(
            "one pod to be told to wait",
            lambda: [message for name in names if (message := waiting_message(namespace, name))],
        )
        assert "insufficient unused quota for nvidia.com/gpu" in held[0]
        gated = [item for item in namespace.list("pod") if item["spec"].get("schedulingGates")]
        assert gated
        for name in names:
            namespace.await_pod(name, "Succeeded")


def test_argo_steps_wait_in_the_queue_and_the_workflow_succeeds(
    argo: AnyCluster, kueue: AnyCluster, namespace: Kube
) -> None:
    permit(namespace)
    container: dict[str, Any] = {
        "image": argo.image("busybox"),
        "command": ["sleep", "1"],
        "imagePullPolicy": "IfNotPresent",
    }
    container["resources"] = {"requests": {"cpu": "20m", "memory": "16Mi"}, "limits": GPU}
    items = [{"name": "step", "template": "step", "withItems": [1, 2, 3]}]
    workflow = {
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Workflow",
        "metadata": {"name": "queued"},
        "spec": {
            "entrypoint": "main",
            "podMetadata": {"labels": LABEL},
            "templates": [{"name": "main", "steps": [items]}, {"name": "step", "container": container}],
        },
    }
    with queue(namespace, QUOTA):
        namespace.create(workflow)
        done = namespace.await_object(
            "workflow", "queued", "ended", lambda item: bool(item.get("status", {}).get("finishedAt")), 180
        )
        assert done["status"]["phase"] == "Succeeded"
        admitted = [item for item in namespace.list("workload") if item["status"].get("admission")]
        assert len(admitted) == 3
