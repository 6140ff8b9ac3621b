"""Resource names and product labels are those of NVIDIA's device plugin and GPU Feature Discovery."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuflow import catalog
from gpuflow.catalog.kubernetes_names import MAX_LABEL

PROFILES = [(model.id, profile.name) for model in catalog.models() for profile in model.profiles]
LABELED = [
    (product, model, profile)
    for model in catalog.models()
    for product in model.products
    for profile in (None, *(profile.name for profile in model.profiles))
]


@pytest.mark.parametrize(("model", "profile"), PROFILES)
def test_every_slice_is_recognized_by_its_resource(model: str, profile: str) -> None:
    plain = f"nvidia.com/mig-{profile.replace('+', '.')}"
    shared = f"{plain}.shared"
    assert catalog.profile_of_resource(plain) == catalog.profile_of_resource(shared) == profile
    assert len(shared) <= 63


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "cpu", "nvidia.com/mig-foo", "amd.com/gpu"])
def test_other_resources_are_no_slices(resource: str) -> None:
    assert catalog.profile_of_resource(resource) is None


@pytest.mark.parametrize(
    ("name", "profile", "shared", "label"),
    [
        ("NVIDIA H100 80GB HBM3", None, False, "NVIDIA-H100-80GB-HBM3"),
        ("NVIDIA H100 80GB HBM3", "1g.10gb", False, "NVIDIA-H100-80GB-HBM3-MIG-1g.10gb"),
        ("A100-SXM4-40GB", "1g.5gb", True, "A100-SXM4-40GB-MIG-1g.5gb-SHARED"),
        ("Tesla T4", None, True, "Tesla-T4-SHARED"),
        ("NVIDIA  A100 (80GB)", "1g.10gb+me", False, "NVIDIA-A100-80GB-MIG-1g.10gb.me"),
    ],
)
def test_product_labels_are_spelled_as_on_nodes(name: str, profile: str | None, shared: bool, label: str) -> None:
    assert catalog.product_label(name, profile, shared=shared) == label


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("product", "model", "profile"), LABELED)
def test_every_label_of_the_catalog_leads_back_or_is_too_long(
    product: str, model: catalog.Model, profile: str | None, shared: bool
) -> None:
    if len(product) + len(f"-MIG-{profile}" if profile else "") + len("-SHARED" if shared else "") > MAX_LABEL:
        with pytest.raises(catalog.LabelTooLong, match=product):
            catalog.product_label(product, profile, shared=shared)
        return
    label = catalog.product_label(product, profile, shared=shared)
    assert len(label) <= MAX_LABEL
    read = catalog.read_product_label(label)
    assert (read.product, read.profile, read.shared, read.invalid) == (product, profile, shared, False)
    assert model in read.models


def test_labels_longer_than_kubernetes_allows_cannot_exist() -> None:
    with pytest.raises(catalog.LabelTooLong, match="67 characters"):
        catalog.product_label("NVIDIA-RTX-PRO-6000-Blackwell-Max-Q-Workstation-Edition", "1g.24gb")
    with pytest.raises(catalog.LabelTooLong, match="70 characters"):
        catalog.product_label("NVIDIA-RTX-PRO-6000-Blackwell-Server-Edition", "1g.24gb+me.all", shared=True)


def test_a_model_gives_the_labels_its_nodes_can_carry() -> None:
    assert catalog.product_labels("a100-80gb", "1g.10gb") == (
        "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb",
        "NVIDIA-A100-80GB-PCIe-MIG-1g.10gb",
        "NVIDIA-A800-SXM4-80GB-MIG-1g.10gb",
    )
    assert len(catalog.product_labels("rtx-pro-6000", "1g.24gb")) == 2
    with pytest.raises(catalog.LabelTooLong):
        catalog.product_labels("rtx-pro-6000", "1g.24gb+me.all", shared=True)
    with pytest.raises(catalog.UnknownProfile):
        catalog.product_labels("a100-80gb", "1g.5gb")


def test_a_node_with_a_broken_single_strategy_offers_nothing() -> None:
    read = catalog.read_product_label("NVIDIA-A100-SXM4-80GB-MIG-INVALID")
    assert read.invalid
    assert read.profile is None
    assert [model.id for model in read.models] == ["a100-80gb"]


@settings(deadline=None)
@given(st.text(max_size=80))
def test_any_label_can_be_read(value: str) -> None:
    read = catalog.read_product_label(value)
    assert value.startswith(read.product)
