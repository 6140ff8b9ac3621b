"""A cluster made ready for checks: validated, with namespaces filled in, and its nodes read once."""

from __future__ import annotations

from copy import copy
from functools import cached_property

from gpuflow.checker.nodes.conditions import with_condition_taints
from gpuflow.checker.nodes.daemons import with_daemons
from gpuflow.checker.nodes.node_list import read_node_list
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.nodes.storage import Storage, read_storage
from gpuflow.checker.snapshot.not_shown import VOLUMES as VOLUME_KINDS
from gpuflow.checker.snapshot.validation import validate
from gpuflow.cluster import Cluster
from gpuflow.errors import Finding, GpuflowError, Where


class PreparedCluster:
    """A cluster as pods of one namespace see it. Keep it to check many pipelines against the same cluster."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster.with_default_namespace(namespace)
        self.namespace = namespace
        self._bound = validate(self.cluster)

    def with_cluster(self, cluster: Cluster) -> PreparedCluster:
        """The same with other objects, of which the nodes and pods are unchanged."""
        other = copy(self)
        other.cluster = cluster
        return other

    @cached_property
    def storage(self) -> Storage:
        """What the namespace's claims depend on."""
        bodies, claims = self.cluster.bodies, self.cluster.of("PersistentVolumeClaim", self.namespace)
        try:
            return read_storage(
                [item.body for item in claims],
                *map(bodies, ("PersistentVolume", "StorageClass", "CSIDriver", "CSIStorageCapacity", "CSINode")),
            )
        except ValueError as refusal:
            where = next((item.where for kind in VOLUME_KINDS for item in self.cluster.of(kind)), Where())
            raise GpuflowError(Finding("GF403", str(refusal), where, "fix the manifest")) from None

    @cached_property
    def node_pools(self) -> NodePools | None:
        """The nodes with what is bound to them; `None` when it is not known which nodes there are."""
        nodes = self.cluster.of("Node")
        if not self.cluster.knows("Node"):
            return None
        try:
            node_list = read_node_list(
                [with_condition_taints(node.body) for node in nodes], self._bound, self.cluster.bodies("Namespace")
            )
            return NodePools(with_daemons(node_list, [item.body for item in self.cluster.of("DaemonSet")]))
        except ValueError as refusal:
            raise GpuflowError(
                Finding("GF403", str(refusal), (nodes or self.cluster.of("Pod"))[0].where, "fix the manifest")
            ) from None


def prepared(cluster: Cluster | PreparedCluster, namespace: str) -> PreparedCluster:
    """The cluster, ready for checks of this namespace."""
    if isinstance(cluster, Cluster):
        return PreparedCluster(cluster, namespace)
    if cluster.namespace != namespace:
        raise ValueError(f'the cluster was prepared for namespace "{cluster.namespace}", not for "{namespace}"')
    return cluster
