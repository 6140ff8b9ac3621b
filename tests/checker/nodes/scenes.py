"""Short ways to write nodes and pods, and scenes with what kube-scheduler says of them."""

from __future__ import annotations

from typing import Any, NamedTuple

Manifest = dict[str, Any]

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
GPU = "nvidia.com/gpu"


def node(name: str, labels: Manifest | None = None, spec: Manifest | None = None, **resources: str) -> Manifest:
    """A node of 16 cpus; resources by name, with `gpu` for short."""
    offered = {"cpu": "16", "memory": "64Gi", "pods": "110", **_spelled(resources)}
    return {
        "metadata": {"name": name, "labels": {HOST: name, **(labels or {})}},
        "spec": spec or {},
        "status": {"allocatable": offered},
    }


def group(name: str, most: int, labels: Manifest | None = None, **resources: str) -> Manifest:
    """The template of a node group."""
    manifest = node(name, labels, None, **resources)
    manifest["metadata"]["annotations"] = {"gpuflow.dev/node-group-max": str(most)}
    return manifest


def pod(requests: Manifest | None = None, labels: Manifest | None = None, name: str = "p", **spec: Any) -> Manifest:
    """A pod of one container; requests by name, with `gpu` for short."""
    container: Manifest = {"name": "main", "image": "registry.example.com/x:1"}
    container["resources"] = {"requests": _spelled(requests or {}), "limits": _devices(_spelled(requests or {}))}
    return {
        "metadata": {"name": name, "namespace": "ns", "labels": labels or {}},
        "spec": {"containers": [container], **spec},
    }


def bound(node: str, requests: Manifest | None = None, labels: Manifest | None = None, **spec: Any) -> Manifest:
    """A pod that runs on a node."""
    return {**pod(requests, labels, f"on-{node}", nodeName=node, **spec), "status": {"phase": "Running"}}


def with_port(manifest: Manifest, **port: Any) -> Manifest:
    manifest["spec"]["containers"][0]["ports"] = [{"containerPort": 80, **port}]
    return manifest


def apart(topology_key: str, **selector: Any) -> Manifest:
    return {"podAntiAffinity": {REQUIRED: [{"topologyKey": topology_key, "labelSelector": selector}]}}


def together(topology_key: str, **selector: Any) -> Manifest:
    return {"podAffinity": {REQUIRED: [{"topologyKey": topology_key, "labelSelector": selector}]}}


def on_nodes(*terms: Manifest) -> Manifest:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def spread(topology_key: str, **fields: Any) -> Manifest:
    return {"topologyKey": topology_key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **fields}


def _spelled(resources: Manifest) -> Manifest:
    return {GPU if name == "gpu" else name: value for name, value in resources.items()}


def _devices(resources: Manifest) -> Manifest:
    return {name: value for name, value in resources.items() if "/" in name}


class Scene(NamedTuple):
    about: str
    pod: Manifest
    nodes: list[Manifest]
    pods: list[Manifest]
    feasible: list[str]
    reasons: dict[str, list[str]]
    message: str | None
    namespaces: dict[str, dict[str, str]] = {}  # noqa: RUF012  # never changed


BUSY = [bound("a", {"gpu": "4"}), bound("a", {"gpu": "3"})]
TAINT = {"taints": [{"key": GPU, "value": "present", "effect": "NoSchedule"}]}
TOLERATION = {"key": GPU, "operator": "Exists"}
NOT_SELECTED = "node(s) didn't match Pod's node affinity/selector"
APP = {"matchLabels": {"app": "x"}}

SCENES = [
    Scene(
        "every shortage of a node is told",
        pod({"cpu": "17", "memory": "65Gi", "gpu": "1"}),
        [node("a")],
        [],
        [],
        {"a": ["Insufficient cpu", "Insufficient memory", f"Insufficient {GPU}"]},
        f"0/1 nodes are available: 1 Insufficient cpu, 1 Insufficient memory, 1 Insufficient {GPU}.",
    ),
    Scene(
        "what runs there is taken off",
        pod({"gpu": "2"}),
        [node("a", gpu="8"), node("b", gpu="8")],
        BUSY,
        ["b"],
        {"a": [f"Insufficient {GPU}"]},
        None,
    ),
    Scene(
        "reasons are sorted with their numbers, as texts",
        pod({"gpu": "1"}),
        [*(node(f"n{i:02}", gpu="0") for i in range(10)), node("x", spec=TAINT), node("y", spec=TAINT)],
        [],
        [],
        {
            **{f"n{i:02}": [f"Insufficient {GPU}"] for i in range(10)},
            "x": ["node(s) had untolerated taint(s)"],
            "y": ["node(s) had untolerated taint(s)"],
        },
        f"0/12 nodes are available: 10 Insufficient {GPU}, 2 node(s) had untolerated taint(s).",
    ),
    Scene(
        "a toleration without an effect covers all",
        pod(tolerations=[TOLERATION]),
        [node("a", spec=TAINT), node("b", spec={"taints": [{"key": "other", "effect": "NoExecute"}]})],
        [],
        ["a"],
        {"b": ["node(s) had untolerated taint(s)"]},
        None,
    ),
    Scene(
        "a taint that only prefers keeps nobody off",
        pod(),
        [node("a", spec={"taints": [{"key": "spot", "effect": "PreferNoSchedule"}]})],
        [],
        ["a"],
        {},
        None,
    ),
    Scene(
        "cordoned",
        pod(),
        [node("a", spec={"unschedulable": True})],
        [],
        [],
        {"a": ["node(s) were unschedulable"]},
        "0/1 nodes are available: 1 node(s) were unschedulable.",
    ),
    Scene(
        "selector and affinity must both hold, and numbers are compared as numbers",
        pod(
            nodeSelector={"pool": "gpu"},
            affinity=on_nodes({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["9"]}]}),
        ),
        [
            node("a", {"pool": "gpu", "cores": "10"}),
            node("b", {"cores": "10"}),
            node("c", {"pool": "gpu", "cores": "x"}),
        ],
        [],
        ["a"],
        {"b": [NOT_SELECTED], "c": [NOT_SELECTED]},
        None,
    ),
    Scene(
        "an empty affinity term matches no node",
        pod(affinity=on_nodes({})),
        [node("a")],
        [],
        [],
        {"a": [NOT_SELECTED]},
        f"0/1 nodes are available: 1 {NOT_SELECTED}.",
    ),
    Scene(
        "a value that cannot be a label matches no node",
        pod(affinity=on_nodes({"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["-1"]}]})),
        [node("a", {"cores": "8"})],
        [],
        [],
        {"a": [NOT_SELECTED]},
        f"0/1 nodes are available: 1 {NOT_SELECTED}.",
    ),
    Scene(
        "nodes by name: the others are not even asked",
        pod(
            {"cpu": "17"},
            affinity=on_nodes({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}),
        ),
        [node("a"), node("b", spec=TAINT)],
        [],
        [],
        {"a": ["Insufficient cpu"], "b": ["node(s) didn't satisfy plugin(s) [NodeAffinity]"]},
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't satisfy plugin(s) [NodeAffinity].",
    ),
    Scene(
        "two names at once",
        pod(
            affinity=on_nodes(
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]} for name in ("a", "b")]}
            )
        ),
        [node("a"), node("b")],
        [],
        [],
        {"a": ["pod affinity terms conflict"], "b": ["pod affinity terms conflict"]},
        "0/2 nodes are available: pod affinity terms conflict.",
    ),
    Scene(
        "no slot for one more pod",
        pod(),
        [node("a", pods="1")],
        [bound("a")],
        [],
        {"a": ["Too many pods"]},
        "0/1 nodes are available: 1 Too many pods.",
    ),
    Scene(
        "a node that says nothing of what it offers offers its capacity",
        pod({"cpu": "3"}),
        [{"metadata": {"name": "a"}, "status": {"capacity": {"cpu": "4", "pods": "10"}}}],
        [],
        ["a"],
        {},
        None,
    ),
    Scene(
        "limits alone are requests",
        {
            "metadata": {"name": "p", "namespace": "ns"},
            "spec": {"containers": [{"name": "main", "image": "x", "resources": {"limits": {"cpu": "17"}}}]},
        },
        [node("a")],
        [],
        [],
        {"a": ["Insufficient cpu"]},
        "0/1 nodes are available: 1 Insufficient cpu.",
    ),
    Scene(
        "host ports",
        with_port(pod(), hostPort=8080, hostIP="10.0.0.1"),
        [node("a"), node("b"), node("c")],
        [
            with_port(bound("a"), hostPort=8080),
            with_port(bound("b"), hostPort=8080, protocol="UDP"),
            with_port(bound("c"), hostPort=8080, hostIP="10.0.0.1"),
        ],
        ["b"],
        {name: ["node(s) didn't have free ports for the requested pod ports"] for name in ("a", "c")},
        None,
    ),
    Scene(
        "on the host's network every port is a host port",
        with_port(pod(hostNetwork=True)),
        [node("a")],
        [with_port(bound("a"), hostPort=80)],
        [],
        {"a": ["node(s) didn't have free ports for the requested pod ports"]},
        "0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports.",
    ),
    Scene(
        "a disk that another pod writes to",
        pod(volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "data", "readOnly": True}}]),
        [node("a"), node("b")],
        [
            bound("a", volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "data"}}]),
            bound("b", volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "data", "readOnly": True}}]),
        ],
        ["b"],
        {"a": ["node(s) had no available disk"]},
        None,
    ),
    Scene(
        "spreading: one more here would be uneven",
        pod(labels={"app": "x"}, topologySpreadConstraints=[spread(ZONE, labelSelector=APP)]),
        [node("a", {ZONE: "1"}), node("b", {ZONE: "2"}), node("c")],
        [bound("a", labels={"app": "x"})],
        ["b"],
        {
            "a": ["node(s) didn't match pod topology spread constraints"],
            "c": ["node(s) didn't match pod topology spread constraints (missing required label)"],
        },
        None,
    ),
    Scene(
        "spreading over a selector that is empty counts only the pod itself",
        pod(labels={"app": "x"}, topologySpreadConstraints=[spread(ZONE, labelSelector={})]),
        [node("a", {ZONE: "1"}), node("b", {ZONE: "2"})],
        [bound("a", labels={"app": "x"})],
        ["a", "b"],
        {},
        None,
    ),
    Scene(
        "affinity to a pod",
        pod(affinity=together(ZONE, **APP)),
        [node("a", {ZONE: "1"}), node("b", {ZONE: "1"}), node("c", {ZONE: "2"}), node("d")],
        [bound("a", labels={"app": "x"})],
        ["a", "b"],
        {name: ["node(s) didn't match pod affinity rules"] for name in ("c", "d")},
        None,
    ),
    Scene(
        "the first of its kind may go anywhere",
        pod(labels={"app": "x"}, affinity=together(ZONE, **APP)),
        [node("a", {ZONE: "1"}), node("b")],
        [],
        ["a"],
        {"b": ["node(s) didn't match pod affinity rules"]},
        None,
    ),
    Scene(
        "apart from others, and others apart from it",
        pod(labels={"app": "y"}, affinity=apart(HOST, **APP)),
        [node("a"), node("b"), node("c")],
        [bound("a", labels={"app": "x"}), bound("b", affinity=apart(HOST, matchLabels={"app": "y"}))],
        ["c"],
        {
            "a": ["node(s) didn't match pod anti-affinity rules"],
            "b": ["node(s) didn't satisfy existing pods anti-affinity rules"],
        },
        None,
    ),
    Scene(
        "namespaces by label",
        pod(
            affinity={
                "podAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": HOST,
                            "labelSelector": APP,
                            "namespaceSelector": {"matchLabels": {"team": "ml"}},
                        }
                    ]
                }
            }
        ),
        [node("a"), node("b")],
        [
            {**bound("a", labels={"app": "x"}), "metadata": {"name": "q", "namespace": "far", "labels": {"app": "x"}}},
            bound("b", labels={"app": "x"}),
        ],
        ["a"],
        {"b": ["node(s) didn't match pod affinity rules"]},
        None,
        {"far": {"team": "ml"}, "ns": {}},
    ),
    Scene(
        "a namespace selector that asks for a missing label means every namespace",
        pod(
            affinity={
                "podAffinity": {
                    REQUIRED: [
                        {
                            "topologyKey": HOST,
                            "labelSelector": APP,
                            "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]},
                        }
                    ]
                }
            }
        ),
        [node("a")],
        [{**bound("a"), "metadata": {"name": "q", "namespace": "far", "labels": {"app": "x"}}}],
        ["a"],
        {},
        None,
        {"far": {"team": "ml"}},
    ),
    Scene(
        "what the kubelet must be able to do",
        pod(hostNetwork=True, hostUsers=False),
        [
            node("a"),
            {**node("b"), "status": {**node("b")["status"], "declaredFeatures": ["UserNamespacesHostNetworkSupport"]}},
        ],
        [],
        ["b"],
        {"a": ["node(s) didn't match Pod's required features"]},
        None,
    ),
    Scene(
        "pods that are finished or leave take no room, or still do",
        pod({"cpu": "10"}),
        [node("a"), node("b")],
        [
            {**bound("a", {"cpu": "10"}), "status": {"phase": "Succeeded"}},
            {
                **bound("b", {"cpu": "10"}),
                "metadata": {"name": "q", "namespace": "ns", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            },
        ],
        ["a"],
        {"b": ["Insufficient cpu"]},
        None,
    ),
    Scene(
        "a pod that is being resized counts with the most it may have",
        pod({"cpu": "10"}),
        [node("a")],
        [
            {
                **bound("a", {"cpu": "1"}),
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        {
                            "name": "main",
                            "ready": True,
                            "restartCount": 0,
                            "image": "x",
                            "imageID": "",
                            "resources": {"requests": {"cpu": "2"}},
                            "allocatedResources": {"cpu": "7"},
                        }
                    ],
                },
            }
        ],
        [],
        {"a": ["Insufficient cpu"]},
        "0/1 nodes are available: 1 Insufficient cpu.",
    ),
]
