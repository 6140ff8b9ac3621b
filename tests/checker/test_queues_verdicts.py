"""Whole pipelines in Kueue queues: always, after waiting, never, or unknown; and from the queue on to the nodes.

Tests gpuflow/checker/pipeline/queues/verdicts.py, gpuflow/checker/pipeline/queues/requests.py and
gpuflow/checker/pipeline/queues/setup.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.core.errors import GpuflowError
from gpuflow.site import Site
from tests.checker.kueue.scenes import API, cluster_queue, cohort, flavor, holder, local_queue, pod_set, workload
from tests.checker.whole_scenes import A100, Body, checked, codes, line, node, queues, quota, text_of


def copies(count: int, gpus: int = 1, more: str = "") -> str:
    items = ", ".join(map(str, range(count)))
    return f"steps: {{a: {{command: [x], queue: lq, gpu: a100-80gb x {gpus}, for_each: {{i: [{items}]}}{more}}}}}"


@pytest.mark.parametrize(("count", "gpus", "verdict"), [(4, 2, "always"), (5, 2, "may-queue"), (1, 9, "never")])
def test_copies_in_one_queue(count: int, gpus: int, verdict: str) -> None:
    assert checked(copies(count, gpus), *queues({"f": quota(8)})).verdict == verdict


def test_the_largest_parallelism_that_is_always_admitted_is_named() -> None:
    report = checked(copies(5, 2), *queues({"f": quota(8)}))
    scope = line(report, "ClusterQueue", "nvidia.com/gpu")
    assert (scope.name, str(scope.used), str(scope.peak), str(scope.hard)) == ("cq", "0", "10", "8")
    assert (scope.verdict, scope.safe_parallelism) == ("may-queue", 4)
    assert "always admitted with parallel: 4" in text_of(report, "GF517")
    assert line(report, "ClusterQueue", "cpu").verdict == "always"
    assert checked(copies(5, 2, ", parallel: 4"), *queues({"f": quota(8)})).verdict == "always"


def test_what_others_hold_takes_quota_away() -> None:
    held = holder("x", {"f": {"nvidia.com/gpu": "3"}})
    assert checked(copies(5), *queues({"f": quota(8)}), held).verdict == "always"
    report = checked(copies(6), *queues({"f": quota(8)}), held)
    assert report.verdict == "may-queue"
    assert str(line(report, "ClusterQueue", "nvidia.com/gpu").used) == "3"


def test_a_full_queue_means_waiting_in_kueues_words() -> None:
    report = checked(copies(1), *queues({"f": quota(8)}), holder("x", {"f": {"nvidia.com/gpu": "8"}}))
    assert (report.verdict, codes(report)) == ("may-queue", ["GF517"])
    assert "insufficient unused quota for nvidia.com/gpu in flavor f, 1 more needed" in text_of(report, "GF517")


def test_a_pod_takes_all_it_asks_from_one_flavor() -> None:
    split = {"f": quota(3), "g": quota(3)}
    assert checked(copies(2, 2), *queues(split)).verdict == "always"
    report = checked(copies(3, 2), *queues(split))
    assert report.verdict == "may-queue"
    assert "2 flavors (f, g)" in text_of(report, "GF517")


def test_a_search_that_may_stop_to_preempt_reaches_the_first_flavor_only() -> None:
    split = {"f": quota(3), "g": quota(3)}
    stops = {"flavorFungibility": {"whenCanPreempt": "MayStopSearch", "whenCanBorrow": "MayStopSearch"}}
    preempts = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    assert checked(copies(2, 2), *queues(split, **stops)).verdict == "always"
    assert checked(copies(2, 2), *queues(split, **stops, **preempts)).verdict == "may-queue"
    assert checked(copies(1, 2), *queues(split, **stops, **preempts)).verdict == "always"


def test_queues_of_a_cohort_share_what_they_lend() -> None:
    text = """steps:
  a: {command: [x], queue: lq, gpu: a100-80gb x 4}
  b: {command: [x], queue: other, gpu: a100-80gb x 4}"""
    local = local_queue("other", "cq2")

    def tree(first: int, second: int) -> list[Body]:
        own = cluster_queue({"f": quota(second)}, name="cq2", cohortName="all")
        return [*queues({"f": quota(first)}, cohortName="all"), own, local]

    assert checked(text, *tree(4, 4)).verdict == "always"
    assert checked(text, *tree(8, 0)).verdict == "always"
    report = checked(text, *tree(7, 0))
    assert report.verdict == "may-queue"
    assert "a, b together ask for up to 8" in text_of(report, "GF517")
    lending = cluster_queue({"f": {**quota(0), "nvidia.com/gpu": "8"}}, name="cq2", cohortName="all")
    assert checked(text, *queues({"f": quota(0)}, cohortName="all"), lending, local).verdict == "always"
    keeping = {**quota(0), "nvidia.com/gpu": {"nominalQuota": "8", "lendingLimit": "3"}}
    kept = cluster_queue({"f": keeping}, name="cq2", cohortName="all")
    assert checked(text, *queues({"f": quota(0)}, cohortName="all"), kept, local).verdict == "never"


def test_a_cohort_above_lends_too() -> None:
    above = cohort("all", {"f": {"nvidia.com/gpu": "4"}})
    assert checked(copies(8), *queues({"f": quota(4)}, cohortName="all"), above).verdict == "always"
    assert checked(copies(9), *queues({"f": quota(4)}, cohortName="all"), above).verdict == "may-queue"


def test_queues_that_share_nothing_do_not_compete() -> None:
    text = """steps:
  a: {command: [x], queue: lq, gpu: a100-80gb x 4}
  b: {command: [x], queue: other, gpu: a100-80gb x 4}"""
    apart = cluster_queue({"f": quota(4)}, name="cq2"), local_queue("other", "cq2")
    assert checked(text, *queues({"f": quota(4)}), *apart).verdict == "always"


def test_only_steps_that_may_be_alive_together_share_quota() -> None:
    text = """steps:
  a: {command: [x], queue: lq, gpu: a100-80gb x 4}
  b: {command: [x], queue: lq, gpu: a100-80gb x 4%s}"""
    assert checked(text % ", needs: [a]", *queues({"f": quota(4)})).verdict == "always"
    assert checked(text % "", *queues({"f": quota(4)})).verdict == "may-queue"


def test_steps_without_a_queue_are_none_of_its_business() -> None:
    text = "steps: {a: {command: [x], gpu: a100-80gb x 9}}"
    assert checked(text, *queues({"f": quota(1)})).verdict == "always"


@pytest.mark.parametrize(("gpus", "verdict"), [(3, "never"), (4, "unknown")])
def test_the_default_queue_takes_in_a_jobset_that_volcano_places(gpus: int, verdict: str) -> None:
    """The step's queue is Volcano's; but Kueue knows JobSets, and the label is its own doing."""
    text = "steps: {a: {command: [x], gang: 4, gpu: a100-80gb, queue: research}}"
    site = Site.model_validate({**Site.load("nvidia").model_dump(), "gangs": {"scheduler": "volcano"}})
    kueue = [*queues({"f": quota(gpus)}), local_queue("default", "cq")]
    assert checked(text, *kueue, site=site).verdict == verdict
    assert checked(text, *queues({"f": quota(gpus)}), site=site).verdict == "unknown", "no queue called default"


def test_a_default_queue_takes_pods_that_name_none() -> None:
    text = "steps: {a: {command: [x], gpu: a100-80gb x 9}}"
    report = checked(text, *queues({"f": quota(1)}), local_queue("default", "cq"))
    assert report.verdict == "never"
    assert "queue default" in text_of(report, "GF507")


def configuration(**fields: Any) -> Body:
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", **fields}


def test_kueues_configuration_decides_which_pods_it_holds_back() -> None:
    bare = "steps: {a: {command: [x], gpu: a100-80gb}}"
    everything = configuration(manageJobsWithoutQueueName=True)
    assert checked(bare, *queues({"f": quota(1)}), everything).verdict == "never"
    jobs_only = configuration(integrations={"frameworks": ["batch/job"]})
    assert checked(copies(9), *queues({"f": quota(1)}), jobs_only).verdict == "always"
    elsewhere = configuration(managedJobsNamespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "other"}})
    assert checked(copies(9), *queues({"f": quota(1)}), elsewhere).verdict == "always"


def test_kueues_configuration_is_found_in_its_config_map() -> None:
    text = (
        "apiVersion: config.kueue.x-k8s.io/v1beta2\nkind: Configuration\n"
        "resources: {excludeResourcePrefixes: [nvidia.com/]}\n"
    )
    configured = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kueue-manager-config", "namespace": "kueue-system"},
        "data": {"controller_manager_config.yaml": text},
    }
    assert checked(copies(9), *queues({"f": quota(1)})).verdict == "may-queue"
    assert checked(copies(9), *queues({"f": quota(1)}), configured).verdict == "always"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"stopPolicy": "Hold"}, "ClusterQueue cq is inactive"),
        ({"stopPolicy": "HoldAndDrain"}, "ClusterQueue cq is inactive"),
        ({"namespaceSelector": {"matchLabels": {"team": "b"}}}, "namespace doesn't match ClusterQueue selector"),
    ],
)
def test_a_queue_that_takes_nothing_is_told_in_its_own_words(spec: Body, words: str) -> None:
    report = checked(copies(1), *queues({"f": quota(8)}, **spec))
    assert (report.verdict, codes(report)) == ("never", ["GF507"])
    assert words in text_of(report, "GF507")


def test_a_resource_that_the_queue_does_not_cover_is_never() -> None:
    report = checked(copies(1), *queues({"f": {"cpu": "9", "memory": "9Gi"}}))
    assert report.verdict == "never"
    assert "resource nvidia.com/gpu unavailable in ClusterQueue" in text_of(report, "GF507")


def test_an_admission_check_makes_it_unknown_and_is_named() -> None:
    gated = queues({"f": quota(8)}, admissionChecksStrategy={"admissionChecks": [{"name": "prov"}]})
    check = {"apiVersion": API, "kind": "AdmissionCheck", "metadata": {"name": "prov"}, "spec": {}}
    report = checked(copies(1), *gated, check)
    assert report.verdict == "unknown"
    assert "AdmissionCheck prov decides" in text_of(report, "GF535")
    assert checked(copies(1, 9), *gated, check).verdict == "never"


def test_a_check_on_a_flavor_that_only_a_crowd_reaches_counts() -> None:
    strategy = {"admissionChecks": [{"name": "prov", "onFlavors": ["g"]}]}
    check = {"apiVersion": API, "kind": "AdmissionCheck", "metadata": {"name": "prov"}, "spec": {}}
    split = queues({"f": quota(1), "g": quota(8)}, admissionChecksStrategy=strategy)
    assert checked(copies(4), *split, check).verdict == "unknown"


def test_others_are_evicted_for_a_step_of_higher_priority() -> None:
    low = holder("low", {"f": {"nvidia.com/gpu": "8"}}, priority=-5)
    preempts = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    report = checked(copies(1), *queues({"f": quota(8)}, **preempts), low)
    assert (report.verdict, codes(report)) == ("may-queue", ["GF518"])
    assert "team-a/low" in text_of(report, "GF518")
    assert codes(checked(copies(1), *queues({"f": quota(8)}), low)) == ["GF517"]


def test_a_workload_priority_class_decides_whom_a_step_may_evict() -> None:
    held = holder("x", {"f": {"nvidia.com/gpu": "8"}}, priority=5)
    preempts = {"preemption": {"withinClusterQueue": "LowerPriority"}}
    high = {"apiVersion": API, "kind": "WorkloadPriorityClass", "metadata": {"name": "high"}, "value": 10}
    text = copies(1, more=", priority: {queue: high}")
    assert codes(checked(text, *queues({"f": quota(8)}, **preempts), held, high)) == ["GF518"]
    assert codes(checked(text, *queues({"f": quota(8)}, **preempts), held, {**high, "value": 5})) == ["GF517"]
    missing = checked(text, *queues({"f": quota(8)}), {**high, "metadata": {"name": "other"}})
    assert (missing.verdict, "WorkloadPriorityClass high does not exist" in text_of(missing, "GF507")) == (
        "never",
        True,
    )


def test_a_pending_workload_holds_up_a_strict_queue_and_no_other() -> None:
    waits = workload(pod_set(gpu="9", cpu="1", memory="1Gi"), name="huge")
    strict = queues({"f": quota(8)}, queueingStrategy="StrictFIFO")
    report = checked(copies(1), *strict, waits)
    assert (report.verdict, codes(report)) == ("never", ["GF510"])
    assert "team-a/huge" in text_of(report, "GF510")
    assert checked(copies(1), *queues({"f": quota(8)}), waits).verdict == "always"
    fits = workload(pod_set(gpu="1", cpu="1", memory="1Gi"), name="small")
    assert checked(copies(1), *strict, fits).verdict == "always"


def test_a_never_step_of_the_pipeline_stops_a_strict_queue_for_all() -> None:
    text = """steps:
  a: {command: [x], queue: lq, gpu: a100-80gb x 9}
  b: {command: [x], queue: lq, gpu: a100-80gb}"""
    report = checked(text, *queues({"f": quota(8)}, queueingStrategy="StrictFIFO"))
    assert report.verdict == "never"
    assert 'holds up step "b" and all other workloads' in text_of(report, "GF519")
    assert "GF519" not in codes(checked(text, *queues({"f": quota(8)})))


def test_a_gang_is_one_workload() -> None:
    text = "steps: {a: {command: [x], queue: lq, gpu: a100-80gb x 2, gang: {workers: 4}}}"
    assert checked(text, *queues({"f": quota(8)})).verdict == "always"
    assert checked(text, *queues({"f": quota(7)})).verdict == "never"
    assert checked(text, *queues({"f": quota(4), "g": quota(4)})).verdict == "never"


def test_a_queue_that_counts_pods_runs_out_of_them() -> None:
    counted = {"f": {**quota(99), "pods": "3"}}
    assert checked(copies(3), *queues(counted)).verdict == "always"
    report = checked(copies(4), *queues(counted))
    assert report.verdict == "may-queue"
    assert line(report, "ClusterQueue", "pods").safe_parallelism == 3


def test_several_runs_share_the_quota() -> None:
    assert checked(copies(4), *queues({"f": quota(8)}), runs=2).verdict == "always"
    assert checked(copies(4), *queues({"f": quota(8)}), runs=3).verdict == "may-queue"


ZONED = [flavor("f", nodeLabels={"pool": "f"}), flavor("g", nodeLabels={"pool": "g"})]


def test_the_flavors_labels_send_a_pod_to_its_nodes() -> None:
    one = queues({"f": quota(8)}, flavors=ZONED[:1])
    assert checked(copies(2), *one, node("n", 8, labels={"pool": "f"})).verdict == "always"
    report = checked(copies(2), *one, node("n", 8, labels={"pool": "g"}))
    assert report.verdict == "never"
    assert "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector." in text_of(report, "GF506")
    assert "flavor f" in text_of(report, "GF506")


def test_every_flavor_that_it_may_get_must_have_nodes() -> None:
    split = queues({"f": quota(1), "g": quota(8)}, flavors=ZONED)
    there, everywhere = node("n", 8, labels={"pool": "f"}), node("m", 8, labels={"pool": "g"})
    assert checked(copies(2), *split, there, everywhere).verdict == "always"
    report = checked(copies(2), *split, there)
    assert report.verdict == "may-queue"
    assert "flavor g, whose nodes cannot hold it" in text_of(report, "GF516")
    assert checked(copies(1), *split, there).verdict == "always"


def test_a_flavors_tolerations_open_its_nodes() -> None:
    taint = {"key": "team", "value": "x", "effect": "NoSchedule"}
    opens = {"tolerations": [{"key": "team", "operator": "Exists"}], "nodeTaints": [taint]}
    fenced = node("n", 8, taints=[taint])
    assert checked(copies(1), *queues({"f": quota(8)}, flavors=[flavor("f", **opens)]), fenced).verdict == "always"
    assert checked(copies(1), *queues({"f": quota(8)}, flavors=[flavor("f")]), fenced).verdict == "never"


def test_quota_for_more_than_the_nodes_hold_still_waits_for_nodes() -> None:
    report = checked(copies(9), *queues({"f": quota(99)}), node("n", 8))
    assert report.verdict == "may-queue"
    assert codes(report) == ["GF515"]
    assert line(report, "ClusterQueue", "nvidia.com/gpu").verdict == "always"


def test_flavors_of_two_groups_that_contradict_each_other_lead_nowhere() -> None:
    groups = {"f": {"nvidia.com/gpu": "8"}}, {"g": {"cpu": "9", "memory": "9Gi"}}
    report = checked(copies(1), *queues(*groups, flavors=ZONED), node("n", 8, labels={"pool": "f"}))
    assert report.verdict == "never"
    assert "contradict" in text_of(report, "GF506")


def _topology(*labels: str) -> dict[str, Any]:
    spec = {"levels": [{"nodeLabel": label} for label in labels]}
    return {"apiVersion": API, "kind": "Topology", "metadata": {"name": "t"}, "spec": spec}


def test_a_topology_aware_queue_is_unknown_where_nobody_looked_at_pods() -> None:
    aware = queues({"f": quota(8)}, flavors=[flavor("f", topologyName="t", nodeLabels=A100)])
    report = checked(copies(1), *aware, _topology(*A100), node("n", 8))
    assert report.verdict == "unknown"
    assert "topology-aware scheduling" in text_of(report, "GF535")


@pytest.mark.parametrize("labels", [(), ("a", "a"), ("",)])
def test_a_topology_that_no_cluster_stores_is_an_error_at_its_place(labels: tuple[str, ...]) -> None:
    aware = queues({"f": quota(8)}, flavors=[flavor("f", topologyName="t", nodeLabels=A100)])
    with pytest.raises(GpuflowError, match=r"Topology t: spec\.levels: one level at least is needed"):
        checked(copies(1), *aware, _topology(*labels), node("n", 8))


def test_a_kind_that_nothing_here_judges_makes_it_unknown() -> None:
    name = {"name": "q", "namespace": "ns"}
    group = {"apiVersion": "scheduling.k8s.io/v1alpha1", "kind": "PodGroup", "metadata": name, "spec": {}}
    report = checked(copies(1), *queues({"f": quota(8)}), group)
    assert (report.verdict, codes(report)) == ("unknown", ["GF531"])
