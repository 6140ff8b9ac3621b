"""Why one pod does not run: from what its status says, its gates, its queue, and the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.checker.quota.namespace import namespace_policy
from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.errors import GpuflowError
from gpuflow.why.answer import Answer, Cause, answer_of
from gpuflow.why.fields import maps, part, words
from gpuflow.why.nodes import node_causes
from gpuflow.why.queues import GATE, TOPOLOGY_GATE, workload_causes, workload_of

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
        said = words(status.get("message")) or words(status.get("reason"))
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
        yield Cause("containers", text, "waits", when, words(state.get("message")))
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
    if now.allowed:
        if said:
            yield Cause("engine", "its engine has not created the pod", "waits", (), said)
            return
        yield from node_causes({**now.pod, "metadata": {"namespace": ready.namespace, **now.pod["metadata"]}}, ready)
        return
    ever = policy.admit_alone(pod)
    if not ever.allowed:
        text = "the API server refuses the pod, even with nothing else in the namespace"
        yield Cause("quota", text, "never", ("the pod asks for less, or the rule is changed",), ever.message)
        return
    text = "the API server refuses the pod: a quota of the namespace is used up"
    yield Cause(
        "quota",
        text,
        "waits",
        ("other pods of the namespace end, or are deleted, or the quota is raised",),
        now.message,
    )
