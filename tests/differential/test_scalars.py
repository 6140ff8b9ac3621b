"""Scalars without quotes are what Kubernetes' own reader of YAML makes of them.

Tests gpuflow/kubernetes/yaml_scalars.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuflow.core import yaml_tree
from gpuflow.kubernetes.yaml_scalars import is_read_otherwise, parse_manifests, resolve
from tests.differential.conftest import Ask
from tests.differential.oracle import Oracle

pytestmark = pytest.mark.go

WORDS = """
yes no on off y n Y N Yes YES yEs On ON OFF true TRUE True tRue ~ null NULL Null 0777 0o17 -0777 0x1F 0X1f -0x1f
0b101 -0b11 0B11 1_000 _1 1_ 1__0 0_7 089 08 0_8 1:30 190:20:30 1e3 1E3 1e400 -1e400 1.10 .5 5. +5 +0x5 +.5 .5e3
1.e3 2020-01-02 2020-01-02T03:04:05Z 18446744073709551615 +9223372036854775808 9223372036854775808
-9223372036854775808 -9223372036854775809 18446744073709551616 99999999999999999999999 1e21 1e20 12345678901.5e9
123456789012345678.0 1.0 -0 -0.0 1e-7 0.000001 0.00012345 0.1e-6 1_0.5 0x_1 0x1p3 .1_0 = 0b 0x 0o8 1e 1_e3 1e+3
._5 +_5 0o1_7 NaN Inf infinity 00 000 007 0o 0_ -_ +_ ._ - + . .. 1.2.3 0.30.0
"""


@pytest.fixture
def reader(oracle: Ask) -> Oracle:
    """Kubernetes' reader."""
    return oracle("argo", "yaml")


def test_words_and_numbers_that_mean_something_to_kubernetes(reader: Oracle) -> None:
    _compare(reader, WORDS.split())


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text("0123456789_.+-eExXoObBaf", min_size=1, max_size=24), min_size=20, max_size=60))
def test_any_number(reader: Oracle, texts: list[str]) -> None:
    _compare(reader, texts)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=20, max_size=60))
def test_any_fraction(reader: Oracle, numbers: list[float]) -> None:
    _compare(reader, [repr(number) for number in numbers])


def _compare(reader: Oracle, texts: list[str]) -> None:
    documents: list[Any] = [f"apiVersion: v1\nkind: X\nkey: {text}\n" for text in texts]
    for text, document, answer in zip(texts, documents, reader.ask(documents), strict=True):
        if answer.get("refused"):
            continue
        theirs = json.loads(answer["json"], parse_float=_Spelled, parse_int=_Spelled)["key"]
        for found in (resolve(text), parse_manifests(document, "x")[0]["key"]):
            is_number = isinstance(found, yaml_tree.Int | yaml_tree.Float)
            assert (found.text if is_number else found) == theirs, text
            assert is_number == isinstance(theirs, _Spelled), text
            assert isinstance(found, yaml_tree.Int) == (is_number and theirs.lstrip("-").isdigit()), text
        if not is_read_otherwise(text):
            ours = yaml_tree.parse_plain(text)
            assert type(ours) is type(resolve(text)), text


class _Spelled(str):
    """A number as JSON spells it."""
