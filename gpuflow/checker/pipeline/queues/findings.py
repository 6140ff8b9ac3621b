"""Queues in the report: the lines of each ClusterQueue, and findings in Kueue's own words with a way out."""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.checker.contention.pending import named
from gpuflow.checker.hints.queues import queue_hint
from gpuflow.checker.hints.waiting import waiting
from gpuflow.checker.kueue.amounts import UNLIMITED
from gpuflow.checker.nodes.amounts import as_quantity
from gpuflow.checker.outcome import Outcome, foremost
from gpuflow.checker.pipeline.pod_groups import Kind
from gpuflow.checker.pipeline.queues.requests import Lane
from gpuflow.checker.pipeline.queues.verdicts import Standing, Standings
from gpuflow.checker.report import Scope, Verdict, worst
from gpuflow.checker.wording import asking, listed, where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding


def queueing(demand: Demand, standings: Standings) -> Outcome:
    """What the queues say to the pipeline."""
    findings: list[Finding] = []
    safe = {name: standings.safe_parallelism(name) for name in _contested(standings)}
    for each in standings.all:
        findings += _findings(demand, standings, each, safe)
    findings += _own_blockers(demand, standings)
    return Outcome(worst(each.verdict for each in standings.all), tuple(_lines(standings, safe)), tuple(findings))


def _contested(standings: Standings) -> list[str]:
    """The ClusterQueues in which some pods may have to wait for others of the pipeline."""
    names = (
        each.lane.cluster_queue.name
        for each in standings.all
        if each.lane.cluster_queue and each.settled and each.verdict == "may-queue"
    )
    return list(dict.fromkeys(names))


def _findings(demand: Demand, standings: Standings, each: Standing, safe: dict[str, int | None]) -> Iterator[Finding]:
    lane, found = each.lane, each.lane.found
    who, where = _who(lane.kind), where_of(demand, lane.kind.steps[0])
    if each.verdict == "never":
        yield _never(demand, standings, lane)
        return
    if each.unknown:
        yield Finding(
            "GF535",
            f"{who}: whether queue {lane.queue} admits it at once is unknown; not weighed: {'; '.join(each.unknown)}",
            where,
            "its quota could hold the step; read the verdict as one about the rest",
            severity="warning",
        )
        return
    hint = waiting(demand.engine, "queue")
    if each.ahead:
        ahead = f"{each.ahead.namespace}/{each.ahead.name}"
        yield Finding(
            "GF519",
            f"{who} {_do(lane.kind, 'wait')} in queue {lane.queue} behind workload {ahead}, which is not admitted and "
            "holds up a StrictFIFO queue",
            where,
            hint,
            severity="warning",
            kubernetes=each.ahead.assignment.message,
        )
    if found.verdict == "preempt":
        verb = "is" if lane.kind.is_one else "are"
        yield Finding(
            "GF518",
            f"{who} {verb} admitted in queue {lane.queue} after others are evicted: {', '.join(found.targets)}",
            where,
            hint,
            severity="warning",
            kubernetes=found.message,
        )
    elif each.settled is None:
        yield Finding(
            "GF517",
            f"{who} {_do(lane.kind, 'wait')} in queue {lane.queue} until others give quota back",
            where,
            hint,
            severity="warning",
            kubernetes=found.message,
        )
    elif each.settled.verdict != "always":
        yield _wait(demand, standings, each, hint, safe)


def _never(demand: Demand, standings: Standings, lane: Lane) -> Finding:
    who, where, found = _who(lane.kind), where_of(demand, lane.kind.steps[0]), lane.found
    if not lane.queue:
        return Finding(
            "GF507",
            f"{who} {_do(lane.kind, 'name')} no queue, and Kueue holds such pods back here for ever",
            where,
            "give it a queue: this Kueue manages pods without one too (manageJobsWithoutQueueName)",
        )
    because = found.because if found.because != found.message else None
    hint = queue_hint(found, standings.kueue, standings.setup.namespace, lane.queue, lane.amounts or ())
    if hint is None:
        hint = f"on an empty cluster: {because}" if because else "ask for less, or ask the owner of the queue"
    text = f"{who} {_do(lane.kind, 'wait')} in queue {lane.queue} for ever"
    return Finding("GF507", text, where, hint, kubernetes=found.message)


def _wait(demand: Demand, standings: Standings, each: Standing, hint: str, safe: dict[str, int | None]) -> Finding:
    """The pipeline's own pods are in each other's way."""
    lane, settled = each.lane, each.settled
    assert settled is not None and lane.cluster_queue is not None
    who, where, queue = _who(lane.kind), where_of(demand, lane.kind.steps[0]), lane.cluster_queue.name
    if settled.verdict == "unknown":
        return Finding(
            "GF514",
            f"whether queue {lane.queue} always has quota for {who} is unknown: {settled.because}",
            where,
            "give the fan-out a parallel cap, so that its demand is bounded",
            severity="warning",
        )
    if settled.rivals:
        return Finding(
            "GF524",
            f"{who} may wait in queue {lane.queue}: {named(settled.rivals, 'workload')} for the same quota and may be "
            "admitted first",
            where,
            hint,
            severity="warning",
        )
    resource = foremost(settled.resources) or ""
    flavors = next((group.flavors for group in lane.groups if resource in group.asked), ())
    peak, _, witness = standings.gather(lane, flavors).worst(resource, standings.crowd)
    left = sum(standings.left(lane, flavor, resource) for flavor in flavors)
    asked = "?" if peak is None else as_quantity(resource, peak * standings.runs)
    together = asking(witness or lane.kind.steps[:1], lane.kind.steps)
    if safe.get(queue) is not None:
        hint += f"\nwith parallel: {safe[queue]} this queue always admits at once"
    if len(flavors) > 1:
        hint += f"\nthe quota lies in {len(flavors)} flavors ({', '.join(flavors)}), and a pod takes all of it from one"
    return Finding(
        "GF517",
        f"{who} may wait in queue {lane.queue}: {together} for up to {asked} {resource}, ClusterQueue {queue} has "
        f"{as_quantity(resource, left)} left",
        where,
        hint,
        severity="warning",
    )


def _own_blockers(demand: Demand, standings: Standings) -> Iterator[Finding]:
    """Steps that never get through and stand at the head of a StrictFIFO queue, in the way of everybody behind."""
    for each in standings.all:
        queue = each.lane.cluster_queue
        if each.lane.found.verdict != "never" or queue is None or not queue.is_strict:
            continue
        behind = [
            step
            for other in standings.all
            if other is not each and other.lane.cluster_queue is queue and other.verdict != "never"
            for step in other.lane.kind.steps
        ]
        others = f"{listed(behind)} and everybody else" if behind else "everybody"
        yield Finding(
            "GF519",
            f"{_who(each.lane.kind)} can never be admitted, and ClusterQueue {queue.name} is StrictFIFO: at its head "
            f"it holds up {others} behind it",
            where_of(demand, each.lane.kind.steps[0]),
            "correct the step before anything is submitted: one such workload stops the queue for all its users",
        )


def _lines(standings: Standings, safe: dict[str, int | None]) -> Iterator[Scope]:
    """One line for each resource that steps ask of some flavors of a ClusterQueue."""
    keys: dict[tuple[str, tuple[str, ...], str], list[Standing]] = {}
    for each in standings.all:
        for group in each.lane.groups:
            for resource in group.asked:
                if each.lane.cluster_queue is not None and group.flavors:
                    keys.setdefault((each.lane.cluster_queue.name, group.flavors, resource), []).append(each)
    for (queue, flavors, resource), members in sorted(keys.items(), key=lambda item: item[0]):
        lane = members[0].lane
        left = [standings.left(lane, flavor, resource) for flavor in flavors]
        used = sum(standings.used(lane, flavor, resource) for flavor in flavors)
        if UNLIMITED in left:
            continue
        verdict = worst(_verdict(each, resource) for each in members)
        # What steps in other queues of the cohort ask for is of interest where it can be in the way.
        company = standings.own(lane, flavors) if verdict == "always" else standings.gather(lane, flavors)
        peak, _, witness = company.worst(resource, standings.crowd)
        assert lane.cluster_queue is not None
        all_flavors = len(set(lane.cluster_queue.flavors)) == len(flavors)
        yield Scope(
            "ClusterQueue",
            queue,
            resource if all_flavors else f"{'+'.join(flavors)}/{resource}",
            verdict,
            as_quantity(resource, used),
            as_quantity(resource, used + sum(left)),
            None if peak is None else as_quantity(resource, peak * standings.runs),
            witness,
            safe.get(queue) if verdict == "may-queue" else None,
        )


def _verdict(standing: Standing, resource: str) -> Verdict:
    """The verdict of one line."""
    found = standing.lane.found
    if standing.verdict == "never":
        return "never" if f" {resource} " in (found.because or found.message) else "always"
    if standing.unknown or standing.ahead:
        return standing.verdict
    if standing.settled is None:
        return "may-queue" if f" {resource} " in found.message else "always"
    resources = standing.settled.resources
    return standing.verdict if not resources or resource in resources else "always"


def _do(kind: Kind, verb: str) -> str:
    return f"{verb}s" if kind.is_one else verb


def _who(kind: Kind) -> str:
    return "the engine's driver pod" if kind.is_driver else listed(kind.steps)
