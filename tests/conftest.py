"""What all tests share: goldens that change only on purpose, and the corpora beside the repository."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from gpuflow.core.errors import Rule
from gpuflow.targets.capabilities import RefusalRule

# Times are not judged: the machine may be busy. GPUFLOW_EXAMPLES looks longer than every change can wait for.
# What lands is judged by the examples that a test always makes; everywhere else each run looks at new ones.
settings.register_profile(
    "gpuflow",
    deadline=None,
    max_examples=int(os.environ.get("GPUFLOW_EXAMPLES", "60")),
    derandomize=bool(os.environ.get("CI")) and "GPUFLOW_EXAMPLES" not in os.environ,
)
settings.load_profile("gpuflow")

ROOT = Path(__file__).resolve().parents[1]
CORPORA = ROOT.parent / "shared" / "corpora"

LONG = {
    **dict.fromkeys(
        ("gitops/test_action", "gitops/test_guide", "gitops/test_hooks", "first_hour/test_clone"), "install"
    ),
    "first_hour/test_pages": "run every command of every page",
    **dict.fromkeys(
        (f"targets/airflow/test_airflow_{name}" for name in ("alerts", "backfill", "ending", "run", "setup", "submit")),
        "run whole DAGs",
    ),
    **dict.fromkeys(
        (
            *("local/test_chaos", "runtime/test_artifact_killing", "runtime/test_explorer"),
            *("runtime/test_gang_killing", "runtime/test_killing"),
        ),
        "kill programs again and again",
    ),
    **dict.fromkeys(
        (
            *("checker/test_adversarial", "checker/test_advice_followed", "checker/test_dra_truth"),
            *("checker/nodes/test_domains_many", "checker/test_large_graphs"),
            *("checker/test_whole_pending", "checker/test_whole_shares"),
            *("checker/test_whole_truth", "cluster_model/test_mutation", "graph/test_graph_peak"),
            *("proofs/test_checker_recorded_truths", "proofs/test_trust_shown", "readers/argo/test_any_document"),
            *("runtime/test_sharded_keeper", "runtime/test_trust_store"),
        ),
        "play out thousands of documents, graphs and runs",
    ),
}
"""Files below tests/ that make test leaves out, and what takes so long in them; make test-long and CI run them."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite golden files with what the code gives now")


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--update-golden") and os.environ.get("CI"):
        raise pytest.UsageError("--update-golden is refused when CI is set: goldens change on purpose, by a person")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long. A test that starts a cluster says so by its mark; else every suite would start it."""
    for item in items:
        if str(item.path.relative_to(ROOT / "tests").with_suffix("")) in LONG:
            item.add_marker("long")
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


@pytest.fixture(scope="session", autouse=True)
def rules_say_their_own_codes() -> Iterator[None]:
    """A rule says only codes that it declares: by them it is found."""

    def checked(plain: Callable[[Any, Any], Iterator[Any]]) -> Callable[[Any, Any], Iterator[Any]]:
        def call(self: Any, context: Any) -> Iterator[Any]:
            for each in plain(self, context):
                assert not self.codes or each.code in self.codes, f"{self.find.__qualname__} says {each.code}"
                yield each

        return call

    with pytest.MonkeyPatch.context() as patch:
        for kind in (Rule, RefusalRule):
            patch.setattr(kind, "__call__", checked(kind.__call__))
        yield


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of public corpora that stands beside the repository."""
    if not CORPORA.is_dir():
        pytest.skip(f"the corpora are not here: {CORPORA} does not exist")
    return CORPORA
