"""What the controllers behind an object do beside what the object asks for: they wait, they hold back, they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from gpuflow.checker.question import Question, check_rule
from gpuflow.checker.quota.peak import charge_of
from gpuflow.core.errors import Finding, Problem, join_names
from gpuflow.demands.model import ExclusiveGroups, GroupCount, sum_usages
from gpuflow.kubernetes.labels import QUEUE_LABEL
from gpuflow.kubernetes.resources import read_map


@check_rule("GF830", "GF831", "GF832", verdict="may-queue")
def waits(q: Question) -> Iterable[Finding]:
    """What may keep it waiting though there is room."""
    return q.demand.waits


@check_rule("GF833", verdict="unknown")
def unsettled(q: Question) -> Iterable[Finding]:
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


@check_rule("GF835", severity="error", verdict="never")
def incomplete_groups(q: Question) -> Iterator[Problem]:
    """Pod groups of which fewer pods are there than Kueue waits for, or of which it deletes some."""
    for group in q.demand.groups:
        there = _pods_of(q, group)
        if there is None or (group.is_fast and there < group.total):
            continue
        text = f"pod group {group.name} has {there} of {group.total} pods in the files and in the cluster: "
        text += "Kueue waits for the rest" if there < group.total else f"Kueue deletes {there - group.total} of them"
        yield Problem(text, group.where, f"create {group.total} pods of the group; give the files of all of them")


@check_rule("GF835", verdict="unknown")
def groups_of_unseen_pods(q: Question) -> Iterator[Problem]:
    """The same where the snapshot shows no pods, or where Kueue does not wait for all of them."""
    for group in q.demand.groups:
        there = _pods_of(q, group)
        if there is None:
            text = f"pod group {group.name} has {len(group.pods)} of {group.total} pods in the files, and the snapshot "
            yield Problem(f"{text}does not show which others there are", group.where, "give the files of all of them")
        elif group.is_fast and there < group.total:
            text = f"pod group {group.name} is admitted with room for {group.total} pods, and {there} are known"
            yield Problem(text, group.where, "give the files of all of them")


def _pods_of(q: Question, group: GroupCount) -> int | None:
    """How many pods a group has in the files and in the namespace; None where that is not known."""
    if len(group.pods) > group.total:
        return len(group.pods)
    bodies = q.cluster.bodies("Pod", q.namespace)
    found = [read_map(each.get("metadata"), "metadata") for each in bodies or ()]
    others = [each for each in found if (each.get("labels") or {}).get(GROUP_LABEL) == group.name]
    there = len(group.pods) + sum(1 for each in others if each.get("name") not in group.pods)
    return None if bodies is None and there < group.total else there


GROUP_LABEL: Final = "kueue.x-k8s.io/pod-group-name"


@check_rule("GF836", severity="error", verdict="never")
def crowded_domains(q: Question) -> Iterator[Problem]:
    """Groups that serve for ever and share no domain, where there are fewer domains than groups."""
    for each, domains in _exclusive(q):
        if not each.ends and len(domains) < each.groups:
            yield Problem(_crowd(each, domains), each.where, f"run at most {len(domains)}")


@check_rule("GF837", verdict="unknown")
def exclusive_domains(q: Question) -> Iterator[Problem]:
    """Groups that share no domain: which domains others have, and whether one holds a whole group, is not modeled."""
    for each, domains in _exclusive(q):
        text = f"{each.words} of {each.step} share no {each.key} with others; whether each finds one that is free "
        if len(domains) >= each.groups:
            yield Problem(f"{text}and large enough is not modeled", each.where)
        elif each.ends:
            yield Problem(f"{_crowd(each, domains)}: whether they can take turns is not modeled", each.where)


def _exclusive(q: Question) -> Iterator[tuple[ExclusiveGroups, set[str]]]:
    """Groups that share no domain, and the domains that the nodes of the snapshot show."""
    nodes = [read_map(each.body.get("metadata"), "metadata").get("labels") or {} for each in q.cluster.of("Node")]
    for each in q.demand.exclusive if nodes else ():
        yield each, {str(labels[each.key]) for labels in nodes if each.key in labels}


def _crowd(each: ExclusiveGroups, domains: set[str]) -> str:
    text = f"{each.groups} {each.words} of {each.step} need a {each.key} each and share none, and the nodes show "
    return f"{text}{len(domains)}"


@check_rule("GF507", severity="error", verdict="never")
def served_queue(q: Question) -> Iterator[Problem]:
    """Groups that serve for ever, each a workload of its own, in a queue that cannot have all of them at once.

    Of a queue in no cohort only, and where no settings of Kueue may change what counts.
    """
    queued = [step for step in q.demand.steps if step.pod["metadata"].get("labels", {}).get(QUEUE_LABEL)]
    if q.demand.kind != "LeaderWorkerSet" or not queued or q.cluster.of("Configuration"):
        return
    from gpuflow.checker.kueue.amounts import request_amount
    from gpuflow.checker.kueue.queues import read_cluster_queue, read_local_queue

    queue = queued[0].pod["metadata"]["labels"][QUEUE_LABEL]
    local = [read_local_queue(each.body) for each in q.cluster.of("LocalQueue", q.namespace) if each.name == queue]
    for item in q.cluster.of("ClusterQueue") if local else ():
        found = read_cluster_queue(item.body) if item.name == local[0].cluster_queue else None
        if found is None or found.cohort:
            continue
        sets = [(each, each.count * (step.copies or 0)) for step in queued for each in step.pod_sets]
        total = sum_usages((each.amounts.requests, count) for each, count in sets)
        for key, amount in sorted(total.items()):
            rooms = [quota.nominal for (_, resource), quota in found.quotas.items() if resource == key]
            if rooms and request_amount(key, amount) > sum(rooms):
                text = f"{q.demand.name} serves for ever and asks for {amount} {key} in all; ClusterQueue {item.name} "
                text += "can give less, so that some of its groups wait for ever"
                yield Problem(text, q.where(queued[0].name), "ask for less, or use another queue")
                return
