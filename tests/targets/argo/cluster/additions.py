"""What Argo adds to a pod, as one list; what is left of a live pod must be the pod of the spec.

The list stands in docs/reference/argo.md too, for people. Everything else that the API server writes into a pod it also
writes into the spec's own pod, which is asked for with a dry run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

EXECUTOR = ("/var/run/argo/argoexec", "emissary")
"""Argo starts the command through its executor: these words, options, and `--` stand before it."""
CONTAINERS = ("init", "wait")
VOLUMES = ("var-run-argo", "tmp-dir-argo")
VARIABLES = "ARGO_"
ANNOTATIONS = ("workflows.argoproj.io/", "kubectl.kubernetes.io/default-container", "kueue.x-k8s.io/")
LABELS = (
    "workflows.argoproj.io/",
    *(f"kueue.x-k8s.io/{name}" for name in ("cluster-queue-name", "local-queue-name", "managed", "podset")),
)
"""Kueue marks what it has admitted; the queue and the priority are the spec's own."""
SCHEDULERS = ("nodeName", "schedulingGates")
"""Where the pod went, and Kueue's gate, which is gone once the pod was admitted."""
BRACE = "GPUFLOW_BRACE"
"""gpuflow's own: the variable that carries the second brace of `{{` past Argo."""
_EXPANSION = re.compile(r"\$\$|\$\(([^)]*)\)")


def bare(pod: Mapping[str, Any], run: str) -> dict[str, Any]:
    """A pod of the run `run` without Argo's additions, its text as the programs get it, its lists in one order."""
    metadata, spec = pod["metadata"], dict(pod["spec"])
    for key in SCHEDULERS:
        spec.pop(key, None)
    containers = [*spec.pop("containers"), *spec.pop("initContainers", ())]
    volumes = [_volume(volume, run) for volume in spec.pop("volumes", ()) if volume["name"] not in VOLUMES]
    tolerations = spec.pop("tolerations", [])
    return {
        "labels": _without(metadata.get("labels", {}), LABELS),
        "annotations": _without(metadata.get("annotations", {}), ANNOTATIONS),
        **spec,
        "containers": sorted(
            (_container(container) for container in containers if container["name"] not in CONTAINERS),
            key=lambda container: str(container["name"]),
        ),
        "volumes": sorted(volumes, key=lambda volume: str(volume["name"])),
        "tolerations": sorted(tolerations, key=str),
    }


def _without(texts: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {key: text for key, text in texts.items() if not key.startswith(prefixes)}


def _volume(volume: Mapping[str, Any], run: str) -> dict[str, Any]:
    """The API server names the token's volume at random; Argo names a run's claim after the workflow."""
    result = {**volume, "name": _token(volume["name"])}
    claim = volume.get("persistentVolumeClaim")
    if claim and claim["claimName"].startswith(f"{run}-run-"):
        result["persistentVolumeClaim"] = {**claim, "claimName": claim["claimName"].removeprefix(f"{run}-run-")}
    return result


def _token(name: str) -> str:
    return "kube-api-access" if name.startswith("kube-api-access-") else name


def _container(container: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(container)
    # A sidecar of the spec starts before the command and ends with it; Argo runs it beside and ends it itself.
    result.pop("restartPolicy", None)
    known: dict[str, str] = {}
    env = []
    for entry in container.get("env", ()):
        if "value" in entry:
            entry = {**entry, "value": expanded(entry["value"], known)}
            known[entry["name"]] = entry["value"]
        if entry["name"] != BRACE and not entry["name"].startswith(VARIABLES):
            env.append(entry)
    command = list(container.get("command", ()))
    if tuple(command[: len(EXECUTOR)]) == EXECUTOR:
        command = command[command.index("--") + 1 :]
    mounts = [
        {**mount, "name": _token(mount["name"])}
        for mount in container.get("volumeMounts", ())
        if mount["name"] not in VOLUMES
    ]
    result["env"] = env
    result["command"] = [expanded(word, known) for word in (*command, *container.get("args", ()))]
    result["volumeMounts"] = sorted(mounts, key=lambda mount: str(mount["mountPath"]))
    result.pop("args", None)
    return result


def expanded(text: str, known: Mapping[str, str]) -> str:
    """A text as the kubelet hands it over: `$$` is one `$`, and `$(NAME)` is replaced where NAME is known."""

    def one(match: re.Match[str]) -> str:
        return "$" if match[0] == "$$" else known.get(match[1], match[0])

    return _EXPANSION.sub(one, text)
