"""What objects other than new pods cost against a quota."""

from gpuflow.kubernetes.admission.usage import usage_of_claim, usage_of_object, usage_of_pod, usage_of_resource_claim
from gpuflow.quantity import Quantity
from tests.checker.admission_cases import Resources, container, pod


def texts(usage: dict[str, Quantity]) -> dict[str, str]:
    return {key: str(quantity) for key, quantity in usage.items()}


def test_a_running_pod_and_a_finished_one() -> None:
    running = pod(container(requests={"cpu": "500m", "nvidia.com/gpu": 2}, limits={"cpu": 1, "nvidia.com/gpu": 2}))
    assert texts(usage_of_pod(running)) == {
        "count/pods": "1",
        "pods": "1",
        "cpu": "500m",
        "requests.cpu": "500m",
        "limits.cpu": "1",
        "requests.nvidia.com/gpu": "2",
    }
    assert texts(usage_of_pod(running | {"status": {"phase": "Succeeded"}})) == {"count/pods": "1"}


def test_a_pod_that_grew_in_place_counts_with_the_larger_size() -> None:
    asked = pod(container(requests={"cpu": 4}))
    asked["status"] = {"containerStatuses": [{"name": "main", "allocatedResources": {"cpu": 6}}]}
    assert str(usage_of_pod(asked)["cpu"]) == "6"


def test_a_claim_counts_its_storage_in_whole_bytes_and_by_class() -> None:
    claim = {"spec": {"storageClassName": "fast", "resources": {"requests": {"storage": "1.5Ki"}}}}
    assert texts(usage_of_claim(claim)) == {
        "count/persistentvolumeclaims": "1",
        "persistentvolumeclaims": "1",
        "requests.storage": "1536",
        "fast.storageclass.storage.k8s.io/persistentvolumeclaims": "1",
        "fast.storageclass.storage.k8s.io/requests.storage": "1536",
    }
    assert str(usage_of_claim({"spec": {"resources": {"requests": {"storage": "100m"}}}})["requests.storage"]) == "1"
    assert texts(usage_of_claim({})) == {"count/persistentvolumeclaims": "1", "persistentvolumeclaims": "1"}


def test_a_claim_whose_expansion_failed_counts_what_was_allocated() -> None:
    claim = {
        "metadata": {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}},
        "spec": {"storageClassName": "new", "resources": {"requests": {"storage": "1Gi"}}},
        "status": {"allocatedResources": {"storage": "2Gi"}},
    }
    assert str(usage_of_claim(claim)["old.storageclass.storage.k8s.io/requests.storage"]) == "2Gi"


def test_other_objects_are_counted_with_their_group() -> None:
    assert texts(usage_of_object("workflows", "argoproj.io")) == {"count/workflows.argoproj.io": "1"}
    assert texts(usage_of_object("configmaps")) == {"count/configmaps": "1", "configmaps": "1"}


def test_device_claims_count_the_dearest_alternative_of_each_class() -> None:
    def wanting(device_class: str, **more: object) -> Resources:
        return {"deviceClassName": device_class, **more}

    requests = [
        {"name": "exact", "exactly": wanting("gpu", allocationMode="ExactCount", count=2)},
        {"name": "all", "exactly": wanting("nic", allocationMode="All")},
        {"name": "either", "firstAvailable": [wanting("gpu", count=4), wanting("gpu"), wanting("mig", count=3)]},
    ]
    usage = usage_of_resource_claim({"spec": {"devices": {"requests": requests}}})
    assert texts(usage) == {
        "count/resourceclaims.resource.k8s.io": "1",
        "gpu.deviceclass.resource.k8s.io/devices": "6",
        "requests.deviceclass.resource.kubernetes.io/gpu": "6",
        "nic.deviceclass.resource.k8s.io/devices": "32",
        "requests.deviceclass.resource.kubernetes.io/nic": "32",
        "mig.deviceclass.resource.k8s.io/devices": "3",
        "requests.deviceclass.resource.kubernetes.io/mig": "3",
    }
