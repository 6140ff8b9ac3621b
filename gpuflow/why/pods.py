"""Why one pod does not run: from what its status says, its gates, its queue, and the nodes.

For the scheduler: which nodes could take the pod, what is short there, and who holds it.

Why a run or a job does not go on: what its engine says, and why each of its pods waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gpuflow.checker.nodes.capacity import NodePools, capacity_hint, capacity_in
from gpuflow.checker.nodes.filters import NodeFit, fit, read_pending
from gpuflow.checker.nodes.node_info import BoundPod, UnboundPod, as_quantity, read_bound_pod
from gpuflow.checker.quota.namespace import namespace_policy
from gpuflow.checker.report import amount
from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.core.errors import GpuflowError, join_names
from gpuflow.demands import Demand
from gpuflow.formats.nodes import maps
from gpuflow.readers import ForeignObject, Library, Options, documents_of
from gpuflow.site.model import Site
from gpuflow.why.answer import JOB, WORKFLOW, Answer, Cause, answer_of, as_text, conditions, part, pods_of, worst_state
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


def why_workflow(workflow: Mapping[str, Any], ready: PreparedCluster, site: Site) -> Answer:
    """Why the steps of an Argo workflow wait."""
    name = str(part(workflow, "metadata").get("name"))
    spec, status = part(workflow, "spec"), part(workflow, "status")
    phase = status.get("phase")
    if phase in ("Succeeded", "Failed", "Error"):
        ended = Cause("engine", f"the workflow has ended: {phase}", "ended", kubernetes=as_text(status.get("message")))
        return _run_answer("workflow", name, ready, [ended], [])
    causes = list(_workflow_causes(spec, status))
    pods = {item.name: item for item in pods_of(ready.cluster, WORKFLOW, name, ready.namespace)}
    parts = [why_pod(item.body, ready) for item in pods.values()]
    parts += _missing_pod_causes(workflow, status, pods, ready, site)
    return _run_answer("workflow", name, ready, causes, parts)


def _workflow_causes(spec: Mapping[str, Any], status: Mapping[str, Any]) -> Iterator[Cause]:
    """What the workflow as a whole waits for."""
    if spec.get("suspend"):
        yield Cause("engine", "the workflow is suspended", "waits", ("somebody resumes it: argo resume",))
    if status.get("phase") in (None, "", "Pending"):
        said = as_text(status.get("message"))
        when = ("Argo's controller takes it up: does it run, and does it watch this namespace?",)
        yield Cause("engine", "Argo has not begun the workflow", "waits", () if said else when, said)
    for kind in ("mutex", "semaphore"):
        for each in maps(part(status, "synchronization", kind).get("waiting")):
            several = each.get("holders")
            listed = ", ".join(map(str, several)) if isinstance(several, list) else ""
            holders = each.get("holder") or listed or "another workflow"
            text = f"it waits for the {kind} {each.get(kind) or ''}".rstrip()
            yield Cause("engine", text, "waits", (f"{holders} gives it back",))
    for node in _nodes(status):
        if node.get("type") == "Suspend" and node.get("phase") == "Running":
            text = f"the step {node.get('displayName')} waits for a person"
            yield Cause("engine", text, "waits", ("somebody resumes it: argo resume",), as_text(node.get("message")))


def _missing_pod_causes(
    workflow: Mapping[str, Any],
    status: Mapping[str, Any],
    pods: Mapping[str, object],
    ready: PreparedCluster,
    site: Site,
) -> Iterator[Answer]:
    """The steps whose pods Argo has not made."""
    pending = [each for each in _nodes(status) if (each.get("type"), each.get("phase")) == ("Pod", "Pending")]
    waiting = [each for each in pending if not _has_pod(each, pods)]
    demand = _demand(workflow, ready, site) if waiting else None
    for node in waiting:
        name = str(node.get("displayName") or node.get("name"))
        pod = None if demand is None else _pod_of(demand, name)
        said = as_text(node.get("message"))
        lock = part(node, "synchronizationStatus").get("waiting")
        if lock:
            # Argo asks for the pod only when it has the lock; what the API server would say does not matter yet.
            text = f"the step {name} waits for the lock {lock}"
            cause = Cause("engine", text, "waits", ("whoever holds the lock gives it back",), said)
            yield answer_of(f"step/{name}", ready.namespace, [cause])
        elif pod is None:
            cause = Cause("engine", f"Argo has not made the pod of the step {name}", "waits", (), said)
            yield answer_of(f"step/{name}", ready.namespace, [cause])
        else:
            yield why_missing(f"step/{name}", _with_name(pod, name), ready, said)


def _has_pod(node: Mapping[str, Any], pods: Mapping[str, object]) -> bool:
    """Whether the pod of a node is there: its name ends with the number of the node's id."""
    number = str(node.get("id") or "").rpartition("-")[2]
    return any(name == node.get("id") or name.endswith(f"-{number}") for name in pods)


def _demand(document: Mapping[str, Any], ready: PreparedCluster, site: Site) -> Demand | None:
    """What the object asks for, with the templates that the cluster shows; None where that cannot be said."""
    templates = [item.body for item in ready.cluster.objects if item.group == "argoproj.io" and "Template" in item.kind]
    documents = documents_of([document, *templates], ready.cluster.source)
    try:
        demand = ForeignObject(documents[0], Library(tuple(documents))).demand(Options(site))
    except (GpuflowError, ModuleNotFoundError):
        return None
    return demand if isinstance(demand, Demand) else None


def _pod_of(demand: Demand, name: str) -> Mapping[str, Any] | None:
    """The pod of a step by the name that Argo shows; None where several steps are called so and differ."""
    bare = name.partition("(")[0]
    found = [step.pod for step in demand.steps if step.name.rpartition(".")[2] == bare or step.name == bare]
    return found[0] if found and all(pod == found[0] for pod in found) else None


def why_job(job: Mapping[str, Any], ready: PreparedCluster, site: Site) -> Answer:
    """Why a Job has no pods, or why they wait."""
    name = str(part(job, "metadata").get("name"))
    spec = part(job, "spec")
    for kind, each in conditions(job).items():
        if each.get("status") == "True" and kind in ("Complete", "Failed", "SuccessCriteriaMet"):
            cause = Cause("engine", f"the job has ended: {kind}", "ended", kubernetes=as_text(each.get("message")))
            return _run_answer("job", name, ready, [cause], [])
    if spec.get("suspend"):
        workload = workload_of({"metadata": {"name": None, "ownerReferences": [{"kind": "Job", "name": name}]}}, ready)
        if workload is None:
            causes = [Cause("engine", "the job is suspended", "waits", ("somebody sets spec.suspend to false",))]
        else:
            causes = list(workload_causes(workload, ready))
        return _run_answer("job", name, ready, causes, [])
    pods = pods_of(ready.cluster, JOB, name, ready.namespace)
    parts = [why_pod(item.body, ready) for item in pods]
    if sum(each.state != "ended" for each in parts) < _wanted_pods(job, [item.body for item in pods]):
        pod = {"metadata": part(spec, "template", "metadata"), "spec": part(spec, "template", "spec")}
        parts.append(why_missing(f"pod/{name}-…", _with_name(pod, name), ready))
    if not parts:
        return _run_answer("job", name, ready, [Cause("engine", "the job asks for no pod now", "waits")], [])
    return _run_answer("job", name, ready, [], parts)


def _wanted_pods(job: Mapping[str, Any], pods: list[Mapping[str, Any]]) -> int:
    """How many pods the Job controller keeps at the same time now."""
    spec = part(job, "spec")
    parallel, completions = _number(spec.get("parallelism"), 1), _number(spec.get("completions"), -1)
    if completions < 0 and "parallelism" in spec:
        # A work queue: when one pod ends well, no new pod comes. So only where none is there is one missing.
        return 0 if pods else parallel
    done = _number(part(job, "status").get("succeeded"), 0)
    seen = len([each for each in pods if part(each, "status").get("phase") == "Succeeded"])
    return min(parallel, (1 if completions < 0 else completions) - max(seen, done))


def _number(value: object, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def _with_name(pod: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    safe = "".join(each if each.isalnum() else "-" for each in name.lower()).strip("-") or "pod"
    return {**pod, "metadata": {**part(pod, "metadata"), "name": safe}}


def _nodes(status: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in part(status, "nodes").values() if isinstance(each, Mapping)]


def _run_answer(kind: str, name: str, ready: PreparedCluster, causes: list[Cause], parts: list[Answer]) -> Answer:
    """The answer for a run and its pods. A running pod does not hide what the others wait for."""
    states = [*(each.state for each in causes), *(each.state for each in parts)]
    open_ones = [state for state in states if state not in ("runs", "ended")] or states
    state = worst_state(open_ones) if open_ones else "unknown"
    waiting = sum(each.state not in ("runs", "ended") for each in parts)
    if causes and not waiting:
        summary = causes[0].message
    elif parts:
        summary = f"{waiting} of {len(parts)} pods do not run" if waiting else "all its pods run or have ended"
    else:
        summary = "no pod of it is there, and nothing says why"
    return Answer(f"{kind}/{name}", ready.namespace, state, summary, tuple(causes), tuple(parts))
