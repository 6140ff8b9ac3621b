"""Examples run side by side to their end, and the pods they had beside those of the spec."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from gpuflow.site import Site
from gpuflow.spec.loading import load
from gpuflow.spec.pipeline import Pipeline
from tests.cluster import nodes
from tests.cluster.layout import REAL_NODE
from tests.cluster.queues import VERSION
from tests.cluster.waiting import until
from tests.engines import build

from .additions import bare
from .examples import DEVICES, LABELS, Example, site_text
from .known import Known, pods
from .stage import CLAIM, Stage
from .standins import register

Pods = dict[str, list[dict[str, Any]]]
PATIENCE = 900.0


@dataclass(frozen=True)
class Rehearsal:
    """How a run ended, and its pods by step: those of the spec, and those that the cluster had."""

    phase: str
    message: str
    specified: Pods
    live: Pods


def rehearse(stage: Stage, examples: Sequence[Example]) -> dict[str, Rehearsal]:
    """Run every example once."""
    texts = {example.name: yaml.safe_dump(example.document(), sort_keys=False) for example in examples}
    folder = stage.folder / "examples"
    folder.mkdir()
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    pipelines = {name: load(folder / f"{name}.yaml") for name in texts}
    (folder / "site.yaml").write_text(site_text(list(pipelines.values())))
    site = Site.load(str(folder / "site.yaml"))
    stage.cluster.image(register(list(pipelines.values())))
    manifests = stage.compile(texts, (folder / "site.yaml").read_text(), "--allow-lossy")
    with equipped(stage):
        for example in examples:
            pipeline = pipelines[example.name]
            furnish(stage, pipeline, _specified(example, pipeline, site, "uid"))
            stage.start(manifests[example.name], example.arguments)
        ended = until(
            "every example to end",
            lambda: _all_ended(stage),
            timeout=PATIENCE,
            every=2.0,
            otherwise=lambda: stage.kube("get", "workflows,pods"),
        )
    found = {}
    for example in examples:
        workflow = ended[example.name]
        run, uid = workflow["metadata"]["name"], workflow["metadata"]["uid"]
        live = stage.kube.list("pod", f"workflows.argoproj.io/workflow={run}")
        pipeline = pipelines[example.name]
        specified = _by_step(defaulted(stage, _specified(example, pipeline, site, uid)), run)
        timed = {step for step, same in specified.items() if "activeDeadlineSeconds" in same[0]}
        found[example.name] = Rehearsal(
            phase=workflow["status"]["phase"],
            message=str(workflow["status"].get("message", "")),
            specified=specified,
            live=_by_step(live, run, frozenset(specified.keys() - timed if pipeline.deadline else ())),
        )
    return found


@contextlib.contextmanager
def equipped(stage: Stage) -> Iterator[None]:
    """The node with the devices and labels that the examples ask for."""
    kube = stage.cluster.kube
    nodes.add_devices(kube, REAL_NODE, DEVICES)
    kube("label", "node", REAL_NODE, "--overwrite", *(f"{key}={value}" for key, value in LABELS.items()))
    try:
        yield
    finally:
        kube("label", "node", REAL_NODE, *(f"{key}-" for key in LABELS))
        nothing: dict[str, Any] = dict.fromkeys(DEVICES)
        kube.patch_status("node", REAL_NODE, {"capacity": nothing, "allocatable": nothing})
        nodes.add_devices(kube, REAL_NODE)


def _specified(example: Example, pipeline: Pipeline, site: Site, uid: str) -> list[dict[str, Any]]:
    return list(pods(Known(pipeline, uid, example.arguments, example.made, {}), site, example.idle))


def _by_step(found: Sequence[Mapping[str, Any]], run: str, rest: frozenset[str] = frozenset()) -> Pods:
    """Pods without additions; those of the steps in `rest` have what is left of the workflow's deadline, also added."""
    result: Pods = {}
    for pod in found:
        step, left = pod["metadata"]["labels"]["gpuflow.dev/step"], bare(pod, run)
        if step in rest:
            left.pop("activeDeadlineSeconds", None)
        result.setdefault(step, []).append(left)
    in_order = {step: sorted(same, key=lambda pod: json.dumps(pod, sort_keys=True)) for step, same in result.items()}
    return dict(sorted(in_order.items()))


def defaulted(stage: Stage, specified: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The spec's pods as the API server would write them down; nothing is made."""
    objects = []
    for number, pod in enumerate(specified):
        metadata = {**pod["metadata"], "name": f"specified-{number}"}
        objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod["spec"]})
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": objects})
    answer = stage.kube("create", "--dry-run=server", "-o", "json", "-f", "-", given=given).strip()
    found, decoder = [], json.JSONDecoder()
    while answer:  # one document after the other, nothing between them
        pod, end = decoder.raw_decode(answer)
        found.append(pod)
        answer = answer[end:].strip()
    return found


def _all_ended(stage: Stage) -> dict[str, dict[str, Any]]:
    """All workflows, once they have ended; who waits for a person's yes gets it."""
    workflows = stage.workflows()
    for name, workflow in workflows.items():
        status = workflow.get("status", {})
        waiting = [node for node in status.get("nodes", {}).values() if node["type"] == "Suspend"]
        if any(node["phase"] == "Running" for node in waiting):
            _resume(stage, name)
    return workflows if all(item.get("status", {}).get("finishedAt") for item in workflows.values()) else {}


def _resume(stage: Stage, name: str) -> None:
    build.build(("argo",))
    words = [str(build.binary("argo")), "resume", name, "--namespace", stage.kube.namespace]
    environment = {**os.environ, **stage.cluster.environment()}
    subprocess.run([*stage.cluster.enter, *words], env=environment, check=True, capture_output=True)


def furnish(stage: Stage, pipeline: Pipeline, found: Sequence[Mapping[str, Any]]) -> None:
    """What these pods expect to find in their namespace: secrets, settings, volumes, accounts, classes."""
    wanted: dict[tuple[str, str], set[str]] = {}
    queues = "kueue" in stage.cluster.state["addons"]  # without Kueue its labels are labels
    for pod in found:
        for kind, name, key in (*_mentioned(pod["spec"]), *(_queueing(pod["metadata"]["labels"]) if queues else ())):
            wanted.setdefault((kind, name), set()).update({key} if key else ())
    for (kind, name), keys in sorted(wanted.items()):
        metadata: dict[str, Any] = {"name": name}
        if kind in ("Secret", "ConfigMap"):
            field = "stringData" if kind == "Secret" else "data"
            stage.kube.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, field: dict.fromkeys(keys, "x")})
        elif kind == "PersistentVolumeClaim" and name != CLAIM:
            volume, claim = stage.volume(name)
            if name in pipeline.claims:  # made anew for each run; only the volume behind it must be there
                volume["spec"]["storageClassName"] = pipeline.claims[name].storage_class
                volume["spec"]["capacity"] = {"storage": str(pipeline.claims[name].size)}
            stage.kube.apply(volume, *([] if name in pipeline.claims else [claim]))
        elif kind == "ServiceAccount":
            stage.kube.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata})
            stage.kube.apply(_reporting(stage.kube.namespace, name))
        elif kind == "Queue":
            stage.kube.apply(*_queue(stage, name))
        elif kind == "WorkloadPriorityClass":
            metadata["labels"] = stage.labels
            stage.kube.apply({"apiVersion": VERSION, "kind": kind, "metadata": metadata, "value": 1})
        elif kind == "PriorityClass":
            # Examples share one node: none may chase another off.
            rank = {"value": 1, "preemptionPolicy": "Never"}
            metadata["labels"] = stage.labels
            stage.kube.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": kind, "metadata": metadata, **rank})


def _queueing(labels: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    kinds = {"kueue.x-k8s.io/queue-name": "Queue", "kueue.x-k8s.io/priority-class": "WorkloadPriorityClass"}
    for key, kind in kinds.items():
        if key in labels:
            yield kind, labels[key], ""


def _queue(stage: Stage, name: str) -> Iterator[dict[str, Any]]:
    """A queue with room for everything that the examples ask for."""
    whole = f"{stage.kube.namespace}-{name}"
    quota = dict.fromkeys(("cpu", "memory", "ephemeral-storage", *DEVICES), "1000Gi")
    flavor = {"name": whole, "resources": [{"name": key, "nominalQuota": value} for key, value in quota.items()]}
    group = {"coveredResources": list(quota), "flavors": [flavor]}
    metadata = {"name": whole, "labels": stage.labels}
    yield {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": metadata}
    spec = {"namespaceSelector": {}, "resourceGroups": [group]}
    yield {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": metadata, "spec": spec}
    yield {"apiVersion": VERSION, "kind": "LocalQueue", "metadata": {"name": name}, "spec": {"clusterQueue": whole}}


def _reporting(namespace: str, account: str) -> dict[str, Any]:
    """The right of an account's pods to report to Argo."""
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": f"argo-executor-{account}"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "argo-executor"},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    }


REFERENCES = {
    "secretKeyRef": "Secret",
    "secretRef": "Secret",
    "configMapKeyRef": "ConfigMap",
    "configMapRef": "ConfigMap",
    "configMap": "ConfigMap",
}


def _mentioned(value: Any) -> Iterator[tuple[str, str, str]]:
    """Kind, name and key of every object that a pod's spec names."""
    if isinstance(value, list):
        for item in value:
            yield from _mentioned(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key in REFERENCES:
                yield REFERENCES[key], item["name"], item.get("key", "")
            elif key == "secret":
                yield "Secret", item["secretName"], ""
            elif key == "persistentVolumeClaim":
                yield "PersistentVolumeClaim", item["claimName"], ""
            elif key == "serviceAccountName":
                yield "ServiceAccount", item, ""
            elif key == "priorityClassName":
                yield "PriorityClass", item, ""
            else:
                yield from _mentioned(item)
