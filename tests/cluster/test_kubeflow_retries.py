"""Retry budgets on a real Kubeflow: exact where the site says retry: always; elsewhere what is said is what happens.

One or two runs for each case, so that a race between Argo and the kubelet (a deleted pod may be seen as deleted, or by
its exit code) is no difference: where that decides, either end is taken. `python -m tests.cluster.kubeflow_retries`
plays the whole table of proofs/retries.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .cluster import Cluster
from .kubeflow_retries import Case, Player, Result, cases, player

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def ground(kubeflow: Cluster) -> Iterator[Player]:
    kubeflow.image("gpuflow")
    with player(kubeflow) as made:
        yield made


def played(ground: Player, *wanted: Case) -> dict[tuple[str, ...], Result]:
    """The results of cases with the same settings, by kind and acts."""
    known = cases()
    assert all(case in known for case in wanted), "the table has every case that is tested"
    by_name = {case.name: case for case in wanted}
    found = {result.case: result for result in ground.play(wanted)}
    return {(by_name[name].kind, *by_name[name].acts): result for name, result in found.items()}


def counts(result: Result) -> tuple[str, int, int]:
    return result.state, result.pods, result.starts


def test_with_the_setting_budgets_are_exact(ground: Player) -> None:
    found = played(
        ground,
        Case("always", "plain", ("fail",)),
        Case("always", "plain", ("delete",) * 3, 0, 3),
        Case("always", "plain", ("delete",) * 4, 0, 3),
        Case("always", "counted", ("delete",) * 3, 0, 3),
        Case("always", "counted", ("delete",) * 4, 0, 3),
        Case("always", "counted", ("fail", "delete", "fail", "evict")),
        Case("always", "counted", ("fail", "fail", "fail")),
        Case("always", "counted", ("final",)),
    )
    assert counts(found["plain", "fail"]) == ("SUCCEEDED", 2, 2)
    for kind in ("plain", "counted"):
        assert counts(found[kind, *["delete"] * 3]) == ("SUCCEEDED", 4, 4), "3 of 3"
        assert counts(found[kind, *["delete"] * 4]) == ("FAILED", 4, 4), "4 of 3"
    mixed = found["counted", "fail", "delete", "fail", "evict"]
    assert counts(mixed) == ("SUCCEEDED", 5, 5)
    assert (mixed.failures, mixed.interruptions) == (2, 2)
    spent = found["counted", "fail", "fail", "fail"]
    assert counts(spent) == ("FAILED", 5, 3), "the budget of 2 failures ends it; KFP goes on to its 4 retries"
    assert (spent.failures, spent.idle) == (3, 2)
    final = found["counted", "final"]
    assert counts(final) == ("FAILED", 5, 1)
    assert final.idle == 4, "as many as the note says"


def test_as_it_is_shipped_failures_are_repeated_inside_the_pod(ground: Player) -> None:
    found = played(
        ground,
        Case("stock", "plain", ("fail",)),
        Case("stock", "supervised", ("fail",)),
        Case("stock", "supervised", ("final",)),
        Case("stock", "counted", ("fail", "fail", "fail")),
        Case("stock", "counted", ("fail", "delete", "fail")),
    )
    assert counts(found["plain", "fail"]) == ("FAILED", 1, 1), "what is said of a plain step"
    assert counts(found["supervised", "fail"]) == ("SUCCEEDED", 1, 2)
    assert counts(found["supervised", "final"]) == ("FAILED", 1, 1)
    assert counts(found["counted", "fail", "fail", "fail"]) == ("FAILED", 1, 3)
    mixed = found["counted", "fail", "delete", "fail"]
    # Argo sees that the pod was deleted, and starts another; or its exit code, and ends the step.
    assert counts(mixed) in (("SUCCEEDED", 2, 4), ("FAILED", 1, 2))


def test_without_any_setting_nothing_is_multiplied(ground: Player) -> None:
    found = played(
        ground,
        Case("before", "plain", ("fail",)),
        Case("before", "supervised", ("fail",)),
        Case("before", "counted", ("fail", "fail", "fail")),
    )
    assert counts(found["plain", "fail"]) == ("SUCCEEDED", 2, 2)
    assert counts(found["supervised", "fail"]) == ("SUCCEEDED", 1, 2)
    spent = found["counted", "fail", "fail", "fail"]
    assert (spent.state, spent.starts) == ("FAILED", 3)
    assert spent.idle <= 2, "as many as the note says"
