"""What people write finds the right model or profile, or an error that names the way out."""

from __future__ import annotations

import pytest

from gpuflow import catalog


@pytest.mark.parametrize("alias", catalog.aliases())
def test_every_alias_leads_to_its_model(alias: str) -> None:
    assert catalog.model(alias).id == catalog.aliases()[alias]


@pytest.mark.parametrize(
    ("written", "id"),
    [
        ("a100-80gb", "a100-80gb"),
        ("A100-80GB", "a100-80gb"),
        ("a100_80gb", "a100-80gb"),
        ("A100 80GB", "a100-80gb"),
        ("h100", "h100-80gb"),
        ("h100-nvl", "h100-94gb"),
        ("h200", "h200-141gb"),
        ("l4", "l4-24gb"),
        ("b200", "b200-180gb"),
    ],
)
def test_common_spellings(written: str, id: str) -> None:
    assert catalog.model(written).id == id


def test_a_model_is_handed_back() -> None:
    assert catalog.model(catalog.model("t4")) is catalog.model("t4-16gb")


@pytest.mark.parametrize("name", ["a100", "v100", "gh200", "A800"])
def test_a_name_of_several_models_is_refused_with_all_of_them(name: str) -> None:
    with pytest.raises(catalog.AmbiguousGpu) as caught:
        catalog.model(name)
    assert len(caught.value.suggestions) == 2
    assert all(id in str(caught.value) for id in caught.value.suggestions)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a100-80g", "a100-80gb"),
        ("h10", "h100-80gb"),
        ("nvidia-h100", "h100-80gb"),
        ("a100-sxm", "a100-80gb"),
        ("NVIDIA-A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("Tesla-T4", "t4-16gb"),
        ("rtxpro6000", "rtx-pro-6000-96gb"),
    ],
)
def test_a_near_miss_gets_a_suggestion(written: str, meant: str) -> None:
    with pytest.raises(catalog.UnknownGpu, match=f"did you mean .*{meant}") as caught:
        catalog.model(written)
    assert caught.value.name == written
    assert meant in caught.value.suggestions


def test_a_wild_miss_points_to_the_list() -> None:
    with pytest.raises(catalog.UnknownGpu, match="gpuflow gpus list") as caught:
        catalog.model("xyzzy")
    assert caught.value.suggestions == ()


def test_a_profile_of_another_model_says_whose_it_is() -> None:
    with pytest.raises(catalog.UnknownProfile) as caught:
        catalog.profile("a100-80gb", "1g.5gb")
    assert "a100-40gb" in str(caught.value)
    assert caught.value.suggestions[0] == "1g.10gb"
    assert caught.value.model == "a100-80gb"


def test_a_profile_of_a_gpu_without_mig_is_refused_as_such() -> None:
    with pytest.raises(catalog.UnknownProfile, match="l4-24gb has no MIG"):
        catalog.profile("l4", "1g.10gb")


def test_one_profile_name_means_different_slices() -> None:
    most = {model.id: catalog.profile(model, "1g.24gb").max for model in catalog.models_with_profile("1g.24gb")}
    assert most["rtx-pro-6000-96gb"] == 4
    assert most["rtx-pro-5000-48gb"] == 2
    assert most["h100-94gb"] == 4
    assert most["gb200-189gb"] == 7


def test_node_labels_with_and_without_the_maker_find_the_model() -> None:
    assert [model.id for model in catalog.models_with_product("NVIDIA-A100-SXM4-40GB")] == ["a100-40gb"]
    assert [model.id for model in catalog.models_with_product("A100-SXM4-40GB")] == ["a100-40gb"]
    assert catalog.models_with_product("A100") == ()


def test_pci_ids_find_the_model_in_any_case() -> None:
    assert [model.id for model in catalog.models_with_pci("0x233510de")] == ["h200-141gb"]
