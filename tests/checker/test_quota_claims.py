"""What the checker says about the volumes that a pipeline claims anew for each run."""

from __future__ import annotations

from typing import Any

import pytest

from gpuflow.checker.quota.peak import default_class
from tests.checker.test_verdict import checked, codes, quota

CLAIMING = """
claims: {work: {size: 100Gi}}
steps: {train: {command: [x], volumes: {/work: {new_claim: work}}}}
"""
BY_CLASS = "fast.storageclass.storage.k8s.io/requests.storage"


def storage_class(name: str, *, default: bool = True, made: str | None = None) -> dict[str, Any]:
    marks = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    metadata = {"name": name, "annotations": marks, **({"creationTimestamp": made} if made else {})}
    return {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata, "provisioner": "x"}


def bounded(size: str) -> dict[str, Any]:
    limits = [{"type": "PersistentVolumeClaim", "max": {"storage": size}}]
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "sizes"}, "spec": {"limits": limits}}


def test_a_claim_above_the_whole_quota_is_never_made_and_no_parallelism_is_proposed() -> None:
    report = checked(CLAIMING, quota({"requests.storage": "50Gi"}), engine="argo")
    assert report.verdict == "never"
    (line,) = report.scopes
    assert (line.verdict, line.safe_parallelism) == ("never", None)
    (finding,) = report.findings
    assert finding.code == "GF501"
    assert finding.message == ('claim "work" asks for 100Gi of requests.storage, and quota q allows at most 50Gi')
    assert finding.where.line is not None


def test_a_claim_that_waits_for_others_is_named_in_the_finding() -> None:
    report = checked(CLAIMING, quota({"requests.storage": "150Gi"}, {"requests.storage": "60Gi"}), engine="argo")
    assert report.verdict == "may-queue"
    (finding,) = report.findings
    assert finding.message.startswith("the claims of the run ask for 100Gi of requests.storage; quota q leaves 90Gi")
    assert "parallel" not in (finding.hint or "")


@pytest.mark.parametrize(("hard", "verdict"), [("50Gi", "never"), ("100Gi", "always")])
def test_a_claim_without_a_class_is_charged_to_the_default_one(hard: str, verdict: str) -> None:
    assert checked(CLAIMING, quota({BY_CLASS: hard}), storage_class("fast")).verdict == verdict


def test_which_class_a_claim_gets_is_unknown_without_storage_classes() -> None:
    report = checked(CLAIMING, quota({BY_CLASS: "500Gi"}))
    assert (report.verdict, codes(report)) == ("unknown", ["GF573"])


def test_the_number_of_claims_is_counted_under_both_names() -> None:
    for key in ("persistentvolumeclaims", "count/persistentvolumeclaims"):
        assert checked(CLAIMING, quota({key: "0"})).verdict == "never"
        assert checked(CLAIMING, quota({key: "1"})).verdict == "always"


def test_a_claim_above_a_limit_range_is_refused_with_the_servers_sentence() -> None:
    report = checked(CLAIMING, bounded("50Gi"))
    (finding,) = report.findings
    assert (report.verdict, finding.code) == ("never", "GF502")
    assert finding.kubernetes == (
        'persistentvolumeclaims "work" is forbidden: maximum storage usage per PersistentVolumeClaim is 50Gi, but '
        "request is 100Gi"
    )
    assert checked(CLAIMING, bounded("100Gi")).verdict == "always"


def test_of_several_default_classes_the_newest_is_taken() -> None:
    old, new = storage_class("a", made="2024-01-01T00:00:00Z"), storage_class("b", made="2025-01-01T00:00:00Z")
    assert default_class([old, new]) == default_class([new, old]) == "b"
    assert default_class([storage_class("b"), storage_class("a")]) == "a"
    assert default_class([storage_class("a", default=False)]) is None


def test_the_workflow_object_of_a_run_is_named_when_its_line_is_full() -> None:
    key = "count/workflows.argoproj.io"
    report = checked("steps: {a: {command: [x]}}", quota({key: "5"}, {key: "5"}), engine="argo")
    assert report.findings[0].message.startswith("the run's own Workflow asks for 1")


def test_a_quota_that_does_not_say_what_is_used_is_named() -> None:
    unsettled = quota({"requests.nvidia.com/gpu": "4"})
    unsettled["status"]["used"] = {}
    report = checked("steps: {a: {command: [x], gpu: a100-80gb}}", unsettled)
    assert (report.verdict, codes(report)) == ("unknown", ["GF576"])
    assert "status unknown for quota" in (report.findings[0].kubernetes or "")


def test_findings_of_several_lines_propose_the_parallelism_that_is_enough_for_all() -> None:
    fan = "steps: {f: {command: [x], gpu: a100-80gb, for_each: {i: [1, 2, 3, 4, 5, 6, 7, 8]}}}"
    report = checked(fan, quota({"pods": "6", "requests.cpu": "3", "requests.nvidia.com/gpu": "5"}))
    assert {scope.resource: scope.safe_parallelism for scope in report.scopes} == {
        "pods": 6,
        "requests.cpu": 3,
        "requests.nvidia.com/gpu": 5,
    }
    assert [finding.code for finding in report.findings] == ["GF512"] * 3
    hints = [finding.hint or "" for finding in report.findings]
    assert ["always admitted with parallel: 3" in hint for hint in hints] == [True, False, False]
    assert not any("parallel" in hint for hint in hints[1:])


def test_a_line_that_is_overdrawn_leaves_nothing() -> None:
    key = "requests.nvidia.com/gpu"
    report = checked("steps: {a: {command: [x], gpu: a100-80gb}}", quota({key: "4"}, {key: "6"}))
    assert "quota q leaves 0 of 4" in report.findings[0].message
