"""The 422 of the API server, clause by clause.

Tests gpuflow/kubernetes/admission/field_errors.py and gpuflow/kubernetes/admission/validation.py.
"""

import pytest

from gpuflow.kubernetes.admission.decision import admit
from tests.checker.admission_cases import Resources, container, pod

GPU = "nvidia.com/gpu"
LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
KEY_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def clauses(asked: Resources) -> tuple[str, ...]:
    answer = admit(asked)
    assert answer.status == (422 if answer.clauses else 201)
    return answer.clauses


@pytest.mark.parametrize(
    ("requests", "limits", "complaints"),
    [
        ({}, {GPU: 1}, []),
        ({}, {GPU: "2e0", "cpu": "0.5", "memory": "1.5Gi", "ephemeral-storage": "1G"}, []),
        ({}, {"foo.kubernetes.io/gpu": 1}, []),
        ({"cpu": 2}, {"cpu": 1}, ['requests: Invalid value: "2": must be less than or equal to cpu limit of 1']),
        ({GPU: 1}, {GPU: 2}, ['requests: Invalid value: "1": must be equal to nvidia.com/gpu limit of 2']),
        ({GPU: 1}, {}, ["limits: Required value: Limit must be set for non overcommitable resources"]),
        (
            {},
            {GPU: "0.5"},
            [
                'limits[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
                'requests[nvidia.com/gpu]: Invalid value: "500m": must be an integer',
            ],
        ),
        ({"cpu": "-1"}, {}, ['requests[cpu]: Invalid value: "-1": must be greater than or equal to 0']),
        (
            {"gpu": 1},
            {},
            [
                'requests[gpu]: Invalid value: "gpu": must be a standard resource for containers',
                'requests[gpu]: Invalid value: "gpu": must be a standard resource type or fully qualified',
            ],
        ),
        (
            {f"requests.{GPU}": 1},
            {f"requests.{GPU}": 1},
            [
                f'{side}[requests.{GPU}]: Invalid value: "requests.{GPU}": '
                "doesn't follow extended resource name standard"
                for side in ("limits", "requests")
            ],
        ),
        (
            {"cpu": 1, "hugepages-2Mi": "3Mi"},
            {"hugepages-2Mi": "3Mi"},
            [
                f'{side}[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi'
                for side in ("limits", "requests")
            ],
        ),
    ],
)
def test_resources_of_a_container(requests: Resources, limits: Resources, complaints: list[str]) -> None:
    found = clauses(pod(container(requests=requests, limits=limits)))
    assert found == tuple(sorted(f"spec.containers[0].resources.{complaint}" for complaint in complaints))


def test_huge_pages_need_cpu_or_memory() -> None:
    assert clauses(pod(container(limits={"hugepages-2Mi": "2Mi"}))) == (
        "spec.containers[0].resources: Forbidden: HugePages require cpu or memory",
    )


def test_a_resource_name_with_two_slashes() -> None:
    asked = pod(initContainers=[container("init", requests={"nvidia.com/gpu/x": 1}, limits={"nvidia.com/gpu/x": 1})])
    field = 'spec.initContainers[0].resources.limits[nvidia.com/gpu/x]: Invalid value: "nvidia.com/gpu/x": '
    assert clauses(asked)[:2] == (
        f"{field}a valid label key {KEY_RULE} with an optional DNS subdomain prefix and '/' "
        "(e.g. 'example.com/MyName')",
        f"{field}doesn't follow extended resource name standard",
    )


def test_pod_level_resources_must_leave_room_for_the_containers() -> None:
    asked = pod(
        container("a", limits={"cpu": 3}),
        container("b", requests={"cpu": 2}),
        resources={"requests": {"cpu": 4}, "limits": {"cpu": 2, GPU: 1}},
    )
    assert clauses(asked) == (
        'spec.resources.containers[0][cpu].limits: Invalid value: "3": must be less than or equal to pod limits of 2',
        'spec.resources.limits[nvidia.com/gpu]: Unsupported value: "nvidia.com/gpu": '
        'supported values: "cpu", "hugepages-", "memory"',
        'spec.resources.requests: Invalid value: "4": must be less than or equal to cpu limit of 2',
        'spec.resources.requests[cpu]: Invalid value: "4": '
        "must be greater than or equal to aggregate container requests of 5",
    )


def test_pod_level_requests_default_to_the_containers_and_then_to_the_limits() -> None:
    asked = pod(container(requests={"cpu": 1}), resources={"limits": {"cpu": 2, "memory": "1Gi"}})
    assert admit(asked).pod["spec"]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


def test_sub_milli_requests_are_summed_before_they_are_rounded() -> None:
    tiny = [container(name, requests={"cpu": "0.0001"}) for name in ("a", "b")]
    assert clauses(pod(*tiny, resources={"limits": {"cpu": 1}})) == (
        'spec.resources.requests[cpu]: Invalid value: "1m": '
        "must be greater than or equal to aggregate container requests of 2m",
    )


def test_overhead_is_validated_like_limits() -> None:
    assert clauses(pod(overhead={"cpu": "-1"})) == (
        'spec.overhead.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0',
    )


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        (pod(container("")), "spec.containers[0].name: Required value"),
        (pod(container("C_0")), f'spec.containers[0].name: Invalid value: "C_0": {LABEL_RULE}'),
        (pod(container("a.b")), 'spec.containers[0].name: Invalid value: "a.b": must not contain dots'),
        (
            pod(container("a" * 64)),
            f'spec.containers[0].name: Invalid value: "{"a" * 64}": must be no more than 63 characters',
        ),
        (pod(container("a"), container("a")), 'spec.containers[1].name: Duplicate value: "a"'),
        (
            pod(container("a"), initContainers=[container("a")]),
            'spec.initContainers[0].name: Duplicate value: "a"',
        ),
        (pod(container() | {"image": ""}), "spec.containers[0].image: Required value"),
        (
            pod(container() | {"image": "x "}),
            'spec.containers[0].image: Invalid value: "x ": must not have leading or trailing whitespace',
        ),
        (
            pod(activeDeadlineSeconds=0),
            "spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ),
        (
            pod(restartPolicy="Sometimes"),
            'spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"',
        ),
        (
            pod(nodeSelector={"bad key": "x"}),
            f'spec.nodeSelector: Invalid value: "bad key": name part {KEY_RULE}',
        ),
        (
            pod(tolerations=[{"operator": "Equal", "value": "x"}]),
            'spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, '
            'which means "match all values and all keys"',
        ),
        (
            pod(tolerations=[{"key": "a", "operator": "Exists", "effect": "Never"}]),
            'spec.tolerations[0].effect: Unsupported value: "Never": '
            'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"',
        ),
        (
            pod(container() | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}),
            'spec.containers[0].volumeMounts[0].name: Not found: "data"',
        ),
        (
            pod(container() | {"resources": {"claims": [{"name": "gpu"}]}}),
            'spec.containers[0].resources.claims[0]: Not found: "gpu": '
            "must be one of the names in pod.spec.resourceClaims which is empty",
        ),
        (pod(ephemeralContainers=[{"name": "x"}]), "spec.ephemeralContainers: Forbidden: cannot be set on create"),
        (
            pod(nodeName="n", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}]),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
        ),
        (
            pod(container('a"\n')),
            f'spec.containers[0].name: Invalid value: "a\\"\\n": {LABEL_RULE}',
        ),
    ],
)
def test_the_rest_of_a_pod(asked: Resources, complaint: str) -> None:
    assert clauses(asked) == (complaint,)


def test_several_clauses_come_sorted_in_brackets() -> None:
    answer = admit(pod(container("", limits={GPU: "0.5"}), activeDeadlineSeconds=-1))
    assert answer.message == f'Pod "p" is invalid: [{", ".join(answer.clauses)}]'
    assert list(answer.clauses) == sorted(answer.clauses)
    assert len(answer.clauses) == 4


def test_a_pod_with_only_a_generated_name_is_called_by_its_prefix() -> None:
    asked = pod(container("C"))
    asked["metadata"] = {"generateName": "train-"}
    assert (admit(asked).message or "").startswith('Pod "train-" is invalid: ')


def test_a_port_of_the_node_can_be_taken_once() -> None:
    first, second = ({"name": name, "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]} for name in "ab")
    message = admit({"metadata": {"name": "p"}, "spec": {"containers": [first, second]}}).message
    assert message == 'Pod "p" is invalid: spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80"'
    assert admit({"metadata": {"name": "p"}, "spec": {"containers": [first], "initContainers": [second]}}).allowed
