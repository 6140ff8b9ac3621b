"""`gpuflow demand` says what an engine refuses: no empty table without a word."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuflow.cli.main import main

WORKFLOW = """\
apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  entrypoint: m
  templates:
  - name: m
    container: {image: a, resources: {limits: {nvidia.com/gpu: GPUS}}}
"""


@pytest.mark.parametrize("amount", ['"-1"', "1e400", ".inf", "yes", "[1]"])
def test_an_amount_that_no_pod_can_have_is_one_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], amount: str
) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(WORKFLOW.replace("GPUS", amount))
    assert main(["demand", str(path)]) == 2
    said = capsys.readouterr().err
    assert said.count("GF715") == 1
    assert f"{path}:" in said


def test_an_amount_that_a_pod_can_have_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "w.yaml"
    path.write_text(WORKFLOW.replace("GPUS", "1_0"))
    assert main(["demand", str(path)]) == 0
    out = capsys.readouterr()
    assert "requests.nvidia.com/gpu    10" in out.out
    assert "GF715" not in out.err
