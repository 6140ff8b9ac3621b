"""Several demands as one: pipelines that run side by side in one namespace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gpuflow.catalog import Offer
from gpuflow.core.errors import Finding, Where
from gpuflow.demands.model import (
    ClaimDemand,
    Demand,
    DeviceRequest,
    DriverPods,
    LaterAttempts,
    Pod,
    Source,
    StepDemand,
)
from gpuflow.demands.stored import StoredObject
from gpuflow.engines import NO_ENGINE
from gpuflow.graph import Dag, Loop, Tree, rename
from gpuflow.quantity import Quantity
from gpuflow.spec.rules.remarks import SILENCED_CODE, without_codes


def combine_demands(pipelines: Sequence[tuple[Demand, int, str]]) -> Demand:
    """The demand of these pipelines at the same time, each with so many runs, under these names.

    A step is called by its pipeline and its name. What only one run decides for itself, such as its deadline, is left
    to the demand of that pipeline alone.
    """
    parts = [_Part(name, demand, runs) for demand, runs, name in pipelines]
    demands = [part.demand for part in parts]
    drivers = [part for part in parts if part.demand.driver is not None]
    engines = {demand.engine for demand in demands} - {NO_ENGINE}
    kept = {demand.keeps_pods for demand in demands}
    documents = _Documents({part.name: part.demand.source for part in parts})
    return Demand(
        " + ".join(part.name for part in parts),
        tuple(step for part in parts for step in part.steps()),
        Dag({part.name: part.graph() for part in parts}),
        engine=engines.pop() if len(engines) == 1 else NO_ENGINE,
        claims=tuple(claim for part in parts for claim in part.claims()),
        stored=tuple(stored for part in parts for stored in part.stored_objects()),
        driver=drivers[0].demand.driver if drivers else None,
        driver_pods=sum((part.drivers() for part in drivers), DriverPods()) if drivers else None,
        keeps_pods=kept.pop() if len(kept) == 1 else "unknown",
        pods_collected=any(demand.pods_collected for demand in demands),
        run_count=sum(part.runs for part in parts),
        runs_on=_runs_on(parts),
        conditional={part.full_name(name): each for part in parts for name, each in part.demand.conditional.items()},
        later=tuple(later for part in parts for later in part.later()),
        refusals=tuple(finding for demand in demands for finding in demand.refusals),
        queue_refusals=tuple(each for demand in demands for each in demand.queue_refusals),
        engine_settings={key: path for demand in demands for key, path in demand.engine_settings.items()},
        places=_Places({part.name: part.demand for part in parts}),
        by_itself=all(demand.by_itself for demand in demands),
        unseen=tuple(replace(each, step=part.full_name(each.step)) for part in parts for each in part.demand.unseen),
        waits=tuple(finding for demand in demands for finding in demand.waits),
        unsettled=tuple(finding for demand in demands for finding in demand.unsettled),
        beside=tuple(tuple(map(part.full_name, each)) for part in parts for each in part.demand.beside),
        only_at_most=next((part.demand.only_at_most for part in parts if part.demand.only_at_most), None),
        source=documents,
        pipeline=documents,
    )


def names_of(demands: Sequence[Demand]) -> list[str]:
    """The names of the pipelines; those that two of them have get their namespace, or a number."""
    full = [demand.name if demand.namespace is None else f"{demand.namespace}/{demand.name}" for demand in demands]
    short = Counter(demand.name for demand in demands)
    if len(set(full)) == len(full):
        return [demand.name if short[demand.name] == 1 else name for demand, name in zip(demands, full, strict=True)]
    seen: Counter[str] = Counter()
    found = []
    for demand in demands:
        seen[demand.name] += 1
        found.append(demand.name if short[demand.name] == 1 else f"{demand.name}-{seen[demand.name]}")
    return found


def _runs_on(parts: Sequence[_Part]) -> dict[str, int]:
    """How many runs each engine has."""
    found: Counter[str] = Counter()
    for part in parts:
        found[part.demand.engine] += 0 if part.demand.by_itself else part.runs
    return dict(found)


@dataclass(frozen=True)
class _Part:
    """One of the pipelines, with so many runs."""

    name: str
    demand: Demand
    runs: int

    def full_name(self, step: str) -> str:
        return f"{self.name}.{step}"

    def steps(self) -> Iterator[StepDemand]:
        for step in self.demand.steps:
            copies = None if step.copies is None else step.copies * self.runs
            # Of several runs each may end, and be deleted, before another goes on: nothing is sure to be there at once.
            namespace = step.namespace or self.demand.namespace
            yield replace(step, name=self.full_name(step.name), copies=copies, is_sure=False, namespace=namespace)

    def drivers(self) -> DriverPods:
        return replace((self.demand.driver_pods or DriverPods(None)).times(self.runs), at_least=0)

    def graph(self) -> Tree:
        inner = rename(self.demand.graph, self.full_name)
        return inner if self.runs == 1 else Loop(self.name, inner, self.runs)

    def claims(self) -> Iterator[ClaimDemand]:
        for run in range(self.runs):
            for claim in self.demand.claims:
                number = f"-{run + 1}" if self.runs > 1 else ""
                namespace = claim.namespace or self.demand.namespace
                yield replace(claim, name=f"{self.full_name(claim.name)}{number}", namespace=namespace)

    def stored_objects(self) -> Iterator[StoredObject]:
        """Of each run. Others may be gone when it starts, so that only what serves all runs is there for sure."""
        for each in self.demand.stored:
            times = self.runs if each.per_run else 1
            most = None if each.at_most is None else each.at_most * times
            least = 0 if each.per_run else each.at_least
            why = each.because or "runs side by side may end one after the other"
            namespace = each.namespace or self.demand.namespace
            yield replace(each, at_least=least, at_most=most, because=why, namespace=namespace)

    def later(self) -> Iterator[LaterAttempts]:
        for each in self.demand.later:
            yield LaterAttempts(each.when, {self.full_name(name): sets for name, sets in each.pod_sets.items()})


@dataclass(frozen=True)
class _Places:
    """Where the steps of several pipelines are written."""

    demands: Mapping[str, Demand]

    def __call__(self, step: str) -> Where:
        pipeline, name = _split_name(step, self.demands)
        return self.demands[pipeline].where(name)


@dataclass(frozen=True)
class _Documents:
    """The documents behind several demands. What is certain of each without the others is not said again."""

    sources: Mapping[str, Source | None]

    def warnings(self) -> Iterator[Finding]:
        return iter(())

    def strict_findings(self, definitions: Iterable[Mapping[str, object]]) -> tuple[Finding, ...]:
        """None: each file is judged alone."""
        return ()

    def devices(self, step: str) -> DeviceRequest | None:
        return None  # which GPU a step fits is said where its pipeline is checked alone

    def unsilenced_findings(self, findings: Iterable[Finding]) -> list[Finding]:
        """One file does not silence what concerns the others; what every file silences is counted."""
        everything = list(findings)
        quiet = [code for code in {SILENCED_CODE, *(each.code for each in everything)} if self._all_silence(code)]
        return without_codes(quiet, everything, Where(" + ".join(self.sources)))

    def _all_silence(self, code: str) -> bool:
        note = Finding(code, "", severity="note")
        return all(each is not None and note not in each.unsilenced_findings([note]) for each in self.sources.values())

    def offers(self, labels: Mapping[str, str], allocatable: Mapping[str, int]) -> Iterator[Offer]:
        return iter(())

    def pod_with(self, step: str, offer: Offer | None, count: int) -> Pod | None:
        return None

    def with_cap(self, demand: Demand, parallel: int) -> Demand | None:
        return None  # each has its own

    def with_memory_max(self, demand: Demand, steps: Collection[str], most: Quantity) -> Demand | None:
        return None


def _split_name(step: str, names: Collection[str]) -> tuple[str, str]:
    """Pipeline and step; names of objects that are not ours may hold dots."""
    pipeline = max((name for name in names if step.startswith(f"{name}.")), key=len)
    return pipeline, step[len(pipeline) + 1 :]
