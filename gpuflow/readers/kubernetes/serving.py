"""Kinds whose pods run until somebody stops them."""

from __future__ import annotations

from typing import Any

from gpuflow.demands.model import Demand
from gpuflow.graph import Unknown
from gpuflow.readers.interface import Passive
from gpuflow.readers.kubernetes.demand import Object, Run
from gpuflow.readers.kubernetes.fields import Part
from gpuflow.readers.kubernetes.pods import pod_of, with_own_claims


def replicas(thing: Object) -> Demand | Passive:
    """All replicas live at once. They never end, so what does not fit now never will: they count together."""
    return _replicas(thing, None)


def deployment(thing: Object) -> Demand | Passive:
    """The same; what an update adds on top is said in a finding of its own."""
    surge_of(thing.spec, 1)  # so that a number that cannot be read is said
    return _replicas(thing, None)


def stateful_set(thing: Object) -> Demand | Passive:
    """The same, with the claims of each replica. One after the other or all at once: in the end they all run."""
    thing.spec.text("podManagementPolicy", "OrderedReady", ("OrderedReady", "Parallel"))
    return _replicas(thing, thing.spec.at("volumeClaimTemplates"))


def _replicas(thing: Object, claims: Part | None) -> Demand | Passive:
    count = thing.spec.count("replicas", 1)
    template = thing.spec.need("template")
    pod = with_own_claims(pod_of(template, thing.owner), claims)
    if count == 0:
        return thing.nothing("it has replicas: 0")
    run = Run()
    run.together(thing.name, [("main", count, pod)], template.key_where)
    return run.demand(thing)


def surge_of(spec: Part, count: int) -> int:
    """How many pods a rolling update starts before it stops old ones; a quarter, rounded up, when nothing is said."""
    strategy = spec.at("strategy")
    if strategy is not None and strategy.text("type", "RollingUpdate", ("RollingUpdate", "Recreate")) == "Recreate":
        return 0
    rolling = None if strategy is None else strategy.at("rollingUpdate")
    return share(None if rolling is None else rolling.at("maxSurge"), count, "25%")


def share(part: Part | None, count: int, default: str) -> int:
    """A number, or a percentage of `count` rounded up."""
    value: Any = default if part is None else part.value
    if isinstance(value, str) and value.endswith("%") and value[:-1].isascii() and value[:-1].isdigit():
        if len(value) <= 5:
            return -(-count * int(value[:-1]) // 100)
    elif part is not None and isinstance(value, int):
        return part.whole()
    assert part is not None
    raise part.fault("must be a whole number or a percentage", "write 1 or 25%")


def daemon_set(thing: Object) -> Demand | Passive:
    """A pod on each node that it selects: how many there are stands in no file."""
    template = thing.spec.need("template")
    run = Run()
    why = "a DaemonSet has one pod on each node that its pods may go to, and which nodes there are is not in the file"
    run.apart(thing.name, pod_of(template, thing.owner), Unknown(why), template.key_where)
    return run.demand(thing)


def leader_worker_set(thing: Object) -> Demand | Passive:
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
        return thing.nothing("it has replicas: 0")
    run = Run()
    run.together(thing.name, [("leader", 1, leader), ("workers", size - 1, worker)], template.key_where, copies=count)
    return run.demand(thing)
