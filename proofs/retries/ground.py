"""Where cases are played: one namespace with a volume that pods and proof share, and everything seen in it."""

from __future__ import annotations

import json
import shutil
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.cluster.cluster import Cluster
from tests.cluster.faults import Faults
from tests.cluster.fixtures import OWNER
from tests.cluster.kube import Kube
from tests.cluster.layout import REAL_NODE
from tests.cluster.queues import VERSION
from tests.cluster.waiting import until
from tests.targets.argo.cluster.stage import CLAIM, LABEL, Stage, stage

from .pipelines import TAINT

QUEUE = "proof"
PIPELINE = "gpuflow.dev/pipeline"


@dataclass
class Ground:
    """The namespace, and the last that was seen of each of its pods."""

    stage: Stage
    faults: Faults
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By uid, as last seen; a pod that is gone is remembered."""
    gone: set[str] = field(default_factory=set)

    @property
    def cluster(self) -> Cluster:
        return self.stage.cluster

    @property
    def kube(self) -> Kube:
        return self.stage.kube

    @property
    def has_node(self) -> bool:
        """Whether a node runs pods; else all nodes are simulated."""
        return bool(self.cluster.state["node"])

    @property
    def plays(self) -> Path:
        return self.stage.shared / "plays"

    @property
    def living(self) -> list[dict[str, Any]]:
        """The pods that are there now."""
        return [pod for uid, pod in list(self.pods.items()) if uid not in self.gone]

    def see(self, kind: str, pod: dict[str, Any]) -> None:
        """One event of the API server's watch."""
        uid = pod["metadata"]["uid"]
        before = self.pods.get(uid)
        if before is None or not _is_over(before) or not pod["metadata"].get("deletionTimestamp"):
            # A pod that is deleted after its end shows nothing new about it.
            self.pods[uid] = pod
        if kind == "DELETED":
            self.gone.add(uid)

    def fresh(self, name: str) -> dict[str, Any] | None:
        """A pod as it is at this moment."""
        found = self.kube.get("pod", name)
        if found is not None:
            self.see("MODIFIED", found)
        return found

    def pods_of(self, name: str) -> list[dict[str, Any]]:
        """All pods ever seen of a case, the oldest first."""
        found = [pod for pod in list(self.pods.values()) if pod["metadata"].get("labels", {}).get(PIPELINE) == name]
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


def _is_over(pod: dict[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed") and not pod["metadata"].get("deletionTimestamp")


def _word(book: Path, stem: str, owner: str) -> str:
    """The outcome of an attempt: what was found out later stands above what it said itself."""
    for ending in ("judged", "end"):
        path = book / f"{stem}-{owner}.{ending}.json"
        if path.exists():
            return str(json.loads(path.read_text())["outcome"])
    return ""


def _untaint(cluster: Cluster) -> None:
    """Take away what a proof left on the node that was killed while it struck: no pod could start there."""
    node = cluster.kube.get("node", REAL_NODE)
    for taint in (node or {"spec": {}})["spec"].get("taints", ()):
        if taint["key"].startswith(TAINT):
            cluster.kube("taint", "node", REAL_NODE, f"{taint['key']}:{taint['effect']}-")


class Watcher:
    """Every change of every pod, as the API server tells it: what a poll misses may be all the evidence there is."""

    def __init__(self, ground: Ground) -> None:
        self.ground, self._over = ground, False
        self._process: subprocess.Popen[str] | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        kube = self.ground.kube
        words = ["get", "pods", "--watch", "--output-watch-events", "-o", "json"]
        options = [f"--kubeconfig={kube.kubeconfig}", f"--namespace={kube.namespace}"]
        while not self._over:
            command = [*kube.prefix, kube.program, *options, *words]
            self._process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            assert self._process.stdout is not None
            self._read(self._process.stdout)
            self._process.wait()

    def _read(self, stream: IO[str]) -> None:
        """kubectl writes one event a line."""
        for line in stream:
            event = json.loads(line)
            if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
                self.ground.see(event["type"], event["object"])

    def close(self) -> None:
        self._over = True
        if self._process is not None:
            self._process.terminate()
        self._thread.join(10)


@contextmanager
def _plain(cluster: Cluster) -> Iterator[Stage]:
    """A stage on a cluster without Argo."""
    name = f"gpuflow-{uuid.uuid4().hex[:10]}"
    made = Stage(cluster, cluster.kube.within(name), cluster.layout.run / f"stage-{name}")
    made.folder.mkdir()
    made.kube.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": OWNER}})
    try:
        until("the default service account", lambda: made.kube.get("serviceaccount", "default"))
        made.kube.create(*made.volume(CLAIM))
        yield made
    finally:
        made.kube("delete", "namespace", name, "--wait=false")
        made.kube("delete", "persistentvolume", f"--selector={LABEL}={name}", "--wait=false")
        shutil.rmtree(made.folder, ignore_errors=True)


@contextmanager
def ground(cluster: Cluster) -> Iterator[Ground]:
    """A ground of its own, with a simulated node and a queue; taken down afterwards."""
    with stage(cluster) if "argo" in cluster.state["addons"] else _plain(cluster) as place:
        for folder in ("plays", "store", "closed"):
            (place.shared / folder).mkdir()
            (place.shared / folder).chmod(0o777 if folder != "closed" else 0o500)
        if "kueue" in cluster.state["addons"]:
            place.kube.apply(*_queue(place))
        place.kube("label", "namespace", place.kube.namespace, "pod-security.kubernetes.io/enforce=baseline")
        made = Ground(place, Faults(cluster, place.kube))
        _untaint(cluster)
        watcher = Watcher(made)
        try:
            yield made
        finally:
            watcher.close()
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
