"""A step's pod as the API server has it, beside the pod that the spec says: both in one form, up to the written list.

The list stands in docs/reference/kubeflow.md. What KFP and Argo add is named here and taken away; everything else must
be what `pod_for` says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from gpuflow.quantity import Quantity
from tests.targets.kubeflow.test_pods import made, wanted

KFP_MOUNTS = {
    "/kfp-launcher", "/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/var/run/argo",
    "/var/run/secrets/kubernetes.io/serviceaccount", "/kfp/certs",
}  # fmt: skip
KFP_VARIABLES = re.compile(r"KFP_|ARGO_")
KFP_LABELS = re.compile(r"workflows\.argoproj\.io/|pipelines?(\.kubeflow\.org)?/|app\.kubernetes\.io/managed-by$")
KFP_ANNOTATIONS = re.compile(
    r"workflows\.argoproj\.io/|pipelines\.kubeflow\.org/|sidecar\.istio\.io/inject$|kubectl\.kubernetes\.io/"
)
NODE_LIFE = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
"""Kubernetes itself lets every pod tolerate these for some minutes."""
RUN_CLAIM = re.compile(r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-")
"""What KFP puts before the name of a claim that it makes for a run."""
ATTEMPT = re.compile(r"/\d{6}-[0-9a-f]{8}/files/[^/]+$")
"""Where the attempt that succeeded has put an artifact, below the place that the spec names."""
DEFAULTED = ("defaultMode", "optional", "volumeMode", "creationTimestamp")
Normal = dict[str, Any]


def live(pod: Mapping[str, Any]) -> Normal:
    """The pod that the cluster had, without what KFP, Argo and Kubernetes added."""
    spec = pod["spec"]
    main = dict(next(each for each in spec["containers"] if each["name"] == "main"))
    main["env"] = [entry for entry in main.get("env", ()) if not KFP_VARIABLES.match(entry["name"])]
    main["volumeMounts"] = [mount for mount in main.get("volumeMounts", ()) if mount["mountPath"] not in KFP_MOUNTS]
    used = {mount["name"] for mount in main["volumeMounts"]}
    tolerations = [each for each in spec.get("tolerations", ()) if each.get("key") not in NODE_LIFE]
    patch = {
        **spec,
        "containers": [main],
        "volumes": [volume for volume in spec.get("volumes", ()) if volume["name"] in used],
        "tolerations": tolerations or None,
        "nodeSelector": spec.get("nodeSelector"),
    }
    return _normal(made(patch), pod["metadata"])


def specified(pod: Mapping[str, Any]) -> Normal:
    """The pod of the spec; Kubernetes copies a limit where there is no request, and KFP has none for local disk."""
    own = wanted(dict(pod))
    own["requests"] = {key: value for key, value in own["requests"].items() if key != "ephemeral-storage"}
    limits = {key: value for key, value in own["limits"].items() if "/" not in key}
    return _normal({**own, "requests": {**limits, **own["requests"]}}, pod["metadata"])


def _normal(found: Normal, metadata: Mapping[str, Any]) -> Normal:
    return {
        **found,
        "words": [canonical(word) for word in found["words"]],
        "env": {key: canonical(text) if isinstance(text, str) else text for key, text in found["env"].items()},
        "requests": {key: _amount(value) for key, value in found["requests"].items() if "/" not in key},
        "limits": {key: _amount(value) for key, value in found["limits"].items()},
        "mounts": {path: _mounted(source) for path, source in found["mounts"].items()},
        "imagePullPolicy": found["imagePullPolicy"] or "IfNotPresent",
        "labels": _without(metadata.get("labels"), KFP_LABELS),
        "annotations": _without(metadata.get("annotations"), KFP_ANNOTATIONS),
    }


def canonical(word: str) -> str:
    """A value in one form: KFP writes numbers, lists and maps in other words, and an artifact has its attempt."""
    word = ATTEMPT.sub("", word)
    try:
        value = json.loads(word)
    except ValueError:
        return word
    return json.dumps(_plain(value), sort_keys=True) if isinstance(value, int | float | list | dict) else word


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {key: _plain(item) for key, item in value.items()} if isinstance(value, dict) else value


def _amount(text: Any) -> str:
    return str(Quantity(str(text)).nano)


def _mounted(source: Any) -> Any:
    (kind, what), sub_path = source
    if kind == "claim":
        return kind, RUN_CLAIM.sub("", what), sub_path
    return kind, json.loads(json.dumps(_without_defaults(what), sort_keys=True)), sub_path


def _without_defaults(value: Any) -> Any:
    if isinstance(value, Mapping):
        kept = {key: _without_defaults(item) for key, item in value.items() if key not in DEFAULTED}
        return {key: item for key, item in kept.items() if item not in ({}, None)}
    return value


def _without(found: Mapping[str, str] | None, added: re.Pattern[str]) -> dict[str, str]:
    return {key: value for key, value in (found or {}).items() if not added.match(key)}


def differences(ours: Normal, theirs: Normal) -> list[str]:
    """Each part in which the two differ: what the spec says, and what the cluster had."""
    return [f"{key}: {ours[key]!r} != {theirs[key]!r}" for key in sorted(ours) if ours[key] != theirs[key]]
