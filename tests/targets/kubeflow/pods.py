"""The pods that KFP's driver makes of a compiled pipeline, by the model of the driver, beside the steps' own pods.

The written list of differences stands at the top of test_pods.py; what neither side of it knows is compared as it is.
"""

from __future__ import annotations

from typing import Any

import yaml

from tests.targets.kubeflow.driver_model import driver_pods
from tests.targets.kubeflow.test_pods import made, wanted

KNOWN = {
    "activeDeadlineSeconds", "affinity", "containers", "imagePullSecrets", "nodeSelector", "restartPolicy",
    "securityContext", "serviceAccountName", "tolerations", "volumes",
}  # fmt: skip
"""What the two functions compare, and the service account, which stands in the call that starts a run."""
KNOWN_OF_MAIN = {
    "args", "command", "env", "image", "imagePullPolicy", "name", "resources", "securityContext", "volumeMounts",
    "workingDir",
}  # fmt: skip


def read_pods(text: str) -> dict[str, Any]:
    """The pod of each step of a compiled file."""
    spec, platform, *_ = [*yaml.safe_load_all(text), {}]
    configs = platform.get("platforms", {}).get("kubernetes", {}).get("deploymentSpec", {}).get("executors", {})
    return {
        label.removeprefix("exec-"): {
            **made(pod),
            **_rest(pod, pod["containers"][0]),
            "metadata": {key: value for key, value in configs[label].get("podMetadata", {}).items() if value},
        }
        for label, pod in driver_pods(spec, platform, {}).items()
        if not pod["containers"][0]["image"].startswith("argostub/")
    }


def comparable(pod: dict[str, Any]) -> dict[str, Any]:
    """A step's own pod, up to the written list of differences."""
    spec, main = pod["spec"], pod["spec"]["containers"][0]
    return {**wanted(pod), **_rest(spec, main), "metadata": pod["metadata"]}


def _rest(spec: dict[str, Any], main: dict[str, Any]) -> dict[str, Any]:
    """All that the list of differences does not speak of."""
    security = main.get("securityContext", {})
    return {
        "pod": {key: value for key, value in spec.items() if key not in KNOWN},
        "main": {key: value for key, value in main.items() if key not in KNOWN_OF_MAIN},
        "read_only": security.get("readOnlyRootFilesystem", False),
        "privileged": security.get("privileged", False),
    }
