"""The command line as a fixture, asked about one small pipeline."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.commands import Answer, Gpuflow
from tests.cluster_model.scenes import PIPELINE

Check = Callable[..., Answer]


@pytest.fixture
def check(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Check:
    """`check(cluster)` runs `gpuflow check` on a pipeline of one step with two GPUs, or on the one given."""
    monkeypatch.setenv("GPUFLOW_TRACEBACK", "1")  # a fault of gpuflow is a failed test, not an exit code
    for variable in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    gpuflow = Gpuflow(capsys)

    def ask(cluster: object, *words: object, pipeline: str = PIPELINE, format: str = "json") -> Answer:
        file = tmp_path / "pipeline-to-check"
        file.mkdir(exist_ok=True)
        (file / "p.yaml").write_text(pipeline)
        place = ("--namespace", "ns", "--cluster", cluster, "--format", format)
        return gpuflow("check", file / "p.yaml", *place, *words)

    return ask
