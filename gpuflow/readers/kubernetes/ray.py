"""Clusters of Ray, and what runs on them.

Mirrors KubeRay v1.6 (GetWorkerGroupDesiredReplicas, BuildAutoscalerContainer) and what Kueue v0.19 counts of it.
"""

from __future__ import annotations

from typing import Any, Final

from gpuflow.demands.model import Demand, UnseenPart
from gpuflow.graph import Dag, Unknown
from gpuflow.readers.interface import PassiveObject
from gpuflow.readers.kubernetes.demand import Object, Run, suspended_reason
from gpuflow.readers.kubernetes.fields import MAX_INT32, Part
from gpuflow.readers.kubernetes.pods import Pod, pod_of

AUTOSCALER: Final = {"cpu": "500m", "memory": "512Mi"}
SUBMITTER: Final = {"requests": {"cpu": "500m", "memory": "200Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
"""What KubeRay gives the containers that it adds, where the object says nothing else."""
MODES: Final = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")


def ray_cluster(thing: Object) -> Demand | PassiveObject:
    """The head, and the workers of each group; an autoscaler may start more, up to maxReplicas."""
    run = Run()
    _cluster(run, thing, thing.spec, [], [])
    return run.demand(thing, only_at_most=suspended_reason(thing.spec, thing.owner.is_queued))


def ray_job(thing: Object) -> Demand | PassiveObject:
    """The same, with the pod that submits the job."""
    spec = thing.spec
    mode = spec.text("submissionMode", "K8sJobMode", MODES)
    only = suspended_reason(spec, thing.owner.is_queued)
    cluster = spec.at("rayClusterSpec")
    if cluster is None:
        selector = spec.need("clusterSelector", what="and no rayClusterSpec, so that no cluster is named")
        unseen = UnseenPart(
            thing.name, "it runs on a RayCluster that is there already (clusterSelector)", selector.where
        )
        return Demand(thing.name, (), Dag({}), unseen=(unseen,), only_at_most=only)
    beside: list[tuple[str, int, Pod]] = []
    sidecars: list[dict[str, Any]] = []
    if mode == "K8sJobMode":
        own = spec.at("submitterPodTemplate")
        beside.append(("submitter", 1, _submitter(cluster) if own is None else pod_of(own, thing.owner)))
    elif mode == "SidecarMode":
        sidecars.append({"name": "ray-job-submitter", "resources": SUBMITTER})
    run = Run()
    _cluster(run, thing, cluster, beside, sidecars)
    return run.demand(thing, only_at_most=only)


def ray_service(thing: Object) -> Demand | PassiveObject:
    """The cluster that serves; an update runs a second one beside it, which a finding says."""
    run = Run()
    _cluster(run, thing, thing.spec.need("rayClusterConfig"), [], [])
    return run.demand(thing, only_at_most=suspended_reason(thing.spec, thing.owner.is_queued))


def _submitter(cluster: Part) -> Pod:
    head = pod_of(cluster.need("headGroupSpec", "template"))
    image = head["spec"]["containers"][0].get("image", "ray")
    container = {"name": "ray-job-submitter", "image": image, "resources": SUBMITTER}
    return {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container]}}


def _cluster(
    run: Run, thing: Object, spec: Part, beside: list[tuple[str, int, Pod]], sidecars: list[dict[str, Any]]
) -> None:
    template = spec.need("headGroupSpec").need("template")
    scales = spec.flag("enableInTreeAutoscaling")
    added = [*sidecars, *([_autoscaler(spec)] if scales else [])]
    sets: list[tuple[str, int, Pod]] = [("head", 1, _with_containers(pod_of(template, thing.owner), added))]
    grown: list[tuple[str, Pod, int, int | None, Part]] = []
    for group in spec.items_at("workerGroupSpecs"):
        name = group.text("groupName") or ""
        if not name or any(name == each for each, _, _ in sets):
            raise group.fault("has no groupName" if not name else f'is the second group called "{name}"')
        pod = pod_of(group.need("template"), thing.owner)
        hosts = max(group.count("numOfHosts", 1), 1)
        least, most = group.count("minReplicas", 0), group.count("maxReplicas", MAX_INT32)
        now = 0 if group.flag("suspend") else min(max(group.count("replicas", 0), least), max(most, least))
        sets.append((name, now * hosts, pod))
        if scales and most > now and not group.flag("suspend"):
            known = None if group.at("maxReplicas") is None else most - now
            grown.append((name, pod, hosts, known, group))
    sets += [(name, count, thing.owner.with_queue(pod)) for name, count, pod in beside]
    run.add_gang(thing.name, sets, template.key_where)
    for name, pod, hosts, more, group in grown:
        said = "maxReplicas is not set" if more is None else f"maxReplicas is {group.count('maxReplicas', 0)}"
        why = f"the autoscaler decides how many workers group {name} has ({said})"
        run.add_copies(f"{thing.name}-{name}-autoscaled", pod, Unknown(why, more), group.where, pods=hosts)


def _autoscaler(spec: Part) -> dict[str, Any]:
    options = spec.at("autoscalerOptions")
    given = None if options is None else options.at("resources")
    if given is None:
        return {"name": "autoscaler", "resources": {"requests": AUTOSCALER, "limits": AUTOSCALER}}
    resources: dict[str, Any] = {}
    for side in ("requests", "limits"):
        amounts = given.at(side)
        if amounts is not None:
            resources[side] = {key: str(amounts.need(key).quantity()) for key in amounts.mapping}
    return {"name": "autoscaler", "resources": resources}


def _with_containers(pod: Pod, containers: list[dict[str, Any]]) -> Pod:
    if not containers:
        return pod
    image = pod["spec"]["containers"][0].get("image", "ray")
    made = [{"image": image, **container} for container in containers]
    return {**pod, "spec": {**pod["spec"], "containers": [*pod["spec"]["containers"], *made]}}
