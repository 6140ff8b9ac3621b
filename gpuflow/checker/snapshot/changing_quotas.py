"""Quotas whose status is not yet what their spec says: what is enforced is about to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.places import with_entry
from gpuflow.errors import Finding
from gpuflow.resources import ResourceList, read_map, read_resource_list


def changing_quotas(cluster: Cluster, namespace: str) -> Iterator[Finding]:
    """A finding for each quota that is being changed."""
    for item in cluster.of("ResourceQuota", namespace):
        wanted, enforced = _limits(item.body)
        differing = sorted(key for key in {*wanted, *enforced} if wanted.get(key) != enforced.get(key))
        if enforced and wanted and differing:
            key = differing[0]
            yield Finding(
                "GF576",
                f"quota {item.name} is being changed: {key} is {_amount(wanted, key)} in spec.hard and "
                f"{_amount(enforced, key)} in status.hard",
                item.at("status", "hard", key),
                "take the snapshot again when Kubernetes has caught up",
                severity="warning",
            )


def with_changes(cluster: Cluster, namespace: str) -> Cluster:
    """The cluster after all its quotas have changed."""
    return replace(
        cluster,
        objects=tuple(
            _changed(item) if item.kind == "ResourceQuota" and item.is_known and item.in_namespace(namespace) else item
            for item in cluster.objects
        ),
    )


def _changed(item: Manifest) -> Manifest:
    wanted, enforced = _limits(item.body)
    if not wanted or not enforced or wanted == enforced:
        return item
    status = with_entry(item.body["status"], "hard", item.body["spec"]["hard"])
    return replace(item, body=with_entry(item.body, "status", status))


def _limits(body: Mapping[str, Any]) -> tuple[ResourceList, ResourceList]:
    """What the quota shall limit, and what it limits now."""
    wanted, enforced = (
        read_resource_list(read_map(body.get(part), part).get("hard"), f"{part}.hard") for part in ("spec", "status")
    )
    return wanted, enforced


def _amount(amounts: ResourceList, key: str) -> str:
    return str(amounts[key]) if key in amounts else "missing"
