"""A Workflow that has failed as one that goes on: what failed, and what follows from it, anew.

After FormulateRetryWorkflow in workflow/util/util.go of Argo Workflows 4.0.2, for what gpuflow compiles: `argo retry`
does it outside of the controller too, so that a run needs no server of Argo's. Upstream begins the groups on the way
to each failed node again; here that is every group that has failed, since none fails by itself. Unlike there, an
approval that a stop has cut off is asked again.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpuflow.runs.argo_nodes import STOPPED, nodes_of, pod_name

_EXECUTED = ("Pod", "HTTP", "Plugin", "Suspend")
_BAD = ("Failed", "Error")
_LABELS = ("workflows.argoproj.io/completed", "workflows.argoproj.io/workflow-archiving-status")


def workflow_again(workflow: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """The workflow as it goes on, and the pods to delete before; None where nothing of it has failed."""
    run, nodes = str(workflow["metadata"]["name"]), nodes_of(workflow)
    parent = {child: name for name, node in nodes.items() for child in node.get("children") or ()}

    def below(name: str) -> list[str]:
        """All that follows from a node, itself first."""
        queue = [name]
        for each in queue:
            queue += [child for child in nodes[each].get("children") or () if child in nodes and child not in queue]
        return queue

    def has_failed(name: str) -> bool:
        """Whether it failed, and nothing that came of it, such as a later attempt, has succeeded."""
        node = nodes[name]
        if node.get("type") not in _EXECUTED or node.get("phase") not in _BAD:
            return False
        above = parent[name] if (node.get("nodeFlag") or {}).get("retried") else name
        return all(nodes[each].get("phase") != "Succeeded" for each in below(above)[1:])

    dropped = {name for name, node in nodes.items() if node["name"].startswith(f"{run}.onExit")}
    failed = [name for name in nodes if name not in dropped and has_failed(name)]
    if not failed:
        return None
    dropped = dropped.union(*map(below, failed))
    new = _open(workflow)
    for name in nodes.keys() - dropped:
        node = new["status"]["nodes"][name] = copy.deepcopy(nodes[name])
        if node.get("phase") in _BAD:
            node |= {"phase": "Running", "message": "", "startedAt": _now(), "finishedAt": None}
        for field in {"children", "outboundNodes"} & node.keys():
            node[field] = [each for each in node[field] or () if each not in dropped]
    pods = [pod_name(workflow, nodes[name]) for name in dropped if nodes[name].get("type") == "Pod"]
    return new, sorted(pods)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _open(workflow: Mapping[str, Any]) -> dict[str, Any]:
    """createNewRetryWorkflow: without nodes, and nothing says any more that it has ended."""
    new = copy.deepcopy(dict(workflow))
    for label in _LABELS:
        (new["metadata"].get("labels") or {}).pop(label, None)
    if (deadline := (new["metadata"].get("annotations") or {}).pop(STOPPED, None)) is not None:
        new["spec"] |= {"activeDeadlineSeconds": int(deadline) if deadline else None}
    status = new["status"]
    for spec in (new["spec"], status.get("storedWorkflowTemplateSpec") or {}):
        spec.pop("shutdown", None)
    for field in ("compressedNodes", "message", "persistentVolumeClaims"):
        status.pop(field, None)
    conditions = [each for each in status.get("conditions") or () if each.get("type") != "Completed"]
    status["conditions"] = [*conditions, {"type": "Completed", "status": "False"}]
    status |= {"phase": "", "startedAt": _now(), "finishedAt": None, "nodes": {}}
    return new
