"""The way out of a queue that will not take a step, from Kueue's own words and the queue's own numbers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from gpuflow.catalog.labels import PRODUCT_KEY
from gpuflow.checker.kueue import Assignment, Kueue
from gpuflow.checker.kueue.queues import ClusterQueue
from gpuflow.checker.kueue.reasons import (
    AboveCapacity,
    AffinityMismatch,
    Inadmissible,
    NoPlace,
    TopologyLevelMissing,
    TopologyMismatch,
    Uncovered,
    UntoleratedTaint,
)
from gpuflow.errors import did_you_mean

ANOTHER: Final = "use another queue"
"""What a step can do; the engine's driver cannot."""
DRIVER: Final = (
    "have its owner change it, or run in a namespace without a LocalQueue default: the driver's pods name no queue"
)


def elsewhere(*, is_driver: bool) -> str:
    """Where else pods can go than to the queue that they go to."""
    return DRIVER if is_driver else ANOTHER


def queue_hint(
    found: Assignment,
    kueue: Kueue,
    namespace: str,
    local_queue: str,
    asked: Collection[str] = (),
    *,
    is_driver: bool = False,
) -> str | None:
    """What to change so that the queue can take the step; None when Kueue's sentence says it all.

    `asked` are the resources of the step's pod: Kueue names only the first that its queue does not cover. `is_driver`:
    it is the engine's own pod, and nobody can name another queue for it, or have it ask for something else.
    """
    queue = kueue.queues.get(found.cluster_queue or "")
    if queue is None:
        return _missing(kueue, namespace, local_queue)
    if found.verdict == "blocked":
        return _blocked(found, queue, is_driver)
    lines = [
        *_uncovered(found, queue, kueue, asked),
        *_mismatched(found, queue, kueue, is_driver),
        *_topology(found, queue, kueue),
    ]
    return "\n".join(lines) or None


def _missing(kueue: Kueue, namespace: str, local_queue: str) -> str:
    here = sorted(name for home, name in kueue.local_queues if home == namespace)
    if local_queue in here:
        owner = kueue.local_queues[namespace, local_queue].cluster_queue
        return f"LocalQueue {local_queue} points to ClusterQueue {owner}, which is not in the snapshot"
    if not here:
        return f"namespace {namespace} has no LocalQueue in the snapshot: create one, or remove queue from the step"
    return did_you_mean(local_queue, here) or f"namespace {namespace} has the queues {', '.join(here)}"


def _blocked(found: Assignment, queue: ClusterQueue, is_driver: bool) -> str | None:
    other = elsewhere(is_driver=is_driver)
    if found.blocked is Inadmissible.LOCAL_QUEUE_STOPPED or queue.is_stopped:
        return f"it is stopped (stopPolicy) and admits nothing until its owner resumes it; {other}"
    if found.blocked is Inadmissible.NAMESPACE:
        return (
            f"ClusterQueue {queue.name} is not for this namespace: label the namespace as its namespaceSelector asks, "
            f"or {other}"
        )
    return found.because


def _uncovered(found: Assignment, queue: ClusterQueue, kueue: Kueue, asked: Collection[str]) -> Iterator[str]:
    named = {each.resource for each in found.reasons if isinstance(each, Uncovered)}
    if not named:
        return
    covered: set[str] = set().union(*(group.covered for group in queue.groups))
    # What is excluded or transformed is not looked for under its own name.
    known = (*kueue.configuration.excluded, *kueue.configuration.transformations)
    missing = sorted(named | {name for name in asked if name not in covered and not name.startswith(known)})
    names, has = ", ".join(missing), ", ".join(sorted(covered)) or "nothing"
    yield f"ClusterQueue {queue.name} covers {has}; the step also asks for {names}"
    if any("/" in name for name in missing):
        yield f"ask for a GPU or slice that it covers, or have its owner add {names} to coveredResources"
    else:
        yield f"have its owner add {names} to coveredResources, or to excludeResourcePrefixes in Kueue's configuration"


def _mismatched(found: Assignment, queue: ClusterQueue, kueue: Kueue, is_driver: bool) -> Iterator[str]:
    way_out = DRIVER if is_driver else f"ask for less, or {ANOTHER}"
    most: dict[str, dict[str, str]] = {}
    taints: set[tuple[str, str]] = set()
    for each in found.reasons:
        if isinstance(each, AboveCapacity):
            most.setdefault(each.resource, {})[each.flavor] = each.capacity
        elif isinstance(each, UntoleratedTaint):
            taints.add((each.flavor, each.key))
    for resource, amounts in sorted(most.items()):
        largest = ", ".join(f"{amount} in flavor {flavor}" for flavor, amount in sorted(amounts.items()))
        yield f"{resource}: the queue can give at most {largest}; {way_out}"
    for flavor, taint in sorted(taints):
        yield f"flavor {flavor}: tolerate {taint} (gpu.tolerations of the site, or kubernetes.tolerations of the step)"
    if any(isinstance(each, AffinityMismatch) for each in found.reasons):
        flavors = [kueue.flavors[name] for name in dict.fromkeys(queue.flavors) if name in kueue.flavors]
        yield f"the queue's flavors are for {'; '.join(f'{each.name}: {_nodes(each.labels)}' for each in flavors)}"


def _topology(found: Assignment, queue: ClusterQueue, kueue: Kueue) -> Iterator[str]:
    """What a topology has against the pods: the queue knows none, or not this level, or its nodes are too few."""
    flavors = [kueue.flavors[name] for name in dict.fromkeys(queue.flavors) if name in kueue.flavors]
    aware = [each for each in flavors if each.topology is not None]
    if any(isinstance(each, TopologyMismatch) and not each.is_topology_aware for each in found.reasons) and not aware:
        yield f"no flavor of ClusterQueue {queue.name} has a Topology: take it out of topology.queues in the site, and"
        yield "the scheduler keeps the pods together, by affinity; or have a flavor with topologyName added"
    if any(isinstance(each, TopologyMismatch) and each.is_topology_aware for each in found.reasons):
        yield f"flavors with a Topology take only pods that ask for one: {', '.join(each.name for each in aware)}"
    if any(isinstance(each, TopologyLevelMissing) for each in found.reasons):
        levels = kueue.levels or {}
        named = "; ".join(f"{each.name}: {', '.join(levels.get(each.topology or '', ()))}" for each in aware)
        yield f"the levels of its flavors are {named}: correct topology in the site"
    if any(isinstance(each, NoPlace) for each in found.reasons):
        yield "ask for fewer pods, for a wider level (topology.same), or for less in each pod; or have nodes added"


def _nodes(labels: Mapping[str, str]) -> str:
    """The label that names the GPU, else all of them."""
    shown = {PRODUCT_KEY: labels[PRODUCT_KEY]} if PRODUCT_KEY in labels else labels
    return ", ".join(f"{key}={value}" for key, value in sorted(shown.items())) or "any node"
