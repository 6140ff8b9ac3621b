"""ResourceQuota: what counts, what must be said, and the words of the refusal."""

import pytest

from gpuflow.kubernetes.admission.decision import admit
from gpuflow.kubernetes.admission.quota import is_tracked_for_pods, read_quota
from tests.checker.admission_cases import Resources, container, limit_range, pod, quota

GPU = "nvidia.com/gpu"


def gpus(count: int, **spec: object) -> Resources:
    return pod(container(limits={GPU: count}), **spec)


def test_a_pod_that_fits_is_charged_to_every_quota() -> None:
    answer = admit(gpus(2), quotas=[quota("a", {f"requests.{GPU}": "8", "pods": "5"}, {f"requests.{GPU}": "4"})])
    assert (answer.status, answer.message, answer.allowed) == (201, None, True)
    assert answer.used == {"a": {f"requests.{GPU}": "6", "pods": "1"}}
    assert answer.usage == {"count/pods": "1", "pods": "1", f"requests.{GPU}": "2"}


def test_the_refusal_names_what_is_exceeded_and_nothing_else() -> None:
    hard = {f"requests.{GPU}": "8", "pods": "9", "requests.memory": "1Gi"}
    memory = pod(container(limits={GPU: 2, "memory": "2048Mi"}))
    answer = admit(memory, quotas=[quota("gpu", hard, {f"requests.{GPU}": "7", "pods": "3"})])
    assert answer.status == 403
    assert answer.message == (
        'pods "p" is forbidden: exceeded quota: gpu, requested: requests.memory=2Gi,requests.nvidia.com/gpu=2, '
        "used: requests.memory=0,requests.nvidia.com/gpu=7, limited: requests.memory=1Gi,requests.nvidia.com/gpu=8"
    )
    assert answer.used == {}


def test_keys_that_kubernetes_never_enforces_stop_nobody() -> None:
    dead = {GPU: "1", f"limits.{GPU}": "1", "limits.nvidia.com/mig-1g.10gb": "0"}
    assert not any(map(is_tracked_for_pods, dead))
    assert admit(gpus(7), quotas=[quota("dead", dead)]).allowed
    assert is_tracked_for_pods(f"requests.{GPU}")


def test_a_mig_slice_is_not_a_gpu_to_a_quota() -> None:
    sliced = pod(container(limits={"nvidia.com/mig-1g.10gb": 1}))
    assert admit(sliced, quotas=[quota("gpu", {f"requests.{GPU}": "0"})]).allowed
    assert not admit(sliced, quotas=[quota("mig", {"requests.nvidia.com/mig-1g.10gb": "0"})]).allowed


def test_a_full_quota_still_admits_pods_that_ask_for_nothing_of_it() -> None:
    assert admit(pod(), quotas=[quota("gpu", {f"requests.{GPU}": "1"}, {f"requests.{GPU}": "4"})]).allowed


def test_every_container_must_say_what_a_cpu_or_memory_quota_counts() -> None:
    asked = pod(
        container("main", requests={"cpu": 1, "memory": "1Gi"}),
        container("side", requests={"cpu": "0"}),
        initContainers=[container("init")],
    )
    answer = admit(asked, quotas=[quota("compute", {"requests.cpu": "8", "limits.memory": "8Gi"})])
    assert answer.message == (
        'pods "p" is forbidden: failed quota: compute: must specify '
        "limits.memory for: init,main,side; requests.cpu for: init"
    )


def test_pod_level_resources_speak_for_all_containers_but_an_empty_map_does_not() -> None:
    compute = [quota("compute", {"requests.cpu": "8"})]
    assert admit(pod(resources={"requests": {"cpu": 2}}), quotas=compute).allowed
    refused = admit(pod(resources={}), quotas=compute)
    assert refused.message == 'pods "p" is forbidden: failed quota: compute: must specify requests.cpu for: main'


def test_a_quota_whose_usage_is_not_known_yet_refuses() -> None:
    young = quota("young", {"pods": "5", f"requests.{GPU}": "4"})
    del young["status"]["used"]["pods"]
    assert admit(gpus(1), quotas=[young]).message == (
        'pods "p" is forbidden: status unknown for quota: young, resources: pods,requests.nvidia.com/gpu'
    )


def test_a_quota_kept_in_git_is_judged_as_written_and_that_is_said() -> None:
    written = quota("written", {f"requests.{GPU}": "1"})
    del written["status"]
    assert admit(gpus(1), quotas=[written]).assumed == ("written",)
    assert admit(gpus(2), quotas=[written]).stage == "quota"
    assert admit(gpus(1), quotas=[quota("known", {"pods": "1"})]).assumed == ()


def test_all_quotas_are_asked_for_missing_requests_before_any_total_is_compared() -> None:
    full, strict = quota("full", {"pods": "0"}), quota("strict", {"cpu": "1"})
    assert "must specify cpu" in (admit(pod(), quotas=[full, strict]).message or "")


def test_either_of_two_exceeded_quotas_may_be_the_one_named() -> None:
    answer = admit(pod(), quotas=[quota("one", {"pods": "0"}), quota("two", {"count/pods": "0"})])
    assert "exceeded quota: one" in (answer.message or "")
    assert ["exceeded quota: two" in (other.message or "") for other in answer.alternatives] == [True]


def test_a_quota_of_another_namespace_has_no_say() -> None:
    elsewhere = quota("elsewhere", {"pods": "0"})
    elsewhere["metadata"]["namespace"] = "other"
    assert admit(pod(), quotas=[elsewhere]).used == {}
    unnamed = pod()
    del unnamed["metadata"]["namespace"]
    assert not admit(unnamed, quotas=[elsewhere]).allowed
    assert admit(unnamed, quotas=[elsewhere], namespace="ns").allowed


@pytest.mark.parametrize(
    ("scope", "asked", "counts"),
    [
        ("Terminating", pod(activeDeadlineSeconds=60), True),
        ("Terminating", pod(), False),
        ("NotTerminating", pod(), True),
        ("BestEffort", gpus(1), True),
        ("NotBestEffort", gpus(1), False),
        ("NotBestEffort", pod(container(requests={"cpu": 1})), True),
        ("PriorityClass", pod(priorityClassName="high"), True),
        ("PriorityClass", pod(), False),
        ("VolumeAttributesClass", pod(), False),
        ("Unheard", pod(), False),
    ],
)
def test_scopes(scope: str, asked: Resources, counts: bool) -> None:
    answer = admit(asked, quotas=[quota("scoped", {"pods": "0"}, scopes=[scope])])
    assert (answer.stage == "quota") is counts


@pytest.mark.parametrize(
    ("operator", "values", "name", "counts"),
    [
        ("In", ["high"], "high", True),
        ("In", ["high"], "low", False),
        ("In", ["high"], None, False),
        ("NotIn", ["high"], "low", True),
        ("NotIn", ["high"], None, True),
        ("NotIn", ["high"], "high", False),
        ("Exists", [], "high", True),
        ("DoesNotExist", [], "high", False),
        ("DoesNotExist", [], None, True),
    ],
)
def test_scope_selectors_on_the_priority_class(
    operator: str, values: list[str], name: str | None, counts: bool
) -> None:
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}
    answer = admit(pod(priorityClassName=name), quotas=[quota("scoped", {"pods": "0"}, scopeSelector=selector)])
    assert (answer.stage == "quota") is counts


def test_affinity_to_pods_of_other_namespaces_is_a_scope() -> None:
    term = {"topologyKey": "zone", "labelSelector": {}}
    scoped = [quota("cross", {"pods": "0"}, scopes=["CrossNamespacePodAffinity"])]

    def affine(**more: object) -> Resources:
        weighted = [{"weight": 1, "podAffinityTerm": {**term, **more}}]
        rules = {"preferredDuringSchedulingIgnoredDuringExecution": weighted}
        return pod(affinity={"podAntiAffinity": rules})

    assert admit(affine(), quotas=scoped).allowed
    assert not admit(affine(namespaces=["other"]), quotas=scoped).allowed
    assert not admit(affine(namespaceSelector={}), quotas=scoped).allowed


def test_a_quota_can_be_read_once_for_many_pods() -> None:
    read = read_quota(quota("gpu", {f"requests.{GPU}": "1"}))
    assert [admit(gpus(count), quotas=[read]).status for count in (1, 2)] == [201, 403]


def test_huge_pages_count_under_both_their_names() -> None:
    asked = pod(container(limits={"hugepages-2Mi": "4Mi", "cpu": 1}))
    hard = {"hugepages-2Mi": "2Mi", "requests.hugepages-2Mi": "2Mi"}
    assert "hugepages-2Mi=4Mi,requests.hugepages-2Mi=4Mi" in (admit(asked, quotas=[quota("h", hard)]).message or "")


def test_the_defaults_of_a_limit_range_are_charged() -> None:
    trap = limit_range({"type": "Container", "max": {GPU: 4}})
    answer = admit(pod(), limit_ranges=[trap], quotas=[quota("gpu", {f"requests.{GPU}": "3"})])
    assert "requested: requests.nvidia.com/gpu=4, used: requests.nvidia.com/gpu=0" in (answer.message or "")
