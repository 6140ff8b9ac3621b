"""Small pods for tests, and what a pod shows of its end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .kube import Kube, Manifest

# A finalizer keeps a deleted pod visible, so that its last status can be read.
KEEP = "gpuflow.test/keep"
REQUESTS = {"cpu": "20m", "memory": "16Mi"}


def pod(
    name: str,
    image: str,
    command: Sequence[str],
    *,
    resources: Mapping[str, str] | None = None,
    memory_limit: str = "",
    labels: Mapping[str, str] | None = None,
    keep: bool = False,
    **spec: Any,
) -> dict[str, Any]:
    """A pod with one container called `main`; `resources` are devices, asked for and limited alike."""
    devices = dict(resources or {})
    limits = {**devices, **({"memory": memory_limit} if memory_limit else {})}
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": list(command),
        "resources": {"requests": {**REQUESTS, **devices}, "limits": limits},
    }
    metadata: dict[str, Any] = {"name": name, "labels": dict(labels or {})}
    if keep:
        metadata["finalizers"] = [KEEP]
    defaults = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 5}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {**defaults, **spec, "containers": [container]},
    }


def release(kube: Kube, name: str) -> None:
    """Let a kept pod go."""
    kube("patch", "pod", name, "--type=merge", '--patch={"metadata":{"finalizers":null}}')


def release_all(kube: Kube) -> None:
    """Let every kept pod of a namespace go."""
    for item in kube.list("pod"):
        if KEEP in item["metadata"].get("finalizers", ()):
            release(kube, item["metadata"]["name"])


@dataclass(frozen=True)
class Outcome:
    """What is left to see of a pod: its phase and reason, its container's end, why it was disrupted."""

    phase: str
    reason: str | None
    container_reason: str | None
    exit_code: int | None
    disruption: str | None


def outcome(pod: Manifest) -> Outcome:
    status = pod["status"]
    states = [item["state"].get("terminated") for item in status.get("containerStatuses", ())]
    ended: dict[str, Any] = next((state for state in states if state), {})
    disruptions = (item for item in status.get("conditions", ()) if item["type"] == "DisruptionTarget")
    return Outcome(
        phase=status.get("phase", ""),
        reason=status.get("reason"),
        container_reason=ended.get("reason"),
        exit_code=ended.get("exitCode"),
        disruption=next((item.get("reason") for item in disruptions), None),
    )
