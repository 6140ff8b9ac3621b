"""What a cluster is like: a frozen model, read from manifests."""

from gpuflow.cluster.manifests import cluster_of, read_cluster
from gpuflow.cluster.model import Cluster, Manifest

__all__ = ["Cluster", "Manifest", "cluster_of", "read_cluster"]
