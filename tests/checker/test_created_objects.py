"""Pods that a step's program creates are in no demand, and the check says so.

Tests gpuflow/checker/rules/pods.py.
"""

from __future__ import annotations

import pytest

from tests.checker.whole_scenes import checked, node

WORDS = {
    "by name": "command: [gpuflow-run, create, job.json]",
    "by path": "command: [python3, /gpuflow/bin/gpuflow-run, create, job.json]",
    "under the supervisor": "command: [gpuflow-run, create, job.json]\n    outputs: {lr: float}",
}


@pytest.mark.parametrize("way", WORDS)
@pytest.mark.parametrize("engine", ["none", "kubeflow", "argo"])
def test_a_step_that_creates_objects_is_named(way: str, engine: str) -> None:
    report = checked(f"steps:\n  train:\n    {WORDS[way]}\n", node("a"), engine=engine)
    (found,) = (finding for finding in report.findings if finding.code == "GF326")
    assert found.message.startswith('step "train" creates an object while it runs') and found.severity == "warning"
    assert "--together" in (found.hint or "")


def test_other_steps_are_not() -> None:
    report = checked(
        "steps: {a: {command: [gpuflow-run, '--', create]}, b: {command: [create, gpuflow-run]}}", node("a")
    )
    assert "GF326" not in {finding.code for finding in report.findings}
