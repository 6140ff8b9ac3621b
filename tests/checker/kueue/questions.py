"""Hand-made questions to Kueue, one for each rule a user meets. The answers are in `answers.yaml`."""

from __future__ import annotations

from typing import Any

from tests.checker.kueue.scenes import cluster_queue, cohort, flavor, holder, local_queue, pod_set, scene, with_spec
from tests.checker.kueue.scenes import workload as asks

GPU = "nvidia.com/gpu"
SMALL = {"a": {"cpu": "4", "memory": "16Gi", GPU: "2"}}
TWO = {"a": {"cpu": "4", GPU: "2"}, "b": {"cpu": "8", GPU: "8"}}
SPOT = {"key": "spot", "value": "true", "effect": "NoSchedule"}
LOWER = {"withinClusterQueue": "LowerPriority"}
RECLAIM = {"reclaimWithinCohort": "Any"}
TRY_NEXT = {"whenCanBorrow": "TryNextFlavor", "whenCanPreempt": "TryNextFlavor"}
STOP = {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "MayStopSearch"}


def affinity(*requirements: dict[str, Any]) -> dict[str, Any]:
    terms = [{"matchExpressions": list(requirements)}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def lent(nominal: str, *, borrow: str | None = None, lend: str | None = None) -> dict[str, str]:
    limits = {"borrowingLimit": borrow, "lendingLimit": lend}
    return {"nominalQuota": nominal, **{name: limit for name, limit in limits.items() if limit is not None}}


QUESTIONS: dict[str, dict[str, Any]] = {
    # Quota of one queue.
    "enough quota is reserved": scene(asks(pod_set(cpu="2", memory="8Gi", gpu="1")), cluster_queue(SMALL)),
    "more than the queue has is never given": scene(asks(pod_set(cpu="1", gpu="4")), cluster_queue(SMALL)),
    "several resources short are all named": scene(
        asks(pod_set(cpu="5", memory="17Gi", gpu="3")), cluster_queue(SMALL)
    ),
    "quota in use is waited for": scene(
        asks(pod_set(gpu="2")), cluster_queue(SMALL), held=[holder("old", {"a": {GPU: "1"}})]
    ),
    "pods of a pod set are counted together": scene(asks(pod_set(count=3, gpu="1")), cluster_queue(SMALL)),
    "pod sets before are counted too": scene(
        asks(pod_set("driver", gpu="1"), pod_set("workers", 2, gpu="1")), cluster_queue(SMALL)
    ),
    "a failing pod set hides those after it": scene(
        asks(pod_set("driver", gpu="3"), pod_set("workers", gpu="9")), cluster_queue(SMALL)
    ),
    "a covered number of pods counts": scene(
        asks(pod_set(count=4, cpu="100m")), cluster_queue({"a": {"cpu": "4", "pods": "3"}})
    ),
    "small amounts of memory are printed as they are read": scene(
        asks(pod_set(memory="2000")), cluster_queue({"a": {"memory": "1000"}})
    ),
    "cpu is counted in thousandths, rounded up": scene(asks(pod_set(cpu="0.0001")), cluster_queue({"a": {"cpu": "0"}})),
    "a quota too large to count is no limit": scene(asks(pod_set(cpu="1000000")), cluster_queue({"a": {"cpu": "1E"}})),
    # What is not covered.
    "a resource the queue does not cover": scene(asks(pod_set(cpu="1", fpga="1")), cluster_queue(SMALL)),
    "none of a resource the queue does not cover": scene(asks(pod_set(cpu="1", fpga="0")), cluster_queue(SMALL)),
    "a MIG slice is not a GPU": scene(asks(pod_set(mig="1")), cluster_queue(SMALL)),
    "nothing asked of a queue without quota": scene(asks(pod_set()), cluster_queue()),
    # What a pod asks for.
    "a limit alone is a request": scene(asks(pod_set(limits={"gpu": "3"})), cluster_queue(SMALL)),
    "requests above limits are refused": scene(
        asks(pod_set(cpu="1"), pod_set("late", limits={"cpu": "1", "memory": "1Gi"}, cpu="2", memory="2Gi")),
        cluster_queue(SMALL),
    ),
    "init containers, sidecars and overhead count": scene(
        asks(
            with_spec(
                pod_set(cpu="1"),
                initContainers=[
                    {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}},
                    {"name": "fetch", "resources": {"requests": {"cpu": "3500m"}}},
                ],
                overhead={"cpu": "250m"},
            )
        ),
        cluster_queue(SMALL),
    ),
    "pods that finished early are not asked for again": scene(
        asks(pod_set(count=4, gpu="1"), status={"reclaimablePods": [{"name": "main", "count": 2}]}),
        cluster_queue(SMALL),
    ),
    "fewer pods will do": scene(asks({**pod_set(count=8, gpu="1"), "minCount": 1}), cluster_queue(SMALL)),
    "even the fewest pods are too many": scene(
        asks({**pod_set(count=8, gpu="1"), "minCount": 3}), cluster_queue(SMALL)
    ),
    # Flavors.
    "an untolerated taint": scene(
        asks(pod_set(gpu="1")), cluster_queue(SMALL), flavors=[flavor("a", nodeTaints=[SPOT])]
    ),
    "a taint that is only a preference": scene(
        asks(pod_set(gpu="1")),
        cluster_queue(SMALL),
        flavors=[flavor("a", nodeTaints=[{**SPOT, "effect": "PreferNoSchedule"}])],
    ),
    "a toleration of the flavor itself": scene(
        asks(pod_set(gpu="1")),
        cluster_queue(SMALL),
        flavors=[flavor("a", nodeTaints=[SPOT], tolerations=[{"key": "spot", "operator": "Exists"}])],
    ),
    "a taint sends pods to the next flavor": scene(
        asks(pod_set(gpu="1")), cluster_queue(TWO), flavors=[flavor("a", nodeTaints=[SPOT]), flavor("b")]
    ),
    "no flavor fits, each for its own reason": scene(
        asks(pod_set(gpu="9")), cluster_queue(TWO), flavors=[flavor("a", nodeTaints=[SPOT]), flavor("b")]
    ),
    "a node selector picks the flavor": scene(
        asks(with_spec(pod_set(gpu="1"), nodeSelector={"gpu": "h100", "disk": "ssd"})),
        cluster_queue(TWO),
        flavors=[flavor("a", nodeLabels={"gpu": "a100"}), flavor("b", nodeLabels={"gpu": "h100"})],
    ),
    "node affinity that no flavor meets": scene(
        asks(with_spec(pod_set(gpu="1"), affinity=affinity({"key": "gpu", "operator": "In", "values": ["l4"]}))),
        cluster_queue(TWO),
        flavors=[flavor("a", nodeLabels={"gpu": "a100"}), flavor("b", nodeLabels={"gpu": "h100"})],
    ),
    "node affinity on labels the flavor does not have": scene(
        asks(with_spec(pod_set(gpu="1"), affinity=affinity({"key": "zone", "operator": "In", "values": ["z9"]}))),
        cluster_queue(TWO),
        flavors=[flavor("a", nodeLabels={"gpu": "a100"}), flavor("b")],
    ),
    "resources of one group come from one flavor": scene(
        asks(pod_set(cpu="6", gpu="1")), cluster_queue({"a": {"cpu": "4", GPU: "2"}, "b": {"cpu": "8", GPU: "0"}})
    ),
    "groups choose their flavors apart": scene(
        asks(pod_set(cpu="6", gpu="1")),
        cluster_queue({"a": {"cpu": "4"}, "b": {"cpu": "8"}}, {"g": {GPU: "2"}}),
    ),
    # Cohorts.
    "quota is borrowed from a neighbor": scene(
        asks(pod_set(gpu="5")),
        cluster_queue(SMALL, cohortName="team"),
        cluster_queue({"a": {GPU: "4"}}, name="other", cohortName="team"),
    ),
    "a borrowing limit stops it": scene(
        asks(pod_set(gpu="5")),
        cluster_queue({"a": {GPU: lent("2", borrow="1")}}, cohortName="team"),
        cluster_queue({"a": {GPU: "4"}}, name="other", cohortName="team"),
    ),
    "a lending limit keeps quota back": scene(
        asks(pod_set(gpu="5")),
        cluster_queue({"a": {GPU: "2"}}, cohortName="team"),
        cluster_queue({"a": {GPU: lent("4", lend="1")}}, name="other", cohortName="team"),
    ),
    "quota of the root reaches a queue below": scene(
        asks(pod_set(gpu="5")),
        cluster_queue({"a": {GPU: "1"}}, cohortName="team"),
        cohorts=[cohort("team", parentName="org"), cohort("org", {"a": {GPU: "4"}})],
    ),
    "a cohort in between limits what comes down": scene(
        asks(pod_set(gpu="5")),
        cluster_queue({"a": {GPU: "1"}}, cohortName="team"),
        cohorts=[
            cohort("team", {"a": {GPU: lent("0", borrow="2")}}, parentName="org"),
            cohort("org", {"a": {GPU: "4"}}),
        ],
    ),
    "borrowed quota that others use is waited for": scene(
        asks(pod_set(gpu="5")),
        cluster_queue({"a": {GPU: "2"}}, cohortName="team"),
        cluster_queue({"a": {GPU: "4"}}, name="other", cohortName="team"),
        held=[holder("old", {"a": {GPU: "2"}}, queue="other")],
    ),
    "a cycle of cohorts stops every queue below": scene(
        asks(pod_set(gpu="1")),
        cluster_queue(SMALL, cohortName="team"),
        cohorts=[cohort("team", parentName="org"), cohort("org", parentName="team")],
        held=[holder("old", {"a": {GPU: "1"}})],
    ),
    # Preemption.
    "a higher priority in the way is left alone": scene(
        asks(pod_set(gpu="2"), priority=10),
        cluster_queue(SMALL, preemption=LOWER),
        held=[holder("old", {"a": {GPU: "1"}}), holder("older", {"a": {GPU: "1"}}, priority=20)],
    ),
    "enough lower priorities give way": scene(
        asks(pod_set(gpu="2"), priority=10),
        cluster_queue(SMALL, preemption=LOWER),
        held=[holder("one", {"a": {GPU: "1"}}), holder("two", {"a": {GPU: "1"}}, minute=20)],
    ),
    "an equal priority that is newer gives way": scene(
        asks(pod_set(gpu="2")),
        cluster_queue(SMALL, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"}),
        held=[holder("newer", {"a": {GPU: "2"}}, minute=40)],
    ),
    "an equal priority that is older does not": scene(
        asks(pod_set(gpu="2")),
        cluster_queue(SMALL, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"}),
        held=[holder("older", {"a": {GPU: "2"}}, minute=20)],
    ),
    "lent quota is reclaimed": scene(
        asks(pod_set(gpu="2")),
        cluster_queue(SMALL, cohortName="team", preemption=RECLAIM),
        cluster_queue({"a": {GPU: "1"}}, name="other", cohortName="team"),
        held=[holder("guest", {"a": {GPU: "3"}}, queue="other", priority=100)],
    ),
    "a neighbor within its own quota is safe": scene(
        asks(pod_set(gpu="3")),
        cluster_queue(SMALL, cohortName="team", preemption=RECLAIM),
        cluster_queue({"a": {GPU: "2"}}, name="other", cohortName="team"),
        held=[holder("owner", {"a": {GPU: "2"}}, queue="other")],
    ),
    "preemption while borrowing": scene(
        asks(pod_set(gpu="3"), priority=10),
        cluster_queue(
            SMALL,
            cohortName="team",
            preemption={**RECLAIM, "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 5}},
        ),
        cluster_queue({"a": {GPU: "1"}}, name="other", cohortName="team"),
        held=[holder("guest", {"a": {GPU: "3"}}, queue="other")],
    ),
    # Fungibility.
    "the next flavor is tried before anybody is preempted": scene(
        asks(pod_set(gpu="2"), priority=10),
        cluster_queue(TWO, preemption=LOWER),
        held=[holder("old", {"a": {GPU: "2"}})],
    ),
    "the search may stop at a flavor that needs preemption": scene(
        asks(pod_set(gpu="2"), priority=10),
        cluster_queue(TWO, preemption=LOWER, flavorFungibility=STOP),
        held=[holder("old", {"a": {GPU: "2"}})],
    ),
    "the next flavor is tried before borrowing": scene(
        asks(pod_set(gpu="3")),
        cluster_queue(TWO, cohortName="team", flavorFungibility=TRY_NEXT),
        cluster_queue({"a": {"cpu": "4", GPU: "4"}}, name="other", cohortName="team"),
    ),
    "preemption can be preferred to borrowing": scene(
        asks(pod_set(gpu="2"), priority=10),
        cluster_queue(
            {"a": {GPU: "2"}, "b": {GPU: "1"}},
            cohortName="team",
            preemption=LOWER,
            flavorFungibility={**TRY_NEXT, "preference": "PreemptionOverBorrowing"},
        ),
        cluster_queue({"b": {GPU: "4"}}, name="other", cohortName="team"),
        held=[holder("old", {"a": {GPU: "2"}})],
    ),
    "the number of pods is not preempted for": scene(
        asks(pod_set(count=2, gpu="1"), priority=10),
        cluster_queue({"a": {GPU: "4", "pods": "2"}}, preemption=LOWER),
        held=[
            holder("wide", {"a": {GPU: "2", "pods": "1"}}, minute=20),
            holder("thin", {"a": {GPU: "1", "pods": "1"}}),
        ],
    ),
    "a scan that stopped early goes on": scene(
        asks(pod_set("driver", gpu="1"), pod_set("workers", gpu="2")),
        cluster_queue({"a": {GPU: "2"}, "b": {GPU: "1"}}),
    ),
    # Queues.
    "no such LocalQueue": scene(asks(pod_set(gpu="1")), cluster_queue(SMALL), local=[local_queue("else")]),
    "a stopped LocalQueue": scene(asks(pod_set(gpu="1")), cluster_queue(SMALL), local=[local_queue(stopPolicy="Hold")]),
    "no such ClusterQueue": scene(asks(pod_set(gpu="1")), cluster_queue(SMALL), local=[local_queue(target="gone")]),
    "a stopped ClusterQueue": scene(asks(pod_set(gpu="1")), cluster_queue(SMALL, stopPolicy="HoldAndDrain")),
    "a missing ResourceFlavor": scene(asks(pod_set(gpu="1")), cluster_queue(TWO), flavors=[flavor("a")]),
    "a namespace the queue does not serve": scene(
        asks(pod_set(gpu="1")), cluster_queue(SMALL, namespaceSelector={"matchLabels": {"dept": "ops"}})
    ),
    "no selector serves no namespace": scene(asks(pod_set(gpu="1")), cluster_queue(SMALL, namespaceSelector=None)),
    "a gated workload": scene(
        asks(pod_set(gpu="1"), metadata={"annotations": {"kueue.x-k8s.io/admission-gated-by": "budget"}}),
        cluster_queue(SMALL),
    ),
}
