"""Options: one table, by word or variable, refused with a sentence.

Tests gpuflow/runtime/base/options.py and gpuflow/runtime/base/units.py.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuflow.runtime import bundle
from gpuflow.runtime.base import options, units
from gpuflow.runtime.base.options import BadOption, check, parse


def test_every_option_is_in_the_help() -> None:
    for option in options.TABLE:
        assert f"--{option.name} " in options.usage() and option.text in options.usage()


def test_values_are_read_by_kind() -> None:
    parsed = parse(
        ["--every=10m", "--keep", "3", "--bandwidth", "200M", "--final-exit-codes", "2, 3", "--grace", "1m30s"], {}
    )
    assert (parsed.every, parsed.keep, parsed.bandwidth) == (600.0, 3, 200_000_000)
    assert (parsed.final_exit_codes, parsed.grace) == ((2, 3), 90.0)


def test_repeated_options_come_from_a_variable_line_by_line() -> None:
    assert parse([], {"GPUFLOW_RUN_OUTPUT": "a:int\nb=/x,y"}).output == ("a:int", "b=/x,y")
    assert parse(["--output", "c"], {"GPUFLOW_RUN_OUTPUT": "a"}).output == ("c",)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--every", "often"], "--every"),
        (["--keep", "0"], "too small"),
        (["--engine", "slurm"], "not one of"),
        (["--grace"], "needs a value"),
        (["train.py"], "after --"),
        (["--bandwidth", "fast"], "not a size"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(words: list[str], part: str) -> None:
    with pytest.raises(BadOption, match=part):
        parse(words, {})


def test_an_exit_code_cannot_be_both_final_and_retryable() -> None:
    with pytest.raises(BadOption, match="exit code 3 is both"):
        check(parse(["--final-exit-codes", "3", "--retryable-exit-codes", "3,4", "--", "true"], {}))


@given(st.integers(0, 10**6))
def test_durations_read_back(seconds: int) -> None:
    hours, rest = divmod(seconds, 3600)
    assert units.seconds(f"{hours}h{rest // 60}m{rest % 60}s") == seconds
    assert units.seconds(str(seconds)) == seconds


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused(text: str) -> None:
    try:
        assert units.seconds(text) >= 0
    except ValueError:
        with pytest.raises(ValueError, match="is not a duration"):
            units.seconds(text)


OPTIONS = {"run_id": "{{workflow.uid}}", "keep": 2, "every": 600, "final-exit-codes": (2, 3), "output": ["a:int", "b"]}


def test_wrapped_words_parse_back_to_the_same_options() -> None:
    words = bundle.wrap(["sh", "-c", "echo $$ {{x}}"], {**OPTIONS, "store": None})
    parsed = parse(words[1:], {})
    assert parsed.command == ["sh", "-c", "echo $$ {{x}}"]
    assert (parsed.run_id, parsed.keep, parsed.every) == ("{{workflow.uid}}", 2, 600.0)
    assert (parsed.final_exit_codes, parsed.output, parsed.store) == ((2, 3), ("a:int", "b"), None)


def test_an_unknown_option_cannot_be_wrapped() -> None:
    with pytest.raises(ValueError, match="--chekpoint"):
        bundle.wrap(["true"], {"chekpoint": "x"})
