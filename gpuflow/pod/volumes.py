"""The files of a pod: one volume per source, mounted wherever containers ask for it."""

from __future__ import annotations

import hashlib
import re
from typing import Any

from gpuflow.quantity import Quantity
from gpuflow.spec.container import Volume


class Volumes:
    """Collects the volumes of one pod. The same source mounted twice is one volume.

    Scratch space is the same when it stands at the same path with the same size: so an init container or a sidecar
    and the step's own container hand files to each other.
    """

    def __init__(self) -> None:
        self._sources: dict[str, dict[str, Any]] = {}
        self._wishes: dict[str, str] = {}

    def mount(self, path: str, volume: Volume) -> dict[str, Any]:
        """The volume mount for a path, its volume added to the pod."""
        mount: dict[str, Any] = {"name": self._add(*_source(path, volume)), "mountPath": path}
        if volume.sub_path is not None:
            mount["subPath"] = volume.sub_path
        if volume.read_only:
            mount["readOnly"] = True
        return mount

    def scratch(self, path: str, *, memory: bool = False, size: Quantity | None = None) -> dict[str, Any]:
        """A mount of an empty directory that lives as long as the pod."""
        source: dict[str, Any] = {"medium": "Memory"} if memory else {}
        if size is not None:
            source["sizeLimit"] = str(size)
        return {"name": self._add(f"scratch-{path}", {"emptyDir": source}), "mountPath": path}

    def config_map(self, path: str, name: str) -> dict[str, Any]:
        """A read-only mount of a ConfigMap whose files may be executed."""
        source = {"configMap": {"name": name, "defaultMode": 0o555}}
        return {"name": self._add(f"config-{name}", source), "mountPath": path, "readOnly": True}

    def secret_file(self, path: str, secret: str, key: str) -> dict[str, Any]:
        """A read-only mount of one key of a Secret, for the pod's user and group only."""
        source = {"secret": {"secretName": secret, "items": [{"key": key, "path": key}], "defaultMode": 0o440}}
        return {"name": self._add(f"key-{secret}", source), "mountPath": path, "readOnly": True}

    def _add(self, wish: str, source: dict[str, Any]) -> str:
        known = self._wishes.get(wish)
        if known is not None and self._sources[known] == source:
            return known
        name = volume_name(wish)
        if name in self._sources:
            name = volume_name(f"{wish}-{len(self._sources)}")
        self._sources[name] = source
        self._wishes[wish] = name
        return name

    def manifests(self) -> list[dict[str, Any]]:
        """The pod's `volumes`."""
        return [{"name": name, **source} for name, source in self._sources.items()]


def volume_name(wish: str) -> str:
    """A DNS label that stays recognizable: `scratch-/dev/shm` becomes `scratch-dev-shm`."""
    plain = re.sub(r"[^a-z0-9]+", "-", wish.lower()).strip("-") or "volume"
    if len(plain) <= 63:
        return plain
    return f"{plain[:54].rstrip('-')}-{hashlib.sha256(wish.encode()).hexdigest()[:8]}"


def _source(path: str, volume: Volume) -> tuple[str, dict[str, Any]]:
    if volume.claim is not None:
        return f"claim-{volume.claim}", {"persistentVolumeClaim": {"claimName": volume.claim}}
    if volume.new_claim is not None:
        return run_claim_volume(volume.new_claim), {"persistentVolumeClaim": {"claimName": volume.new_claim}}
    if volume.config_map is not None:
        return f"config-{volume.config_map}", {"configMap": {"name": volume.config_map}}
    if volume.secret is not None:
        return f"secret-{volume.secret}", {"secret": {"secretName": volume.secret}}
    size = volume.memory if volume.memory is not None else volume.empty_dir
    medium = {"medium": "Memory"} if volume.memory is not None else {}
    return f"scratch-{path}", {"emptyDir": {**medium, "sizeLimit": str(size)}}


def run_claim_volume(name: str) -> str:
    """The volume of a claim that is made for each run; engines put the real claim's name behind it."""
    return volume_name(f"run-{name}")
