"""Why the scheduler does not bind a pod: which nodes could take it, what is short there, and who holds it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gpuflow.checker.nodes.amounts import as_quantity
from gpuflow.checker.nodes.capacity import capacity_in, way_out
from gpuflow.checker.nodes.fit import NodeFit, fit, read_pending
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.nodes.subjects import BoundPod, UnboundPod, read_bound
from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.errors import shortened
from gpuflow.why.answer import Cause
from gpuflow.why.fields import part

MOST_NODES = 3
"""So many nodes are described, those that lack least first."""


class Shortage(NamedTuple):
    """What a node lacks for a pod."""

    host: int
    amounts: Mapping[str, int]
    slots: int


def node_causes(pod: Mapping[str, Any], ready: PreparedCluster) -> Iterator[Cause]:
    """What the scheduler says to a pod that is not bound and that no gate holds."""
    pools = ready.node_pools
    if pools is None:
        yield Cause(
            "snapshot",
            f"which nodes there are is not known: {ready.cluster.source} shows none",
            "unknown",
            ("ask again with the nodes and the pods on them: --cluster live, or gpuflow snapshot",),
        )
        return
    unbound = read_pending(pod, storage=ready.storage)
    found = fit(unbound, pools.node_list)
    other = _other_scheduler(pod)
    told = [_about_to_start(pod, found, ready)] if found.feasible else _refused(pod, unbound, found, pools, ready)
    # What Kubernetes' scheduler would do is worth reading, and decides nothing where another one binds.
    yield from (replace(each, state="unknown") if other else each for each in told)
    if other:
        text = f"its scheduler, {other}, has rules of its own, which gpuflow does not know"
        yield Cause("nodes", text, "unknown", (f"{other} binds it: see its log and kubectl describe pod",))
    for each in found.unknown:
        yield Cause("snapshot", f"not looked at: {each}", "unknown")


def _about_to_start(pod: Mapping[str, Any], found: NodeFit, ready: PreparedCluster) -> Cause:
    ahead = [name for name, other in _waiting(ready) if other > _priority(pod) and name != _name(pod)]
    seen = "as far as gpuflow can tell, it fits" if found.unknown else "it fits"
    text = f"{seen} on {_listed(found.feasible, 'node')}: the scheduler binds it at its next try"
    if ahead:
        text += f", after the pods of higher priority that wait too ({shortened(ahead)})"
    return Cause("nodes", text, "starts")


def _other_scheduler(pod: Mapping[str, Any]) -> str | None:
    """A scheduler that is not Kubernetes' own; None when it is."""
    name = part(pod, "spec").get("schedulerName") or "default-scheduler"
    return None if name == "default-scheduler" else str(name)


def _refused(
    pod: Mapping[str, Any], unbound: UnboundPod, found: NodeFit, pools: NodePools, ready: PreparedCluster
) -> Iterator[Cause]:
    held = capacity_in(pools, unbound)
    if not held.empty and not held.new:
        yield _never(unbound, found, pools)
        return
    names = [host.node.name for host in pools.node_list.hosts]
    when = []
    bound = dict(_bound(ready))
    shortages = sorted(_shortages(unbound, pools, held.empty), key=_size)
    for shortage in shortages[:MOST_NODES]:
        name = names[shortage.host]
        reasons = found.reasons.get(name, [])
        when.append(_on_node(pod, name, shortage, reasons, bound.get(name, []), pools))
    left = len(held.empty) - len(when)
    if left > 0:
        when.append(f"or the same on one of {left} more nodes")
    when += [f"or a new node of the group {name} comes, if its autoscaler adds one" for name in held.new]
    if not held.empty:
        text = "no node that is there can hold it; a node group may add one that can"
    else:
        has = "has" if len(held.empty) == 1 else "have"
        text = f"{_listed(sorted(held.empty), 'node')} could hold it, and {has} no room now"
        if not any(each.amounts or each.slots for each in shortages):
            text = f"{_listed(sorted(held.empty), 'node')} {has} room for it, and something else keeps it away"
    yield Cause("nodes", text, "waits", tuple(when), found.message)


def _never(unbound: UnboundPod, found: NodeFit, pools: NodePools) -> Cause:
    """No node could hold it, even if nothing else ran there."""
    out = way_out(pools, unbound)
    when = []
    if out.eligible:
        short = [
            f"{name}: asks for {each.asked}, {each.node} has {each.largest}" for name, each in out.shortfalls.items()
        ]
        text = f"no node can hold it, even an empty one; the closest is {out.closest}"
        when.append(f"it asks for less, or a larger node comes ({'; '.join(short)})")
    else:
        text = "no node is for it by labels, taints, names and volumes"
        reasons = [f"{count} of the nodes: {reason}" for reason, count in out.refusals.items()]
        when.append(
            f"a node comes that is for it, or the pod or a node is changed ({'; '.join(reasons) or 'no nodes'})"
        )
    return Cause("nodes", text, "never", tuple(when), found.message)


def _shortages(unbound: UnboundPod, pools: NodePools, could: Mapping[str, int]) -> Iterator[Shortage]:
    for index, host in enumerate(pools.node_list.hosts):
        if host.node.name in could:
            free = pools.free[index]
            lacking = {
                name: asked - free.free.get(name, 0)
                for name, asked in unbound.requests.items()
                if free.free.get(name, 0) < asked
            }
            yield Shortage(index, lacking, max(0, 1 - free.slots))


def _size(shortage: Shortage) -> tuple[int, int, int, int]:
    devices = sum(amount for name, amount in shortage.amounts.items() if "/" in name)
    return len(shortage.amounts), devices, sum(shortage.amounts.values()), shortage.host


def _on_node(
    pod: Mapping[str, Any],
    name: str,
    shortage: Shortage,
    reasons: list[str],
    bound: list[tuple[str, BoundPod, int]],
    pools: NodePools,
) -> str:
    """What must happen on one node."""
    host = pools.node_list.hosts[shortage.host].node
    movable = [each for each in bound if not each[1].is_fixture]
    words = []
    for resource, missing in shortage.amounts.items():
        holders = sorted((each for each in movable if each[1].requests.get(resource)), key=lambda each: each[0])
        held = [f"{each} {as_quantity(resource, one.requests[resource])}" for each, one, _ in holders]
        by = f"; now held: {shortened(held)}" if held else ""
        whole = as_quantity(resource, host.allocatable.get(resource, 0))
        words.append(f"{as_quantity(resource, missing)} more {resource} free ({whole} in all{by})")
    if shortage.slots:
        words.append(f"one pod fewer (it takes {host.slots})")
    if not words:
        # Amounts are there: something else keeps it away, and the scheduler has said what.
        return f"node {name} takes it; now: {'; '.join(reasons) or 'the scheduler has not said why not'}"
    lower = [each for each in movable if each[2] < _priority(pod)]
    may_preempt = pod["spec"].get("preemptionPolicy") != "Never" and _suffice(shortage, [one for _, one, _ in lower])
    names = shortened([each for each, _, _ in lower])
    also = f"; the scheduler may preempt pods of lower priority there: {names}" if may_preempt else ""
    return f"node {name} has {' and '.join(words)}{also}"


def _suffice(shortage: Shortage, pods: list[BoundPod]) -> bool:
    """Whether a node has room when these pods have gone."""
    given = {name: sum(each.requests.get(name, 0) for each in pods) for name in shortage.amounts}
    return bool(pods) and all(given[name] >= missing for name, missing in shortage.amounts.items())


def _bound(ready: PreparedCluster) -> Iterator[tuple[str, list[tuple[str, BoundPod, int]]]]:
    found: dict[str, list[tuple[str, BoundPod, int]]] = {}
    for item in ready.cluster.of("Pod"):
        one = read_bound(item.body)
        if one is not None:
            found.setdefault(one.node, []).append((f"{one.namespace}/{item.name}", one, _priority(item.body)))
    yield from found.items()


def _waiting(ready: PreparedCluster) -> Iterator[tuple[str, int]]:
    for item in ready.cluster.of("Pod"):
        spec, status = part(item.body, "spec"), part(item.body, "status")
        if not spec.get("nodeName") and not spec.get("schedulingGates") and status.get("phase") in (None, "Pending"):
            yield f"{item.namespace}/{item.name}", _priority(item.body)


def _priority(pod: Mapping[str, Any]) -> int:
    value = part(pod, "spec").get("priority")
    return value if isinstance(value, int) else 0


def _name(pod: Mapping[str, Any]) -> str:
    metadata = part(pod, "metadata")
    return f"{metadata.get('namespace')}/{metadata.get('name')}"


def _listed(names: list[str], noun: str) -> str:
    return f"{noun} {names[0]}" if len(names) == 1 else f"{noun}s {shortened(names)}"
