"""What must be there before the object of an attempt, and goes with it: the TrainingRuntime of a TrainJob, or the
PodGroup in which Volcano places a JobSet.
"""

from __future__ import annotations

from gpuflow.runtime.api_server import ApiServer, Refused, say
from gpuflow.runtime.manifests import Misuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuflow.runtime.gang_kinds import GangKind


def prepare(api: ApiServer, folder: str, first: dict[str, Any], is_ours: Callable[[Mapping[str, Any]], bool]) -> None:
    """Make it. One that a lost launcher left, and that nothing uses yet, may be out of date: it is made anew."""
    path = f"{folder}/{first['metadata']['name']}"
    try:
        api.patiently(lambda: api.create(folder, first))
    except Refused as refusal:
        if refusal.status != 409:
            raise
        there = api.present(path)
        if there is not None and not is_ours(there):
            raise Misuse(f"{_called(first)} is there already, and this run did not create it") from None
        api.patiently(lambda: api.delete(path))
        api.patiently(lambda: api.create(folder, first))


def give(
    api: ApiServer, folder: str, kind: GangKind, made: Mapping[str, Any], first: Mapping[str, Any] | None = None
) -> None:
    """Let what has the name of an attempt's object go with it from now on. `first`: made anew where it is gone.

    It goes with the run until then, and what ended that may have taken it away and left the object.
    """
    name = made["metadata"]["name"]
    owners = {"ownerReferences": [owner_of(kind, made)]}
    try:
        try:
            api.patiently(lambda: api.merge(f"{folder}/{name}", {"metadata": owners}))
        except Refused as refusal:
            if refusal.status != 404 or first is None:
                raise
            again = {**first, "metadata": {**first["metadata"], **owners}}
            api.patiently(lambda: api.create(folder, again))
            say(f"{_called(first)}: it was gone, and is made anew")
    except Refused as refusal:
        say(f"{refusal}; what stands before {kind.name} {name} may go sooner or later than it")


def owner_of(kind: GangKind, made: Mapping[str, Any]) -> dict[str, Any]:
    """The reference by which what belongs to an object goes with it."""
    metadata = made["metadata"]
    return {"apiVersion": kind.api_version, "kind": kind.kind, "name": metadata["name"], "uid": metadata["uid"]}


def _called(document: Mapping[str, Any]) -> str:
    return f"{document['kind']} {document['metadata']['name']}"
