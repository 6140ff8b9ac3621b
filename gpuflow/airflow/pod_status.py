"""Where a pod is while it is under way: what its manifest says, and what Kueue says about one that waits.

A sentence for the log, whether there is anything to judge, the place in the queue, and whether waiting is hopeless.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuflow.runtime.supervise.object_state import path_of

KUEUE_GATE = "kueue.x-k8s.io/admission"
QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
HOPELESS_REASONS = ("InvalidImageName",)
IMAGE_REASONS = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", *HOPELESS_REASONS)
STUCK_REASONS = (*IMAGE_REASONS[:3], "CreateContainerConfigError", "CreateContainerError")
"""A container that waits for one of these may come right by itself, but not forever."""

Body = Mapping[str, Any]


def container_state(pod: Body, name: str = "main") -> Mapping[str, Any]:
    """The state of a container: {running|waiting|terminated: …}, empty before there is one."""
    for status in (pod.get("status") or {}).get("containerStatuses") or ():
        if status.get("name") == name:
            state: Mapping[str, Any] = status.get("state") or {}
            return {key: value for key, value in state.items() if value is not None}
    return {}


def has_ended(pod: Body) -> bool:
    """Whether the step itself has ended; helpers beside it may still run."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed") or "terminated" in container_state(pod)


def waiting_reason(pod: Body, name: str = "main") -> str:
    """Why the main container waits, as the kubelet calls it."""
    waiting = container_state(pod, name).get("waiting") or {}
    return str(waiting.get("reason") or "")


def gates(pod: Body) -> list[str]:
    """What keeps the scheduler from looking at the pod."""
    return [gate.get("name", "") for gate in (pod.get("spec") or {}).get("schedulingGates") or ()]


def gpus(pod: Body) -> str:
    """`2 nvidia.com/gpu`, or nothing."""
    limits = ((pod.get("spec") or {}).get("containers") or [{}])[0].get("resources", {}).get("limits") or {}
    named = [f"{count} {key}" for key, count in sorted(limits.items()) if "/" in key]
    return ", ".join(named)


def describe(pod: Body) -> str:
    """Where the pod is now, in one line."""
    metadata, status = pod.get("metadata") or {}, pod.get("status") or {}
    node = (pod.get("spec") or {}).get("nodeName")
    if metadata.get("deletionTimestamp"):
        return "being deleted"
    if status.get("phase") in ("Succeeded", "Failed"):
        reason = f" ({status['reason']})" if status.get("reason") else ""
        return f"{status['phase'].lower()}{reason}"
    if KUEUE_GATE in gates(pod):
        return f"waiting in queue {(metadata.get('labels') or {}).get(QUEUE_LABEL, '?')}"
    if gates(pod):
        return f"held by {', '.join(gates(pod))}"
    if node is None:
        unmet = _unmet_condition(pod, "PodScheduled")
        return f"waiting for a node: {unmet.get('message') or unmet.get('reason') or 'not scheduled yet'}"
    state = container_state(pod)
    with_gpus = f" with {gpus(pod)}" if gpus(pod) else ""
    if "terminated" in state:
        return f"ended on {node} with exit code {state['terminated'].get('exitCode')}"
    if "running" in state:
        return f"running on {node}{with_gpus}{_stuck_sidecar(status)}"
    return f"starting on {node}{with_gpus}" + (f": {waiting_reason(pod)}" if waiting_reason(pod) else "")


def _stuck_sidecar(status: Mapping[str, Any]) -> str:
    """The containers beside main that cannot start, each with its reason."""
    others = [each for each in status.get("containerStatuses") or () if each.get("name") != "main"]
    reasons = {each.get("name"): ((each.get("state") or {}).get("waiting") or {}).get("reason") for each in others}
    stuck = [f"{name}: {why}" for name, why in reasons.items() if why in (*STUCK_REASONS, *HOPELESS_REASONS)]
    return f"; {', '.join(stuck)}" if stuck else ""


def end_message(pod: Body) -> str:
    """Exit code and termination message, which is where a program says why it ended."""
    ended = container_state(pod).get("terminated") or {}
    words = f" (exit code {ended['exitCode']})" if ended.get("exitCode") is not None else ""
    message = str(ended.get("message") or (pod.get("status") or {}).get("message") or "").strip()
    return f"{words}: {message}" if message else words


def is_leaving(pod: Body) -> bool:
    """Whether somebody has deleted the pod, though it is still there."""
    return bool((pod.get("metadata") or {}).get("deletionTimestamp"))


def is_queued(pod: Body) -> bool:
    """Whether the pod still waits to be given a node."""
    return (pod.get("spec") or {}).get("nodeName") is None and not has_ended(pod)


def _unmet_condition(body: Body, kind: str) -> Body:
    """The condition of a pod or a Workload, where it says that it does not hold."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    return next((each for each in conditions if (each.get("type"), each.get("status")) == (kind, "False")), {})


def evidence_of(pod: Body) -> dict[str, Any]:
    """The part of a manifest that is evidence, small enough to travel in an event."""
    metadata = pod.get("metadata") or {}
    named = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "annotations", "labels")
    return {
        "metadata": {key: metadata[key] for key in named if metadata.get(key)},
        "spec": {"nodeName": (pod.get("spec") or {}).get("nodeName")},
        "status": {
            key: value
            for key, value in (pod.get("status") or {}).items()
            if key in ("phase", "reason", "message", "conditions", "containerStatuses", "initContainerStatuses")
        },
    }


KUEUE_GROUP = "kueue.x-k8s.io"
KUEUE_VERSIONS = ("v1beta2", "v1beta1")


class QueueStatus(NamedTuple):
    """A sentence for the log, and Kueue's message if it can never admit the pod."""

    sentence: str = ""
    never: str = ""


class Queue:
    """Asks Kueue about one pod, and stops asking where it may not."""

    def __init__(self) -> None:
        self._versions = list(KUEUE_VERSIONS)
        self._visible = True

    async def status_of(self, connection: Any, pod: dict[str, Any]) -> QueueStatus:
        """The status of a pod that Kueue holds back; empty for any other pod."""
        if KUEUE_GATE not in gates(pod):
            return QueueStatus()
        if (workload := await self._workload(connection, pod)) is None:
            return QueueStatus()
        words = str(_unmet_condition(workload, "QuotaReserved").get("message", ""))
        position = await self._position(connection, pod, workload["metadata"]["name"])
        sentence = f"number {position + 1} in it; {words}" if position is not None else words
        # Kueue says "insufficient unused quota" when waiting may help, "insufficient quota" when it cannot.
        return QueueStatus(sentence, words if "insufficient quota" in words else "")

    async def _workload(self, connection: Any, pod: dict[str, Any]) -> dict[str, Any] | None:
        metadata = pod["metadata"]
        while self._versions:
            path = path_of(f"{KUEUE_GROUP}/{self._versions[0]}", metadata["namespace"], "workloads")
            selector = f"{KUEUE_GROUP}/job-uid={metadata['uid']}"
            if (found := await _get(connection, path, [("labelSelector", selector)])) is not None:
                items = found.get("items") or []
                return items[0] if items else None
            self._versions.pop(0)
        return None

    async def _position(self, connection: Any, pod: dict[str, Any], workload: str) -> int | None:
        queue = (pod["metadata"].get("labels") or {}).get(QUEUE_LABEL)
        if not self._visible or queue is None:
            return None
        path = path_of(f"visibility.{KUEUE_GROUP}/v1beta2", pod["metadata"]["namespace"], "localqueues", queue)
        if (found := await _get(connection, f"{path}/pendingworkloads", [])) is None:
            self._visible = False
            return None
        for item in found.get("items") or ():
            if item["metadata"]["name"] == workload:
                return int(item.get("positionInLocalQueue", 0))
        return None


async def _get(connection: Any, path: str, query: list[tuple[str, str]]) -> dict[str, Any] | None:
    """A plain GET; None where it is not there or not allowed."""
    from kubernetes_asyncio.client.exceptions import ApiException

    try:
        return await request(connection, "GET", path, query)
    except ApiException as refusal:
        if refusal.status in (403, 404):
            return None
        raise


async def request(
    connection: Any, method: str, path: str, query: list[tuple[str, str]] | None = None, body: Any = None
) -> dict[str, Any]:
    """One request; what is no success as the Kubernetes client says it."""
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    answer: dict[str, Any] = await connection.call_api(
        path,
        method,
        query_params=query or [],
        header_params={"Accept": "application/json", "Content-Type": kind},
        body=body,
        response_types_map={200: "object", 201: "object", 202: "object"},
        auth_settings=["BearerToken"],
        _return_http_data_only=True,
    )
    return answer
