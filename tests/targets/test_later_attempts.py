"""One maker of later attempts, and the checker that judges what it makes.

Tests gpuflow/pod/later_attempts.py and gpuflow/runtime/gangs/later_attempts.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.core.errors import GpuflowError
from gpuflow.demands import demand_of
from gpuflow.pod.later_attempts import memory_by_attempt
from gpuflow.quantity import Quantity
from gpuflow.runtime.gangs.later_attempts import Changes, EarlierAttempts
from gpuflow.site import Site
from gpuflow.spec.canonical import meaning_of
from gpuflow.spec.loading import loads
from gpuflow.spec.policies import MoreMemory
from tests.targets.attempts import (
    GROWING,
    INTERRUPTED,
    Growing,
    Interrupted,
    memory,
    pipeline_of,
    pod_after,
    scheduling,
)


@pytest.mark.parametrize("case", GROWING.values(), ids=list(GROWING))
def test_the_maker_grows_memory_attempt_by_attempt(case: Growing) -> None:
    found = [memory(pod_after(case.text, EarlierAttempts(out_of_memory=times))) for times in range(case.failures + 1)]
    assert found == list(zip(case.requests, case.limits, strict=True))


@pytest.mark.parametrize("engine", ["none", "argo", "airflow"])
@pytest.mark.parametrize("case", GROWING.values(), ids=list(GROWING))
def test_the_checker_judges_the_last_of_them(case: Growing, engine: str) -> None:
    demand = demand_of(pipeline_of(case.text), Site.load("nvidia"), engine)
    later = {each.when: each.pod_sets for each in demand.later}
    grows = (case.requests[0], case.limits[0]) != (case.requests[-1], case.limits[-1])
    assert ("after running out of memory" in later) is grows
    if grows:
        (pods,) = later["after running out of memory"]["a"]
        assert memory(dict(pods.pod["spec"])) == (case.requests[-1], case.limits[-1])


@pytest.mark.parametrize("case", INTERRUPTED, ids=str)
def test_the_maker_and_the_checker_leave_spot_nodes_at_the_same_attempt(case: Interrupted) -> None:
    on_spot = scheduling(pod_after(f"command: [x], {case.gpu}spot: {case.mode}", EarlierAttempts(), case.site))
    plain = scheduling(pod_after(f"command: [x], {case.gpu}spot: never", EarlierAttempts(), case.site))
    assert on_spot != plain
    for times in range(case.interruptions + 1):
        expected = plain if times >= case.after else on_spot
        assert scheduling(pod_after(case.text, EarlierAttempts(interruptions=times), case.site)) == expected
    (*later,) = demand_of(meaning_of(pipeline_of(case.text)), meaning_of(Site.load(case.site))).later
    assert bool(later) is (case.interruptions >= case.after)
    if later:
        (pods,) = later[0].pod_sets["a"]
        assert (later[0].when, scheduling(dict(pods.pod["spec"]))) == ("after losing spot nodes", plain)


@given(
    base=st.integers(1, 2**40),
    factor=st.floats(1.01, 10),
    most=st.integers(1, 2**42),
    failures=st.integers(0, 30),
)
def test_memory_never_shrinks_never_passes_the_most_and_grows_as_often_as_it_may_fail(
    base: int, factor: float, most: int, failures: int
) -> None:
    start, limit = Quantity(str(base)), Quantity(str(most))
    amounts = memory_by_attempt(start, MoreMemory.model_construct(factor=factor, max=limit), failures)
    assert amounts[0] == start
    assert amounts == sorted(amounts)
    assert all(amount <= max(start, limit) for amount in amounts)
    assert len(amounts) <= failures + 1
    assert len(amounts) == failures + 1 or amounts[-1] == max(start, limit)


def test_a_pod_of_somebodys_own_operator_is_never_given_less_memory() -> None:
    spec = {"containers": [{"name": "main", "resources": {"limits": {"memory": "64Gi"}}}]}
    made = Changes("2", "12Gi").spec(spec, EarlierAttempts(out_of_memory=2))
    assert made["containers"][0]["resources"] == {"limits": {"memory": "64Gi"}}


@pytest.mark.parametrize(
    "text",
    [
        "memory: 64Gi, retry: {failures: 1, more_memory: {max: 12Gi}}",
        "memory: {request: 8Gi, limit: 16Gi}, retry: {failures: 1, more_memory: {max: 12Gi}}",
        "memory: {request: 16Gi}, retry: {failures: 1, more_memory: {max: 12Gi}}",
    ],
)
def test_a_most_below_what_the_step_has_is_refused(text: str) -> None:
    with pytest.raises(GpuflowError, match=r"GF195 step \"a\" starts with \d+Gi of memory.*it would get less"):
        pipeline_of(f"command: [x], {text}")


def test_a_most_in_the_defaults_is_refused_where_it_stands() -> None:
    text = (
        "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\n"
        "defaults:\n  image: i:1\n  retry: {failures: 1, more_memory: {max: 12Gi}}\n"
        "steps:\n  small: {command: [x], memory: 8Gi}\n  large: {command: [x], memory: 64Gi}\n"
    )
    with pytest.raises(GpuflowError) as refusal:
        loads(text, "p.yaml")
    (finding,) = refusal.value.findings
    assert (finding.code, finding.where.line) == ("GF195", 6)
    assert 'step "large"' in finding.message


def test_kubeflow_has_no_later_attempts_of_its_own_and_refuses_each_by_name() -> None:
    text = "gpu: l4, memory: 1Gi, spot: {mode: prefer, fallback_after: 1}, "
    retry = "retry: {failures: 1, interruptions: 1, other_node: true, more_memory: {max: 8Gi}}"
    refusals = demand_of(pipeline_of(f"command: [x], {text}{retry}"), Site.load("gke"), "kubeflow").refusals
    named = " ".join(finding.message for finding in refusals)
    for construct in ("retry.more_memory", "retry.other_node", "spot.fallback_after"):
        assert f"kubeflow does not support {construct}" in named
