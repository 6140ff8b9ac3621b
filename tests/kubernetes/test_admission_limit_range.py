"""LimitRange: what it fills in, and the bounds it holds."""

import pytest

from gpuflow.kubernetes.admission.decision import admit
from gpuflow.kubernetes.admission.field_errors import sentences
from gpuflow.kubernetes.admission.limit_range import broken_claim_bounds, read_limit_range
from tests.checker.admission_cases import Resources, container, limit_range, pod

GPU = "nvidia.com/gpu"


def resources_of(answer_pod: Resources, index: int = 0) -> Resources:
    resources: Resources = answer_pod["spec"]["containers"][index]["resources"]
    return resources


def test_a_maximum_becomes_the_default_of_every_silent_container() -> None:
    asked = pod(container("main", limits={GPU: 1}), container("wait"), initContainers=[container("init")])
    answer = admit(asked, limit_ranges=[limit_range({"type": "Container", "max": {GPU: 4}})])
    assert resources_of(answer.pod, 0) == {"limits": {GPU: "1"}, "requests": {GPU: "1"}}
    assert resources_of(answer.pod, 1) == {"limits": {GPU: "4"}, "requests": {GPU: "4"}}
    assert answer.usage[f"requests.{GPU}"] == "5"
    assert answer.pod["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: nvidia.com/gpu request for container wait; nvidia.com/gpu limit for container wait; "
        "nvidia.com/gpu request for init container init; nvidia.com/gpu limit for init container init"
    )


def test_the_given_manifests_are_left_as_they_were() -> None:
    asked = pod(container("main"))
    admit(asked, limit_ranges=[limit_range({"type": "Container", "default": {"cpu": 1}})]).pod["spec"]["x"] = 1
    assert asked == pod(container("main"))


def test_a_minimum_of_gpus_gives_a_request_without_a_limit_which_is_invalid() -> None:
    answer = admit(pod(), limit_ranges=[limit_range({"type": "Container", "min": {GPU: 1}})])
    assert (answer.status, answer.message) == (
        422,
        'Pod "p" is invalid: spec.containers[0].resources.limits: Required value: '
        "Limit must be set for non overcommitable resources",
    )


def test_a_request_above_the_default_limit_is_invalid() -> None:
    answer = admit(
        pod(container(requests={"cpu": 2})), limit_ranges=[limit_range({"type": "Container", "default": {"cpu": 1}})]
    )
    assert answer.clauses == (
        'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    )


@pytest.mark.parametrize(
    ("item", "asked", "complaint"),
    [
        ({"min": {"cpu": 1}}, {}, "minimum cpu usage per Pod is 1.  No request is specified"),
        ({"min": {"cpu": 1}}, {"cpu": "500m"}, "minimum cpu usage per Pod is 1, but request is 500m"),
        ({"max": {GPU: 8}}, {}, "maximum nvidia.com/gpu usage per Pod is 8.  No limit is specified"),
        ({"max": {"cpu": 1}}, {"cpu": "1001m"}, "maximum cpu usage per Pod is 1, but limit is 1001m"),
        (
            {"maxLimitRequestRatio": {"memory": 2}},
            {},
            "memory max limit to request ratio per Pod is 2, but no request is specified or request is 0",
        ),
    ],
)
def test_bounds_of_a_pod(item: Resources, asked: Resources, complaint: str) -> None:
    answer = admit(pod(container(limits=asked)), limit_ranges=[limit_range({"type": "Pod", **item})])
    assert (answer.status, answer.message) == (403, f'pods "p" is forbidden: {complaint}')


def test_request_and_limit_are_looked_at_separately() -> None:
    asked = pod(container(requests={"cpu": "1", "memory": "1Gi"}, limits={"cpu": "3", "memory": "3Gi"}))
    bounds = {
        "type": "Pod",
        "max": {"cpu": 2},
        "min": {"memory": "2Gi"},
        "maxLimitRequestRatio": {"cpu": "1.5", "memory": "4"},
    }
    answer = admit(asked, limit_ranges=[limit_range(bounds)])
    assert answer.clauses == (
        "cpu max limit to request ratio per Pod is 1500m, but provided ratio is 3.000000",
        "maximum cpu usage per Pod is 2, but limit is 3",
        "minimum memory usage per Pod is 2Gi, but request is 1Gi",
    )
    assert answer.message == f'pods "p" is forbidden: [{", ".join(answer.clauses)}]'


def test_the_same_complaint_of_two_containers_is_made_once() -> None:
    answer = admit(
        pod(container("a", limits={"cpu": 3}), container("b", limits={"cpu": 3})),
        limit_ranges=[limit_range({"type": "Container", "max": {"cpu": 2}})],
    )
    assert answer.message == 'pods "p" is forbidden: maximum cpu usage per Container is 2, but limit is 3'


def test_the_order_of_two_limit_ranges_can_change_the_answer() -> None:
    small = limit_range({"type": "Container", "default": {"memory": "1Gi"}}, name="small")
    large = limit_range({"type": "Container", "default": {"memory": "4Gi"}}, name="large")
    answer = admit(pod(), limit_ranges=[small, large])
    assert resources_of(answer.pod)["limits"] == {"memory": "1Gi"}
    assert [resources_of(other.pod)["limits"] for other in answer.alternatives] == [{"memory": "4Gi"}]
    assert admit(pod(), limit_ranges=[small]).alternatives == ()


def test_pod_level_requests_may_show_what_a_limit_range_gave_to_the_containers() -> None:
    asked = pod(resources={"limits": {"memory": "1Gi"}})
    answer = admit(asked, limit_ranges=[limit_range({"type": "Container", "defaultRequest": {"cpu": "100m"}})])
    assert answer.pod["spec"]["resources"]["requests"] == {"memory": "1Gi", "cpu": "100m"}


def test_claims_are_held_to_the_bounds_of_their_own_kind() -> None:
    bounds = read_limit_range(
        limit_range({"type": "PersistentVolumeClaim", "min": {"storage": "1Gi"}, "max": {"storage": "10Gi"}})
    )

    def claim(storage: str) -> Resources:
        return {"spec": {"resources": {"requests": {"storage": storage}}}}

    assert broken_claim_bounds(claim("5Gi"), bounds) == ()
    assert sentences(broken_claim_bounds(claim("11Gi"), bounds)) == (
        "maximum storage usage per PersistentVolumeClaim is 10Gi, but request is 11Gi",
    )
    assert sentences(broken_claim_bounds({}, bounds)) == (
        "maximum storage usage per PersistentVolumeClaim is 10Gi.  No request is specified",
        "minimum storage usage per PersistentVolumeClaim is 1Gi.  No request is specified",
    )
