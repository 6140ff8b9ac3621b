"""v1beta1 manifests mean what their v1beta2 successors mean."""

from typing import Any

from tests.checker.kueue.questions import GPU
from tests.checker.kueue.scenes import asked, cluster_queue, cohort, holder, pod_set, scene, workload

OLD = "kueue.x-k8s.io/v1beta1"
TWO = {"a": {GPU: "2"}, "b": {GPU: "8"}}


def case(**spec: Any) -> dict[str, Any]:
    return scene(
        workload(pod_set(gpu="3"), priority=10),
        cluster_queue(TWO, preemption={"withinClusterQueue": "LowerPriority"}, **spec),
        cluster_queue({"a": {GPU: "4"}}, name="other", cohortName="team"),
        cohorts=[cohort("team")],
        held=[holder("old", {"a": {GPU: "2"}})],
    )


def test_the_cohort_and_the_search_policy_of_v1beta1() -> None:
    new = case(
        cohortName="team", flavorFungibility={"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}
    )
    old = case(cohort="team", flavorFungibility={"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"})
    old["clusterQueues"][0]["apiVersion"] = OLD
    assert asked(new) == asked(old)
    assert asked(old).pod_sets == {"main": {GPU: "a"}}
    assert asked(case()).pod_sets == {"main": {GPU: "b"}}


def test_the_admission_checks_of_v1beta1() -> None:
    fitting = scene(workload(pod_set(gpu="1")), cluster_queue(TWO, admissionChecks=["prov"]))
    assert asked(fitting).unmodeled == ("AdmissionCheck prov decides after quota is reserved",)


def test_a_workload_of_v1beta1() -> None:
    old = case()
    old["workload"] |= {"apiVersion": OLD}
    old["workload"]["spec"] |= {
        "priorityClassName": "high",
        "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
    }
    assert asked(old) == asked(case())
