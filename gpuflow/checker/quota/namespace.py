"""The quota lines of a namespace against the worst moment of a pipeline."""

from __future__ import annotations

import marshal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from gpuflow.checker.quota.claims import charges_of_claims, counts_claims, run_claims, where_of_claims
from gpuflow.checker.report import LimitLine, Verdict
from gpuflow.checker.wording import asking
from gpuflow.cluster import Cluster, Manifest
from gpuflow.demands import ALIASES, Bound, Demand, StepDemand, peaks_of
from gpuflow.demands.model import summed
from gpuflow.demands.peaks import Usage, tree_of
from gpuflow.engines import RunObject, facts_of
from gpuflow.errors import Finding, GpuflowError, Where
from gpuflow.graph import safe_parallel
from gpuflow.kubernetes.admission import Admission, Quota, admit, read_quota
from gpuflow.kubernetes.admission.quota import Exceeded, UsageUnknown
from gpuflow.quantity import Quantity

COUNTED_PODS: Final = "count/pods"

Charges = Mapping[str, Mapping[str, Quantity]]
"""What one copy of each step costs, all its pods together, by quota key."""


@dataclass(frozen=True, slots=True)
class StepAdmission:
    """One step before the API server: now, and with nothing else in the namespace."""

    step: StepDemand
    now: Admission
    ever: Admission
    shape: bytes
    """Equal for pods that the API server cannot tell apart."""


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """What the API server looks at when a pod is created in a namespace."""

    quotas: tuple[tuple[Manifest, Quota], ...]
    limit_ranges: tuple[Mapping[str, Any], ...]
    priority_classes: list[Mapping[str, Any]] | None
    runtime_classes: list[Mapping[str, Any]] | None
    namespace: Mapping[str, Any]
    storage_classes: list[Mapping[str, Any]] | None = None

    def admit_steps(self, steps: Iterable[StepDemand]) -> list[StepAdmission]:
        """Ask the API server's rules about every step's pod; of pods that differ in their commands only, about one."""
        known: dict[bytes, StepAdmission] = {}
        found = []
        for step in steps:
            metadata = {"name": step.object_name, **step.pod["metadata"]}
            first = known.get(shape := _shape(step.pod))
            if first is not None and first.now.allowed and first.ever.allowed:
                found.append(StepAdmission(step, first.now.of_twin(metadata), first.ever.of_twin(metadata), shape))
                continue
            one = self._admit_step(step, {"metadata": metadata, "spec": step.pod["spec"]}, shape)
            known[shape] = one
            found.append(one)
        return found

    def _admit_step(self, step: StepDemand, pod: Mapping[str, Any], shape: bytes) -> StepAdmission:
        return StepAdmission(step, self._admit(pod, [quota for _, quota in self.quotas]), self.admit_alone(pod), shape)

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


def namespace_policy(cluster: Cluster, namespace: str) -> NamespacePolicy:
    """The namespace's own objects and the cluster's classes; a manifest that cannot be read is an error."""
    quotas = tuple((item, _read(item)) for item in cluster.of("ResourceQuota", namespace))
    labels = next(
        (item.body for item in cluster.of("Namespace") if item.name == namespace), {"metadata": {"name": namespace}}
    )
    return NamespacePolicy(
        quotas,
        tuple(item.body for item in sorted(cluster.of("LimitRange", namespace), key=lambda each: each.name)),
        cluster.bodies("PriorityClass"),
        cluster.bodies("RuntimeClass"),
        labels,
        cluster.bodies("StorageClass"),
    )


def _shape(pod: Mapping[str, Any]) -> bytes:
    """Everything of a pod that the API server may look at: all but its name, its labels and what its containers run."""
    spec = dict(pod["spec"])
    for field in ("containers", "initContainers"):
        spec[field] = [
            {key: value for key, value in container.items() if key not in ("command", "args")}
            for container in spec.get(field, ())
        ]
    return marshal.dumps((spec, pod["metadata"].get("annotations")), 2)


def _read(item: Manifest) -> Quota:
    try:
        return read_quota(item.body)
    except ValueError as refusal:
        raise GpuflowError(Finding("GF403", str(refusal), item.at_fault(refusal), "fix the manifest")) from None


def emptied(quota: Quota) -> Quota:
    """The quota as if nothing was used."""
    return quota._replace(used=dict.fromkeys(quota.hard, Quantity.zero))


def limit_lines(
    demand: Demand, policy: NamespacePolicy, admissions: Sequence[StepAdmission], runs: int
) -> Iterator[tuple[LimitLine, Bound, Manifest]]:
    """Each line of each quota that the pipeline touches."""
    claims = charges_of_claims(run_claims(demand, policy.storage_classes))
    driver, made = driver_admission(demand, policy), _run_objects(demand)
    counted: dict[tuple[object, ...], Counted] = {}
    for item, quota in policy.quotas:
        if quota.scopes not in counted:
            alike = [other for _, other in policy.quotas if other.scopes == quota.scopes]
            counted[quota.scopes] = _count(demand, alike, admissions, driver)
        own = counted[quota.scopes]
        peaks = {key: bound for key, bound in own.peaks.items() if _is_counted(key, quota)}
        if counts_claims(quota):
            peaks |= {key: Bound("exact", amount) for key, amount in claims.items() if key in quota.hard}
        objects = _objects(demand, own.charges, own.before, quota)
        peaks |= {key: bound for key, bound in objects.items() if key in quota.hard}
        for key in sorted(quota.hard):
            bound = peaks.get(_counted(key))
            if bound is not None and (bound.value is None or bound.value):
                # A gang runs whole or not at all, and a run needs all its claims.
                wholes = (charge.get(_counted(key), Quantity.zero) for charge in own.distinct)
                alone = max(*wholes, claims.get(key, Quantity.zero), Quantity.zero)
                tree = None if key in claims else own.tree
                yield _limit_line(quota, key, bound, tree, runs, None if key in made else alone), bound, item


class Counted(NamedTuple):
    """What the steps cost quotas that count the same pods, and the worst moment of each key."""

    charges: Charges
    before: Mapping[str, Quantity]
    """What the engine's driver costs, before a step."""
    distinct: list[Mapping[str, Quantity]]
    """The charges that differ."""
    tree: Any
    peaks: Mapping[str, Bound]


def _count(
    demand: Demand, quotas: Sequence[Quota], admissions: Sequence[StepAdmission], driver: Admission | None
) -> Counted:
    """Several quotas of a namespace often have keys in common: each key is asked about once."""
    before = {} if driver is None else _charges(driver, quotas)
    known: dict[tuple[bytes | str, int], Usage] = {}  # steps whose pods are alike share one answer
    charges: dict[str, Usage] = {}
    for one in admissions:
        key = (one.shape if one.ever.allowed else one.step.name, one.step.pods)
        if key not in known:
            known[key] = summed([(_step_charge(_charges(one.ever, quotas), before), one.step.pods)])
        charges[one.step.name] = known[key]
    return Counted(
        charges,
        before,
        [*known.values(), *_mixed_gangs(demand, charges)],
        tree_of(demand.graph, charges),
        peaks_of(demand.graph, charges, demand.conditional),
    )


def _mixed_gangs(demand: Demand, charges: Charges) -> Iterator[Usage]:
    """What gangs cost whose pods differ: they run whole or not at all."""
    return (summed((charges[part.name], 1) for part in parts) for parts in demand.gangs.values() if len(parts) > 1)


def _charges(answer: Admission, quotas: Sequence[Quota]) -> dict[str, Quantity]:
    return {key: amount for quota in quotas for key, amount in _charge(answer, quota).items()}


def _is_counted(key: str, quota: Quota) -> bool:
    return any(_counted(each) == key for each in quota.hard)


def _counted(key: str) -> str:
    """The name under which a demand counts a key: `cpu` in a quota is `requests.cpu`."""
    return f"requests.{key}" if key in ALIASES else key


def _step_charge(own: Mapping[str, Quantity], before: Mapping[str, Quantity]) -> dict[str, Quantity]:
    """The larger of what the engine's driver and the step's own pod cost: the one ends before the other starts."""
    both = {key: max(own.get(key, Quantity.zero), before.get(key, Quantity.zero)) for key in {**own, **before}}
    return {_counted(key): amount for key, amount in both.items()}


def _objects(demand: Demand, charges: Charges, before: Mapping[str, Quantity], quota: Quota) -> dict[str, Bound]:
    """What stays in the namespace after a step has ended: `count/` keys count finished pods, and every retry is one.

    Scopes are about pods: a quota that has some counts the pods within them and no other objects.
    """
    counted = [step for step in demand.steps if charges[step.name].get(COUNTED_PODS)]
    found = {COUNTED_PODS: _pods_left(counted, COUNTED_PODS in before)}
    for key, made in _run_objects(demand).items() if not quota.scopes else ():
        one = Bound("exact", Quantity.from_units(1))
        found[key] = one if made.per == "run" else _pods_left(demand.steps, bool(before))
    return {key: bound for key, bound in found.items() if bound is not None}


def _run_objects(demand: Demand) -> dict[str, RunObject]:
    """What the engine creates beside pods, by quota key."""
    return {each.quota_key: each for each in facts_of(demand.engine).objects_per_run}


def _pods_left(counted: Sequence[StepDemand], driven: bool) -> Bound | None:
    """All pods that a run leaves behind. `driven`: each step has a driver, and so has the run."""
    tries = int(driven)
    for step in counted:
        if step.copies is None:
            why = f"how many pods {step.name} leaves behind is only known when it has run"
            return Bound("unknown", None, why, (step.name,))
        tries += step.copies * (step.pods * step.tries + driven)
    if not tries:
        return None
    because = "every try of every step, because finished pods count until they are deleted"
    return Bound("at-most", Quantity.from_units(tries), because, tuple(step.name for step in counted))


def charge_of(one: StepAdmission, quota: Quota) -> dict[str, Quantity]:
    """What the step's pod costs this quota: its totals after the pod when it was empty before."""
    return _charge(one.ever, quota)


def driver_admission(demand: Demand, policy: NamespacePolicy) -> Admission | None:
    """What the API server says to the pod that the engine runs before every step, when nothing else is there."""
    if demand.driver is None or not demand.steps:
        return None
    pod = demand.driver.pod
    return policy.admit_alone({"metadata": {"name": f"{demand.name}-driver"}, "spec": pod["spec"]})


def _charge(answer: Admission, quota: Quota) -> dict[str, Quantity]:
    totals = answer.used.get(quota.name) if answer.allowed else answer.usage
    return {key: Quantity(value) for key, value in (totals or {}).items() if key in quota.hard}


def _quoted(witness: Sequence[str]) -> str:
    return f'"{witness[0]}"' if witness else "the fan-out"


def _limit_line(quota: Quota, key: str, bound: Bound, tree: Any, runs: int, alone: Quantity | None) -> LimitLine:
    """One line; `alone` is what it must hold at least, None for an object of the engine's own."""
    hard, used = quota.hard[key], quota.used.get(key)
    peak = None if bound.value is None else bound.value * runs
    verdict: Verdict
    if (not hard) if alone is None else alone > hard:
        verdict = "never"
    elif peak is None or used is None:
        verdict = "unknown"
    else:
        verdict = "always" if used + peak <= hard else "may-queue"
    safe = None
    if verdict != "always" and used is not None and runs == 1 and tree is not None and not key.startswith("count/"):
        safe = safe_parallel(tree, _counted(key), (hard - used).milli)
    return LimitLine("ResourceQuota", quota.name, key, verdict, used, hard, peak, bound.witness, safe)


def quota_findings(
    demand: Demand,
    scope: LimitLine,
    bound: Bound,
    item: Manifest,
    admissions: Sequence[StepAdmission],
    safe: int | None,
) -> Iterator[Finding]:
    """Why a line is not *always*, with the server's own words where a single pod already meets them.

    `safe` is the parallelism with which no line of the whole report waits.
    """
    made = _run_objects(demand).get(scope.resource)
    if scope.verdict == "always" or (scope.verdict == "never" and made is None):
        return  # the step that is too much for a line is named on its own
    words = next(
        (
            one.now.message
            for one in admissions
            for reason in one.now.reasons
            if isinstance(reason, Exceeded | UsageUnknown)
            and reason.quota == scope.name
            and reason.names(scope.resource)
        ),
        None,
    )
    if scope.used is None:
        yield Finding(
            "GF576",
            f"quota {scope.name} does not report yet how much of {scope.resource} is in use: what it leaves is unknown",
            item.at("status", "used"),
            "take the snapshot again when Kubernetes has caught up",
            severity="warning",
            kubernetes=words,
        )
        return
    where = (
        demand.where(scope.witness[0]) if scope.witness else Where() if made is not None else where_of_claims(demand)
    )
    left = max(scope.hard - scope.used, Quantity.zero)
    if scope.peak is None:
        yield Finding(
            "GF514",
            f"{scope.resource}: the worst moment is unknown: {bound.because}",
            where,
            f"give {_quoted(bound.witness)} a parallel cap, so that its demand is bounded",
            severity="warning",
        )
        return
    if scope.witness:
        together = asking(scope.witness)
    else:
        together = "the claims of the run ask" if made is None else f"the run's own {made.kind} asks"
    left_behind = scope.resource == COUNTED_PODS or (made is not None and made.per == "pod")
    hint = facts_of(demand.engine).waits["objects" if left_behind else "quota"]
    if safe is not None:
        hint += f"\nalways admitted with parallel: {safe}"
    elif scope.safe_parallelism is not None:
        hint += f"\nwith parallel: {scope.safe_parallelism} this line of the quota always has room"
    yield Finding(
        "GF512",
        f"{together} for {scope.peak} of {scope.resource}; quota {scope.name} leaves {left} of {scope.hard}",
        where,
        hint,
        severity="warning",
        kubernetes=words,
    )
