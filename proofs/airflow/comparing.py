"""Two pods as the API server has them, without what must differ: names, times, and who made them."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

OURS = "gpuflow.dev/"
AIRFLOW = ("dag_id", "task_id", "run_id", "try_number", "map_index", "airflow_version", "airflow_kpo_in_cluster",
           "kubernetes_pod_operator", "already_checked")  # fmt: skip
A100, A800 = "'NVIDIA-A100-SXM4-80GB'", "'NVIDIA-A800-SXM4-80GB'"
WRITTEN: Mapping[str, str] = {
    rf"matchExpressions\[0\]\.values: \[{A100}\] \| \[{A100}, {A800}\]$": (
        "gpu: a100-80gb sxm takes an A800 of the same form too; kubernetes.affinity says one product alone"
    ),
}
"""Differences that are meant: a pattern of the line, and why."""


def compared(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, list[str]]:
    """What differs, and of that what is on the written list."""
    lines = difference(shape(left), shape(right)) + difference(labels_left(left), labels_left(right), "labels")
    meant = [line for line in lines if any(re.search(pattern, line) for pattern in WRITTEN)]
    return {"differs": [line for line in lines if line not in meant], "written": meant}


def shape(pod: Mapping[str, Any]) -> dict[str, Any]:
    """A pod's spec without its node, its volumes by the place where they are mounted."""
    spec = copy.deepcopy(dict(pod["spec"]))
    spec.pop("nodeName", None)
    containers = [*spec.get("initContainers", ()), *spec["containers"]]
    names: dict[str, str] = {}
    for container in containers:
        for mount in container.get("volumeMounts", ()):
            place = mount["mountPath"]
            if place.startswith("/var/run/secrets/kubernetes.io"):
                place = "token of the service account"
            names.setdefault(mount["name"], place)
    for container in containers:
        for mount in container.get("volumeMounts", ()):
            mount["name"] = names[mount["name"]]
        container["volumeMounts"] = sorted(container.get("volumeMounts", ()), key=lambda mount: mount["mountPath"])
        container["env"] = sorted(container.get("env", ()), key=lambda one: one["name"])
    for volume in spec.get("volumes", ()):
        volume["name"] = names.get(volume["name"], volume["name"])
    spec["volumes"] = sorted(spec.get("volumes", ()), key=lambda volume: volume["name"])
    return spec


def difference(left: Any, right: Any, path: str = "spec") -> list[str]:
    """What differs, field by field: `path: left | right`."""
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        keys = sorted({*left, *right})
        return [line for key in keys for line in difference(left.get(key), right.get(key), f"{path}.{key}")]
    if isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        return [
            line
            for number, (one, other) in enumerate(zip(left, right, strict=True))
            for line in difference(one, other, f"{path}[{number}]")
        ]
    return [] if left == right or (not left and not right) else [f"{path}: {left!r} | {right!r}"]


def labels_left(pod: Mapping[str, Any]) -> dict[str, str]:
    """The labels that neither Airflow nor gpuflow adds."""
    labels = pod["metadata"].get("labels") or {}
    return {key: value for key, value in labels.items() if key not in AIRFLOW and not key.startswith(OURS)}
