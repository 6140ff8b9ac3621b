"""Why a run or a job does not go on: what its engine says, and why each of its pods waits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from gpuflow.checker.snapshot.prepared import PreparedCluster
from gpuflow.core.errors import GpuflowError
from gpuflow.demands import Demand
from gpuflow.formats.nodes import maps
from gpuflow.readers import ForeignObject, Library, Options, documents_of
from gpuflow.site.model import Site
from gpuflow.why.answer import Answer, Cause, answer_of, worst_state
from gpuflow.why.objects import JOB, WORKFLOW, as_text, conditions, part, pods_of
from gpuflow.why.pods import why_missing, why_pod
from gpuflow.why.queues import workload_causes, workload_of


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
