"""What a gang's object of any kind takes from the pod of a rank."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuflow.errors import fail
from gpuflow.kubernetes.labels import QUEUE_LABEL, QUEUE_PRIORITY_LABEL
from gpuflow.runtime.gang_kinds import GangKind

MAIN = "main"
"""What a pod of ours calls the program's container."""
KEPT = 86400
"""The seconds that an ended gang is kept: a launcher that comes back reads from it how it ended."""


class Parts(NamedTuple):
    """The template of the pods, and what belongs to the object instead."""

    template: dict[str, Any]
    labels: dict[str, str]
    queued: dict[str, str]
    """The labels by which Kueue takes it in."""
    deadline: int | None


def parts_of(pod: Mapping[str, Any]) -> Parts:
    """The parts of a rank's pod."""
    labels = dict(pod["metadata"].get("labels", {}))
    # Kueue takes an object in as a whole by the label of the object; on its pods it would take each pod for itself.
    queued = {key: labels.pop(key) for key in (QUEUE_LABEL, QUEUE_PRIORITY_LABEL) if key in labels}
    metadata = {"labels": labels, "annotations": pod["metadata"].get("annotations")}
    template = {"metadata": {key: value for key, value in metadata.items() if value}, "spec": dict(pod["spec"])}
    return Parts(template, labels, queued, template["spec"].pop("activeDeadlineSeconds", None))


def named_for(kind: GangKind, pod: Mapping[str, Any]) -> dict[str, Any]:
    """The pod with the program's container called as the kind wants it; no other has that name."""
    spec = pod["spec"]
    for each in (*spec["containers"], *spec.get("initContainers", ())):
        if each["name"] == kind.container:
            raise fail(
                "GF408",
                f'a {kind.name} calls the program\'s container "{kind.container}", and another one has that name',
                hint="give the helper another name",
            )
    renamed = [{**each, "name": kind.container} if each["name"] == MAIN else dict(each) for each in spec["containers"]]
    return {**pod, "spec": {**spec, "containers": renamed}}
