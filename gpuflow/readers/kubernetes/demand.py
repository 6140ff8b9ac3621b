"""How the pods of an object become a demand: gangs, pods on their own, and more of them that only the run decides."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuflow.core.errors import Where
from gpuflow.demands.model import ClaimDemand, Demand, Overlap, PodSet, PodsOfJob, StepDemand, UnseenPart
from gpuflow.formats.documents import Document, Library
from gpuflow.graph import Dag, Leaf, Loop, Tree, Unknown
from gpuflow.readers.interface import Options, PassiveObject
from gpuflow.readers.kubernetes.pods import INTEGRATIONS, Owner, Part

Pods = tuple[str, int, Mapping[str, Any]]
"""The name of a pod set, how many pods it has, and what each of them is."""


@dataclass(frozen=True)
class Object:
    """An object that is read, with all that reading it needs."""

    document: Document
    library: Library
    options: Options

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def root(self) -> Part:
        return Part(self.document, (), self.document.tree)

    @property
    def spec(self) -> Part:
        return self.root.need("spec")

    @property
    def owner(self) -> Owner:
        """What Kueue looks at when it queues the object."""
        return self.owner_by(self.root.at("metadata"))

    def owner_by(self, metadata: Part | None) -> Owner:
        """The same by other metadata: a CronJob's Jobs have their own."""
        labels = {} if metadata is None else metadata.labels()
        return Owner(labels, INTEGRATIONS.get((self.document.kind, self.document.group)))

    def passive(self, because: str) -> PassiveObject:
        return PassiveObject(self.document, because)

    def unseen_demand(self, because: str, where: Where, hint: str | None = None, only: str | None = None) -> Demand:
        """The demand where no file says which pods it has."""
        unseen = UnseenPart(self.name, because, where, hint=hint)
        return Demand(self.name, (), Dag({}), unseen=(unseen,), only_at_most=only)


@dataclass
class Run:
    """What an object runs: steps, each a node of one graph."""

    of_job: PodsOfJob | None = None
    """What is known of the pods of all steps, where they are those of a Job."""
    steps: list[StepDemand] = field(default_factory=list)
    nodes: dict[str, Tree] = field(default_factory=dict)

    def add_gang(self, name: str, pod_sets: Iterable[Pods], where: Where, *, copies: int = 1, tries: int = 1) -> None:
        """Pods that live together: one step with a set for each kind of them. Sets without pods are left out."""
        sets = tuple(PodSet(each, count, pod) for each, count, pod in pod_sets if count)
        if sets:
            step = StepDemand(name, sets, copies, where, tries=tries, is_sure=True, of_job=self.of_job)
            leaf = Leaf(name, {}, step.pods)
            self._add(step, leaf if copies == 1 else Loop(name, leaf, copies))

    def add_copies(
        self,
        name: str,
        pod: Mapping[str, Any],
        copies: int | Unknown,
        where: Where,
        *,
        parallel: int | None = None,
        pods: int = 1,
        tries: int = 1,
    ) -> None:
        """Copies that start and end independently; `parallel` of them at once, each with `pods` pods."""
        known = None if isinstance(copies, Unknown) else copies
        sets = (PodSet("main", pods, pod),)
        step = StepDemand(name, sets, known, where, tries=tries, is_sure=known is not None, of_job=self.of_job)
        leaf = Leaf(name, {}, pods)
        self._add(step, leaf if copies == 1 else Loop(name, leaf, copies, parallel))

    def _add(self, step: StepDemand, node: Tree) -> None:
        self.steps.append(step)
        self.nodes[step.name] = node

    def demand(
        self,
        thing: Object,
        edges: Mapping[str, Sequence[str]] | None = None,
        *,
        only_at_most: str | None = None,
        overlap: Overlap | None = None,
        claims: tuple[ClaimDemand, ...] = (),
    ) -> Demand | PassiveObject:
        """The demand of the object; an object without pods starts nothing."""
        if not self.steps:
            return thing.passive("it asks for no pods")
        graph = Dag(self.nodes, edges or {})
        steps = tuple(self.steps)
        return Demand(thing.name, steps, graph, only_at_most=only_at_most, overlap=overlap, claims=claims)


def suspended_reason(part: Part, queued: bool) -> str | None:
    """Why nothing may ever run: the object is suspended, and no queue would resume it."""
    if part.flag("suspend") and not queued:
        return f"{part.need('suspend').name} is true: nothing runs before somebody sets it to false"
    return None
