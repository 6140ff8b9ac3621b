"""Hostile text in every field, compiled to KFP's IR. `make prove-trust` runs thousands of cases."""

from __future__ import annotations

import pytest

from gpuflow.targets.kubeflow import refusals, text
from tests.hostile import running
from tests.hostile.smoke import assert_nothing_is_injected, injections


@pytest.fixture(autouse=True)
def fresh_twins() -> None:
    """Twins are kept from case to case, and doors are changed between tests."""
    running._twin.cache_clear()


def test_hostile_text_stays_text() -> None:
    assert_nothing_is_injected("kubeflow", 250)


def test_braces_that_are_not_hidden_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text, "without_double_braces", str)
    assert injections("kubeflow", 600)


def test_tags_that_are_not_refused_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "stray_tags", lambda name, pod, where: iter(()))
    assert injections("kubeflow", 1500)
