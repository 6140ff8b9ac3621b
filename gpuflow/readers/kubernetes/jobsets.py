"""JobSets: Jobs that belong together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from gpuflow.demands.model import ClaimDemand, Demand
from gpuflow.errors import Where
from gpuflow.graph.order import find_cycle
from gpuflow.readers.frame import Passive
from gpuflow.readers.kubernetes.building import Object, Run, suspended
from gpuflow.readers.kubernetes.claims import shared_claims, with_shared_claims
from gpuflow.readers.kubernetes.jobs import job_pods
from gpuflow.readers.kubernetes.owner import Owner
from gpuflow.readers.kubernetes.parts import Part
from gpuflow.readers.kubernetes.pods import Pod
from gpuflow.readers.kubernetes.volcano import made_by, pod_group, queued_by_volcano
from gpuflow.runtime.gang_kinds import JOBSET_BY_VOLCANO


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


def job_set(thing: Object) -> Demand | Passive:
    """All pods live together, unless a Job starts when another has ended."""
    spec = thing.spec
    jobs = replicated_jobs(spec, thing.owner)
    claims = shared_claims(spec.at("volumeClaimPolicies"), thing.name)
    group = pod_group(thing, [job.pod for job in jobs])
    if group is not None:
        jobs = [job._replace(pod=made_by(JOBSET_BY_VOLCANO, job.pod)) for job in jobs]
    found = demand_of_jobs(thing, jobs, suspended(spec, thing.owner.is_queued), claims)
    if group is None or isinstance(found, Passive):
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
        ended = tuple(_ended(part, {each.name for each in found}))
        where = job.need("template").key_where
        found.append(ReplicatedJob(name, part.count("replicas", 1) * pods.at_once, pods.pod, ended, part, where))
    policy = spec.at("startupPolicy")
    if policy is not None:
        policy.text("startupPolicyOrder", None, ("InOrder", "AnyOrder"))
    return found


def _ended(part: Part, before: set[str]) -> list[str]:
    """The Jobs that one waits for until they have ended. Only those listed before it can be named."""
    waits = part.at("dependsOn")
    found = []
    for each in waits.items() if waits is not None else ():
        name = each.text("name") or ""
        if name not in before:
            raise each.fault(f'waits for "{name}", which is no replicatedJob before it')
        if each.text("status", "Ready", ("Ready", "Complete")) == "Complete":
            found.append(name)
    return found


def demand_of_jobs(
    thing: Object, jobs: Sequence[ReplicatedJob], only: str | None, claims: list[ClaimDemand]
) -> Demand | Passive:
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
        run.together(thing.name, [(job.name, job.pods, job.pod) for job in jobs], where)
        return run.demand(thing, only_at_most=only, claims=tuple(claims))
    for job in jobs:
        run.together(job.name, [("main", job.pods, job.pod)], job.where)
    return run.demand(thing, edges, only_at_most=only, claims=tuple(claims))
