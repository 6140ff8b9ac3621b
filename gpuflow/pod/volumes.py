"""The files of a pod: one volume for each source, mounted wherever containers ask for it, and the inputs of a step.

For inputs: where they lie in the pod, which options the supervisor gets, and how much of the node's disk they take.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from functools import lru_cache
from typing import Any

from gpuflow.pod.spelling import Spelling, spell_text
from gpuflow.quantity import Quantity
from gpuflow.spec.params import RunClaim
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.rules.step_rules import is_file
from gpuflow.spec.rules.volume_room import sized_files
from gpuflow.spec.step import Step
from gpuflow.spec.storage_paths import is_below, volume_above
from gpuflow.spec.volumes import Csi, Ephemeral, Input, Projection, Volume, mode_number


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
        mount: dict[str, Any] = {"name": self._add(*_volume_source(path, volume)), "mountPath": path}
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


@lru_cache(maxsize=4096)
def volume_name(wish: str) -> str:
    """A DNS label that stays recognizable: `scratch-/dev/shm` becomes `scratch-dev-shm`."""
    plain = re.sub(r"[^a-z0-9]+", "-", wish.lower()).strip("-") or "volume"
    if len(plain) <= 63:
        return plain
    return f"{plain[:54].rstrip('-')}-{hashlib.sha256(wish.encode()).hexdigest()[:8]}"


def _volume_source(path: str, volume: Volume) -> tuple[str, dict[str, Any]]:
    if volume.claim is not None:
        return f"claim-{volume.claim}", {"persistentVolumeClaim": {"claimName": volume.claim}}
    if volume.new_claim is not None:
        return run_claim_volume(volume.new_claim), {"persistentVolumeClaim": {"claimName": volume.new_claim}}
    if volume.config_map is not None:
        return f"config-{volume.config_map}", {"configMap": {"name": volume.config_map, **_keys(volume)}}
    if volume.secret is not None:
        return f"secret-{volume.secret}", {"secret": {"secretName": volume.secret, **_keys(volume)}}
    if volume.host_path is not None:
        kind = {"type": volume.host_path.type} if volume.host_path.type else {}
        return f"host-{volume.host_path.path}", {"hostPath": {"path": volume.host_path.path, **kind}}
    if volume.nfs is not None:
        return f"nfs-{volume.nfs.path}", {"nfs": {"server": volume.nfs.server, "path": volume.nfs.path}}
    if volume.csi is not None:
        return f"csi-{path}", {"csi": _csi(volume.csi)}
    if volume.ephemeral is not None:
        return f"ephemeral-{path}", {"ephemeral": {"volumeClaimTemplate": _claim_template(volume.ephemeral)}}
    if volume.projected is not None:
        mode = {"defaultMode": mode_number(volume.default_mode)} if volume.default_mode else {}
        return f"projected-{path}", {"projected": {"sources": list(map(_projection, volume.projected)), **mode}}
    size = volume.memory if volume.memory is not None else volume.empty_dir
    medium = {"medium": "Memory"} if volume.memory is not None else {}
    return f"scratch-{path}", {"emptyDir": {**medium, "sizeLimit": str(size)}}


def _keys(source: Volume | Projection) -> dict[str, Any]:
    """Which keys of a ConfigMap or Secret become files, and how."""
    mode = source.default_mode if isinstance(source, Volume) else None
    fields = {
        "items": [
            {"key": key, "path": item.path, **({"mode": mode_number(item.mode)} if item.mode else {})}
            for key, item in source.items.items()
        ],
        "defaultMode": mode_number(mode) if mode else None,
        "optional": True if source.optional else None,
    }
    return {key: value for key, value in fields.items() if value not in (None, [])}


def _csi(volume: Csi) -> dict[str, Any]:
    fields = {
        "driver": volume.driver,
        "volumeAttributes": dict(volume.attributes),
        "fsType": volume.fs_type,
        "nodePublishSecretRef": {"name": volume.secret} if volume.secret else None,
    }
    return {key: value for key, value in fields.items() if value}


def _claim_template(claim: Ephemeral) -> dict[str, Any]:
    metadata = {"labels": dict(claim.labels), "annotations": dict(claim.annotations)}
    metadata = {key: value for key, value in metadata.items() if value}
    spec: dict[str, Any] = {"accessModes": [claim.access], "resources": {"requests": {"storage": str(claim.size)}}}
    if claim.storage_class is not None:
        spec["storageClassName"] = claim.storage_class
    return {"metadata": metadata, "spec": spec} if metadata else {"spec": spec}


def _projection(source: Projection) -> dict[str, Any]:
    if source.token is not None:
        token: dict[str, Any] = {"path": source.token.path}
        if source.token.audience is not None:
            token["audience"] = source.token.audience
        if source.token.expires is not None:
            token["expirationSeconds"] = source.token.expires.seconds
        return {"serviceAccountToken": token}
    if source.downward_api is not None:
        return {"downwardAPI": {"items": [_fact(path, fact) for path, fact in source.downward_api.items()]}}
    if source.secret is not None:
        return {"secret": {"name": source.secret, **_keys(source)}}
    return {"configMap": {"name": source.config_map, **_keys(source)}}


def _fact(path: str, fact: str) -> dict[str, Any]:
    if fact.startswith("metadata."):
        return {"path": path, "fieldRef": {"fieldPath": fact}}
    return {"path": path, "resourceFieldRef": {"containerName": "main", "resource": fact}}


def run_claim_spec(claim: RunClaim) -> dict[str, Any]:
    """The spec of a claim that is made for each run."""
    spec: dict[str, Any] = {"accessModes": [claim.access], "resources": {"requests": {"storage": str(claim.size)}}}
    return spec if claim.storage_class is None else {**spec, "storageClassName": claim.storage_class}


def run_claim_volume(name: str) -> str:
    """The volume of a claim that is made for each run; engines put the real claim's name behind it."""
    return volume_name(f"run-{name}")


def keeps_artifacts(step: Step) -> bool:
    """Whether the supervisor keeps files or directories after the command has ended."""
    return any(output.is_artifact for output in step.outputs.values())


def input_mounts(pipeline: Pipeline, step: Step, volumes: Volumes) -> list[dict[str, Any]]:
    """A mount for each input: the claim that has it, or scratch space, unless a volume of the step holds its path.

    A directory gets scratch space at its path. A file cannot be mounted before it is there, so its folder gets it.
    """
    mounts = [
        volumes.mount(mount, Volume(claim=given.claim, sub_path=given.path, read_only=True))
        for mount, given in step.inputs.items()
        if given.claim is not None
    ]
    return mounts + [volumes.scratch(folder) for folder in scratch_folders(pipeline, step)]


def scratch_folders(pipeline: Pipeline, step: Step) -> list[str]:
    """The folders on the node's disk that inputs are brought to."""
    folders: list[str] = []
    for mount, given in step.inputs.items():
        if given.is_fetched and volume_above(step, mount) is None:
            path = mount.rstrip("/")
            folders.append(posixpath.dirname(path) if is_file(pipeline, given) else path)
    outermost = [one for one in folders if not any(one != other and is_below(one, other) for other in folders)]
    return list(dict.fromkeys(outermost))


def input_options(step: Step, spelling: Spelling) -> dict[str, Any]:
    """What the supervisor is told about the inputs that it brings."""
    fetched = {mount.rstrip("/"): given for mount, given in step.inputs.items() if given.is_fetched}
    paths = {mount: spell_text(mount, spelling) for mount in fetched}
    options = {
        "input": [f"{paths[mount]}={_input_source(given, spelling)}" for mount, given in fetched.items()],
        "input-type": [f"{paths[mount]}={given.type}" for mount, given in fetched.items() if given.type],
        "input-digest": [f"{paths[mount]}={given.digest}" for mount, given in fetched.items() if given.digest],
    }
    return {key: value for key, value in options.items() if value}


def _input_source(given: Input, spelling: Spelling) -> str:
    return spell_text(given.uri, spelling) if given.output is None else spelling.reference(given.output)


def room_on_node(pipeline: Pipeline, step: Step) -> Quantity | None:
    """What inputs and outputs take of the node's disk, as far as their sizes are known."""
    found = [file.size for file in sized_files(pipeline, step) if file.is_on_node]
    return sum(found[1:], found[0]) if found else None
