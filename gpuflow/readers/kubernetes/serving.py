"""Kinds whose pods run until somebody stops them."""

from __future__ import annotations

from gpuflow.demands.model import Demand
from gpuflow.graph import Unknown
from gpuflow.readers.interface import PassiveObject
from gpuflow.readers.kubernetes.demand import Object, Run
from gpuflow.readers.kubernetes.fields import Part, surge_of
from gpuflow.readers.kubernetes.pods import pod_of, with_own_claims


def replicas(thing: Object) -> Demand | PassiveObject:
    """All replicas live at once. They never end, so what does not fit now never will: they count together."""
    return _replicas(thing, None)


def deployment(thing: Object) -> Demand | PassiveObject:
    """The same; what an update adds on top is said in a finding of its own."""
    surge_of(thing.spec, 1)  # so that a number that cannot be read is said
    return _replicas(thing, None)


def stateful_set(thing: Object) -> Demand | PassiveObject:
    """The same, with the claims of each replica. One after the other or all at once: in the end they all run."""
    thing.spec.text("podManagementPolicy", "OrderedReady", ("OrderedReady", "Parallel"))
    return _replicas(thing, thing.spec.at("volumeClaimTemplates"))


def _replicas(thing: Object, claims: Part | None) -> Demand | PassiveObject:
    count = thing.spec.count("replicas", 1)
    template = thing.spec.need("template")
    pod = with_own_claims(pod_of(template, thing.owner), claims)
    if count == 0:
        return thing.passive("it has replicas: 0")
    run = Run()
    run.add_gang(thing.name, [("main", count, pod)], template.key_where)
    return run.demand(thing)


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
    worker = with_own_claims(pod_of(template, thing.owner), claims)
    own = group.at("leaderTemplate")
    leader = worker if own is None else with_own_claims(pod_of(own, thing.owner), claims)
    if count == 0:
        return thing.passive("it has replicas: 0")
    run = Run()
    run.add_gang(thing.name, [("leader", 1, leader), ("workers", size - 1, worker)], template.key_where, copies=count)
    return run.demand(thing)
