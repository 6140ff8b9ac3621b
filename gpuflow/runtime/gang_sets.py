"""The pods of a gang's object, by kind: how many are made from which template."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple  # noqa: UP035 (runs on Python 3.8)


class PodSet(NamedTuple):
    """Pods of a gang that are made from one template."""

    name: str
    """As the label `GangKind.role` of the pods says it."""
    size: int
    template: dict[str, Any]
    tail: str
    """What follows the object's name in the longest name of a pod."""


def of_jobset(manifest: Mapping[str, Any]) -> list[PodSet]:
    """One for each replicated job."""
    found = []
    for each in manifest["spec"].get("replicatedJobs") or ():
        job, replicas = each["template"]["spec"], int(each.get("replicas", 1))
        most = int(job.get("parallelism", 1))
        pods = min(most, int(job.get("completions", most)))
        tail = f"-{each['name']}-{replicas - 1}-{pods - 1}-abcde"
        found.append(PodSet(str(each["name"]), replicas * pods, job["template"], tail))
    return found


def of_trainjob(manifest: Mapping[str, Any]) -> list[PodSet]:
    """Those of the JobSet in its runtime, which stands beside it as long as it is ours to make."""
    runtime = manifest.get("runtime")
    return of_jobset(runtime["spec"]["template"]) if runtime else []


def of_pytorchjob(manifest: Mapping[str, Any]) -> list[PodSet]:
    """One for each role; ours has workers only."""
    found = []
    for role, each in (manifest["spec"].get("pytorchReplicaSpecs") or {}).items():
        count = int(each.get("replicas", 1))
        found.append(PodSet(role.lower(), count, each["template"], f"-{role.lower()}-{count - 1}"))
    return found


def of_mpijob(manifest: Mapping[str, Any]) -> list[PodSet]:
    """The Launcher, which is a Job's pod, and the workers."""
    found = []
    roles = manifest["spec"].get("mpiReplicaSpecs") or {}
    for role in ("Launcher", "Worker"):
        if role in roles:
            count, name = int(roles[role].get("replicas", 1)), role.lower()
            tail = "-launcher-abcde" if role == "Launcher" else f"-worker-{count - 1}"
            found.append(PodSet(name, count, roles[role]["template"], tail))
    return found


def of_volcano(manifest: Mapping[str, Any]) -> list[PodSet]:
    """One for each task."""
    found = []
    for each in manifest["spec"].get("tasks") or ():
        count = int(each.get("replicas", 1))
        found.append(PodSet(str(each["name"]), count, each["template"], f"-{each['name']}-{count - 1}"))
    return found
