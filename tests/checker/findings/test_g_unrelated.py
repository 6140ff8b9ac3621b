"""Findings G: what an unrelated queue does not show decides nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.checker.findings.snapshots import HOME, NODE, QUEUED, shown
from tests.checker.kueue.scenes import cluster_queue, cohort
from tests.checker.whole_scenes import queues, quota, text_of


def lost(**spec: Any) -> dict[str, Any]:
    """Another queue, with more workloads than the snapshot shows."""
    return {**cluster_queue({"f": quota(8)}, name="theirs", **spec), "status": {"pendingWorkloads": 3}}


def test_g_a_queue_that_shares_no_quota_does_not_make_unknown() -> None:
    report = shown(QUEUED, HOME, NODE, *queues({"f": quota(8)}), lost())
    assert (report.verdict, text_of(report, "GF574")) == ("always", "")


@pytest.mark.parametrize(("ours", "theirs"), [("all", "all"), ("all", "below"), ("below", "beside")])
def test_g_a_queue_of_the_same_tree_of_cohorts_does(ours: str, theirs: str) -> None:
    tree = [cohort("all"), cohort("below", parentName="all"), cohort("beside", parentName="all")]
    own = queues({"f": quota(8)}, cohortName=ours)
    report = shown(QUEUED, HOME, NODE, *tree, *own, lost(cohortName=theirs))
    assert (report.verdict, "has 3 pending workloads" in text_of(report, "GF574")) == ("unknown", True)
    assert shown(QUEUED, HOME, NODE, *tree, *own, lost(cohortName="elsewhere")).verdict == "always"
