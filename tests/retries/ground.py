"""Where cases are played: one namespace with a volume that pods and proof share, and everything seen in it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..cluster.cluster import Cluster
from ..cluster.faults import Faults
from ..cluster.kube import Kube
from ..cluster.queues import VERSION
from ..targets.argo.cluster.stage import Stage, stage

QUEUE = "proof"
PIPELINE = "gpuflow.dev/pipeline"


@dataclass
class Ground:
    """The namespace, and the last that was seen of each of its pods."""

    stage: Stage
    faults: Faults
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By uid, as last seen; a pod that is gone is remembered."""
    living: list[dict[str, Any]] = field(default_factory=list)

    @property
    def cluster(self) -> Cluster:
        return self.stage.cluster

    @property
    def kube(self) -> Kube:
        return self.stage.kube

    @property
    def plays(self) -> Path:
        return self.stage.shared / "plays"

    def look(self) -> None:
        """See what pods there are now."""
        self.living = self.kube.list("pod")
        for pod in self.living:
            self.pods[pod["metadata"]["uid"]] = pod

    def pods_of(self, name: str) -> list[dict[str, Any]]:
        """All pods ever seen of a case, the oldest first."""
        found = [pod for pod in self.pods.values() if pod["metadata"].get("labels", {}).get(PIPELINE) == name]
        return sorted(found, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))

    def book(self, name: str) -> list[str]:
        """What the supervisor's book says of each attempt that did not succeed; "" for one that left no word."""
        found = []
        for book in (self.stage.shared / "store" / name).glob("*/*/attempts"):
            success = book.parent / "success.json"
            won = json.loads(success.read_text())["attempt"] if success.exists() else 0
            for path in sorted(book.glob("??????.json")):
                record = json.loads(path.read_text())
                if record["attempt"] != won:
                    found.append(_word(book, path.stem, record["id"]))
        return found


def _word(book: Path, stem: str, owner: str) -> str:
    """The outcome of an attempt: what was found out later stands above what it said itself."""
    for ending in ("judged", "end"):
        path = book / f"{stem}-{owner}.{ending}.json"
        if path.exists():
            return str(json.loads(path.read_text())["outcome"])
    return ""


@contextmanager
def ground(cluster: Cluster) -> Iterator[Ground]:
    """A ground of its own, with a simulated node and a queue; taken down afterwards."""
    with stage(cluster) as place:
        for folder in ("plays", "store", "closed"):
            (place.shared / folder).mkdir()
            (place.shared / folder).chmod(0o777 if folder != "closed" else 0o500)
        place.kube.apply(*_queue(place))
        place.kube("label", "namespace", place.kube.namespace, "pod-security.kubernetes.io/enforce=baseline")
        made = Ground(place, Faults(cluster, place.kube))
        try:
            yield made
        finally:
            made.faults.undo()
            owned = ",".join(f"{key}={value}" for key, value in place.labels.items())
            cluster.kube("delete", "node", f"--selector={owned}", "--ignore-not-found", "--wait=false")


def _queue(place: Stage) -> tuple[dict[str, Any], ...]:
    """A queue that admits everything."""
    name = place.kube.namespace
    quota = [{"name": key, "nominalQuota": value} for key, value in (("cpu", "50"), ("memory", "50Gi"))]
    group = {"coveredResources": ["cpu", "memory"], "flavors": [{"name": name, "resources": quota}]}
    meta = {"name": name, "labels": place.labels}
    return (
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": meta},
        {
            "apiVersion": VERSION,
            "kind": "ClusterQueue",
            "metadata": meta,
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": QUEUE},
            "spec": {"clusterQueue": name},
        },
    )
