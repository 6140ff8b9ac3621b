"""The proof ground's fixtures for the tests in this folder, and the time each part took."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from .faults import NotPossible
from .fixtures import (
    PARTS,
    argo,
    cluster,
    control_plane,
    faults,
    jobset,
    kubeconfig,
    kubeflow,
    kueue,
    lacking,
    namespace,
    obstacle,
    private_cluster,
    proof_ground,
    workflows,
)
from .given import Lacking

__all__ = [
    "argo",
    "cluster",
    "control_plane",
    "faults",
    "jobset",
    "kubeconfig",
    "kubeflow",
    "kueue",
    "namespace",
    "private_cluster",
    "proof_ground",
    "workflows",
]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """One reason for the whole folder, said once."""
    if reason := obstacle():
        lacking(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """A test that meets something its cluster does not have says so, instead of an error."""
    try:
        return (yield)
    except (Lacking, NotPossible) as error:
        lacking(str(error))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """One line per part of the cluster's start and per test, set-up included."""
    parts: list[tuple[str, float]] = config.stash.get(PARTS, [])
    tests: dict[str, float] = {}
    for reports in terminalreporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.nodeid.startswith("tests/cluster/"):
                name = report.nodeid.removeprefix("tests/cluster/")
                tests[name] = tests.get(name, 0.0) + report.duration
    if parts:
        terminalreporter.section("proof ground: seconds of each part")
        for name, seconds in (*parts, *tests.items()):
            terminalreporter.line(f"{seconds:7.1f}  {name}")
