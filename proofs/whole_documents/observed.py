"""What the API server and the controllers do with documents: one object after another, a kubelet played, and the end.

The API server, the controllers, Kueue, the operators and the scheduler are the real ones. Played are two wide nodes:
pods that are bound run, those that end by themselves end two seconds later, and claims get a volume.
"""

from __future__ import annotations

import http.client
import json
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

from gpuflow.cluster.api_server import Answer

Object = dict[str, Any]
RUNS = 2.0
"""Seconds for which a pod runs that ends by itself: long enough that others meet it."""
QUIET = 14.0
"""Seconds without any change after which nothing more is expected."""
LONGEST = 100.0
MINUTE = 75.0
"""Until a schedule of every minute has come once, and its run has ended."""
SERVING = ("ReplicaSet", "StatefulSet", "DaemonSet", "ReplicationController")
WIDE = {"cpu": "10000", "memory": "100Ti", "ephemeral-storage": "100Ti", "pods": "10000", "nvidia.com/gpu": "10000"}
REFUSING = (
    "forbidden",
    "denied",
    "exceeded quota",
    "failed calling",
    "is invalid",
    "not found",
    "Invalid value",
    "must be",
)
REMEMBERED = ("ResourceQuota", "LimitRange", "PriorityClass", "ServiceAccount")
"""Kinds that the API server uses from a cache, a moment after they are made."""
WAITING = ("Unschedulable", "Pending", "Inadmissible")


class Api:
    """The API server over plain HTTP, one connection for each thread; also what `read_live` asks."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
        self.host = urlsplit(cluster["server"]).hostname or ""
        self.context = ssl.create_default_context(cafile=cluster["certificate-authority"])
        self.context.check_hostname = False
        self.headers = {"Authorization": f"Bearer {user['token']}", "Accept": "application/json"}
        self.local = threading.local()
        self.places: dict[str, dict[str, tuple[str, bool]]] = {}

    def __call__(
        self, method: str, path: str, body: object = None, content: str = "application/json"
    ) -> tuple[int, Any]:
        data = None if body is None else json.dumps(body)
        for again in (True, False):
            try:
                link = getattr(self.local, "link", None) or http.client.HTTPSConnection(
                    self.host, context=self.context, timeout=60
                )
                self.local.link = link
                link.request(method, path, data, {**self.headers, "Content-Type": content})
                answer = link.getresponse()
                said = answer.read()
                kind = answer.headers.get("Content-Type", "")
                return answer.status, json.loads(said) if "json" in kind else {"message": said.decode()}
            except (http.client.HTTPException, OSError):
                self.local.link = None
                if not again:
                    raise
        raise AssertionError

    def get(self, path: str, query: Mapping[str, object]) -> Answer:
        status, body = self("GET", path + (f"?{urlencode(query)}" if query else ""))
        return Answer(status, body if status == 200 else {}, str(body.get("message", status)))

    def items(self, path: str) -> list[Object]:
        status, body = self("GET", f"{path}?resourceVersion=0")
        return body.get("items") or [] if status == 200 else []

    def place(self, item: Mapping[str, Any], namespace: str) -> str | None:
        """The address of objects of this kind; None: the server has no such kind."""
        version = str(item.get("apiVersion"))
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if version not in self.places:
            status, found = self("GET", root)
            rows = found.get("resources", []) if status == 200 else []
            self.places[version] = {
                row["kind"]: (row["name"], row["namespaced"]) for row in rows if "/" not in row["name"]
            }
        name, namespaced = self.places[version].get(str(item.get("kind")), ("", False))
        if not name:
            return None
        return f"{root}/namespaces/{namespace}/{name}" if namespaced else f"{root}/{name}"

    def create(self, item: Object, namespace: str) -> tuple[int, str]:
        """As `kubectl create --validate=strict` sends it."""
        path = self.place(item, namespace)
        if path is None:
            return 404, f"no matches for kind {item.get('kind')}"
        status, body = self("POST", f"{path}?fieldValidation=Strict", item)
        return status, "" if status < 300 else str(body.get("message"))


class Keeper(threading.Thread):
    """Two wide nodes, and what a kubelet and a provisioner of volumes would write."""

    def __init__(self, api: Api) -> None:
        super().__init__(daemon=True)
        self.api = api
        self.pods: Mapping[str, list[Object]] = {}
        self.since: dict[str, float] = {}
        self.ended = threading.Event()
        self.trouble: Exception | None = None

    def furnish(self) -> None:
        for number in range(2):
            name = f"wide-{number}"
            labels = {"kubernetes.io/hostname": name, **({"gpuflow.test/pool": "gpu"} if number == 0 else {})}
            self.api("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}})
            self.heartbeat(name)
            status = {"capacity": WIDE, "allocatable": WIDE, "conditions": [condition("Ready")]}
            self.patch(f"/api/v1/nodes/{name}/status", {"status": status})
        meta = {"name": "disk", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}
        kind = {"metadata": meta, "provisioner": "gpuflow.test/disk", "volumeBindingMode": "WaitForFirstConsumer"}
        self.api("POST", "/apis/storage.k8s.io/v1/storageclasses", kind)

    def leave(self) -> None:
        """The cluster as it was."""
        self.ended.set()
        self.join()
        for number in range(2):
            self.api("DELETE", f"/api/v1/nodes/wide-{number}")
        self.api("DELETE", "/apis/storage.k8s.io/v1/storageclasses/disk")

    def run(self) -> None:
        last = 0.0
        while not self.ended.is_set():
            try:
                if time.monotonic() - last > 8:
                    last = time.monotonic()
                    for number in range(2):
                        self.heartbeat(f"wide-{number}")
                self.turn()
            except Exception as trouble:
                self.trouble = trouble
            self.ended.wait(0.5)

    def heartbeat(self, name: str) -> None:
        path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}",
        }
        if self.patch(f"{path}/{name}", {"spec": spec}) == 404:
            self.api("POST", path, {"metadata": {"name": name}, "spec": spec})
        # A kubelet that starts says that it is ready, and keeps saying so.
        row = {"conditions": [{**condition("Ready"), "lastHeartbeatTime": now()}]}
        self.patch(f"/api/v1/nodes/{name}/status", {"status": row}, "strategic-merge")

    def patch(self, path: str, body: Object, how: str = "merge") -> int:
        return self.api("PATCH", path, body, f"application/{how}-patch+json")[0]

    def turn(self) -> None:
        found = self.api.items("/api/v1/pods")
        spaces: dict[str, list[Object]] = defaultdict(list)
        for pod in found:
            spaces[pod["metadata"]["namespace"]].append(pod)
            if pod["spec"].get("nodeName", "").startswith("wide-"):
                self.keep(pod)
        self.pods = spaces
        for item in self.api.items("/api/v1/persistentvolumeclaims"):
            chosen = (item["metadata"].get("annotations") or {}).get("volume.kubernetes.io/selected-node")
            if item["status"].get("phase") == "Pending" and chosen and not item["spec"].get("volumeName"):
                self.provision(item)

    def keep(self, pod: Object) -> None:
        meta, phase = pod["metadata"], pod["status"].get("phase")
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            self.api("DELETE", path, {"gracePeriodSeconds": 0})
        elif phase == "Pending":
            self.since[meta["uid"]] = time.monotonic()
            rows = [condition("Ready"), condition("ContainersReady"), condition("Initialized")]
            status = {"phase": "Running", "startTime": now(), "podIP": "10.1.2.3", "podIPs": [{"ip": "10.1.2.3"}]}
            states = self.containers(pod, {"running": {"startedAt": now()}}, ready=True)
            self.patch(f"{path}/status", {"status": {**status, "conditions": rows, **states}}, "strategic-merge")
        elif (
            phase == "Running"
            and ends(pod)
            and time.monotonic() - self.since.get(meta["uid"], 0.0) > RUNS
            and self.has_peers(meta)
        ):
            done = {"exitCode": 0, "reason": "Completed", "startedAt": now(), "finishedAt": now()}
            states = self.containers(pod, {"terminated": done, "running": None}, ready=False)
            rows = [condition("Ready", "False"), condition("ContainersReady", "False")]
            self.patch(
                f"{path}/status", {"status": {"phase": "Succeeded", "conditions": rows, **states}}, "strategic-merge"
            )

    def has_peers(self, meta: Object) -> bool:
        """Whether all pods of its training job have run: a launcher or a master does not end without its workers."""
        labels, space = meta.get("labels") or {}, meta["namespace"]
        name, by = labels.get(JOB_NAME), TRAINING.get(labels.get("training.kubeflow.org/operator-name"))
        if name is None or by is None:
            return True
        path, field_ = by
        status, job = self.api("GET", f"{path.format(space)}/{name}")
        spec = job.get("spec") or {}
        if status >= 300 or spec.get("elasticPolicy"):
            return True
        wanted = sum((role or {}).get("replicas", 1) for role in (spec.get(field_) or {}).values())
        pods = [pod for pod in self.pods.get(space, []) if (pod["metadata"].get("labels") or {}).get(JOB_NAME) == name]
        return sum(pod["status"].get("phase") in ("Running", "Succeeded") for pod in pods) >= wanted

    def containers(self, pod: Object, state: Object, *, ready: bool) -> Object:
        same = {"restartCount": 0, "imageID": "", "ready": ready, "started": ready, "state": state}
        return {
            "containerStatuses": [
                {"name": row["name"], "image": row["image"], **same} for row in pod["spec"]["containers"]
            ]
        }

    def provision(self, item: Object) -> None:
        meta = item["metadata"]
        named = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
        }
        spec = {
            "capacity": item["spec"]["resources"]["requests"],
            "accessModes": item["spec"]["accessModes"],
            "claimRef": {**named, "uid": meta["uid"]},
            "storageClassName": item["spec"].get("storageClassName"),
            "persistentVolumeReclaimPolicy": "Delete",
            "hostPath": {"path": "/nowhere"},
        }
        self.api("POST", "/api/v1/persistentvolumes", {"metadata": {"name": f"pv-{meta['uid']}"}, "spec": spec})


JOB_NAME = "training.kubeflow.org/job-name"
TRAINING = {
    "mpi-operator": ("/apis/kubeflow.org/v2beta1/namespaces/{}/mpijobs", "mpiReplicaSpecs"),
    "pytorchjob-controller": ("/apis/kubeflow.org/v1/namespaces/{}/pytorchjobs", "pytorchReplicaSpecs"),
}
"""By the operator: where its jobs are, and which field has their roles."""


def ends(pod: Object) -> bool:
    """Whether its program ends by itself: not what serves."""
    owner = next((row["kind"] for row in pod["metadata"].get("ownerReferences", ()) if row.get("controller")), "")
    worker = pod["metadata"].get("labels", {}).get("training.kubeflow.org/job-role") == "worker"
    return owner not in SERVING and pod["spec"].get("restartPolicy") != "Always" and not (worker and owner == "MPIJob")


def condition(kind: str, status: str = "True") -> Object:
    return {"type": kind, "status": status, "reason": "Played", "lastTransitionTime": now()}


def now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"


@dataclass
class Seen:
    """What became of the documents of one scene."""

    outcome: str
    """came, waited (and came), asleep (nothing is asked for until somebody resumes it), refused, failed, or stuck."""
    words: list[str] = field(default_factory=list)
    seconds: float = 0.0


def seen(api: Api, keeper: Keeper, namespace: str, documents: list[Object]) -> Seen:
    """Create the documents as they stand in the file, and watch until everything is there or nothing moves any more."""
    begun = time.monotonic()
    refusals, made = [], []
    for item in documents:
        status, said = api.create(item, namespace)
        if status >= 300:
            refusals.append(f"{item.get('kind')} {item.get('metadata', {}).get('name')}: {said}")
        else:
            made.append(f"{api.place(item, namespace)}/{item['metadata']['name']}")
            if item["kind"] in REMEMBERED:
                settle(api, namespace)
    if refusals:
        return Seen("refused", refusals, time.monotonic() - begun)
    changed, before, patience = time.monotonic(), "", QUIET
    timed = any(item["kind"] in ("CronJob", "CronWorkflow") for item in documents)
    while True:
        objects = [api("GET", path)[1] for path in made]
        states = [state(api, namespace, item) for item in objects]
        if any(each == "failed" for each in states):
            return Seen("failed", [*endings(objects), *troubles(api, namespace)], time.monotonic() - begun)
        pods = keeper.pods.get(namespace, [])
        if "asleep" in states and all(each in ("came", "asleep") for each in states):
            return Seen("asleep", [], time.monotonic() - begun)
        if all(each == "came" for each in states):
            words = [line for line in troubles(api, namespace) if not brought_later(line, documents)]
            return Seen("waited" if words else "came", words, time.monotonic() - begun)
        looks = json.dumps([states, [(pod["metadata"]["name"], pod["status"].get("phase")) for pod in pods]])
        if looks != before:
            before, changed = looks, time.monotonic()
        elapsed, still = time.monotonic() - begun, time.monotonic() - changed
        if (
            still > patience
            and patience == QUIET
            and any("exceeded quota" in line for line in troubles(api, namespace))
        ):
            patience = 2.5 * QUIET  # controllers try again after 1, 2, 4, 8, 16 … seconds
        if (still > patience and elapsed > (MINUTE if timed else 0)) or elapsed > LONGEST + (MINUTE if timed else 0):
            words = [
                *troubles(api, namespace),
                *(f"{item['kind']}: {each}" for item, each in zip(objects, states, strict=True) if each != "came"),
            ]
            return Seen("stuck", words, elapsed)
        time.sleep(1.0)


def settle(api: Api, namespace: str) -> None:
    """Until every quota of the namespace has been counted once."""
    for _ in range(100):
        quotas = api("GET", f"/api/v1/namespaces/{namespace}/resourcequotas")[1].get("items", [])
        if all(item.get("status", {}).get("hard") == item["spec"]["hard"] for item in quotas):
            break
        time.sleep(0.1)
    time.sleep(0.3)


def state(api: Api, namespace: str, item: Object) -> str:
    """came, asleep, failed, or what is still missing."""
    kind, group = item.get("kind"), str(item.get("apiVersion")).rpartition("/")[0]
    spec, status = item.get("spec") or {}, item.get("status") or {}
    queued = "kueue.x-k8s.io/queue-name" in (item["metadata"].get("labels") or {})
    if (spec.get("suspend") or spec.get("paused") or (spec.get("runPolicy") or {}).get("suspend")) and not queued:
        return "asleep"
    true = {row["type"] for row in status.get("conditions") or () if row["status"] == "True"}
    if kind == "Pod":
        return {"Running": "came", "Succeeded": "came", "Failed": "failed"}.get(str(status.get("phase")), "not running")
    if kind in ("Deployment", "ReplicaSet", "StatefulSet"):
        synced = status.get("observedGeneration", 0) >= item["metadata"]["generation"]
        return "came" if synced and status.get("readyReplicas", 0) >= spec.get("replicas", 1) else "not ready"
    if kind == "DaemonSet":
        wanted = status.get("desiredNumberScheduled", 0)
        synced = status.get("observedGeneration", 0) >= item["metadata"]["generation"]
        if synced and not wanted:
            return "asleep"  # no node is one of its own
        return "came" if synced and status.get("numberReady", 0) >= wanted else "not ready"
    if kind == "CronJob":
        return "came" if status.get("lastSuccessfulTime") else "no run has ended"
    if kind == "CronWorkflow":
        said = "; ".join(f"{row['type']}: {row['message']}" for row in status.get("conditions") or ())
        return "came" if status.get("succeeded") else f"no run has ended; {said}"
    if kind == "Workflow":
        phase = str(status.get("phase"))
        return {"Succeeded": "came", "Failed": "failed", "Error": "failed"}.get(
            phase, f"{phase}: {status.get('message', '')}"
        )
    if group == "batch.volcano.sh":
        phase = str((status.get("state") or {}).get("phase"))
        return {"Completed": "came", "Failed": "failed", "Aborted": "failed"}.get(phase, phase)
    if kind in ("Job", "JobSet", "MPIJob", "PyTorchJob", "TrainJob"):
        if true & {"Complete", "Completed", "Succeeded"}:
            return "came"
        return "failed" if "Failed" in true else "has not ended"
    return "came"


def endings(objects: list[Object]) -> list[str]:
    """What objects say of their own failure."""
    rows = [(item, row) for item in objects for row in (item.get("status") or {}).get("conditions") or ()]
    said = [
        f"{item['kind']}: {row.get('reason')}: {row.get('message')}" for item, row in rows if row["type"] == "Failed"
    ]
    return [
        *said,
        *(
            f"{item['kind']}: {item['status'].get('message')}"
            for item in objects
            if (item.get("status") or {}).get("message")
        ),
    ]


def troubles(api: Api, namespace: str) -> list[str]:
    """Refusals and waits that controllers, the scheduler and Kueue have reported, each once."""
    return list(dict.fromkeys(_troubles(api, namespace)))


def _troubles(api: Api, namespace: str) -> Iterator[str]:
    root = f"/api/v1/namespaces/{namespace}"
    for event in api("GET", f"{root}/events")[1].get("items", []):
        said = str(event.get("message"))
        # Kueue's own cache may not yet know the owner of a pod.
        passing = '"mpod.kb.io" denied' in said and "not found" in said
        passing = (
            passing or "object has been modified" in said or "already exists" in said or "being terminated" in said
        )
        if (
            event.get("type") != "Normal"
            and not passing
            and (any(word in said for word in REFUSING) or event.get("reason") in ("FailedCreate", "FailedScheduling"))
        ):
            if event["reason"] == "FailedScheduling" and bound_after_all(said):
                continue
            yield f"{event['involvedObject'].get('kind')}: {event['reason']}: {said}"
    for item in api("GET", f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{namespace}/workloads")[1].get("items", []):
        for row in (item.get("status") or {}).get("conditions") or ():
            if row["type"] == "QuotaReserved" and row["status"] == "False" and row.get("reason") in WAITING:
                yield f"Workload: {row['reason']}: {row['message']}"
    for item in api("GET", f"/apis/argoproj.io/v1alpha1/namespaces/{namespace}/workflows")[1].get("items", []):
        for node in ((item.get("status") or {}).get("nodes") or {}).values():
            if node.get("message") and node.get("phase") in ("Pending", "Error", "Failed"):
                yield f"Workflow: {node.get('phase')}: {node.get('message')}"


def brought_later(said: str, documents: list[Object]) -> bool:
    """Whether something was missing for a moment only because it stands further down in the file."""
    names = (f'"{item["metadata"]["name"]}"' for item in documents if item.get("metadata", {}).get("name"))
    return ("not found" in said or "no PriorityClass" in said) and any(
        name in said or name.strip('"') + " was found" in said for name in names
    )


def bound_after_all(said: str) -> bool:
    """What the scheduler says of a pod that comes a moment before its claim: no wait of the document's."""
    return ("persistentvolumeclaim" in said and "not found" in said) or "is out of sync" in said
