"""Hostile text in every field, compiled for Argo. `python -m proofs trust` runs thousands of cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpuflow.targets.argo import references
from proofs.trust import running
from proofs.trust.argo_itself import ArgoItself
from proofs.trust.compiling import MODES, Case
from proofs.trust.documents import places
from proofs.trust.judging import Injected
from proofs.trust.smoke import assert_nothing_is_injected, found, in_file_name, in_place, injections


def test_hostile_text_stays_text() -> None:
    assert_nothing_is_injected("argo", 250)


@pytest.fixture(autouse=True)
def fresh_twins() -> None:
    """Twins are kept from case to case, and doors are changed between tests."""
    running._twin.cache_clear()


def test_a_door_without_its_tags_hidden_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(references, "without_tags", str)
    assert injections("argo", 600)


def test_a_door_without_the_kubelets_escape_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuflow.pod.spelling.escape", lambda text, glued=False: text)
    assert injections("argo", 600)


def test_a_comment_without_its_door_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = in_file_name("argo default", "x\u200b")
    assert found(case) == []
    monkeypatch.setattr("gpuflow.targets.argo.workflow.comment", lambda lines: "".join(f"# {line}\n" for line in lines))
    assert found(case)


@pytest.mark.parametrize("text", ["' + 'x", "') ? 1 : ('", "\\", "'"])
def test_a_text_that_ends_its_literal_in_a_condition_is_noticed(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """No tag is more or less here, and the hostile text stands where the harmless one does."""
    case = in_place("argo default", "whole: steps.b.when", text)
    assert found(case) == []
    monkeypatch.setattr(references, "constant", lambda value: f"'{value}'" if isinstance(value, str) else str(value))
    assert found(case)


def test_a_number_behind_a_number_is_no_false_alarm() -> None:
    case = in_place("argo default", "construct when.item: steps.a.when", "1e3")
    assert found(replace(case, how="behind")) == []


def test_what_the_kubelet_does_not_expand_is_no_false_alarm() -> None:
    case = in_place("argo default", "construct env.config_map: steps.a.env.A.key", "--help$(GPUFLOW_BRACE)")
    assert found(case) == []


@pytest.mark.go
def test_a_value_without_its_protection_is_noticed_by_argo_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """The artifact's own text is innocent here: what the run makes of a parameter is what counts."""
    (place,) = (each for each in places() if each.document == "whole" and each.path == ("params", "q", "default"))
    mode = next(each for each in MODES if each.name == "argo Workflow")
    case = Case(mode, place, "instead", "{{=1+1}}$(DB_PASSWORD)")
    argo = ArgoItself()
    try:
        argo.judge(case.text, case.made(), case.twin().made())
        monkeypatch.setattr("gpuflow.targets.argo.references.safe_value", lambda value: f"{{{{={value}}}}}")
        with pytest.raises(Injected, match="a program would be started with"):
            argo.judge(case.text, case.made(), case.twin().made())
    finally:
        argo.close()
    assert argo.asked
