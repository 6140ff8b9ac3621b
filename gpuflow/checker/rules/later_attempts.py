"""Later attempts whose pods differ from the first: with more memory after running out of it, off spot nodes after
losing some. The worst moment is that of the first attempts; those that follow must find room as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from gpuflow.checker.outcome import Outcome
from gpuflow.checker.report import Verdict, worst
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand, demand_of
from gpuflow.errors import Finding
from gpuflow.quantity import Quantity
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Spot
from gpuflow.spec.step import Step

MEBI = 2**20
OUTCOMES: dict[Verdict, str] = {
    "may-queue": "may have to wait",
    "unknown": "is not known to find room",
    "never": "can never be admitted",
}

Change = Callable[[Step], dict[str, Any]]
"""What is different in the last attempt of a step; nothing when it is like the first."""


class Later(NamedTuple):
    """The pipeline as it is when all these steps are at their last attempt."""

    steps: tuple[str, ...]
    when: str
    demand: Demand


def later_outcome(first: Outcome, demand: Demand, check: Callable[[Demand], Outcome]) -> Outcome:
    """What later attempts add to the outcome of the first. None of them is sure to come, so that none means *never*."""
    verdicts: list[Verdict] = []
    findings = []
    for later in _later(demand):
        outcome = check(later.demand)
        if worst((first.verdict, outcome.verdict)) == first.verdict:
            continue
        verdicts.append("unknown" if outcome.verdict == "unknown" else "may-queue")
        known = {(each.code, each.message) for each in first.findings}
        new = [each for each in outcome.findings if (each.code, each.message) not in known and each.severity != "note"]
        reasons = [f"{each.code} {each.message}" for each in new]
        findings.append(
            Finding(
                "GF525",
                f"{listed(later.steps)}: {later.when}, a later attempt {OUTCOMES[outcome.verdict]}",
                where_of(demand, later.steps[0]),
                "\n".join((*reasons[:2], "make room for that attempt too, or take the policy out of retry or spot")),
                severity="warning",
                kubernetes=next((each.kubernetes for each in new if each.kubernetes), None),
            )
        )
    return Outcome(worst(verdicts), findings=tuple(findings))


def _later(demand: Demand) -> Iterator[Later]:
    for change, when in ((_more_memory, "after running out of memory"), (_on_demand, "after losing spot nodes")):
        names: list[str] = []
        pipeline = _changed(demand.pipeline, change, "", names)
        if names:
            yield Later(tuple(names), when, demand_of(pipeline, demand.site, demand.engine))


def _changed(pipeline: Pipeline, change: Change, prefix: str, names: list[str]) -> Pipeline:
    """The pipeline with every step that changes at its last attempt; `names` gets theirs."""
    sections = {}
    for section in ("steps", "exit"):
        steps: dict[str, Step] = dict(getattr(pipeline, section))
        for name, step in steps.items():
            if step.pipeline is not None:
                update: dict[str, Any] = {"pipeline": _changed(step.pipeline, change, f"{prefix}{name}.", names)}
            else:
                update = change(pipeline.effective(name))
                names += [prefix + name] if update else []
            steps[name] = step.model_copy(update=update) if update else step
        sections[section] = steps
    return pipeline.model_copy(update=sections)


def nodes_avoided(demand: Demand) -> dict[str, int]:
    """Of each step that tries again on another node, how many nodes its last attempt keeps away from."""
    return dict(_avoided(demand.pipeline, "", demand.engine))


def _avoided(pipeline: Pipeline, prefix: str, engine: str) -> Iterator[tuple[str, int]]:
    for name in (*pipeline.steps, *pipeline.exit):
        step = pipeline.effective(name)
        if step.pipeline is not None:
            yield from _avoided(step.pipeline, f"{prefix}{name}.", engine)
        elif step.retry is not None and step.retry.other_node:
            # Argo keeps away from the nodes of all attempts, others from those of failures.
            yield prefix + name, step.retry.failures + (step.retry.interruptions if engine == "argo" else 0)


def _more_memory(step: Step) -> dict[str, Any]:
    policy = step.retry.more_memory if step.retry is not None else None
    if policy is None or step.memory is None or step.retry is None or not step.retry.failures:
        return {}
    times, most = step.retry.failures, policy.max

    def grown(amount: Quantity | None) -> Quantity | None:
        """As in the targets: so many times more, in whole mebibytes, and never above the policy's most."""
        if amount is None or amount >= most:
            return amount
        return min(Quantity(f"{-int(-amount.value * policy.factor**times // MEBI)}Mi"), most)

    memory = step.memory.model_copy(update={"request": grown(step.memory.request), "limit": grown(step.memory.limit)})
    return {} if memory == step.memory else {"memory": memory}


def _on_demand(step: Step) -> dict[str, Any]:
    after = step.spot.fallback_after if step.spot is not None else None
    tries = step.retry.failures + step.retry.interruptions if step.retry is not None else 0
    return {"spot": Spot(mode="never")} if after is not None and tries >= after else {}
