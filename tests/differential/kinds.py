"""The kinds of questions: where a case comes from, who is asked, and how the answers are compared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import gpuflow
from tests.differential import (
    claims,
    device_pods,
    devices,
    gangs,
    nodes,
    objects,
    patches,
    pipelines,
    quantities,
    queues,
    sides,
    surroundings,
    topologies,
)
from tests.differential.draw import Draw
from tests.differential.oracle import Answer, Case


def _as_it_is(case: Case) -> Case:
    return case


NAMED = frozenset(
    {"apiVersion", "kind", "metadata", "name", "namespace", "spec", "containers", "image", "containerPort", "key"}
    | {
        "operator",
        "values",
        "effect",
        "topologyKey",
        "maxSkew",
        "whenUnsatisfiable",
        "type",
        "scopeName",
        "hard",
        "uid",
    }
    | {"creationTimestamp", "status", "conditions", "admission", "clusterQueue", "template", "podSets", "count"}
)
"""What every manifest has; a case without it asks something else."""


DEVICES = NAMED | {"claims", "others", "classes", "slices", "nodes", "family", "driver", "pool", "devices", "requests"}


TOPOLOGY = frozenset(
    {"cohorts", "topologies", "nodes", "pods", "admitted", "namespaces", "localQueues", "levels", "allocatable"}
)

GANG = frozenset({"jobSet", "replicatedJobs", "replicas", "parallelism", "completions", "completionMode", "suspend"})

PIPELINE = frozenset(
    {"pipeline", "parameters", "outputs", "step", "apiVersion", "kind", "name", "command", "type", "list"}
)


@dataclass(frozen=True)
class Kind:
    """One kind. `question` turns a case into what the oracle is asked; `keep` is never left out when shrinking."""

    name: str
    engine: str
    mode: str
    draw: Callable[[Draw], Case]
    ours: Callable[[Case], Answer]
    theirs: Callable[[Answer], Answer]
    question: Callable[[Case], Case] = _as_it_is
    keep: frozenset[str] = NAMED
    function: str | None = None
    """The function of `gpuflow` that answers."""

    @property
    def ours_is_there(self) -> bool:
        """Whether gpuflow has an answer to this kind yet."""
        return self.function is None or hasattr(gpuflow, self.function)

    @property
    def replayable(self) -> bool:
        """Whether an answer on file can be held against our side without asking the engine again."""
        return self.question is _as_it_is

    def cases(self, count: int, seed: int) -> Iterator[Case]:
        """So many cases; case number n is the same however many are drawn."""
        for number in range(count):
            yield self.draw(Draw(f"{self.name}/{seed}/{number}"))


KINDS = {
    kind.name: kind
    for kind in (
        Kind("quantity", "kubernetes", "quantity", quantities.case, sides.quantity_ours, sides.quantity_theirs),
        Kind(
            "admission",
            "kubernetes",
            "admission",
            surroundings.case,
            sides.admission_ours,
            sides.admission_theirs,
            function="admit",
        ),
        Kind(
            "objects",
            "kubernetes",
            "objects",
            objects.case,
            sides.objects_ours,
            sides.objects_theirs,
            keep=NAMED | {"object", "jobTemplate", "schedule"},
        ),
        Kind("merge", "kubernetes", "merge", patches.case, sides.merge_ours, sides.merge_theirs),
        Kind(
            "nodefit",
            "kubernetes",
            "nodefit",
            nodes.case,
            sides.nodefit_ours,
            sides.nodefit_theirs,
            function="fit_nodes",
        ),
        Kind(
            "claims",
            "kubernetes",
            "nodefit",
            claims.case,
            sides.nodefit_ours,
            sides.nodefit_theirs,
            keep=NAMED | {"storage", "persistentVolumeClaim", "claimName"},
            function="fit_nodes",
        ),
        Kind("dra", "kubernetes", "dra", devices.case, sides.devices_ours, sides.devices_theirs, keep=DEVICES),
        Kind(
            "dra-pod",
            "kubernetes",
            "dra-pod",
            device_pods.case,
            sides.device_pods_ours,
            sides.nodefit_theirs,
            keep=DEVICES,
        ),
        Kind("kueue", "kueue", "kueue", queues.case, sides.kueue_ours, sides.kueue_theirs, function="assign_flavors"),
        Kind(
            "gangs",
            "kueue",
            "kueue",
            gangs.case,
            sides.gangs_ours,
            sides.topology_theirs,
            keep=NAMED | TOPOLOGY | GANG,
            function="assign_flavors",
        ),
        Kind(
            "topology",
            "kueue",
            "kueue",
            topologies.case,
            sides.topology_ours,
            sides.topology_theirs,
            keep=NAMED | TOPOLOGY,
            function="assign_flavors",
        ),
        Kind(
            "argo",
            "argo",
            "substitution",
            pipelines.case,
            sides.substitution_ours,
            sides.substitution_theirs,
            sides.substitution_question,
            PIPELINE,
        ),
        Kind(
            "argo-lint",
            "argo",
            "lint",
            pipelines.case,
            sides.lint_ours,
            sides.lint_theirs,
            sides.lint_question,
            PIPELINE,
        ),
    )
}
ANSWERED = [name for name, kind in sorted(KINDS.items()) if kind.replayable and kind.ours_is_there]
"""The kinds whose answers on file our side is held against."""
