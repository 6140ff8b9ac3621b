"""The pods that a compiled workflow asks Argo for, in the shape of `pod_for`.

Written list of differences, as in docs/reference/argo.md:
- a variable that carries braces past Argo, and those that say how the last attempt ended;
- `restartPolicy` is Argo's own;
- the main container is called main without saying so.
"""

from __future__ import annotations

import json
from typing import Any

import yaml

SET_BY_ARGO = ("restartPolicy",)
BRACE = "GPUFLOW_BRACE"
OURS = (BRACE, "GPUFLOW_RUN_ENGINE_ATTEMPT", "GPUFLOW_RUN_LAST")
OF_TEMPLATES = {
    "container", "initContainers", "inputs", "memoize", "metadata", "name", "outputs", "podSpecPatch",
    "retryStrategy", "sidecars", "synchronization", "timeout",
}  # fmt: skip
"""Fields of a template that are none of a pod, or stand elsewhere in it."""


def read_pods(text: str) -> dict[str, Any]:
    """The pod of each step of a compiled file."""
    spec = yaml.safe_load(text)["spec"]
    templates = spec.get("workflowSpec", spec)["templates"]
    return {each["name"]: _pod(each) for each in templates if "container" in each}


def comparable(pod: dict[str, Any]) -> dict[str, Any]:
    """A step's own pod, without what Argo sets itself."""
    return {**pod, "spec": {key: value for key, value in pod["spec"].items() if key not in SET_BY_ARGO}}


def _pod(template: dict[str, Any]) -> dict[str, Any]:
    spec = {key: value for key, value in template.items() if key not in OF_TEMPLATES}
    spec |= json.loads(template.get("podSpecPatch", "{}"))
    sidecars = [{**each, "restartPolicy": "Always"} for each in template.get("sidecars", [])]
    init = [*template.get("initContainers", []), *sidecars]
    if init:
        spec["initContainers"] = init
    spec["containers"] = [_plain({"name": "main", **template["container"]})]
    return {"metadata": template.get("metadata", {}), "spec": spec}


def _plain(container: dict[str, Any]) -> dict[str, Any]:
    env = [entry for entry in container.get("env", []) if entry["name"] not in OURS]
    words = [word.replace(f"$({BRACE})", "{") for word in container["command"]]
    rest = {key: value for key, value in container.items() if key != "env"}
    return {**rest, "command": words} | ({"env": env} if env else {})
