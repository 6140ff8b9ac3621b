"""The smoke part of the proof of whole documents: Kubernetes' own kinds and Kueue, and what is called a fault."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proofs.whole_documents.__main__ import main
from proofs.whole_documents.answers import fault
from proofs.whole_documents.scenes import scene_of
from tests.cluster.cluster import Cluster
from tests.cluster.conftest import control_plane, kueue, private_cluster, proof_ground, pytest_runtest_setup
from tests.cluster.fixtures import AnyCluster

__all__ = ["control_plane", "kueue", "private_cluster", "proof_ground", "pytest_runtest_setup"]
KINDS = "Job,Deployment,ReplicaSet,StatefulSet,DaemonSet,Pod"


@pytest.mark.control_plane
def test_the_checker_is_never_wrong_about_what_a_control_plane_does(
    private_cluster: Cluster, kueue: AnyCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--count", "20", "--seed", "1", "--kinds", KINDS, "--resume", str(tmp_path / "results.jsonl")]
    status = main([*words, "--cluster", private_cluster.state["name"]])
    said = capsys.readouterr().out
    assert "20 documents (seed 1): " in said
    assert status == 0, said


@pytest.mark.parametrize(
    ("verdict", "codes", "outcome", "expected"),
    [
        ("always", [], "came", ""),
        ("always", [], "waited", "wrong always"),
        ("always", [], "asleep", ""),
        ("always", [], "refused", "wrong always"),
        ("never", ["GF501"], "stuck", ""),
        ("never", ["GF501"], "waited", "wrong never"),
        ("error", ["GF736"], "refused", ""),
        ("error", ["GF736"], "came", "wrong never"),
        ("error", ["GF703"], "came", "not judged, and it came"),
        ("never", ["GF501"], "asleep", ""),
        ("may-queue", [], "waited", ""),
        ("may-queue", [], "stuck", "may-queue, and it stuck"),
        ("unknown", [], "refused", "unknown, and it was refused"),
        ("traceback", [], "came", "no answer"),
    ],
)
def test_what_is_a_fault(verdict: str, codes: list[str], outcome: str, expected: str) -> None:
    row: dict[str, Any] = {"checker": {"verdict": verdict, "codes": codes}, "outcome": outcome}
    assert fault(row) == expected


def test_a_scene_is_the_same_for_the_same_seed_and_number() -> None:
    assert scene_of(1, 7) == scene_of(1, 7) != scene_of(1, 8)
