"""The ways in which a cluster takes a pod away, each on request."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import uuid
from collections.abc import Mapping
from typing import Any

from . import machine, nodes
from .cluster import Cluster
from .given import GivenCluster
from .kube import Kube
from .layout import REAL_NODE
from .pods import pod
from .waiting import until

HIGH_PRIORITY = 1_000_000
WITNESS = "witness"
# A shell that fills its memory with an endless line; it needs a pod with a memory limit.
EAT_MEMORY = ("sh", "-c", "sleep 1; tail /dev/zero")


class NotPossible(RuntimeError):
    """This cluster cannot be hurt in this way; the message says what would be needed."""


class Faults:
    """Faults in one namespace of one cluster; `undo` mends what outlives a test."""

    def __init__(self, cluster: Cluster | GivenCluster, kube: Kube) -> None:
        self.cluster = cluster
        self.kube = kube
        self._priorities: list[str] = []
        self._node_lost = False

    def delete(self, name: str, grace: int | None = None) -> None:
        """Ask politely: SIGTERM, then SIGKILL after the pod's (or the given) grace period."""
        seconds = [] if grace is None else [f"--grace-period={grace}"]
        self.kube("delete", "pod", name, "--wait=false", *seconds)

    def force_delete(self, name: str) -> None:
        """Remove the object at once, whatever its process does."""
        self.kube("delete", "pod", name, "--wait=false", "--grace-period=0", "--force")

    def evict(self, name: str) -> None:
        """Use the Eviction API, as a drain or an autoscaler does."""
        meta = {"name": name, "namespace": self.kube.namespace}
        body = json.dumps({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})
        path = f"/api/v1/namespaces/{self.kube.namespace}/pods/{name}/eviction"
        self.kube("create", "--raw", path, "-f", "-", given=body)

    def preempt(self, name: str, resource: str = "nvidia.com/gpu") -> str:
        """Send a pod of high priority that needs all of `resource` on the victim's node; its name."""
        victim = self.kube.get("pod", name)
        assert victim is not None, f"there is no pod {name} to preempt"
        node = self.kube.get("node", victim["spec"]["nodeName"])
        assert node is not None
        intruder = f"intruder-{uuid.uuid4().hex[:8]}"
        priority = {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": intruder, "labels": {"gpuflow.test/owner": "pytest"}},
            "value": HIGH_PRIORITY,
        }
        self._priorities.append(intruder)
        self.kube.create(
            priority,
            pod(
                intruder,
                self.cluster.image("busybox"),
                ["sleep", "600"],
                resources={resource: node["status"]["allocatable"][resource]},
                priorityClassName=intruder,
                nodeSelector={"kubernetes.io/hostname": node["metadata"]["name"]},
                tolerations=[{"operator": "Exists"}],
                terminationGracePeriodSeconds=0,
            ),
        )
        return intruder

    def out_of_memory(self, name: str, limit: str = "24Mi", **more: Any) -> dict[str, Any]:
        """The manifest of a pod that runs into its memory limit soon after it starts."""
        return pod(name, self.cluster.image("busybox"), EAT_MEMORY, memory_limit=limit, **more)

    def lose_node(self, *, power: bool = True, remove: bool = False) -> None:
        """Silence the real node: no kubelet; with `power` no containers, with `remove` no Node object."""
        cluster = self._private("losing a node")
        self._node_lost = True
        # While every node is lost the controllers blame themselves and evict nobody: one has to stay.
        cluster.kube.apply(nodes.simulated(WITNESS, taints=[nodes.FENCE]))
        nodes.await_ready(cluster.kube, WITNESS)
        cluster.stop("kubelet", signal.SIGKILL)
        if power:
            for process in machine.cgroup_processes(cluster.layout.cgroup):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        if remove:
            cluster.kube("delete", "node", REAL_NODE)

    def return_node(self) -> None:
        """Start the kubelet again and wait until the node takes pods."""
        cluster = self._private("returning a node")
        cluster.start("kubelet")
        cluster.await_node()
        cluster.kube("delete", "node", WITNESS, "--ignore-not-found")
        self._node_lost = False

    def await_node_lost(self, timeout: float = 60.0) -> None:
        """Wait until the control plane has noticed."""

        def tainted() -> bool:
            node = self.cluster.kube.get("node", REAL_NODE)
            keys = {taint["key"] for taint in (node or {"spec": {}})["spec"].get("taints", ())}
            return "node.kubernetes.io/unreachable" in keys

        until("the lost node to be called unreachable", tainted, timeout=timeout, every=0.5)

    def restart(self, program: str, env: Mapping[str, str] | None = None) -> None:
        """Kill a program of the cluster without warning and start it again."""
        self._private(f"restarting {program}").restart(program, env=env)

    def undo(self) -> None:
        for name in self._priorities:
            self.kube("delete", "pod", name, "--ignore-not-found", "--wait=false", "--grace-period=0", "--force")
            self.kube("delete", "priorityclass", name, "--ignore-not-found")
        if self._node_lost:
            self.return_node()

    def _private(self, what: str) -> Cluster:
        if isinstance(self.cluster, Cluster):
            return self.cluster
        raise NotPossible(f"{what} needs the private cluster; unset KUBECONFIG to use it")
