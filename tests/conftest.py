"""What all tests share: goldens that change only on purpose, and the corpora beside the repository."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# Times are not judged: the machine may be busy. GPUFLOW_EXAMPLES looks longer than every change can wait for.
settings.register_profile("gpuflow", deadline=None, max_examples=int(os.environ.get("GPUFLOW_EXAMPLES", "60")))
settings.load_profile("gpuflow")

ROOT = Path(__file__).resolve().parents[1]
CORPORA = ROOT.parent / "shared" / "corpora"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the code gives now")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is refused when CI is set: goldens change on purpose, by a person")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that starts a cluster says so by its mark; without one every suite would start it."""
    for item in items:
        starts = "proof_ground" in getattr(item, "fixturenames", ())
        if starts and not any(item.get_closest_marker(mark) for mark in ("cluster", "control_plane")):
            raise pytest.UsageError(f"{item.nodeid} starts a cluster: mark it cluster or control_plane")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[Path, str], None]:
    """Compare a text with a golden file; `--update-golden` rewrites it instead."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        assert path.exists(), f"{path} does not exist; make it with pytest --update-golden"
        expected = path.read_text(encoding="utf-8")
        if text != expected:
            diff = difflib.unified_diff(expected.splitlines(), text.splitlines(), "golden", "now", lineterm="")
            pytest.fail(f"{path.name} differs from its golden:\n" + "\n".join(list(diff)[:80]))

    return compare


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of public corpora that stands beside the repository."""
    if not CORPORA.is_dir():
        pytest.skip(f"the corpora are not here: {CORPORA} does not exist")
    return CORPORA
