"""Half a manifest: what Kubernetes demands of an object, so that one which lost a part is not taken for one that asks
for nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpuflow.checker.nodes.flags import read_flag
from gpuflow.kubernetes.admission.pod import read_text
from gpuflow.kubernetes.labels import read_labels
from gpuflow.resources import BadField, read_map, read_maps, read_resource_list

Body = Mapping[str, Any]

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
STATES: Final = ("True", "False", "Unknown")
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def require_whole_pod(body: Body) -> None:
    _require_containers(read_map(body.get("spec"), "spec"), "spec")


def require_whole_workload(body: Body) -> None:
    pod_sets = read_maps(read_map(body.get("spec"), "spec").get("podSets"), "spec.podSets")
    for index, pod_set in enumerate(pod_sets):
        where = f"spec.podSets[{index}].template"
        template = read_map(pod_set.get("template"), where)
        _require_containers(read_map(template.get("spec"), f"{where}.spec"), f"{where}.spec")
    status = read_map(body.get("status"), "status")
    for index, condition in enumerate(read_maps(status.get("conditions"), "status.conditions")):
        where = f"status.conditions[{index}]"
        if not read_text(condition, "type", where):
            raise BadField(f"{where}.type", "a condition needs one")
        state = read_text(condition, "status", where)
        if state not in STATES:
            raise BadField(f"{where}.status", f"{state!r} is not one of {', '.join(STATES)}")
    _require_assignments(read_map(status.get("admission"), "status.admission"), pod_sets)


def _require_assignments(admission: Body, pod_sets: Sequence[Body]) -> None:
    """An admission says of every pod set, by its name, what it was given."""
    if not admission:
        return
    where = "status.admission.podSetAssignments"
    assignments = read_maps(admission.get("podSetAssignments"), where)
    given = [read_text(each, "name", f"{where}[{index}]") or "main" for index, each in enumerate(assignments)]
    asked = [read_text(each, "name", f"spec.podSets[{index}]") or "main" for index, each in enumerate(pod_sets)]
    if sorted(given) != sorted(asked):
        raise BadField(where, f"is of {', '.join(given) or 'nothing'}, and the pod sets are {', '.join(asked)}")
    for index, each in enumerate(assignments):
        require_positive(each.get("resourceUsage"), f"{where}[{index}].resourceUsage")


def require_whole_taints(field: str) -> Callable[[Body], None]:
    """A reader that demands a key and an effect of each taint in a field of the spec."""

    def read(body: Body) -> None:
        where = f"spec.{field}"
        for index, taint in enumerate(read_maps(read_map(body.get("spec"), "spec").get(field), where)):
            if not read_text(taint, "key", f"{where}[{index}]"):
                raise BadField(f"{where}[{index}].key", "a taint needs one")
            effect = read_text(taint, "effect", f"{where}[{index}]")
            if effect not in EFFECTS:
                raise BadField(f"{where}[{index}].effect", f"{effect!r} is not one of {', '.join(EFFECTS)}")

    return read


def require_whole_runtime_class(body: Body) -> None:
    scheduling = read_map(body.get("scheduling"), "scheduling")
    read_labels(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    for index, toleration in enumerate(read_maps(scheduling.get("tolerations"), "scheduling.tolerations")):
        for field in ("key", "operator", "value", "effect"):
            read_text(toleration, field, f"scheduling.tolerations[{index}]")
    require_positive(read_map(body.get("overhead"), "overhead").get("podFixed"), "overhead.podFixed")


def require_whole_settings(body: Body) -> None:
    read_flag(body, "manageJobsWithoutQueueName", "Configuration")


def _require_containers(spec: Body, where: str) -> None:
    """A pod has containers, each with a name; what they ask for is never negative."""
    containers = read_maps(spec.get("containers"), f"{where}.containers")
    if not containers:
        raise BadField(f"{where}.containers", "a pod needs at least one container")
    for field in ("containers", "initContainers"):
        for index, container in enumerate(read_maps(spec.get(field), f"{where}.{field}")):
            at = f"{where}.{field}[{index}]"
            if not read_text(container, "name", at):
                raise BadField(f"{at}.name", "a container needs one")
            resources = read_map(container.get("resources"), f"{at}.resources")
            for side in ("requests", "limits"):
                require_positive(resources.get(side), f"{at}.resources.{side}")
    require_positive(spec.get("overhead"), f"{where}.overhead")
    affinity = read_map(spec.get("affinity"), f"{where}.affinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        at = f"{where}.affinity.{kind}.{REQUIRED}"
        terms = read_map(affinity.get(kind), f"{where}.affinity.{kind}").get(REQUIRED)
        for index, term in enumerate(read_maps(terms, at)):
            if not read_text(term, "topologyKey", f"{at}[{index}]"):
                raise BadField(f"{at}[{index}].topologyKey", "an affinity term needs one")


def require_positive(amounts: object, where: str) -> None:
    for key, amount in read_resource_list(amounts, where).items():
        if amount.nano < 0:
            raise BadField(f"{where}[{key}]", f"{amount} is negative; an amount is zero or more")
