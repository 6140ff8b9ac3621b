"""What later attempts of a step get, asked of Argo's own substitution and patching."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.pod import pod_for
from gpuflow.pod.later_attempts import MoreMemory, memory_by_attempt
from gpuflow.quantity import Quantity
from gpuflow.site import Site
from gpuflow.spec.loading import loads
from tests.differential.oracle import Oracle
from tests.targets.argo.manifests import HEAD, compiled, substituted, template

SITES = ("gke", "aks", "eks-karpenter")
OOM = {"exitCode": "137", "status": "Failed", "message": "main: OOMKilled (exit code 137)"}
DELETED = {"exitCode": "0", "status": "Error", "message": "pod deleted"}
FAILED = {"exitCode": "1", "status": "Failed", "message": "main: Error (exit code 1)"}


@pytest.fixture(scope="module")
def argo() -> Iterator[Oracle]:
    with Oracle("argo", "substitution") as oracle:
        yield oracle


def attempt(oracle: Oracle, text: str, site: str, retries: int, last: dict[str, str]) -> dict[str, Any]:
    """The pod's spec of one attempt, after Argo's patch."""
    manifest = compiled(f"steps: {{a: {{command: [x], {text}}}}}", site, kind="Workflow")
    (pod,) = substituted(oracle, manifest, ["a"], attempt={"retries": str(retries), **last})
    spec: dict[str, Any] = pod["spec"]
    return spec


def scheduling(text: str, site: str) -> dict[str, Any]:
    """Where gpuflow's own pod of such a step may run."""
    spec = pod_for(loads(f"{HEAD}steps: {{a: {{command: [x], {text}}}}}", "p.yaml"), "a", Site.load(site))["spec"]
    return where(spec)


def where(spec: dict[str, Any]) -> dict[str, Any]:
    return {field: spec[field] for field in ("nodeSelector", "affinity", "tolerations") if spec.get(field)}


@pytest.mark.go
@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("mode", ["prefer", "require"])
@pytest.mark.parametrize("gpu", ["", "gpu: {any_of: [l4, a100-40gb]}, ", "gpu: l4, "])
def test_after_enough_retries_the_pod_is_the_on_demand_pod(argo: Oracle, site: str, mode: str, gpu: str) -> None:
    text = f"{gpu}retry: {{interruptions: 5}}, spot: {{mode: {mode}, fallback_after: 2}}"
    first, last = scheduling(f"{gpu}spot: {mode}", site), scheduling(f"{gpu}spot: never", site)
    assert first != last
    for retries, expected in ((0, first), (1, first), (2, last), (5, last)):
        assert where(attempt(argo, text, site, retries, DELETED)) == expected


@pytest.mark.go
def test_falling_back_leaves_other_affinity_and_other_patches_alone(argo: Oracle) -> None:
    own = (
        "kubernetes: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: "
        "[{topologyKey: kubernetes.io/hostname}]}}, node_selector: {disk: fast}}, termination_grace: 2m"
    )
    text = f"{own}, retry: {{interruptions: 5}}, spot: {{mode: require, fallback_after: 1}}"
    spec = attempt(argo, text, "gke", 1, DELETED)
    assert where(spec) == scheduling(f"{own}, spot: never", "gke")
    assert spec["terminationGracePeriodSeconds"] == 120


def test_without_a_budget_to_fall_back_in_there_is_no_patch() -> None:
    manifest = compiled("steps: {a: {command: [x], spot: {mode: prefer, fallback_after: 2}}}", "gke")
    assert "podSpecPatch" not in template(manifest, "a")
    manifest = compiled("steps: {a: {command: [x], retry: 1, spot: {mode: prefer, fallback_after: 2}}}", "gke")
    assert "podSpecPatch" not in template(manifest, "a")


GROWING = "memory: {request: 16Gi, limit: 20Gi}, retry: {failures: 3, interruptions: 9, more_memory: {max: 64Gi}}"


@pytest.mark.go
@pytest.mark.parametrize(
    ("retries", "last", "request_", "limit"),
    [
        (0, {"exitCode": "0", "status": "", "message": ""}, "16Gi", "20Gi"),
        (1, OOM, "32Gi", "40Gi"),
        (2, OOM, "64Gi", "64Gi"),
        (9, OOM, "64Gi", "64Gi"),
        (1, FAILED, "16Gi", "20Gi"),
        (2, DELETED, "16Gi", "20Gi"),
    ],
)
def test_memory_grows_after_an_oom_up_to_the_most(
    argo: Oracle, retries: int, last: dict[str, str], request_: str, limit: str
) -> None:
    (main,) = attempt(argo, GROWING, "nvidia", retries, last)["containers"]
    assert main["resources"]["requests"]["memory"] == request_
    assert main["resources"]["limits"]["memory"] == limit


@pytest.mark.go
def test_falling_back_and_growing_memory_go_together(argo: Oracle) -> None:
    text = f"{GROWING}, spot: {{mode: prefer, fallback_after: 2}}, gpu: l4"
    spec = attempt(argo, text, "gke", 2, OOM)
    assert where(spec) == scheduling("gpu: l4, spot: never", "gke")
    (main,) = spec["containers"]
    assert main["resources"]["requests"]["memory"] == "64Gi"
    assert main["resources"]["requests"]["nvidia.com/gpu"] == "1"


@given(
    base=st.integers(1, 2**40),
    factor=st.floats(1.01, 10),
    most=st.integers(1, 2**42),
    failures=st.integers(0, 30),
)
def test_memory_never_shrinks_never_passes_the_most_and_grows_as_often_as_it_may_fail(
    base: int, factor: float, most: int, failures: int
) -> None:
    start = Quantity(str(base))
    amounts = memory_by_attempt(start, MoreMemory(factor, Quantity(str(most))), failures)
    assert amounts[0] == start
    assert amounts == sorted(amounts)
    assert all(amount <= max(start, Quantity(str(most))) for amount in amounts)
    assert len(amounts) <= failures + 1
    assert len(amounts) == failures + 1 or amounts[-1] == max(start, Quantity(str(most)))


def test_a_retry_on_another_node_keeps_off_the_nodes_that_failed() -> None:
    manifest = compiled("steps: {a: {command: [x], retry: {failures: 2, other_node: true}}}")
    assert template(manifest, "a")["retryStrategy"]["affinity"] == {"nodeAntiAffinity": {}}
    assert "affinity" not in template(compiled("steps: {a: {command: [x], retry: 2}}"), "a")["retryStrategy"]
