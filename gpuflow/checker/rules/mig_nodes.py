"""`nvidia.com/gpu` asked of nodes whose GPUs are cut into MIG slices.

Only for documents of other tools: a pipeline of ours names its GPU, and the site knows where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gpuflow.catalog.labels import PRODUCT_KEY, read_product_label
from gpuflow.catalog.resources import profile_of_resource
from gpuflow.checker.nodes.placement import read_placement
from gpuflow.checker.nodes.subjects import Node, read_node
from gpuflow.checker.wording import listed, where_of
from gpuflow.cluster import Manifest
from gpuflow.demands import Demand
from gpuflow.errors import Finding, shortened

GPU: Final = "nvidia.com/gpu"
PARTITION: Final = "cloud.google.com/gke-gpu-partition-size"
"""On GKE, nodes of one slice size offer each slice as a GPU and carry this label."""


def mig_nodes(demand: Demand, manifests: Sequence[Manifest]) -> Iterator[Finding]:
    """GF762, GF763: steps that get slices without asking for them, and steps that find slices only."""
    asking = [step for step in demand.steps if any(_asks(each.pod) for each in step.pod_sets)]
    if demand.pipeline is not None or not asking or not manifests:
        return
    nodes = [node for node in (read_node(each.body) for each in manifests) if _slices(node) or _has(node)]
    known: dict[object, list[Node]] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for step in asking:
        placement = read_placement(step.pod["spec"])
        if placement.identity not in known:
            known[placement.identity] = [node for node in nodes if placement.matches(node.name, node.labels)]
        open_to = known[placement.identity]
        cut = [node for node in open_to if _is_cut(node)]
        if open_to and not any(map(_has, open_to)):
            offered = sorted({name for node in open_to for name in _slices(node)})
            groups.setdefault(("GF763", shortened(offered)), []).append(step.name)
        elif cut:
            groups.setdefault(("GF762", shortened([node.name for node in cut])), []).append(step.name)
    for (code, what), steps in groups.items():
        yield _finding(code, what, steps, demand)


def _finding(code: str, what: str, steps: list[str], demand: Demand) -> Finding:
    if code == "GF763":
        text = f"{listed(steps)} asks for {GPU}, and the GPU nodes open to it offer slices only: {what}"
        hint = "ask for one of them instead, or select nodes with whole GPUs"
    else:
        text = f"{listed(steps)} asks for {GPU}, and on {what} that is a MIG slice, not a GPU"
        hint = f"select nodes by {PRODUCT_KEY}, or take the slice on purpose and silence {code}"
    return Finding(code, text, where_of(demand, steps[0]), hint, severity="warning")


def _asks(pod: Mapping[str, Any]) -> bool:
    return any(
        GPU in (container.get("resources", {}).get(side) or {})
        for group in ("initContainers", "containers")
        for container in pod["spec"].get(group) or ()
        for side in ("requests", "limits")
    )


def _has(node: Node) -> bool:
    return node.allocatable.get(GPU, 0) > 0


def _slices(node: Node) -> list[str]:
    return [name for name, amount in node.allocatable.items() if amount > 0 and profile_of_resource(name)]


def _is_cut(node: Node) -> bool:
    """Whether one `nvidia.com/gpu` of the node is a slice."""
    profile = read_product_label(node.labels.get(PRODUCT_KEY, "")).profile
    return _has(node) and (profile is not None or PARTITION in node.labels)
