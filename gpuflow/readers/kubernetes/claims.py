"""Claims that a controller makes for pods: one for each pod, or one that all pods of an object share."""

from __future__ import annotations

from typing import Any

from gpuflow.demands.model import ClaimDemand
from gpuflow.readers.kubernetes.parts import Part
from gpuflow.readers.kubernetes.pods import Pod


def with_own_claims(pod: Pod, templates: Part | None) -> Pod:
    """The pod with a claim of its own for each template, as a StatefulSet makes them.

    They are written as ephemeral volumes, which are claims of one pod too: so they count once for each pod.
    """
    if templates is None:
        return pod
    made = [
        {"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
        for name, spec, _ in map(_read, templates.items())
    ]
    return _with_volumes(pod, made)


def shared_claims(policies: Part | None, owner: str) -> list[ClaimDemand]:
    """The claims that a JobSet makes once for all of its pods."""
    found = []
    for policy in policies.items() if policies is not None else ():
        templates = policy.at("templates")
        for template in templates.items() if templates is not None else ():
            name, spec, where = _read(template)
            manifest = {"metadata": {"name": f"{name}-{owner}"}, "spec": spec}
            found.append(ClaimDemand(f"{name}-{owner}", manifest, name, where, where, where))
    return found


def with_shared_claims(pod: Pod, claims: list[ClaimDemand]) -> Pod:
    """The pod with the claims that its containers mount."""
    mounted = {
        mount.get("name")
        for group in ("initContainers", "containers")
        for container in pod["spec"].get(group, ())
        for mount in container.get("volumeMounts", ())
    }
    made = [
        {"name": claim.volume, "persistentVolumeClaim": {"claimName": claim.name}}
        for claim in claims
        if claim.volume in mounted
    ]
    return _with_volumes(pod, made)


def _with_volumes(pod: Pod, made: list[dict[str, Any]]) -> Pod:
    """A volume that a controller makes takes the place of one with its name."""
    if not made:
        return pod
    names = {volume["name"] for volume in made}
    kept = [volume for volume in pod["spec"].get("volumes", ()) if volume.get("name") not in names]
    return {**pod, "spec": {**pod["spec"], "volumes": [*kept, *made]}}


def _read(template: Part) -> tuple[str, dict[str, Any], Any]:
    metadata = template.need("metadata")
    name = metadata.text("name")
    if not name:
        raise metadata.fault("has no name")
    spec = template.need("spec")
    storage = spec.need("resources", "requests", "storage")
    storage.quantity()
    found: dict[str, Any] = {"resources": {"requests": {"storage": str(getattr(storage.value, "text", storage.value))}}}
    modes = spec.at("accessModes")
    if modes is not None:
        if not isinstance(modes.value, list) or not all(isinstance(mode, str) for mode in modes.value):
            raise modes.fault("must be a list of texts")
        found["accessModes"] = [str(mode) for mode in modes.value]
    for key in ("storageClassName", "volumeMode"):
        if (text := spec.text(key)) is not None:
            found[key] = text
    return name, found, template.where
