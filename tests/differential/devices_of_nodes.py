"""What each node gives to the claims of one pod, from manifests: the question that the scheduler's oracle answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuflow.checker.dra.allocator import AllocatedState, AllocationError, AllocationUnknown, Allocator
from gpuflow.checker.dra.objects import read_claim, read_device_class, read_slice
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.labels import read_labels
from gpuflow.kubernetes.resources import read_map

Body = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeDevices:
    """What one node gives to claims.

    Status: `allocated`; `none`; `invalid` when a pool of the node is; `error` when a claim or class is wrong, which
    ends the attempt on all nodes; `unknown` when that is not judged. The last two with their reason.
    """

    status: str
    devices: tuple[tuple[str, ...], ...] = ()
    reason: str | None = None


def allocate_devices(
    claims: Iterable[Body],
    nodes: Iterable[Body],
    *,
    slices: Iterable[Body],
    classes: Iterable[Body],
    others: Iterable[Body] = (),
) -> dict[str, NodeDevices]:
    """What each node gives to the claims of one pod, beside those that hold devices already (`others`)."""
    known = {each.name: each for each in map(read_device_class, classes)}
    held = AllocatedState()
    for each in others:
        held.add_claim(each)
    allocator = Allocator(map(read_slice, slices), known, held)
    wanted = [read_claim(_name_of(each), each.get("spec")) for each in claims]
    answers: dict[str, NodeDevices] = {}
    for node in nodes:
        labels = read_labels(read_map(node.get("metadata"), "metadata").get("labels"), "metadata.labels")
        try:
            given = allocator.allocate(_name_of(node), labels, wanted)
        except AllocationError as error:
            answers[_name_of(node)] = NodeDevices("error", reason=str(error))
        except AllocationUnknown as reason:
            answers[_name_of(node)] = NodeDevices("unknown", reason=str(reason))
        else:
            devices = tuple(tuple(map(str, picked)) for picked in given.claims)
            answers[_name_of(node)] = NodeDevices(given.status, devices)
    return answers


def _name_of(body: Body) -> str:
    return read_text(read_map(body.get("metadata"), "metadata"), "name", "metadata") or ""
