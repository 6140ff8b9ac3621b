"""A folder of its own for each test, which is where it runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuflow.local.attempt import kill_all


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, in which nothing runs on when the test has ended."""
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    kill_all(str(tmp_path))
