"""Paths that KFP and Argo mount into every step's container (argocompiler/container.go, 2.17)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

from gpuflow.errors import Finding
from gpuflow.plan import Plan, PlannedStep
from gpuflow.pod.supervision import saves_to_scratch
from gpuflow.targets.kubeflow.gangs import own_pods

MOUNTS = ("/kfp-launcher", "/gcs", "/s3", "/minio", "/.local", "/.cache", "/.config", "/var/run/argo")
"""Each is an empty folder of the pod: what the image has there is hidden."""

Place = tuple[tuple[str | int, ...], str]


def taken_mounts(plan: Plan) -> Iterator[Finding]:
    """Volumes where KFP mounts one itself: Kubernetes refuses two mounts of one path, and the step never starts."""
    for each in own_pods(plan):
        for place, path in _mounted(each):
            if _normal(path) in MOUNTS:
                yield Finding(
                    "GF386",
                    f'step "{each.name}" mounts a volume at {path}, where KFP mounts one of its own: Kubernetes '
                    "refuses such a pod",
                    each.where(*place),
                    "mount it at another path, or at a folder below this one",
                )


def hidden_paths(plan: Plan) -> Iterator[Finding]:
    """Steps that work where KFP mounts an empty folder."""
    for each in own_pods(plan):
        for place, path in _used(each):
            mount = _around(_normal(path))
            if mount is not None and not any(_below(_normal(path), _normal(own)) for _, own in _mounted(each)):
                yield Finding(
                    "GF387",
                    f'step "{each.name}": {path} is in {mount}, where KFP mounts an empty folder: files of the image '
                    "are hidden there, and what is written there goes with the pod",
                    each.where(*place),
                    "use another path",
                    "note",
                )


def _mounted(each: PlannedStep) -> list[Place]:
    found: list[Place] = [(("volumes", path), path) for path in each.step.volumes]
    if each.step.checkpoint is not None and saves_to_scratch(each.step):
        found.append((("checkpoint", "path"), each.step.checkpoint.path))
    return found


def _used(each: PlannedStep) -> Iterator[Place]:
    step = each.step
    if step.working_dir is not None:
        yield ("working_dir",), step.working_dir
    for name, output in step.outputs.items():
        if output.path is not None:
            yield ("outputs", name, "path"), output.path


def _around(path: str) -> str | None:
    return next((mount for mount in MOUNTS if _below(path, mount)), None)


def _below(path: str, mount: str) -> bool:
    return path == mount or path.startswith(mount.rstrip("/") + "/")


def _normal(path: str) -> str:
    return posixpath.normpath(path)
