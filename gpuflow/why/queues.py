"""Why Kueue does not admit a workload: its queue, the quota, who holds it, and who stands before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.checker.kueue.reasons import NoUnusedQuota, amount_text
from gpuflow.checker.kueue.scheduler import Assignment, blocker_ahead, workloads_ahead
from gpuflow.checker.kueue.workloads import Workload, read_workload
from gpuflow.checker.pipeline.queues.requests import PendingWorkloads
from gpuflow.checker.pipeline.queues.setup import Setup, read_setup
from gpuflow.checker.snapshot.validation import PreparedCluster
from gpuflow.core.errors import join_names
from gpuflow.formats.nodes import maps
from gpuflow.why.answer import Cause, State, as_text, conditions, part

GATE = "kueue.x-k8s.io/admission"
TOPOLOGY_GATE = "kueue.x-k8s.io/topology"
"""Kueue takes this one away when it has chosen the nodes of an admitted workload."""
GROUP = "kueue.x-k8s.io/pod-group-name"


def workload_causes(workload: Mapping[str, Any], ready: PreparedCluster) -> Iterator[Cause]:
    """What Kueue says to a workload now."""
    said = conditions(workload)

    def holds(kind: str) -> bool:
        return part(said, kind).get("status") == "True"

    if holds("Finished"):
        yield Cause("queue", "the workload has ended", "ended", kubernetes=as_text(said["Finished"].get("message")))
    elif holds("Admitted"):
        yield Cause("queue", "Kueue has admitted the workload: its pods may start", "starts")
    elif holds("QuotaReserved"):
        yield from _checks(workload)
    else:
        yield from _pending_causes(workload, ready, as_text(part(said, "QuotaReserved").get("message")))


def _checks(workload: Mapping[str, Any]) -> Iterator[Cause]:
    """Quota is reserved: admission checks decide now."""
    states = maps(part(workload, "status").get("admissionChecks"))
    open_ones = [each for each in states if each.get("state") != "Ready"]
    for each in open_ones:
        state = "never" if each.get("state") == "Rejected" else "waits"
        text = f"Kueue has reserved quota; the admission check {each.get('name')} is {each.get('state') or 'open'}"
        when = (f"the check {each.get('name')} says Ready",)
        yield Cause("queue", text, state, when, as_text(each.get("message")))  # type: ignore[arg-type]  # one of two words
    if not open_ones:
        yield Cause("queue", "Kueue has reserved quota and admits the workload at once", "starts")


def _pending_causes(workload: Mapping[str, Any], ready: PreparedCluster, said: str | None) -> Iterator[Cause]:
    setup = read_setup(ready.cluster, ready.namespace)
    if setup is None or not setup.knows_queues:
        text = f"which queues there are is not known: {ready.cluster.source} shows none"
        hint = "ask again with the queues: --cluster live, or gpuflow snapshot"
        yield Cause("snapshot", text, "unknown", (hint,))
        return
    answer = setup.kueue.assign(workload)
    yield _cause(answer, workload, setup, said)
    requeue = part(workload, "status", "requeueState")
    if requeue.get("requeueAt"):
        count = requeue.get("count", 1)
        times = "1 eviction" if count == 1 else f"{count} evictions"
        yield Cause("queue", f"Kueue tries it again at {requeue['requeueAt']}, after {times}")
    if answer.verdict in ("fit", "preempt", "wait"):
        yield _place_cause(answer, workload, setup, ready)
    ahead = blocker_ahead(setup.kueue, workload, setup.pending)
    if ahead is not None:
        name = f"{ahead.namespace}/{ahead.name}"
        when = f"{name} is removed: it is never admitted" if ahead.is_forever else f"{name} is admitted"
        text = f"{name} stands before it, and the queue is StrictFIFO"
        yield Cause("queue", text, "waits", (when,), ahead.assignment.message or None)
    for each in answer.unmodeled:
        yield Cause("snapshot", f"not looked at: {each}", "unknown")


def _place_cause(answer: Assignment, workload: Mapping[str, Any], setup: Setup, ready: PreparedCluster) -> Cause:
    """Its place in the queue: who is looked at first, and who of them asks for what it waits for."""
    kueue, asked = setup.kueue, read_workload(workload)
    queue = kueue.queue_of(asked)
    assert queue is not None  # else there was no such answer
    state: State = "waits" if answer.verdict == "wait" else "starts"
    hidden = _hidden_workloads(asked, queue.name, answer, setup, ready)
    if hidden is not None:
        when: tuple[str, ...] = ("ask again with the workloads and LocalQueues of all namespaces: --cluster live",)
        return Cause("snapshot", f"its place in ClusterQueue {queue.name} is not known: {hidden}", state, when)
    ahead = workloads_ahead(kueue, workload, setup.pending)
    rule = "StrictFIFO" if queue.is_strict else "BestEffortFIFO"
    if not ahead:
        return Cause("queue", f"it stands first in ClusterQueue {queue.name} ({rule})", state)
    names = [f"{each.namespace}/{each.name}" for each in ahead]
    text = f"{len(ahead)} workload{' stands' if len(ahead) == 1 else 's stand'} before it in ClusterQueue {queue.name} "
    text += f"({rule}, by priority and age): {join_names(names)}"
    bodies = {f"{each['metadata'].get('namespace')}/{each['metadata']['name']}": each for each in setup.pending}
    rivals = PendingWorkloads(kueue, {queue.name: [bodies[name] for name in names if name in bodies]}).workloads
    lacking = [each for each in answer.reasons if isinstance(each, NoUnusedQuota)]
    when = tuple(
        f"{rival.name} is admitted or gone, or {amount_text(short.resource, amount)} {short.resource} of flavor "
        f"{short.flavor} is given back for it too: it is tried first"
        for rival in rivals
        for short in lacking
        if (
            amount := sum(each.amounts.get(short.resource, 0) for each in rival.charges if short.flavor in each.flavors)
        )
    )
    return Cause("queue", text, state, when)


def _hidden_workloads(
    asked: Workload, queue: str, answer: Assignment, setup: Setup, ready: PreparedCluster
) -> str | None:
    """Why workloads may stand before it that are not shown, or it is not known when they came."""
    kueue = setup.kueue
    pending = [read_workload(each) for each in setup.pending]
    own = [each for each in pending if (found := kueue.queue_of(each)) is not None and found.name == queue]
    fair = [each for each in answer.unmodeled if "admissionFairSharing" in each]
    if fair:
        return fair[0]
    queues = [item.body for item in ready.cluster.of("ClusterQueue") if item.name == queue]
    count = part(queues[0], "status").get("pendingWorkloads") if queues else None
    if isinstance(count, int) and count > len(own):
        return f"it has {count} workloads that wait, and {ready.cluster.source} shows {len(own)}"
    lost = [each for each in pending if each.queue and (each.namespace, each.queue) not in kueue.local_queues]
    if lost and not isinstance(count, int):
        return f"which ClusterQueue {lost[0].namespace}/{lost[0].name} waits in is not shown"
    others = [each for each in own if each[:2] != asked[:2] and each.priority == asked.priority]
    ageless = [each.name for each in (asked, *others) if each.created is None]
    if ageless and others:
        return f"{join_names(ageless)}: no creationTimestamp"
    return None


def _cause(answer: Assignment, workload: Mapping[str, Any], setup: Setup, said: str | None) -> Cause:
    queue = answer.cluster_queue or "its queue"
    words = answer.message or said
    match answer.verdict:
        case "fit":
            text = f"there is quota for it in ClusterQueue {queue}: Kueue admits it at its next try"
            return Cause("queue", text, "starts")
        case "preempt":
            text = f"Kueue evicts others for it in ClusterQueue {queue}"
            return Cause("queue", text, "starts", tuple(f"{each} has gone" for each in answer.targets), words)
        case "wait":
            text = f"ClusterQueue {queue} has too little quota left"
            return Cause("queue", text, "waits", tuple(_quota_to_free(answer, setup)), words)
        case "never":
            text = f"ClusterQueue {queue} could not hold it even if nothing else was admitted"
            when = ("the queue gets more quota, or the workload asks for less",)
            return Cause("queue", text, "never", when, answer.because or words)
        case _:
            state = "never" if answer.blocked is not None else "waits"
            why = answer.blocked.value if answer.blocked is not None else "Kueue does not look at it"
            return Cause("queue", why, state, _hint(answer), answer.because or words)  # type: ignore[arg-type]  # one of two words


def _hint(answer: Assignment) -> tuple[str, ...]:
    name = "" if answer.blocked is None else answer.blocked.name
    ways = {
        "NO_LOCAL_QUEUE": "the LocalQueue is made, or the workload names another one",
        "LOCAL_QUEUE_STOPPED": "the LocalQueue's stopPolicy is set to None",
        "NO_CLUSTER_QUEUE": "the ClusterQueue is made, or the LocalQueue points at another one",
        "CLUSTER_QUEUE_INACTIVE": "the ClusterQueue becomes active again",
        "DEACTIVATED": "spec.active of the workload is set to true",
        "GATED": "whoever set the gate takes it away",
        "NAMESPACE": "the ClusterQueue's namespaceSelector selects this namespace",
        "FAILED_CHECKS": "the admission checks pass",
        "RESOURCES": "its limits are at least its requests",
        "LIMIT_RANGE": "its requests respect the LimitRange",
        "CLAIMS": "it asks for devices without resource claims",
    }
    return (ways[name],) if name in ways else ()


def _quota_to_free(answer: Assignment, setup: Setup) -> Iterator[str]:
    """How much quota must be freed, and which workloads hold it."""
    snapshot = setup.kueue.snapshot
    node = snapshot.nodes.get(answer.cluster_queue or "")
    if node is None:
        return
    root = node.path()[-1]
    for reason in answer.reasons:
        if not isinstance(reason, NoUnusedQuota):
            continue
        key = (reason.flavor, reason.resource)
        holders = [
            ("/".join(holder.key), holder.usage[key], holder.cluster_queue)
            for queue, all_of in snapshot.holders.items()
            if snapshot.nodes[queue].path()[-1] is root
            for holder in all_of
            if holder.usage.get(key)
        ]
        holders.sort(key=lambda each: (each[2] != answer.cluster_queue, -each[1], each[0]))
        names = [f"{name} ({amount_text(reason.resource, amount)} in {queue})" for name, amount, queue in holders]
        by = f"; now held by {join_names(names)}" if names else ""
        more = amount_text(reason.resource, reason.missing)
        yield f"{more} more {reason.resource} of flavor {reason.flavor} is given back{by}"


def workload_of(pod: Mapping[str, Any], ready: PreparedCluster) -> Mapping[str, Any] | None:
    """The workload that a pod belongs to: it owns the pod's group, or the pod or its owner owns it."""
    metadata = part(pod, "metadata")
    group = part(metadata, "labels").get(GROUP)
    owners = [(each.get("kind"), each.get("name")) for each in maps(metadata.get("ownerReferences"))]
    owners.append(("Pod", metadata.get("name")))
    for item in ready.cluster.of("Workload", ready.namespace):
        if group is not None and item.name == group:
            return item.body
        refs = maps(part(item.body, "metadata").get("ownerReferences"))
        if any((each.get("kind"), each.get("name")) in owners for each in refs):
            return item.body
    return None
