"""What gpuflow does not model is said, and never ends in a promise."""

from typing import Any

import pytest

from tests.checker.kueue.questions import GPU, SMALL
from tests.checker.kueue.scenes import asked, cluster_queue, flavor, holder, pod_set, scene, with_spec, workload

RACKS = {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": "rack"}]}}
FITTING = scene(workload(pod_set(gpu="1")), cluster_queue(SMALL))
CHECKED = scene(
    workload(pod_set(gpu="1")),
    cluster_queue(SMALL, admissionChecksStrategy={"admissionChecks": [{"name": "prov", "onFlavors": ["a"]}]}),
)
CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]}


def check(name: str, active: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "status": {"conditions": [{"type": "Active", "status": active}]}}


@pytest.mark.parametrize(
    ("case", "more", "unmodeled"),
    [
        (CHECKED, {}, "AdmissionCheck prov decides after quota is reserved"),
        (CHECKED, {"admission_checks": [check("prov", "True")]}, "AdmissionCheck prov decides after quota is reserved"),
        (
            scene(workload(with_spec(pod_set(gpu="1"), **CLAIM)), cluster_queue(SMALL)),
            {},
            "pod set main: devices of resource claim templates are charged too",
        ),
        (
            scene(workload(with_spec(pod_set(gpu="1"), runtimeClassName="kata")), cluster_queue(SMALL)),
            {},
            "pod set main: the overhead of RuntimeClass kata is not known",
        ),
        (
            scene(workload(pod_set(gpu="1")), cluster_queue(SMALL), flavors=[flavor("a", topologyName="racks")]),
            {"topologies": [RACKS]},
            "topology-aware scheduling places the pods of main on nodes",
        ),
        (
            scene(
                workload(
                    pod_set(gpu="1"),
                    metadata={"annotations": {"kueue.x-k8s.io/workload-slice-replacement-for": "team-a/old"}},
                ),
                cluster_queue(SMALL),
            ),
            {},
            "a workload slice that replaces another is charged for the difference only",
        ),
        (
            FITTING,
            {"configuration": {"waitForPodsReady": {"blockAdmission": True}}},
            "waitForPodsReady.blockAdmission holds a workload back until the pods of others are ready",
        ),
        (
            FITTING,
            {"configuration": {"featureGates": {"PartialAdmission": False}}},
            "feature gate PartialAdmission is false",
        ),
        (
            FITTING,
            {"configuration": {"featureGates": {"WorkloadPriorityClassDefaulting": True}}},
            "feature gate WorkloadPriorityClassDefaulting is true",
        ),
    ],
)
def test_it_is_said_and_nothing_is_promised(case: dict[str, Any], more: dict[str, Any], unmodeled: str) -> None:
    answer = asked(case, **more)
    assert answer.verdict == answer.final_verdict == "wait"
    assert answer.unmodeled == (unmodeled,)


def test_fair_sharing_matters_only_when_quota_is_short() -> None:
    fair = {"fairSharing": {"preemptionStrategies": ["LessThanInitialShare"]}}
    assert asked(FITTING, configuration=fair).fits
    busy = scene(
        workload(pod_set(gpu="2"), priority=10),
        cluster_queue(SMALL, preemption={"withinClusterQueue": "LowerPriority"}),
        held=[holder("old", {"a": {GPU: "1"}})],
    )
    assert asked(busy).verdict == "preempt"
    answer = asked(busy, configuration=fair)
    assert answer.verdict == "wait" and answer.unmodeled == ("fair sharing decides who is preempted",)


def test_never_stays_never_whatever_else_has_a_say() -> None:
    case = scene(workload(pod_set(gpu="9")), cluster_queue(SMALL), flavors=[flavor("a", topologyName="racks")])
    assert asked(case).verdict == "never"


def test_a_pod_without_topology_does_not_go_to_a_topology_flavor() -> None:
    queue = cluster_queue({"a": {GPU: "2"}, "b": {GPU: "2"}})
    case = scene(workload(pod_set(gpu="1")), queue, flavors=[flavor("a", topologyName="racks"), flavor("b")])
    answer = asked(case, topologies=[RACKS])
    assert answer.fits and answer.pod_sets == {"main": {GPU: "b"}}
    assert asked(case).unmodeled == ("ClusterQueue cq is active only if racks exists",)
    missing = asked(case, topologies=[])
    assert (missing.verdict, missing.message) == ("blocked", "ClusterQueue cq is inactive")
    assert missing.because == 'Can\'t admit new workloads: there is no Topology "racks" for TAS flavor "a".'


def test_a_resource_claim_is_refused_by_kueue_itself() -> None:
    claim = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "mine"}]}
    answer = asked(scene(workload(with_spec(pod_set(gpu="1"), **claim)), cluster_queue(SMALL)))
    assert answer.verdict == "blocked"
    assert answer.message == "KueueDRAIntegration feature does not support use of resource claims"


@pytest.mark.parametrize(
    ("checks", "why"),
    [
        ([], "references missing AdmissionCheck(s): prov"),
        ([check("prov", "False")], "references inactive AdmissionCheck(s): prov"),
    ],
)
def test_a_check_that_is_not_there_stops_the_queue(checks: list[dict[str, Any]], why: str) -> None:
    answer = asked(CHECKED, admission_checks=checks)
    assert (answer.verdict, answer.message) == ("blocked", "ClusterQueue cq is inactive")
    assert answer.because == f"Can't admit new workloads: {why}."
