"""Steps whose admission depends on the order in which the API server reads the namespace's LimitRanges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpuflow.checker.quota.namespace import StepAdmission
from gpuflow.checker.wording import listed, where_of
from gpuflow.demands import Demand
from gpuflow.errors import Finding
from gpuflow.kubernetes.admission import Admission, LimitRange, read_limit_range
from gpuflow.quantity import Quantity


def order_dependent(
    demand: Demand, limit_ranges: Sequence[Mapping[str, Any]], admissions: Sequence[StepAdmission]
) -> dict[str, Finding]:
    """One finding for all such steps, under the name of each of them."""
    conflicts = _conflicts(sorted((read_limit_range(each) for each in limit_ranges), key=lambda each: each.name))
    undecided = [one.step.name for one in admissions if _is_order_dependent(one)] if conflicts else []
    if not undecided:
        return {}
    key, names = conflicts[0]
    others = [one.ever for one in admissions if one.step.name == undecided[0]]
    words = next((each.message for one in others for each in (one, *one.alternatives) if each.message), None)
    what = "is admitted or refused" if words else "gets more or less"
    verb = what if len(undecided) == 1 else what.replace("is ", "are ").replace("gets", "get")
    finding = Finding(
        "GF523",
        f"{listed(undecided)} {verb} by chance: limit ranges {' and '.join(names)} give different defaults for {key}, "
        "and Kubernetes reads them in no particular order",
        where_of(demand, undecided[0]),
        f"set the request and the limit of {key} in the step, or have one of the defaults removed",
        severity="warning",
        kubernetes=words,
    )
    return dict.fromkeys(undecided, finding)


def most_expensive(one: StepAdmission) -> StepAdmission:
    """The step with the admission that the rest of the report counts: the most expensive of those that admit it."""
    allowed = [each for each in (one.ever, *one.ever.alternatives) if each.allowed]
    return replace(one, ever=max(allowed, key=_cost)) if allowed else one


def _cost(answer: Admission) -> list[tuple[str, Quantity]]:
    return [(key, Quantity(value)) for key, value in sorted(answer.usage.items())]


def _conflicts(limit_ranges: Sequence[LimitRange]) -> list[tuple[str, tuple[str, str]]]:
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
