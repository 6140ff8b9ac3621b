"""The kill test in short: `python -m tests.runtime.killing --kills 300` is the long one."""

from __future__ import annotations

import os
from pathlib import Path

from tests.runtime.killing import torture


def test_killed_at_random_moments_a_training_ends_as_if_undisturbed(tmp_path: Path) -> None:
    kills = int(os.environ.get("KILLS", "20"))
    report = torture(tmp_path, str(tmp_path / "store"), kills=kills, steps=600, seed=11)
    assert report.digest == report.expected
    assert report.corrupt == []
    assert report.false_green == []
