"""What must hold for every cluster and workload."""

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.checker.kueue import Kueue
from tests.checker.kueue.questions import GPU
from tests.checker.kueue.scenes import asked, cluster_queue, cohort, holder, pod_set, scene, workload

AMOUNT = st.integers(0, 6)
POLICY = st.fixed_dictionaries(
    {
        "withinClusterQueue": st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"]),
        "reclaimWithinCohort": st.sampled_from(["Never", "LowerPriority", "Any"]),
    }
)


def quotas(draw: Any, limits: bool) -> dict[str, Any]:
    def quota() -> dict[str, str]:
        limit = {"borrowingLimit": str(draw(AMOUNT))} if limits and draw(st.booleans()) else {}
        return {"nominalQuota": str(draw(AMOUNT)), **limit}

    return {name: {"cpu": quota(), GPU: quota()} for name in ("a", "b")}


@st.composite
def scenes(draw: st.DrawFn, preemption: bool = True) -> dict[str, Any]:
    """Up to three queues below two cohorts, what they hold, and a workload of one pod set."""
    queues = [
        cluster_queue(
            quotas(draw, limits=True),
            name="cq" if index == 0 else f"cq{index}",
            cohortName=draw(st.sampled_from(["team", "org"])),
            **({"preemption": draw(POLICY)} if preemption else {}),
        )
        for index in range(draw(st.integers(1, 3)))
    ]
    held = [
        holder(
            f"held{index}",
            {draw(st.sampled_from("ab")): {"cpu": str(draw(AMOUNT)), GPU: str(draw(AMOUNT))}},
            queue=draw(st.sampled_from(queues))["metadata"]["name"],
            priority=draw(st.integers(0, 2)),
            minute=10 + index,
        )
        for index in range(draw(st.integers(0, 4)))
    ]
    asking = workload(
        pod_set(count=draw(st.integers(1, 3)), cpu=str(draw(AMOUNT)), gpu=str(draw(AMOUNT))), priority=draw(AMOUNT)
    )
    return scene(asking, *queues, cohorts=[cohort("team", parentName="org")], held=held)


def pods(case: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = case["workload"]["spec"]["podSets"][0]
    return found


@given(scenes(preemption=False))
@settings(deadline=None)
def test_more_quota_never_takes_a_fit_away(case: dict[str, Any]) -> None:
    richer = copy.deepcopy(case)
    for group in richer["clusterQueues"][0]["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            for quota in flavor["resources"]:
                quota["nominalQuota"] = str(int(quota["nominalQuota"]) + 5)
    before, after = asked(case), asked(richer)
    assert before.verdict != "fit" or after.verdict == "fit"
    assert before.verdict == "never" or after.verdict != "never"


@given(scenes(preemption=False))
@settings(deadline=None)
def test_fewer_pods_fit_where_more_do(case: dict[str, Any]) -> None:
    smaller = copy.deepcopy(case)
    pods(smaller)["count"] = 1
    assert not asked(case).fits or asked(smaller).fits


@given(scenes())
@settings(deadline=None)
def test_never_does_not_depend_on_what_others_hold(case: dict[str, Any]) -> None:
    alone = asked({**case, "admitted": []})
    assert alone.verdict in ("fit", "never")
    assert (asked(case).verdict == "never") == (alone.verdict == "never")


@given(scenes())
@settings(deadline=None)
def test_never_says_what_would_be_wrong_on_an_empty_cluster(case: dict[str, Any]) -> None:
    answer = asked(case)
    if answer.verdict == "never":
        assert answer.because == asked({**case, "admitted": []}).message
        assert "unused" not in (answer.because or "")
    else:
        assert answer.because is None


@given(scenes())
@settings(deadline=None)
def test_whoever_is_to_be_preempted_makes_room(case: dict[str, Any]) -> None:
    answer = asked(case)
    assert (answer.verdict == "preempt") == bool(answer.targets)
    left = [each for each in case["admitted"] if f"team-a/{each['metadata']['name']}" not in answer.targets]
    if answer.targets:
        assert asked({**case, "admitted": left}).fits


@given(scenes(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_what_is_given_does_not_matter(case: dict[str, Any], shuffled: Any) -> None:
    other = copy.deepcopy(case)
    for kind in ("flavors", "cohorts", "clusterQueues", "admitted"):
        shuffled.shuffle(other[kind])
    assert asked(case) == asked(other)


@given(scenes(), scenes())
@settings(deadline=None)
def test_asking_changes_nothing(case: dict[str, Any], other: dict[str, Any]) -> None:
    given_case = copy.deepcopy(case)
    kueue = Kueue(
        flavors=case["flavors"],
        cluster_queues=case["clusterQueues"],
        local_queues=case["localQueues"],
        cohorts=case["cohorts"],
        admitted=case["admitted"],
        namespaces=case["namespaces"],
    )
    first = kueue.assign(case["workload"])
    kueue.assign(other["workload"])
    assert kueue.assign(case["workload"]) == first == asked(case)
    assert case == given_case
