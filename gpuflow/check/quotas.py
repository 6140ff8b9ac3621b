"""The quota lines of a namespace against the worst moment of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuflow.check.admission import Admission, Quota, admit, read_quota
from gpuflow.check.advice.waiting import waiting
from gpuflow.check.report import Scope, Verdict
from gpuflow.cluster import Cluster, Manifest
from gpuflow.demand import ALIASES, Bound, Demand, StepDemand, claims_of, peaks_of, tree_of
from gpuflow.errors import Finding, GpuflowError, Where
from gpuflow.graph import safe_parallel
from gpuflow.quantity import Quantity


@dataclass(frozen=True, slots=True)
class Judged:
    """One step before the API server: now, and with nothing else in the namespace."""

    step: StepDemand
    now: Admission
    ever: Admission


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the API server looks at when a pod is created in a namespace."""

    quotas: tuple[tuple[Manifest, Quota], ...]
    limit_ranges: tuple[Mapping[str, Any], ...]
    priority_classes: list[Mapping[str, Any]] | None
    runtime_classes: list[Mapping[str, Any]] | None
    namespace: Mapping[str, Any]

    def judge(self, step: StepDemand) -> Judged:
        """Ask the API server's rules about a step's pod."""
        pod = {"metadata": {"name": step.name.replace(".", "-"), **step.pod["metadata"]}, "spec": step.pod["spec"]}
        real = [quota for _, quota in self.quotas]
        return Judged(step, self._admit(pod, real), self.admit_alone(pod))

    def admit_alone(self, pod: Mapping[str, Any]) -> Admission:
        """What the API server says to a pod when nothing else runs in the namespace."""
        return self._admit(pod, [emptied(quota) for _, quota in self.quotas])

    def _admit(self, pod: Mapping[str, Any], quotas: Sequence[Quota]) -> Admission:
        return admit(
            pod,
            quotas=quotas,
            limit_ranges=self.limit_ranges,
            priority_classes=self.priority_classes,
            runtime_classes=self.runtime_classes,
            namespace=self.namespace,
        )


def surroundings(cluster: Cluster, namespace: str) -> Surroundings:
    """The namespace's own objects and the cluster's classes; a manifest that cannot be read is an error."""
    quotas = tuple((item, _read(item)) for item in cluster.of("ResourceQuota", namespace))
    labels = next(
        (item.body for item in cluster.of("Namespace") if item.name == namespace), {"metadata": {"name": namespace}}
    )
    return Surroundings(
        quotas,
        tuple(item.body for item in cluster.of("LimitRange", namespace)),
        cluster.bodies("PriorityClass"),
        cluster.bodies("RuntimeClass"),
        labels,
    )


def _read(item: Manifest) -> Quota:
    try:
        return read_quota(item.body)
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), item.spoken_of(str(refusal)), "fix the manifest")) from None


def emptied(quota: Quota) -> Quota:
    """The quota as if nothing was used."""
    return quota._replace(used=dict.fromkeys(quota.hard, Quantity.zero))


def scopes(
    demand: Demand, around: Surroundings, judged: Sequence[Judged], runs: int
) -> Iterator[tuple[Scope, Bound, Manifest]]:
    """Each line of each quota that the pipeline touches."""
    for item, quota in around.quotas:
        charges = {
            one.step.name: {_counted(key): amount for key, amount in charge_of(one, quota).items()} for one in judged
        }
        tree = tree_of(demand.pipeline, demand.steps, charges)
        peaks = peaks_of(demand.pipeline, demand.steps, charges)
        for key, amount in claims_of(demand.pipeline).items():
            if key in quota.hard:
                peaks[key] = Bound("exact", amount)
        peaks |= {key: bound for key, bound in _objects(demand).items() if key in quota.hard}
        for key in sorted(quota.hard):
            bound = peaks.get(_counted(key))
            if bound is not None and (bound.value is None or bound.value):
                # A gang runs whole or not at all.
                wholes = (charges[one.step.name].get(_counted(key), Quantity.zero) * one.step.pods for one in judged)
                alone = max(wholes, default=Quantity.zero)
                yield _scope(quota, key, bound, tree, runs, alone), bound, item


def _counted(key: str) -> str:
    """The name under which a demand counts a key: `cpu` in a quota is `requests.cpu`."""
    return f"requests.{key}" if key in ALIASES else key


def _objects(demand: Demand) -> dict[str, Bound]:
    """What stays in the namespace after a step has ended: `count/` keys count finished pods, and every retry is one."""
    steps = demand.pipeline.steps | demand.pipeline.exit
    tries = 0
    for step in demand.steps:
        policy = demand.pipeline.effective(step.name).retry if step.name in steps else None
        if step.copies is None or "." in step.name:
            why = f"how many pods {step.name} leaves behind is only known when it has run"
            return {"count/pods": Bound("unknown", None, why, (step.name,)), **_own_object(demand)}
        tries += step.copies * step.pods * (1 + (policy.failures + policy.interruptions if policy else 0))
    every = tuple(step.name for step in demand.steps)
    because = "every try of every step, because finished pods count until they are deleted"
    return {"count/pods": Bound("at-most", Quantity.from_units(tries), because, every), **_own_object(demand)}


def _own_object(demand: Demand) -> dict[str, Bound]:
    """The object that the engine makes for a run."""
    if demand.engine not in ("argo", "kubeflow"):
        return {}
    return {"count/workflows.argoproj.io": Bound("exact", Quantity.from_units(1))}


def charge_of(one: Judged, quota: Quota) -> dict[str, Quantity]:
    """What the step's pod costs this quota: its totals after the pod when it was empty before."""
    totals = one.ever.used.get(quota.name) if one.ever.allowed else one.ever.usage
    return {key: Quantity(value) for key, value in (totals or {}).items() if key in quota.hard}


def _scope(quota: Quota, key: str, bound: Bound, tree: Any, runs: int, alone: Quantity) -> Scope:
    hard, used = quota.hard[key], quota.used.get(key)
    peak = None if bound.value is None else bound.value * runs
    verdict: Verdict
    if alone > hard or (key == "count/workflows.argoproj.io" and not hard):
        verdict = "never"
    elif peak is None or used is None:
        verdict = "unknown"
    else:
        verdict = "always" if used + peak <= hard else "may-queue"
    safe = None
    if verdict != "always" and used is not None and runs == 1 and not key.startswith("count/"):
        safe = safe_parallel(tree, _counted(key), (hard - used).milli)
    return Scope("ResourceQuota", quota.name, key, verdict, used, hard, peak, bound.witness, safe)


def quota_findings(
    demand: Demand, scope: Scope, bound: Bound, item: Manifest, judged: Sequence[Judged]
) -> Iterator[Finding]:
    """Why a line is not *always*, with the server's own words where a single pod already meets them."""
    if scope.verdict == "always" or scope.used is None:
        return
    if scope.verdict == "never" and not scope.resource.startswith("count/"):
        return  # the step that is too much for the line is named on its own
    steps = ", ".join(scope.witness)
    first = scope.witness[0].split(".")[0] if scope.witness else None
    where = (
        demand.pipeline.where("steps" if first in demand.pipeline.steps else "exit", first or "", key=True)
        if first
        else Where()
    )
    left = scope.hard - scope.used
    if scope.peak is None:
        yield Finding(
            "GF514",
            f"{scope.resource}: the worst moment is unknown: {bound.because}",
            where,
            f'give "{first}" a parallel cap, so that its demand is bounded',
            severity="warning",
        )
        return
    words = next(
        (one.now.message for one in judged if not one.now.allowed and scope.resource in (one.now.message or "")), None
    )
    together = f"{steps} together ask" if len(scope.witness) > 1 else f"{steps} asks"
    hint = waiting(demand.engine, "objects" if scope.resource == "count/pods" else "quota")
    if scope.safe_parallelism is not None:
        hint += f"\nalways admitted with parallel: {scope.safe_parallelism}"
    yield Finding(
        "GF512",
        f"{together} for {scope.peak} of {scope.resource}; quota {scope.name} leaves {left} of {scope.hard}",
        where,
        hint,
        severity="warning",
        kubernetes=words,
    )
