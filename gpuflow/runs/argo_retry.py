"""A Workflow that has failed as one that goes on: what failed, and what follows from it, anew.

Mirrors FormulateRetryWorkflow in workflow/util/util.go of Argo Workflows 4.0.2, without what gpuflow does not compile
(container sets) and what nobody may choose here (other parameters, restarting what has succeeded). Argo's own server
and its `argo retry` do the same on the client's side, so that a run needs neither. Two things are better here: an
approval that was cut off by a stop is asked again, and the controller is not told before the old pods are gone, since
it would take one that still ends for the new one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from gpuflow.runs.argo_nodes import nodes_of, pod_name

_EXECUTED = ("Pod", "HTTP", "Plugin", "Suspend")
_GROUPS = ("DAG", "TaskGroup", "Steps", "StepGroup")
_BAD = ("Failed", "Error")
_LABELS = ("workflows.argoproj.io/completed", "workflows.argoproj.io/workflow-archiving-status")


class _Nodes:
    """The nodes of a workflow, and how they hang together."""

    def __init__(self, workflow: Mapping[str, Any]) -> None:
        self.all = nodes_of(workflow)
        self.parent = {child: name for name, node in self.all.items() for child in node.get("children") or ()}
        self.again: set[str] = set()
        """Begun again: groups and retries around what failed."""
        self.gone: set[str] = set()
        """Deleted: what failed, and what follows from it."""

    def below(self, name: str) -> list[str]:
        """All that follows from a node, itself first, nearest first."""
        found = {name: None}
        queue = [name]
        for each in queue:
            new = [child for child in self.all[each].get("children") or () if child in self.all and child not in found]
            found |= dict.fromkeys(new)
            queue += new
        return list(found)

    def has_failed(self, name: str) -> bool:
        """Whether it failed, and nothing that came of it, such as a later attempt, has succeeded."""
        node = self.all[name]
        if node.get("type") not in _EXECUTED or node.get("phase") not in _BAD:
            return False
        above = self.parent[name] if (node.get("nodeFlag") or {}).get("retried") else name
        return all(self.all[each].get("phase") != "Succeeded" for each in self.below(above)[1:])

    def mark(self, name: str) -> None:
        """Note what one failed node changes."""
        self.gone.update(self.below(name))
        at: str | None = name
        while at is not None:
            node = self.all[at]
            if node.get("type") in _GROUPS:
                self.again.add(at)
                at = self._mark_around(at)
                continue
            if node.get("type") == "Retry" and node.get("phase") in _BAD:
                self.again.add(at)
            at = self.parent.get(at)

    def _mark_around(self, at: str) -> str | None:
        """resetBoundaries: every template around a group, and the retries and loops that it is a part of."""
        while True:
            above = self.parent.get(at)
            if above is not None and self.all[above].get("type") == "Retry":
                self.again.add(above)
                at, above = above, self.parent.get(above)
            if above is not None and self.all[above].get("type") in ("TaskGroup", "StepGroup"):
                self.again.add(above)
            boundary = self.all[at].get("boundaryID")
            if not boundary or boundary not in self.all:
                return above
            while at != boundary:
                if (next_one := self.parent.get(at)) is None:
                    break
                at = next_one
            self.again.add(boundary)
            at = boundary


def retried(workflow: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]] | None:
    """The workflow as it goes on, and the pods to delete before; None where nothing of it has failed."""
    run, nodes = str(workflow["metadata"]["name"]), _Nodes(workflow)
    root = next((name for name, node in nodes.all.items() if node["name"] == run), None)
    in_order = nodes.below(root) if root is not None else []
    failed = [name for name in in_order if nodes.has_failed(name)]
    if not failed:
        return None
    for name in failed:
        if name not in nodes.gone:
            nodes.mark(name)
    ending = {name for name, node in nodes.all.items() if node["name"].startswith(f"{run}.onExit")}
    dropped = nodes.gone | ending
    kept = {}
    for name, node in nodes.all.items():
        if name not in dropped:
            new = _begun_again(node) if name in nodes.again else copy.deepcopy(node)
            for field in ("children", "outboundNodes"):
                if field in new:
                    new[field] = [each for each in new[field] if each not in dropped]
            kept[name] = new
    pods = [pod_name(workflow, nodes.all[name]) for name in dropped if nodes.all[name].get("type") == "Pod"]
    return _with_nodes(workflow, kept), sorted(pods)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _begun_again(node: Mapping[str, Any]) -> dict[str, Any]:
    """resetNode."""
    phase = "Skipped" if node.get("phase") == "Skipped" else "Running"
    return {**copy.deepcopy(dict(node)), "phase": phase, "message": "", "startedAt": _now(), "finishedAt": None}


def _with_nodes(workflow: Mapping[str, Any], nodes: dict[str, Any]) -> dict[str, Any]:
    """createNewRetryWorkflow: nothing says any more that it has ended."""
    new = copy.deepcopy(dict(workflow))
    for label in _LABELS:
        (new["metadata"].get("labels") or {}).pop(label, None)
    new["spec"].pop("shutdown", None)
    if new["spec"].get("activeDeadlineSeconds") == 0:
        del new["spec"]["activeDeadlineSeconds"]
    status = new["status"]
    (status.get("storedWorkflowTemplateSpec") or {}).pop("shutdown", None)
    for field in ("compressedNodes", "message", "persistentVolumeClaims"):
        status.pop(field, None)
    conditions = [each for each in status.get("conditions") or () if each.get("type") != "Completed"]
    status["conditions"] = [*conditions, {"type": "Completed", "status": "False"}]
    status |= {"phase": "", "startedAt": _now(), "finishedAt": None, "nodes": nodes}
    return new
