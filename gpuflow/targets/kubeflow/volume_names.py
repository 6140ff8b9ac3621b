"""The names of volumes: KFP's driver calls a volume after the Secret, ConfigMap or claim behind it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

_VOLUME_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def shared_volume_names(pod: dict[str, Any]) -> Iterator[str]:
    """Names that two volumes would share: the driver names a volume after its Secret, ConfigMap or claim."""
    seen: dict[str, str] = {}
    for volume in pod["spec"].get("volumes", []):
        kind, name = driver_name(volume)
        if seen.setdefault(name, kind) != kind:
            yield name


def driver_name(volume: dict[str, Any]) -> tuple[str, str]:
    """The kind of a volume, and what the driver calls it."""
    if "persistentVolumeClaim" in volume:
        return "claim", volume["persistentVolumeClaim"]["claimName"]
    if "secret" in volume:
        return "secret", volume["secret"]["secretName"]
    if "configMap" in volume:
        return "config map", volume["configMap"]["name"]
    return "scratch", volume["name"]


def volume_problems(pod: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Volumes that the driver would give the same name, or one that Kubernetes refuses, with the way out."""
    for name in shared_volume_names(pod):
        yield (
            f'kubeflow cannot mount two kinds of volume named "{name}": its driver names volumes '
            "after the Secret, ConfigMap or claim behind them",
            "rename one of the objects",
        )
    for volume in pod["spec"].get("volumes", []):
        kind, name = driver_name(volume)
        if not _VOLUME_NAME.fullmatch(name):
            yield (
                f'kubeflow cannot mount the {kind} "{name}": its driver gives the volume that name, and Kubernetes '
                "allows volumes at most 63 lower-case letters, digits and '-'",
                "create an object with a shorter name without dots, and mount that",
            )
