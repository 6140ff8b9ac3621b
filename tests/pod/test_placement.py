"""Every way to ask for a GPU, on every preset: resource names, node labels, tolerations, or the refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuflow import GpuflowError, Pipeline, Site
from gpuflow.core.emit import emit
from gpuflow.pod import pod_for
from gpuflow.site import presets

GOLDEN = Path(__file__).parent / "golden"
WAYS: dict[str, dict[str, Any]] = {
    "no GPU": {},
    "two of a model": {"gpu": "a100-80gb x 2"},
    "any GPU": {"gpu": 1},
    "two of any": {"gpu": "any x 2"},
    "one form of a model": {"gpu": "a100-80gb sxm x 8"},
    "another form of it": {"gpu": {"model": "a100-80gb", "form": "pcie"}},
    "one form of several models": {"gpu": {"any_of": ["h100", "h200"], "form": "sxm"}},
    "enough memory in one form": {"gpu": {"memory": "70Gi", "form": "nvl"}},
    "any GPU on spot": {"gpu": 1, "spot": "require"},
    "any of several models": {"gpu": {"any_of": ["l4", "a100-80gb", "h100-80gb"]}},
    "enough memory": {"gpu": {"memory": "70Gi"}},
    "a model few sites have": {"gpu": "rtx-a6000"},
    "a slice": {"mig": "1g.10gb of a100-80gb"},
    "a slice with media": {"mig": "1g.10gb+me of a100-80gb"},
    "two slices": {"mig": "3g.40gb of a100-80gb x 2"},
    "a share by time": {"shared_gpu": "l4"},
    "a share by MPS": {"shared_gpu": {"model": "l4", "by": "mps"}},
    "a share of any model": {"shared_gpu": {}},
    "a DRA claim": {"device_claim": {"claim": "shared-gpu"}},
    "a DRA template": {"device_claim": {"template": "one-gpu", "request": "gpu"}},
    "never on spot": {"gpu": "a100-80gb", "spot": "never"},
    "allowed on spot": {"gpu": "a100-80gb", "spot": "allow"},
    "better on spot": {"gpu": {"any_of": ["l4", "a100-80gb"]}, "spot": "prefer"},
    "only on spot": {"gpu": "a100-80gb", "spot": "require"},
}


def pod(fields: dict[str, Any], site: Site) -> dict[str, Any]:
    pipeline = Pipeline("p", steps={"train": {"image": "registry.example.com/x:1", "command": ["train"], **fields}})
    return pod_for(pipeline, "train", site)


def placing(fields: dict[str, Any], site: Site) -> Any:
    """The parts of the pod that depend on the site, or the finding."""
    try:
        spec = pod(fields, site)["spec"]
    except GpuflowError as refusal:
        return [f"{finding.code} {finding.message}" for finding in refusal.findings]
    kept = ("nodeSelector", "affinity", "tolerations", "resourceClaims")
    resources = spec["containers"][0].get("resources")
    return {**{key: spec[key] for key in kept if key in spec}, **({"resources": resources} if resources else {})}


@pytest.mark.parametrize("preset", presets())
def test_gpus_in_the_words_of_each_preset(preset: str, golden: Callable[[Path, str], None]) -> None:
    site = Site.load(preset)
    golden(GOLDEN / f"{preset}.yaml", emit({way: placing(fields, site) for way, fields in WAYS.items()}))


@pytest.mark.parametrize("preset", presets())
@pytest.mark.parametrize("way", WAYS)
def test_extended_resources_stand_in_requests_and_limits_alike(way: str, preset: str) -> None:
    found = placing(WAYS[way], Site.load(preset))
    if isinstance(found, dict) and "requests" in found.get("resources", {}):
        assert found["resources"]["requests"] == found["resources"]["limits"]


def test_with_strategy_single_a_slice_is_a_gpu_of_a_node_that_is_cut_that_way(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text("apiVersion: gpuflow/v1\nkind: Site\nname: s\nextends: nvidia\nmig: {strategy: single}\n")
    found = placing({"mig": "1g.10gb of a100-80gb"}, Site.load(str(file)))
    assert found["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    labels = found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert all(value.endswith("-MIG-1g.10gb") for value in labels[0]["matchExpressions"][0]["values"])


def test_a_model_may_be_named_by_an_alias_in_the_pipeline_and_in_the_site(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    head = "apiVersion: gpuflow/v1\nkind: Site\nname: s\n"
    file.write_text(head + "gpu: {models: {h100: {labels: {example.com/gpu: [hopper, hopper-nvl]}}}}\n")
    found = placing({"gpu": "h100-80gb"}, Site.load(str(file)))
    assert found["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] == {
        "nodeSelectorTerms": [
            {"matchExpressions": [{"key": "example.com/gpu", "operator": "In", "values": ["hopper", "hopper-nvl"]}]}
        ]
    }


def test_the_users_own_affinity_and_ours_must_both_hold() -> None:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
    own = {"nodeAffinity": {required: {"nodeSelectorTerms": [term, {"matchFields": []}]}}}
    fields = {"gpu": {"any_of": ["l4", "t4"]}, "kubernetes": {"affinity": own}}
    terms = placing(fields, Site.load("gke"))["affinity"]["nodeAffinity"][required]["nodeSelectorTerms"]
    accelerators = ["nvidia-l4", "nvidia-tesla-t4"]
    ours = [
        {"key": "cloud.google.com/gke-accelerator", "operator": "In", "values": accelerators},
        {"key": "cloud.google.com/gke-gpu-partition-size", "operator": "DoesNotExist"},
        {"key": "cloud.google.com/gke-gpu-sharing-strategy", "operator": "DoesNotExist"},
    ]
    assert terms == [
        {"matchExpressions": [term["matchExpressions"][0], *ours]},
        {"matchFields": [], "matchExpressions": ours},
    ]
