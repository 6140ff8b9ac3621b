"""Hostile text in every field, compiled to DAG files with gpuflow and without. `python -m proofs trust` runs more."""

from __future__ import annotations

import sys

import pytest

from gpuflow.targets.airflow import python_source
from proofs.trust import running
from proofs.trust.smoke import assert_nothing_is_injected, found, in_file_name, in_place, injections


@pytest.fixture(autouse=True)
def fresh_twins() -> None:
    """Twins are kept from case to case, and doors are changed between tests."""
    running._twin.cache_clear()


def test_hostile_text_stays_text() -> None:
    assert_nothing_is_injected("airflow", 350)


def test_a_literal_without_its_quotes_escaped_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(python_source, "string_literal", lambda text: f'"{text}"')
    assert injections("airflow", 400)


def test_text_within_jinjas_reach_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["gpuflow.targets.airflow.standalone"]
    monkeypatch.setattr(module, "_literal", lambda text: text)
    monkeypatch.setattr(module, "_jinja_safe", lambda text: text)
    assert injections("airflow", 1200, "airflow standalone")


@pytest.mark.parametrize("text", ["{{ 7*7 }}", "{% raw %}", "{# c #}x"])
def test_text_beside_a_value_within_jinjas_reach_is_noticed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    case = in_place("airflow standalone", "beside: steps.a.command.1.join.0", text)
    assert found(case) == []
    monkeypatch.setattr(sys.modules["gpuflow.targets.airflow.standalone"], "_jinja_safe", lambda text: text)
    assert found(case)


def test_a_comment_without_its_door_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = in_file_name("airflow", "x\u200b")
    assert found(case) == []
    module = sys.modules["gpuflow.targets.airflow.dag_file"]
    monkeypatch.setattr(module, "comment", lambda lines: "".join(f"# {line}\n" for line in lines))
    assert found(case)
