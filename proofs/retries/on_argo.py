"""Cases on a running Argo: compiled by `gpuflow compile`, started as workflows, read from what Argo recorded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.targets.argo.cluster.plays import _pod_name, _pods

from .contract import FAILED, SUCCEEDED, Case
from .ground import Ground
from .pipelines import SITE, SITE_ALONE, SITE_CLOSED, pipeline


class Argo:
    """Starts cases and tells how they stand."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.compiled: dict[str, dict[str, Any]] = {}
        self.workflows: dict[str, dict[str, Any]] = {}

    def compile(self, cases: Iterable[Case]) -> None:
        given = list(cases)
        for site in (SITE, SITE_ALONE, SITE_CLOSED):
            texts = {case.name: pipeline(case) for case in given if site_of(case) == site}
            self.compiled |= self.ground.stage.compile(texts, site) if texts else {}

    def start(self, case: Case) -> None:
        self.ground.stage.start(self.compiled[case.name])

    def look(self) -> None:
        self.workflows = self.ground.stage.workflows()

    def seen_running(self, case: Case, pod: str) -> bool:
        """Whether Argo itself has seen the pod run: a pod that goes before is made again, as if it had never been."""
        workflow = self.workflows.get(case.name, {})
        return any(node["phase"] == "Running" and _pod_name(workflow, node) == pod for node in _pods(workflow))

    def ended(self, case: Case) -> dict[str, Any] | None:
        """What Argo recorded, once the workflow is over."""
        workflow = self.workflows.get(case.name, {})
        status = workflow.get("status", {})
        return self.told(case) if status.get("finishedAt") else None

    def told(self, case: Case) -> dict[str, Any]:
        workflow = self.workflows.get(case.name, {})
        status = workflow.get("status", {})
        nodes = [
            {
                "phase": node["phase"],
                "message": node.get("message", ""),
                "exit_code": _code(node),
            }
            for node in _pods(workflow)
        ]
        # Argo says Error instead of Failed when the last pod went out of its sight.
        state = SUCCEEDED if status.get("phase") == "Succeeded" else FAILED if status.get("finishedAt") else "running"
        return {"state": state, "message": status.get("message", ""), "nodes": nodes}

    def forget(self, case: Case) -> None:
        """A finished workflow is in the way of the next look."""
        self.ground.kube("delete", "workflow", case.name, "--wait=false", "--ignore-not-found")

    def close(self) -> None:
        """Nothing of its own runs."""


def site_of(case: Case) -> str:
    if case.step.get("description") == "closed":
        return SITE_CLOSED
    return SITE if case.supervised else SITE_ALONE


def _code(node: dict[str, Any]) -> int | None:
    text = (node.get("outputs") or {}).get("exitCode")
    return int(text) if text else None
