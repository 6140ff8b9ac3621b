"""Requests for extended resources that the API server refuses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpuflow.errors import Finding
from gpuflow.quantity import Quantity
from gpuflow.readers.findings.subject import Subject
from gpuflow.resources import read_quantity


def gpus_without_limit(subject: Subject) -> Iterator[Finding]:
    """GF761: a request for GPUs without a limit, or with another one."""
    for asked in subject.containers():
        resources = asked.container.get("resources")
        if not isinstance(resources, Mapping):
            continue
        requests, limits = (_amounts(resources.get(side)) for side in ("requests", "limits"))
        for key, amount in requests.items():
            if not _is_extended(key) or limits.get(key) == amount:
                continue
            given = "no limit" if key not in limits else f"a limit of {limits[key]}"
            yield Finding(
                "GF761",
                f"{asked.title} requests {amount} {key} and has {given}; Kubernetes refuses that",
                subject.where_of(asked, "resources", "requests", key),
                f"resources: {{limits: {{{key}: {amount}}}}} says both",
                severity="warning",
            )


def _is_extended(key: str) -> bool:
    """Whether Kubernetes treats it as an extended resource: a name with a domain that is not Kubernetes' own."""
    return "/" in key and "kubernetes.io/" not in key


def _amounts(listed: object) -> dict[str, Quantity]:
    found: dict[str, Quantity] = {}
    for key, value in listed.items() if isinstance(listed, Mapping) else ():
        try:
            found[str(key)] = read_quantity(value)
        except ValueError:
            continue  # whoever reads the pod says so
    return found
