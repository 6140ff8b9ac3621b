"""Conditions mean in CEL what they mean in gpuflow.

Tests gpuflow/targets/kubeflow/build.py.
"""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gpuflow.spec import expression
from gpuflow.spec.text import ParamRef
from gpuflow.targets.kubeflow.build import _SCALARS, Cel

NAMES = {"count": "int", "rate": "float", "deploy": "bool", "region": "string"}
CEL = Cel(lambda channel: _SCALARS[NAMES[channel.name]], lambda channel: channel.name)  # type: ignore[union-attr]  # every channel here is a parameter
WORDS = st.sampled_from(["eu", "us", "o'er", 'a"b', "back\\slash", "new\nline", "{{x}}", "é"])
NUMBERS = st.one_of(st.integers(-3, 3), st.sampled_from([-0.5, 0.5, 1.0, 2.5]))


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def comparisons() -> st.SearchStrategy[str]:
    numbers = st.builds(
        lambda name, sign, value: f"params.{name} {sign} {value}",
        st.sampled_from(["count", "rate"]), st.sampled_from(["==", "!=", "<", "<=", ">", ">="]), NUMBERS,
    )  # fmt: skip
    words = st.builds(lambda sign, word: f"params.region {sign} {quoted(word)}", st.sampled_from(["==", "!="]), WORDS)
    members = st.builds(
        lambda sign, options: f"params.region {sign} [{', '.join(map(quoted, options))}]",
        st.sampled_from(["in", "not in"]), st.lists(WORDS, min_size=1, max_size=3),
    )  # fmt: skip
    counts = st.builds(
        lambda options: f"params.count in {options}", st.lists(st.integers(-3, 3), min_size=1, max_size=3)
    )
    return st.one_of(numbers, words, members, counts, st.sampled_from(["params.deploy", "params.deploy == false"]))


def conditions() -> st.SearchStrategy[str]:
    return st.recursive(
        comparisons(),
        lambda inner: st.one_of(
            st.builds(lambda a, b: f"({a}) and ({b})", inner, inner),
            st.builds(lambda a, b: f"({a}) or ({b})", inner, inner),
            st.builds(lambda a: f"not ({a})", inner),
        ),
        max_leaves=6,
    )


def cel(text: str, values: dict[str, Any]) -> bool:
    """CEL over the values KFP hands over: all numbers are doubles. Only what the translation uses, read as Python."""
    parts = re.split(r"('(?:[^'\\]|\\.)*')", text)
    names = {"&&": " and ", "||": " or ", "!(": " not (", "true": "True", "false": "False", "double(": "float("}
    for index in range(0, len(parts), 2):
        for theirs, ours in names.items():
            parts[index] = parts[index].replace(theirs, ours)
        parts[index] = parts[index].replace("inputs.parameter_values", "values")
    handed = {key: float(value) if type(value) is int else value for key, value in values.items()}
    return bool(eval("".join(parts), {"values": handed, "int": int, "float": float}))


@given(
    conditions(),
    st.fixed_dictionaries(
        {
            "count": st.integers(-3, 3),
            "rate": st.sampled_from([-0.5, 0.5, 1.0]),
            "deploy": st.booleans(),
            "region": WORDS,
        }
    ),
)
def test_a_condition_decides_as_it_does_in_gpuflow(text: str, values: dict[str, Any]) -> None:
    tree = expression.parse(text)

    def value_of(ref: Any) -> Any:
        assert isinstance(ref, ParamRef)
        return values[ref.name]

    rendered = CEL.render(tree)
    assert "{{" not in rendered
    assert cel(rendered, values) == expression.evaluate(tree, value_of)


def test_whole_numbers_are_compared_as_whole_numbers() -> None:
    assert CEL.render(expression.parse("params.count > 3")) == "int(inputs.parameter_values['count']) > 3"
    assert CEL.render(expression.parse("params.rate > 3")) == "inputs.parameter_values['rate'] > double(3)"
