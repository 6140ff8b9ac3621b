"""Scenes about one limit: what else the pods need is taken for granted, in the words of a folder written by hand."""

from __future__ import annotations

ASSUMED = frozenset(
    {
        "ClusterQueue", "LimitRange", "LocalQueue", "Namespace", "Node", "PersistentVolumeClaim", "PriorityClass",
        "ResourceFlavor", "ResourceQuota", "RuntimeClass", "ServiceAccount", "StorageClass", "WorkloadPriorityClass",
    }
)  # fmt: skip
RECORD = f"apiVersion: gpuflow/v1\nkind: Snapshot\nassumed: [{', '.join(sorted(ASSUMED))}]\n"
