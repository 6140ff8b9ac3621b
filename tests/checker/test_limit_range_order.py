"""Limit ranges that contradict each other: what they do to a pod is chance, and the report says so.

Tests gpuflow/checker/question.py and gpuflow/checker/rules/pods.py.
"""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from tests.checker.test_verdict import checked, codes, quota

HALF = "steps: {a: {command: [x], cpu: {request: 2}}}"
ORDERS = list(permutations(["1", "4"]))


def limits(name: str, **amounts: dict[str, str]) -> dict[str, Any]:
    spec = {"limits": [{"type": "Container", **amounts}]}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize("amounts", ORDERS)
def test_a_pod_that_one_order_admits_and_another_refuses_is_unknown(amounts: tuple[str, str]) -> None:
    ranges = [limits(name, default={"cpu": amount}) for name, amount in zip("yz", amounts, strict=True)]
    for given in permutations(ranges):
        report = checked(HALF, *given)
        assert (report.verdict, codes(report)) == ("unknown", ["GF523"])
        assert "limit ranges y and z" in report.findings[0].message
        assert "must be less than or equal to cpu limit of 1" in (report.findings[0].kubernetes or "")


@pytest.mark.parametrize("amounts", ORDERS)
def test_a_quota_is_never_blamed_for_what_chance_decides(amounts: tuple[str, str]) -> None:
    sizes = zip("yz", amounts, strict=True)
    conflicting = [limits(name, defaultRequest={"ephemeral-storage": f"{size}Gi"}) for name, size in sizes]
    for given in permutations(conflicting):
        report = checked("steps: {a: {command: [x]}}", *given, quota({"requests.ephemeral-storage": "2Gi"}))
        assert (report.verdict, codes(report)) == ("unknown", ["GF523"])
        assert [scope.verdict for scope in report.scopes] == ["always"]


def test_limit_ranges_that_agree_are_not_spoken_of() -> None:
    same = [limits(name, default={"cpu": "4"}) for name in "ab"]
    assert (checked(HALF, *same).verdict, codes(checked(HALF, *same))) == ("always", [])


def test_a_step_that_says_its_own_amounts_does_not_care() -> None:
    ranges = [limits("y", default={"cpu": "1"}), limits("z", default={"cpu": "4"})]
    assert checked("steps: {a: {command: [x], cpu: 2}}", *ranges).verdict == "always"
