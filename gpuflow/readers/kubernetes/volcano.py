"""Jobs of Volcano, and the PodGroups by which it places the pods of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from gpuflow.core.errors import Where
from gpuflow.demands.gang_scheduling import volcano_queue_unseen
from gpuflow.demands.model import Demand, UnseenPart
from gpuflow.kubernetes.labels import MADE_BY
from gpuflow.readers.interface import PassiveObject
from gpuflow.readers.kubernetes.demand import Object, Run
from gpuflow.readers.kubernetes.fields import Part
from gpuflow.readers.kubernetes.pods import Pod, pod_of
from gpuflow.runtime.gangs.kinds import GROUP, POD_GROUP, VOLCANO, GangKind

POD_GROUP_KIND: Final = "PodGroup"


def volcano_job(thing: Object) -> Demand | PassiveObject:
    """All pods together, where the job needs all of them; else each task's pods come as there is room."""
    spec = thing.spec
    scheduler = spec.text("schedulerName", "volcano") or "volcano"
    priority = spec.text("priorityClassName")
    tasks: list[tuple[str, int, Pod, Where]] = []
    only = None
    for index, part in enumerate(spec.need("tasks").items()):
        template = part.need("template")
        pod = pod_of(template, thing.owner)
        of_job = {"schedulerName": scheduler, **({"priorityClassName": priority} if priority else {})}
        pod = in_volcano_queue(VOLCANO, {**pod, "spec": {**of_job, **pod["spec"]}})
        name = part.text("name") or f"default{index}"
        if any(name == each for each, _, _, _ in tasks):
            raise part.fault(f'is the second task called "{name}"')
        tasks.append((name, part.count("replicas", 0), pod, template.key_where))
        if part.at("dependsOn") is not None:
            only = "tasks wait for each other (dependsOn), and may not all run at the same time"
    total = sum(count for _, count, _, _ in tasks)
    least = spec.count("minAvailable", total) or total
    run = Run()
    if least >= total and tasks:
        run.add_gang(thing.name, [(name, count, pod) for name, count, pod, _ in tasks], tasks[0][3])
    else:
        for name, count, pod, where in tasks:
            if count:
                run.add_copies(name, pod, count, where)
    found = run.demand(thing, only_at_most=only)
    if isinstance(found, PassiveObject):
        return found
    return replace(found, unseen=(queued_by_volcano(found, spec),))


def in_volcano_queue(kind: GangKind, pod: Pod) -> Pod:
    """The pod as one of an object that waits in a queue of Volcano's."""
    metadata = pod["metadata"]
    annotations = {**metadata.get("annotations", {}), MADE_BY: kind.word}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def queued_by_volcano(found: Demand, spec: Part) -> UnseenPart:
    """What is not known of a demand whose queue stands in the spec of a Job of Volcano, or of a PodGroup."""
    queue = spec.at("queue")
    where = spec.key_where if queue is None else queue.key_where
    return volcano_queue_unseen(found.steps[0].name, spec.text("queue"), where)


def pod_group(thing: Object, pods: Sequence[Pod]) -> Part | None:
    """The spec of the PodGroup that these pods are of; None where there is none, or where it was not given.

    It stands beside an object that a launcher of ours makes, and else in a document of its own.
    """
    if thing.root.at(POD_GROUP.key) is not None:
        return thing.root.need(POD_GROUP.key, "spec")
    names = {str(name) for pod in pods if (name := pod["metadata"].get("annotations", {}).get(GROUP))}
    found = [each for name in sorted(names) if (each := thing.library.find(POD_GROUP_KIND, name)) is not None]
    of_volcano = [each for each in found if each.group == POD_GROUP.group]
    return Part(of_volcano[0], (), of_volcano[0].tree).need("spec") if of_volcano else None
