"""Pods that nobody makes more of."""

from __future__ import annotations

from gpuflow.demands.model import Demand
from gpuflow.readers.frame import Passive
from gpuflow.readers.kubernetes.building import Object, Run
from gpuflow.readers.kubernetes.pods import pod_of


def pod(thing: Object) -> Demand | Passive:
    """One pod."""
    run = Run()
    run.together(thing.name, [("main", 1, pod_of(thing.root))], thing.root.where)
    return run.demand(thing)


def pod_template(thing: Object) -> Passive:
    """A template that others copy."""
    return thing.nothing("a PodTemplate only serves others")
