"""A pod's requests and limits add up as Kubernetes adds them.

Tests gpuflow/kubernetes/resources.py and gpuflow/checker/nodes/node_info.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.checker.nodes.node_info import held_amounts, positive_amounts
from gpuflow.kubernetes.objects import BoundPod, PodTemplate, decode
from gpuflow.kubernetes.resources import aggregate, read_resource_list
from gpuflow.quantity import Quantity

CORPUS = Path(__file__).resolve().parents[1] / ".." / "shared" / "corpora" / "oracles"
needs_corpus = pytest.mark.skipif(not CORPUS.exists(), reason="the corpora folder is not beside the checkout")


def table(name: str) -> Iterator[dict[str, Any]]:
    yield from json.loads((CORPUS / name).read_text())["cases"]


def pod_of(case: dict[str, Any]) -> dict[str, Any]:
    """The pod of a row of Kubernetes' own table, which spells constants by their Go names."""
    conditions = [
        {**condition, "status": "True", "reason": condition["reason"].removeprefix("PodReason")}
        for condition in case.get("podResizeStatus", ())
    ]
    return {
        "spec": {
            "containers": case.get("containers"),
            "initContainers": case.get("initContainers") or None,
            "overhead": None if case.get("options", {}).get("excludeOverhead", False) else case.get("overhead"),
        },
        "status": {
            "conditions": conditions,
            "containerStatuses": case.get("containerStatus") or case.get("containerStatuses"),
            "initContainerStatuses": case.get("initContainerStatuses"),
        },
    }


def template(pod: dict[str, Any]) -> PodTemplate:
    return decode(PodTemplate, pod["spec"], "spec")


def counts_status(case: dict[str, Any]) -> bool:
    return bool(case.get("options", {}).get("useStatusResources", False))


@needs_corpus
def test_requests_agree_with_kubernetes_own_table() -> None:
    for case in table("k8s_pod_resource_requests.json"):
        expected = read_resource_list(case["expectedRequests"])
        if counts_status(case):
            pod = pod_of(case)
            held = held_amounts(decode(BoundPod, pod, ""), pod["status"])
            assert held == positive_amounts(expected), case["description"]
        else:
            assert template(pod_of(case)).requests() == expected, case["description"]


@needs_corpus
def test_limits_agree_with_kubernetes_own_table() -> None:
    """Nothing counts the limits of a pod that is being resized."""
    for case in table("k8s_pod_resource_limits.json"):
        if not counts_status(case):
            assert template(pod_of(case)).limits() == read_resource_list(case["expectedLimits"]), case["description"]


def test_pod_level_resources_replace_cpu_and_memory_and_never_gpus() -> None:
    pod = {
        "spec": {
            "containers": [
                {"resources": {"requests": {"cpu": 1, "nvidia.com/gpu": 2}, "limits": {"cpu": 2}}},
            ],
            "resources": {"requests": {"cpu": "6"}, "limits": {"cpu": "8", "nvidia.com/gpu": "1"}},
            "overhead": {"cpu": "250m", "memory": "1Gi"},
        }
    }
    assert template(pod).requests() == read_resource_list({"cpu": "6250m", "memory": "1Gi", "nvidia.com/gpu": "2"})
    assert template(pod).limits() == read_resource_list({"cpu": "8250m"})


def test_a_sum_keeps_the_notation_of_its_first_part() -> None:
    pod = {"spec": {"containers": [{"resources": {"requests": {"memory": text}}} for text in ("1Gi", "1G")]}}
    assert {name: str(total) for name, total in template(pod).requests().items()} == {"memory": "2073741824"}


@pytest.mark.parametrize(
    ("pod", "message"),
    [
        ({"spec": []}, "spec: must be a map, not []"),
        ({"spec": {"containers": "main"}}, "spec.containers: must be a list, not 'main'"),
        ({"spec": {"containers": [7]}}, "spec.containers[0]: must be a map, not 7"),
        (
            {"spec": {"containers": [{"resources": {"limits": [1]}}]}, "status": None},
            "spec.containers[0].resources.limits: must be a map, not [1]",
        ),
        (
            {"spec": {"initContainers": [{"resources": {"limits": {"cpu": "1K"}}}]}},
            "spec.initContainers[0].resources.limits[cpu]: '1K': unable to parse quantity's suffix",
        ),
        (
            {"spec": {"containers": [{"resources": {"limits": {4: "1"}}}]}},
            "spec.containers[0].resources.limits: resource name 4 must be a string",
        ),
    ],
)
def test_a_pod_that_cannot_be_read_is_refused_with_the_place(pod: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the whole message is compared
        template(pod).limits()
    assert str(refusal.value) == message


amounts = st.integers(0, 64).map(lambda count: {"cpu": Quantity(count)})
starts = st.lists(st.tuples(amounts, st.booleans()), max_size=6)


@given(st.lists(amounts, min_size=1, max_size=4), starts)
def test_the_aggregate_is_the_busiest_moment_of_the_pods_life(
    containers: list[dict[str, Quantity]], init: list[tuple[dict[str, Quantity], bool]]
) -> None:
    """Play the pod's start: each init container in turn beside the sidecars so far, then everything."""
    moments = []
    sidecars = Quantity.zero
    for resources, is_sidecar in init:
        moments.append(sidecars + resources["cpu"])
        if is_sidecar:
            sidecars = sidecars + resources["cpu"]
    moments.append(sum((resources["cpu"] for resources in containers), sidecars))
    assert aggregate(containers, init)["cpu"] == max(moments)
