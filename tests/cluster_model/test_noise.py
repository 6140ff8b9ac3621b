"""What every real cluster holds beside the things that decide: it must not turn *always* into *unknown*.

Tests gpuflow/checker/nodes/controllers.py, gpuflow/checker/snapshot/missing_kinds.py and gpuflow/cluster/kinds.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.cluster.kinds import SOURCES
from tests.cluster_model.conftest import Check
from tests.cluster_model.scenes import LIMITS, NAMESPACE, NODE, PIPELINE, POD, QUEUED, QUEUES, QUOTA, written

HOOK = """apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: %s}
webhooks:
- name: a.example.com
  objectSelector: %s
  rules:
  - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
"""
SPARK = "{matchExpressions: [{key: spark-role, operator: Exists}]}"
HOOKS = {
    "for all pods": ("x", "{}", "unknown"),
    "for pods of Spark": ("x", SPARK, "always"),
    "for pods of a workload identity": ("x", '{matchLabels: {azure.workload.identity/use: "true"}}', "always"),
    "for our team's pods": ("x", "{matchLabels: {team: nlp}}", "unknown"),
    "not for our team's pods": ("x", "{matchExpressions: [{key: team, operator: NotIn, values: [nlp]}]}", "always"),
    "for pods of Argo": (
        "x",
        "{matchExpressions: [{key: workflows.argoproj.io/workflow, operator: Exists}]}",
        "unknown",
    ),
    "of EKS": ("pod-identity-webhook", "{}", "always"),
    "of GKE": ("pod-ready.config.common-webhooks.networking.gke.io", "{}", "always"),
    "with a selector that cannot be read": ("x", "{matchLabels: 5}", "unknown"),
}
LABELED = PIPELINE.replace("steps:", "labels: {team: nlp}\nsteps:")


@pytest.mark.parametrize("name", HOOKS)
def test_a_webhook_counts_when_it_is_asked_about_pods_with_these_labels(
    name: str, check: Check, tmp_path: Path
) -> None:
    title, selector, verdict = HOOKS[name]
    answer = check(written(tmp_path, QUOTA, NAMESPACE, HOOK % (title, selector)), pipeline=LABELED)
    assert answer.data["verdict"] == verdict


POLICY = HOOK % ("policies", "{}")
GROUP = "apiVersion: scheduling.k8s.io/v1alpha1\nkind: PodGroup\nmetadata: {name: policies}\n"


@pytest.mark.parametrize("unmodeled", [POLICY, GROUP])
def test_the_way_out_that_is_named_for_an_unmodeled_object_works(unmodeled: str, check: Check, tmp_path: Path) -> None:
    before = check(written(tmp_path, QUOTA, NAMESPACE, unmodeled))
    assert before.data["verdict"] == "unknown"
    (row,) = [each for each in before.data["findings"] if each["code"] == "GF531"]
    annotation = 'gpuflow.dev/lets-pods-pass: "true"'
    assert annotation in row["hint"]
    told = unmodeled.replace("name: policies", f"name: policies, annotations: {{{annotation}}}")
    assert check(written(tmp_path, QUOTA, NAMESPACE, told)).data["verdict"] == "always"


KARPENTER = "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: gpu}\n"
DAEMONS = "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: exporter, namespace: monitoring}\n"


def test_what_starts_nodes_holds_nothing_back(check: Check, tmp_path: Path) -> None:
    assert check(written(tmp_path, QUOTA, NODE, POD, KARPENTER)).data["verdict"] == "always"
    small = check(written(tmp_path, QUOTA, NODE.replace('"8"', '"1"'), POD, KARPENTER))
    assert (small.data["verdict"], [row["code"] for row in small.data["findings"]]) == ("unknown", ["GF506"])


def test_a_daemon_set_is_unknown_where_nodes_are_shown_without_its_pods(check: Check, tmp_path: Path) -> None:
    assert check(written(tmp_path, QUOTA, DAEMONS)).data["verdict"] == "always"
    assert check(written(tmp_path, QUOTA, NODE, POD, DAEMONS)).data["verdict"] == "always"
    assert check(written(tmp_path, QUOTA, NODE, DAEMONS)).data["verdict"] == "unknown"


def test_a_slip_of_the_pen_in_another_namespace_is_its_own_affair(check: Check, tmp_path: Path) -> None:
    for home, verdict in (("ns", "unknown"), ("others", "always")):
        slip = LIMITS.replace("namespace: ns", f"namespace: {home}").replace("spec:", "spec:\n  limit: 5")
        assert check(written(tmp_path, QUOTA, slip)).data["verdict"] == verdict


WAITING = """apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata: {name: w, namespace: others}
spec:
  queueName: theirs
  podSets:
  - {name: main, count: 1, template: {spec: {containers: [{name: c, resources: {requests: {cpu: 1}}}]}}}
"""
THEIRS = """apiVersion: kueue.x-k8s.io/v1beta2
kind: LocalQueue
metadata: {name: theirs, namespace: others}
spec: {clusterQueue: cq}
"""


def test_workloads_of_others_are_found_in_the_queue_they_wait_in(check: Check, tmp_path: Path) -> None:
    busy = QUEUES.replace("kind: ClusterQueue\n", "kind: ClusterQueue\nstatus: {pendingWorkloads: 1}\n")
    alone = check(written(tmp_path, QUOTA, busy, WAITING), pipeline=QUEUED)
    (row,) = [each for each in alone.data["findings"] if each["code"] == "GF574"]
    assert "has 1 pending workload; the snapshot shows 0" in row["message"]
    assert "workloads,localqueues -A" in row["hint"]
    assert check(written(tmp_path, QUOTA, busy, WAITING, THEIRS), pipeline=QUEUED).data["verdict"] == "always"


def test_a_snapshot_looks_for_the_queues_of_all_whose_workloads_it_lists() -> None:
    sources = {source.kind: source for source in SOURCES}
    assert not sources["Workload"].namespaced
    assert not sources["LocalQueue"].namespaced
