"""Hold and wait: pods that take up quota, or a deadline, while they wait, gangs that keep quota from each other, gangs
that nothing starts as a whole; and what controllers hold back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpuflow.checker.question import Question, check_rule
from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.checker.quota.peak import charge_of
from gpuflow.checker.report import Outcome, amount
from gpuflow.cluster import Cluster
from gpuflow.core.errors import Finding, Problem, join_names, list_names
from gpuflow.demands import Demand
from gpuflow.demands.gang_scheduling import gangs_of, one_by_one_finding, starts_whole
from gpuflow.demands.model import LAUNCHER, sum_usages
from gpuflow.demands.peaks import tree_of
from gpuflow.graph import peak
from gpuflow.kubernetes.labels import DEFAULT_QUEUE, QUEUE_LABEL
from gpuflow.quantity import Quantity

REPLICAS: Final = ("Deployment", "ReplicaSet", "ReplicationController", "StatefulSet")
"""Kinds whose pods all run at the same time and do not wait for each other."""
MOST_UNITS: Final = 1_000_000
"""What is free of a line, up to which the deadlock of gangs is worked out; GPUs and pods stay far below."""


@check_rule("GF554", severity="note")
def waiting_counts_in_quota(q: Question) -> Iterator[Problem]:
    """A quota line that runs out while queued pods, which already count there, only wait.

    Reported for the first such line, and not where every queue admits at once or where not even one pod gets in.
    """
    queues = [scope for scope in q.lines if scope.kind == "ClusterQueue"]
    if queues and all(scope.verdict == "always" for scope in queues):
        return
    queued = {one.step.name: one for one in q.admissions if _queue_of(one) and one.ever.allowed}
    for scope in q.lines:
        waiting = [name for name in scope.witness if name in queued]
        if scope.kind != "ResourceQuota" or scope.verdict != "may-queue" or scope.resource.startswith("count/"):
            continue
        if scope.peak is None or scope.used is None:
            continue
        charges = [Quantity(queued[name].ever.usage[scope.resource]) for name in waiting]
        if not any(scope.used + charge <= scope.hard for charge in charges):
            continue
        names = ", ".join(sorted({_queue_of(queued[name]) or "" for name in waiting}))
        yield Problem(
            f"{list_names(waiting)}: pods that wait in queue {names} already count in quota {scope.name}, which "
            f"refuses more of {scope.resource} while they wait",
            q.where(waiting[0]),
            f"a quota of {amount(scope.used + scope.peak, scope.resource, round_up=True)} is enough for all pods that "
            "may wait; or let only the queue count it",
        )
        return


def _queue_of(one: StepAdmission) -> str | None:
    """The queue that the step's pod names."""
    labels: Mapping[str, str] = one.step.pod["metadata"].get("labels", {})
    return labels.get(QUEUE_LABEL)


@check_rule("GF552")
def deadline_counts_waiting(q: Question) -> Iterator[Finding]:
    """A deadline while something may wait: it runs on in the queue, on every engine.

    A step's own timeout is the pod's activeDeadlineSeconds, which the kubelet counts from the start of the pod.
    """
    deadline = q.demand.deadline
    queued = [step.name for step in q.demand.steps if QUEUE_LABEL in step.pod["metadata"].get("labels", {})]
    short = [scope for scope in q.lines if scope.verdict == "may-queue"]
    if deadline is None or not (queued or short):
        return
    held = list(dict.fromkeys(name for scope in short for name in scope.witness))
    who = f"{list_names(held)} may have to wait" if held else f"{list_names(queued)} may wait in a queue"
    text = f"the deadline of {deadline.text} keeps running while {who}"
    hint = "allow for waiting in the deadline, or limit the steps with timeout, which counts only while a pod runs"
    yield Finding("GF552", text, deadline.where, hint, severity="warning" if short else "note")


@check_rule("GF501", severity="error", verdict="never")
def gangs_above_quota(q: Question) -> Iterator[Problem]:
    """Gangs of which every pod fits into a quota, and all of them together never."""
    for name, members in _admitted_gangs(q).items():
        pods = sum(one.step.pods for one in members)
        asking = f"its {pods} pods together ask" if q.demand.kind in REPLICAS else f"a gang of {pods} pods asks"
        if LAUNCHER in (each.name for one in members for each in one.step.pod_sets):
            asking = f"a gang of {pods} pods, its launcher among them, asks"
        for _, quota in q.policy.quotas:
            whole = sum_usages((charge_of(one.ever, quota), one.step.pods) for one in members)
            for key in sorted(key for key in whole if whole[key] > quota.hard[key]):
                hint = "ask for less in it"
                if len(members) == 1:
                    most = quota.hard[key].milli // charge_of(members[0].ever, quota)[key].milli
                    hint = f"that is {most} such pod{'' if most == 1 else 's'}: ask for less in it"
                yield Problem(
                    f'step "{name}": {asking} for {amount(whole[key], key)} of {key}, and quota '
                    f"{quota.name} allows at most {amount(quota.hard[key], key)}",
                    q.where(members[0].step.name),
                    f"{hint}; or have the quota raised",
                )


def _admitted_gangs(q: Question) -> dict[str, list[StepAdmission]]:
    """The gangs of which every pod is admitted, each with the answers to its pod sets."""
    known = {one.step.name: one for one in q.admissions}
    gangs = {name: [known[part.name] for part in parts] for name, parts in q.demand.gangs.items()}
    return {name: members for name, members in gangs.items() if all(one.ever.allowed for one in members)}


@check_rule("GF555", severity="error", verdict="may-queue")
def gang_deadlocks(q: Question) -> Iterator[Problem]:
    """Gangs that can each hold a part of a quota line, so that none ever gets the rest. Reported for one line."""
    gangs = _admitted_gangs(q)
    if not gangs:
        return
    for _, quota in q.policy.quotas:
        charges = {one.step.name: charge_of(one.ever, quota) for members in gangs.values() for one in members}
        for key in sorted({key for charge in charges.values() for key in charge if not key.startswith("count/")}):
            used = quota.used.get(key)
            if used is None:
                continue
            free = quota.hard[key] - used
            live = _live_gangs(q, charges, key)
            parts = {name: part for name in live if (part := _part(gangs[name], charges, key, live[name]))}
            held = list(parts.values())
            if any(part.total > quota.hard[key] for part in held) or not may_block(held, free):
                continue
            enough = sum((part.most_held * part.copies for part in held), min(part.smallest_pod for part in held))
            text = f"{list_names(list(parts), 'gang')}: when they run at once, each can take a part of the "
            text += f"{amount(free, key)} of {key} that quota {quota.name} leaves and wait forever for the rest"
            words = "let one run at a time" + (" (needs, or parallel)" if q.demand.kind == "Pipeline" else "")
            leave = "leave" if enough <= quota.hard[key] else "have the quota raised to leave"
            hint = f"{words}, or {leave} {amount(enough, key, round_up=True)} of {key} free for them"
            yield Problem(text, q.where(gangs[next(iter(parts))][0].step.name), hint)
            return


class Part(NamedTuple):
    """So many gangs alike: what one pod weighs, pods of a gang, and how many such gangs are alive."""

    pod: Quantity
    pods: int
    copies: int
    others: tuple[tuple[Quantity, int], ...] = ()
    """Pods of the same gang that weigh something else, with their numbers."""

    @property
    def sets(self) -> tuple[tuple[Quantity, int], ...]:
        return ((self.pod, self.pods), *self.others)

    @property
    def total(self) -> Quantity:
        return sum((pod * pods for pod, pods in self.sets), Quantity.zero)

    @property
    def smallest_pod(self) -> Quantity:
        return min(pod for pod, _ in self.sets)

    @property
    def most_held(self) -> Quantity:
        """What one gang holds at most while it still misses a pod."""
        return self.total - self.smallest_pod


def _part(
    members: Sequence[StepAdmission], charges: Mapping[str, Mapping[str, Quantity]], key: str, copies: int
) -> Part | None:
    """A gang on one line of a quota; None when none of its pods counts there."""
    weights = [(charges[one.step.name].get(key, Quantity.zero), one.step.pods) for one in members]
    counted = [(weight, pods) for weight, pods in weights if weight]
    return Part(*counted[0], copies, tuple(counted[1:])) if counted else None


def _live_gangs(q: Question, charges: Mapping[str, Mapping[str, Quantity]], key: str) -> dict[str, int]:
    """The gangs that are alive together when they ask for most of the line, with their copies."""
    usages = {one.step.name: sum_usages([(charges.get(one.step.name, {}), one.step.pods)]) for one in q.admissions}
    found = peak(tree_of(q.demand.graph, usages), key)
    return {q.demand.by_name[name].part_of or name: copies * q.runs for name, copies in found.live.items()}


def may_block(parts: Sequence[Part], free: Quantity) -> bool:
    """Whether gangs can hold so much of what is free that no pod of any fits any more, while each still misses one.

    A subset sum over whole units; amounts that come in fractions or in bytes are not worked out.
    """
    room = free.value
    in_pieces = any(pod.milli % 1000 for part in parts for pod, _ in part.sets)
    if sum(part.copies for part in parts) < 2 or not 0 <= room <= MOST_UNITS or in_pieces:
        return False
    smallest = min(part.smallest_pod.value for part in parts)
    if room < smallest:
        return False  # nothing can be held: they wait for others, not for each other
    reachable = 1
    for part in parts:
        if part.others:
            reachable = _with_mixed(reachable, part, room)
            continue
        weight = part.pod.value
        for _ in range(min(part.copies * (part.pods - 1), room // weight)):
            reachable |= reachable << weight
    full = (1 << (room + 1)) - (1 << (room - smallest + 1))
    return bool(reachable & full)


def _with_mixed(reachable: int, part: Part, room: int) -> int:
    """What can be held when gangs whose pods differ hold some too: each misses a pod of one set or of another."""
    for _ in range(min(part.copies, room // part.smallest_pod.value)):
        held = 0
        for missing, _ in enumerate(part.sets):
            one = reachable
            for index, (pod, pods) in enumerate(part.sets):
                for _ in range(min(pods - (index == missing), room // pod.value)):
                    one |= one << pod.value
            held |= one
        reachable = held & ((1 << (room + 1)) - 1)
    return reachable


MORE_PRECISE_CODES = ("GF522", "GF555")
"""The same with the nodes or the quota that the gangs would share."""
GANG_HINT = (
    "give it a queue where Kueue runs, which admits a gang whole, or a scheduler that starts it whole "
    "(kubernetes.scheduler); or see that no other gang runs beside it"
)


def with_gang_warnings(outcome: Outcome, demand: Demand, cluster: Cluster, namespace: str) -> Outcome:
    """The outcome, with a warning for each gang that may have to wait and that nothing starts all or none of.

    Where every pod always finds its place, no gang is ever half started.
    """
    if demand.pipeline is None or outcome.verdict in ("always", "never"):
        return outcome
    if any(finding.code in MORE_PRECISE_CODES for finding in outcome.findings):
        return outcome
    if any(item.name == DEFAULT_QUEUE for item in cluster.of("LocalQueue", namespace)):
        return outcome  # Kueue takes in what names no queue, as a whole
    found = [
        one_by_one_finding(step, demand.where(step.name), GANG_HINT, overlaps=demand.overlap is not None)
        for step in gangs_of(demand)
        if not starts_whole(step)
    ]
    return replace(outcome, findings=(*outcome.findings, *found))


@check_rule("GF830", "GF831", "GF832", verdict="may-queue")
def waits(q: Question) -> Iterable[Finding]:
    """What may keep it waiting though there is room."""
    return q.demand.waits


@check_rule("GF800", "GF833", "GF835", verdict="unknown")
def open_questions(q: Question) -> Iterable[Finding]:
    """What decides whether it starts, and is not known."""
    return q.demand.unsettled


@check_rule("GF834", severity="error", verdict="never")
def kept_beside(q: Question) -> Iterator[Problem]:
    """Steps for which a quota has no room beside the daemons that they wait for, which run until after them."""
    known = {one.step.name: one for one in q.admissions if one.ever.allowed}
    for *daemons, step in q.demand.beside:
        members = [known[name] for name in (*daemons, step) if name in known]
        for _, quota in q.policy.quotas if len(members) == len(daemons) + 1 else ():
            whole = sum_usages((charge_of(one.ever, quota), one.step.pods) for one in members)
            for key in sorted(key for key in whole if whole[key] > quota.hard[key]):
                text = f"{step} never starts: beside {join_names(daemons)}, which must run and end after it, that is "
                text += f"{whole[key]} of {key}, and quota {quota.name} allows at most {quota.hard[key]}"
                yield Problem(text, q.where(step), "ask for less in one of them, or have the quota raised")
                return


@check_rule("GF507", severity="error", verdict="never")
def served_queue(q: Question) -> Iterator[Problem]:
    """Groups that serve for ever, each a workload of its own, in a queue that cannot have all of them at once.

    Of a queue in no cohort only, and where no settings of Kueue may change what counts.
    """
    queued = [step for step in q.demand.steps if step.pod["metadata"].get("labels", {}).get(QUEUE_LABEL)]
    if q.demand.kind != "LeaderWorkerSet" or not queued or q.cluster.of("Configuration"):
        return
    from gpuflow.checker.kueue.reasons import request_amount
    from gpuflow.checker.kueue.workloads import read_cluster_queue, read_local_queue

    queue = queued[0].pod["metadata"]["labels"][QUEUE_LABEL]
    homes = {each.name: read_local_queue(each.body).cluster_queue for each in q.cluster.of("LocalQueue", q.namespace)}
    for found in (read_cluster_queue(each.body) for each in q.cluster.of("ClusterQueue")):
        if found.name != homes.get(queue) or found.cohort:
            continue
        sets = [(each, each.count * (step.copies or 0)) for step in queued for each in step.pod_sets]
        total = sum_usages((each.amounts.requests, count) for each, count in sets)
        for key, wanted in sorted(total.items()):
            rooms = [quota.nominal for (_, resource), quota in found.quotas.items() if resource == key]
            if rooms and request_amount(key, wanted) > sum(rooms):
                text = f"{q.demand.name} serves for ever and asks for {wanted} {key} in all; ClusterQueue {found.name} "
                text += "can give less, so that some of its groups wait for ever"
                yield Problem(text, q.where(queued[0].name), "ask for less, or use another queue")
                return
