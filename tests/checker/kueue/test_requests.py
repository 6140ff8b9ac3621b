"""What a workload is charged: Kueue's configuration, LimitRanges and runtime classes have a say.

Tests gpuflow/checker/kueue/requests.py.
"""

from typing import Any

from tests.checker.kueue.questions import GPU, SMALL
from tests.checker.kueue.scenes import NAMESPACE, asked, cluster_queue, pod_set, scene, with_spec, workload

ABOVE = "previously considered podsets requests (0) + current podset request"


def resources(**configured: Any) -> dict[str, Any]:
    return {"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "resources": configured}


def limit_range(**item: Any) -> dict[str, Any]:
    metadata = {"name": "limits", "namespace": NAMESPACE}
    return {"kind": "LimitRange", "metadata": metadata, "spec": {"limits": [{"type": "Container", **item}]}}


def test_excluded_prefixes_are_not_charged() -> None:
    case = scene(workload(pod_set(cpu="1", fpga="3")), cluster_queue(SMALL))
    assert asked(case).verdict == "never"
    assert asked(case, configuration=resources(excludeResourcePrefixes=["example.com/"])).fits


def test_a_slice_can_be_counted_as_a_share_of_a_gpu() -> None:
    seventh = {"input": "nvidia.com/mig-1g.10gb", "strategy": "Replace", "outputs": {GPU: "0.142857"}}
    case = scene(workload(pod_set(count=3, mig="7")), cluster_queue(SMALL))
    answer = asked(case, configuration=resources(transformations=[seventh]))
    assert answer.message == (
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a, "
        f"{ABOVE} (3) > maximum capacity (2)"
    )


def test_a_retained_input_is_charged_beside_what_is_made_of_it() -> None:
    credits = {"input": GPU, "multiplyBy": "cpu", "outputs": {"example.com/credits": "10"}}
    queue = cluster_queue({"a": {"cpu": "4", GPU: "2", "example.com/credits": "50"}})
    answer = asked(
        scene(workload(pod_set(cpu="2", gpu="2")), queue), configuration=resources(transformations=[credits])
    )
    assert answer.fits
    assert answer.usage == {"main": {"cpu": "2", "example.com/credits": "40", GPU: "2"}}


def test_an_allowance_never_turns_into_a_negative_charge() -> None:
    rules = [{"input": "cpu", "strategy": "Replace", "outputs": {GPU: "-5"}}]
    case = scene(workload(pod_set(cpu="1", gpu="1")), cluster_queue(SMALL))
    assert asked(case, configuration=resources(transformations=rules)).usage == {"main": {GPU: "1"}}


def test_undeclared_resources_can_be_left_out() -> None:
    case = scene(workload(pod_set(cpu="1", fpga="3")), cluster_queue(SMALL))
    answer = asked(case, configuration=resources(quotaCheckStrategy="IgnoreUndeclared"))
    assert answer.fits and answer.pod_sets == {"main": {"cpu": "a"}}


def test_limit_range_defaults_are_charged() -> None:
    case = scene(workload(pod_set()), cluster_queue(SMALL))
    answer = asked(case, limit_ranges=[limit_range(max={GPU: "4"})])
    assert answer.message == (
        "couldn't assign flavors to pod set main: insufficient quota for nvidia.com/gpu in flavor a, "
        f"{ABOVE} (4) > maximum capacity (2)"
    )


def test_limit_range_bounds_are_checked() -> None:
    case = scene(workload(pod_set(cpu="2", memory="1Gi")), cluster_queue(SMALL))
    answer = asked(case, limit_ranges=[limit_range(max={"cpu": "1"}, min={"memory": "2Gi"})])
    assert answer.verdict == "blocked"
    assert answer.message == (
        "resources validation failed: spec.podSets[0].template.spec.containers[0]: "
        'Invalid value: ["cpu"]: requests must not exceed its limits'
    )
    generous = limit_range(max={"cpu": "1"}, default={"cpu": "4"}, min={"memory": "2Gi"})
    where = "spec.podSets[0].template.spec.containers[0]"
    assert asked(case, limit_ranges=[generous]).message == (
        f'resources didn\'t satisfy LimitRange constraints: [{where}: Invalid value: ["cpu"]: requests must not be '
        f'above the limitRange max, {where}: Invalid value: ["memory"]: requests must not be below the limitRange min]'
    )


def test_a_limit_range_of_another_namespace_has_no_say() -> None:
    elsewhere = limit_range(max={GPU: "4"})
    elsewhere["metadata"]["namespace"] = "team-b"
    case = scene(workload(pod_set(gpu="1")), cluster_queue(SMALL))
    assert asked(case, limit_ranges=[elsewhere]).usage == {"main": {GPU: "1"}}


def test_the_overhead_of_a_runtime_class_is_charged() -> None:
    case = scene(workload(with_spec(pod_set(count=2, cpu="1"), runtimeClassName="kata")), cluster_queue(SMALL))
    kata = {"metadata": {"name": "kata"}, "handler": "kata", "overhead": {"podFixed": {"cpu": "250m"}}}
    assert asked(case, runtime_classes=[kata]).usage == {"main": {"cpu": "2500m"}}


def test_a_workload_admitted_in_part_says_for_how_many_pods() -> None:
    answer = asked(scene(workload({**pod_set(count=8, gpu="1"), "minCount": 1}), cluster_queue(SMALL)))
    assert answer.fits and answer.counts == {"main": 2} and answer.usage == {"main": {GPU: "2"}}
