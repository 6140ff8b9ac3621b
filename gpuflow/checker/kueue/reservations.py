"""What ClusterQueues say of themselves that they have reserved, by flavor and resource."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuflow.checker.kueue.amounts import FlavorResource, quota_amount
from gpuflow.checker.kueue.flavors import read_name
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.resources import BadField, read_map, read_maps, read_quantity


def read_reservations(queue: Mapping[str, Any]) -> dict[FlavorResource, int]:
    """The amounts in `status.flavorsReservation` of a ClusterQueue."""
    where = f"ClusterQueue {read_name(queue, 'ClusterQueue')}: status.flavorsReservation"
    found = {}
    for flavor in read_maps(read_map(queue.get("status"), "status").get("flavorsReservation"), where):
        name = read_text(flavor, "name", where) or ""
        for item in read_maps(flavor.get("resources"), f"{where}[{name}].resources"):
            resource = read_text(item, "name", where) or ""
            try:
                found[name, resource] = quota_amount(resource, read_quantity(item.get("total") or "0"))
            except ValueError as error:
                raise BadField(f"{where}[{name}].{resource}", str(error)) from None
    return found
