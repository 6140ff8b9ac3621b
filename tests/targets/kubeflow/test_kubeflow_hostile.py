"""Hostile text in every field, compiled to KFP's IR. `python -m proofs trust` runs thousands of cases."""

from __future__ import annotations

import pytest

from gpuflow.targets.kubeflow import build, pods, references
from proofs.trust import running
from proofs.trust.smoke import assert_nothing_is_injected, found, in_place, injections


@pytest.fixture(autouse=True)
def fresh_twins() -> None:
    """Twins are kept from case to case, and doors are changed between tests."""
    running._twin.cache_clear()


def test_hostile_text_stays_text() -> None:
    assert_nothing_is_injected("kubeflow", 250)


def test_braces_that_are_not_hidden_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "without_double_braces", str)
    assert injections("kubeflow", 600)


def test_tags_that_are_not_refused_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuflow.targets.refusals.unresolved_tags", lambda name, pod, where: iter(()))
    assert injections("kubeflow", 1500)


@pytest.mark.parametrize("mode", ["kubeflow", "kubeflow crd"])
@pytest.mark.parametrize("hostile", ["' + 'x", "') ? 1 : ('", "\\", "'"])
def test_a_text_that_ends_its_literal_in_a_condition_is_noticed(
    monkeypatch: pytest.MonkeyPatch, mode: str, hostile: str
) -> None:
    case = in_place(mode, "whole: exit.z.when", hostile)
    assert found(case) == []
    monkeypatch.setattr(build, "_constant", lambda value, double: f"'{value}'")
    assert found(case)


@pytest.mark.parametrize("hostile", ["{{$.inputs.parameters['p']}}", "{{$}}"])
def test_a_placeholder_of_the_launcher_is_noticed(monkeypatch: pytest.MonkeyPatch, hostile: str) -> None:
    """It is spelled for Argo and the kubelet; the launcher reads the command after both."""
    monkeypatch.setattr(references, "placeholder_problems", lambda words: iter(()))
    assert found(in_place("kubeflow", "beside: steps.a.command.0", hostile))


@pytest.mark.parametrize("mode", ["kubeflow", "kubeflow crd"])
def test_text_that_only_one_kubelet_gives_back_is_noticed(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    case = in_place(mode, "beside: steps.a.command.0", "$(KFP_POD_NAME)")
    assert found(case) == []
    monkeypatch.setattr(pods, "for_driver", str)
    assert found(case)
