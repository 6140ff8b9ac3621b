"""The kill test in short: `python -m proofs supervisor-kills --count 2000` is the long one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proofs.supervisor_kills import SHAPES, torture


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_killed_at_random_moments_a_training_ends_as_if_undisturbed(tmp_path: Path, shape: str) -> None:
    kills = int(os.environ.get("KILLS", "10" if shape == "plain" else "4"))
    report = torture(tmp_path, str(tmp_path / "store"), kills=kills, steps=30 * kills, seed=11, shape=shape)
    assert report.kills >= kills // 2  # on a quick machine the work may be done before the last
    assert report.digest == report.expected
    assert report.corrupt == []
    assert report.false_green == []
    assert report.removed == []
