"""Why one pod does not run: from what its status says, its gates, its queue, and the nodes.

For the scheduler: which nodes could take the pod, what is short there, and who holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gpuflow.checker.nodes.amounts import as_quantity
from gpuflow.checker.nodes.capacity import capacity_hint, capacity_in
from gpuflow.checker.nodes.filters import NodeFit, fit, read_pending
from gpuflow.checker.nodes.node_info import BoundPod, UnboundPod, read_bound_pod
from gpuflow.checker.nodes.node_pools import NodePools
from gpuflow.checker.quota.namespace import namespace_policy
from gpuflow.checker.report import amount
from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.core.errors import GpuflowError, join_names
from gpuflow.formats.nodes import maps
from gpuflow.why.answer import Answer, Cause, answer_of
from gpuflow.why.objects import as_text, part
from gpuflow.why.queues import GATE, TOPOLOGY_GATE, workload_causes, workload_of

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
        text = f"which nodes there are is not known: {ready.cluster.source} shows none"
        hint = "ask again with the nodes and the pods on them: --cluster live, or gpuflow snapshot"
        yield Cause("snapshot", text, "unknown", (hint,))
        return
    unbound = read_pending(pod, storage=ready.storage)
    found = fit(unbound, pools.node_list)
    scheduler = part(pod, "spec").get("schedulerName") or "default-scheduler"
    other = None if scheduler == "default-scheduler" else str(scheduler)
    about_to_start = [_about_to_start(pod, found, ready)] if found.feasible else None
    told = about_to_start or _scheduling_causes(pod, unbound, found, pools, ready)
    # What Kubernetes' scheduler would do is worth reading, and decides nothing where another one binds.
    yield from (replace(each, state="unknown") if other else each for each in told)
    if other:
        text = f"its scheduler, {other}, has rules of its own, which gpuflow does not know"
        yield Cause("nodes", text, "unknown", (f"{other} binds it: see its log and kubectl describe pod",))
    for each in found.unknown:
        yield Cause("snapshot", f"not looked at: {each}", "unknown")


def _about_to_start(pod: Mapping[str, Any], found: NodeFit, ready: PreparedCluster) -> Cause:
    ahead = [name for name, other in _pending_pods(ready) if other > _priority(pod) and name != _name(pod)]
    seen = "as far as gpuflow can tell, it fits" if found.unknown else "it fits"
    text = f"{seen} on {_count_nodes(found.feasible)}: the scheduler binds it at its next try"
    if ahead:
        text += f", after the pods of higher priority that wait too ({join_names(ahead)})"
    return Cause("nodes", text, "starts")


def _scheduling_causes(
    pod: Mapping[str, Any], unbound: UnboundPod, found: NodeFit, pools: NodePools, ready: PreparedCluster
) -> Iterator[Cause]:
    held = capacity_in(pools, unbound)
    if not held.empty and not held.new:
        yield _no_node_cause(unbound, found, pools)
        return
    bound = _bound_pods(ready)
    shortages = sorted(_shortages(unbound, pools, held.empty), key=_size)
    when = [_on_node(pod, each, found, bound, pools) for each in shortages[:MOST_NODES]]
    left = len(held.empty) - len(when)
    if left > 0:
        when.append(f"or the same on one of {left} more nodes")
    when += [f"or a new node of the group {name} comes, if its autoscaler adds one" for name in held.new]
    nodes, has = _count_nodes(sorted(held.empty)), "has" if len(held.empty) == 1 else "have"
    if not held.empty:
        text = "no node that is there can hold it; a node group may add one that can"
    elif any(each.amounts or each.slots for each in shortages):
        text = f"{nodes} could hold it, and {has} no room now"
    else:
        text = f"{nodes} {has} room for it, and something else keeps it away"
    yield Cause("nodes", text, "waits", tuple(when), found.message)


def _no_node_cause(unbound: UnboundPod, found: NodeFit, pools: NodePools) -> Cause:
    """No node could hold it, even if nothing else ran there."""
    out = capacity_hint(pools, unbound)
    if out.eligible:
        short = [
            f"{key}: asks for {amount(each.asked, key)}, {each.node} has {amount(each.largest, key)}"
            for key, each in out.shortfalls.items()
        ]
        text = f"no node can hold it, even an empty one; the closest is {out.closest}"
        when = f"it asks for less, or a larger node comes ({'; '.join(short)})"
    else:
        text = "no node is for it by labels, taints, names and volumes"
        reasons = [f"{count} of the nodes: {reason}" for reason, count in out.refusals.items()]
        when = f"a node comes that is for it, or the pod or a node is changed ({'; '.join(reasons) or 'no nodes'})"
    return Cause("nodes", text, "never", (when,), found.message)


def _shortages(unbound: UnboundPod, pools: NodePools, could: Mapping[str, int]) -> Iterator[Shortage]:
    for index, host in enumerate(pools.node_list.hosts):
        if host.node.name in could:
            free = pools.free[index]
            lacking = {name: asked - free.free.get(name, 0) for name, asked in unbound.requests.items()}
            short = {name: missing for name, missing in lacking.items() if missing > 0}
            yield Shortage(index, short, max(0, 1 - free.slots))


def _size(shortage: Shortage) -> tuple[int, int, int, int]:
    devices = sum(amount for name, amount in shortage.amounts.items() if "/" in name)
    return len(shortage.amounts), devices, sum(shortage.amounts.values()), shortage.host


def _on_node(
    pod: Mapping[str, Any],
    shortage: Shortage,
    found: NodeFit,
    bound: Mapping[str, list[tuple[str, BoundPod, int]]],
    pools: NodePools,
) -> str:
    """What must happen on one node."""
    host = pools.node_list.hosts[shortage.host].node
    name, reasons = host.name, found.reasons.get(host.name, [])
    movable = [each for each in bound.get(name, []) if not each[1].is_fixture]
    words = []
    for resource, missing in shortage.amounts.items():
        holders = sorted((each for each in movable if each[1].requests.get(resource)), key=lambda each: each[0])
        held = [f"{each} {amount(as_quantity(resource, one.requests[resource]), resource)}" for each, one, _ in holders]
        by = f"; now held: {join_names(held)}" if held else ""
        more, whole = (
            amount(as_quantity(resource, each), resource) for each in (missing, host.allocatable.get(resource, 0))
        )
        words.append(f"{more} more {resource} free ({whole} in all{by})")
    if shortage.slots:
        words.append(f"one pod fewer (it takes {host.slots})")
    if not words:
        # Amounts are there: something else keeps it away, and the scheduler has said what.
        return f"node {name} takes it; now: {'; '.join(reasons) or 'the scheduler has not said why not'}"
    lower = [each for each in movable if each[2] < _priority(pod)]
    given = {key: sum(one.requests.get(key, 0) for _, one, _ in lower) for key in shortage.amounts}
    frees_enough = bool(lower) and all(given[key] >= missing for key, missing in shortage.amounts.items())
    may_preempt = pod["spec"].get("preemptionPolicy") != "Never" and frees_enough
    names = join_names([each for each, _, _ in lower])
    also = f"; the scheduler may preempt pods of lower priority there: {names}" if may_preempt else ""
    return f"node {name} has {' and '.join(words)}{also}"


def _bound_pods(ready: PreparedCluster) -> dict[str, list[tuple[str, BoundPod, int]]]:
    found: dict[str, list[tuple[str, BoundPod, int]]] = {}
    for item in ready.cluster.of("Pod"):
        one = read_bound_pod(item.body)
        if one is not None:
            found.setdefault(one.node, []).append((f"{one.namespace}/{item.name}", one, _priority(item.body)))
    return found


def _pending_pods(ready: PreparedCluster) -> Iterator[tuple[str, int]]:
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


def _count_nodes(names: list[str]) -> str:
    return f"node {names[0]}" if len(names) == 1 else f"nodes {join_names(names)}"


CONTAINERS = {
    "ErrImagePull": "the image can be pulled: check its name, its tag and the pull secret",
    "ImagePullBackOff": "the image can be pulled: check its name, its tag and the pull secret",
    "InvalidImageName": "the image has a name that exists",
    "CreateContainerConfigError": "the Secret or ConfigMap that the container names exists, with that key",
    "CreateContainerError": "the container can be made: see kubectl describe pod",
    "CrashLoopBackOff": "its program stops ending: see kubectl logs --previous",
    "ContainerCreating": "image, volumes and network are ready",
    "PodInitializing": "the init containers have ended",
}
"""What must happen for a container that waits, by the kubelet's word."""


def why_pod(pod: Mapping[str, Any], ready: PreparedCluster) -> Answer:
    """Why a pod that exists does not run."""
    return answer_of(f"pod/{part(pod, 'metadata').get('name')}", ready.namespace, _causes(pod, ready))


def why_missing(subject: str, pod: Mapping[str, Any], ready: PreparedCluster, said: str | None = None) -> Answer:
    """Why a pod that somebody wants to create is not there: what the API server answers."""
    return answer_of(subject, ready.namespace, missing_causes(pod, ready, said))


def _causes(pod: Mapping[str, Any], ready: PreparedCluster) -> Iterator[Cause]:
    metadata, spec, status = (part(pod, name) for name in ("metadata", "spec", "status"))
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed"):
        said = as_text(status.get("message")) or as_text(status.get("reason"))
        yield Cause("containers", f"the pod has ended: {phase}", "ended", kubernetes=said)
    elif metadata.get("deletionTimestamp") is not None:
        yield Cause("containers", "the pod is being deleted; it does not start again", "ended")
    elif spec.get("nodeName"):
        yield from _on_its_node(str(spec["nodeName"]), status)
    elif spec.get("schedulingGates"):
        yield from _gates(pod, ready)
    else:
        yield from node_causes(pod, ready)


def _on_its_node(node: str, status: Mapping[str, Any]) -> Iterator[Cause]:
    """It has its node: the kubelet decides."""
    states = [*maps(status.get("initContainerStatuses")), *maps(status.get("containerStatuses"))]
    waiting = [(each.get("name"), found) for each in states if (found := part(each, "state", "waiting"))]
    if status.get("phase") == "Running" and not waiting:
        yield Cause("containers", f"the pod runs on node {node}", "runs")
        return
    # An init container that waits says why those after it wait too.
    named = [each for each in waiting if each[1].get("reason") != "PodInitializing"] or waiting
    for name, state in named[:1]:
        reason = str(state.get("reason") or "no reason is given")
        text = f"the pod is on node {node}; its container {name} waits: {reason}"
        when = (CONTAINERS[reason],) if reason in CONTAINERS else ()
        yield Cause("containers", text, "waits", when, as_text(state.get("message")))
    if not named:
        when = (f"the kubelet of {node} reports: see the conditions of the node, and kubectl describe pod",)
        yield Cause("containers", f"the pod is on node {node}, which has not reported on its containers", "waits", when)


def _gates(pod: Mapping[str, Any], ready: PreparedCluster) -> Iterator[Cause]:
    names = [str(each.get("name")) for each in maps(pod["spec"]["schedulingGates"])]
    if not names:
        yield Cause("gate", "a scheduling gate holds it, and its name cannot be read", "unknown")
    if GATE not in names:
        yield from _other_gates(names)
        return
    workload = workload_of(pod, ready)
    if workload is None:
        hint = "does Kueue run? its controller makes the Workload; kubectl get workloads shows it"
        yield Cause("queue", "Kueue holds it, and there is no Workload for it here", "unknown", (hint,))
        return
    yield from workload_causes(workload, ready)
    yield from _other_gates([name for name in names if name not in (GATE, TOPOLOGY_GATE)])


def _other_gates(names: list[str]) -> Iterator[Cause]:
    for name in names:
        text = f"the scheduling gate {name} holds it"
        if name == TOPOLOGY_GATE:
            text = "Kueue has admitted its workload and has not chosen its node yet (topology-aware scheduling)"
        yield Cause("gate", text, "waits", (f"whoever set the gate {name} takes it away",))


def missing_causes(pod: Mapping[str, Any], ready: PreparedCluster, said: str | None) -> Iterator[Cause]:
    """What the API server says to a pod now, and whether it ever says something else."""
    try:
        yield from list(_refusals(pod, ready, said))
    except GpuflowError:
        raise  # about an object of the cluster
    except ValueError as refusal:
        text = "the template of its pod cannot be read: the API server takes no such pod"
        yield Cause("engine", text, "never", ("the template is repaired",), str(refusal))


def _refusals(pod: Mapping[str, Any], ready: PreparedCluster, said: str | None) -> Iterator[Cause]:
    policy = namespace_policy(ready.cluster, ready.namespace)
    now = policy.admit_now(pod)
    if now.allowed and said:
        yield Cause("engine", "its engine has not created the pod", "waits", (), said)
        return
    if now.allowed:
        yield from node_causes({**now.pod, "metadata": {"namespace": ready.namespace, **now.pod["metadata"]}}, ready)
        return
    ever = policy.admit_alone(pod)
    if not ever.allowed:
        text = "the API server refuses the pod, even with nothing else in the namespace"
        yield Cause("quota", text, "never", ("the pod asks for less, or the rule is changed",), ever.message)
        return
    text = "the API server refuses the pod: a quota of the namespace is used up"
    when = "other pods of the namespace end, or are deleted, or the quota is raised"
    yield Cause("quota", text, "waits", (when,), now.message)
