"""The command line as a fixture."""

from __future__ import annotations

import pytest

from tests.cli.commands import Gpuflow


@pytest.fixture
def gpuflow(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Gpuflow:
    """`gpuflow("show", file)` gives exit code, standard output and standard error."""
    for variable in ("FORCE_COLOR", "NO_COLOR"):
        monkeypatch.delenv(variable, raising=False)
    return Gpuflow(capsys)
