"""The two small languages of Argo's fields: what a text comes to, or None where only Argo can tell."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gpuflow.readers.argo.expressions import NotConstant, depends_holds, evaluate, when_holds

WHEN: dict[str, bool | None] = {
    "1 == 1": True,
    "a == a": True,
    "a-b == a-b": True,
    "'a' != a": False,
    "1 == '1'": False,
    "1 < 2 && 2 < 3": True,
    "true || false": True,
    "a || true": None,
    "!true": False,
    "!!true": True,
    "not true": None,
    "1 + 1 == 2": True,
    "2 * 3 % 4 == 2": True,
    "7 / 2 == 3": None,
    "6 / 2 == 3": True,
    "'a' + 'b' == ab": True,
    "a + b == ab": True,
    "-1 < 0": True,
    "(1 == 1)": True,
    "1 == 1 == true": True,
    "true ? false : true": False,
    "[1][0] == 1": None,
    "a.b == c": None,
    "f(1)": None,
    "in == in": None,
    "a in b": None,
    "'it\\'s' == a": False,
    "`r` == r": True,
    "1 ==": None,
    "": None,
    "5": None,
    "yes": None,
    "1 == 1 extra": None,
    "{a} == b": None,
    "1 && true": None,
    "b >= a": True,
    "1 >= 'a'": None,
}
EXPR: dict[str, Any] = {
    "n": "5",
    "m": None,
    "inputs.parameters.n": "7",
    "inputs['parameters'].n": "7",
    "asInt(n) + 1": 6,
    "n == '5' ? 'a' : 'b'": "a",
    "n ? 1 : 2": None,
    "true ? 1 : false ? 2 : 3": 1,
    "not true or true": True,
    "true and not false": True,
    "[1, 2, 3][1]": 2,
    "[1, 2,]": [1, 2],
    "[1][-1]": None,
    "len([1, 2])": 2,
    "'abc' startsWith 'a'": True,
    "'abc' endsWith 'a'": False,
    "'abc' contains 'b'": True,
    "1 in [1, 2]": True,
    "1 in 2": None,
    "min(2, 1) + max(3, 4)": 5,
    "string(1) + 'a'": "1a",
    "sprig.replace('a', 'b', 'cat')": "cbt",
    "unknown(1)": None,
    "fromJSON('[1,{\"a\":2}]')[0]": 1,
    "toJson([1, 'a'])": '[1,"a"]',
    "2 ** 3": None,
    "1 + 2 * 3 - 4": 3,
    "10 / 4": None,
    "10 / 5": 2,
    "7 % 4": 3,
    "1 / 0": None,
    "'a' < 'b'": True,
    "'a' < 1": None,
    "a ?? b": None,
    "1 == 1 == true": True,
    "(1": None,
    "1)": None,
    "'\\q'": None,
    "'\\n'": "\n",
    "asInt('x')": None,
    "2.5 + 1": 3.5,
    "4611686018427387905 + 1": None,
}
DEPENDS: dict[str, bool | None] = {
    "A.Succeeded": True,
    "A.Succeeded && B.Failed": False,
    "A.Succeeded || B.Failed": True,
    "!B.Failed": True,
    "(A.Succeeded || B.Failed) && !C.Errored": True,
    "A": False,
    "A.Succeeded &&": None,
    "5": True,
}
VARIABLES = {"n": "5", "inputs.parameters.n": "7"}
RESULTS = {"A.Succeeded": True, "B.Failed": False}


def answer(function: Callable[..., Any], *given: Any) -> Any:
    try:
        return function(*given)
    except NotConstant:
        return None


@pytest.mark.parametrize(("text", "holds"), WHEN.items())
def test_a_condition_of_govaluate(text: str, holds: bool | None) -> None:
    assert answer(when_holds, text) is holds


@pytest.mark.parametrize(("text", "value"), EXPR.items())
def test_an_expression_of_expr(text: str, value: Any) -> None:
    found = answer(evaluate, text, VARIABLES)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("sign", ["!", "-", "not ", "(", "["])
def test_a_deep_expression_is_not_followed(sign: str) -> None:
    deep = sign * (3_000 // len(sign)) + "true"
    assert answer(when_holds, deep) is answer(evaluate, deep, {}) is answer(depends_holds, deep, {}) is None
    assert answer(when_holds, "!" * 48 + "true") is True


@pytest.mark.parametrize(("text", "holds"), DEPENDS.items())
def test_the_logic_of_depends(text: str, holds: bool | None) -> None:
    assert answer(depends_holds, text, RESULTS) is holds
