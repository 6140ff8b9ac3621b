"""Names that every engine accepts, and the suggestion when one does not."""

from __future__ import annotations

import keyword
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from gpuflow.spec import names

DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def accepts(kind: Any, value: Any) -> bool:
    """Whether the name is taken; a refusal without one of our codes is an error of its own."""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        if all(item["type"].startswith("GF") for item in error.errors()):
            return False
        raise
    return True


@given(st.text("abz019-_.A", max_size=60))
def test_an_accepted_step_name_is_a_dns_label_a_python_free_task_id_and_leaves_room(name: str) -> None:
    expected = bool(DNS_LABEL.fullmatch(name)) and name[0].isalpha() and name.islower() and len(name) <= 52
    assert accepts(names.StepName, name) == (expected and not name[0].isdigit())


@given(st.text("abzA01_-", max_size=8) | st.sampled_from(keyword.kwlist))
def test_an_accepted_parameter_name_is_a_python_keyword_argument(name: str) -> None:
    assert accepts(names.ParamName, name) == (name.isidentifier() and not keyword.iskeyword(name))


@given(st.text(max_size=30))
def test_no_name_of_any_kind_is_anything_but_accepted_or_refused_with_a_code(text: str) -> None:
    kinds = (names.PipelineName, names.StepName, names.ContainerName, names.ClaimName, names.ParamName, names.MountPath,
             names.LabelKey, names.LabelValue, names.EnvName, names.ObjectName)  # fmt: skip
    assert all(accepts(kind, text) in (True, False) for kind in kinds)


@pytest.mark.parametrize(
    ("name", "better"),
    [("Train_Model", "train-model"), ("train.", "train"), ("my step", "my-step"), ("1-train", "train"), ("-x-", "x")],
)
def test_a_refused_name_comes_with_one_that_works(name: str, better: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(names.StepName).validate_python(name)
    context = caught.value.errors()[0]["ctx"]
    assert f'for example "{better}"' in context["hint"]
    assert accepts(names.StepName, better)


@given(st.text(max_size=70))
def test_a_suggested_name_is_itself_accepted(text: str) -> None:
    try:
        TypeAdapter(names.StepName).validate_python(text)
    except ValidationError as error:
        found = re.search(r'for example "(.*)"', error.errors()[0]["ctx"]["hint"])
        assert found is None or accepts(names.StepName, found[1])


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (names.PipelineName, ["a", "nightly", "a" * 52], ["", "a" * 53, "A", "a-", 5, None]),
        (names.LabelKey, ["team", "example.com/team", "a.b/C_d"], ["", "/x", "x/", "a/b/c", "-x", "x" * 64, 3]),
        (names.LabelValue, ["", "nlp", "4711", "a.b_c"], ["-x", "a b", "x" * 64, "ä", 4711, None]),
        (names.EnvName, ["PATH", "_x", "a1"], ["1a", "A-B", "", "GPUFLOW_X", "A=B", 1]),
        (names.ObjectName, ["a", "my-secret", "a.b"], ["A", "a_b", "", ".a", "x" * 254, None]),
        (names.MountPath, ["/", "/data/x"], ["data", "", "/a:b", "/a\0", 1]),
    ],
)
def test_each_kind_of_name_follows_its_rule(kind: Any, good: list[str], bad: list[Any]) -> None:
    assert [name for name in good if not accepts(kind, name)] == []
    assert [name for name in bad if accepts(kind, name)] == []
