"""What pods ask of a topology, as their annotations say it to Kueue.

Mirrors sigs.k8s.io/kueue/pkg/controller/jobframework.podSetTopologyRequestBuilder.Build, Kueue v0.19.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

PREFIX: Final = "kueue.x-k8s.io/podset-"
TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
"""What Go reads as true."""
SLICES: Final = {
    "slice-required-topology": "podSetSliceRequiredTopology",
    "slice-size": "podSetSliceSize",
    "slice-required-topology-constraints": "podsetSliceRequiredTopologyConstraints",
}


def topology_request(annotations: Mapping[str, str]) -> dict[str, Any]:
    """The topologyRequest of a pod set; empty where its pods ask for nothing. The first wish counts, alone."""
    asked = {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}
    found: dict[str, Any] = {}
    if "required-topology" in asked:
        found["required"] = asked["required-topology"]
    elif "preferred-topology" in asked:
        found["preferred"] = asked["preferred-topology"]
    elif "unconstrained-topology" in asked:
        found["unconstrained"] = asked["unconstrained-topology"] in TRUE
    if found.keys() & {"required", "preferred"} and "group-name" in asked:
        found["podSetGroupName"] = asked["group-name"]
    return found | {field: asked[key] for key, field in SLICES.items() if key in asked}
