"""Every change of every pod and workflow, in the order in which the API server stored them."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuflow.demands.peaks import amounts_of
from gpuflow.quantity import Quantity
from proofs.readers.case import bare, is_of_pods
from tests.differential.live.api import Api

WORKFLOWS = "/apis/argoproj.io/v1alpha1"
ENDED = ("Succeeded", "Failed")


@dataclass
class Seen:
    """One change: a pod with what it costs, or the nodes of the workflow."""

    version: int
    pod: str = ""
    lives: bool = False
    costs: dict[str, dict[str, Quantity]] = field(default_factory=dict)
    """By engine: without and with the containers that Argo adds."""
    node: str = ""
    is_daemon: bool = False
    over: frozenset[str] | None = None
    """Of a workflow: the nodes that Argo takes to be over at this time."""


@dataclass
class Place:
    """What is known of one namespace."""

    log: list[Seen] = field(default_factory=list)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By uid, those that are there."""
    workflow: dict[str, Any] = field(default_factory=dict)
    changed: float = field(default_factory=time.monotonic)

    @property
    def live(self) -> list[dict[str, Any]]:
        return [pod for pod in list(self.pods.values()) if pod["status"].get("phase") not in ENDED]

    @property
    def nodes(self) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = self.workflow.get("status", {}).get("nodes") or {}
        return found

    @property
    def phase(self) -> str:
        return str(self.workflow.get("status", {}).get("phase", ""))


class Watch:
    """All namespaces at once."""

    def __init__(self, kubeconfig: Path) -> None:
        self.places: dict[str, Place] = defaultdict(Place)
        self.kubeconfig, self.over = kubeconfig, False
        for path, see in (("/api/v1/pods", self._pod), (f"{WORKFLOWS}/workflows", self._workflow)):
            threading.Thread(target=self._follow, args=(path, see), daemon=True).start()

    def _follow(self, path: str, see: Callable[[str, dict[str, Any]], None]) -> None:
        version = Api(self.kubeconfig).must("GET", path)["metadata"]["resourceVersion"]
        while not self.over:
            query = f"{path}?watch=1&allowWatchBookmarks=true&timeoutSeconds=600&resourceVersion={version}"
            try:
                for line in Api(self.kubeconfig).lines(query):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise RuntimeError(f"watch of {path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        see(event["type"], event["object"])
            except (http.client.HTTPException, OSError):
                time.sleep(0.2)

    def _pod(self, kind: str, pod: dict[str, Any]) -> None:
        metadata = pod["metadata"]
        place = self.places[metadata["namespace"]]
        lives = kind != "DELETED" and pod["status"].get("phase") not in ENDED
        seen = Seen(int(metadata["resourceVersion"]), metadata["uid"], lives)
        seen.node = metadata.get("annotations", {}).get("workflows.argoproj.io/node-id", "")
        seen.is_daemon = template_of(pod).get("daemon") is True
        seen.costs = {
            engine: {key: each for key, each in amounts_of(shown).usage.items() if is_of_pods(key)}
            for engine, shown in (("none", bare(pod)), ("argo", pod))
            if shown["spec"]["containers"]
        }
        if _only_engine(pod):
            seen.costs.pop("none", None)
        place.log.append(seen)
        if kind == "DELETED":
            place.pods.pop(metadata["uid"], None)
        else:
            place.pods[metadata["uid"]] = pod
        place.changed = time.monotonic()

    def _workflow(self, kind: str, workflow: dict[str, Any]) -> None:
        metadata = workflow["metadata"]
        if kind == "DELETED":
            return
        place = self.places[metadata["namespace"]]
        place.workflow = workflow
        over = frozenset(key for key, node in place.nodes.items() if node.get("phase") in (*ENDED, "Error"))
        place.log.append(Seen(int(metadata["resourceVersion"]), over=over))
        place.changed = time.monotonic()


def _only_engine(pod: dict[str, Any]) -> bool:
    """Whether a pod runs nothing of the author's: it creates an object, or sends requests."""
    template = template_of(pod)
    agent = pod["metadata"].get("labels", {}).get("workflows.argoproj.io/component") == "agent"
    return agent or any(kind in template for kind in ("resource", "data"))


def template_of(pod: dict[str, Any]) -> dict[str, Any]:
    """The template of a pod, as the controller hands it to its own containers."""
    spec = pod["spec"]
    for container in (*spec["containers"], *spec.get("initContainers", ())):
        for each in container.get("env", ()):
            if each["name"] == "ARGO_TEMPLATE" and each.get("value"):
                found: dict[str, Any] = json.loads(each["value"])
                return found
    return {}
