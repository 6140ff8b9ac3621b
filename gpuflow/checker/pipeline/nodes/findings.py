"""Nodes in the report: the lines of each pool of nodes, and findings in the scheduler's own words with a way out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpuflow.checker.contention.concurrency import Competitor, Competitors, waiting_clause
from gpuflow.checker.dra.inventory import ADMIN_ACCESS, EXTENDED_CLAIM
from gpuflow.checker.dra.plan import ANY, Group
from gpuflow.checker.hints.refusals import OtherGpus, Trials, reason_not_now, reason_nowhere
from gpuflow.checker.nodes.capacity import Fragmentation, NodePools, capacity_hint, fragmentation, room
from gpuflow.checker.nodes.filters import fit
from gpuflow.checker.nodes.node_info import GROUP_MAX, as_quantity
from gpuflow.checker.pipeline.nodes.mounted_claims import OWN
from gpuflow.checker.pipeline.nodes.verdicts import APART, PODS, NodeVerdict, NodeVerdicts, PoolRequest, is_reported
from gpuflow.checker.pipeline.pod_groups import PodGroup, subject_of
from gpuflow.checker.pipeline.queues.requests import FlavorAssignment
from gpuflow.checker.report import (
    LimitLine,
    Outcome,
    Verdict,
    amount,
    asking_clause,
    bounding_hint,
    foremost_resource,
    waiting_note,
    worst_verdict,
)
from gpuflow.core.errors import Finding, list_names, warning
from gpuflow.demands import Demand
from gpuflow.demands.gang_scheduling import is_scheduled_as_gang

GANGS: Final = "gangs"
START_WHOLE: Final = (
    "give them a Kueue queue, which admits a gang whole, or a scheduler that does (kubernetes.scheduler)"
)


class PoolReport(NamedTuple):
    """A node pool in the report: its nodes, and the verdicts of the pod groups that may run there."""

    name: str
    hosts: tuple[int, ...]
    members: list[NodeVerdict]
    safe: int | None
    """The largest cap with which all of them always find room."""


def node_outcome(
    demand: Demand,
    node_verdicts: NodeVerdicts,
    pod_groups: Iterable[tuple[PodGroup, tuple[FlavorAssignment, ...]]],
    makers: Sequence[str] = (),
    trials: Trials | None = None,
) -> Outcome:
    """What the nodes say to the pipeline. Where `makers` may start other nodes, *never* becomes *unknown*.

    Without `trials` nobody asks for a way out.
    """
    others = None
    if trials is not None and demand.pipeline is not None:
        others = OtherGpus(demand, demand.pipeline, node_verdicts.node_pools, trials)
    verdicts: list[Verdict] = []
    findings: list[Finding] = []
    for pod_group, assignments in pod_groups:
        own = [each for each in node_verdicts.verdicts if each.request.pod_group is pod_group]
        if not assignments:
            continue  # its queue never admits it
        fit_for = [each for each in own if each.verdict != "never"]
        if not fit_for:
            unplaceable = _missing_devices_finding(demand, node_verdicts, pod_group, own)
            if unplaceable is None:
                unplaceable = _unplaceable_finding(demand, node_verdicts.node_pools, pod_group, own, others)
            verdicts.append("unknown" if makers else "never")
            findings.append(_with_node_makers(unplaceable, makers) if makers else unplaceable)
            continue
        verdicts += [each.verdict for each in fit_for]
        lost = [
            assignment
            for assignment in assignments
            if not any(each.request.assignment is assignment for each in fit_for)
        ]
        if lost:
            verdicts.append("may-queue")
            findings.append(_lost_flavor_finding(demand, pod_group, lost))
    reports = _pools(node_verdicts, is_trial=trials is None)
    findings += [finding for pool in reports for finding in _waits(demand, node_verdicts, pool)]
    findings += _undecided_findings(demand, reports)
    findings += _unmodeled_findings(demand, node_verdicts)
    findings += _unseen_devices(demand, node_verdicts)
    findings += _gangs(demand, node_verdicts)
    scopes = tuple(scope for pool in reports for scope in _lines(node_verdicts, pool))
    if makers:
        scopes = tuple(replace(each, verdict="unknown") if each.verdict == "never" else each for each in scopes)
    return Outcome(worst_verdict(verdicts), scopes, tuple(findings))


def _unplaceable_finding(
    demand: Demand, node_pools: NodePools, pod_group: PodGroup, own: list[NodeVerdict], others: OtherGpus | None
) -> Finding:
    verb = "fits" if pod_group.is_one else "fit"
    message, where = f"{subject_of(pod_group)} {verb} on no node", demand.where(pod_group.steps[0])
    if not own:
        text = f"{message}: the flavors of its queue ask for labels that contradict each other"
        return Finding("GF506", text, where, "ask the owner of the queue")
    pod = own[0].request.pod
    if pod.volumes is not None and room(node_pools, pod._replace(volumes=None), pod_group.pods).verdict != "never":
        names = ", ".join(name.removeprefix(OWN) for name in pod.volumes.names)
        hint = f"nodes that could hold it cannot mount {names}: see the volume's node affinity and its storage class"
        return Finding("GF506", message, where, hint, kubernetes=fit(pod, node_pools.node_list).message)
    hint = reason_nowhere(node_pools, pod, pod_group.pods)
    if own[0].request.assignment.flavors:
        hint += f"\nwith the labels of flavor {', '.join(own[0].request.assignment.flavors)} on it"
    if others is not None and not pod_group.is_driver:
        hint = "\n".join(filter(None, (hint, others.hint(pod_group.steps[0]))))
    return Finding("GF506", message, where, hint, kubernetes=fit(pod, node_pools.node_list).message)


def _missing_devices_finding(
    demand: Demand, node_verdicts: NodeVerdicts, pod_group: PodGroup, own: list[NodeVerdict]
) -> Finding | None:
    """Pods whose claims no node can satisfy; `None` where something else is short."""
    group = node_verdicts.devices.get(pod_group)
    if group is None or not own:
        return None
    refusal, pod = group.ask.never, own[0].request.pod
    short = capacity_hint(node_verdicts.node_pools, pod).shortfalls
    lacking = [name for name in short if name in group.adds]
    if refusal is None and (not lacking or len(lacking) < len(short)):
        return None
    counted = [
        f"{name}: asked {short[name].asked}, the largest eligible node has {short[name].largest}"
        for name in lacking
        if is_reported(name)
    ]
    return Finding(
        "GF546",
        f"{subject_of(pod_group)} {'finds' if pod_group.is_one else 'find'} the devices of {_claims(group)} on no node",
        demand.where(pod_group.steps[0]),
        ", ".join(counted) or _about_claim(refusal),
        kubernetes=refusal or fit(pod, node_verdicts.node_pools.node_list).message,
    )


def _about_claim(refusal: str | None) -> str:
    if refusal is not None and ADMIN_ACCESS in refusal:
        return "leave adminAccess out of the claim, or have the namespace labeled"
    return "compare the selectors and constraints of the claim with the ResourceSlices of the nodes"


def _claims(group: Group) -> str:
    names = dict.fromkeys((*(claim.name for claim in group.ask.claims), *group.ask.shared))
    names.pop(EXTENDED_CLAIM, None)
    return f"claim {', '.join(names)}" if names else "its claims"


def _with_node_makers(unplaceable: Finding, makers: Sequence[str]) -> Finding:
    """The same finding where nodes that are not in the snapshot may be started for the step."""
    note = f"{', '.join(makers[:3])} may start other nodes; describe them with {GROUP_MAX} on a Node manifest"
    hint = f"{unplaceable.hint}\n{note}" if unplaceable.hint else note
    return replace(unplaceable, message=f"{unplaceable.message} of the snapshot", hint=hint, severity="warning")


def _lost_flavor_finding(demand: Demand, pod_group: PodGroup, lost: list[FlavorAssignment]) -> Finding:
    names = ", ".join(dict.fromkeys(name for assignment in lost for name in assignment.flavors))
    return warning(
        "GF516",
        f"{subject_of(pod_group)} may get quota of flavor {names}, whose nodes cannot hold it: then it stays Pending "
        "until somebody deletes the pod",
        demand.where(pod_group.steps[0]),
        "keep it off that flavor with a node selector, or have nodes with the flavor's labels added; waiting does not "
        "help",
    )


def _pools(node_verdicts: NodeVerdicts, *, is_trial: bool) -> list[PoolReport]:
    """The verdicts by node pool, under names that tell the pools apart."""
    reports: dict[frozenset[int], list[NodeVerdict]] = {}
    for each in node_verdicts.verdicts:
        reports.setdefault(each.request.pool.hosts, []).append(each)
    found: dict[str, PoolReport] = {}
    for hosts, members in reports.items():
        name = _name(members[0].request)
        if name in found:
            name = f"{name} for {members[0].request.pod_group.steps[0]}"
        blocked = [] if is_trial else [each for each in members if each.verdict == "may-queue"]
        safe = node_verdicts.safe_parallelism(blocked) if blocked else None
        found[name] = PoolReport(name, tuple(sorted(hosts)), members, safe)
    return list(found.values())


def _name(request: PoolRequest) -> str:
    """A short name for the nodes of a pool: the flavor, what their label must say, or whom they are for."""
    if request.assignment.flavors:
        return "/".join(request.assignment.flavors)
    placement = request.pod.placement
    values = list(placement.selector.values())
    for term in placement.terms or ():
        values += [each.values[0] for each in term.expressions if each.operator == "In" and len(each.values) >= 1]
    return values[0] if values else f"for {request.pod_group.steps[0]}"


def _lines(node_verdicts: NodeVerdicts, pool: PoolReport) -> Iterator[LimitLine]:
    """One line for each device that the pool's pods ask for, and for cpu or memory where they decide."""
    members, node_pools = pool.members, node_verdicts.node_pools
    asked = dict.fromkeys(resource for each in members for resource in each.request.pod.requests)
    if any(PODS in _deciding_resources(node_verdicts, each) for each in members):
        asked[PODS] = None
    devices = [resource for resource in asked if "/" in resource and is_reported(resource)]
    for resource in sorted(filter(is_reported, asked), key=lambda each: ("/" not in each, each)):
        verdict = worst_verdict(_verdict(node_verdicts, each, resource) for each in members)
        if resource not in devices and devices and verdict == "always":
            continue
        hosts = [node_pools.node_list.hosts[index].node for index in pool.hosts]
        if any(resource in node.claimed and node.allocatable.get(resource, 0) >= ANY for node in hosts):
            continue  # how much of it there is, is not known
        free = [node_pools.free[index] for index in pool.hosts]
        if resource == PODS:
            hard = sum(node.slots for node in hosts)
            used = hard - sum(space.slots for space in free)
        else:
            hard = sum(node.allocatable.get(resource, 0) for node in hosts)
            used = hard - sum(space.free.get(resource, 0) for space in free)
        peak, witness = node_verdicts.peak(members[0].request, resource)
        yield LimitLine(
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


def _verdict(node_verdicts: NodeVerdicts, node_verdict: NodeVerdict, resource: str) -> Verdict:
    """The verdict of one line, where this pod group asks for the resource."""
    if resource not in (*node_verdict.request.pod.requests, PODS):
        return "always"
    return node_verdict.verdict if resource in _deciding_resources(node_verdicts, node_verdict) else "always"


def _deciding_resources(node_verdicts: NodeVerdicts, node_verdict: NodeVerdict) -> Collection[str]:
    """The resources through which a pod group gets its verdict, pod slots among them; none of one that always fits."""
    request, decision = node_verdict.request, node_verdict.decision
    pod, node_pools = request.pod, node_verdicts.node_pools
    if node_verdict.verdict == "always":
        return ()
    if node_verdict.verdict == "never":
        ever = request.pool.ever
        if ever and all(node_pools.empty[index].slots < 1 for index in ever):
            return (PODS,)
        return capacity_hint(node_pools, pod).shortfalls.keys() or pod.requests.keys() or (PODS,)
    if decision is None:
        return pod.requests.keys() or (PODS,)
    if decision.resources:
        return decision.resources
    if request.pool.hosts and all(node_pools.free[index].slots < 1 for index in request.pool.hosts):
        return (PODS,)
    return node_verdicts.short_resources(request) or (PODS,)


def _waits(demand: Demand, node_verdicts: NodeVerdicts, pool: PoolReport) -> Iterator[Finding]:
    """Why pods of a pool are not always placed at once; what is the same for several is reported once."""
    waits: dict[Wait, list[PodGroup]] = {}
    for node_verdict in pool.members:
        pod_group = node_verdict.request.pod_group
        if node_verdict.verdict == "may-queue":
            waits.setdefault(_wait(node_verdicts, pool, node_verdict), []).append(pod_group)
    for wait, pod_groups in waits.items():
        hints = [waiting_note(demand, "nodes", (step for each in pod_groups for step in each.steps))]
        if wait.pieces is not None:
            hints.append(
                f"the free amount is fragmented: {wait.pieces.placeable} such pods fit, and {wait.pieces.whole} would "
                "fit in one piece"
            )
        yield warning(
            wait.code,
            wait.sentence(subject_of(*pod_groups), is_one=len(pod_groups) == 1 and pod_groups[0].is_one),
            demand.where(pod_groups[0].steps[0]),
            "\n".join(hints),
            kubernetes=wait.kubernetes,
        )


def _undecided_findings(demand: Demand, reports: Iterable[PoolReport]) -> Iterator[Finding]:
    """Why it is not known whether pods are always placed at once: each reason once."""
    undecided: dict[str | None, dict[PodGroup, None]] = {}
    for each in (member for pool in reports for member in pool.members):
        if each.verdict == "unknown" and each.decision:
            undecided.setdefault(each.decision.because, {})[each.request.pod_group] = None
    for because, pod_groups in undecided.items():
        many = f" ({len(pod_groups)} different pods)" if len(pod_groups) > 1 else ""
        text = f"it is unknown whether nodes always have room for {subject_of(*pod_groups)}{many}: {because}"
        yield warning(
            "GF514", text, demand.where(next(iter(pod_groups)).steps[0]), bounding_hint(demand, "the fan-out")
        )


class Wait(NamedTuple):
    """Why pods may wait for a node. Pod groups with an equal one are reported together."""

    code: str
    because: str
    is_now: bool = False
    """The nodes have no room as they are, whatever the pipeline itself runs."""
    new_nodes: tuple[int, str] | None = None
    """How many nodes a node group may have to add, and its name."""
    pieces: Fragmentation | None = None
    kubernetes: str | None = None

    def sentence(self, who: str, *, is_one: bool) -> str:
        verb = ("has" if is_one else "have") if self.is_now else "may find"
        text = f"{who} {verb} no room{' now' if self.is_now else ''}{self.because}"
        if self.new_nodes is None:
            return text
        count, group = self.new_nodes
        return f"{text}; it may wait for {count} new node{'' if count == 1 else 's'} of group {group}"


def _wait(node_verdicts: NodeVerdicts, pool: PoolReport, node_verdict: NodeVerdict) -> Wait:
    request, decision = node_verdict.request, node_verdict.decision
    nodes = f"{len(pool.hosts)} node{'' if len(pool.hosts) == 1 else 's'} ({pool.name})"
    if decision and decision.pending:
        return Wait(
            "GF524", f" on {nodes}: {waiting_clause(decision.pending, 'pod')} for a node too and may get it first"
        )
    if decision and decision.avoided:
        which = "one of them" if decision.avoided == 1 else f"{decision.avoided} of them"
        return Wait("GF525", f" on {nodes} after failing on {which}: retry.other_node keeps later attempts away")
    resource = foremost_resource(decision.resources if decision else ())
    if decision and decision.apart:
        text = f": pods that keep apart from it by {', '.join(decision.apart)} may be in every domain of {nodes}"
        wait = Wait("GF515", text)
    elif resource is None:
        node_list = node_verdicts.node_pools.node_list
        fitted = fit(request.pod, node_list)
        names = [node_list.hosts[index].node.name for index in pool.hosts]
        why = reason_not_now(request.pod, nodes, names, fitted) if names else f"no node ({pool.name}) is up"
        wait = Wait("GF515", f": {why}", is_now=True, kubernetes=fitted.message)
    elif resource == APART:
        wait = Wait("GF515", f": pods that cannot be on a node with it (host ports, anti-affinity) may be on {nodes}")
    elif not is_reported(resource):
        wait = Wait("GF515", f": steps that run at the same time may take the devices of its claims on {nodes}")
    else:
        pieces = fragmentation(node_verdicts.node_pools, request.pod, resource) if resource != PODS else None
        is_fragmented = pieces is not None and pieces.placeable < pieces.whole
        because = f": {_pressure(node_verdicts, request, resource)} on {nodes}"
        wait = Wait("GF515", because, pieces=pieces if is_fragmented else None)
    added = node_verdicts.new_nodes(request)
    return wait if added is None else wait._replace(code="GF520", new_nodes=(added[1], added[0].name))


def _pressure(node_verdicts: NodeVerdicts, request: PoolRequest, resource: str) -> str:
    """The worst moment against what is free: `a, b ask for 9 nvidia.com/gpu together, 8 are free`."""
    peak, witness = node_verdicts.peak(request, resource, beside=True)
    hosts = request.pool.hosts
    if resource == PODS:
        free = sum(max(node_verdicts.node_pools.free[index].slots, 0) for index in hosts)
    else:
        free = sum(max(node_verdicts.node_pools.free[index].free.get(resource, 0), 0) for index in hosts)
    asked = "?" if peak is None else amount(as_quantity(resource, peak), resource)
    together = asking_clause(witness or request.pod_group.steps[:1], request.pod_group.steps)
    return f"{together} for up to {asked} {resource}, {amount(as_quantity(resource, free), resource)} are free"


def _steps_by_reasons(verdicts: Iterable[tuple[NodeVerdict, tuple[str, ...]]]) -> list[tuple[str, list[str]]]:
    """Reasons that are not empty, each with the steps that have them."""
    found: dict[str, dict[str, None]] = {}
    for each, reasons in verdicts:
        if reasons:
            found.setdefault("; ".join(reasons), {}).update(dict.fromkeys(each.request.pod_group.steps))
    return [(reasons, list(steps)) for reasons, steps in found.items()]


def _unseen_devices(demand: Demand, node_verdicts: NodeVerdicts) -> Iterator[Finding]:
    for reasons, names in _steps_by_reasons((each, each.devices) for each in node_verdicts.verdicts):
        yield warning(
            "GF547",
            f"{list_names(names)}: it is unknown whether a node has the devices: {reasons}",
            demand.where(names[0]),
            "gpuflow snapshot shows all that is judged; by hand: kubectl get deviceclasses,resourceslices -o yaml and "
            "kubectl get resourceclaims,resourceclaimtemplates -A -o yaml",
        )


def _unmodeled_findings(demand: Demand, node_verdicts: NodeVerdicts) -> Iterator[Finding]:
    for reasons, names in _steps_by_reasons((each, each.unknown) for each in node_verdicts.verdicts):
        text = f"{list_names(names)}: it is unknown whether a node always has room; not modeled: {reasons}"
        hint = "a node could hold it; the verdict covers quotas, queues and the other steps"
        yield warning("GF535", text, demand.where(names[0]), hint)


def _gangs(demand: Demand, node_verdicts: NodeVerdicts) -> Iterator[Finding]:
    """Gangs that can each hold a part of the nodes and wait for the rest, where nothing admits them as a whole."""
    free = [
        each
        for each in node_verdicts.verdicts
        if each.request.pod_group.pods > 1
        and not each.request.assignment.flavors
        and not is_scheduled_as_gang(each.request.pod_group.pod)
    ]
    waits = [each for each in free if each.verdict == "may-queue"]
    if not waits:
        return
    competitors = Competitors(Competitor(each.request.pod_group.steps, {GANGS: 1}) for each in free)
    alive, witness = node_verdicts.worst_load(competitors, GANGS)
    if alive is None or alive > 1:
        many = "any number of" if alive is None else str(alive)
        text = f"{list_names(list(witness), 'gang')}: {many} gangs at once can each take a part of the nodes and wait "
        text += "forever for the rest"
        hint = f"let one gang run at a time (needs, or parallel); or {START_WHOLE}"
        yield Finding("GF522", text, demand.where(waits[0].request.pod_group.steps[0]), hint)
        return
    for each in waits:
        pending = each.decision.pending if each.decision is not None else ()
        if len(pending) > 1:
            steps = each.request.pod_group.steps
            yield warning(
                "GF522",
                f"{list_names(list(steps), 'gang')}: {waiting_clause(pending, 'pod')} for the same nodes; if they wait "
                "for each other as well, each side can take a part of the nodes and wait forever for the rest",
                demand.where(steps[0]),
                START_WHOLE,
            )
