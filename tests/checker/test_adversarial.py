"""Some of the checks that are made to take long (`python -m proofs bounds`), two of each family: each has an answer."""

from __future__ import annotations

import random

import pytest

from proofs import bounds as adversarial


@pytest.fixture(autouse=True)
def small_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adversarial, "some_nodes", lambda draw: draw.choice(((20, 40), (200, 800))))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("family", adversarial.FAMILIES)
def test_a_check_that_is_made_to_take_long_ends(family: str, seed: int) -> None:
    case = adversarial.FAMILIES[family][0](random.Random(f"{family} {seed}"))
    answer = adversarial.answer_of(seed, family, case)
    assert list(adversarial.faults(answer)) == []
