"""Graphs too large for an exact worst moment: a bound proves *always*, and never makes *may queue* certain."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import pytest

from gpuflow.demands import demand_of
from gpuflow.graph.antichain import _flows
from gpuflow.graph.peak import CUT_SHORT
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.whole_scenes import HEAD, NAMESPACE, Body, checked, node

STEPS = 60


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """Every flow ends after its first, simple part, as in a graph that is far too large."""
    _flows.cache_clear()
    with patch("gpuflow.graph.antichain.FLOW", 0), patch("gpuflow.graph.antichain.QUESTION", 0):
        yield


def steps() -> str:
    dice = random.Random(3)
    lines = ["steps:"]
    for index in range(STEPS):
        needs = sorted({dice.randrange(max(0, index - 20), index) for _ in range(3)}) if index else []
        needed = ", ".join(f"s{each}" for each in needs)
        lines.append(f"  s{index}: {{command: [x], cpu: {dice.randrange(1, 30)}, needs: [{needed}]}}")
    return "\n".join(lines) + "\n"


def cpu_peak() -> tuple[int, int, int]:
    """The exact worst moment, what a hurried search reaches, and its bound."""
    pipeline, site = loads(HEAD + steps(), "p.yaml"), Site.load("nvidia")
    exact = demand_of(pipeline, site, "none").peak["requests.cpu"]
    assert exact.bound == "exact"
    with in_a_hurry():
        hurried = demand_of(pipeline, site, "none").peak["requests.cpu"]
    assert (hurried.bound, hurried.because) == ("at-most", CUT_SHORT)
    assert exact.value is not None
    assert hurried.value is not None
    assert hurried.reached is not None
    return exact.value.value, hurried.reached.value, hurried.value.value


def quota(cpu: int) -> Body:
    hard = {"requests.cpu": str(cpu)}
    metadata = {"name": "q", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard},
        "status": {"hard": hard, "used": {"requests.cpu": "0"}},
    }


def test_a_bound_is_between_the_truth_and_twice_of_it() -> None:
    exact, reached, bound = cpu_peak()
    assert reached <= exact < bound < 2 * exact


@pytest.mark.parametrize("room", ["bound", "between", "reached"])
def test_a_quota_line_is_always_within_the_bound_unknown_below_it_and_may_queue_below_what_is_reached(
    room: str,
) -> None:
    _, reached, bound = cpu_peak()
    free = {"bound": bound, "between": bound - 1, "reached": reached - 1}[room]
    with in_a_hurry():
        report = checked(steps(), node("n", cpu="100000", memory="1000Gi"), quota(free))
    line = next(each for each in report.scopes if each.kind == "ResourceQuota")
    assert line.verdict == {"bound": "always", "between": "unknown", "reached": "may-queue"}[room]
    if room == "between":
        (told,) = [each for each in report.findings if each.code == "GF514"]  # once, whatever else is cut short
        assert told.message == (
            f"requests.cpu: quota q leaves {free} of {free}, and the worst moment is at most {bound}, perhaps less: "
            f"{CUT_SHORT}"
        )
        assert told.hint is not None
        assert told.hint.startswith("with parallel: ")


@pytest.mark.parametrize("room", ["bound", "between", "reached"])
def test_nodes_have_always_room_for_the_bound_unknown_below_it_and_not_for_what_is_surely_reached(room: str) -> None:
    _, reached, bound = cpu_peak()
    free = {"bound": bound + 30, "between": max(bound - 30, reached), "reached": 32}[room]
    with in_a_hurry():
        report = checked(steps(), node("n", cpu=str(free), memory="1000Gi"))
    line = next(each for each in report.scopes if each.kind == "Nodes")
    assert line.verdict == {"bound": "always", "between": "unknown", "reached": "may-queue"}[room]
