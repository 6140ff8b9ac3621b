"""Findings D2 and D3: *unknown* where the snapshot decides, or where nothing depends on it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.findings.snapshots import A100, HOME, NODE, ONE, record, shown
from tests.checker.whole_scenes import codes, queues, quota, text_of

KUEUE = "kueue.x-k8s.io/v1beta2"
VIP = "steps: {a: {command: [x], queue: lq, gpu: a100-80gb, priority: {queue: vip}, retry: {interruptions: 1}}}"
QUEUED = VIP.replace("priority: {queue: vip}, ", "")


def test_k25_a_workload_priority_class_that_does_not_exist_is_never_admitted() -> None:
    """Kueue makes no Workload then: jobframework's ExtractPriority returns the error, and the pod stays gated."""
    other = {"apiVersion": KUEUE, "kind": "WorkloadPriorityClass", "metadata": {"name": "low"}, "value": 1}
    report = shown(VIP, HOME, NODE, *queues({"f": quota(8)}), other)
    assert (report.verdict, codes(report)) == ("never", ["GF507"])
    assert 'workloadpriorityclasses.kueue.x-k8s.io "vip" not found' in text_of(report, "GF507")
    named = {**other, "metadata": {"name": "vip"}}
    assert shown(VIP, HOME, NODE, *queues({"f": quota(8)}), named).verdict == "always"


def test_k25_classes_that_nobody_looked_for_are_not_known() -> None:
    report = shown(VIP, HOME, NODE, *queues({"f": quota(8)}))
    assert (report.verdict, codes(report)) == ("unknown", ["GF536"])


def inactive(reason: str, kind: str = "ClusterQueue", **spec: Any) -> list[Any]:
    status = {"conditions": [{"type": "Active", "status": "False", "reason": reason, "message": f"not now: {reason}"}]}
    return [{**each, "status": status} if each["kind"] == kind else each for each in queues({"f": quota(8)}, **spec)]


@pytest.mark.parametrize("reason", ["AdmissionCheckInactive", "MultipleMultiKueueAdmissionChecks", "Unknown"])
def test_c21_a_queue_that_says_that_it_is_inactive_admits_nothing(reason: str) -> None:
    report = shown(QUEUED, HOME, NODE, *inactive(reason))
    assert (report.verdict, codes(report)) == ("never", ["GF507"])
    assert "ClusterQueue cq says that it is not active" in text_of(report, "GF507")
    assert f"not now: {reason}" in text_of(report, "GF507")


@pytest.mark.parametrize("kind", ["ClusterQueue", "LocalQueue"])
def test_c21_a_queue_whose_reason_is_gone_is_active_soon(kind: str) -> None:
    report = shown(QUEUED, HOME, NODE, *inactive("FlavorNotFound", kind))
    assert report.verdict == "may-queue"
    assert "until Kueue sees that it is active again" in text_of(report, "GF517")


DEVICES: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu.nvidia.com"},
    "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.nvidia.com'"}}]},
}


def test_n60b_a_class_of_devices_says_nothing_to_a_pipeline_without_devices() -> None:
    assert shown(A100, HOME, NODE, DEVICES).verdict == "always"


SETTINGS = ("MultiKueueConfig", "MultiKueueCluster", "ProvisioningRequestConfig")


@pytest.mark.parametrize("kind", SETTINGS)
def test_d3_what_configures_admission_checks_holds_nothing_back(kind: str) -> None:
    settings = {"apiVersion": KUEUE, "kind": kind, "metadata": {"name": "x"}, "spec": {}}
    assert shown(ONE, HOME, NODE, settings).verdict == "always"


POLICY: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": "no-root"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
            ]
        }
    },
}


def binding(*actions: str, policy: str = "no-root", **more: Any) -> dict[str, Any]:
    spec = {"policyName": policy, "validationActions": list(actions), **more}
    return {**POLICY, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"}, "spec": spec}


def test_n61_a_policy_without_a_binding_does_nothing() -> None:
    assert shown(ONE, HOME, NODE, POLICY).verdict == "always"


@pytest.mark.parametrize(
    ("actions", "verdict"),
    [(("Audit",), "always"), (("Warn", "Audit"), "always"), (("Deny",), "unknown"), (("Deny", "Audit"), "unknown")],
)
def test_n61_a_policy_that_only_audits_refuses_nothing(actions: tuple[str, ...], verdict: str) -> None:
    assert shown(ONE, HOME, NODE, POLICY, binding(*actions)).verdict == verdict


def test_n61_a_binding_for_other_namespaces_binds_nothing_here() -> None:
    elsewhere = {"matchResources": {"namespaceSelector": {"matchLabels": {"team": "x"}}}}
    assert shown(ONE, HOME, NODE, POLICY, binding("Deny", **elsewhere)).verdict == "always"


def test_n61_a_policy_that_is_not_shown_may_refuse_what_its_binding_binds() -> None:
    assert shown(ONE, HOME, NODE, binding("Deny", policy="unseen")).verdict == "unknown"
    assert shown(ONE, HOME, NODE, binding("Audit", policy="unseen")).verdict == "always"


def test_n61_a_snapshot_of_an_older_version_does_not_say_what_is_bound() -> None:
    older = record("ValidatingAdmissionPolicy", "Node", "Namespace")
    assert shown(ONE, HOME, NODE, POLICY, older).verdict == "unknown"


def test_d3_kinds_that_are_closed_and_decide_nothing_do_not_make_unknown() -> None:
    closed = record(
        unread={"DeviceClass": "403 Forbidden", "ServiceAccount": "403 Forbidden", "CSINode": "403 Forbidden"}
    )
    assert shown(ONE, HOME, NODE, closed).verdict == "always"
    bot = ONE.replace("command: [x]", "command: [x], service_account: bot")
    report = shown(bot, HOME, NODE, closed)
    assert (report.verdict, codes(report)) == ("unknown", ["GF571"])
    assert "could not be listed (403 Forbidden): ServiceAccount" in text_of(report, "GF571")
