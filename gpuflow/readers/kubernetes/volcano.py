"""Jobs of Volcano."""

from __future__ import annotations

from dataclasses import replace

from gpuflow.demands.model import Demand
from gpuflow.demands.volcano import in_volcanos_queue
from gpuflow.errors import Where
from gpuflow.kubernetes.labels import MADE_BY
from gpuflow.readers.frame import Passive
from gpuflow.readers.kubernetes.building import Object, Run
from gpuflow.readers.kubernetes.pods import Pod, pod_of
from gpuflow.runtime.gang_kinds import VOLCANO


def volcano_job(thing: Object) -> Demand | Passive:
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
        metadata = pod["metadata"]
        annotations = {**metadata.get("annotations", {}), MADE_BY: VOLCANO.word}
        pod = {**pod, "metadata": {**metadata, "annotations": annotations}, "spec": {**of_job, **pod["spec"]}}
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
        run.together(thing.name, [(name, count, pod) for name, count, pod, _ in tasks], tasks[0][3])
    else:
        for name, count, pod, where in tasks:
            if count:
                run.apart(name, pod, count, where)
    found = run.demand(thing, only_at_most=only)
    if isinstance(found, Passive):
        return found
    queue = spec.at("queue")
    where = spec.key_where if queue is None else queue.key_where
    return replace(found, unseen=(in_volcanos_queue(found.steps[0].name, spec.text("queue"), where),))
