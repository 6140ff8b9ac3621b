"""What Kueue says about a waiting pod: why it waits, its place in the queue, and whether waiting is hopeless."""

from __future__ import annotations

from typing import Any, NamedTuple

from gpuflow.airflow.watching import KUEUE_GATE, QUEUE_LABEL, gates

GROUP = "kueue.x-k8s.io"
VERSIONS = ("v1beta2", "v1beta1")


class Told(NamedTuple):
    """A sentence for the log, and Kueue's words when it can never admit the pod."""

    sentence: str = ""
    never: str = ""


class Queue:
    """Asks Kueue about one pod, and stops asking where it may not."""

    def __init__(self) -> None:
        self._versions = list(VERSIONS)
        self._visible = True

    async def told(self, connection: Any, pod: dict[str, Any]) -> Told:
        """What is known about a pod that Kueue holds back; nothing about any other."""
        if KUEUE_GATE not in gates(pod):
            return Told()
        workload = await self._workload(connection, pod)
        if workload is None:
            return Told()
        words = _pending_words(workload)
        position = await self._position(connection, pod, workload["metadata"]["name"])
        sentence = f"number {position + 1} in it; {words}" if position is not None else words
        # Kueue says "insufficient unused quota" when waiting may help, "insufficient quota" when it cannot.
        return Told(sentence, words if "insufficient quota" in words else "")

    async def _workload(self, connection: Any, pod: dict[str, Any]) -> dict[str, Any] | None:
        metadata = pod["metadata"]
        while self._versions:
            path = f"/apis/{GROUP}/{self._versions[0]}/namespaces/{metadata['namespace']}/workloads"
            selector = f"{GROUP}/job-uid={metadata['uid']}"
            found = await _get(connection, path, [("labelSelector", selector)])
            if found is not None:
                items = found.get("items") or []
                return items[0] if items else None
            self._versions.pop(0)
        return None

    async def _position(self, connection: Any, pod: dict[str, Any], workload: str) -> int | None:
        queue = (pod["metadata"].get("labels") or {}).get(QUEUE_LABEL)
        if not self._visible or queue is None:
            return None
        namespace = pod["metadata"]["namespace"]
        base = f"/apis/visibility.{GROUP}/v1beta2/namespaces/{namespace}"
        found = await _get(connection, f"{base}/localqueues/{queue}/pendingworkloads", [])
        if found is None:
            self._visible = False
            return None
        for item in found.get("items") or ():
            if item["metadata"]["name"] == workload:
                return int(item.get("positionInLocalQueue", 0))
        return None


def _pending_words(workload: dict[str, Any]) -> str:
    for condition in (workload.get("status") or {}).get("conditions") or ():
        if condition.get("type") == "QuotaReserved" and condition.get("status") == "False":
            return str(condition.get("message", ""))
    return ""


async def _get(connection: Any, path: str, query: list[tuple[str, str]]) -> dict[str, Any] | None:
    """A plain GET; None where it is not there or not allowed."""
    from kubernetes_asyncio.client.exceptions import ApiException

    try:
        answer: dict[str, Any] = await connection.call_api(
            path,
            "GET",
            query_params=query,
            response_types_map={200: "object"},
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
        )
        return answer
    except ApiException as refusal:
        if refusal.status in (403, 404):
            return None
        raise
