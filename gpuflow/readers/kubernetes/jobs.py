"""Pods, Jobs, CronJobs and JobSets, the kinds whose pods run until somebody stops them, and Jobs and PodGroups of
Volcano."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from gpuflow.core.cron import least_gap
from gpuflow.core.errors import Finding, Where
from gpuflow.demands.gang_scheduling import volcano_queue_unseen
from gpuflow.demands.model import ClaimDemand, Demand, Overlap, PodsOfJob, SizeRange, UnseenPart, sizes_of
from gpuflow.demands.stored import HISTORY, kept_runs
from gpuflow.graph import Unknown
from gpuflow.graph.order import find_cycle
from gpuflow.kubernetes.labels import MADE_BY, QUEUE_LABEL
from gpuflow.readers.interface import PassiveObject
from gpuflow.readers.kubernetes.demand import Object, Run, suspended_reason
from gpuflow.readers.kubernetes.pods import (
    MAX_INT32,
    Owner,
    Part,
    Pod,
    pod_of,
    shared_claims,
    surge_of,
    with_own_claims,
    with_shared_claims,
)
from gpuflow.runtime.gangs.kinds import GROUP, JOBSET_BY_VOLCANO, POD_GROUP, VOLCANO, GangKind

GROUP_NAME: Final = "kueue.x-k8s.io/pod-group-name"
GROUP_TOTAL: Final = "kueue.x-k8s.io/pod-group-total-count"


def pod(thing: Object) -> Demand | PassiveObject:
    group = thing.owner.labels.get(GROUP_NAME)
    if group and thing.owner.labels.get(QUEUE_LABEL):
        return _pod_group(thing, group)
    run = Run()
    run.add_gang(thing.name, [("main", 1, pod_of(thing.root))], thing.root.where)
    return run.demand(thing)


def _pod_group(thing: Object, name: str) -> Demand | PassiveObject:
    """The pods of a group, which Kueue admits together when all are there: one demand, that of the first of them.

    Mirrors validatePodGroupMetadata and removeExcessPods of Kueue's pod integration, v0.19.2.
    """
    library, home = thing.library, thing.library.seen_from(thing.document).namespace
    pods = [each for each in library.documents if (each.kind, each.group) == ("Pod", "")]
    roots = [Part(each, (), each.tree) for each in pods if library.seen_from(each).namespace == home]
    members = [each for each in roots if each.labels_at("metadata", "labels").get(GROUP_NAME) == name] or [thing.root]
    if members[0].document.tree is not thing.document.tree:
        return thing.passive(f"it is counted with Pod {members[0].document.name}, in whose pod group {name} it is")
    alike: list[list[Pod]] = []
    for made in map(pod_of, members):  # Kueue makes one pod set of pods that are alike
        same = next((each for each in alike if each[0] == made), None)
        alike.append([made]) if same is None else same.append(made)
    run = Run()
    run.add_gang(thing.name, [(f"role-{n}", len(each), each[0]) for n, each in enumerate(alike)], thing.root.where)
    found = run.demand(thing)
    texts = [{**each.labels_at("metadata", "annotations"), **each.labels_at("metadata", "labels")} for each in members]
    said = {(each.get(GROUP_TOTAL, ""), each.get(QUEUE_LABEL)) for each in texts}
    total, where = next(iter(said))[0], thing.root.need("metadata").key_where
    text = f"pod group {name}: {len(members)} of {total} pods are in the files"
    if isinstance(found, PassiveObject) or (len(said) == 1 and total in ("", str(len(members)))):
        return found  # without a number Kueue's webhook refuses the pod
    if len(said) > 1 or (total.isdecimal() and int(total) < len(members)):
        text = f"pod group {name} does not agree on its queue and number" if len(said) > 1 else text
        hint = "give all pods of a group the same, and as many as they say"
        return replace(found, refusals=(Finding("GF835", f"{text}: Kueue does not admit all of them", where, hint),))
    text += ", and Kueue admits none before all are there"
    return replace(found, unsettled=(Finding("GF835", text, where, "give the files of all of them", "warning"),))


def pod_template(thing: Object) -> PassiveObject:
    """A template that others copy."""
    return thing.passive("a PodTemplate only serves others")


MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""With this annotation Kueue may admit fewer pods than the Job asks for."""


class JobPods(NamedTuple):
    pod: Pod
    at_once: int
    """How many live at the same time."""
    completions: int | None
    """How many must succeed; None: until one of them says that the work is done."""
    is_indexed: bool
    tries: int
    in_all: PodsOfJob

    @property
    def wait_for_each_other(self) -> bool:
        """All of them live together and can be reached by name: they are members of one program."""
        by_name = bool(self.pod["spec"].get("subdomain"))
        return self.is_indexed and by_name and self.at_once > 1 and self.at_once == self.completions


def job_pods(spec: Part, owner: Owner) -> JobPods:
    """What the spec of a Job makes. Neither number given: one pod."""
    completions = None if spec.at("completions") is None else spec.count("completions", 1)
    parallelism = spec.count("parallelism", 1)
    indexed = spec.text("completionMode", "NonIndexed", ("NonIndexed", "Indexed")) == "Indexed"
    if indexed and completions is None and spec.at("parallelism") is not None:
        raise spec.fault("has completionMode Indexed and no completions", "say how many indexes there are")
    if completions is None and spec.at("parallelism") is None:
        completions = 1
    for key in ("activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"):
        spec.count(key, 0)
    _policy(spec)
    pod = pod_of(spec.need("template"), owner)
    at_once = parallelism if completions is None else min(parallelism, completions)
    again, in_all = _pods_in_all(spec, completions, at_once)
    return JobPods(pod, at_once, completions, indexed, 1 + again, in_all)


def _pods_in_all(spec: Part, completions: int | None, at_once: int) -> tuple[int, PodsOfJob]:
    """How often one pod may be made again, and how many pods the Job makes.

    Pods that failed count for the whole Job, or for each index. More pods are made only while they are not too many,
    and never more than what is left to do: those that fail at the same time are among these.

    Mirrors syncJob and manageJob of k8s.io/kubernetes/pkg/controller/job, Kubernetes v1.36.3.
    """
    whole, each = at_once if completions is None else completions, spec.at("backoffLimitPerIndex")
    again = spec.count("backoffLimit", 6 if each is None else MAX_INT32)
    most: int | None = whole + again
    if each is not None:
        again = each.whole()
        most = min(whole + spec.count("backoffLimit", MAX_INT32), whole * (1 + again))
    policy = spec.at("podFailurePolicy")
    if policy is not None and any(rule.text("action") == "Ignore" for rule in policy.need("rules").items()):
        most = None  # such failures are not counted
    few = completions is None or spec.at("successPolicy") is not None
    return again, PodsOfJob(min(1, whole) if few else whole, most, max(whole, 1))


def _policy(spec: Part) -> None:
    policy = spec.at("podFailurePolicy")
    if policy is not None:
        for rule in policy.need("rules").items():
            rule.text("action", None, ("FailJob", "FailIndex", "Ignore", "Count"))


def job(thing: Object) -> Demand | PassiveObject:
    return _demand(thing, thing.spec, thing.root.at("metadata"))


def _demand(
    thing: Object, spec: Part, metadata: Part | None, overlap: Overlap | None = None, history: tuple[int, int] = (0, 0)
) -> Demand | PassiveObject:
    """`history`: how many Jobs of earlier runs are kept, with their pods."""
    owner = thing.owner_by(metadata)
    annotations = {} if metadata is None else metadata.labels("annotations")
    queued = owner.is_queued
    pods = job_pods(spec, owner)
    only = suspended_reason(spec, queued)
    where = spec.need("template").key_where
    # Kueue admits a Job with all of its parallel pods or not at all, unless it is told that fewer will do.
    whole = queued and MIN_PARALLELISM not in annotations
    gang, one = whole or pods.wait_for_each_other, pods.in_all
    kept = (history[0] * one.at_least, history[1] * (one.at_most or 0))
    run = Run(one._replace(kept=kept, copies=1 if gang else one.copies))
    if pods.at_once and gang:
        run.add_gang(thing.name, [("main", pods.at_once, pods.pod)], where, tries=pods.tries)
    elif pods.at_once:
        copies = pods.at_once if pods.completions is None else pods.completions
        run.add_copies(thing.name, pods.pod, copies, where, parallel=pods.at_once, tries=pods.tries)
    if queued and not whole:
        only = only or f"Kueue may admit fewer pods: {MIN_PARALLELISM}"
    found = run.demand(thing, overlap=overlap, only_at_most=only)
    least = annotations.get(MIN_PARALLELISM, "")
    if not queued or isinstance(found, PassiveObject) or not least.isdecimal() or not 0 < int(least) < pods.at_once:
        return found
    because = f"Kueue admits Job {thing.name} with"
    return replace(found, size=SizeRange(int(least), pods.at_once, because, where))


def history_of(spec: Part) -> tuple[int, int]:
    """How many finished Jobs a CronJob keeps: those that succeeded, and with those that failed."""
    return kept_runs(*(spec.count(key, default) for key, default in HISTORY.items()))


def cron_job(thing: Object) -> Demand | PassiveObject:
    """A Job by the clock."""
    spec = thing.spec
    at = spec.need("schedule")
    schedule = spec.text("schedule")
    if not schedule:
        raise at.fault("is empty")
    policy = spec.text("concurrencyPolicy", "Allow", ("Allow", "Forbid", "Replace"))
    template = spec.need("jobTemplate")
    overlap = None
    if policy == "Allow" and not spec.flag("suspend") and not _ends_in_time(thing, template, schedule):
        at = spec.at("concurrencyPolicy") or at
        said = "concurrencyPolicy: Allow" + ("" if spec.at("concurrencyPolicy") else ", the default")
        overlap = Overlap(f'schedule "{schedule}", {said}', at.where)
    found = _demand(thing, template.need("spec"), template.at("metadata"), overlap, history_of(spec))
    because = suspended_reason(spec, queued=False)
    if because is not None and isinstance(found, Demand):
        return replace(found, only_at_most=because)
    return found


def _ends_in_time(thing: Object, template: Part, schedule: str) -> bool:
    """Whether a deadline ends each Job, its pods' grace included, before the schedule can start the next."""
    spec = template.need("spec")
    deadline = spec.count("activeDeadlineSeconds", 0)
    if not deadline or thing.owner_by(template.at("metadata")).is_queued:
        return False  # in a queue the deadline begins when Kueue lets it go
    grace = spec.need("template", "spec").count("terminationGracePeriodSeconds", 30)
    least = least_gap([schedule], thing.spec.text("timeZone"))
    return least is not None and deadline + grace < least


class ReplicatedJob(NamedTuple):
    """So many Jobs alike."""

    name: str
    pods: int
    """Of all of them, at the same time."""
    pod: Pod
    after: tuple[str, ...]
    """Those that must have ended before it starts; one that must only be ready lives on beside it."""
    part: Part
    where: Where


def job_set(thing: Object) -> Demand | PassiveObject:
    """All pods live together, unless a Job starts when another has ended."""
    spec = thing.spec
    jobs = replicated_jobs(spec, thing.owner)
    claims = shared_claims(spec.at("volumeClaimPolicies"), thing.name)
    group = pod_group(thing, [job.pod for job in jobs])
    if group is not None:
        jobs = [job._replace(pod=in_volcano_queue(JOBSET_BY_VOLCANO, job.pod)) for job in jobs]
    found = demand_of_jobs(thing, jobs, suspended_reason(spec, thing.owner.is_queued), claims)
    if group is None or isinstance(found, PassiveObject):
        return found
    return replace(found, unseen=(*found.unseen, queued_by_volcano(found, group)))


def replicated_jobs(spec: Part, owner: Owner) -> list[ReplicatedJob]:
    """The Jobs that a JobSet lists."""
    found: list[ReplicatedJob] = []
    for part in spec.need("replicatedJobs").items():
        name = part.text("name") or ""
        if not name or any(name == each.name for each in found):
            raise part.fault("has no name" if not name else f'is the second one called "{name}"')
        job = part.need("template", "spec")
        pods = job_pods(job, owner)
        ended = tuple(_awaited_jobs(part, {each.name for each in found}))
        where = job.need("template").key_where
        found.append(ReplicatedJob(name, part.count("replicas", 1) * pods.at_once, pods.pod, ended, part, where))
    policy = spec.at("startupPolicy")
    if policy is not None:
        policy.text("startupPolicyOrder", None, ("InOrder", "AnyOrder"))
    return found


def _awaited_jobs(part: Part, before: set[str]) -> list[str]:
    """The Jobs that one waits for until they have ended. Only those listed before it can be named."""
    found = []
    for each in part.items_at("dependsOn"):
        name = each.text("name") or ""
        if name not in before:
            raise each.fault(f'waits for "{name}", which is no replicatedJob before it')
        if each.text("status", "Ready", ("Ready", "Complete")) == "Complete":
            found.append(name)
    return found


def demand_of_jobs(
    thing: Object, jobs: Sequence[ReplicatedJob], only: str | None, claims: list[ClaimDemand]
) -> Demand | PassiveObject:
    """The demand of Jobs that belong together."""
    jobs = [job._replace(pod=with_shared_claims(job.pod, claims)) for job in jobs if job.pods]
    names = {job.name for job in jobs}
    edges: dict[str, list[str]] = {}
    for job in jobs:
        for before in job.after:
            if before in names:
                edges.setdefault(before, []).append(job.name)
    assert find_cycle(edges) is None  # each waits for earlier ones only
    run = Run()
    if not edges or thing.owner.is_queued:
        if edges:
            only = only or "Kueue reserves quota for all replicatedJobs at once, and some start when others have ended"
        where = jobs[0].where if jobs else thing.root.where
        run.add_gang(thing.name, [(job.name, job.pods, job.pod) for job in jobs], where)
        return run.demand(thing, only_at_most=only, claims=tuple(claims))
    for job in jobs:
        run.add_gang(job.name, [("main", job.pods, job.pod)], job.where)
    return run.demand(thing, edges, only_at_most=only, claims=tuple(claims))


def replicas(thing: Object, claims: Part | None = None) -> Demand | PassiveObject:
    """All replicas live at once. They never end, so what does not fit now never will: they count together."""
    count = thing.spec.count("replicas", 1)
    template = thing.spec.need("template")
    pod = with_own_claims(pod_of(template, thing.owner), claims, thing.name)
    if count == 0:
        return thing.passive("it has replicas: 0")
    run = Run()
    run.add_gang(thing.name, [("main", count, pod)], template.key_where)
    found = run.demand(thing)
    return found if isinstance(found, PassiveObject) else replace(found, size=_size_of(thing))


def deployment(thing: Object) -> Demand | PassiveObject:
    """The same; what an update adds on top is said in a finding of its own."""
    surge_of(thing.spec, 1)  # so that a number that cannot be read is said
    return replicas(thing)


def stateful_set(thing: Object) -> Demand | PassiveObject:
    """The same, with the claims of each replica. One after the other or all at once: in the end they all run."""
    thing.spec.text("podManagementPolicy", "OrderedReady", ("OrderedReady", "Parallel"))
    return replicas(thing, thing.spec.at("volumeClaimTemplates"))


def _size_of(thing: Object) -> SizeRange | None:
    """The sizes between which a HorizontalPodAutoscaler of the files keeps the object."""
    library, home = thing.library, thing.library.seen_from(thing.document).namespace
    near = [each for each in library.documents if library.seen_from(each).namespace == home]
    scalers = [each for each in near if each.kind == "HorizontalPodAutoscaler"]
    found = (sizes_of(each.tree, f"{thing.document.kind} {thing.name}", each.where("spec")) for each in scalers)
    return next(filter(None, found), None)


def daemon_set(thing: Object) -> Demand | PassiveObject:
    """A pod on each node that it selects: how many there are stands in no file."""
    template = thing.spec.need("template")
    run = Run()
    why = "a DaemonSet has one pod on each node that its pods may go to, and which nodes there are is not in the file"
    run.add_copies(thing.name, pod_of(template, thing.owner), Unknown(why), template.key_where)
    return run.demand(thing)


def leader_worker_set(thing: Object) -> Demand | PassiveObject:
    """Replicas that are groups: a leader and its workers."""
    count = thing.spec.count("replicas", 1)
    group = thing.spec.need("leaderWorkerTemplate")
    size = group.count("size", 1, least=1)
    template = group.need("workerTemplate")
    claims = group.at("volumeClaimTemplates")
    worker = with_own_claims(pod_of(template, thing.owner), claims, thing.name)
    own = group.at("leaderTemplate")
    leader = worker if own is None else with_own_claims(pod_of(own, thing.owner), claims, thing.name)
    if count == 0:
        return thing.passive("it has replicas: 0")
    run = Run()
    # Kueue takes each group as a workload of its own; without it, none ever makes room for another.
    each, copies = (1, count) if thing.owner.is_queued else (count, 1)
    sets = [("leader", each, leader), ("workers", each * (size - 1), worker)]
    run.add_gang(thing.name, sets, template.key_where, copies=copies)
    return run.demand(thing)


POD_GROUP_KIND: Final = "PodGroup"


def volcano_job(thing: Object) -> Demand | PassiveObject:
    """All pods together, where the job needs all of them; else each task's pods come as there is room."""
    spec = thing.spec
    scheduler = spec.text("schedulerName", "volcano") or "volcano"
    priority = spec.text("priorityClassName")
    tasks: list[tuple[str, int, Pod, Where]] = []
    only = None
    for index, part in enumerate(spec.need("tasks").items()):
        template = part.need("template")
        pod = pod_of(template, thing.owner)
        of_job = {"schedulerName": scheduler, **({"priorityClassName": priority} if priority else {})}
        pod = in_volcano_queue(VOLCANO, {**pod, "spec": {**of_job, **pod["spec"]}})
        name = part.text("name") or f"default{index}"
        if any(name == each for each, _, _, _ in tasks):
            raise part.fault(f'is the second task called "{name}"')
        tasks.append((name, part.count("replicas", 0), pod, template.key_where))
        if part.at("dependsOn") is not None:
            only = "tasks wait for each other (dependsOn), and may not all run at the same time"
    total = sum(count for _, count, _, _ in tasks)
    least = spec.count("minAvailable", total) or total
    run = Run()
    if least >= total and tasks:
        run.add_gang(thing.name, [(name, count, pod) for name, count, pod, _ in tasks], tasks[0][3])
    else:
        for name, count, pod, where in tasks:
            if count:
                run.add_copies(name, pod, count, where)
    found = run.demand(thing, only_at_most=only)
    if isinstance(found, PassiveObject):
        return found
    return replace(found, unseen=(queued_by_volcano(found, spec),))


def in_volcano_queue(kind: GangKind, pod: Pod) -> Pod:
    """The pod as one of an object that waits in a queue of Volcano's."""
    metadata = pod["metadata"]
    annotations = {**metadata.get("annotations", {}), MADE_BY: kind.word}
    return {**pod, "metadata": {**metadata, "annotations": annotations}}


def queued_by_volcano(found: Demand, spec: Part) -> UnseenPart:
    """What is not known of a demand whose queue stands in the spec of a Job of Volcano, or of a PodGroup."""
    queue = spec.at("queue")
    where = spec.key_where if queue is None else queue.key_where
    return volcano_queue_unseen(found.steps[0].name, spec.text("queue"), where)


def pod_group(thing: Object, pods: Sequence[Pod]) -> Part | None:
    """The spec of the PodGroup that these pods are of; None where there is none, or where it was not given.

    It stands beside an object that a launcher of ours makes, and else in a document of its own.
    """
    if thing.root.at(POD_GROUP.key) is not None:
        return thing.root.need(POD_GROUP.key, "spec")
    names = {str(name) for pod in pods if (name := pod["metadata"].get("annotations", {}).get(GROUP))}
    found = [each for name in sorted(names) if (each := thing.library.find(POD_GROUP_KIND, name)) is not None]
    of_volcano = [each for each in found if each.group == POD_GROUP.group]
    return Part(of_volcano[0], (), of_volcano[0].tree).need("spec") if of_volcano else None
