"""The language of conditions: parsed, typed, rendered and evaluated, never run as code."""

from __future__ import annotations

import operator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.spec import expression
from gpuflow.spec.expression import Compare, Expression, ExpressionError, Literal, Logic, Member, Not, Reference
from gpuflow.spec.text import ItemRef, OutputRef, ParamRef

VALUES: dict[str, Any] = {"int": 3, "float": 0.5, "string": "eu", "bool": True}
names = st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True).filter(lambda word: word not in ("and", "or", "not", "in"))
refs = st.one_of(st.builds(OutputRef, names, names), st.builds(ParamRef, names), st.builds(ItemRef, names)).map(
    Reference
)
numbers = st.integers(-1000, 1000) | st.floats(-1e6, 1e6, allow_nan=False).map(lambda number: number + 0.0)
strings = st.text(max_size=8)
literals = st.builds(Literal, numbers | strings | st.booleans())
comparisons = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
operands = refs | literals


def compound(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    return st.one_of(
        st.builds(Compare, comparisons, inner, inner),
        st.builds(Member, inner, st.lists(literals, min_size=1, max_size=3).map(tuple), st.booleans()),
        st.builds(Logic, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, inner),
    )


trees = st.recursive(operands, compound, max_leaves=12)


def bare(tree: Any) -> Any:
    """The tree without the places of its parts."""
    if isinstance(tree, tuple):
        return tuple(map(bare, tree))
    if not isinstance(tree, Literal | Reference | Compare | Member | Logic | Not):
        return tree
    changes = {
        field.name: bare(getattr(tree, field.name)) for field in fields(tree) if field.init and field.name != "offset"
    }
    return replace(tree, **changes, offset=0)


@given(trees)
def test_a_rendered_condition_is_parsed_to_the_same_condition(tree: Expression) -> None:
    assert bare(expression.parse(expression.render(tree))) == bare(tree)


@given(trees)
def test_rendering_is_stable(tree: Expression) -> None:
    text = expression.render(tree)
    assert expression.render(expression.parse(text)) == text


@given(st.text(max_size=80) | st.text("()[],'\"<>=!andorinsteps.params.x1 \\-", max_size=120))
def test_any_text_is_a_condition_or_an_error_with_a_place_in_it(text: str) -> None:
    found = parsed(text)
    if isinstance(found, ExpressionError):
        assert 0 <= found.offset <= len(text)
        assert found.message
    else:
        assert bare(parsed(expression.render(found))) == bare(found)


def parsed(text: str) -> Expression | ExpressionError:
    try:
        return expression.parse(text)
    except ExpressionError as refusal:
        return refusal


@pytest.mark.parametrize(
    "text",
    ["(" * 400, "not " * 900, "1 in [(" * 500, "x" * 5000, "(" * 60 + "true" + ")" * 60, "1 in [" * 600, "1e999 < 2"],
)
def test_huge_and_deep_conditions_are_refused_not_followed(text: str) -> None:
    with pytest.raises(ExpressionError):
        expression.parse(text)


def test_fifty_brackets_are_followed_and_no_more() -> None:
    assert expression.parse("(" * 50 + "true" + ")" * 50) == Literal(value=True)
    with pytest.raises(ExpressionError, match="nested deeper than 50 levels"):
        expression.parse("(" * 51 + "true" + ")" * 51)


# Typed conditions: every leaf has a known type, so that a plain Python model can say what they mean.
typed_numbers = st.sampled_from([Reference(ParamRef("int")), Reference(ParamRef("float"))]) | st.builds(
    Literal, numbers
)
typed_strings = st.just(Reference(ParamRef("string"))) | st.builds(Literal, st.sampled_from(["eu", "us", ""]))
orders = st.builds(Compare, comparisons, typed_numbers, typed_numbers)
equals = st.builds(Compare, st.sampled_from(["==", "!="]), typed_strings, typed_strings)
members = st.builds(
    Member,
    typed_strings,
    st.lists(st.builds(Literal, st.sampled_from(["eu", "us"])), min_size=1).map(tuple),
    st.booleans(),
)
decisions = st.recursive(
    orders | equals | members | st.just(Reference(ParamRef("bool"))) | st.builds(Literal, st.booleans()),
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(Logic, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=8,
)
PYTHON = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def model(tree: Expression) -> Any:
    """What Python itself says."""
    match tree:
        case Literal(value):
            return value
        case Reference(ref):
            return VALUES[ref.name]
        case Compare(sign, left, right):
            return PYTHON[sign](model(left), model(right))
        case Member(value, options, negated):
            return (model(value) in {option.value for option in options}) is not negated
        case Logic("and", terms):
            return all(model(term) for term in terms)
        case Logic(_, terms):
            return any(model(term) for term in terms)
        case Not(term):
            return not model(term)
    raise AssertionError(tree)


@given(decisions)
def test_a_condition_decides_as_python_would(tree: Expression) -> None:
    assert expression.infer(tree, lambda reference: reference.ref.name) == "bool"
    assert expression.evaluate(tree, lambda ref: VALUES[ref.name]) is model(tree)


@pytest.mark.parametrize(
    ("text", "message", "offset"),
    [
        ("steps.a.b >", "the condition ends too early", 11),
        ("accuracy > 1", '"accuracy" does not name a value', 0),
        ("params.a && params.b", '"&&" is not part of the language', 9),
        ("params.a = 1", '"=" is not part of the language', 9),
        ("1 < 2 < 3", "comparisons cannot be chained", 6),
        ("true and 1 == 2 == true", "comparisons cannot be chained", 16),
        ("not item.k in [1] < 3", '"<" is not expected here', 18),
        ("params.a in 3", "`in` takes a list", 12),
        ("params.a in []", "the list is empty", 12),
        ("params.a in [params.b]", "a list holds numbers, strings, true and false only", 21),
        ("params.a in [1 2]", "a comma or ] is missing", 15),
        ("(params.a", "a closing ) is missing", 9),
        ("params.a params.b", '"params.b" is not expected here', 9),
        ("'open", "a quote is not closed", 0),
        ("steps.a", '"steps.a" does not name a value', 0),
        ("__import__('os')", '"__import__" does not name a value', 0),
    ],
)
def test_a_broken_condition_says_what_and_where(text: str, message: str, offset: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        expression.parse(text)
    assert (caught.value.message, caught.value.offset, caught.value.code) == (message, offset, "GF161")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("params.string > 'a'", '">" orders numbers only, not a string'),
        ("params.int == 'a'", '"==" compares an int with a string'),
        ("params.bool == 1", '"==" compares a bool with an int'),
        ("params.json == 1", 'json cannot be used with "=="'),
        ("not params.int", '"not" needs true or false, but params.int is an int'),
        ("params.bool and params.string", '"and" needs true or false, but params.string is a string'),
        ("params.string in ['a', 1]", '"in" compares a string with an int'),
    ],
)
def test_types_that_do_not_go_together_are_found_when_loading(text: str, message: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        expression.infer(expression.parse(text), lambda reference: reference.ref.name)
    assert (caught.value.message, caught.value.code) == (message, "GF162")


def test_conditions_that_say_the_same_are_equal_however_they_are_spaced() -> None:
    spaced, plain = "params.a>1   and (params.b == 'x')", 'params.a > 1 and params.b == "x"'
    assert expression.parse(spaced) == expression.parse(plain)
    assert expression.parse("params.a > 1") != expression.parse("params.a > 2")


def test_and_binds_stronger_than_or_and_not_stronger_than_both() -> None:
    tree = expression.parse("params.a or params.b and not params.c")
    assert expression.render(tree) == "params.a or (params.b and not params.c)"
    assert [expression.render(reference) for reference in expression.references(tree)] == [
        "params.a",
        "params.b",
        "params.c",
    ]


FEW: tuple[Any, ...] = (0, 1, 1.0, True, False, "1", "a")
REF = Reference(OutputRef("a", "b"))
few = st.sampled_from(FEW).map(Literal)
asked = st.one_of(
    st.builds(Compare, st.sampled_from(["==", "!="]), st.just(REF), few),
    st.builds(Member, st.just(REF), st.lists(few, min_size=1, max_size=3).map(tuple), st.booleans()),
)
conditions = st.recursive(
    asked,
    lambda inner: st.one_of(
        st.builds(Logic, st.sampled_from(["and", "or"]), st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Not, inner),
    ),
    max_leaves=6,
)


def holds(tree: Any, value: Any) -> bool:
    """What a condition says of a value where true is no number, as in CEL."""
    if isinstance(tree, Not):
        return not holds(tree.term, value)
    if isinstance(tree, Logic):
        return (all if tree.operator == "and" else any)(holds(term, value) for term in tree.terms)
    options = tree.options if isinstance(tree, Member) else (tree.right,)
    equal = any(each.value == value and isinstance(each.value, bool) is isinstance(value, bool) for each in options)
    return equal is not (tree.negated if isinstance(tree, Member) else tree.operator == "!=")


@given(conditions, conditions)
def test_conditions_that_exclude_each_other_never_both_hold(one: Expression, other: Expression) -> None:
    if expression.exclude(one, other):
        assert not any(holds(one, value) and holds(other, value) for value in (*FEW, 7, "other"))


def test_a_condition_and_its_opposite_exclude_each_other() -> None:
    first = Compare("==", REF, Literal(1))
    assert expression.exclude(first, Not(first)) and expression.exclude(first, Compare("!=", REF, Literal(1)))
    assert not expression.exclude(first, Compare("!=", REF, Literal(True)))
