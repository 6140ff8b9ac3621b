"""Whatever is handed in, the answer is a verdict or a `ValueError` that names the fault."""

import copy
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow.checker.kueue import Kueue
from tests.checker.kueue.questions import GPU, QUESTIONS, SMALL
from tests.checker.kueue.scenes import asked, cluster_queue, cohort, flavor, holder, pod_set, scene, with_spec, workload

FITTING = scene(workload(pod_set(gpu="1")), cluster_queue(SMALL))
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["-1", "1e999", "0001-01-01T00:00:00+14:00", "Never", "\ud800"]),
    st.lists(st.none() | st.text(max_size=2), max_size=2),
    st.dictionaries(st.text(max_size=2), st.none() | st.integers(), max_size=2),
)


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container in a manifest with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from places(value[key])


@given(st.sampled_from(sorted(QUESTIONS)), st.data())
@settings(deadline=None, max_examples=300)
def test_a_damaged_manifest_gives_an_answer_or_a_value_error(name: str, data: st.DataObject) -> None:
    case = copy.deepcopy(QUESTIONS[name])
    kinds = ("flavors", "cohorts", "clusterQueues", "localQueues", "admitted", "namespaces", "workload")
    spots = [spot for kind in kinds for spot in places(case[kind])]
    holder_of_value, key = data.draw(st.sampled_from(spots))
    if data.draw(st.booleans()):
        holder_of_value[key] = data.draw(ODD)
    else:
        del holder_of_value[key]
    try:
        answer = asked(case)
    except ValueError:
        return
    assert answer.verdict in ("fit", "preempt", "wait", "never", "blocked")
    assert answer.message


@pytest.mark.parametrize(
    ("case", "fault"),
    [
        (
            scene(workload(pod_set()), cluster_queue({"a": {GPU: "-1"}})),
            "ClusterQueue cq: spec.resourceGroups[0].flavors[a].resources[nvidia.com/gpu].nominalQuota: "
            "-1 is negative; quota is zero or more",
        ),
        (
            scene(workload(pod_set()), cluster_queue({"a": {GPU: "two"}})),
            "ClusterQueue cq: spec.resourceGroups[0].flavors[a].resources[nvidia.com/gpu].nominalQuota: 'two': "
            "quantities must match",
        ),
        (
            scene(workload(pod_set()), cluster_queue(SMALL, stopPolicy="Pause")),
            "ClusterQueue cq: spec.stopPolicy: 'Pause' is not one of None, Hold, HoldAndDrain",
        ),
        (scene(workload(pod_set()), cluster_queue(SMALL), cluster_queue(SMALL)), "two ClusterQueues are called cq"),
        (
            scene(workload(pod_set(), pod_set()), cluster_queue(SMALL)),
            "Workload wl: two pod sets are called main",
        ),
        (
            scene(workload({**pod_set(count=2), "minCount": 3}), cluster_queue(SMALL)),
            "Workload wl: spec.podSets[0]: count 2 and minCount 3, not 0 <= minCount <= count <= 2147483647",
        ),
        (
            scene(workload(pod_set(), spec={"active": "no"}), cluster_queue(SMALL)),
            "Workload wl: spec.active: must be true or false, not 'no'",
        ),
        (
            scene(workload(pod_set()), cluster_queue(SMALL), flavors=[{"kind": "ResourceFlavor", "metadata": {}}]),
            "a ResourceFlavor without metadata.name",
        ),
        (
            scene(workload(pod_set()), cluster_queue(SMALL), flavors=[flavor("a", nodeLabels={"gpu": 1})]),
            "ResourceFlavor a: spec.nodeLabels[gpu]: a label is a string, not 1",
        ),
        (scene(workload(), cluster_queue(SMALL)), "Workload wl: spec.podSets: one pod set at least is needed"),
        ({**FITTING, "workload": {"kind": "Job", "metadata": {"name": "j"}}}, "a Workload is needed, not a Job"),
    ],
)
def test_the_fault_is_named(case: dict[str, Any], fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}"):
        asked(case)


def test_invalid_affinity_is_named_only_when_a_flavor_has_to_be_matched_with_it() -> None:
    terms = [{"matchExpressions": [{"key": "gpu", "operator": "Near", "values": ["a100"]}]}]
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    asking = workload(with_spec(pod_set(gpu="1"), affinity=affinity))
    assert asked(scene(asking, cluster_queue(SMALL))).fits
    with pytest.raises(ValueError, match=r"nodeSelectorTerms\[0\]: operator 'Near' is not one of In"):
        asked(scene(asking, cluster_queue(SMALL), flavors=[flavor("a", nodeLabels={"gpu": "a100"})]))


def test_a_long_chain_of_cohorts_is_walked() -> None:
    chain = [cohort(f"c{index}", parentName=f"c{index + 1}") for index in range(3000)]
    case = scene(
        workload(pod_set(gpu="3")),
        cluster_queue(SMALL, cohortName="c0"),
        cohorts=[*chain, cohort("c3000", {"a": {GPU: "1"}})],
        held=[holder("old", {"a": {GPU: "1"}})],
    )
    assert asked(case).verdict == "wait"


def test_a_cohort_that_is_its_own_parent_blocks_its_queues() -> None:
    case = scene(
        workload(pod_set(gpu="1")), cluster_queue(SMALL, cohortName="me"), cohorts=[cohort("me", parentName="me")]
    )
    answer = asked(case)
    assert (answer.verdict, answer.message) == ("blocked", "ClusterQueue cq is inactive")
    assert answer.because == "Cohort me is, or lies below, a cycle of cohorts."


def test_workloads_that_hold_nothing_are_passed_over() -> None:
    pending = workload(pod_set(gpu="2"), name="pending")
    finished = holder("finished", {"a": {GPU: "2"}})
    finished["status"]["conditions"].append({"type": "Finished", "status": "True"})
    stranger = holder("stranger", {"a": {GPU: "2"}}, queue="unknown")
    asking = scene(workload(pod_set(gpu="2")), cluster_queue(SMALL), held=[pending, finished, stranger])
    assert asked(asking).fits


def test_quota_reserved_nowhere_is_named() -> None:
    lost = holder("lost", {"a": {GPU: "1"}})
    del lost["status"]["admission"]
    with pytest.raises(ValueError, match=r"Workload lost: status\.admission: quota is reserved, but no ClusterQueue"):
        asked(scene(workload(pod_set()), cluster_queue(SMALL), held=[lost]))


def test_a_deactivated_workload_is_blocked() -> None:
    answer = asked(scene(workload(pod_set(gpu="1"), spec={"active": False}), cluster_queue(SMALL)))
    assert (answer.verdict, answer.message) == ("blocked", "The workload is deactivated")


def test_an_unknown_namespace_is_known_by_its_name() -> None:
    named = cluster_queue(SMALL, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "team-a"}})
    assert asked({**scene(workload(pod_set(gpu="1")), named), "namespaces": []}).fits


def test_nothing_at_all_is_an_answer_too() -> None:
    nothing = Kueue(flavors=(), cluster_queues=(), local_queues=())
    answer = nothing.assign(workload(pod_set()))
    assert (answer.verdict, answer.message) == ("blocked", "LocalQueue lq doesn't exist")
