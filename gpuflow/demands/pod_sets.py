"""Steps whose pod sets differ, taken apart: one step for each pod set, so that every step has pods of one kind.

A leader and its workers still live together. Each part names the step that it is a part of, so that whoever judges
gangs as a whole finds them again.
"""

from __future__ import annotations

from dataclasses import replace

from gpuflow.demands.model import Demand, Pod, StepDemand
from gpuflow.graph import Dag, Leaf, Loop, Tree
from gpuflow.kubernetes.labels import QUEUE_LABEL

PROGRAM = ("command", "args", "env")
"""What a container runs."""
PART = "/"
"""Stands between the name of a step and that of its pod set."""


def split_mixed_steps(demand: Demand) -> Demand:
    """The demand with every step whose pods differ taken apart; most demands have none, and stay as they are."""
    mixed = {step.name: step for step in demand.steps if _differ(step)}
    if not mixed:
        return demand
    steps = [part for step in demand.steps for part in (parts_of(step) if step.name in mixed else (step,))]
    return replace(demand, steps=tuple(steps), graph=_split_tree(demand.graph, mixed, None))


def _differ(step: StepDemand) -> bool:
    """Whether its pods differ; in a queue, whether it has several pod sets: each may get another flavor."""
    if len(step.pod_sets) > 1 and step.pod["metadata"].get("labels", {}).get(QUEUE_LABEL):
        return True
    return any(
        each.pod is not step.pod and _without_program(each.pod) != _without_program(step.pod)
        for each in step.pod_sets[1:]
    )


def _without_program(pod: Pod) -> Pod:
    """The pod without what nobody looks at who places or counts it: a leader may have only another command."""
    spec = dict(pod["spec"])
    for field in ("containers", "initContainers"):
        containers = spec.get(field) or ()
        spec[field] = [{key: each[key] for key in each if key not in PROGRAM} for each in containers]
    return {**pod, "spec": spec}


def parts_of(step: StepDemand) -> tuple[StepDemand, ...]:
    """One step for each pod set."""
    return tuple(
        replace(step, name=f"{step.name}{PART}{each.name}", pod_sets=(each,), part_of=step.name)
        for each in step.pod_sets
    )


def _split_tree(node: Tree, mixed: dict[str, StepDemand], cap: int | None) -> Tree:
    match node:
        case Leaf():
            return _leaves(mixed[node.name], cap) if node.name in mixed else node
        case Loop():
            return replace(node, body=_split_tree(node.body, mixed, cap))
        case Dag():
            caps = [each for each in (cap, node.parallel) if each is not None]
            inner = {name: _split_tree(each, mixed, min(caps, default=None)) for name, each in node.nodes.items()}
            return replace(node, nodes=inner)


def _leaves(step: StepDemand, cap: int | None) -> Tree:
    counts = [each.count for each in step.pod_sets]
    if cap is not None and step.pods > cap:
        # A gang larger than the cap counts as the whole cap, and may live: so one part of it takes it all.
        counts = [cap, *[0] * (len(counts) - 1)]
    parts = zip(parts_of(step), counts, strict=True)
    return Dag({part.name: Leaf(part.name, {}, count) for part, count in parts})
