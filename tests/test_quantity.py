"""Quantities read, compare, add and print as Kubernetes does."""

import json
import pickle
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.quantity import Format, Quantity

CORPUS = Path(__file__).resolve().parents[1] / ".." / "shared" / "corpora" / "oracles"
PARSE_TABLE = CORPUS / "k8s_quantity_parse.json"

WRONG_FORMAT = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
WRONG_SUFFIX = "unable to parse quantity's suffix"

SUFFIXES = ["", *"numkMGTPE", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e3", "E-2", "e+7"]


@st.composite
def spellings(draw: st.DrawFn) -> str:
    sign = draw(st.sampled_from(["", "", "", "+", "-"]))
    whole = draw(st.integers(0, 10**9).map(str))
    fraction = draw(st.one_of(st.just(""), st.integers(0, 10**12).map(lambda n: f".{n}")))
    suffix = draw(st.sampled_from(SUFFIXES))
    return f"{sign}{whole}{fraction}{suffix}"


quantities = spellings().map(Quantity)


def amount(quantity: Quantity) -> Fraction:
    return Fraction(quantity.nano, 10**9)


@pytest.mark.skipif(not PARSE_TABLE.exists(), reason="the corpora folder is not beside the checkout")
def test_kubernetes_own_parse_table() -> None:
    table = json.loads(PARSE_TABLE.read_text())
    for case in table["valid"]:
        quantity = Quantity(case["input"])
        expected = Fraction(case["unscaled"]) * Fraction(10) ** case["exp10"]
        assert amount(quantity) == expected, case
        assert quantity.format.value == case["format"], case
    for text in table["invalid"]:
        with pytest.raises(ValueError, match="quantit"):
            Quantity(text)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("1024Ki", "1Mi"),
        ("1.5Gi", "1536Mi"),
        ("1000", "1k"),
        ("2000m", "2"),
        ("1500m", "1500m"),
        ("0.1Ki", "102400m"),
        ("0.5Ki", "512"),
        ("1073741825", "1073741825"),
        ("1.2e3", "1200"),
        ("1e9", "1e9"),
        ("10e99", "10e99"),
        ("E", "0"),
        ("1E", "1E"),
        ("1E3", "1e3"),
        ("-", "0"),
        (".", "0"),
        ("Ki", "0"),
        ("e5", "0"),
        ("0.0000000001", "1n"),
        ("-0.0000000001", "-1n"),
        ("1e-200", "1e-9"),
        ("16Ei", "9223372036854775807"),
        ("16E", "16E"),
        ("1000E", "1000E"),
        ("1.G", "1G"),
        ("+.5", "500m"),
    ],
)
def test_canonical_form(text: str, canonical: str) -> None:
    assert str(Quantity(text)) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", WRONG_FORMAT),
        ("1 Gi", WRONG_FORMAT),
        ("1_000", WRONG_FORMAT),
        ("nan", WRONG_FORMAT),
        ("١Gi", WRONG_FORMAT),
        ("1.1.M", WRONG_FORMAT),
        ("1K", WRONG_SUFFIX),
        ("1mi", WRONG_SUFFIX),
        ("1GiB", WRONG_FORMAT),
        ("1e", WRONG_SUFFIX),
        ("1e99999999999999999999", WRONG_SUFFIX),
        (".e-20", "unable to parse numeric part of quantity"),
        ("Pi", "unable to parse numeric part of quantity"),
        ("1e2147483647", f"{WRONG_SUFFIX}: exponent 2147483647 is above 100"),
        ("9" * 2000, "quantity of 2000 characters; the longest read is 1000"),
    ],
)
def test_refusals_use_kubernetes_words(text: str, message: str) -> None:
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - the whole message is compared
        Quantity(text)
    assert str(refusal.value) == message


@pytest.mark.parametrize("value", [True, None, [], {}, float("nan"), float("inf")])
def test_things_that_are_not_quantities(value: object) -> None:
    with pytest.raises(ValueError, match="quantities must match"):
        Quantity(value)  # type: ignore[arg-type]  # wrong on purpose


def test_json_numbers_are_read_by_their_literal() -> None:
    assert str(Quantity(3)) == "3"
    assert str(Quantity(0.1)) == "100m"
    assert str(Quantity(1e-05)) == "10e-6"
    assert Quantity(2.0) == Quantity("2")
    assert Quantity(Quantity("1Ki")) is Quantity("1Ki")


def test_equal_amounts_are_equal_in_every_notation() -> None:
    same = [Quantity(text) for text in ("1Ki", "1024", "1.024k", "1024000m", "1024e0", "0.0009765625Mi")]
    assert len(set(same)) == 1
    assert Quantity("1Ki") != Quantity("1k")
    assert Quantity("15G") < Quantity("15Gi")
    assert Quantity("1") != "1"


def test_a_sum_takes_the_notation_of_its_first_operand_that_is_not_zero() -> None:
    assert str(Quantity("1Gi") + Quantity("500M")) == "1573741824"
    assert str(Quantity("0") + Quantity("1Gi")) == "1Gi"
    assert str(Quantity("0Mi") + Quantity("1M")) == "1M"
    assert str(Quantity("2Gi") - Quantity("1Gi")) == "1Gi"
    assert str(Quantity("0") - Quantity("1Gi")) == "-1Gi"
    assert str(sum([Quantity("1Gi"), Quantity("1Gi")], Quantity.zero)) == "2Gi"
    assert str(Quantity("512Mi") * 3) == str(3 * Quantity("512Mi")) == "1536Mi"


def test_rounding_goes_away_from_zero() -> None:
    assert (Quantity("0.0001").value, Quantity("0.0001").milli) == (1, 1)
    assert (Quantity("1.5").value, Quantity("1.5").milli) == (2, 1500)
    assert (Quantity("-1.5").value, Quantity("-1.5001").milli) == (-2, -1501)
    assert str(Quantity("0.0001").rounded_to_milli()) == "1m"
    assert str(Quantity("1Gi").rounded_to_milli()) == "1Gi"


def test_the_api_server_repeats_some_spellings() -> None:
    assert Quantity("1.500").text == "1.500"
    assert Quantity("1E3").text == "1E3"
    assert Quantity("1.5").text == "1500m"
    assert (Quantity("1.500") + Quantity.zero).text == "1500m"


def test_a_quantity_cannot_be_changed() -> None:
    with pytest.raises(AttributeError, match="cannot be changed"):
        Quantity("1").nano = 7
    with pytest.raises(AttributeError, match="cannot be changed"):
        del Quantity("1").nano


def test_repr_reads_back() -> None:
    assert repr(Quantity("1024Ki")) == "Quantity('1Mi')"


def test_operations_with_other_types_are_refused() -> None:
    with pytest.raises(TypeError):
        Quantity("1") + 1  # type: ignore[operator]  # wrong on purpose
    with pytest.raises(TypeError):
        Quantity("1") * 1.5  # type: ignore[operator]  # wrong on purpose
    with pytest.raises(TypeError):
        _ = Quantity("1") < 2  # type: ignore[operator]  # wrong on purpose


@given(spellings())
def test_canonical_form_is_a_fixed_point_of_the_same_amount(text: str) -> None:
    quantity = Quantity(text)
    again = Quantity(str(quantity))
    assert again == quantity
    assert hash(again) == hash(quantity)
    assert str(again) == str(quantity)


@given(quantities, quantities)
def test_order_agrees_with_the_exact_fractions(left: Quantity, right: Quantity) -> None:
    assert (left < right) == (amount(left) < amount(right))
    assert (left <= right) == (amount(left) <= amount(right))
    assert (left > right) == (amount(left) > amount(right))
    assert (left >= right) == (amount(left) >= amount(right))
    assert (left == right) == (amount(left) == amount(right))


@given(quantities, quantities, st.integers(-1000, 1000))
def test_arithmetic_agrees_with_the_exact_fractions(left: Quantity, right: Quantity, factor: int) -> None:
    assert amount(left + right) == amount(left) + amount(right)
    assert left + right == right + left
    assert amount(left - right) == amount(left) - amount(right)
    assert (left + right) - right == left
    assert amount(left * factor) == amount(left) * factor
    assert -left + left == Quantity.zero


@given(quantities)
def test_rounded_values_cover_the_amount_by_less_than_one_unit(quantity: Quantity) -> None:
    assert 0 <= abs(quantity.value) - abs(amount(quantity)) < 1
    assert 0 <= abs(quantity.milli) - abs(amount(quantity)) * 1000 < 1
    assert quantity.rounded_to_milli().milli == quantity.milli


@given(quantities)
def test_pickling_keeps_amount_notation_and_spelling(quantity: Quantity) -> None:
    again = pickle.loads(pickle.dumps(quantity))
    assert (again, again.format, again.text) == (quantity, quantity.format, quantity.text)


@given(st.integers(-(2**63 - 1) * 10**9, (2**63 - 1) * 10**9), st.sampled_from(Format))
def test_every_amount_prints_so_that_it_reads_back(nano: int, format: Format) -> None:
    quantity = Quantity.from_nano(nano, format)
    assert Quantity(str(quantity)) == quantity


@given(st.text(max_size=8))
def test_any_text_reads_or_is_refused_with_a_value_error(text: str) -> None:
    refusal = ""
    try:
        quantity = Quantity(text)
    except ValueError as error:
        refusal = str(error)
    assert "quantit" in refusal or Quantity(str(quantity)) == quantity
