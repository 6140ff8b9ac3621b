"""The catalog's rows are complete, consistent with each other, and cost nothing until they are asked for."""

from __future__ import annotations

import math
import subprocess
import sys

import pytest

from gpuflow import catalog
from gpuflow.catalog.catalog import CONFIDENCES, ambiguous_names, lowest_confidence
from gpuflow.catalog.profile_name import parse_profile

MIG_MODELS = catalog.find_models(mig=True)
PROFILES = [profile for model in catalog.models() for profile in model.profiles]


def test_importing_the_package_parses_no_data() -> None:
    script = (
        "import sys, gpuflow.catalog\n"
        "from gpuflow.catalog import catalog, offers\n"
        "assert 'yaml' not in sys.modules, 'yaml is loaded'\n"
        "assert catalog.models.cache_info().currsize == 0\n"
        "assert offers.instances.cache_info().currsize == 0\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_every_model_says_where_it_is_known_from() -> None:
    for model in catalog.models():
        assert model.confidence in CONFIDENCES, model.id
        assert model.source, model.id
        assert model.mig is None or model.mig.source, model.id


def test_every_profile_says_where_it_is_known_from() -> None:
    assert len(PROFILES) == len({(profile.model, profile.name) for profile in PROFILES})
    for profile in PROFILES:
        assert profile.confidence in CONFIDENCES, (profile.model, profile.name)
        assert profile.source, (profile.model, profile.name)


def test_ids_end_in_the_memory_of_the_name() -> None:
    for model in catalog.models():
        assert model.id.endswith(f"-{model.memory_gb}gb")


def test_ids_aliases_and_ambiguous_names_never_meet() -> None:
    names = [name for model in catalog.models() for name in (model.id, *model.aliases)] + list(ambiguous_names())
    assert len(names) == len(set(names))
    assert names == [name.lower() for name in names]


def test_ambiguous_names_list_existing_models_only() -> None:
    known = {model.id for model in catalog.models()}
    for name, candidates in ambiguous_names().items():
        assert len(candidates) > 1, name
        assert set(candidates) <= known, name


def test_usable_memory_never_exceeds_the_name() -> None:
    for model in catalog.models():
        assert model.usable_gib is None or model.usable_gib < model.memory_gb, model.id
    for profile in PROFILES:
        named = parse_profile(profile.name).gb
        assert profile.usable_gib is None or profile.usable_gib < named, (profile.model, profile.name)


def test_family_follows_from_the_compute_capability() -> None:
    families = {"6": "pascal", "7": "volta", "9": "hopper", "10": "blackwell", "12": "blackwell"}
    exact = {"7.5": "turing", "8.0": "ampere", "8.6": "ampere", "8.9": "ada-lovelace"}
    for model in catalog.models():
        assert model.family == exact.get(model.cc, families.get(model.cc.partition(".")[0])), model.id


@pytest.mark.parametrize("model", MIG_MODELS, ids=lambda model: model.id)
def test_profile_names_follow_from_total_memory_and_share(model: catalog.Model) -> None:
    """The driver rounds a profile's share of the GPU's whole GiB half up; go-nvlib computes names the same way."""
    assert model.mig is not None
    for profile in model.profiles:
        share = model.memory_gb * profile.size / model.mig.grid
        assert parse_profile(profile.name).gb == math.floor(share + 0.5), profile.name
        assert parse_profile(profile.name).g == profile.g, profile.name


@pytest.mark.parametrize("model", MIG_MODELS, ids=lambda model: model.id)
def test_profiles_stay_inside_the_grid(model: catalog.Model) -> None:
    assert model.mig is not None
    for profile in model.profiles:
        assert profile.starts == tuple(sorted(set(profile.starts)))
        assert all(0 <= start <= model.mig.grid - profile.size for start in profile.starts)
        assert 1 <= profile.max <= len(profile.starts)
        assert profile.g <= model.mig.slices


def test_where_sources_disagree_the_smaller_memory_stands() -> None:
    doubts = {
        ("a100-80gb", "1g.10gb"): (9.50, 9.62),
        ("a100-80gb", "7g.80gb"): (78.50, 79.00),
        ("a30-24gb", "4g.24gb"): (23.44, 23.50),
        ("b200-180gb", "1g.23gb"): (20.50, 22.00),
    }
    for (model, name), figures in doubts.items():
        assert catalog.profile(model, name).usable_gib == min(figures)


def test_models_are_found_by_text_memory_family_and_mig() -> None:
    assert {model.id for model in catalog.find_models("SXM4-80GB")} == {"a100-80gb"}
    assert all(model.usable_gib and model.usable_gib >= 100 for model in catalog.find_models(memory_gib=100))
    assert {model.family for model in catalog.find_models(family="Hopper", mig=True)} == {"hopper"}
    assert not catalog.find_models("a100", mig=False)


def test_a_model_of_unknown_memory_is_never_said_to_have_enough() -> None:
    unknown = {model.id for model in catalog.models() if model.usable_gib is None}
    assert unknown
    assert not unknown & {model.id for model in catalog.find_models(memory_gib=0)}


def test_a_conclusion_is_as_sure_as_its_least_sure_part() -> None:
    assert lowest_confidence(["run", "guess", "seen"]) == "guess"
    assert lowest_confidence(["run", "seen"]) == "seen"
    assert lowest_confidence([]) == "run"


def test_every_product_of_a_model_with_forms_has_exactly_one() -> None:
    for model in catalog.models():
        told = [product for form in model.forms for product in form.products]
        assert sorted(told) == (sorted(model.products) if model.forms else [])
        assert model.products_in(None) == model.products
    assert catalog.model("a100-80gb").products_in("sxm") == ("NVIDIA-A100-SXM4-80GB", "NVIDIA-A800-SXM4-80GB")
    assert catalog.model("a100-80gb").products_in("nvl") == ()
