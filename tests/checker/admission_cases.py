"""Short ways to write the manifests that admission is asked about."""

from typing import Any

Resources = dict[str, Any]


def container(name: str = "main", requests: Resources | None = None, limits: Resources | None = None) -> Resources:
    resources = {side: listed for side, listed in (("requests", requests), ("limits", limits)) if listed}
    return {"name": name, "image": "registry.example.com/x:1", "resources": resources}


def pod(*containers: Resources, **spec: Any) -> Resources:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "ns"},
        "spec": {"containers": list(containers) or [container()], **spec},
    }


def quota(name: str, hard: Resources, used: Resources | None = None, **spec: Any) -> Resources:
    return {
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"hard": hard, **spec},
        "status": {"hard": hard, "used": dict.fromkeys(hard, "0") | (used or {})},
    }


def limit_range(*items: Resources, name: str = "bounds") -> Resources:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"limits": list(items)}}


def namespace(**labels: str) -> Resources:
    """A namespace with Pod Security labels: `enforce="baseline"`, `enforce_version="v1.30"`."""
    return {
        "metadata": {
            "name": "ns",
            "labels": {f"pod-security.kubernetes.io/{key.replace('_', '-')}": value for key, value in labels.items()},
        }
    }
