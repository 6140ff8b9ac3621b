"""Quotas and what they count: engine pods, objects, scopes, and usage that is not known.

Tests gpuflow/checker/quota/namespace.py, gpuflow/checker/quota/peak.py and
gpuflow/checker/rules/quotas.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.whole_scenes import NAMESPACE, Body, checked, codes, line, text_of

ONE = "steps:\n  a: {command: [x]}"
HIGH = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "high"},
    "value": 10,
}
GOLD = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "gold"},
    "provisioner": "example.com/disk",
}
DEFAULTS: Body = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "defaults", "namespace": NAMESPACE},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "100m", "memory": "64Mi"}}]},
}


def quota(hard: dict[str, str], used: dict[str, str] | None = None, **spec: Any) -> Body:
    """A quota that the cluster has counted; nothing is in use unless it says so."""
    status = {"hard": hard, "used": dict.fromkeys(hard, "0") if used is None else used}
    metadata = {"name": "q", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata,
        "spec": {"hard": hard, **spec},
        "status": status,
    }


def by_class(operator: str, *values: str) -> Body:
    expression: Body = {"scopeName": "PriorityClass", "operator": operator}
    return {"matchExpressions": [{**expression, "values": list(values)} if values else expression]}


def test_the_drivers_of_a_fan_out_count_where_they_are_dearer_than_the_step() -> None:
    text = "steps:\n  a: {command: [x], memory: 128Mi, for_each: {i: [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}}"
    report = checked(text, quota({"limits.memory": "4Gi"}), DEFAULTS, engine="kubeflow")
    assert report.verdict == "may-queue"
    assert str(line(report, "ResourceQuota", "limits.memory").peak) == "5760Mi"  # ten times 512Mi, 64Mi of wait
    assert checked(text, quota({"limits.memory": "5760Mi"}), DEFAULTS, engine="kubeflow").verdict == "always"


def test_drivers_have_no_priority_and_count_in_the_quota_for_such_pods() -> None:
    text = "steps:\n  a: {command: [x], priority: high, for_each: {i: [1, 2, 3]}}"
    scoped = quota({"pods": "2"}, scopeSelector=by_class("DoesNotExist"))
    report = checked(text, HIGH, scoped, engine="kubeflow")
    assert line(report, "ResourceQuota", "pods").verdict == "may-queue"
    assert report.verdict == "never"  # Kubeflow does not support the priority
    assert checked(text, HIGH, scoped, engine="argo").verdict == "always"


def test_drivers_of_a_run_with_a_deadline_are_terminating() -> None:
    text = f"deadline: 1h\n{ONE}"
    terminating = quota({"pods": "0"}, scopes=["Terminating"])
    assert "GF508" in codes(checked(text, terminating, engine="kubeflow"))
    assert checked(text, quota({"pods": "0"}, scopes=["NotTerminating"]), engine="kubeflow").verdict == "always"


@pytest.mark.parametrize(("most", "verdict"), [("2", "never"), ("3", "always")])
def test_a_kubeflow_run_leaves_its_drivers_behind(most: str, verdict: str) -> None:
    """One pod for the step, one driver for it, one for the run."""
    assert checked(ONE, quota({"count/pods": most}), engine="kubeflow").verdict == verdict


@pytest.mark.parametrize(("most", "verdict"), [("0", "never"), ("1", "never"), ("2", "always")])
def test_argos_pods_report_in_objects_that_a_quota_may_count(most: str, verdict: str) -> None:
    text = f"{ONE}\n  b: {{command: [x], needs: [a]}}"
    results = quota({"count/workflowtaskresults.argoproj.io": most})
    assert checked(text, results, engine="argo").verdict == verdict
    assert checked(text, results, engine="airflow").verdict == "always"


def test_a_scoped_quota_counts_pods_within_its_scopes_and_no_other_objects() -> None:
    many = "steps:\n  a: {command: [x], for_each: {i: [1, 2, 3, 4]}}"
    scoped = quota({"count/pods": "2"}, scopeSelector=by_class("In", "high"))
    assert checked(many, HIGH, scoped).verdict == "always"
    assert checked(many.replace("[x],", "[x], priority: high,"), HIGH, scoped).verdict == "may-queue"
    not_best_effort = {"scopes": ["NotBestEffort"]}
    workflows = quota({"count/workflows.argoproj.io": "0"}, **not_best_effort)
    assert checked(ONE, workflows, engine="argo").verdict == "always"
    claims = quota({"count/persistentvolumeclaims": "0"}, **not_best_effort)
    assert checked(f"claims: {{d: {{size: 1Gi, storage_class: gold}}}}\n{ONE}", GOLD, claims).verdict == "always"


def test_a_quota_for_claims_without_an_attributes_class_counts_them() -> None:
    text = f"claims: {{d: {{size: 1Gi, storage_class: gold}}}}\n{ONE}"
    expression = {"scopeName": "VolumeAttributesClass", "operator": "DoesNotExist"}
    without = quota({"persistentvolumeclaims": "0"}, scopeSelector={"matchExpressions": [expression]})
    assert checked(text, GOLD, without).verdict == "never"
    assert (
        checked(text, GOLD, quota({"persistentvolumeclaims": "0"}, scopes=["VolumeAttributesClass"])).verdict
        == "always"
    )


def test_usage_that_is_not_counted_yet_refuses_every_pod_whatever_it_asks_for() -> None:
    report = checked(ONE, quota({"pods": "9", "requests.nvidia.com/gpu": "1"}, used={"pods": "1"}))
    assert (report.verdict, codes(report)) == ("unknown", ["GF576"])
    assert "requests.nvidia.com/gpu" in text_of(report, "GF576")
    assert "status unknown for quota: q" in text_of(report, "GF576")


def test_which_quota_counts_a_pod_without_priority_hangs_on_the_default_class() -> None:
    scoped = quota({"pods": "0"}, scopeSelector=by_class("Exists"))
    report = checked(ONE, scoped)
    assert (report.verdict, codes(report)) == ("unknown", ["GF573"])
    assert checked(ONE, scoped, HIGH).verdict == "always"
    assert checked(ONE, scoped, {**HIGH, "globalDefault": True}).verdict == "never"


@pytest.mark.parametrize(
    "key", ["count/resourceclaims.resource.k8s.io", "gpu.example.com.deviceclass.resource.k8s.io/devices"]
)
def test_devices_that_a_step_claims_anew_are_not_weighed_against_a_quota(key: str) -> None:
    anew = "steps:\n  a: {command: [x], device_claim: {template: t}}"
    report = checked(anew, quota({key: "0"}))
    assert report.verdict == "unknown"
    assert key in text_of(report, "GF535")
    assert codes(checked(anew.replace("template", "claim"), quota({key: "0"}))) == ["GF536"]  # which claims there are
