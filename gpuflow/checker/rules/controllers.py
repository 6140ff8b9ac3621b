"""What the controllers behind an object do beside what the object asks for: they wait, they hold back, they grow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gpuflow.checker.question import Question, check_rule
from gpuflow.checker.quota.peak import charge_of
from gpuflow.core.errors import Finding, Problem, join_names
from gpuflow.demands.model import sum_usages
from gpuflow.kubernetes.labels import QUEUE_LABEL


@check_rule("GF830", "GF831", "GF832", verdict="may-queue")
def waits(q: Question) -> Iterable[Finding]:
    """What may keep it waiting though there is room."""
    return q.demand.waits


@check_rule("GF833", "GF835", verdict="unknown")
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
    from gpuflow.checker.kueue.amounts import request_amount
    from gpuflow.checker.kueue.queues import read_cluster_queue, read_local_queue

    queue = queued[0].pod["metadata"]["labels"][QUEUE_LABEL]
    homes = {each.name: read_local_queue(each.body).cluster_queue for each in q.cluster.of("LocalQueue", q.namespace)}
    for found in (read_cluster_queue(each.body) for each in q.cluster.of("ClusterQueue")):
        if found.name != homes.get(queue) or found.cohort:
            continue
        sets = [(each, each.count * (step.copies or 0)) for step in queued for each in step.pod_sets]
        total = sum_usages((each.amounts.requests, count) for each, count in sets)
        for key, amount in sorted(total.items()):
            rooms = [quota.nominal for (_, resource), quota in found.quotas.items() if resource == key]
            if rooms and request_amount(key, amount) > sum(rooms):
                text = f"{q.demand.name} serves for ever and asks for {amount} {key} in all; ClusterQueue {found.name} "
                text += "can give less, so that some of its groups wait for ever"
                yield Problem(text, q.where(queued[0].name), "ask for less, or use another queue")
                return
