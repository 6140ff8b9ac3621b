"""Capability tables fail closed: every construct is answered for exactly once, and every field has a construct.

Tests gpuflow/targets/capabilities.py and gpuflow/targets/constructs.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from gpuflow.engines import ENGINES
from gpuflow.spec.pipeline import Pipeline
from gpuflow.spec.policies import Backoff, Retry
from gpuflow.spec.step import Step
from gpuflow.spec.step_fields import Settings
from gpuflow.targets import load_target
from gpuflow.targets.capabilities import IncompleteTable, NoSupport, PartialSupport, capabilities
from gpuflow.targets.constructs import VOCABULARY
from tests.targets.spec_fields import NEEDS_NONE, PART_OF, SPEC, models_in, unanswered

WORDS = ("a", "b", "c")


@pytest.mark.parametrize("name", ENGINES)
def test_a_construct_that_a_target_has_not_decided_about_is_an_error_at_import(name: str) -> None:
    code = "from gpuflow.targets import constructs; constructs.VOCABULARY += ('teleport',); "
    code += f"import gpuflow.targets.{name}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, '"teleport" is not answered for' in done.stderr) == (1, True)


def test_a_table_says_all_that_is_wrong_with_it() -> None:
    table = {
        "carried": ("a", "b", "b"),
        "weaker": {"a": PartialSupport("half")},
        "cannot": {"retrey": NoSupport("never", "no")},
    }
    with pytest.raises(IncompleteTable) as wrong:
        capabilities(**table, vocabulary=("a", "b", "retry"))  # type: ignore[arg-type]  # three shapes in one dict
    assert str(wrong.value).split("; ") == [
        '"retry" is not answered for',
        '"a" is answered for 2 times',
        '"b" is answered for 2 times',
        '"retrey" is not a construct',
        'did you mean "retry"?',
    ]


def test_a_table_keeps_the_answers_apart() -> None:
    less, none = PartialSupport("half of it"), NoSupport("never", "no such thing")
    table = capabilities(carried=["a"], weaker={"b": less}, cannot={"c": none}, vocabulary=WORDS)
    assert table == {"a": True, "b": less, "c": none}


@pytest.mark.parametrize("name", ENGINES)
def test_every_gap_says_why(name: str) -> None:
    gaps = [answer for answer in load_target(name).capabilities.values() if answer is not True]
    assert gaps and all(gap.reason for gap in gaps)
    assert all(gap.instead for gap in gaps if isinstance(gap, NoSupport))


def test_every_field_of_the_spec_has_a_construct_or_a_reason() -> None:
    assert unanswered() == []


@pytest.mark.parametrize("model", [Settings, Retry, Backoff])
def test_a_new_field_is_found(model: type[Settings]) -> None:
    extra = type(
        model.__name__, (model,), {"__annotations__": {"teleport": int}, "teleport": 0, "__module__": __name__}
    )
    assert unanswered([extra]) == [f"{model.__name__}.teleport"]
    prefix = {"Settings": "", "Retry": "retry."}.get(model.__name__)
    if prefix is not None:
        assert unanswered([extra], [*VOCABULARY, f"{prefix}teleport"]) == []


@pytest.mark.parametrize(("model", "name"), [(Pipeline, "queue"), (Step, "deadline"), (Settings, "on_data")])
def test_a_new_field_is_found_although_another_model_has_a_construct_of_that_name(
    model: type[Settings], name: str
) -> None:
    extra = type(model.__name__, (model,), {"__annotations__": {name: int}, name: 0, "__module__": __name__})
    assert name in VOCABULARY
    assert f"{model.__name__}.{name}" in unanswered([extra])


def test_nothing_is_said_about_fields_and_constructs_that_do_not_exist() -> None:
    fields = {f"{model.__name__}.{name}" for model in models_in(SPEC) for name in model.model_fields}
    said = [field for each in (*PART_OF.values(), *NEEDS_NONE.values()) for field in each]
    assert sorted(set(said) - fields) == []
    assert len(said) == len(set(said))
    assert set(PART_OF) <= set(VOCABULARY)
