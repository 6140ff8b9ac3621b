"""The pod of a later attempt: more memory after running out of it, off spot after losing nodes, on another node.

The only place where such a pod is made. Airflow's operator asks for it when it starts the next pod; Argo's expressions
are written from the same amounts and fields, because Argo makes the pod itself; a demand holds the pods of the last
attempts, which the checker counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from gpuflow.quantity import Quantity

if TYPE_CHECKING:
    from gpuflow.site import Site
    from gpuflow.spec.pipeline import Pipeline
    from gpuflow.spec.policies import Retry
    from gpuflow.spec.step import Step

Pod = Mapping[str, Any]
MEBI = 2**20
SCHEDULING = ("nodeSelector", "affinity", "tolerations")
"""What decides between spot and on-demand."""
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@dataclass(frozen=True, slots=True)
class Before:
    """What happened to the attempts before this one."""

    out_of_memory: int = 0
    interruptions: int = 0
    failed_nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MoreMemory:
    """How much more memory an attempt gets after running out of it."""

    factor: float
    max: Quantity

    def amount(self, first: Quantity, times: int) -> Quantity:
        """The memory after running out of it so many times: whole mebibytes, at most `max`, never less than before."""
        if not times or first >= self.max:
            return first
        # A factor is a decimal number that somebody wrote: 1000Mi times 1.1 is 1100Mi, and no float says so.
        grown = first.value * Fraction(str(self.factor)) ** times
        return min(Quantity(f"{-int(-grown // MEBI)}Mi"), self.max)


@dataclass(frozen=True, slots=True)
class Changes:
    """What a step's policies change in later attempts, as plain data."""

    more_memory: MoreMemory | None = None
    fallback_after: int | None = None
    """After so many interruptions the pod leaves spot nodes."""
    on_demand: Mapping[str, Any] = field(default_factory=dict)
    """The fields of the pod's spec that are different then; None: not there."""
    other_node: bool = False

    def pod(self, first: Pod, before: Before) -> dict[str, Any]:
        """The pod of the attempt that comes after all that; `first` is the pod of the first attempt."""
        spec = dict(first["spec"])
        if self.fallback_after is not None and before.interruptions >= self.fallback_after:
            spec = {key: value for key, value in {**spec, **self.on_demand}.items() if value is not None}
        if self.more_memory is not None and before.out_of_memory:
            main = dict(spec["containers"][0])
            main["resources"] = _more(main.get("resources") or {}, self.more_memory, before.out_of_memory)
            spec["containers"] = [main, *spec["containers"][1:]]
        if self.other_node and before.failed_nodes:
            spec["affinity"] = away_from(spec.get("affinity") or {}, before.failed_nodes)
        return {**first, "spec": spec}


def _more(resources: Mapping[str, Any], policy: MoreMemory, times: int) -> dict[str, Any]:
    result = dict(resources)
    for part in ("requests", "limits"):
        amounts = resources.get(part) or {}
        if "memory" in amounts:
            result[part] = {**amounts, "memory": str(policy.amount(Quantity(amounts["memory"]), times))}
    return result


def away_from(affinity: Mapping[str, Any], nodes: Sequence[str]) -> dict[str, Any]:
    """The affinity, and none of these nodes. By their own names: the hostname label may say something else."""
    node_affinity = dict(affinity.get("nodeAffinity") or {})
    elsewhere = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    terms = (node_affinity.get(REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    # Of several terms one is enough for the scheduler, so each of them must say it.
    terms = [{**term, "matchFields": [*term.get("matchFields", ()), *elsewhere]} for term in terms]
    return {**affinity, "nodeAffinity": {**node_affinity, REQUIRED: {"nodeSelectorTerms": terms}}}


def more_memory_of(retry: Retry | None) -> MoreMemory | None:
    """What a step's retry policy says about memory."""
    policy = retry.more_memory if retry is not None else None
    return None if policy is None else MoreMemory(policy.factor, policy.max)


def memory_by_attempt(first: Quantity, policy: MoreMemory, failures: int) -> list[Quantity]:
    """The memory after running out of it 0, 1, 2 … times. Every OOM is a failure, so there are no more steps."""
    amounts = [first]
    while len(amounts) <= failures and amounts[-1] < policy.max:
        amounts.append(policy.amount(first, len(amounts)))
    return amounts


def on_demand_fields(on_spot: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """The scheduling fields of a pod's spec that are different off spot nodes; None: not there."""
    return {
        key: plain.get(key) for key in (*plain, *on_spot) if key in SCHEDULING and plain.get(key) != on_spot.get(key)
    }


def off_spot(pipeline: Pipeline, name: str) -> Pipeline:
    """The same pipeline with one step kept off spot nodes."""
    from gpuflow.spec.policies import Spot

    section = pipeline.section_of(name)
    steps = dict(getattr(pipeline, section))
    steps[name] = steps[name].model_copy(update={"spot": Spot(mode="never")})
    return pipeline.model_copy(update={section: steps})


def attempts(retry: Retry | None) -> int:
    """How often a step may be tried again."""
    return retry.attempts if retry is not None else 0


def falls_back(step: Step) -> bool:
    """Whether the step's budgets allow so many attempts that it leaves spot nodes."""
    return bool(step.spot and step.spot.fallback_after and attempts(step.retry) >= step.spot.fallback_after)


def changes_of(pipeline: Pipeline, name: str, site: Site) -> Changes:
    """What the policies of a step change in its later attempts."""
    from gpuflow.pod.build import pod_for

    step = pipeline.effective(name)
    after, fields = None, {}
    if step.spot is not None and falls_back(step):
        after = step.spot.fallback_after
        plain = pod_for(off_spot(pipeline, name), name, site)
        fields = on_demand_fields(pod_for(pipeline, name, site)["spec"], plain["spec"])
    return Changes(more_memory_of(step.retry), after, fields, step.retry is not None and step.retry.other_node)
