"""What claims cost against a quota."""

from gpuflow.kubernetes.admission.quota import usage_of_claim
from gpuflow.quantity import Quantity


def texts(usage: dict[str, Quantity]) -> dict[str, str]:
    return {key: str(quantity) for key, quantity in usage.items()}


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
