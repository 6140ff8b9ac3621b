"""Jobs of Kubernetes, and what starts them by the clock."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from gpuflow.demands.model import Demand, Overlap
from gpuflow.readers.frame import Passive
from gpuflow.readers.kubernetes.building import Object, Run, suspended
from gpuflow.readers.kubernetes.owner import Owner
from gpuflow.readers.kubernetes.parts import Part
from gpuflow.readers.kubernetes.pods import Pod, pod_of

MIN_PARALLELISM: Final = "kueue.x-k8s.io/job-min-parallelism"
"""With this annotation Kueue may admit fewer pods than the Job asks for."""


class JobPods(NamedTuple):
    """The pods of one Job."""

    pod: Pod
    at_once: int
    """How many live at the same time."""
    completions: int | None
    """How many must succeed; None: until one of them says that the work is done."""
    is_indexed: bool
    tries: int

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
    if indexed and completions is None:
        raise spec.fault("has completionMode Indexed and no completions", "say how many indexes there are")
    if completions is None and spec.at("parallelism") is None:
        completions = 1
    for key in ("activeDeadlineSeconds", "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes"):
        spec.count(key, 0)
    _policy(spec)
    pod = pod_of(spec.need("template"), owner)
    at_once = parallelism if completions is None else min(parallelism, completions)
    return JobPods(pod, at_once, completions, indexed, 1 + spec.count("backoffLimit", 6))


def _policy(spec: Part) -> None:
    policy = spec.at("podFailurePolicy")
    if policy is not None:
        for rule in policy.need("rules").items():
            rule.text("action", None, ("FailJob", "FailIndex", "Ignore", "Count"))


def job(thing: Object) -> Demand | Passive:
    """A Job."""
    return _demand(thing, thing.spec, thing.root.at("metadata"))


def _demand(thing: Object, spec: Part, metadata: Part | None, overlap: Overlap | None = None) -> Demand | Passive:
    owner = thing.owner_by(metadata)
    annotations = {} if metadata is None else metadata.labels("annotations")
    queued = owner.is_queued
    pods = job_pods(spec, owner)
    only = suspended(spec, queued)
    run = Run()
    where = spec.need("template").key_where
    # Kueue admits a Job with all of its parallel pods or not at all, unless it is told that fewer will do.
    whole = queued and MIN_PARALLELISM not in annotations
    if pods.at_once and (whole or pods.wait_for_each_other):
        run.together(thing.name, [("main", pods.at_once, pods.pod)], where, tries=pods.tries)
    elif pods.at_once:
        copies = pods.at_once if pods.completions is None else pods.completions
        run.apart(thing.name, pods.pod, copies, where, parallel=pods.at_once, tries=pods.tries)
    if queued and not whole:
        only = only or f"Kueue may admit fewer pods: {MIN_PARALLELISM}"
    return run.demand(thing, overlap=overlap, only_at_most=only)


def cron_job(thing: Object) -> Demand | Passive:
    """A Job by the clock."""
    spec = thing.spec
    at = spec.need("schedule")
    schedule = spec.text("schedule")
    if not schedule:
        raise at.fault("is empty")
    policy = spec.text("concurrencyPolicy", "Allow", ("Allow", "Forbid", "Replace"))
    template = spec.need("jobTemplate")
    overlap = None
    if policy == "Allow" and not spec.flag("suspend"):
        at = spec.at("concurrencyPolicy") or at
        said = "concurrencyPolicy: Allow" + ("" if spec.at("concurrencyPolicy") else ", the default")
        overlap = Overlap(f'schedule "{schedule}", {said}', at.where)
    found = _demand(thing, template.need("spec"), template.at("metadata"), overlap)
    because = suspended(spec, queued=False)
    if because is not None and isinstance(found, Demand):
        return replace(found, only_at_most=because)
    return found
