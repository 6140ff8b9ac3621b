"""What people write after `gpu:`: a number, `any`, a model, a form, a count; and what they write by mistake."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from gpuflow.core.errors import GpuflowError
from gpuflow.spec.loading import loads
from gpuflow.spec.problems import problems
from gpuflow.spec.resources import Gpu

HEAD = "apiVersion: gpuflow/v1\nkind: Pipeline\nname: p\nsteps:\n"
PIECES = st.sampled_from(
    ["any", "a100-80gb", "l4", "sxm", "pcie", "nvl", "x", "×", "*", "2", "0", " ", "  ", "-", "é", "٣"]
)


def validated(value: Any) -> tuple[Gpu | None, list[str]]:
    """The wish, or the codes of what is wrong with it."""
    try:
        return Gpu.model_validate(value), []
    except ValidationError as error:
        return None, [code for code, *_ in problems(error, Gpu)]


@given(
    st.one_of(st.lists(PIECES, max_size=6).map("".join), st.text(max_size=12), st.integers(), st.floats(), st.none())
)
def test_whatever_is_written_is_a_wish_or_a_problem_with_a_code(value: Any) -> None:
    made, codes = validated(value)
    if made is None:
        assert codes and all(re.fullmatch(r"GF\d{3}", code) for code in codes)
    else:
        assert Gpu.model_validate(made.canonical()) == made
        assert made.count >= 1


@pytest.mark.parametrize(
    ("written", "code", "words", "hint"),
    [
        ("0", "GF152", "gpu: 0 asks for no GPU", "leave gpu out"),
        ("-1", "GF152", "gpu: -1 asks for no GPU", "like gpu: 1"),
        ("1.5", "GF152", "gpu: 1.5 is not a number of GPUs", "a part of a GPU is mig: or shared_gpu:"),
        ("true", "GF152", "gpu: true is not a number of GPUs", "like gpu: 1"),
        ("{}", "GF152", "does not say how many GPUs", "like gpu: 1"),
        ('"2"', "GF152", '"2" does not name GPUs', "write gpu: 2, without quotes"),
        ("2 x l4", "GF152", '"2 x l4" does not name GPUs', "write it like l4 x 2"),
        ("nvidia.com/gpu", "GF152", "does not name GPUs", "write gpu: 1 for any GPU"),
        ("a100-80gb x", "GF152", "does not name GPUs", "a100-80gb x 2"),
        ("{count: 0}", "GF127", "0 is out of range", ""),
        ("a100-80gb sxm4", "GF115", '"sxm4" is not one of sxm, pcie or nvl', "sxm"),
        ("h100 nvl", "GF204", "h100-80gb has no form nvl; it has sxm and pcie", "use h100-94gb"),
        ("h200 pcie", "GF204", "h200-141gb has no form pcie; it has sxm and nvl", "use form: sxm or nvl"),
        ("l4 sxm", "GF204", "l4-24gb comes in no form", "leave form out"),
        ("{any_of: [a100-80gb, l4], form: sxm}", "GF204", "l4-24gb comes in no form", "leave form out"),
        ("{form: sxm, count: 2}", "GF204", "form: sxm does not say of which GPU", "add model, any_of or memory"),
        ("{model: l4, memory: 1Gi}", "GF128", "at most one of model, any_of, memory", "keep one"),
    ],
)
def test_a_mistake_is_told_once_with_its_place_and_the_way_out(written: str, code: str, words: str, hint: str) -> None:
    with pytest.raises(GpuflowError) as caught:
        loads(f"{HEAD}  a: {{image: i, command: [x], gpu: {written}}}\n", "p.yaml")
    (found,) = caught.value.findings
    assert (found.code, found.where.line) == (code, 5)
    assert words in found.message and hint in (found.hint or "")
