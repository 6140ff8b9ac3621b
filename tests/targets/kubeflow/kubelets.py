"""The two kubelets that text passes in KFP: that of the driver's pod, and that of the step's pod.

KFP's compiler gives the driver its work as arguments (argocompiler/container.go, dag.go): the container spec, the
Kubernetes settings, the task, the component and the parameters of the run, each as one JSON text. The kubelet that
starts the driver's pod expands each of them as it expands any argument.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

DRIVER = {
    "KFP_POD_NAME": "the driver's pod",
    "KFP_POD_UID": "the driver's uid",
    "ARGO_CONTAINER_NAME": "main",
    "ARGO_TEMPLATE": "a template",
    "ARGO_NODE_ID": "a node",
    "ARGO_INCLUDE_SCRIPT_OUTPUT": "false",
    "ARGO_DEADLINE": "0001-01-01T00:00:00Z",
    "ARGO_PROGRESS_FILE": "/var/run/argo/progress",
    "KUBERNETES_SERVICE_HOST": "10.96.0.1",
    "HTTP_PROXY": "the driver's proxy",
    "http_proxy": "the driver's proxy",
}
"""Variables of a driver's pod: KFP's, Argo's, Kubernetes', and those of an installation with a proxy."""


def kubelet(text: str, variables: Mapping[str, str]) -> str:
    """Expand of Kubernetes, written out as it walks: `$$` is `$`, `$(NAME)` the variable when there is one."""
    found, at = [], 0
    while at < len(text):
        follows = text[at + 1 : at + 2] if text[at] == "$" else ""
        if follows == "$":
            found.append("$")
            at += 2
        elif follows == "(" and ")" in text[at + 2 :]:
            end = text.index(")", at)
            found.append(variables.get(text[at + 2 : end], text[at : end + 1]))
            at = end + 1
        else:
            found.append(text[at])
            at += 1
    return "".join(found)


def as_argument(message: Any, variables: Mapping[str, str] | None = None) -> Any:
    """A message of the IR as the driver reads it in its arguments."""
    written = json.dumps(message, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return json.loads(kubelet(written, DRIVER if variables is None else variables))


def started(container: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    """The words and the variables that a step's kubelet starts a container with."""
    variables: dict[str, str] = {}
    for entry in container.get("env", []):
        if "valueFrom" not in entry:
            variables[entry["name"]] = kubelet(entry.get("value", ""), variables)
    words = (*container.get("command", []), *container.get("args", []))
    return [kubelet(word, variables) for word in words], variables
