"""Queues in the report: the lines of each ClusterQueue, and findings in Kueue's own words with a hint.

Steps of one pipeline can be in each other's way too: one evicts another, or stands before it in a StrictFIFO queue.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpuflow.checker.contention.concurrency import waiting_clause
from gpuflow.checker.hints.refusals import other_queue, queue_hint
from gpuflow.checker.kueue.reasons import UNLIMITED, NoPlace
from gpuflow.checker.kueue.workloads import NEVER
from gpuflow.checker.nodes.node_info import as_quantity
from gpuflow.checker.pipeline.pod_groups import PodGroup, subject_of
from gpuflow.checker.pipeline.queues.requests import QueueRequest
from gpuflow.checker.pipeline.queues.verdicts import QueueVerdict, QueueVerdicts
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


def own_evictors(demand: Demand, queue_verdicts: QueueVerdicts) -> Iterator[Finding]:
    """Steps that may lack quota because of another step, and may then have that step evicted. One finding for each.

    Kueue 0.19 leaves a pod that it evicts before its gate is removed: it neither deletes it nor queues it again.
    """
    short = [each for each in queue_verdicts.all if _lacks_quota(each)]
    for each in short:
        victims = [
            step
            for other in queue_verdicts.all
            if other is not each
            and not other.request.is_hopeless
            and _is_allowed_to(queue_verdicts, each, other)
            and _may_overlap(queue_verdicts, each.request, other.request)
            for step in other.request.pod_group.steps
        ]
        if victims:
            who = list_names(each.request.pod_group.steps)
            yield warning(
                "GF527",
                f"{who} may evict {list_names(victims)} of the same pipeline in queue {each.request.queue}: they may "
                "run at the same time, and Kueue may leave an evicted pod behind its gate forever",
                demand.where(each.request.pod_group.steps[0]),
                "let one of them run at a time (needs, or the pipeline's parallel); a retry budget does not help",
            )


def _lacks_quota(each: QueueVerdict) -> bool:
    return not each.request.is_hopeless and each.decision is not None and each.decision.verdict != "always"


def _is_allowed_to(queue_verdicts: QueueVerdicts, each: QueueVerdict, other: QueueVerdict) -> bool:
    """Whether the queues let the one preempt the other."""
    own, their = each.request.cluster_queue, other.request.cluster_queue
    if own is None or their is None:
        return False
    flavors = {name for group in each.request.groups for name in group.flavors}
    if flavors.isdisjoint(name for group in other.request.groups for name in group.flavors):
        return False
    priority, victim = (queue_verdicts.setup.priority_of(one.request.pod_group) or 0 for one in (each, other))
    if own is their:
        policy = own.preemption.within_cluster_queue
        # Of two with the same priority the older one evicts: it was too large at first, and the other passed it.
        passed = policy == "LowerOrNewerEqualPriority" and priority == victim and _is_larger(each, other)
        return policy != NEVER and (priority > victim or passed)
    if queue_verdicts.root_of(each.request) is not queue_verdicts.root_of(other.request):
        return False
    reclaim = own.preemption.reclaim_within_cohort
    return reclaim == "Any" or (reclaim != NEVER and priority > victim)


def _is_larger(each: QueueVerdict, other: QueueVerdict) -> bool:
    theirs = other.request.amounts or {}
    return any(amount > theirs.get(name, 0) for name, amount in (each.request.amounts or {}).items())


def _may_overlap(queue_verdicts: QueueVerdicts, first: QueueRequest, second: QueueRequest) -> bool:
    if queue_verdicts.runs > 1:
        return True
    near = queue_verdicts.concurrency.neighbors(frozenset(first.pod_group.steps))
    return not near.isdisjoint(second.pod_group.steps)


def held_up_steps(demand: Demand, queue_verdicts: QueueVerdicts) -> Iterator[Finding]:
    """Steps with enough quota that wait behind a step of the same pipeline which has none, in a StrictFIFO queue."""
    for each in queue_verdicts.all:
        queue = each.request.cluster_queue
        if queue is None or not queue.is_strict or not _lacks_quota(each):
            continue
        behind = [
            step
            for other in queue_verdicts.all
            if other.request.cluster_queue is queue
            and other.verdict == "always"
            and _may_overlap(queue_verdicts, each.request, other.request)
            for step in other.request.pod_group.steps
        ]
        if behind:
            verb = "waits" if len(behind) == 1 else "wait"
            text = f"while {list_names(each.request.pod_group.steps)} waits at the head of queue {each.request.queue}, "
            text += f"{list_names(behind)} {verb} behind it: ClusterQueue {queue.name} is StrictFIFO"
            hint = "there is quota for it; use a BestEffortFIFO queue for it, or lower the parallelism"
            yield warning("GF528", text, demand.where(behind[0]), hint)


def queue_outcome(demand: Demand, queue_verdicts: QueueVerdicts, *, is_trial: bool = False) -> Outcome:
    """What the queues say to the pipeline; in a trial nobody asks which cap would help."""
    findings: list[Finding] = []
    contended = [each.request for each in queue_verdicts.all if each.decision and each.verdict == "may-queue"]
    names = dict.fromkeys(each.cluster_queue.name for each in contended if each.cluster_queue and not is_trial)
    safe = {name: queue_verdicts.safe_parallelism(name) for name in names}
    for each in queue_verdicts.all:
        findings += _findings(demand, queue_verdicts, each)
    findings += _undecided_findings(demand, queue_verdicts)
    findings += _own_blockers(demand, queue_verdicts)
    findings += own_evictors(demand, queue_verdicts)
    findings += held_up_steps(demand, queue_verdicts)
    findings += _unshown_quota(queue_verdicts)
    return Outcome(
        worst_verdict(each.verdict for each in queue_verdicts.all), tuple(_lines(queue_verdicts, safe)), tuple(findings)
    )


def _findings(demand: Demand, queue_verdicts: QueueVerdicts, each: QueueVerdict) -> Iterator[Finding]:
    request, found = each.request, each.request.found
    who, where = subject_of(request.pod_group), demand.where(request.pod_group.steps[0])
    waits = f"{who} {_verb(request.pod_group, 'wait')} in queue {request.queue}"
    if each.shut is not None:
        text = f"{waits} forever: {each.shut.text}"
        yield Finding("GF507", text, where, each.shut.hint, kubernetes=each.shut.kueue)
        return
    if request.is_hopeless:
        yield _never_finding(demand, queue_verdicts, request)
        return
    if each.ahead and each.ahead.is_forever:
        text = f"{waits} until workload {each.ahead.namespace}/{each.ahead.name} is removed: it can never be admitted, "
        another = other_queue(is_driver=request.pod_group.is_driver)
        yield Finding(
            "GF510",
            f"{text}and holds up a StrictFIFO queue",
            where,
            f"waiting does not help: have that workload removed or corrected, or {another}",
            kubernetes=each.ahead.assignment.message,
        )
        return
    if each.unknown:
        message = f"{who}: it is unknown whether queue {request.queue} admits it at once; not modeled: "
        message += f"{'; '.join(each.unknown)}"
        yield warning("GF535", message, where, "its quota could hold the step; the verdict covers the rest")
        return
    hint = waiting_note(demand, "queue", request.pod_group.steps)
    if each.lags:
        text = f"{waits} until Kueue sees that it is active again"
        yield warning("GF517", text, where, hint, kubernetes=each.lags)
    if each.ahead:
        ahead = f"{each.ahead.namespace}/{each.ahead.name}"
        text = f"{waits} behind workload {ahead}, which is not admitted and holds up a StrictFIFO queue"
        yield warning("GF519", text, where, hint, kubernetes=each.ahead.assignment.message)
    if found.verdict == "preempt":
        verb = "is" if request.pod_group.is_one else "are"
        text = f"{who} {verb} admitted in queue {request.queue} after others are evicted: {', '.join(found.targets)}"
        yield warning("GF518", text, where, hint, kubernetes=found.message)
    elif each.lacks_place:
        text = f"{who} may wait in queue {request.queue}: its quota is there, but other pods can take the nodes that "
        yield warning("GF517", f"{text}its topology leaves it", where, hint)
    elif each.decision is None:
        what = "nodes of its topology" if any(isinstance(one, NoPlace) for one in found.reasons) else "quota"
        yield warning("GF517", f"{waits} until others release {what}", where, hint, kubernetes=found.message)
    elif each.decision.verdict == "may-queue":
        yield _wait_finding(demand, queue_verdicts, each, hint)


def _undecided_findings(demand: Demand, queue_verdicts: QueueVerdicts) -> Iterator[Finding]:
    """Why it is not known whether a queue always has quota: each reason once."""
    undecided: dict[tuple[str, str | None], list[PodGroup]] = {}
    for each in queue_verdicts.all:
        is_told = each.unknown or each.lacks_place or (each.ahead and each.ahead.is_forever)
        if each.decision and each.decision.verdict == "unknown" and not is_told:
            undecided.setdefault((each.request.queue, each.decision.because), []).append(each.request.pod_group)
    for (queue, because), pod_groups in undecided.items():
        who = subject_of(*([each for each in pod_groups if not each.is_driver] or pod_groups))
        many = f" ({len(pod_groups)} different pods)" if len(pod_groups) > 1 else ""
        text = f"it is unknown whether queue {queue} always has quota for {who}{many}: {because}"
        yield warning("GF514", text, demand.where(pod_groups[0].steps[0]), bounding_hint(demand, "the fan-out"))


def _never_finding(demand: Demand, queue_verdicts: QueueVerdicts, request: QueueRequest) -> Finding:
    who, where, found = subject_of(request.pod_group), demand.where(request.pod_group.steps[0]), request.found
    if not request.queue:
        text = f"{who} {_verb(request.pod_group, 'name')} no queue, and Kueue never admits such pods here"
        needed = "give it a queue: this Kueue manages pods without one too (manageJobsWithoutQueueName)"
        return Finding("GF507", text, where, needed)
    because = found.because if found.because != found.message else None
    hint = queue_hint(
        found,
        queue_verdicts.kueue,
        request.pod_group.namespace,
        request.queue,
        request.amounts or (),
        is_driver=request.pod_group.is_driver,
    )
    if hint is None:
        hint = f"on an empty cluster: {because}" if because else "ask for less, or ask the owner of the queue"
    text = f"{who} {_verb(request.pod_group, 'wait')} in queue {request.queue} forever"
    return Finding("GF507", text, where, hint, kubernetes=found.message)


def _wait_finding(demand: Demand, queue_verdicts: QueueVerdicts, each: QueueVerdict, hint: str) -> Finding:
    """The pipeline's own pods are in each other's way."""
    request, decision = each.request, each.decision
    assert decision is not None and request.cluster_queue is not None
    who, where = subject_of(request.pod_group), demand.where(request.pod_group.steps[0])
    if decision.pending:
        text = f"{who} may wait in queue {request.queue}: {waiting_clause(decision.pending, 'workload')} for the same "
        text += "quota and may be admitted first"
        return warning("GF524", text, where, hint)
    resource = foremost_resource(decision.resources) or ""
    flavors = next((group.flavors for group in request.groups if resource in group.asked), ())
    competitors = queue_verdicts.competitors_below(queue_verdicts.root_of(request), flavors)
    if queue_verdicts.runs == 1:  # what waits for the step, or it for them, is never in its way
        near = queue_verdicts.concurrency.concurrent_with(frozenset(request.pod_group.steps))
        competitors = competitors.concurrent_with(near)
    peak, _, witness = competitors.peak_load(resource, queue_verdicts.concurrency)
    left = sum(queue_verdicts.available(request, flavor, resource) for flavor in flavors)
    asked = "?" if peak is None else amount(as_quantity(resource, peak * queue_verdicts.runs), resource)
    together = asking_clause(witness or request.pod_group.steps[:1], request.pod_group.steps)
    if len(flavors) > 1:
        names = ", ".join(flavors)
        hint += f"\nthe quota is split over {len(flavors)} flavors ({names}), and a pod takes all of it from one"
    text = f"{who} may wait in queue {request.queue}: {together} for up to {asked} {resource}, ClusterQueue "
    text += f"{request.cluster_queue.name} has {amount(as_quantity(resource, left), resource)} left"
    return warning("GF517", text, where, hint)


def _own_blockers(demand: Demand, queue_verdicts: QueueVerdicts) -> Iterator[Finding]:
    """Steps that are never admitted and, at the head of a StrictFIFO queue, hold up all workloads behind them."""
    for each in queue_verdicts.all:
        queue = each.request.cluster_queue
        if each.request.found.verdict != "never" or queue is None or not queue.is_strict:
            continue
        behind = [
            step
            for other in queue_verdicts.all
            if other is not each and other.request.cluster_queue is queue and other.verdict != "never"
            for step in other.request.pod_group.steps
        ]
        others = f"{list_names(behind)} and all other workloads" if behind else "all workloads"
        yield Finding(
            "GF519",
            f"{subject_of(each.request.pod_group)} can never be admitted, and ClusterQueue {queue.name} is StrictFIFO: "
            f"at its head it holds up {others} behind it",
            demand.where(each.request.pod_group.steps[0]),
            "correct the step before anything is submitted: one such workload stops the queue for all its users",
        )


def _unshown_quota(queue_verdicts: QueueVerdicts) -> Iterator[Finding]:
    """Quota that a queue says it has reserved, and for which no workload is shown."""
    kueue = queue_verdicts.kueue
    roots = {queue_verdicts.root_of(request) for request in queue_verdicts.requests if request.groups}
    for name, amounts in sorted((kueue.reserved or {}).items()):
        node = kueue.snapshot.nodes.get(name)
        if node is None or node.path()[-1] not in roots:
            continue
        held = [holder.usage for holder in kueue.holders.values() if holder.cluster_queue == name]
        for (flavor, resource), reserved in sorted(amounts.items()):
            shown = sum(usage.get((flavor, resource), 0) for usage in held)
            if reserved > shown:
                most, less = (amount(as_quantity(resource, each), resource) for each in (reserved, shown))
                text = (
                    f"ClusterQueue {name} has reserved {most} {resource} of flavor {flavor}, and the workloads of the "
                )
                text += f"snapshot hold {less}: the larger number counts"
                hint = "add the Workloads of all namespaces: gpuflow snapshot, or kubectl get workloads -A -o yaml"
                yield Finding("GF574", text, hint=hint, severity="note")


def _lines(queue_verdicts: QueueVerdicts, safe: dict[str, int | None]) -> Iterator[LimitLine]:
    """One line for each resource that steps ask of some flavors of a ClusterQueue."""
    keys: dict[tuple[str, tuple[str, ...], str], list[QueueVerdict]] = {}
    for each in queue_verdicts.all:
        for group in each.request.groups:
            for resource in group.asked:
                if each.request.cluster_queue is not None and group.flavors:
                    keys.setdefault((each.request.cluster_queue.name, group.flavors, resource), []).append(each)
    for (queue, flavors, resource), members in sorted(keys.items(), key=lambda item: item[0]):
        request = members[0].request
        left = [queue_verdicts.available(request, flavor, resource) for flavor in flavors]
        used = sum(queue_verdicts.usage(request, flavor, resource) for flavor in flavors)
        if UNLIMITED in left:
            continue
        verdict = worst_verdict(_verdict(each, resource) for each in members)
        # What steps in other queues of the cohort ask for matters where it can block this one.
        top = queue_verdicts.node_of(request) if verdict == "always" else queue_verdicts.root_of(request)
        peak, _, witness = queue_verdicts.competitors_below(top, flavors).peak_load(
            resource, queue_verdicts.concurrency
        )
        assert request.cluster_queue is not None
        all_flavors = len(set(request.cluster_queue.flavors)) == len(flavors)
        yield LimitLine(
            "ClusterQueue",
            queue,
            resource if all_flavors else f"{'+'.join(flavors)}/{resource}",
            verdict,
            as_quantity(resource, used),
            as_quantity(resource, used + sum(left)),
            None if peak is None else as_quantity(resource, peak * queue_verdicts.runs),
            witness,
            safe.get(queue) if verdict == "may-queue" else None,
        )


def _verdict(each: QueueVerdict, resource: str) -> Verdict:
    found = each.request.found
    if each.request.is_hopeless:
        return "never" if found.names(resource) else "always"
    if each.verdict == "never":
        return "never"
    if each.unknown or each.ahead:
        return each.verdict
    if each.decision is None:
        return "may-queue" if found.names(resource) else "always"
    resources = each.decision.resources
    return each.verdict if not resources or resource in resources else "always"


def _verb(pod_group: PodGroup, verb: str) -> str:
    return f"{verb}s" if pod_group.is_one else verb
