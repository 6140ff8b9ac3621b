"""Hostile text in every field, shown in every format of the command line. `python -m proofs trust` runs thousands."""

from __future__ import annotations

import re

import pytest

from proofs.trust import running
from proofs.trust.smoke import assert_nothing_is_injected, injections


@pytest.fixture(autouse=True)
def fresh_twins() -> None:
    """Twins are kept from case to case, and doors are changed between tests."""
    running._twin.cache_clear()


def test_hostile_text_stays_text() -> None:
    assert_nothing_is_injected("core", 250)


def test_findings_without_their_door_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuflow.core.printable.HIDDEN_CHARACTERS", re.compile("(?!)"))
    monkeypatch.setattr("gpuflow.core.printable._HIDDEN_IN_LINES", re.compile("(?!)"))
    assert injections("core", 600)
