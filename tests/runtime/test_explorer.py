"""The explorer in short: `python -m proofs supervisor` is the long one."""

from __future__ import annotations

import re

import pytest

from proofs.supervisor import __main__ as explorer
from proofs.supervisor import mutations
from proofs.supervisor.choices import Bounds
from proofs.supervisor.scenarios import ALL, BY_NAME
from proofs.supervisor.search import explore

ROOT = explorer.ROOT
MOST = 80
"""Executions of each scenario: the first ones with one decision, the same on every machine; CI plays all of them."""


@pytest.mark.parametrize("name", [scenario.name for scenario in ALL])
def test_every_invariant_holds_whatever_goes_wrong_once(name: str) -> None:
    report = explore(BY_NAME[name], Bounds(1), most=MOST)
    assert not report.found, report.found[0].story()
    assert report.executions > 50
    assert len(report.states) > 100


@pytest.mark.parametrize("name", sorted(mutations.ALL))
def test_a_fix_that_is_taken_back_is_found(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert explorer.mutate(name) == 0, capfd.readouterr().out
    assert "VIOLATED" in capfd.readouterr().out


def test_the_same_decisions_lead_to_the_same_end() -> None:
    traces = []
    for _ in range(2):
        report = explore(BY_NAME["machines"], Bounds(1, {"crash": 1, "fault": 0, "delay": 0, "start": 0}))
        traces.append((report.executions, report.moves, sorted(report.states)))
    assert traces[0] == traces[1]


def test_shared_among_processes_the_search_is_the_same() -> None:
    bounds = Bounds(1, {"crash": 1, "fault": 0, "delay": 0, "start": 0})
    whole = explore(BY_NAME["restarts"], bounds)
    parts = [explore(BY_NAME["restarts"], bounds, share=(index, 3)) for index in range(3)]
    # Each part begins with the execution in which nothing is decided.
    assert sum(part.executions for part in parts) == whole.executions + 2
    assert set.union(*(part.states for part in parts)) == whole.states


def test_every_test_that_the_table_of_findings_names_is_there() -> None:
    page = (ROOT / "docs" / "design" / "supervisor-findings.md").read_text(encoding="utf-8")
    known = "\n".join(
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "tests" / "runtime").glob("test_*.py"))
    )
    rows = [line for line in page.splitlines() if line.startswith("| D")]
    assert [row.split("|")[1].strip() for row in rows] == [f"D{number}" for number in range(1, 36)]
    names = re.findall(r"[a-z0-9]+(?:_[a-z0-9]+){3,}", page)
    assert len(names) > 60
    assert [name for name in names if f"def test_{name}" not in known] == []
