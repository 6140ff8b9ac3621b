"""Priority and runtime classes, quality of service, and what the stored pod shows of them.

Tests gpuflow/kubernetes/admission/classes.py and gpuflow/kubernetes/admission/pod.py.
"""

import pytest

from gpuflow.kubernetes.admission.decision import admit
from tests.checker.admission_cases import Resources, container, limit_range, pod, quota

HIGH = {"metadata": {"name": "high"}, "value": 1000, "preemptionPolicy": "Never"}
USUAL = {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True}
KATA = {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "250m", "memory": "1Gi"}}}
PLAIN = {"metadata": {"name": "plain"}, "handler": "runc"}


def test_the_number_of_the_named_class() -> None:
    spec = admit(pod(priorityClassName="high"), priority_classes=[HIGH, USUAL]).pod["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (1000, "Never")


def test_a_pod_without_a_class_gets_the_default_one_and_its_quota() -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["usual"]}]}
    answer = admit(pod(), priority_classes=[USUAL], quotas=[quota("q", {"pods": "0"}, scopeSelector=selector)])
    assert answer.pod["spec"]["priorityClassName"] == "usual"
    assert answer.stage == "quota"


def test_without_any_default_the_priority_is_zero() -> None:
    spec = admit(pod(), priority_classes=[]).pod["spec"]
    assert (spec["priority"], "priorityClassName" in spec) == (0, False)


def test_the_classes_of_the_system_always_exist() -> None:
    asked = pod(priorityClassName="system-node-critical")
    assert admit(asked, priority_classes=[]).pod["spec"]["priority"] == 2_000_001_000


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"priorityClassName": "nope"}, "no PriorityClass with name nope was found"),
        (
            {"priorityClassName": "high", "priority": 7},
            "the integer value of priority (7) must not be provided in pod spec; "
            "priority admission controller computed 1000 from the given PriorityClass name",
        ),
        (
            {"priorityClassName": "high", "preemptionPolicy": "PreemptLowerPriority"},
            "the string value of PreemptionPolicy (PreemptLowerPriority) must not be provided in pod spec; "
            "priority admission controller computed Never from the given PriorityClass name",
        ),
    ],
)
def test_a_priority_that_is_refused_before_anything_else(spec: Resources, reason: str) -> None:
    answer = admit(pod(container("NOT VALID"), **spec), priority_classes=[HIGH])
    assert (answer.status, answer.stage, answer.message) == (403, "priority", f'pods "p" is forbidden: {reason}')
    assert answer.usage == {}


def test_unknown_classes_are_not_judged() -> None:
    answer = admit(pod(priorityClassName="nope", runtimeClassName="nope", overhead={"cpu": 1}))
    assert answer.allowed
    assert "priority" not in answer.pod["spec"]
    assert answer.usage["requests.cpu"] == "1"


def test_the_overhead_of_a_runtime_class_is_charged() -> None:
    answer = admit(pod(container(limits={"cpu": 1}), runtimeClassName="kata"), runtime_classes=[KATA])
    assert answer.pod["spec"]["overhead"] == {"cpu": "250m", "memory": "1Gi"}
    assert (answer.usage["requests.cpu"], answer.usage["limits.cpu"]) == ("1250m", "1250m")
    assert answer.usage["requests.memory"] == "1Gi"
    assert "limits.memory" not in answer.usage


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"runtimeClassName": "nope"}, 'pod rejected: RuntimeClass "nope" not found'),
        (
            {"runtimeClassName": "kata", "overhead": {"cpu": "1"}},
            "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead",
        ),
        (
            {"runtimeClassName": "plain", "overhead": {"cpu": "1"}},
            "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        ),
        ({"overhead": {}}, "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"),
    ],
)
def test_runtime_classes_that_refuse(spec: Resources, reason: str) -> None:
    answer = admit(pod(**spec), runtime_classes=[KATA, PLAIN])
    assert (answer.stage, answer.message) == ("runtimeclass", f'pods "p" is forbidden: {reason}')


def test_an_overhead_of_its_own_is_refused_only_after_the_limit_ranges() -> None:
    answer = admit(
        pod(overhead={"cpu": 1}),
        runtime_classes=[],
        limit_ranges=[limit_range({"type": "Pod", "min": {"cpu": 1}})],
    )
    assert answer.stage == "limitrange"


def test_scheduling_of_a_runtime_class_goes_into_the_pod() -> None:
    toleration = {"key": "kata", "operator": "Exists", "effect": "NoSchedule"}
    scheduled = KATA | {"scheduling": {"nodeSelector": {"pool": "kata"}, "tolerations": [toleration]}}
    wide = {"operator": "Exists"}
    asked = pod(runtimeClassName="kata", nodeSelector={"gpu": "yes"}, tolerations=[wide])
    spec = admit(asked, runtime_classes=[scheduled]).pod["spec"]
    assert spec["nodeSelector"] == {"gpu": "yes", "pool": "kata"}
    assert list(spec["tolerations"]) == [wide]
    other = admit(pod(runtimeClassName="kata", nodeSelector={"pool": "x"}), runtime_classes=[scheduled])
    assert other.message == (
        'pods "p" is forbidden: conflict: runtimeClass.scheduling.nodeSelector[pool] = kata; '
        "pod.spec.nodeSelector[pool] = x"
    )


@pytest.mark.parametrize(
    ("asked", "service"),
    [
        (pod(), "BestEffort"),
        (pod(container(limits={"nvidia.com/gpu": 1})), "BestEffort"),
        (pod(container(limits={"cpu": 1})), "Burstable"),
        (pod(container(limits={"cpu": 1, "memory": "1Gi"})), "Guaranteed"),
        (pod(container("a", limits={"cpu": 1, "memory": "1Gi"}), container("b")), "Burstable"),
        (pod(container(requests={"cpu": 1}, limits={"cpu": 2, "memory": "1Gi"})), "Burstable"),
        (pod(container(limits={"cpu": 1}), resources={}), "BestEffort"),
        (pod(resources={"limits": {"cpu": 1, "memory": "1Gi"}}), "Guaranteed"),
        (pod(resources={"requests": {"cpu": 1}}), "Burstable"),
    ],
)
def test_quality_of_service(asked: Resources, service: str) -> None:
    assert admit(asked).pod["status"] == {"phase": "Pending", "qosClass": service}
