"""Init containers and sidecars of a step, for a KFP that adds containers to pods (`versions.adds_containers`).

The message is not in the SDK that this version of gpuflow is made for, so it is written in its JSON form, field by
field as the proto names them (InitContainer of kubernetes_executor_config.proto).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpuflow.targets.kubeflow.command import PLACEHOLDER
from gpuflow.targets.kubeflow.text import BRACE, each_for_driver
from gpuflow.targets.kubeflow.volume_names import driver_name

FIELD = "initContainers"
LAUNCHER = "kfp-launcher"
"""The init container that KFP itself adds."""
_UNSAID = {
    "envFrom": "whole Secrets or ConfigMaps as variables",
    "ports": "ports",
    "livenessProbe": "probes",
    "readinessProbe": "probes",
    "startupProbe": "probes",
    "lifecycle": "hooks",
}
Problem = tuple[str, str, bool]
"""What is wrong, the way out, and whether it may be left out."""


def helper_config(pod: dict[str, Any]) -> dict[str, Any]:
    """The part of an executor config that adds a pod's init containers and sidecars; nothing where it has none."""
    spec = pod["spec"]
    names = {volume["name"]: driver_name(volume)[1] for volume in spec.get("volumes", [])}
    written = [_container(container, names) for container in spec.get(FIELD, [])]
    return {FIELD: each_for_driver(written)} if written else {}


def _container(container: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    env = [{"name": entry["name"], "value": entry["value"]} for entry in container.get("env", []) if "value" in entry]
    words = list(container["command"])
    if any(f"$({BRACE})" in word for word in (*words, *(entry["value"] for entry in env))):
        env = [{"name": BRACE, "value": "{"}, *env]
    fields = {
        "command": words,
        "env": env,
        "image": container["image"],
        "name": container["name"],
        "resources": {key: dict(sorted(amounts.items())) for key, amounts in container.get("resources", {}).items()},
        "restartPolicy": container.get("restartPolicy"),
        "volumeMounts": [
            {"mountPath": mount["mountPath"], "volumeName": names[mount["name"]]}
            for mount in container.get("volumeMounts", [])
        ],
    }
    return {key: value for key, value in fields.items() if value}


def helper_problems(pod: dict[str, Any], run_claims: set[str]) -> Iterator[Problem]:
    """What KFP's init containers have no word for. `run_claims`: the volumes of claims that are made for each run."""
    spec = pod["spec"]
    own = {mount["name"] for mount in spec["containers"][0].get("volumeMounts", [])}
    for container in spec.get(FIELD, []):
        who = f'the container "{container["name"]}"'
        if container["name"] == LAUNCHER:
            yield f"{who} has the name of KFP's own", "choose another name", False
        values = [entry["value"] for entry in container.get("env", []) if "value" in entry]
        if any(PLACEHOLDER in word for word in (*container["command"], *values)):
            yield f"{who} has references, and KFP fills in those of the step's own only", "write the value", False
        for entry in container.get("env", []):
            if "valueFrom" in entry:
                yield f"{who}: {entry['name']} comes from an object, and KFP has text only", "mount the object", False
        for field in dict.fromkeys(_UNSAID[key] for key in _UNSAID if container.get(key)):
            yield f"KFP has no {field} for {who}", "do without it", True
        for mount in container.get("volumeMounts", []):
            yield from _mount_problems(who, mount, own, run_claims)


def _mount_problems(who: str, mount: dict[str, Any], own: set[str], run_claims: set[str]) -> Iterator[Problem]:
    path = mount["mountPath"]
    if mount["name"] in run_claims:
        yield f"{who} mounts a claim of the run at {path}, whose name only the run knows", "mount another volume", False
    elif mount["name"] not in own:
        yield f"{who} mounts a volume at {path} that the step does not mount", "mount it in the step as well", False
    if mount.get("subPath"):
        yield f"{who}: KFP has no sub_path for the mount at {path}", "mount the whole volume", False
    if mount.get("readOnly"):
        yield f"{who}: the mount at {path} would be writable", "drop read_only", True
