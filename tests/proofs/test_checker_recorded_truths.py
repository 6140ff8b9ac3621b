"""The checker against truths on file: several hundred whole runs, in every order, without Go."""

from __future__ import annotations

from collections import Counter

import pytest

from proofs.checker.proving import answered, key_of
from proofs.checker.recorded import cases, on_file
from tests.differential.oracle import version

AGAIN = "record them anew: python -m proofs checker --record"


def test_the_truths_are_of_the_pinned_version() -> None:
    assert on_file()["judge"] == version("simulator"), AGAIN


@pytest.mark.slow
def test_no_verdict_on_a_recorded_run_is_wrong() -> None:
    known = on_file()["known faults"]
    wrong, words = [], Counter()
    for case, key, truth in cases():
        assert key_of(case) == key, f"case {case.seed} is not what was judged; {AGAIN}"
        answer = answered(case, truth)
        words[truth.word] += 1
        if answer.fault in ("wrong always", "wrong never", "error") and case.seed not in known:
            wrong.append(answer)
    assert not wrong, f"look at one with python -m proofs checker --case {wrong[0].seed}: {wrong}"
    assert all(words[word] >= 0.15 * sum(words.values()) for word in ("always", "may-queue", "never")), words
