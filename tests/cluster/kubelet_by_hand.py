"""A kubelet played by a test: pods with the label `BY_HAND` on simulated nodes start and end when they are told to.

The API server, the scheduler, the Job controller and whoever watches pods are the real ones; only what a kubelet would
write into the status of a pod is written here. So every ending can be had at once, in any order, without an image.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from .kube import Kube, Manifest
from .nodes import BY_HAND

LABELS = {BY_HAND: "true"}
"""For the template of the pods."""


def start(kube: Kube, pod: Manifest, address: str = "") -> None:
    """The pod's containers run; `address` for programs that look the pod up."""
    now = _now()
    ready = [{"type": each, "status": "True", "lastTransitionTime": now} for each in ("Ready", "ContainersReady")]
    status: dict[str, Any] = {
        "phase": "Running",
        "startTime": now,
        "conditions": _conditions(kube, pod, *ready),
        "containerStatuses": _containers(pod, {"running": {"startedAt": now}}, ready=True),
    }
    if address:
        status.update(podIP=address, podIPs=[{"ip": address}])
    kube.patch_status("pod", _name(pod), status)


def end(
    kube: Kube,
    pod: Manifest,
    code: int,
    *,
    reason: str = "",
    message: str = "",
    disruption: str = "",
    pod_reason: str = "",
) -> None:
    """The pod's containers end with `code`: `message` is their last words, `disruption` the reason of who ended it."""
    now = _now()
    state = {
        "exitCode": code,
        "reason": reason or ("Error" if code else "Completed"),
        "message": message,
        "startedAt": now,
        "finishedAt": now,
    }
    ended = [{"type": each, "status": "False", "lastTransitionTime": now} for each in ("Ready", "ContainersReady")]
    if disruption:
        target = {"type": "DisruptionTarget", "status": "True", "reason": disruption, "lastTransitionTime": now}
        ended.append({**target, "message": f"{disruption}, written by a test"})
    status: dict[str, Any] = {
        "phase": "Failed" if code else "Succeeded",
        "conditions": _conditions(kube, pod, *ended),
        "containerStatuses": _containers(pod, {"terminated": state}, ready=False),
    }
    if pod_reason:
        status["reason"] = pod_reason
    kube.patch_status("pod", _name(pod), status)


def disrupt(kube: Kube, pod: Manifest, reason: str) -> None:
    """Say that the pod is about to be ended from outside, as the eviction API and the scheduler do first."""
    target = {"type": "DisruptionTarget", "status": "True", "reason": reason, "lastTransitionTime": _now()}
    words = f"{reason}, written by a test"
    kube.patch_status("pod", _name(pod), {"conditions": _conditions(kube, pod, {**target, "message": words})})


def bury(kube: Kube, pod: Manifest) -> None:
    """Let a deleted pod go, as a kubelet does once its containers have ended."""
    kube("delete", "pod", _name(pod), "--grace-period=0", "--force", "--ignore-not-found", "--wait=false")


def _conditions(kube: Kube, pod: Manifest, *rows: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """What the pod says of itself now, with these rows in place of those of their type."""
    found = kube.get("pod", _name(pod)) or pod
    kept = {row["type"]: row for row in found["status"].get("conditions", ())}
    return list({**kept, **{row["type"]: row for row in rows}}.values())


def _containers(pod: Manifest, state: Manifest, *, ready: bool) -> list[dict[str, Any]]:
    same = {"restartCount": 0, "imageID": "", "ready": ready, "started": ready, "state": state}
    return [{"name": each["name"], "image": each["image"], **same} for each in pod["spec"]["containers"]]


def _name(pod: Manifest) -> str:
    return str(pod["metadata"]["name"])


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
