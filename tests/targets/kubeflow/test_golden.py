"""Compiled text changes only on purpose: `pytest --update-golden`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.targets.kubeflow.compiling import compiled
from tests.targets.kubeflow.samples import SAMPLES

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("name", SAMPLES)
def test_compiled_text(name: str, golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / f"{name}.yaml", compiled(SAMPLES[name]))


def test_compiled_resources_for_git(golden: Callable[[Path, str], None]) -> None:
    golden(GOLDEN / "timed-crd.yaml", compiled(SAMPLES["timed"], form="crd"))
