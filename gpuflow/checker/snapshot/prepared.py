"""A cluster made ready for checks: validated, with namespaces filled in, and its nodes read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

from gpuflow.checker.nodes.controllers import with_condition_taints, with_daemons
from gpuflow.checker.nodes.node_info import read_node_list
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.nodes.storage import Storage, read_storage
from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission
from gpuflow.checker.snapshot.missing_kinds import VOLUMES as VOLUME_KINDS
from gpuflow.checker.snapshot.validation import validate
from gpuflow.cluster import Cluster, Manifest
from gpuflow.core.errors import Finding, GpuflowError, Where
from gpuflow.demands import Demand
from gpuflow.demands.model import sum_usages
from gpuflow.demands.peaks import Usage, amounts_of
from gpuflow.kubernetes.resources import read_map


class PreparedCluster:
    """A cluster as pods of one namespace see it. Keep it to check many pipelines against the same cluster.

    `default`: the namespace of manifests that name none; without it, the one that is asked about. `read`: how the
    objects of another namespace are had, where this cluster does not hold them. `files`: what the checked files bring.
    """

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        *,
        default: str | None = None,
        read: Callable[[str], Cluster] | None = None,
        files: tuple[Manifest, ...] = (),
    ) -> None:
        self._given, self._default, self._read, self.files = cluster, default, read, files
        self._filled = cluster.with_default_namespace(default or namespace)
        self._whole = self._filled
        if files:
            from gpuflow.cluster.overlay import lay_over  # most checks bring nothing

            self._whole = lay_over(self._filled, files, default or namespace)
        self.cluster = self._whole.seen_from(namespace)
        self.namespace = namespace
        self.valid = validate(self.cluster)
        self._others = {namespace: self}

    def seen_from(self, namespace: str) -> PreparedCluster:
        """The same cluster as pods of another namespace see it."""
        if namespace not in self._others:
            cluster = self._given if self._read is None else self._read(namespace)
            filled = cluster.with_default_namespace(self._default or namespace)
            is_same = self._read is None and _same_objects(filled, self._filled)
            if is_same and (self._default or not self.files):
                other = copy(self)  # its objects were validated
                other.cluster, other.namespace = self._whole.seen_from(namespace), namespace
                for each in ("storage", "live_usage"):
                    other.__dict__.pop(each, None)
            else:
                other = PreparedCluster(cluster, namespace, default=self._default, read=self._read, files=self.files)
                other._others = self._others
            self._others[namespace] = other
        return self._others[namespace]

    def with_files(self, files: tuple[Manifest, ...]) -> PreparedCluster:
        """The same with what these files bring."""
        return PreparedCluster(self._given, self.namespace, default=self._default, read=self._read, files=files)

    def with_cluster(self, cluster: Cluster) -> PreparedCluster:
        """The same with other objects, of which the nodes and pods are unchanged."""
        other = copy(self)
        other.cluster = cluster
        return other

    @cached_property
    def storage(self) -> Storage:
        """What the namespace's claims depend on."""
        bodies = self.cluster.bodies
        try:
            return read_storage(
                bodies("PersistentVolumeClaim", self.namespace) or (),
                *map(bodies, ("PersistentVolume", "StorageClass", "CSIDriver", "CSIStorageCapacity", "CSINode")),
            )
        except ValueError as refusal:
            where = next((item.where for kind in VOLUME_KINDS for item in self.cluster.of(kind)), Where())
            raise GpuflowError(Finding("GF403", str(refusal), where, "fix the manifest")) from None

    @cached_property
    def live_usage(self) -> Usage:
        """What they cost, by quota key."""
        return sum_usages((amounts_of(each).usage, 1) for each in self.live_pods)

    @property
    def live_pods(self) -> Iterator[Mapping[str, Any]]:
        """The pods of the namespace that have not ended."""
        pods = (item.body for item in self.cluster.of("Pod", self.namespace))
        return (each for each in pods if not _is_ending(each))

    @cached_property
    def node_pools(self) -> NodePools | None:
        """The nodes with what is bound to them; `None` when it is not known which nodes there are."""
        nodes = self.cluster.of("Node")
        if not self.cluster.knows("Node"):
            return None
        try:
            read = zip(self.valid.nodes, nodes, strict=True)
            tainted = [with_condition_taints(node, item.body) for node, item in read]
            node_list = read_node_list(tainted, self.valid.bound, self.cluster.bodies("Namespace"))
            return NodePools(with_daemons(node_list, [item.body for item in self.cluster.of("DaemonSet")]))
        except ValueError as refusal:
            raise GpuflowError(
                Finding("GF403", str(refusal), (nodes or self.cluster.of("Pod"))[0].where, "fix the manifest")
            ) from None


class NamespacePart(NamedTuple):
    """A namespace of the demand's pods: its policy, and the part of the demand that runs there."""

    prepared: PreparedCluster
    demand: Demand
    policy: NamespacePolicy
    admissions: Sequence[StepAdmission]


def prepare_cluster(cluster: Cluster | PreparedCluster, namespace: str) -> PreparedCluster:
    """The cluster, ready for checks of this namespace."""
    return PreparedCluster(cluster, namespace) if isinstance(cluster, Cluster) else cluster.seen_from(namespace)


def _is_ending(pod: Mapping[str, Any]) -> bool:
    done = read_map(pod.get("status"), "status").get("phase") in ("Succeeded", "Failed")
    return done or "deletionTimestamp" in read_map(pod.get("metadata"), "metadata")


def _same_objects(one: Cluster, other: Cluster) -> bool:
    pairs = zip(one.objects, other.objects, strict=False)
    return len(one.objects) == len(other.objects) and all(mine is theirs for mine, theirs in pairs)
