"""Gangs in Kueue: a JobSet with one or two replicated jobs asks for quota, and some of them for a place too.

Kueue's own integration makes the workload on one side; on the other it is what a check makes of the same JobSet.
"""

from __future__ import annotations

from typing import Any

from tests.differential import queues, topologies
from tests.differential.draw import Draw
from tests.differential.pods import Manifest
from tests.differential.workloads import NAMESPACE

QUEUE = "kueue.x-k8s.io/queue-name"
ANNOTATIONS = {"required": "required-topology", "preferred": "preferred-topology", "podSetGroupName": "group-name"}


def case(draw: Draw) -> dict[str, Any]:
    """Flavors, cohorts and what they lend as any workload meets them; two of five gangs meet topologies."""
    world = queues.case(draw) if draw.chance(0.6) else topologies.case(draw)
    spec = world["workload"]["spec"]
    jobs = [_replicated_job(draw, each) for each in spec["podSets"][:2]]
    jobset = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "gang", "namespace": NAMESPACE, "uid": "uid-js", "labels": {QUEUE: spec["queueName"]}},
        "spec": {"suspend": True, "replicatedJobs": jobs},
    }
    # What is checked is created after everything that there is; its priority is a class's, and here there are none.
    metadata = {**world["workload"]["metadata"], "creationTimestamp": "2027-01-01T00:00:00Z"}
    asking = {**world["workload"], "metadata": metadata, "spec": {"queueName": "", "priority": 0, "podSets": []}}
    return {**world, "workload": asking, "jobSet": jobset}


def _replicated_job(draw: Draw, pod_set: Manifest) -> Manifest:
    """The pods of a set as so many Jobs of so many pods each; more may be asked for than ever run at once."""
    pods = pod_set["count"]
    replicas = draw.pick([number for number in range(1, pods + 1) if pods % number == 0])
    parallelism = pods // replicas
    completions = parallelism
    if draw.chance(0.1):
        completions += 2
    elif draw.chance(0.1):
        parallelism += 2
    spec = {**pod_set["template"]["spec"], "restartPolicy": "Never"}
    annotations = _annotations(pod_set.get("topologyRequest") or {})
    template = {**({"metadata": {"annotations": annotations}} if annotations else {}), "spec": spec}
    job = {"parallelism": parallelism, "completions": completions, "completionMode": "Indexed", "template": template}
    return {"name": pod_set["name"], "replicas": replicas, "template": {"spec": job}}


def _annotations(request: Manifest) -> dict[str, str]:
    found = {f"kueue.x-k8s.io/podset-{key}": request[name] for name, key in ANNOTATIONS.items() if name in request}
    if request.get("unconstrained"):
        found["kueue.x-k8s.io/podset-unconstrained-topology"] = "true"
    return found
