"""The promise itself, against cases that were worked out by hand; no cluster is needed."""

from __future__ import annotations

from typing import Any

import pytest

from proofs.retries.contract import FAILED, SUCCEEDED, Case, End, faults, promised
from proofs.retries.sequences import sequences


def case(*acts: str, failures: int = 1, interruptions: int = 3, **more: Any) -> Case:
    return Case(
        "case", more.pop("engine", "argo"), more.pop("care", "supervised"), failures, interruptions, acts, **more
    )


@pytest.mark.parametrize(
    ("given", "end"),
    [
        # The three of the findings: a training that cannot fit, one that hangs, one that fills its disk.
        (case("oomgroup", "oomgroup"), End(FAILED, 2, 2, 0)),
        (case("timeout:never", "timeout:143"), End(FAILED, 2, 2, 0)),
        (case("disk:volume", "delete:143"), End(SUCCEEDED, 3, 1, 1)),
        (case("evict:0", failures=0, interruptions=0), End(FAILED, 1, 0, 1)),
        (case("exit:2", final=(2,)), End(FAILED, 1, 1, 0)),
        (case("kill", final=(137,)), End(FAILED, 1, 1, 0)),
        (case("oom", final=(137,)), End(SUCCEEDED, 2, 1, 0)),
        (case("crash", "supervisor"), End(SUCCEEDED, 3, 0, 2)),
        # Without a supervisor 143 is what a program that was told to stop leaves.
        (case("exit:143", failures=0, interruptions=1), End(FAILED, 1, 1, 0)),
        (case("exit:143", failures=0, interruptions=1, care="alone"), End(SUCCEEDED, 2, 0, 1)),
        # A plain number covers everything.
        (case("delete:143", "exit:1", failures=2, interruptions=0, plain=True, care="alone"), End(SUCCEEDED, 3, 1, 1)),
        (case("delete:143", "oom", failures=1, interruptions=0, plain=True, care="alone"), End(FAILED, 2, 1, 1)),
        # Before the supervisor runs: nothing on Argo, an interruption on Airflow.
        (case("init-evict", "init-evict", "exit:1"), End(SUCCEEDED, 2, 1, 0)),
        (case("init-evict", "init-delete", interruptions=1, engine="airflow"), End(FAILED, 0, 0, 2)),
        (case("oomgroup", "init-evict"), End(SUCCEEDED, 2, 0, 1)),
        (case("oomgroup", "init-evict", engine="airflow"), End(SUCCEEDED, 2, 1, 1)),
        (case("image"), End(SUCCEEDED, 1, 0, 0)),
        (case("forbidden", care="alone"), End(FAILED, 0, 0, 0)),
    ],
)
def test_what_is_promised(given: Case, end: End) -> None:
    assert promised(given) == end


def test_what_comes_after_the_end_is_no_fault() -> None:
    assert faults(case("exit:1", "exit:1", "exit:1", "delete:143")) == 2
    assert faults(case("exit:0", "exit:1")) == 0


def test_a_seed_gives_the_same_sequences_and_as_many_faults_as_asked_for() -> None:
    first, again = (list(sequences(("argo", "airflow"), 7, 60)) for _ in range(2))
    assert first == again
    assert sum(map(faults, first)) >= 60
    assert first != list(sequences(("argo", "airflow"), 8, 60))
    kinds = {act.partition(":")[0] for one in sequences(("argo", "airflow"), 7, 400) for act in one.acts}
    assert {"oom", "oomgroup", "timeout", "disk", "init-evict", "delete", "force", "evict", "taint", "crash"} <= kinds
