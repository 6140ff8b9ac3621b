"""Some of the checks that are made to take long (`make prove-bounds`), two of each family: each ends with an answer."""

from __future__ import annotations

import random

import pytest

from tests.checker import adversarial


@pytest.fixture(autouse=True)
def small_clusters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adversarial, "some_nodes", lambda draw: draw.choice(((20, 40), (200, 800))))


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("family", adversarial.FAMILIES)
def test_a_check_that_is_made_to_take_long_ends(family: str, seed: int) -> None:
    case = adversarial.FAMILIES[family][0](random.Random(f"{family} {seed}"))
    answer = adversarial.answer_of(seed, family, case)
    assert list(adversarial.faults(answer)) == []
