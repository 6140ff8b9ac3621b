"""The artifacts' kill test in short: `python -m proofs artifacts --count 300` is the long one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proofs.artifacts import Round
from tests.runtime.artifact_tree import flaw, write

KILLS = int(os.environ.get("KILLS", "8"))


def test_killed_while_it_is_kept_or_fetched_no_artifact_is_accepted_that_is_not_whole(tmp_path: Path) -> None:
    report = Round(tmp_path / "round", str(tmp_path / "store"), "ordinary").run(KILLS)
    assert report.bad == []
    assert report.whole > 0
    assert sum(report.kills.values()) >= KILLS


@pytest.mark.s3
def test_nor_at_a_real_server(s3: str, tmp_path: Path) -> None:
    report = Round(tmp_path / "round", f"{s3}/artifact-kills", "ordinary").run(KILLS)
    assert report.bad == []
    assert report.whole > 0


@pytest.mark.parametrize("spoil", ["mixed", "missing", "more", "half"])
def test_the_judge_sees_what_is_not_whole(spoil: str, tmp_path: Path) -> None:
    write(str(tmp_path / "a"), "seed", "1")
    write(str(tmp_path / "b"), "seed", "2")
    assert flaw(str(tmp_path / "a")) is None
    large = tmp_path / "a" / "large"
    if spoil == "mixed":
        large.write_bytes((tmp_path / "b" / "large").read_bytes())
    elif spoil == "missing":
        large.unlink()
    elif spoil == "more":
        (tmp_path / "a" / "more").touch()
    else:
        large.write_bytes(large.read_bytes()[:-1])
    assert flaw(str(tmp_path / "a")) is not None
