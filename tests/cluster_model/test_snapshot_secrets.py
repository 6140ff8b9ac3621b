"""Finding 15: a snapshot holds no secret, and of other tenants only what a check reads.

Every text of the objects below is a mark. What is left of them in the files of a snapshot is listed field by field.

Tests gpuflow/cli/snapshot.py, gpuflow/cluster/fields.py and gpuflow/cluster/tenants.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuflow.checker.run import check
from gpuflow.cli.main import main
from gpuflow.cluster import Cluster, live, read_cluster
from gpuflow.cluster.fields import SHAPES, keep_checked_fields
from gpuflow.cluster.kinds import SOURCES
from gpuflow.cluster.live import read_live
from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.whole_scenes import manifest, node
from tests.cluster_model.test_live import CORE, Played

MARK = "MARKED"


def marks(tree: Any, path: str = "") -> Iterator[str]:
    """Where marks are, with `*` for the items of lists and for the keys of free maps."""
    if isinstance(tree, dict):
        for key, part in tree.items():
            at = f"{path}.*" if MARK in key else f"{path}.{key}"
            if MARK in key:
                yield at
            yield from marks(part, at)
    elif isinstance(tree, list):
        for part in tree:
            yield from marks(part, f"{path}[]")
    elif isinstance(tree, str) and MARK in tree:
        yield path


def mark(what: str) -> str:
    return f"{MARK}-{what}"


RESOURCES = {"requests": {"cpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
CONTAINER = {
    "name": mark("container"), "image": mark("image"), "command": [mark("command")], "args": [mark("args")],
    "workingDir": mark("dir"), "resources": RESOURCES, "stdin": True,
    "env": [{"name": mark("env"), "value": mark("value")}], "envFrom": [{"secretRef": {"name": mark("secret")}}],
    "ports": [{"name": mark("port"), "containerPort": 80, "hostPort": 80, "protocol": "TCP"}],
    "livenessProbe": {"exec": {"command": [mark("probe")]}}, "lifecycle": {"preStop": {"exec": {"command": [MARK]}}},
    "volumeMounts": [{"name": mark("volume"), "mountPath": mark("mount"), "subPath": mark("sub")}],
    "securityContext": {"seLinuxOptions": {"user": MARK}}, "terminationMessagePath": MARK,
}  # fmt: skip
VOLUMES = [
    {"name": mark("v"), "csi": {"volumeAttributes": {MARK: MARK}, "nodePublishSecretRef": {"name": MARK}}},
    {"name": mark("v"), "flexVolume": {"driver": MARK, "options": {MARK: MARK}}},
    {"name": mark("v"), "rbd": {"pool": "p", "image": "i", "keyring": MARK, "user": MARK, "monitors": ["m"]}},
    {"name": mark("v"), "gitRepo": {"repository": f"https://me:{MARK}@git.example.com"}},
    {"name": mark("v"), "nfs": {"server": MARK, "path": MARK}},
    {"name": mark("v"), "hostPath": {"path": MARK}},
    {"name": mark("v"), "secret": {"secretName": MARK}},
    {"name": mark("v"), "configMap": {"name": MARK}},
    {"name": mark("v"), "projected": {"sources": [{"secret": {"name": MARK}}]}},
    {"name": mark("v"), "azureFile": {"secretName": MARK, "shareName": MARK}},
    {"name": mark("v"), "persistentVolumeClaim": {"claimName": mark("claim")}},
    {
        "name": mark("v"),
        "ephemeral": {
            "volumeClaimTemplate": {
                "metadata": {"labels": {MARK: MARK}, "annotations": {MARK: MARK}},
                "spec": {"storageClassName": "fast", "resources": RESOURCES, "dataSource": {"name": MARK}},
            }
        },
    },
]  # fmt: skip
POD_SPEC = {
    "containers": [CONTAINER], "initContainers": [CONTAINER], "ephemeralContainers": [CONTAINER], "volumes": VOLUMES,
    "serviceAccountName": MARK, "imagePullSecrets": [{"name": MARK}], "hostname": MARK, "subdomain": MARK,
    "hostAliases": [{"ip": MARK, "hostnames": [MARK]}], "dnsConfig": {"searches": [MARK]}, "nodeName": "n1",
    "nodeSelector": {"zone": "a"}, "priorityClassName": "high", "securityContext": {"sysctls": [{"name": MARK}]},
    "resourceClaims": [{"name": mark("device"), "resourceClaimName": MARK}],
}  # fmt: skip
CONDITION = {"type": "Ready", "status": "True", "reason": "Because", "message": mark("message")}
METADATA = {
    "name": mark("name"), "namespace": "others", "generateName": MARK, "uid": MARK, "selfLink": MARK,
    "labels": {mark("key"): mark("label"), "app": "asked-for", "kueue.x-k8s.io/queue-name": "lq",
               "kueue.x-k8s.io/pod-group-name": mark("job")},
    "annotations": {mark("key"): MARK, "kueue.x-k8s.io/note": MARK, "gpuflow.dev/note": MARK},
    "ownerReferences": [{"kind": "Job", "name": MARK, "uid": MARK, "apiVersion": "batch/v1"}],
    "managedFields": [{"manager": MARK}], "finalizers": [MARK],
}  # fmt: skip
DEVICES = {
    "devices": {
        "requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "note": MARK}}],
        "config": [{"opaque": {"driver": "d", "parameters": {"token": MARK}}}],
    }
}
OBJECTS: dict[str, dict[str, Any]] = {
    "Pod": {
        "metadata": METADATA, "spec": POD_SPEC,
        "status": {
            "phase": "Running", "message": MARK, "podIP": MARK, "conditions": [CONDITION], "nominatedNodeName": MARK,
            "containerStatuses": [{"name": mark("container"), "image": MARK, "imageID": MARK, "resources": RESOURCES}],
        },
    },
    "Workload": {
        "metadata": METADATA,
        "spec": {
            "queueName": "lq",
            "podSets": [{"name": mark("set"), "count": 1, "topologyRequest": {"podSetGroupName": MARK},
                         "template": {"metadata": METADATA, "spec": POD_SPEC}}],
        },
        "status": {
            "conditions": [CONDITION],
            "admissionChecks": [
                {"name": "c", "state": "Ready", "message": MARK, "podSetUpdates": [{"annotations": {MARK: MARK}}]}
            ],
            "admission": {"clusterQueue": "cq", "podSetAssignments": [
                {"name": "main", "topologyAssignment": {"levels": [MARK]}, "resourceUsage": {"cpu": "1"}}]},
            "nominatedClusterNames": [MARK],
        },
    },
    "LocalQueue": {
        "metadata": {**METADATA, "name": "lq"},
        "spec": {"clusterQueue": "cq"},
        "status": {"conditions": [CONDITION], "flavors": [{"name": MARK}]},
    },
    "Node": {
        "metadata": {"name": "n1", "labels": {"zone": "a"}, "annotations": {MARK: MARK}},
        "spec": {"providerID": MARK, "podCIDR": MARK, "taints": [{"key": "k", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "1"}, "addresses": [{"address": MARK}], "images": [{"names": [MARK]}],
                   "conditions": [CONDITION], "nodeInfo": {"machineID": MARK}, "volumesInUse": [MARK]},
    },
    "Namespace": {"metadata": {"name": "others", "labels": {mark("key"): MARK}, "annotations": {MARK: MARK}}},
    "StorageClass": {
        "metadata": {"name": "s", "annotations": {MARK: MARK}},
        "provisioner": "p", "parameters": {MARK: MARK}, "mountOptions": [f"password={MARK}"],
    },
    "PersistentVolume": {
        "metadata": {"name": "v", "annotations": {MARK: MARK}},
        "spec": {"claimRef": {"namespace": "others", "name": MARK}, "csi": {"volumeHandle": MARK},
                 "nfs": {"path": MARK}, "mountOptions": [MARK], "storageClassName": "s"},
        "status": {"phase": "Bound", "message": MARK},
    },
    "PriorityClass": {"metadata": {"name": "high"}, "value": 1, "description": MARK},
    "ClusterQueue": {
        "metadata": {"name": "cq", "annotations": {MARK: MARK}},
        "spec": {"resourceGroups": [], "namespaceSelector": {"matchLabels": {"app": "asked-for"}}},
        "status": {"conditions": [CONDITION], "pendingWorkloadsStatus": {"clusterQueuePendingWorkload": [MARK]}},
    },
    "AdmissionCheck": {
        "metadata": {"name": "c"}, "spec": {"controllerName": "k", "parameters": {"name": MARK}},
        "status": {"conditions": [CONDITION]},
    },
    "NodePool": {
        "metadata": {"name": "gpu"},
        "spec": {"template": {"metadata": {"annotations": {MARK: MARK}}, "spec": {"nodeClassRef": {"name": MARK}}}},
    },
    "ValidatingAdmissionPolicy": {
        "metadata": {"name": "policy"},
        "spec": {
            "validations": [{"expression": f"object == '{MARK}'", "message": MARK}],
            "variables": [{"expression": MARK}],
            "matchConditions": [{"name": "c", "expression": MARK}], "paramKind": {"kind": MARK},
            "matchConstraints": {"resourceRules": [{"operations": ["CREATE"], "apiGroups": [""], "resources": ["pods"],
                                                    "resourceNames": [MARK]}]},
        },
    },
    "MutatingWebhookConfiguration": {
        "metadata": {"name": "hook"},
        "webhooks": [{"name": "a.b.c", "clientConfig": {"url": f"https://{MARK}@x", "caBundle": MARK},
                      "matchConditions": [{"expression": MARK}], "rules": []}],
    },
    "HierarchicalResourceQuota": {"metadata": {"name": "h", "namespace": "others"}, "spec": {"hard": {MARK: MARK}}},
    "Queue": {"metadata": {"name": "q"}, "spec": {"parent": MARK}},
    "RuntimeClass": {"metadata": {"name": "r"}, "handler": "runc"},
    "PersistentVolumeClaim": {
        "metadata": {"name": "own", "namespace": "ns", "annotations": {MARK: MARK}},
        "spec": {"dataSource": {"name": MARK}, "selector": {"matchLabels": {MARK: MARK}}},
        "status": {"conditions": [CONDITION], "phase": "Bound"},
    },
    "ServiceAccount": {
        "metadata": {"name": "own", "namespace": "ns", "labels": {MARK: MARK}, "annotations": {"eks/role": MARK}},
        "secrets": [{"name": MARK}], "imagePullSecrets": [{"name": MARK}], "automountServiceAccountToken": True,
    },
    "PodDisruptionBudget": {
        "metadata": {"name": "own", "namespace": "ns", "annotations": {MARK: MARK}},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"team": "ours"}}},
        "status": {"disruptionsAllowed": 1, "disruptedPods": {MARK: MARK}, "conditions": [CONDITION]},
    },
    "DaemonSet": {
        "metadata": METADATA,
        "spec": {"selector": {"matchLabels": {MARK: MARK}}, "updateStrategy": {"type": MARK},
                 "template": {"metadata": METADATA, "spec": POD_SPEC}},
        "status": {"conditions": [CONDITION]},
    },
    "CSIDriver": {"metadata": {"name": "d"}, "spec": {"tokenRequests": [{"audience": MARK}], "storageCapacity": True}},
    "CSINode": {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "d", "nodeID": MARK}]}},
    "CSIStorageCapacity": {
        "metadata": {**METADATA, "name": "csisc-1"}, "storageClassName": "s", "capacity": "1Ti",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
    },
    "DeviceClass": {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "true"}}],
                    "config": [{"opaque": {"driver": MARK, "parameters": {MARK: MARK}}}]}},
    "DeviceTaintRule": {"metadata": {"name": "t", "annotations": {MARK: MARK}},
                        "spec": {"deviceSelector": {"pool": "n1"}, "taint": {"key": "k", "effect": "NoExecute"}},
                        "status": {"conditions": [CONDITION]}},
    "ResourceSlice": {
        "metadata": {"name": "r1", "ownerReferences": [{"kind": "Node", "name": MARK}]},
        "spec": {"driver": "gpu.nvidia.com", "nodeName": "n1", "pool": {"name": "n1", "generation": 1}, "note": MARK,
                 "devices": [{"name": "gpu-0", "note": MARK, "attributes": {"model": {"string": "H100"}}}]},
    },
    "ResourceClaim": {
        "metadata": METADATA, "spec": DEVICES,
        "status": {
            "allocation": {"devices": {"results": [{"request": "r", "driver": "d", "pool": "n1", "device": "gpu-0"}],
                                       "config": [{"opaque": {"parameters": {MARK: MARK}}}]}},
            "reservedFor": [{"resource": "pods", "name": MARK, "uid": MARK}],
            "devices": [{"device": "gpu-0", "data": {MARK: MARK}, "networkData": {"ips": [MARK]}}],
        },
    },
    "ResourceClaimTemplate": {
        "metadata": {"name": "own", "namespace": "ns"},
        "spec": {"metadata": {"annotations": {MARK: MARK}}, "spec": DEVICES},
    },
    "ValidatingAdmissionPolicyBinding": {
        "metadata": {"name": "binding", "annotations": {MARK: MARK}},
        "spec": {"policyName": "policy", "validationActions": ["Audit"], "paramRef": {"name": MARK}},
    },
}  # fmt: skip
SURVIVES: dict[str, set[str]] = {
    **{kind: set() for kind in OBJECTS},
    "PersistentVolumeClaim": {".spec.selector.matchLabels.*"},
    "Workload": {".status.admission.podSetAssignments[].topologyAssignment.levels[]"},
}
"""Which marks stay: of objects of other namespaces the keys of labels that a Topology names, which is shown anyway; and
which volumes the namespace's own claims want."""
OWN = {
    ".metadata.name", ".metadata.labels.*", ".metadata.labels.*.*", ".spec.containers[].name",
    ".spec.initContainers[].name", ".spec.ephemeralContainers[].name", ".spec.volumes[].name",
    ".spec.volumes[].persistentVolumeClaim.claimName", ".status.containerStatuses[].name",
    ".metadata.labels.kueue.x-k8s.io/pod-group-name", ".spec.resourceClaims[].name",
    ".spec.resourceClaims[].resourceClaimName",
}  # fmt: skip
"""Which marks stay of a pod of the namespace itself: names and labels."""


def lists(*own: dict[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The lists of an API server with one marked object of each kind, and pods of our own."""
    found: dict[str, list[dict[str, Any]]] = dict(CORE)
    for source in SOURCES:
        items = [OBJECTS[source.kind]] if source.kind in OBJECTS else []
        found[source.path(source.versions[0], "ns")] = items + (list(own) if source.kind == "Pod" else [])
    return found


def taken(monkeypatch: pytest.MonkeyPatch, folder: Path, served: dict[str, list[dict[str, Any]]]) -> None:
    monkeypatch.setattr(live, "read_live", lambda namespace, *_, **__: read_live(namespace, reader=Played(served)))
    assert main(["snapshot", "-o", str(folder), "--namespace", "ns"]) == 0


def test_no_mark_of_any_object_reaches_a_snapshot(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert all(MARK in str(body) for kind, body in OBJECTS.items() if kind != "RuntimeClass")
    taken(monkeypatch, tmp_path, lists())
    for kind in OBJECTS:
        (body,) = yaml.safe_load_all((tmp_path / f"{kind.lower()}.yaml").read_text())
        assert body["kind"] == kind
        assert set(marks(body)) == SURVIVES[kind], kind
    marked = {kind.lower() for kind, places in SURVIVES.items() if places}
    hushed = [file for file in tmp_path.iterdir() if file.stem not in marked]
    assert not any(MARK in file.read_text() for file in hushed)


def test_every_kind_that_a_snapshot_lists_is_among_the_marked_ones() -> None:
    twins = {"ResourceQuota", "LimitRange", "Cohort", "ResourceFlavor", "Topology", "WorkloadPriorityClass",
             "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration"}  # fmt: skip
    assert {source.kind for source in SOURCES} - OBJECTS.keys() == twins
    assert {source.kind for source in SOURCES} <= SHAPES.keys()


def test_of_a_pod_of_the_namespace_itself_names_and_labels_stay(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = {**OBJECTS["Pod"], "metadata": {**METADATA, "namespace": "ns"}}
    taken(monkeypatch, tmp_path, lists(own))
    bodies = list(yaml.safe_load_all((tmp_path / "pod.yaml").read_text()))
    (mine,) = (body for body in bodies if body["metadata"]["namespace"] == "ns")
    assert set(marks(mine)) <= OWN
    assert mine["metadata"]["name"] == mark("name")


def test_what_a_check_reads_of_other_tenants_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    taken(monkeypatch, tmp_path, lists())
    (pod,) = read_cluster(str(tmp_path)).of("Pod")
    assert pod.body["metadata"]["labels"] == {"app": "asked-for", "kueue.x-k8s.io/queue-name": "lq"}
    assert pod.body["metadata"]["ownerReferences"] == [{"apiVersion": "batch/v1", "kind": "Job"}]
    assert pod.body["spec"]["containers"][0]["resources"] == RESOURCES
    assert pod.body["spec"]["containers"][0]["name"] == pod.body["status"]["containerStatuses"][0]["name"]
    (disk,) = (volume["rbd"] for volume in pod.body["spec"]["volumes"] if "rbd" in volume)
    assert disk == {"pool": "p", "image": "i", "monitors": ["m"]}
    ephemeral = pod.body["spec"]["volumes"][-1]["ephemeral"]["volumeClaimTemplate"]["spec"]
    assert ephemeral == {"storageClassName": "fast", "resources": RESOURCES}


def test_what_refers_to_a_name_of_another_tenant_still_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Devices of a container, and what Kueue has assigned to a pod set, are found by names that are now numbers."""
    slice_of = "kueue.x-k8s.io/workload-slice-replacement-for"
    device = {"name": mark("c"), "resources": {"claims": [{"name": mark("gpu"), "request": "r"}]}}
    spec = {"containers": [device], "resourceClaims": [{"name": mark("gpu"), "resourceClaimTemplateName": MARK}]}
    sets = [{"name": mark(name), "count": 1, "template": {"spec": spec}} for name in ("a", "b")]
    body = {
        "metadata": {"name": mark("w"), "namespace": "others", "annotations": {slice_of: mark("w0")}},
        "spec": {"queueName": "lq", "podSets": sets},
        "status": {
            "admission": {"clusterQueue": "cq", "podSetAssignments": [{"name": mark("b"), "count": 1}]},
            "reclaimablePods": [{"name": mark("a"), "count": 1}],
        },
    }
    (path,) = (source.path(source.versions[0], "ns") for source in SOURCES if source.kind == "Workload")
    taken(monkeypatch, tmp_path, {**lists(), path: [body]})
    assert MARK not in (tmp_path / "workload.yaml").read_text()
    (workload,) = read_cluster(str(tmp_path)).of("Workload")
    first, second = workload.body["spec"]["podSets"]
    assert workload.body["status"]["reclaimablePods"] == [{"name": first["name"], "count": 1}]
    assert workload.body["status"]["admission"]["podSetAssignments"] == [{"name": second["name"], "count": 1}]
    assert slice_of in workload.body["metadata"]["annotations"]
    pod = first["template"]["spec"]
    (claim,) = pod["containers"][0]["resources"]["claims"]
    assert claim == {"name": pod["resourceClaims"][0]["name"], "request": "r"}


def test_names_are_the_same_in_two_snapshots_and_tell_two_pods_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = {**OBJECTS["Pod"], "metadata": {**METADATA, "name": mark("another")}}
    for folder in ("a", "b"):
        taken(monkeypatch, tmp_path / folder, lists(other))
    first, second = ((tmp_path / folder / "pod.yaml").read_text() for folder in ("a", "b"))
    assert first == second
    assert len({item.name for item in read_cluster(str(tmp_path / "a")).of("Pod")}) == 2


def test_every_kind_that_is_listed_has_its_fields_named() -> None:
    assert {source.kind for source in SOURCES} | {"Configuration"} == SHAPES.keys()


@pytest.mark.parametrize("kind", SHAPES)
def test_a_field_that_is_not_named_is_gone_at_every_depth(kind: str) -> None:
    body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "n"}, **_filled(SHAPES[kind])}
    assert "unnamed" in str(body)
    assert MARK not in str(keep_checked_fields(kind, body))


def _filled(shape: Any) -> Any:
    """An object with every field of a shape, and one more in each map."""
    if isinstance(shape, dict):
        return {**{key: _filled(part) for key, part in shape.items()}, "unnamed": {MARK: [MARK]}}
    if isinstance(shape, list):
        return [_filled(shape[0])]
    return {"map": {"a": "b"}, "texts": ["a"], "any": {}}.get(shape, "a")


def test_a_field_of_a_quota_that_nobody_knows_yet_is_kept_by_name() -> None:
    body = {"metadata": {"name": "cq"}, "spec": {"resourceGroups": [], "newRule": {"secret": MARK}}}
    assert keep_checked_fields("ClusterQueue", body)["spec"] == {"resourceGroups": [], "newRule": None}


APART = """apiVersion: gpuflow/v1
kind: Pipeline
name: p
steps:
  a:
    image: i
    cpu: 1
    memory: 1Gi
    command: [x]
    kubernetes:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: zone, namespaces: [others], labelSelector: {matchLabels: {KEY: x}}}
"""


@pytest.mark.parametrize(("key", "labels", "said"), [("team", {"app"}, 1), ("app", {"app"}, 0), ("team", None, 0)])
def test_labels_that_a_pipeline_asks_for_and_a_snapshot_lacks_are_said(key: str, labels: Any, said: int) -> None:
    home = manifest({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ns"}})
    kinds = frozenset(source.kind for source in SOURCES)
    cluster = Cluster("c", (home, manifest(node("n", labels={"zone": "a"}))), kinds, namespaces=("ns",))
    cluster = replace(cluster, labels=None if labels is None else frozenset(labels))
    demand = demand_of(loads(APART.replace("KEY", key), "p.yaml"), Site.load("nvidia"), "none")
    report = check(demand, cluster, "ns")
    found = [finding for finding in report.findings if finding.code == "GF577"]
    assert len(found) == said
    assert (report.verdict == "unknown") >= bool(said)
