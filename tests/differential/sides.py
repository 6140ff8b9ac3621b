"""Both answers in the same shape, so that they can be compared field by field.

For each kind there is what we say (`*_ours`, from the case) and what the engine says (`*_theirs`, from its
oracle's answer), without what is free: the order of alternatives, and LimitRanger's note in them.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import gpuflow
from gpuflow.checker.dra.inventory import Inventory
from gpuflow.checker.dra.plan import DevicePlan
from gpuflow.checker.nodes.capacity import NodePools
from gpuflow.checker.nodes.filters import fit, read_pending
from gpuflow.checker.nodes.node_info import read_node_list
from gpuflow.checker.nodes.volumes import read_storage
from gpuflow.checker.pipeline.placement import gang_workload
from gpuflow.checker.pipeline.pod_groups import pod_groups
from gpuflow.checker.pipeline.queues.setup import read_setup
from gpuflow.checker.quota.namespace import namespace_policy
from gpuflow.cluster import Cluster, Manifest, cluster_of
from gpuflow.core.errors import Where
from gpuflow.demands.model import split_mixed_steps
from gpuflow.kubernetes.admission.objects import object_faults
from gpuflow.kubernetes.pod_fields import BadPatch, strategic_merge_map_patch
from gpuflow.quantity import Quantity
from tests.differential import pipelines, workloads
from tests.differential.devices_of_nodes import allocate_devices
from tests.differential.expansion import environment, expanded
from tests.differential.oracle import Answer, Case


class NotOurs(RuntimeError):
    """Our side of a kind is not there."""


def _ours(name: str, module: str = "gpuflow") -> Callable[..., Any]:
    """A function of gpuflow that may not have been written yet."""
    found = getattr(importlib.import_module(module), name, None)
    if found is None:
        raise NotOurs(f"{module}.{name} is not implemented on our side yet")
    function: Callable[..., Any] = found
    return function


# Patches --------------------------------------------------------------------------------------------------


def merge_ours(case: Case) -> Answer:
    try:
        return {"pod": strategic_merge_map_patch(case["pod"], case["patch"])}
    except BadPatch:
        return {"refused": True}


def merge_theirs(answer: Answer) -> Answer:
    return {"refused": True} if answer["refused"] else {"pod": answer["pod"]}


# Quantities -----------------------------------------------------------------------------------------------


def quantity_ours(case: Case) -> Answer:
    texts = {"a": case["a"], **({"b": case["b"]} if "b" in case else {})}
    read: dict[str, Quantity] = {}
    answer: Answer = {}
    for side, text in texts.items():
        try:
            read[side] = Quantity(text)
        except ValueError as refusal:
            answer[side] = {"error": str(refusal)}
        else:
            answer[side] = _described(read[side])
    if len(read) == 2:
        a, b = read["a"], read["b"]
        answer |= {"sum": str(a + b), "difference": str(a - b), "cmp": (a > b) - (a < b)}
    return answer


def _described(quantity: Quantity) -> Answer:
    numbers = {"value": quantity.value, "milli": quantity.milli}
    fitting = {name: number for name, number in numbers.items() if 0 <= number < 2**63}
    return {"canonical": str(quantity), "text": quantity.text, **fitting}


def quantity_theirs(answer: Answer) -> Answer:
    """Without the whole numbers of negative amounts: Kubernetes makes -5947003306 of -500Ti."""
    return {field: _sensible(part) if isinstance(part, dict) else part for field, part in answer.items()}


def _sensible(described: Answer) -> Answer:
    if not described.get("canonical", "").startswith("-"):
        return described
    return {field: part for field, part in described.items() if field not in ("value", "milli")}


# Objects --------------------------------------------------------------------------------------------------


def objects_ours(case: Case) -> Answer:
    manifest = case["object"]
    group = manifest["apiVersion"].rpartition("/")[0]
    return {"clauses": [each.sentence() for each in object_faults(manifest, manifest["kind"], group)]}


_PRINTED = re.compile(r'(value): \{"[A-Z].*\}: |(?<=^spec\.jobTemplate\.spec\.selector: Invalid )(value): \{.*\}: ')


def objects_theirs(answer: Answer) -> Answer:
    """Without values that the server prints as its own types have them."""
    clauses = (_PRINTED.sub(lambda found: f"{found[1] or found[2]}: ", each) for each in answer["clauses"])
    return {"clauses": sorted(set(clauses))}


# Admission ------------------------------------------------------------------------------------------------


def admission_ours(case: Case) -> Answer:
    admit = _ours("admit")
    admission = admit(
        case["pod"],
        quotas=case["quotas"],
        limit_ranges=case["limitranges"],
        priority_classes=case["priorityclasses"],
        runtime_classes=case["runtimeclasses"],
        namespace={"metadata": {"name": "ns", **case["namespace"]}},
    )
    return _admission(_admitted(admission), [_admitted(other) for other in admission.alternatives])


def admission_theirs(answer: Answer) -> Answer:
    alternatives = answer.get("alternatives", [])
    return _admission(_kept(answer), [_kept(other) for other in alternatives])


def _admission(given: Answer, others: list[Answer]) -> Answer:
    return {**given, "alternatives": sorted({json.dumps(_without_note(each), sort_keys=True) for each in others})}


def _without_note(answer: Answer) -> Answer:
    pod = {field: value for field, value in answer["pod"].items() if field != "limitRangerAnnotation"}
    return {**answer, "pod": pod}


def _kept(answer: Answer) -> Answer:
    """The oracle also tells stage and what validation saw before the pod was stored: nobody outside sees those."""
    fields = ("status", "message", "clauses", "usage", "used", "pod")
    empty: Answer = {"clauses": [], "usage": {}, "used": {}}
    return {field: answer.get(field, empty.get(field)) for field in fields}


def _admitted(admission: Any) -> Answer:
    return {
        "status": admission.status,
        "message": admission.message or "",
        "clauses": list(admission.clauses),
        "usage": dict(admission.usage or {}),
        "used": {name: dict(used) for name, used in (admission.used or {}).items()},
        "pod": pod_view(admission.pod),
    }


def pod_view(pod: Case) -> Answer:
    """The parts of a pod that the oracle tells."""
    spec = pod["spec"]
    view: Answer = {"containers": {each["name"]: _resources(each) for each in spec["containers"]}}
    if spec.get("initContainers"):
        view["initContainers"] = {each["name"]: _resources(each) for each in spec["initContainers"]}
    if spec.get("resources") is not None:
        view["resources"] = _resources(spec)
    view |= {field: spec[field] for field in ("overhead", "priorityClassName", "priority") if field in spec}
    if pod.get("status", {}).get("qosClass"):
        view["qosClass"] = pod["status"]["qosClass"]
    note = pod["metadata"].get("annotations", {}).get("kubernetes.io/limit-ranger")
    return view | ({"limitRangerAnnotation": note} if note else {})


def _resources(holder: Case) -> Answer:
    listed = holder.get("resources") or {}
    return {side: listed[side] for side in ("requests", "limits") if listed.get(side)}


# Node fit -------------------------------------------------------------------------------------------------


def nodefit_ours(case: Case) -> Answer:
    fit_nodes = _ours("fit_nodes")
    namespaces = [{"metadata": {"name": name, "labels": labels}} for name, labels in case["namespaces"].items()]
    storage = read_storage(**case["storage"]) if "storage" in case else None
    fit = fit_nodes(case["pod"], case["nodes"], case["pods"], namespaces, gates=case.get("gates", ()), storage=storage)
    return {
        "feasible": list(fit.feasible),
        "reasons": {node: sorted(reasons) for node, reasons in fit.reasons.items() if reasons},
        "message": fit.message,
    }


def nodefit_theirs(answer: Answer) -> Answer:
    reasons = {node: verdict["reasons"] for node, verdict in answer["nodes"].items() if not verdict["fits"]}
    return {"feasible": answer["feasible"], "reasons": reasons, "message": answer.get("message")}


# Devices --------------------------------------------------------------------------------------------------


def devices_ours(case: Case) -> Answer:
    nodes = allocate_devices(
        case["claims"], case["nodes"], slices=case["slices"], classes=case["classes"], others=case["others"]
    )
    unknown = sorted({each.reason for each in nodes.values() if each.status == "unknown"})
    if unknown:
        return {"unknown": unknown}
    return {
        "nodes": {
            name: {"status": each.status, "devices": [list(claim) for claim in each.devices]}
            for name, each in nodes.items()
        }
    }


def devices_theirs(answer: Answer) -> Answer:
    """Without the words of an error: the scheduler's name what we name, in more words."""
    return {
        "nodes": {
            name: {"status": each["status"], "devices": each.get("devices", [])}
            for name, each in answer["nodes"].items()
        }
    }


def device_pods_ours(case: Case) -> Answer:
    """A pod with its devices as amounts on the nodes, as a whole pipeline is judged."""
    kinds = {"classes": "DeviceClass", "slices": "ResourceSlice", "claims": "ResourceClaim"}
    objects = tuple(
        Manifest(kind, "resource.k8s.io", body["metadata"]["name"], body["metadata"].get("namespace"), body, Where("c"))
        for field, kind in kinds.items()
        for body in ({"apiVersion": "resource.k8s.io/v1", "kind": kind, **each} for each in case[field])
    )
    cluster = Cluster("c", objects, frozenset({*kinds.values(), "ResourceClaimTemplate"}))
    pod, node_pools = read_pending(case["pod"]), NodePools(read_node_list(case["nodes"]))
    plan = DevicePlan(Inventory(cluster, "ns"), node_pools, {0: (case["pod"], pod)}, lambda _: True)
    group = plan.groups.get(0)
    if group is not None and group.unknown:
        return {"unknown": group.unknown}
    adds = {} if group is None else group.adds
    found = fit(pod._replace(requests={**pod.requests, **adds}), plan.node_pools.node_list)
    reasons = {node: sorted(texts) for node, texts in found.reasons.items() if texts}
    return {"feasible": found.feasible, "reasons": reasons, "message": found.message}


# Kueue ----------------------------------------------------------------------------------------------------


def kueue_ours(case: Case) -> Answer:
    assign_flavors = _ours("assign_flavors")
    assignment = assign_flavors(
        case["workload"],
        flavors=case["flavors"],
        cluster_queues=case["clusterQueues"],
        local_queues=case["localQueues"],
        cohorts=case["cohorts"],
        admitted=case["admitted"],
        namespaces=case["namespaces"],
    )
    return {
        "verdict": assignment.verdict,
        "message": assignment.message,
        "podSets": {name: dict(flavors) for name, flavors in assignment.pod_sets.items()},
        "targets": sorted(assignment.targets),
        "finalVerdict": assignment.final_verdict,
    }


def kueue_theirs(answer: Answer) -> Answer:
    pod_sets = {
        each["name"]: {resource: flavor["flavor"] for resource, flavor in each["flavors"].items()}
        for each in answer.get("podSets", [])
    }
    final = answer.get("finalVerdict")
    return {
        "verdict": answer["verdict"].lower(),
        "message": answer["message"],
        "podSets": pod_sets,
        "targets": sorted(f"{workloads.NAMESPACE}/{target['name']}" for target in answer.get("targets", [])),
        "finalVerdict": final.lower() if final else None,
    }


def topology_ours(case: Case) -> Answer:
    assign_flavors = _ours("assign_flavors")
    return _placed(
        assign_flavors(
            case["workload"],
            flavors=case["flavors"],
            cluster_queues=case["clusterQueues"],
            local_queues=case["localQueues"],
            cohorts=case["cohorts"],
            admitted=case["admitted"],
            namespaces=case["namespaces"],
            topologies=case["topologies"],
            nodes=case["nodes"],
            pods=case["pods"],
        )
    )


KINDS = {
    "namespaces": "Namespace",
    "flavors": "ResourceFlavor",
    "cohorts": "Cohort",
    "clusterQueues": "ClusterQueue",
    "localQueues": "LocalQueue",
    "admitted": "Workload",
    "topologies": "Topology",
    "nodes": "Node",
    "pods": "Pod",
}
"""Under which key of a case the objects of a kind are."""


def gangs_ours(case: Case) -> Answer:
    """What a check makes of the JobSet: its demand, the pods as the API server stores them, one workload of them."""
    objects = [{"apiVersion": "v1", "kind": KINDS[key], **each} for key in KINDS for each in case.get(key, ())]
    cluster = replace(cluster_of(objects), listed=frozenset(KINDS.values()))
    setup = read_setup(cluster, workloads.NAMESPACE)
    demand = split_mixed_steps(gpuflow.demand(case["jobSet"]))
    policy = namespace_policy(cluster, workloads.NAMESPACE)
    groups = pod_groups(demand, policy, policy.admit_steps(demand.steps), workloads.NAMESPACE, by_labels=False)
    group_of = {step: group for group in groups for step in group.steps}
    parts = [(each.pod_sets[0].name, group_of[each.name]) for each in demand.steps]
    queue = setup and setup.queue_of(parts[0][1])
    if setup is None or queue is None:
        raise ValueError("it is in no queue")
    return _placed(setup.kueue.assign(gang_workload("gang", parts, setup, queue)))


def _placed(assignment: Any) -> Answer:
    """Kueue's answer to a workload, with the places of its pods where it gets quota."""
    places = {
        name: [[*values, count] for values, count in places] for name, places in sorted(assignment.places.items())
    }
    return {
        "verdict": assignment.verdict,
        "message": _of_any_pod_set(assignment.message),
        "podSets": {name: dict(flavors) for name, flavors in assignment.pod_sets.items()},
        "targets": sorted(assignment.targets),
        "finalVerdict": assignment.final_verdict,
        "places": places if assignment.verdict == "fit" else {},
    }


def topology_theirs(answer: Answer) -> Answer:
    places = {
        each["name"]: [[*domain["values"], domain["count"]] for domain in each["domains"]]
        for each in answer.get("podSets", [])
        if each.get("domains") and answer["verdict"] == "Fit"
    }
    found = kueue_theirs(answer)
    return {**found, "message": _of_any_pod_set(found["message"]), "places": places}


def _of_any_pod_set(message: str) -> str:
    """Where a leader and its workers have no place, Kueue names the one or the other: a map has no order in Go."""
    return re.sub(r"pod set \S+: (no )?topology", r"pod set of the group: \1topology", message)


# Argo -----------------------------------------------------------------------------------------------------


def compiled(case: Case) -> Case:
    """The workflow that gpuflow makes of a case's pipeline, as Argo would be handed it."""
    try:
        workflow = importlib.import_module("gpuflow.targets.argo.workflow")
    except ModuleNotFoundError as missing:
        raise NotOurs(
            f"compiling for Argo needs the package {missing.name}: use the environment of the argo extra"
        ) from None
    from gpuflow import Site, loads
    from gpuflow.targets.argo.facts import ArgoOptions
    from gpuflow.targets.target import Request

    pipeline = loads(json.dumps(case["pipeline"], ensure_ascii=False), "pipeline.yaml")
    request = Request(pipeline, Site.load("nvidia"), "ns", "pipeline.yaml", (), ArgoOptions("Workflow"))
    manifest: Case = workflow.build(request)
    return manifest


def substitution_question(case: Case) -> Case:
    manifest = compiled(case)
    manifest["metadata"] |= {"name": "run", "uid": "uid-run"}
    return {
        "workflow": manifest,
        "parameters": case["parameters"],
        "path": _way(manifest["spec"], case["step"]),
        "scope": {
            "tasks.{}.outputs.parameters.{}".format(*name.split(".")): value for name, value in case["outputs"].items()
        },
    }


def _way(spec: Case, step: str) -> list[str]:
    """The tasks that lead to a step: a loop may be a DAG of its own around it."""
    templates = {each["name"]: each for each in spec["templates"]}
    path: list[str] = []
    name = spec["entrypoint"]
    while "dag" in templates[name]:
        tasks = {each["name"]: each for each in templates[name]["dag"]["tasks"]}
        path.append(step)
        name = tasks[step]["template"]
    return path


def substitution_ours(case: Case) -> Answer:
    return pipelines.meant(case)


def substitution_theirs(answer: Answer) -> Answer:
    if "failure" in answer:
        return answer
    return {"pods": [_started(pod["container"]) for pod in answer.get("pods", [])]}


def _started(container: Case) -> Answer:
    """What the container is started with, without gpuflow's supervisor and the variables gpuflow adds."""
    env = environment(container.get("env", []))
    argv = [expanded(word, env) for word in (*container.get("command", []), *container.get("args", []))]
    if argv[0] == "gpuflow-run":
        argv = argv[argv.index("--") + 1 :]
    return {"argv": argv, "env": {name: value for name, value in env.items() if not name.startswith("GPUFLOW_")}}


def lint_question(case: Case) -> Case:
    return {"text": json.dumps(compiled(case))}


def lint_ours(case: Case) -> Answer:
    return {"valid": True, "errors": []}


def lint_theirs(answer: Answer) -> Answer:
    return answer
