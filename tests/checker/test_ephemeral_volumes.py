"""Ephemeral volumes: Kubernetes claims a volume for each pod, and quotas count the claims.

Tests gpuflow/checker/quota/peak.py and gpuflow/checker/rules/quotas.py.
"""

from __future__ import annotations

import pytest

from gpuflow.demands import demand_of
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.checker.test_verdict import checked, quota

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\ndefaults: {image: 'i:1', cpu: 1, memory: 1Gi}\n"
STEPS = """
steps:
  a:
    command: [x]
    for_each: {i: [1, 2, 3]}
    parallel: 2
    volumes: {/w: {ephemeral: {size: 10Gi, storage_class: fast}}}
"""
CLASS = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "x"}


def test_the_demand_counts_a_claim_for_each_pod() -> None:
    peak = demand_of(loads(HEAD + STEPS), Site.load("nvidia")).peak
    assert str(peak["persistentvolumeclaims"].value) == "2"
    assert str(peak["requests.storage"].value) == "20Gi"
    assert str(peak["fast.storageclass.storage.k8s.io/requests.storage"].value) == "20Gi"


def test_claims_of_the_run_are_added() -> None:
    text = "claims: {c: {size: 5Gi}}\n" + STEPS.replace("/w:", "/c: {new_claim: c}, /w:")
    peak = demand_of(loads(HEAD + text), Site.load("nvidia")).peak
    assert (str(peak["persistentvolumeclaims"].value), str(peak["requests.storage"].value)) == ("3", "25Gi")


@pytest.mark.parametrize(
    ("claims", "verdict"),
    [
        ("3", "always"),  # all three pods may be kept, and their claims with them
        ("2", "unknown"),  # two run at once; whether the third finds their claims deleted, nobody knows
        ("1", "may-queue"),
        ("0", "never"),
    ],
)
def test_a_quota_of_claims_is_compared_with_running_and_kept_pods(claims: str, verdict: str) -> None:
    found = checked(STEPS, quota({"persistentvolumeclaims": claims}), CLASS)
    lines = [line for line in found.scopes if line.resource == "persistentvolumeclaims"]
    assert [line.verdict for line in lines] == [verdict]


def test_a_storage_class_that_does_not_exist_keeps_the_pod_pending() -> None:
    found = checked(STEPS.replace("fast", "slow"), CLASS)
    assert "GF561" in [finding.code for finding in found.findings]
    assert found.verdict == "never"
