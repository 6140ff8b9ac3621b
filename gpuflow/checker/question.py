"""One question to a cluster: a demand with its pods as the engine creates them, and what each part of the cluster says.

A `World` is a reading of the snapshot that may turn out true. `ask` makes a `Question` of it, and the rules of a check
look at nothing else.

Argo gives every pod of a run with a deadline what is left of it as `activeDeadlineSeconds`, except those of exit
steps. Such pods are Terminating to a quota with scopes. Kubeflow runs on Argo and does the same; Airflow does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuflow.checker.hints.refusals import Trials
from gpuflow.checker.pipeline.nodes.mounted_claims import MountedClaims
from gpuflow.checker.pipeline.queues.setup import read_setup
from gpuflow.checker.quota.namespace import NamespacePolicy, StepAdmission, brought_objects, namespace_policy
from gpuflow.checker.quota.peak import QuotaLine, limit_lines, run_claims
from gpuflow.checker.report import LimitLine, Outcome, Verdict
from gpuflow.checker.snapshot.missing_kinds import has_default_queue, needed_kinds
from gpuflow.checker.snapshot.validation import NamespacePart, PreparedCluster
from gpuflow.cluster import Cluster
from gpuflow.core.errors import Finding, Problem, Rule, Severity, Where, list_names, warning
from gpuflow.demands import Demand
from gpuflow.demands.model import Pod, split_mixed_steps
from gpuflow.engines import facts_of
from gpuflow.kubernetes.admission.classes import default_class
from gpuflow.kubernetes.admission.decision import Admission
from gpuflow.kubernetes.admission.limit_range import LimitRange, read_limit_range
from gpuflow.quantity import Quantity


@dataclass(frozen=True, slots=True)
class World:
    """One reading of the snapshot that may turn out true, with the demand as it would be there."""

    demand: Demand
    ready: PreparedCluster
    runs: int
    trials: Trials | None = None
    """None: only the verdict is asked for, and no advice is made."""
    asked_runs: int | None = None
    """As many as the user says there are at once."""

    @property
    def cluster(self) -> Cluster:
        return self.ready.cluster

    @property
    def namespace(self) -> str:
        return self.ready.namespace

    def without_advice(self, **changes: Any) -> World:
        """Another world, of which only the verdict is asked for."""
        return replace(self, trials=None, **changes)


@dataclass(frozen=True, slots=True)
class Question:
    """What rules look at."""

    demand: Demand
    ready: PreparedCluster
    cluster: Cluster
    namespace: str
    runs: int
    policy: NamespacePolicy
    admissions: Sequence[StepAdmission]
    undecided: Mapping[str, Finding]
    """The steps whose admission depends on the order of the LimitRanges."""
    mounted: MountedClaims
    placed: Outcome
    """What queues and nodes say."""
    quota_lines: Sequence[QuotaLine]
    lines: Sequence[LimitLine]
    """Those of quotas, queues and nodes."""
    needed: Mapping[str, str]
    """The kinds of which the pods need some object, and what for."""

    def where(self, step: str) -> Where:
        return self.demand.where(step)


@dataclass(frozen=True, slots=True)
class CheckRule(Rule[Question]):
    verdict: Verdict | None
    """What each of its findings alone makes of the verdict; None: nothing."""


def check_rule(
    *codes: str, severity: Severity = "warning", verdict: Verdict | None = None
) -> Callable[[Callable[[Question], Iterable[Problem | Finding]]], CheckRule]:
    """`@check_rule("GF551")` makes a rule of a check of the function below it."""
    return lambda find: CheckRule(find, codes, severity, verdict)


def ask(world: World) -> Question:
    """Everything at once, and in this order: on it depends which of two unreadable fields is named."""
    cluster, namespace, runs = world.cluster, world.namespace, world.runs
    demand = split_mixed_steps(with_deadline(world.demand))
    brought = (each for each in brought_objects(cluster, namespace) if each not in demand.stored)
    demand = replace(demand, stored=(*demand.stored, *brought))
    policy = namespace_policy(cluster, namespace)
    admissions = policy.admit_steps(demand.steps)
    undecided = order_dependent(demand, policy.limit_ranges, admissions)
    admissions = [_most_expensive(one) if one.step.name in undecided else one for one in admissions]
    mounted = MountedClaims(
        demand,
        run_claims(demand, policy.storage_classes),
        world.ready.storage,
        namespace,
        knows_claims=cluster.bodies("PersistentVolumeClaim", namespace) is not None,
        assumed=cluster.assumed,
        default_class=default_class(policy.storage_classes or ()),
    )
    placed = place_pods(demand, [NamespacePart(world.ready, demand, policy, admissions)], runs, mounted, world.trials)
    quota_lines = list(limit_lines(demand, policy, admissions, runs, has_default_queue(cluster, namespace)))
    lines = [*(line.scope for line in quota_lines), *placed.scopes]
    needed = needed_kinds(cluster, namespace, demand)
    seen = (world.ready, cluster, namespace, runs)
    return Question(demand, *seen, policy, admissions, undecided, mounted, placed, quota_lines, lines, needed)


def place_pods(
    demand: Demand,
    namespaces: Sequence[NamespacePart],
    runs: int,
    claims: MountedClaims | None = None,
    trials: Trials | None = None,
) -> Outcome:
    """What queues and nodes say. Where the snapshot has neither, nothing of what judges them is loaded."""
    ready = namespaces[0].prepared
    node_pools, setup = ready.node_pools, read_setup(ready.cluster, *(each.prepared.namespace for each in namespaces))
    if node_pools is None and setup is None:
        return Outcome()
    from gpuflow.checker.pipeline.placement import placement_outcome

    return placement_outcome(demand, namespaces, node_pools, setup, runs, claims, trials)


def with_deadline(demand: Demand) -> Demand:
    """The demand with the pods as the engine will create them."""
    deadline = demand.deadline
    if deadline is None or not facts_of(demand.engine).writes_active_deadline:
        return demand

    def pod_with_deadline(pod: Pod) -> Pod:
        return {**pod, "spec": {"activeDeadlineSeconds": deadline.seconds, **pod["spec"]}}

    return demand.with_pods(pod_with_deadline, but_exit=True)


def order_dependent(
    demand: Demand, limit_ranges: Sequence[Mapping[str, Any]], admissions: Sequence[StepAdmission]
) -> dict[str, Finding]:
    """The steps whose admission depends on the order in which the API server reads the LimitRanges, under the name of
    each one finding for all."""
    conflicts = _conflicting_defaults(
        sorted((read_limit_range(each) for each in limit_ranges), key=lambda each: each.name)
    )
    undecided = [one.step.name for one in admissions if _is_order_dependent(one)] if conflicts else []
    if not undecided:
        return {}
    key, names = conflicts[0]
    others = [one.ever for one in admissions if one.step.name == undecided[0]]
    words = next((each.message for one in others for each in (one, *one.alternatives) if each.message), None)
    what = "is admitted or refused" if words else "gets more or less"
    verb = what if len(undecided) == 1 else what.replace("is ", "are ").replace("gets", "get")
    text = f"{list_names(undecided)} {verb} by chance: limit ranges {' and '.join(names)} give different defaults for "
    text += f"{key}, and Kubernetes reads them in no particular order"
    hint = f"set the request and the limit of {key} in the step, or have one of the defaults removed"
    finding = warning("GF523", text, demand.where(undecided[0]), hint, kubernetes=words)
    return dict.fromkeys(undecided, finding)


def _most_expensive(one: StepAdmission) -> StepAdmission:
    """The step with the admission that the rest of the report counts: the most expensive of those that admit it."""

    def cost(answer: Admission) -> list[tuple[str, Quantity]]:
        return [(key, Quantity(value)) for key, value in sorted(answer.usage.items())]

    allowed = [each for each in (one.ever, *one.ever.alternatives) if each.allowed]
    return replace(one, ever=max(allowed, key=cost)) if allowed else one


def _conflicting_defaults(limit_ranges: Sequence[LimitRange]) -> list[tuple[str, tuple[str, str]]]:
    """Resources for which two limit ranges give different defaults, with the names of the two."""
    found = []
    for index, first in enumerate(limit_ranges):
        for second in limit_ranges[index + 1 :]:
            for side in ("default_requests", "default_limits"):
                one, other = getattr(first, side), getattr(second, side)
                found += [
                    (key, (first.name, second.name)) for key in sorted(one.keys() & other) if one[key] != other[key]
                ]
    return found


def _is_order_dependent(one: StepAdmission) -> bool:
    """Whether another order of the limit ranges gives another answer, or another charge."""
    answer = one.ever
    return any(
        each.allowed != answer.allowed or (answer.allowed and each.usage != answer.usage)
        for each in answer.alternatives
    )
