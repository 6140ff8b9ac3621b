"""The engines' answers, recorded: ours are the same, and no engine is needed to see it.

A kind is held against its recordings as soon as gpuflow has an answer to it.

Tests gpuflow/kubernetes/pod_fields.py.
"""

from __future__ import annotations

import pytest

from tests.differential.comparison import ours
from tests.differential.kinds import ANSWERED, KINDS
from tests.differential.oracle import version
from tests.differential.tables import recorded, recorded_version, regressions


@pytest.mark.parametrize("name", ANSWERED)
def test_recorded_answers_are_given_here_too(name: str) -> None:
    kind = KINDS[name]
    for number, (case, answer) in enumerate(recorded(kind)):
        assert ours(kind, case) == kind.theirs(answer), f"case {number}"


@pytest.mark.parametrize("name", ANSWERED)
def test_what_once_differed_does_not_differ_again(name: str) -> None:
    kind = KINDS[name]
    for number, (case, answer) in enumerate(regressions(kind)):
        assert ours(kind, case) == answer, f"line {number + 1}"


@pytest.mark.parametrize("name", sorted(KINDS))
def test_the_recorded_answers_are_of_the_pinned_version(name: str) -> None:
    kind = KINDS[name]
    assert recorded_version(kind) == f"{kind.engine} {version(kind.engine)}"
