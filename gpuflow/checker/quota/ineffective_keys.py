"""Keys of a ResourceQuota that Kubernetes accepts and never counts anything under, and keys that it refuses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from gpuflow.cluster import Cluster, Manifest
from gpuflow.cluster.kinds import nearest_word
from gpuflow.core.errors import Finding, did_you_mean, warning
from gpuflow.kubernetes.admission.quota import Quota
from gpuflow.kubernetes.admission.usage import COMPUTE, OLD_NAMES, POD_KEYS, is_tracked_for_pods
from gpuflow.kubernetes.resources import read_map

STANDARD: Final = frozenset(
    {*POD_KEYS, *OLD_NAMES, "persistentvolumeclaims", "requests.storage", "services.loadbalancers"}
    | {"services.nodeports"}
)
"""The keys without a slash that there are, huge pages apart."""
COUNT_KEYS: Final = (
    "count/configmaps", "count/cronjobs.batch", "count/deployments.apps", "count/jobs.batch",
    "count/persistentvolumeclaims", "count/pods", "count/replicasets.apps", "count/secrets", "count/services",
    "count/statefulsets.apps", "count/workflows.argoproj.io", "count/workflowtaskresults.argoproj.io",
)  # fmt: skip
"""Objects that pipelines leave behind, as a quota counts them."""
STORAGE: Final = ("requests.storage", "persistentvolumeclaims")
DEVICES: Final = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "amd.com/gpu", "gpu.intel.com/i915", "rdma/hca")
MIG: Final = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb(\.[a-z.]+)?")


def standard_fault(key: str) -> str | None:
    """Why the API server refuses the key of a quota: one without a slash must be among those it knows."""
    if "/" in key or key in STANDARD or key.startswith(("hugepages-", "requests.hugepages-")):
        return None
    return f"is not a key of a quota; {did_you_mean(key, STANDARD) or 'see gpuflow explain GF403'}"


def ineffective_keys(
    quotas: Iterable[tuple[Manifest, Quota]], cluster: Cluster, asked: Iterable[str]
) -> Iterator[Finding]:
    """Quota keys that look like limits and do nothing. `asked` are the resources that the steps ask for."""
    known = {*DEVICES, *asked, *_node_resources(cluster)}
    for item, quota in quotas:
        for key in quota.hard:
            meant = _intended_key(key, known)
            if meant is not None:
                section = "spec" if quota.assumed else "status"
                yield warning(
                    "GF521",
                    f'quota {quota.name}: the key "{key}" is accepted and never enforced',
                    item.at("spec", "hard", key, key=True)
                    if key in read_map(read_map(item.body.get("spec"), "spec").get("hard"), "spec.hard")
                    else item.at(section, "hard", key, key=True),
                    f'write "{meant}" instead',
                )


def _node_resources(cluster: Cluster) -> Iterator[str]:
    """The extended resources of the nodes."""
    for node in cluster.of("Node"):
        status = read_map(node.body.get("status"), "status")
        for field in ("allocatable", "capacity"):
            yield from (name for name in read_map(status.get(field), f"status.{field}") if "/" in name)


def _intended_key(key: str, devices: set[str]) -> str | None:
    """The key that would do what this one only seems to do; nothing when it works as it stands."""
    if "/" not in key:
        return None
    if key.startswith("count/"):
        near = nearest_word(key, COUNT_KEYS)
        return near if near != key else None
    if ".storageclass." in key or ".volumeattributesclass." in key:
        prefix, _, what = key.partition("/")
        return None if what in STORAGE else f"{prefix}/{nearest_word(what, STORAGE) or STORAGE[0]}"
    if ".deviceclass.resource.k8s.io/" in key:
        return None
    if not is_tracked_for_pods(key):
        bare = re.sub(r"^(limits?|requests?)\.", "", key)
        return f"requests.{nearest_word(bare, devices) or bare}" if bare not in COMPUTE else f"requests.{bare}"
    name = key.removeprefix("requests.")
    if name in devices or MIG.fullmatch(name):
        return None
    near = nearest_word(name, devices)
    return f"requests.{near}" if near else None
