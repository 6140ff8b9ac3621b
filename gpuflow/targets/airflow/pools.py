"""How many slots a pool of GPUs gets: what the namespace may use at most, and from where each number comes.

Three things bound what a namespace can run at once: its ResourceQuotas, the nominal quota of the Kueue queues that the
steps go to, and what the nodes have. The smallest that is known decides. Where none is, the pool holds what the
largest pipeline asks for at its worst moment, so that `parallel` is kept and Airflow holds nothing back by accident.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuflow.checker.kueue.workloads import read_cluster_queue, read_local_queue
from gpuflow.cluster import Cluster, Manifest
from gpuflow.core.errors import Finding
from gpuflow.demands.gang_scheduling import as_mapping
from gpuflow.demands.of_pipeline import demand_of
from gpuflow.demands.peaks import Bound
from gpuflow.pod.placement import devices_of_step
from gpuflow.quantity import Quantity
from gpuflow.site import Site
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.references import every_step
from gpuflow.spec.step import Step
from gpuflow.targets.airflow.operators import pool_name

DEFAULT_QUEUE = "default"
"""The LocalQueue of pods that name none, where the namespace has one of this name."""


@dataclass(frozen=True, slots=True)
class Limit:
    """An amount that a namespace cannot pass, and where it stands. Without an amount: why it is not known."""

    amount: int | None
    source: str


@dataclass(frozen=True, slots=True)
class Size:
    """The slots of one pool, and the reason for the number."""

    slots: int
    reason: str


@dataclass(frozen=True, slots=True)
class ResourceUsers:
    """The steps of some pipelines that take a resource."""

    resource: str
    steps: tuple[tuple[Pipeline, str, Step, int], ...]
    """Pipeline, name, step, and how many it takes."""

    @property
    def largest(self) -> int:
        return max(count for *_, count in self.steps)

    def queues(self, site: Site) -> set[str | None]:
        """The LocalQueues their pods name."""
        return {step.queue or site.queue for _, _, step, _ in self.steps}


def pools(
    pipelines: Iterable[Pipeline],
    site: Site,
    available: Mapping[str, int] | None = None,
    cluster: Cluster | None = None,
    namespace: str = "default",
) -> tuple[dict[str, dict[str, Any]], list[Finding]]:
    """The pools these pipelines need, in the shape of `airflow pools import`, and what there is to say about them.

    `available` says how many of each resource the namespace may use. For another resource the cluster does, and
    without one the pipelines themselves: as many as the largest takes at its worst moment.
    """
    found: dict[str, dict[str, Any]] = {}
    findings: list[Finding] = []
    for asked in resource_users(pipelines, site):
        chosen, notes = size(asked, site, available or {}, cluster, namespace)
        found[pool_name(asked.resource)] = {
            "slots": chosen.slots,
            "description": f"{asked.resource} on site {site.name}, counted by gpuflow: {chosen.reason}",
            "include_deferred": True,
        }
        findings += notes
    return found, findings


def resource_users(pipelines: Iterable[Pipeline], site: Site) -> list[ResourceUsers]:
    """The users of each resource."""
    found: dict[str, list[tuple[Pipeline, str, Step, int]]] = {}
    for pipeline in pipelines:
        for name, step in every_step(pipeline):
            for resource, count in devices_of_step(step, site).items():
                found.setdefault(resource, []).append((pipeline, name, step, count))
    return [ResourceUsers(resource, tuple(steps)) for resource, steps in sorted(found.items())]


def size(
    asked: ResourceUsers, site: Site, available: Mapping[str, int], cluster: Cluster | None, namespace: str
) -> tuple[Size, list[Finding]]:
    """The slots for one resource, and what there is to say about them."""
    if asked.resource in available:
        given = Size(available[asked.resource], "as --available says")
        return given, list(_too_small(asked, given))
    peaks = _peaks(asked, site)
    if cluster is None:
        found, notes = _need(asked, peaks, "no cluster asked")
    else:
        found, notes = _from_cluster(asked, site, cluster, namespace, peaks)
    return found, [*notes, *_too_small(asked, found), *_small_pool_notes(asked, found, peaks)]


def _from_cluster(
    asked: ResourceUsers, site: Site, cluster: Cluster, namespace: str, peaks: Sequence[tuple[Pipeline, Bound]]
) -> tuple[Size, list[Finding]]:
    limits = list(_limits(asked, site, cluster, namespace))
    known = [(limit.amount, limit.source) for limit in limits if limit.amount is not None]
    notes = [
        Finding("GF367", f"{asked.resource}: {limit.source}", severity="note", hint="gpuflow snapshot reads all of it")
        for limit in limits
        if limit.amount is None
    ]
    if not known:
        found, more = _need(asked, peaks, "the cluster shows no number")
        return found, [*notes, *more]
    known.sort(key=lambda each: each[0])
    amount, source = known[0]
    others = "; ".join(f"{other}: {count}" for count, other in known[1:])
    return Size(amount, f"{source} ({others})" if others else source), notes


def _need(asked: ResourceUsers, peaks: Sequence[tuple[Pipeline, Bound]], why: str) -> tuple[Size, list[Finding]]:
    """What the largest pipeline takes at its worst moment; at least the largest step. `why`: nothing else says it."""
    slots, reason = asked.largest, "the largest step"
    notes: list[Finding] = []
    for pipeline, peak in peaks:
        if peak.value is None:
            text = f'{asked.resource}: how much "{pipeline.name}" takes at once is not known: {peak.because}'
            hint = "set parallel on the fan-out, or say the number with --available or --cluster"
            notes.append(Finding("GF367", text, pipeline.where(), hint, "note"))
        elif (value := _integer(peak.value)) > slots or (value == slots and reason == "the largest step"):
            slots, reason = value, f"the worst moment of {pipeline.name}"
    return Size(slots, f"{reason}, {why}"), notes


def _peaks(asked: ResourceUsers, site: Site) -> list[tuple[Pipeline, Bound]]:
    pipelines = {id(pipeline): pipeline for pipeline, *_ in asked.steps}
    key = f"requests.{asked.resource}"
    found = ((pipeline, demand_of(pipeline, site, "airflow").peak.get(key)) for pipeline in pipelines.values())
    return [(pipeline, peak) for pipeline, peak in found if peak is not None]


def _too_small(asked: ResourceUsers, found: Size) -> Iterator[Finding]:
    """A task that takes more slots than its pool has never starts, and Airflow does not say why."""
    for pipeline, name, _, count in asked.steps:
        if count > found.slots:
            text = f'step "{name}" takes {count} slots, and the pool has {found.slots} ({found.reason})'
            hint = "Airflow never starts it: ask for less, or have the limit raised"
            yield Finding("GF368", text, pipeline.where_step(name.split(".")[0]), hint, "warning")


def _small_pool_notes(asked: ResourceUsers, found: Size, peaks: Sequence[tuple[Pipeline, Bound]]) -> Iterator[Finding]:
    """A pool below the worst moment of one run makes steps wait that `parallel` would let run."""
    for pipeline, peak in peaks:
        if peak.value is not None and _integer(peak.value) > found.slots >= asked.largest:
            text = (
                f'"{pipeline.name}" takes {peak.value} of {asked.resource} at its worst moment '
                f"({', '.join(peak.witness)}), and the pool has {found.slots} ({found.reason}): the rest waits"
            )
            hint = "that many can run there; a lower parallel says the same in the pipeline"
            yield Finding("GF369", text, pipeline.where(), hint, "note")


def _limits(asked: ResourceUsers, site: Site, cluster: Cluster, namespace: str) -> Iterator[Limit]:
    yield from _quotas(asked.resource, cluster, namespace)
    yield from _queues(asked, site, cluster, namespace)
    yield _nodes(asked.resource, cluster)


def _quotas(resource: str, cluster: Cluster, namespace: str) -> Iterator[Limit]:
    if not cluster.knows("ResourceQuota"):
        yield Limit(None, f"the quotas of namespace {namespace} are not shown")
        return
    for item in cluster.of("ResourceQuota", namespace):
        spec = as_mapping(item.body.get("spec"))
        hard = {**as_mapping(spec.get("hard")), **as_mapping(as_mapping(item.body.get("status")).get("hard"))}
        asked = hard.get(f"requests.{resource}")
        if asked is None:
            continue
        if spec.get("scopes") or spec.get("scopeSelector"):
            yield Limit(None, f"quota {item.name} counts only some pods (scopes), so it does not bound the pool")
            continue
        yield _amount(asked, f"quota {item.name} of namespace {namespace}")


def _queues(asked: ResourceUsers, site: Site, cluster: Cluster, namespace: str) -> Iterator[Limit]:
    """The nominal quota of the ClusterQueues behind the steps' queues; a bound only where every step has one."""
    names = asked.queues(site)
    local = {item.name: item for item in cluster.of("LocalQueue", namespace)}
    if None in names:
        if DEFAULT_QUEUE not in local:
            if names != {None}:
                yield Limit(None, "Kueue's quota bounds only some of the steps: others name no queue")
            return
        names = (names - {None}) | {DEFAULT_QUEUE}
    owners: set[str] = set()
    for name in sorted(each for each in names if each is not None):
        if name not in local:
            yield Limit(None, f"LocalQueue {name} of namespace {namespace} is not shown")
            return
        try:
            owners.add(read_local_queue(local[name].body).cluster_queue)
        except ValueError as trouble:
            yield Limit(None, f"LocalQueue {name} cannot be read: {trouble}")
            return
    yield _nominal(asked.resource, sorted(owners), cluster)


def _nominal(resource: str, owners: Sequence[str], cluster: Cluster) -> Limit:
    total, borrow = 0, False
    queues = {item.name: item for item in cluster.of("ClusterQueue")}
    for name in owners:
        if name not in queues:
            return Limit(None, f"ClusterQueue {name} is not shown")
        try:
            queue = read_cluster_queue(queues[name].body)
        except ValueError as trouble:
            return Limit(None, f"ClusterQueue {name} cannot be read: {trouble}")
        if queue.group_of(resource) is None:
            return Limit(None, f"ClusterQueue {name} does not cover it")
        quotas = [quota for (_, covered), quota in queue.quotas.items() if covered == resource]
        total += sum(quota.nominal for quota in quotas)
        borrow |= bool(queue.cohort) and any(quota.borrowing != 0 for quota in quotas)
    word = f"Kueue's nominal quota of {', '.join(owners)}"
    return Limit(total, f"{word} (more only while others lend it)" if borrow else word)


def _nodes(resource: str, cluster: Cluster) -> Limit:
    if not cluster.knows("Node"):
        return Limit(None, "the nodes are not shown")
    nodes = cluster.of("Node")
    open_ = [item for item in nodes if not as_mapping(item.body.get("spec")).get("unschedulable")]
    having = [(item, amount) for item in open_ if (amount := _allocatable(item, resource)) is not None]
    broken = next((str(amount) for _, amount in having if isinstance(amount, str)), None)
    if broken is not None:
        return Limit(None, broken)
    total = sum(_integer(amount) for _, amount in having if isinstance(amount, Quantity))
    closed = len(nodes) - len(open_)
    left_out = f", {closed} closed left out" if closed else ""
    return Limit(total, f"what {len(having)} node{'' if len(having) == 1 else 's'} can give{left_out}")


def _allocatable(item: Manifest, resource: str) -> Quantity | str | None:
    value = as_mapping(as_mapping(item.body.get("status")).get("allocatable")).get(resource)
    if value is None:
        return None
    try:
        return Quantity(str(value))
    except ValueError as trouble:
        return f"node {item.name}: {trouble}"


def _amount(value: Any, source: str) -> Limit:
    try:
        return Limit(_integer(Quantity(str(value))), source)
    except ValueError as trouble:
        return Limit(None, f"{source}: {trouble}")


def _integer(quantity: Quantity) -> int:
    return int(quantity.value)
