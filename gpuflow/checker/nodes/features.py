"""What a pod needs a node's kubelet to be able to do, where kubelets declare it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuflow.checker.nodes.flags import read_flag
from gpuflow.resources import read_map, read_maps, read_texts

NO_FEATURES: Final = "node(s) didn't match Pod's required features"


def read_declared(manifest: Mapping[str, Any]) -> frozenset[str]:
    status = read_map(manifest.get("status"), "status")
    return frozenset(read_texts(status.get("declaredFeatures"), "status.declaredFeatures"))


def read_required(spec: Mapping[str, Any]) -> frozenset[str]:
    required = set()
    if read_flag(spec, "hostNetwork", "spec") and read_flag(spec, "hostUsers", "spec") is False:
        required.add("UserNamespacesHostNetworkSupport")
    for field in ("containers", "initContainers"):
        for index, container in enumerate(read_maps(spec.get(field), f"spec.{field}")):
            rules = read_maps(container.get("restartPolicyRules"), f"spec.{field}[{index}].restartPolicyRules")
            if any(rule.get("action") == "RestartAllContainers" for rule in rules):
                required.add("RestartAllContainersOnContainerExits")
    return frozenset(required)
