"""Instance types name known models and carry figures Kubernetes can read."""

from __future__ import annotations

from fractions import Fraction

from gpuflow import catalog
from gpuflow.catalog.catalog import CONFIDENCES, data_file
from gpuflow.quantity import Quantity


def test_every_instance_names_a_known_model_and_its_source() -> None:
    known = {model.id for model in catalog.models()}
    for instance in catalog.instances():
        assert instance.model in known, instance.name
        assert instance.source, instance.name
        assert instance.confidence in CONFIDENCES, instance.name


def test_names_are_unique_within_a_cloud() -> None:
    names = [(instance.cloud, instance.name) for instance in catalog.instances()]
    assert len(names) == len(set(names))


def test_allocatable_is_less_than_the_shape() -> None:
    documented = 0
    for instance in catalog.instances():
        if instance.allocatable_cpu and instance.allocatable_memory:
            documented += 1
            assert Quantity(instance.allocatable_cpu) < Quantity(instance.vcpu), instance.name
            assert Quantity(instance.allocatable_memory) < Quantity(f"{instance.memory_gib:g}Gi"), instance.name
    assert documented == len(catalog.find_instances(cloud="aws"))


def test_a_fraction_of_a_gpu_is_no_whole_gpu() -> None:
    parts = [instance for instance in catalog.instances() if instance.share]
    assert parts
    assert all(instance.gpus == 0 and 0 < Fraction(instance.share or "0") < 1 for instance in parts)
    assert all(instance.gpus > 0 for instance in catalog.instances() if not instance.share)


def test_instances_are_found_by_cloud_model_number_and_text() -> None:
    assert {instance.name for instance in catalog.find_instances(cloud="AWS", of="a100-80gb")} == {"p4de.24xlarge"}
    assert all(instance.gpus >= 8 for instance in catalog.find_instances(gpus=8))
    assert {instance.model for instance in catalog.find_instances("g6e.")} == {"l40s-48gb"}
    assert {instance.cloud for instance in catalog.find_instances(of="h200")} == {"aws", "gcp"}


def test_no_prices_are_shipped() -> None:
    head = data_file("instances.csv").read_text(encoding="utf-8").splitlines()[0]
    assert head.split(",") == [
        "cloud", "instance", "model", "gpus", "share", "vcpu", "memory_gib",
        "allocatable_cpu", "allocatable_memory", "efa", "source", "confidence",
    ]  # fmt: skip
