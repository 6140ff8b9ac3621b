"""Faults that people make in documents, and what namespaces restrict, by kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

Object = dict[str, Any]


def split(name: str) -> tuple[str, str, str]:
    plural, _, group = name.partition(".")
    return group, "*", plural


def _set(*path: str, to: Any) -> Callable[[Object], None]:
    def change(target: Object) -> None:
        for key in path[:-1]:
            target = target.setdefault(key, {})
        target[path[-1]] = to

    return change


def _rename(*path: str, to: str) -> Callable[[Object], None]:
    """A slip of the pen in the name of a field, where there is one."""

    def change(target: Object) -> None:
        for key in path[:-1]:
            target = target[int(key) if key.isdecimal() else key]  # type: ignore[index]
        if path[-1] in target:
            target[to] = target.pop(path[-1])

    return change


POD_FAULTS: Object = {
    "nodeselector": _set("nodeselector", to={"a": "b"}),
    "resource for resources": _rename("containers", "0", "resources", to="resource"),
    "priority by hand": _set("priority", to=5),
    "bad restartPolicy": _set("restartPolicy", to="Sometimes"),
    "grace as text": _set("terminationGracePeriodSeconds", to="30"),
    "volume of nothing": _set("volumes", to=[{"name": "Data_1", "emptyDir": {}}]),
}
JOB_FAULTS: Object = {
    "restartPolicy Always": _set("template", "spec", "restartPolicy", to="Always"),
    "no restartPolicy": lambda spec: spec["template"]["spec"].pop("restartPolicy", None),
    "limit per index without Indexed": lambda spec: spec.update(backoffLimitPerIndex=1, completionMode="NonIndexed"),
    "Indexed without completions": lambda spec: (spec.pop("completions", 0), spec.update(completionMode="Indexed")),
    "own selector": _set("selector", to={"matchLabels": {"a": "b"}}),
    "negative parallelism": _set("parallelism", to=-1),
    "paralellism": _set("paralellism", to=2),
    "parallelism as text": _set("parallelism", to="2"),
    "failure policy with OnFailure": lambda spec: (
        spec["template"]["spec"].update(restartPolicy="OnFailure"),
        spec.update(
            podFailurePolicy={"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}]}
        ),
    ),
    "success policy without Indexed": lambda spec: spec.update(
        completionMode="NonIndexed", successPolicy={"rules": [{"succeededCount": 1}]}
    ),
    "managedBy": _set("managedBy", to="example.com/other"),
    "suspend": _set("suspend", to=True),
    "deadline": _set("activeDeadlineSeconds", to=600),
    "ttl": _set("ttlSecondsAfterFinished", to=600),
    "manual selector": lambda spec: (
        spec.update(manualSelector=True, selector={"matchLabels": {"my": "own"}}),
        spec["template"].setdefault("metadata", {}).setdefault("labels", {}).update(my="own"),
    ),
}
CRON_FAULTS: Object = {
    "bad schedule": _set("schedule", to="every day"),
    "six fields": _set("schedule", to="0 * * * * *"),
    "bad time zone": _set("timeZone", to="Mars/Phobos"),
    "TZ in schedule": _set("schedule", to="TZ=Europe/Berlin * * * * *"),
    "keeps nothing": lambda spec: spec.update(successfulJobsHistoryLimit=0, failedJobsHistoryLimit=0),
    "bad concurrency": _set("concurrencyPolicy", to="Queue"),
    "suspend": _set("suspend", to=True),
    "deadline below 0": _set("startingDeadlineSeconds", to=-1),
    "descriptor": _set("schedule", to="@every 30s"),
}
SELECTING_FAULTS: Object = {
    "selector does not match": _set("selector", "matchLabels", to={"app": "other"}),
    "no selector": lambda spec: spec.pop("selector"),
    "empty selector": _set("selector", to={}),
    "restartPolicy OnFailure": _set("template", "spec", "restartPolicy", to="OnFailure"),
    "replicas as text": _set("replicas", to="2"),
    "negative replicas": _set("replicas", to=-1),
    "replica": _set("replica", to=1),
    "deadline of the pod": _set("template", "spec", "activeDeadlineSeconds", to=600),
}
DEPLOYMENT_FAULTS: Object = {
    "surge 0 and unavailable 0": _set("strategy", to={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
    "surge of a Recreate": _set("strategy", to={"type": "Recreate", "rollingUpdate": {"maxSurge": 1}}),
    "surge in words": _set("strategy", to={"rollingUpdate": {"maxSurge": "half"}}),
    "surge 0": _set("strategy", to={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}),
    "paused": _set("paused", to=True),
    "progress below ready": lambda spec: spec.update(progressDeadlineSeconds=5, minReadySeconds=10),
}
JOBSET_FAULTS: Object = {
    "same name twice": lambda spec: spec.update(replicatedJobs=[*spec["replicatedJobs"], spec["replicatedJobs"][0]]),
    "name with capitals": lambda spec: spec["replicatedJobs"][0].update(name="Workers"),
    "no jobs": _set("replicatedJobs", to=[]),
    "suspend": _set("suspend", to=True),
    "in order": _set("startupPolicy", to={"startupPolicyOrder": "InOrder"}),
    "managedBy": _set("managedBy", to="example.com/other"),
    "maxRestart": _set("failurePolicy", to={"maxRestart": 1}),
}
MPI_FAULTS: Object = {
    "no launcher": lambda spec: spec["mpiReplicaSpecs"].pop("Launcher"),
    "two launchers": lambda spec: spec["mpiReplicaSpecs"]["Launcher"].update(replicas=2),
    "slots below 0": _set("slotsPerWorker", to=-1),
    "bad implementation": _set("mpiImplementation", to="LAM"),
    "suspend": _set("runPolicy", to={"suspend": True}),
    "waits for workers": _set("launcherCreationPolicy", to="WaitForWorkersReady"),
}


def _first(spec: Object) -> Object:
    """The first role of a PyTorchJob."""
    return cast(Object, next(iter(spec["pytorchReplicaSpecs"].values())))


PYTORCH_FAULTS: Object = {
    "other container": lambda spec: _first(spec)["template"]["spec"]["containers"][0].update(name="main"),
    "two masters": lambda spec: spec["pytorchReplicaSpecs"].get("Master", {}).update(replicas=2),
    "unknown role": lambda spec: spec["pytorchReplicaSpecs"].update(Chief=_first(spec)),
    "suspend": _set("runPolicy", to={"suspend": True}),
    "bad restartPolicy": lambda spec: _first(spec).update(restartPolicy="Sometimes"),
}
VOLCANO_FAULTS: Object = {
    "more than there are": lambda spec: spec.update(minAvailable=spec["minAvailable"] + 1),
    "no such queue": _set("queue", to="nowhere"),
    "same name twice": lambda spec: spec.update(tasks=[*spec["tasks"], spec["tasks"][0]]),
    "no tasks": _set("tasks", to=[]),
    "bad event": _set("policies", to=[{"event": "PodLost", "action": "RestartJob"}]),
}
NO_LOCK = {"configMapKeyRef": {"name": "none", "key": "a"}}
WORKFLOW_FAULTS: Object = {
    "no entrypoint": lambda spec: spec.pop("entrypoint"),
    "no such template": _set("entrypoint", to="nowhere"),
    "suspend": _set("suspend", to=True),
    "withParams": lambda spec: spec["templates"][0].update(withParams="[1]"),
    "same name twice": lambda spec: spec["templates"].append(dict(spec["templates"][1])),
    "semaphore of nothing": _set("synchronization", to={"semaphores": [NO_LOCK]}),
}
CRON_WORKFLOW_FAULTS: Object = {
    "bad schedule": _set("schedules", to=["every day"]),
    "bad time zone": _set("timezone", to="Mars/Phobos"),
    "suspend": _set("suspend", to=True),
    "bad concurrency": _set("concurrencyPolicy", to="Queue"),
}
OBJECT_FAULTS: Object = {
    "long name": _set("metadata", "name", to="a" * 64),
    "name of 53": _set("metadata", "name", to="b" * 53),
    "name of 60": _set("metadata", "name", to="b" * 60),
    "capitals": _set("metadata", "name", to="Train"),
    "dots": _set("metadata", "name", to="train.v1"),
    "bad label": _set("metadata", "labels", to={"team": "a b"}),
    "label as number": _set("metadata", "labels", to={"team": 7}),
    "field at the top": _set("spce", to={}),
    "team": _set("metadata", "labels", to={"team": "a", "app": "a"}),
}
QUOTA_KEYS: dict[str, tuple[str, ...]] = {
    "requests.cpu": ("1", "2", "4", "8", "16"),
    "limits.cpu": ("2", "4", "8", "16"),
    "requests.memory": ("512Mi", "2Gi", "8Gi"),
    "requests.nvidia.com/gpu": ("0", "1", "2", "4", "8"),
    "pods": ("0", "1", "2", "3", "8", "8"),
    "count/pods": ("1", "2", "4", "8"),
    "count/jobs.batch": ("0", "1", "2", "4"),
    "count/cronjobs.batch": ("0", "1", "2"),
    "count/deployments.apps": ("0", "1", "2"),
    "count/replicasets.apps": ("0", "1", "2"),
    "count/statefulsets.apps": ("0", "1", "2"),
    "count/daemonsets.apps": ("0", "1", "2"),
    "count/controllerrevisions.apps": ("0", "1", "2"),
    "services": ("0", "1", "2"),
    "count/services": ("0", "1", "2"),
    "configmaps": ("1", "2", "3"),
    "count/configmaps": ("1", "2", "3"),
    "secrets": ("0", "1", "2"),
    "persistentvolumeclaims": ("0", "1", "2", "4"),
    "requests.storage": ("1Gi", "5Gi", "20Gi"),
    "count/serviceaccounts": ("1", "2", "3"),
    "count/workloads.kueue.x-k8s.io": ("0", "1", "2"),
    "count/jobsets.jobset.x-k8s.io": ("0", "1", "2"),
    "count/mpijobs.kubeflow.org": ("0", "1", "2"),
    "count/workflows.argoproj.io": ("0", "1", "2", "4"),
    "count/podgroups.scheduling.volcano.sh": ("0", "1", "2"),
}
RELEVANT: dict[str, tuple[str, list[str]]] = {
    "Job": ("jobs.batch", ["count/jobs.batch", "count/pods"]),
    "CronJob": ("cronjobs.batch", ["count/jobs.batch", "count/cronjobs.batch", "count/pods"]),
    "Deployment": ("deployments.apps", ["count/deployments.apps", "count/replicasets.apps", "count/pods"]),
    "ReplicaSet": ("replicasets.apps", ["count/replicasets.apps", "count/pods"]),
    "StatefulSet": (
        "statefulsets.apps",
        ["count/statefulsets.apps", "count/controllerrevisions.apps", "persistentvolumeclaims", "requests.storage"],
    ),
    "DaemonSet": ("daemonsets.apps", ["count/daemonsets.apps", "count/controllerrevisions.apps", "count/pods"]),
    "Pod": ("pods", ["count/pods", "limits.cpu", "requests.memory"]),
    "JobSet": ("jobsets.jobset.x-k8s.io", ["count/jobsets.jobset.x-k8s.io", "count/jobs.batch", "services"]),
    "MPIJob": (
        "mpijobs.kubeflow.org",
        ["count/mpijobs.kubeflow.org", "count/jobs.batch", "services", "configmaps", "secrets"],
    ),
    "PyTorchJob": ("pytorchjobs.kubeflow.org", ["services", "count/services", "count/pods"]),
    "TrainJob": ("trainjobs.trainer.kubeflow.org", ["count/jobsets.jobset.x-k8s.io", "count/jobs.batch", "services"]),
    "VolcanoJob": (
        "jobs.batch.volcano.sh",
        ["count/podgroups.scheduling.volcano.sh", "services", "configmaps", "count/pods"],
    ),
    "Workflow": ("workflows.argoproj.io", ["count/workflows.argoproj.io", "count/pods"]),
    "CronWorkflow": ("cronworkflows.argoproj.io", ["count/workflows.argoproj.io", "count/pods"]),
}
"""The resource of each kind, and what its objects use up."""
STORAGE_RANGE = {"type": "PersistentVolumeClaim", "max": {"storage": "5Gi"}}
RULED = (
    ("batch", "v1", "jobs"), ("batch", "v1", "jobs"), ("batch", "v1", "cronjobs"), ("apps", "v1", "deployments"),
    ("apps", "v1", "replicasets"), ("apps", "v1", "statefulsets"), ("", "v1", "pods"), ("", "v1", "pods"),
    ("", "v1", "services"), ("", "v1", "configmaps"), ("", "v1", "persistentvolumeclaims"),
    ("", "v1", "serviceaccounts"), ("*", "*", "*"),
    ("argoproj.io", "*", "workflows"), ("jobset.x-k8s.io", "*", "jobsets"), ("kubeflow.org", "*", "mpijobs"),
)  # fmt: skip
