"""The model of KFP's driver gives back what the driver itself was recorded to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.targets.kubeflow.driver_model import driver_pods

RECORDED = Path(__file__).resolve().parents[3] / ".." / "shared" / "corpora" / "kubeflow-pipelines"


def recordings() -> dict[str, Any]:
    path = RECORDED / "driver-pods.json"
    if not path.is_file():
        return {}
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded


def documents(path: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    first, *rest = yaml.load_all(path.read_text(), Loader=yaml.CSafeLoader)
    if "pipelineSpec" in first:
        return first["pipelineSpec"], first.get("platformSpec", {})
    return first, rest[0] if rest else {}


@pytest.mark.skipif(not recordings(), reason=f"no recordings: {RECORDED} does not exist")
def test_the_model_gives_every_recorded_pod_and_every_recorded_refusal() -> None:
    recorded = recordings()
    wrong = {}
    for name, pods in recorded.items():
        modelled = driver_pods(*documents(RECORDED / name), arrive=lambda message: message)
        if modelled != pods:
            wrong[name] = [label for label in {*modelled, *pods} if modelled.get(label) != pods.get(label)]
    assert len(recorded) >= 99
    assert wrong == {}
