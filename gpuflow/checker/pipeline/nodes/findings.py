"""Nodes in the report: the lines of each pool of nodes, and findings in the scheduler's own words with a way out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpuflow.checker.contention.competitors import Company, Gathering
from gpuflow.checker.contention.pending import named
from gpuflow.checker.hints.other_gpus import OtherGpus
from gpuflow.checker.hints.waiting import waiting
from gpuflow.checker.nodes.amounts import as_quantity
from gpuflow.checker.nodes.capacity import fragmentation, read_stock, way_out
from gpuflow.checker.nodes.fit import fit
from gpuflow.checker.nodes.stock import Stock
from gpuflow.checker.nodes.subjects import GROUP_MAX
from gpuflow.checker.outcome import Outcome, foremost
from gpuflow.checker.pipeline.nodes.verdicts import PODS, Seat, Seating, Sitting
from gpuflow.checker.pipeline.pod_groups import Kind
from gpuflow.checker.pipeline.queues.requests import Route
from gpuflow.checker.report import Scope, Verdict, worst
from gpuflow.checker.wording import asking, listed, where_of
from gpuflow.cluster import Cluster
from gpuflow.demands import Demand
from gpuflow.errors import Finding, GpuflowError

GANGS: Final = "gangs"
NO_ROOM: Final = "has no room now"


class NodePool(NamedTuple):
    """Nodes that are for the same kinds of pods."""

    name: str
    hosts: tuple[int, ...]
    members: list[Sitting]
    safe: int | None
    """The largest cap with which all of them always find room."""


def read_nodes(cluster: Cluster) -> Stock | None:
    """The nodes of a snapshot with what is bound to them; `None` when it has none."""
    nodes = cluster.of("Node")
    if not nodes:
        return None
    if "stock" in cluster.memory:
        known: Stock = cluster.memory["stock"]
        return known
    try:
        stock = cluster.memory["stock"] = read_stock(
            [node.body for node in nodes], [pod.body for pod in cluster.of("Pod")], cluster.bodies("Namespace")
        )
        return stock
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), nodes[0].where, "fix the manifest")) from None


def housing(
    demand: Demand, seating: Seating, kinds: Iterable[tuple[Kind, tuple[Route, ...]]], makers: Sequence[str] = ()
) -> Outcome:
    """What the nodes say to the pipeline. Where `makers` may start other nodes, *never* becomes *unknown*."""
    others = OtherGpus(demand, seating.stock)
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    for kind, routes in kinds:
        own = [each for each in seating.sittings if each.seat.kind is kind]
        if not routes:
            continue  # its queue never lets it go
        fit_for = [each for each in own if each.verdict != "never"]
        if not fit_for:
            homeless = _homeless(demand, seating.stock, kind, own, others)
            verdicts.append("unknown" if makers else "never")
            findings.append(_maybe(homeless, makers) if makers else homeless)
            continue
        verdicts += [each.verdict for each in fit_for]
        lost = [route for route in routes if not any(each.seat.route is route for each in fit_for)]
        if lost:
            verdicts.append("may-queue")
            findings.append(_lost(demand, kind, lost))
    pools = _pools(seating)
    findings += [finding for pool in pools for finding in _waits(demand, seating, pool)]
    findings += _unweighed(demand, seating)
    findings += _gangs(demand, seating)
    scopes = tuple(scope for pool in pools for scope in _lines(seating, pool))
    if makers:
        scopes = tuple(replace(each, verdict="unknown") if each.verdict == "never" else each for each in scopes)
    return Outcome(worst(verdicts), scopes, tuple(findings))


def _homeless(demand: Demand, stock: Stock, kind: Kind, own: list[Sitting], others: OtherGpus) -> Finding:
    verb = "fits" if kind.is_one else "fit"
    message, where = f"{_who(kind)} {verb} on no node", where_of(demand, kind.steps[0])
    if not own:
        return Finding(
            "GF506",
            f"{message}: the flavors of its queue ask for labels that contradict each other",
            where,
            "ask the owner of the queue",
        )
    pod = own[0].seat.pod
    short = [
        f"{name}: asked {offer.asked}, the largest eligible node has {offer.largest}"
        for name, offer in way_out(stock, pod).shortfalls.items()
    ]
    hint = ", ".join(short) or "no node has the labels and taints the step asks for"
    if kind.pods > 1 and not short and stock.pool(pod).ever:
        hint = f"all {kind.pods} pods of the gang together are more than the nodes hold"
    if own[0].seat.route.flavors:
        hint += f"\nwith the labels of flavor {', '.join(own[0].seat.route.flavors)} on it"
    hint = "\n".join(filter(None, (hint, None if kind.is_driver else others.hint(kind.steps[0]))))
    return Finding("GF506", message, where, hint, kubernetes=fit(pod, stock.fleet).message)


def _maybe(homeless: Finding, makers: Sequence[str]) -> Finding:
    """The same finding where nodes that are not in the snapshot may be started for the step."""
    note = f"{', '.join(makers[:3])} may start other nodes; describe them with {GROUP_MAX} on a Node manifest"
    hint = f"{homeless.hint}\n{note}" if homeless.hint else note
    return replace(homeless, message=f"{homeless.message} of the snapshot", hint=hint, severity="warning")


def _lost(demand: Demand, kind: Kind, lost: list[Route]) -> Finding:
    names = ", ".join(dict.fromkeys(name for route in lost for name in route.flavors))
    return Finding(
        "GF516",
        f"{_who(kind)} may get quota of flavor {names}, and no node can hold it there",
        where_of(demand, kind.steps[0]),
        "keep it off that flavor with a node selector, or have nodes with the flavor's labels added",
        severity="warning",
    )


def _pools(seating: Seating) -> list[NodePool]:
    """The sittings by the nodes that are for them, under names that tell the pools apart."""
    pools: dict[frozenset[int], list[Sitting]] = {}
    for each in seating.sittings:
        pools.setdefault(seating.hosts(each.seat.pool), []).append(each)
    found: dict[str, NodePool] = {}
    for hosts, members in pools.items():
        name = _name(members[0].seat)
        if name in found:
            name = f"{name} for {members[0].seat.kind.steps[0]}"
        blocked = [each for each in members if each.verdict == "may-queue"]
        found[name] = NodePool(
            name, tuple(sorted(hosts)), members, seating.safe_parallelism(blocked) if blocked else None
        )
    return list(found.values())


def _name(seat: Seat) -> str:
    """A short name for the nodes of a pool: the flavor, what their label must say, or whom they are for."""
    if seat.route.flavors:
        return "/".join(seat.route.flavors)
    placement = seat.pod.placement
    values = list(placement.selector.values())
    for term in placement.terms or ():
        values += [each.values[0] for each in term.expressions if each.operator == "In" and len(each.values) >= 1]
    return values[0] if values else f"for {seat.kind.steps[0]}"


def _lines(seating: Seating, pool: NodePool) -> Iterator[Scope]:
    """One line for each device that the pool's pods ask for, and for cpu or memory where they decide."""
    members, stock = pool.members, seating.stock
    asked = dict.fromkeys(resource for each in members for resource in each.seat.pod.requests)
    devices = [resource for resource in asked if "/" in resource]
    for resource in sorted(asked, key=lambda each: ("/" not in each, each)):
        verdict = worst(_verdict(seating, each, resource) for each in members)
        if resource not in devices and devices and verdict == "always":
            continue
        hard = sum(stock.fleet.hosts[index].node.allocatable.get(resource, 0) for index in pool.hosts)
        used = hard - sum(stock.free[index].free.get(resource, 0) for index in pool.hosts)
        peak, witness = seating.peak(members[0].seat, resource)
        yield Scope(
            "Nodes",
            pool.name,
            resource,
            verdict,
            as_quantity(resource, used),
            as_quantity(resource, hard),
            None if peak is None else as_quantity(resource, peak),
            witness,
            pool.safe if verdict == "may-queue" else None,
        )


def _verdict(seating: Seating, sitting: Sitting, resource: str) -> Verdict:
    """The verdict of one line, where this kind of pod asks for the resource."""
    if resource not in sitting.seat.pod.requests or sitting.verdict == "always":
        return "always"
    if sitting.verdict == "never":
        shortfalls = way_out(seating.stock, sitting.seat.pod).shortfalls
        return "never" if not shortfalls or resource in shortfalls else "always"
    if sitting.settled is None:
        return sitting.verdict
    return sitting.verdict if resource in (sitting.settled.resources or seating.short(sitting.seat)) else "always"


def _waits(demand: Demand, seating: Seating, pool: NodePool) -> Iterator[Finding]:
    """Why pods of a pool are not always placed at once; what is the same for several is said once."""
    waits: dict[tuple[str, str, str, str | None], list[Kind]] = {}
    for sitting in pool.members:
        kind = sitting.seat.kind
        if sitting.verdict == "may-queue":
            waits.setdefault(_wait(demand, seating, pool, sitting), []).append(kind)
        elif sitting.verdict == "unknown" and sitting.settled:
            yield Finding(
                "GF514",
                f"whether nodes always have room for {_who(kind)} is unknown: {sitting.settled.because}",
                where_of(demand, kind.steps[0]),
                "give the fan-out a parallel cap, so that its demand is bounded",
                severity="warning",
            )
    for (code, text, hint, words), kinds in waits.items():
        if len(kinds) > 1 or not kinds[0].is_one:
            text = text.replace(NO_ROOM, "have no room now", 1)
        yield Finding(
            code,
            f"{_who(*kinds)} {text}",
            where_of(demand, kinds[0].steps[0]),
            hint,
            severity="warning",
            kubernetes=words,
        )


def _wait(demand: Demand, seating: Seating, pool: NodePool, sitting: Sitting) -> tuple[str, str, str, str | None]:
    """Code, what is to be said of it, the way out and the scheduler's words."""
    seat, settled = sitting.seat, sitting.settled
    hints = [waiting(demand.engine, "nodes")]
    if pool.safe is not None:
        hints.append(f"with parallel: {pool.safe} these nodes always have room")
    nodes = f"{len(pool.hosts)} node{'' if len(pool.hosts) == 1 else 's'} ({pool.name})"
    resource, words = foremost(settled.resources if settled else ()), None
    if settled and settled.rivals:
        text = f"may find no room on {nodes}: {named(settled.rivals, 'pod')} for a node too and may be first"
        return "GF524", text, "\n".join(hints), None
    if settled and settled.avoided:
        which = "one of them" if settled.avoided == 1 else f"{settled.avoided} of them"
        text = f"may find no room on {nodes} after failing on {which}: retry.other_node keeps later attempts away"
        return "GF525", text, "\n".join(hints), None
    if resource is None:
        names = [each for each in seat.pod.requests if "/" in each] or list(seat.pod.requests)
        asks = ", ".join(f"{as_quantity(each, seat.pod.requests[each])} {each}" for each in sorted(names))
        where = f"none of {nodes} has {asks or 'a place'} free" if pool.hosts else f"no node ({pool.name}) is up for it"
        text = f"{NO_ROOM}: {where}"
        words = fit(seat.pod, seating.stock.fleet).message
    else:
        text = f"may find no room: {_pressure(seating, seat, resource)} on {nodes}"
        pieces = fragmentation(seating.stock, seat.pod, resource) if resource != PODS else None
        if pieces and pieces.placeable < pieces.whole:
            hints.append(
                f"what is free lies in pieces: {pieces.placeable} such pods fit, {pieces.whole} would in one piece"
            )
    added = seating.new_nodes(seat)
    if added is None:
        return "GF515", text, "\n".join(hints), words
    group, count = added
    new = f"{count} new node{'' if count == 1 else 's'} of group {group.name}"
    return "GF520", f"{text}; it may wait for {new}", "\n".join(hints), words


def _pressure(seating: Seating, seat: Seat, resource: str) -> str:
    """The worst moment against what is free: `a, b ask for 9 nvidia.com/gpu together, 8 are free`."""
    peak, witness = seating.peak(seat, resource)
    hosts = seating.hosts(seat.pool)
    if resource == PODS:
        free = sum(max(seating.stock.free[index].slots, 0) for index in hosts)
    else:
        free = sum(max(seating.stock.free[index].free.get(resource, 0), 0) for index in hosts)
    asked = "?" if peak is None else str(as_quantity(resource, peak))
    together = asking(witness or seat.kind.steps[:1], seat.kind.steps)
    return f"{together} for up to {asked} {resource}, {as_quantity(resource, free)} are free"


def _unweighed(demand: Demand, seating: Seating) -> Iterator[Finding]:
    found: dict[tuple[str, ...], list[str]] = {}
    for each in seating.sittings:
        if each.unknown:
            found.setdefault(each.unknown, []).extend(each.seat.kind.steps)
    for reasons, steps in found.items():
        names = list(dict.fromkeys(steps))
        yield Finding(
            "GF535",
            f"{listed(names)}: whether a node always has room is unknown; not weighed: {'; '.join(reasons)}",
            where_of(demand, names[0]),
            "a node could hold it; read the verdict as one about quotas, queues and the other steps",
            severity="warning",
        )


def _gangs(demand: Demand, seating: Seating) -> Iterator[Finding]:
    """Gangs that can each hold a part of the nodes and wait for the rest, where nothing admits them as a whole."""
    free = [each for each in seating.sittings if each.seat.kind.pods > 1 and not each.seat.route.flavors]
    waits = [each for each in free if each.verdict == "may-queue"]
    if not waits:
        return
    company = Gathering(Company(each.seat.kind.steps, {GANGS: 1}) for each in free)
    alive, witness = seating.worst(company, GANGS)
    if alive is None or alive > 1:
        many = "any number of" if alive is None else str(alive)
        yield Finding(
            "GF522",
            f"{listed(list(witness), 'gang')}: {many} gangs at once can each take a part of the nodes and wait for the "
            "rest for ever",
            where_of(demand, waits[0].seat.kind.steps[0]),
            "let one gang run at a time (needs, or parallel), or give them a Kueue queue, which admits a gang whole",
            severity="warning",
        )


def _who(*kinds: Kind) -> str:
    steps = [step for kind in kinds if not kind.is_driver for step in kind.steps]
    names = [listed(steps)] if steps else []
    return " and ".join([*names, *(["the engine's driver pod"] if any(kind.is_driver for kind in kinds) else [])])
