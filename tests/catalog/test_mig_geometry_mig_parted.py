"""Every geometry of NVIDIA's own mig-parted default configuration is legal by our rules."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from gpuflow import catalog

CONFIG = (
    Path(__file__).resolve().parents[2] / ".." / "shared" / "corpora" / "mig-parted" / "config-default.yaml"
).resolve()

UNKNOWN_DEVICES = {"0x20B610DE"}
"""PG506-96GB: the configuration lists it with Hopper boards, but which architecture it has is not known."""

REFUSED = {
    ("all-1g.24gb", "rtx-pro-5000-48gb"),
    ("all-1g.24gb-me", "rtx-pro-5000-48gb"),
    ("all-1g.24gb.gfx", "rtx-pro-5000-48gb"),
    ("all-2g.48gb", "rtx-pro-5000-48gb"),
    ("all-2g.48gb.gfx", "rtx-pro-5000-48gb"),
}
"""Written for the RTX PRO 6000 and not filtered by device: the smaller board has the profiles, but not so many."""


@pytest.fixture(scope="module")
def configs() -> dict[str, list[dict[str, object]]]:
    if not CONFIG.exists():
        pytest.skip("the mig-parted configuration is not beside this checkout (../shared/corpora/mig-parted)")
    content: dict[str, dict[str, list[dict[str, object]]]] = yaml.safe_load(CONFIG.read_text(encoding="utf-8"))
    return content["mig-configs"]


def geometries(configs: dict[str, list[dict[str, object]]]) -> Iterator[tuple[str, list[str] | None, dict[str, int]]]:
    """Config name, device filter (None: any device), and the slices asked for."""
    for name, entries in configs.items():
        for entry in entries:
            wanted = entry.get("device-filter")
            devices = [wanted] if isinstance(wanted, str) else wanted
            slices = entry.get("mig-devices")
            if isinstance(slices, dict) and slices:
                yield name, devices if isinstance(devices, list) else None, slices


def owners(devices: list[str] | None, slices: dict[str, int]) -> set[catalog.Model]:
    """Models an entry is for: those of its filter, or every model with profiles of these names."""
    having = [set(catalog.models_with_profile(name)) for name in slices]
    if devices is None:
        return set.intersection(*having)
    return {
        model
        for device in devices
        for model in catalog.models_with_pci(device)
        if all(model in some for some in having)
    }


def test_every_geometry_is_legal_but_for_the_known_exceptions(configs: dict[str, list[dict[str, object]]]) -> None:
    refused = {
        (name, model.id)
        for name, devices, slices in geometries(configs)
        for model in owners(devices, slices)
        if not catalog.arrange(model, slices).legal
    }
    assert refused == REFUSED


def test_every_geometry_belongs_to_a_known_model(configs: dict[str, list[dict[str, object]]]) -> None:
    homeless = [name for name, devices, slices in geometries(configs) if not owners(devices, slices)]
    assert homeless == []
    assert len(list(geometries(configs))) > 80


def test_every_filtered_device_is_known_but_for_one(configs: dict[str, list[dict[str, object]]]) -> None:
    devices = {device for _, filtered, _ in geometries(configs) for device in filtered or ()}
    assert {device for device in devices if not catalog.models_with_pci(device)} == UNKNOWN_DEVICES


def test_every_balanced_geometry_is_legal(configs: dict[str, list[dict[str, object]]]) -> None:
    balanced = [(devices, slices) for name, devices, slices in geometries(configs) if name == "all-balanced"]
    checked = [
        catalog.arrange(model, slices).legal for devices, slices in balanced for model in owners(devices, slices)
    ]
    assert len(checked) >= len(balanced)
    assert all(checked)
